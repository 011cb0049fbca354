"""What belongs to the user: the location of a call in their source, what their code raised, its imports and seeds.

tf.data wraps an exception of a map function or a generator in an error of its own, with Python's traceback as text
inside where there was Python.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import pickle
import random
import re
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Literal

from pipeline_bench.errors import PipelineBenchError, UserCodeError
from pipeline_bench.model.job import Eager
from pipeline_bench.model.pipeline import Location
from pipeline_bench.system.processes import no_collection
from pipeline_bench.text import FIELD_CHARACTERS, message_of, one_line, safe_message
from pipeline_bench.user_code import installed

OURS = str(Path(__file__).parents[1]) + "/"
TENSORFLOW = ("tensorflow", "keras", "tf_keras")
UNSEEN = ("flax", "jax", "torch")
"""Frameworks whose calls do not show as they train. TensorFlow imports JAX by itself where it is installed."""
_GENERATED = "__autograph_generated_file"
"""The name of the files that AutoGraph converts functions into, in the folder for temporary files."""
_STANDARD_LIBRARY = (sysconfig.get_path("stdlib") + "/", sysconfig.get_path("platstdlib") + "/")

_NODES = re.compile(r"\{\{(?:function_node|node) [^}]*\}\}\s*")
_WRAPPING = re.compile(
    r"^Error in user-defined function passed to \w+(?::\d+)? transformation with iterator: [\w:\[\]]+: "
    r"|\s*(?:\[\[[^\]]*\]\]\s*)?(?:\[Op:\w+\](?: name:.*)?\s*)?$"
)
_CREATED_AT = re.compile(r"Detected at node .* defined at \(most recent call last\):.*", re.DOTALL)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line \d+')
_TRACEBACK = "Traceback (most recent call last):"
LONGEST_MESSAGE = 600

Origin = Literal["user", "library", "tensorflow", "other"]
"""Whose code a frame runs. ``other`` is the standard library, this program, and what has no file."""


@functools.cache  # `users_modules` asks for each module: more of them than a cache has room for would all be missed
def origin(file: str) -> Origin:
    """Return whose code a file holds, by where it is."""
    if file.startswith(OURS) or (file.startswith("<frozen") and file.endswith(">")):
        return "other"
    if installed.is_of(file, TENSORFLOW):
        return "tensorflow"
    path = installed.inside(file)
    if path is None:
        return "other" if file.startswith(_STANDARD_LIBRARY) else "user"
    package = path.partition("/")[0]
    if package in TENSORFLOW:
        return "tensorflow"
    return "user" if package.removesuffix(".py") == installed.program() else "library"


def names(packages: tuple[str, ...]) -> bool:
    """Return whether a module of the user's that is imported by now has a name for something of these packages."""
    return any(_module_of(value).startswith(packages) for _, own in users_modules() for value in list(own.values()))


def users_modules() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the file and the variables of each module of the user's that is imported by now."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            # Asked otherwise, a module that loads late would load.
            variables = object.__getattribute__(module, "__dict__")
            if (file := variables.get("__file__")) and origin(str(file)) == "user":
                yield str(file), variables


def _module_of(value: object) -> str:
    """Return the module that a value is, is defined in, or whose class it is of."""
    if isinstance(value, ModuleType):
        return str(value.__name__)
    return str(getattr(value if isinstance(value, type | FunctionType) else type(value), "__module__", ""))


def functions_run_eagerly() -> bool:
    """Return whether the program has TensorFlow run each `tf.function` as eager code."""
    config = getattr(sys.modules.get("tensorflow"), "config", None)
    return config is not None and bool(config.functions_run_eagerly())


@contextmanager
def functions_traced() -> Iterator[None]:
    """Have TensorFlow trace each `tf.function` that is called in the block, whatever it was told before."""
    import tensorflow as tf

    before = functions_run_eagerly()
    tf.config.run_functions_eagerly(False)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a class until the block ends; one that it inherits is then inherited again."""
    before, is_own = inspect.getattr_static(owner, name), name in vars(owner)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def runs_eagerly(model: Any) -> Eager | None:
    """Return why a Keras model on TensorFlow runs as eager code; None where it runs as a graph."""
    return "functions" if functions_run_eagerly() else "model" if model.run_eagerly else None


def is_converted(file: str) -> bool:
    """Return whether a file is what AutoGraph made of a function; it is gone when the process has ended."""
    return _GENERATED in file


def location(depth: int = 1) -> Location | None:
    """Return the location of the nearest call in the user's code, or else in a library that is not TensorFlow's.

    `depth` counts the frames to leave out, the caller's own being 0.
    """
    frames = list(outward(sys._getframe(depth + 1)))
    for whose in ("user", "library"):
        for frame in frames:
            if origin(frame.f_code.co_filename) == whose:
                place = _location_of(frame)
                if place is None or origin(place.file) == whose:  # else a library's function, converted
                    return place
    return None


def calls(stack: Iterable[FrameType] | None = None) -> Iterator[Location]:
    """Yield the lines of the user's code that a thread executes, the innermost first; by default this one."""
    for frame in outward(sys._getframe(1)) if stack is None else stack:
        if origin(frame.f_code.co_filename) == "user" and (place := _location_of(frame)) is not None:
            yield place


def line() -> str:
    """Return the line of the user's code that is being run, ``train.py:12``."""
    return named(location())


def named(place: Location | None) -> str:
    """Return a line of the user's code as `line` does."""
    return "the script" if place is None else place.short


def called_by_other_code(depth: int, until: Container[CodeType]) -> bool:
    """Return whether code that is not TensorFlow's runs between here and the nearest frame that runs one of `until`."""
    for frame in outward(sys._getframe(depth + 1)):
        if frame.f_code in until:
            return False
        if origin(frame.f_code.co_filename) in ("user", "library"):
            return True
    return False


def collection_held() -> AbstractContextManager[None]:
    """Return a block in which no garbage is collected, for it to walk through the frames of other threads.

    Until 3.11, Python may collect garbage while it makes a frame's object. What that runs may let another thread go on
    and return from the function whose frame is being made, so that the walk gets another object in its place, or hangs
    (https://github.com/python/cpython/issues/106883). Python 3.12 collects between two bytecodes only.
    """
    return nullcontext() if sys.version_info >= (3, 12) else no_collection()


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, then those that called it, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _location_of(frame: FrameType) -> Location | None:
    code = frame.f_code
    if is_converted(code.co_filename):
        return _location_before_conversion(frame)
    positions = itertools.islice(code.co_positions(), frame.f_lasti // 2, None)
    line, end_line, column, end_column = next(positions, (None,) * 4)
    line = line or frame.f_lineno
    return Location(
        file=code.co_filename,
        line=line,
        end_line=end_line,
        column=column,
        end_column=end_column,
        function=None if code.co_name == "<module>" else code.co_name,
        text=linecache.getline(code.co_filename, line).strip(),
    )


def _location_before_conversion(frame: FrameType) -> Location | None:
    """Return the location that a line of a converted function came from: AutoGraph keeps a map beside the function."""
    for outer in outward(frame.f_back):
        converted: Any = outer.f_locals.get("converted_f") if outer.f_code.co_name == "converted_call" else None
        for generated, source in getattr(converted, "ag_source_map", {}).items():
            if (generated.filename, generated.lineno) == (frame.f_code.co_filename, frame.f_lineno):
                text = (source.source_code_line or "").strip()
                return Location(
                    file=source.loc.filename, line=source.loc.lineno, function=source.function_name, text=text
                )
    return None


def traceback_of(error: BaseException) -> str:
    """Return the traceback with its causes as Python prints it, from the user's first frame down.

    Frames of this program, the import system and, where the user has any, TensorFlow are left out. A very long
    traceback is cut in the middle.
    """
    trace = traceback.TracebackException.from_exception(error)
    _trim(trace, set())
    return safe_message("".join(trace.format()).rstrip(), FIELD_CHARACTERS)


def _trim(trace: traceback.TracebackException | None, seen: set[int]) -> None:
    if trace is None or id(trace) in seen:
        return
    seen.add(id(trace))
    frames = [frame for frame in trace.stack if not _is_machinery(frame.filename)]
    frames = list(itertools.dropwhile(lambda frame: origin(frame.filename) == "other", frames))
    # TensorFlow's message says which lines of a traced function it means.
    users = [f for f in frames if origin(f.filename) != "tensorflow" and not is_converted(f.filename)]
    trace.stack = traceback.StackSummary.from_list(users or frames)
    for other in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
        _trim(other, seen)


def _is_machinery(file: str) -> bool:
    return file.startswith((OURS, "<frozen importlib"))


_IN_A_LAYER = re.compile(
    r"Exception encountered when calling (?P<layer>.+?)\.\s*\n\n(?P<error>.+?)\n\nArguments received by .*", re.DOTALL
)
"""What Keras makes of an error within a layer."""


def summary(error: BaseException, limit: int = 300) -> str:
    """Return what an exception says, in one line with its type: ``ValueError: no such file``.

    Of the trace that TensorFlow puts into the message of an error in a traced function, only the end is kept; of what
    Keras writes around an error in a layer, the layer.
    """
    name = type(error).__name__
    words = message_of(error).strip()
    if words.startswith("in user code:"):
        _, found, end = words.rpartition(f"\n    {name}: ")
        words = textwrap.dedent(f"    {end}").strip() if found else words.splitlines()[-1].strip()
    if (of_layer := _IN_A_LAYER.fullmatch(words)) is not None:
        words = f"{of_layer['error'].strip()} (in {of_layer['layer']})"
    return one_line(f"{name}: {words}" if words else name, limit)


def line_in(error: BaseException, function: Any = None) -> str:
    """Return the line that an exception came from, as `` (train.py:12)``; empty where none is known.

    It is the innermost line in the file of `function`, or else the innermost one that is not this program's.
    """
    try:
        own = inspect.getsourcefile(inspect.unwrap(function)) if function is not None else None
    except (TypeError, ValueError):
        own = None
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    inside = [each for each in lines if each[0] == own] or [each for each in lines if not _is_machinery(each[0])]
    return f" ({Path(inside[-1][0]).name}:{inside[-1][1]})" if inside else ""


_kept_path: list[str] = []
_kept_modules: dict[str, ModuleType] = {}


def seed(number: int) -> None:
    """Seed the generators of random numbers, alike in every trial; the user's code may seed them again."""
    import tensorflow as tf

    seed_python(number)
    tf.random.set_seed(number)


def seed_python(number: int) -> None:
    """Seed what Python code draws from; TensorFlow's own seed would change its graphs for good."""
    import numpy as np

    random.seed(number)
    np.random.seed(number)


@contextmanager
def python_draws_as_before() -> Iterator[None]:
    """Have what Python code draws behind the block go on from where it was in front of it."""
    import numpy as np

    states = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def python_random_states() -> tuple[Any, Any]:
    """Return the states of Python's and NumPy's random generators that all code shares, which can be compared."""
    import numpy as np

    return random.getstate(), pickle.dumps(np.random.get_state(legacy=False))


def keep_imports() -> None:
    """Remember what is imported, and from where more can be, before code of the user's runs."""
    _kept_path[:] = sys.path
    _kept_modules.update(sys.modules)


def restore_imports() -> None:
    """Restore what the user's code has removed from the import system: more is imported once that has run."""
    if "tensorflow" in sys.modules and sys.path:
        return
    sys.path.extend(folder for folder in _kept_path if folder not in sys.path)
    for name, module in _kept_modules.items():
        sys.modules.setdefault(name, module)


@contextmanager
def element_errors() -> Iterator[None]:
    """Raise what an op of the user's pipeline raises inside the block as `UserCodeError`.

    Raises:
        UserCodeError: an op of the pipeline failed.
    """
    import tensorflow as tf

    try:
        yield
    except (PipelineBenchError, StopIteration):
        raise
    except tf.errors.OpError as error:
        raise element_error(error) from error
    finally:
        restore_imports()


def element_error(error: BaseException) -> UserCodeError:
    """Return the error of an op of the user's pipeline as one of the user's code.

    The message is the last line of what Python raised, or what the op says; the traceback has the user's frames.
    """
    of_tensorflow = getattr(error, "message", "")
    whole = safe_message(of_tensorflow, FIELD_CHARACTERS) if of_tensorflow else message_of(error)
    head, marker, rest = _WRAPPING.sub("", _NODES.sub("", whole).strip()).partition(_TRACEBACK)
    frames, after = _users_frames(rest) if marker else ([], [])
    words = _CREATED_AT.sub("", after[0] if after else head)
    line = " ".join(words.split())[:LONGEST_MESSAGE] or type(error).__name__
    trace = "\n".join([_TRACEBACK, *frames, *after]) if frames else ""
    return UserCodeError(f"The pipeline failed while its elements were taken: {line}", traceback=trace)


def _users_frames(text: str) -> tuple[list[str], list[str]]:
    """Return the user's frames of a traceback that is text, and the lines after the frames."""
    frames: list[str] = []
    after: list[str] = []
    keep = False
    for line in text.splitlines():
        if line.strip().startswith("[[") or not line.strip():
            continue
        if found := _FRAME.match(line):
            file = found["file"]
            keep = origin(file) not in ("library", "tensorflow") and not file.startswith("<__array_function__")
        if not line.startswith(" "):
            keep = False
            after.append(line.rstrip())
        elif keep:
            frames.append(line.rstrip())
    return frames, after


def is_users(file: str) -> bool:
    """Return whether a file holds code of the user's that can be shown; text that a library compiles is in none."""
    return origin(file) == "user" and bool(linecache.getlines(file))
