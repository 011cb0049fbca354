"""Compiling the program without Python: what is said where it cannot be, and what is kept where it was."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench import native
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.run import comparison
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve

# Writes down that it was called, and makes the file that follows -o.
GOOD = """#!/bin/sh
echo called >> "$CALLS"
while [ "$1" != -o ]; do shift; done
echo made > "$2"
chmod +x "$2"
"""
BROKEN = """#!/bin/sh
echo "program.c: In function 'main':" >&2
echo "program.c:7:10: fatal error: planted: no such header" >&2
echo "compilation terminated." >&2
exit 1
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty PATH, an empty cache and what the program needs of TensorFlow."""
    headers = tmp_path / "tensorflow" / "include" / "tensorflow" / "c"
    headers.mkdir(parents=True)
    for file in (headers / "c_api.h", *(tmp_path / "tensorflow" / name for name in native._LIBRARIES)):
        file.write_bytes(b"x")
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(native, "_tensorflow_folder", lambda: tmp_path / "tensorflow")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path


def install(machine: Path, name: str, script: str) -> Path:
    path = machine / "bin" / name
    # The scripts find their own tools although the PATH is empty.
    path.write_text(script.replace("\n", "\nPATH=/usr/bin:/bin\n", 1), encoding="ascii")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def found() -> native.Toolchain:
    toolchain = native.find()
    assert isinstance(toolchain, native.Toolchain), toolchain
    return toolchain


def calls(machine: Path) -> int:
    file = machine / "calls"
    return len(file.read_text(encoding="ascii").splitlines()) if file.exists() else 0


# --- whether it can be -----------------------------------------------------------------------------------------------


def test_without_a_compiler_it_is_said_how_to_get_one(machine: Path) -> None:
    assert "no C compiler was found (cc, gcc, clang)" in str(native.find())
    assert "apt install gcc" in str(native.find())


@pytest.mark.parametrize("name", ["cc", "gcc", "clang"])
def test_any_of_the_usual_compilers_will_do(machine: Path, name: str) -> None:
    path = install(machine, name, GOOD)
    assert found().compiler == (str(path),)
    assert found().tensorflow == machine / "tensorflow"


def test_the_compiler_that_the_user_names_comes_first_with_its_arguments(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine, "cc", GOOD)
    mine = install(machine, "mine", GOOD)
    monkeypatch.setenv("CC", "mine -m64")
    assert found().compiler == (str(mine), "-m64")


def test_a_named_compiler_that_is_not_there_is_not_replaced_by_another(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine, "cc", GOOD)
    monkeypatch.setenv("CC", "missing-cc")
    assert "missing-cc" in str(native.find())
    assert "$CC" in str(native.find())


def test_a_compiler_is_found_from_any_folder(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called in another one than it was named in."""
    path = install(machine, "mine", GOOD)
    monkeypatch.chdir(machine)
    monkeypatch.setenv("CC", "bin/mine")
    assert found().compiler == (str(path),)
    assert native.program(found()).is_file()


def test_a_command_that_cannot_be_read_is_said_to_be_so(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine, "cc", GOOD)
    monkeypatch.setenv("CC", "cc '-O1")
    assert str(native.find()).startswith("$CC is no command: cc '-O1 (No closing quotation): ")


def test_a_tensorflow_without_its_library_or_its_headers_is_said_to_be_so(machine: Path) -> None:
    install(machine, "cc", GOOD)
    (machine / "tensorflow" / "include" / "tensorflow" / "c" / "c_api.h").unlink()
    assert "without its C headers" in str(native.find())
    (machine / "tensorflow" / native._LIBRARIES[0]).unlink()
    assert f"no {native._LIBRARIES[0]}" in str(native.find())


def both() -> Scenario:
    native_loop: dict[str, Any] = {"kind": "native"}
    variants = [
        {"name": "from Python", "backend": "fifo_queue"},
        {"name": "from C", "backend": "fifo_queue", "loop": native_loop},
    ]
    return resolve({"name": "test", "run": {"steps": 5, "repeats": 1}, "variants": variants})


def test_without_a_compiler_the_variant_is_left_out_with_a_note_and_the_others_stay(machine: Path) -> None:
    kept = comparison.without_unavailable(both())
    assert [variant.name for variant in kept.variants if not variant.is_ceiling] == ["from Python"]
    assert not any(variant.loop.kind == "native" for variant in kept.variants)
    (note,) = [note for note in kept.notes if "'from C' was left out" in note]
    assert "no C compiler was found" in note
    install(machine, "gcc", GOOD)
    assert comparison.without_unavailable(both()) == both()


@pytest.mark.parametrize(
    ("backend", "source", "part"),
    [
        ("feed_dict", {"kind": "synthetic"}, "feeds every batch"),
        ("tf_data", {"kind": "npz"}, "loads the files"),
        ("reader_queue", {"kind": "slow_storage", "total_mb_s": 10.0, "shared": "turns"}, "takes turns"),
    ],
)
def test_what_python_has_a_part_in_is_refused_before_the_first_trial(
    backend: str, source: dict[str, Any], part: str
) -> None:
    from pipeline_bench.run.observer import Observer

    fed = {"name": "fed", "backend": backend, "loop": {"kind": "native"}}
    scenario = resolve({"name": "test", "source": source, "variants": [fed]})
    with pytest.raises(UsageError, match=rf"'fed' cannot run: .*runs no Python, and Python {part}"):
        comparison.prepare_data(scenario, Observer())


# --- compiling -------------------------------------------------------------------------------------------------------


def test_what_was_compiled_is_kept_and_not_compiled_again(machine: Path) -> None:
    install(machine, "cc", GOOD)
    program = native.program(found())
    assert program.read_text(encoding="ascii") == "made\n"
    once = calls(machine)
    assert once > 0
    assert native.program(found()) == program
    assert calls(machine) == once
    assert [path.name for path in native.cache_folder().iterdir()] == [program.name]


@pytest.mark.parametrize("changed", ["compiler", "flags", "tensorflow"])
def test_what_the_program_depends_on_has_it_compiled_anew(
    machine: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    compiler = install(machine, "cc", GOOD)
    before = native.program(found())
    if changed == "compiler":
        compiler.write_text(compiler.read_text(encoding="ascii") + "# another version\n", encoding="ascii")
    elif changed == "flags":
        monkeypatch.setenv("CC", "cc -m64")
    else:
        (machine / "tensorflow" / native._LIBRARIES[0]).write_bytes(b"another version")
    assert native.program(found()) != before


def test_a_compiler_that_fails_is_told_by_its_first_error_and_leaves_nothing(machine: Path) -> None:
    install(machine, "cc", BROKEN)
    with pytest.raises(PipelineBenchError) as caught:
        native.program(found())
    assert caught.value.message.endswith("fatal error: planted: no such header")
    assert str(machine / "bin" / "cc") in caught.value.message
    assert list(native.cache_folder().iterdir()) == []


def test_what_a_killed_trial_has_not_compiled_to_its_end_is_not_in_the_cache(machine: Path) -> None:
    install(machine, "cc", GOOD.replace("echo called", 'ls -A "$XDG_CACHE_HOME/pipeline-bench/native"'))
    native.program(found())
    assert (machine / "calls").read_text(encoding="ascii") == ""


def test_a_cache_that_cannot_be_written_to_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine, "cc", GOOD)
    (machine / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "file"))
    with pytest.raises(PipelineBenchError) as caught:
        native.program(found())
    assert str(machine / "file") in caught.value.message
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_a_user_without_a_home_is_told_what_to_set(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine, "cc", GOOD)
    monkeypatch.setenv("XDG_CACHE_HOME", "~no-such-user/cache")
    with pytest.raises(PipelineBenchError) as caught:
        native.program(found())
    assert "~no-such-user/cache" in caught.value.message
    assert "XDG_CACHE_HOME" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "code", "first"),
    [
        ("a.c: In function 'f':\na.c:1: error: no\nb", 1, "a.c:1: error: no"),
        ("/usr/bin/ld: cannot find -lm\ncollect2: error: ld returned 1", 1, "/usr/bin/ld: cannot find -lm"),
        ("something else\n", 1, "something else"),
        ("", 4, "it ended with exit code 4"),
        ("", None, "it did not end within 120 s"),
    ],
)
def test_what_a_compiler_complains_of(text: str, code: int | None, first: str) -> None:
    assert native.first_error(text, code) == first


def test_the_stand_in_has_every_function_of_tensorflows_that_the_program_calls() -> None:
    text = native._stand_in()
    assert "void TF_SessionRun(void) {}\n" in text
    assert "void TF_GetCode(void) {}\n" in text
