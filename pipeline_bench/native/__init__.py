"""The program of the loop ``native``: C files, compiled once against the installed TensorFlow, and what it writes."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system.files import write_atomically
from pipeline_bench.system.user_folders import user_folder
from pipeline_bench.text import NAME, one_line, units

_COMPILERS = ("cc", "gcc", "clang")
_LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
_FLAGS = ("-std=gnu11", "-O2", "-pthread")
_SOURCES = Path(__file__).parent
_PROGRAM = "pipeline-bench-native"
_STAND_IN = "stand_in.c"
_CALLED = re.compile(r"\b(TF_[A-Za-z]+)\(")
_ASK_EVERY_S = 0.25
_MOST_S = 120.0
_HEAD = struct.Struct("=ii")
_STEP_HEAD = struct.Struct("=qqq")
_FAILURE_HEAD = struct.Struct("=ii")
_READ_BYTES = 1 << 20


class Toolchain(NamedTuple):
    """What the program is compiled with: the compiler's command, and the folder of TensorFlow."""

    compiler: tuple[str, ...]
    tensorflow: Path


def find() -> Toolchain | str:
    """Return what to compile with, or why this machine cannot and what to do about it. Imports no TensorFlow."""
    compiler = _compiler()
    if isinstance(compiler, str):
        return compiler
    folder = _tensorflow_folder()
    missing = [name for name in _LIBRARIES if folder is None or not (folder / name).is_file()]
    if folder is None or missing:
        return f"the installed TensorFlow has no {' and no '.join(missing)}: install the package `tensorflow` with pip."
    if not (folder / "include" / "tensorflow" / "c" / "c_api.h").is_file():
        return "the installed TensorFlow comes without its C headers: install the package `tensorflow` with pip."
    return Toolchain(compiler, folder)


def _compiler() -> tuple[str, ...] | str:
    """Return the compiler's command, its absolute path first, or why there is none. ``$CC`` decides if it is set."""
    try:
        given = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        return f"$CC is no command: {one_line(os.environ['CC'], NAME)} ({error}): set it to a compiler, or unset it."
    names = (given[0],) if given else _COMPILERS
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is not None:
        return (str(Path(found).absolute()), *given[1:])  # it is called in another folder
    if given:
        return f"the C compiler that $CC names, {given[0]}, was not found: set $CC to one that is there, or unset it."
    return (
        f"no C compiler was found ({', '.join(_COMPILERS)}): install one, with `apt install gcc` or `dnf install gcc`;"
        " the program is then compiled at the first trial."
    )


def _tensorflow_folder() -> Path | None:
    spec = importlib.util.find_spec("tensorflow")
    locations = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(locations[0]) if locations else None


def cache_folder() -> Path:
    """Return the folder of compiled programs, in the user's cache.

    Raises:
        PipelineBenchError: nothing says where that is.
    """
    try:
        return user_folder("cache") / "native"
    except RuntimeError as error:
        raise PipelineBenchError(
            f"The program without Python has no folder to be kept in: {error}.",
            "Set XDG_CACHE_HOME to a folder that can be written to.",
        ) from error


def program(toolchain: Toolchain, heartbeat: Callable[[], None] = lambda: None) -> Path:
    """Return the program, compiled if it is not yet.

    Args:
        toolchain: as `find` gives it.
        heartbeat: called a few times a second while it is compiled.

    Raises:
        PipelineBenchError: the compiler fails, or nothing can be written to the user's cache.
    """
    folder = cache_folder()
    path = folder / f"{_PROGRAM}-{_key(toolchain)}"
    if os.access(path, os.X_OK):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Compiled among the trial's temporary files, which go with it: also one that is killed leaves nothing here.
        with tempfile.TemporaryDirectory() as unfinished:
            _compile(toolchain, Path(unfinished), heartbeat)
            made = Path(unfinished) / _PROGRAM
            write_atomically(path, made.read_bytes())
            path.chmod(made.stat().st_mode)  # until then another trial takes it for none, and compiles its own
    except OSError as error:
        raise PipelineBenchError(
            f"The program without Python cannot be compiled into {folder}: {error.strerror or error}.",
            "Set XDG_CACHE_HOME to a folder that can be written to.",
        ) from error
    return path


def _key(toolchain: Toolchain) -> str:
    """Return a key of all that the program depends on: source, compiler, flags, TensorFlow's location and version.

    Of the compiler and of TensorFlow size and time stand for the version, as asking them would take longer.
    """
    digest = hashlib.sha256()
    for source in _sources("*.[ch]"):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update("\0".join(argument for command in _commands(toolchain) for argument in command).encode())
    for file in (Path(toolchain.compiler[0]), *(toolchain.tensorflow / name for name in _LIBRARIES)):
        status = file.stat()
        digest.update(f"\0{status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _sources(pattern: str) -> list[Path]:
    return sorted(_SOURCES.glob(pattern))


def _stand_in() -> str:
    """Return the C source of a library with the functions of TensorFlow that the program calls; they do nothing here.

    The program is linked against it and finds the real one, of the same name, when it starts: a linker reads that one's
    gigabyte for ten seconds.
    """
    called = {name for path in _sources("*.c") for name in _CALLED.findall(path.read_text(encoding="utf-8"))}
    return "".join(f"void {name}(void) {{}}\n" for name in sorted(called))


def _commands(toolchain: Toolchain) -> tuple[list[str], list[str]]:
    """Return the command that compiles the stand-in, and that for the program, both for a folder of their own."""
    folder, library = toolchain.tensorflow, _LIBRARIES[0]
    sources = [str(path) for path in _sources("*.c")]
    # Bound at once, so that a function that the real library does not have is named before the trial begins.
    linking = ["-L.", "-Wl,--no-as-needed", f"-l:{library}", f"-Wl,-rpath,{folder}", "-Wl,-z,now", "-lm"]
    return (
        [*toolchain.compiler, "-shared", "-fPIC", f"-Wl,-soname,{library}", _STAND_IN, "-o", library],
        [*toolchain.compiler, *_FLAGS, "-isystem", f"{folder / 'include'}", *sources, "-o", _PROGRAM, *linking],
    )


def _compile(toolchain: Toolchain, folder: Path, heartbeat: Callable[[], None]) -> None:
    (folder / _STAND_IN).write_text(_stand_in(), encoding="ascii")
    for command in _commands(toolchain):
        code, text = _run(command, folder, heartbeat)
        if code != 0:
            raise PipelineBenchError(
                f"The C compiler {toolchain.compiler[0]} cannot compile the program without Python: "
                f"{first_error(text, code)}",
                "Set $CC to another compiler, or leave out the variants with the loop native.",
            )


def _run(command: list[str], folder: Path, heartbeat: Callable[[], None]) -> tuple[int | None, str]:
    """Run a compiler; return its exit code, None if it does not end, and its output."""
    with tempfile.TemporaryFile() as said:
        english = {**os.environ, "LC_ALL": "C"}  # `first_error` knows its words
        compiling = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=english
        )
        try:
            code = _wait(compiling, heartbeat)
        finally:
            compiling.kill()
            compiling.wait()
        said.seek(0)
        return code, said.read().decode(errors="replace")


def _wait(compiling: subprocess.Popen[bytes], heartbeat: Callable[[], None]) -> int | None:
    """Return the compiler's exit code; None if it does not end."""
    for _ in range(round(_MOST_S / _ASK_EVERY_S)):
        try:
            return compiling.wait(_ASK_EVERY_S)
        except subprocess.TimeoutExpired:
            heartbeat()
    return None


def first_error(text: str, code: int | None) -> str:
    """Return a compiler's complaint: its first line that speaks of an error, else its first line, else how it ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in lines if "error" in line.lower() or "cannot" in line), None)
    ended = f"it did not end within {_MOST_S:.0f} s" if code is None else f"it {units.ending(code)}"
    return found or (lines[0] if lines else ended)


class SessionReady(NamedTuple):
    """The session is open and has its variables."""


class StepMessage(NamedTuple):
    """One training step; times in ns of ``time.monotonic_ns``, and what it fetched, float64 [n]."""

    start_ns: int
    end_ns: int
    sampled: bool
    values: Any


class Sizes(NamedTuple):
    """How many elements each queue of the input holds."""

    each: Sequence[int]


class Failure(NamedTuple):
    """Why the program ends: TensorFlow's error code, 0 where it is none of TensorFlow's, and what it says."""

    code: int
    in_training: bool
    text: str


class EndMessage(NamedTuple):
    """The steps have been run and the variables written."""


Message = SessionReady | StepMessage | Sizes | Failure | EndMessage


def messages(read: int) -> Iterator[Message]:
    """Yield the messages from the pipe until its other end is closed; an unfinished one is dropped.

    Raises:
        PipelineBenchError: it is nothing that the program writes.
    """
    pending = b""
    while block := os.read(read, _READ_BYTES):
        pending += block
        at = 0
        while len(pending) - at >= _HEAD.size:
            kind, length = _HEAD.unpack_from(pending, at)
            end = at + _HEAD.size + length
            if end > len(pending):
                break
            yield _message(kind, pending[at + _HEAD.size : end])
            at = end
        pending = pending[at:]


def _message(kind: int, content: bytes) -> Message:
    """Return a message by its kind, in the numbers of `stream.h`."""
    match kind:
        case 1:
            return SessionReady()
        case 2:
            start_ns, end_ns, sampled = _STEP_HEAD.unpack_from(content)
            return StepMessage(
                start_ns, end_ns, bool(sampled), np.frombuffer(content, np.float64, offset=_STEP_HEAD.size)
            )
        case 3:
            return Sizes(struct.unpack(f"={len(content) // 8}q", content))
        case 4:
            code, training = _FAILURE_HEAD.unpack_from(content)
            return Failure(code, bool(training), content[_FAILURE_HEAD.size :].decode(errors="replace"))
        case 5:
            return EndMessage()
    raise PipelineBenchError(f"The native program wrote a message of the kind {kind}, which there is not.")
