"""What a loop, and the program that it is in, are called."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.progress import track

from pipeline_bench import user_code
from pipeline_bench.injection import batch_lines, process_records
from pipeline_bench.injection.loop_locations import Line

LOOP = "def where(of_loop):\n    return of_loop()\n"


def where(file: str) -> str | None:
    """The line of a loop in that file."""
    scope: dict[str, Any] = {}
    exec(compile(LOOP, file, "exec"), scope)
    return text(scope["where"](batch_lines.of_loop))


def text(line: Line | None) -> str | None:
    return None if line is None else str(line)


@pytest.mark.parametrize("loaded", [False, True])
def test_a_loop_is_called_by_its_file_and_line_and_in_a_notebook_by_its_cell(
    loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {"/tmp/ipykernel_7/99.py": ("Cell", "In[3]")} if loaded else {}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=cells.get)) if loaded else None
    ipython = ModuleType("IPython")
    vars(ipython)["get_ipython"] = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert where("/home/you/train.py") == "train.py:2"
    assert where("/tmp/ipykernel_7/99.py") == ("In[3]:2" if loaded else "99.py:2")


def test_a_loop_over_a_progress_bar_is_the_loop_of_the_program() -> None:
    class Batches:
        def __iter__(self) -> Iterator[str | None]:
            return iter([text(batch_lines.of_loop())])

    (shown,) = track(Batches(), disable=True, total=1)
    assert shown is not None
    assert shown.startswith("test_batch_lines.py:")


def test_a_notebooks_kernel_is_called_so_and_cannot_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "/a/train.py", "-v"])
    monkeypatch.setattr(sys, "argv", ["/a/train.py", "-v"])
    assert (process_records.program(), process_records.command()) == ("train.py", ("python", "/a/train.py", "-v"))
    monkeypatch.setattr(sys, "argv", ["/a/trainer/__main__.py"])  # as `python -m trainer` has it
    assert process_records.program() == "trainer"
    monkeypatch.setattr(sys, "argv", ["__main__.py"])
    assert process_records.program() == "__main__.py"
    monkeypatch.setattr(sys, "argv", ["/env/ipykernel_launcher.py", "-f", "kernel.json"])
    assert (process_records.program(), process_records.command()) == ("a notebook", ())


@pytest.mark.parametrize("command", ["/env/bin/ipython", "-m IPython", "/env/bin/ipython3 train.py"])
def test_what_ipython_runs_cannot_be_started_again(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it runs a script, that is the program."""
    monkeypatch.setattr(sys, "orig_argv", ["/env/bin/python", *command.split()])
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert process_records.command() == ()
    monkeypatch.setattr(sys, "orig_argv", given := ["python", "train.py", "--out", "runs/ipython"])
    assert process_records.command() == tuple(given)


def called_through(*files: str) -> tuple[str | None, str | None]:
    """The loops, over a dataset and over a DataLoader, of code that these files call one another's, outermost first."""
    found: list[tuple[Line | None, Line | None]] = []
    scope: dict[str, Any] = {"of_loop": batch_lines.of_loop, "of_user": batch_lines.of_user}
    first, last = "of_loop(), of_user()", "found.append(called())"
    for body, file in [(first, "<first>"), *(("called()", file) for file in reversed(files)), (last, "<last>")]:
        exec(compile(f"def call():\n    return {body}\n", file, "exec"), scope)
        scope = {"called": scope["call"], "found": found}
    thread = threading.Thread(target=scope["called"])  # without the frames of what runs the tests
    thread.start()
    thread.join()
    over_dataset, over_loader = found[0]
    return text(over_dataset), text(over_loader)


SITE = "/env/lib/python3.12/site-packages"


def test_a_loop_that_a_library_has_is_called_by_the_users_line_that_calls_it() -> None:
    name = "train.py:2, by loop.py:2"
    assert called_through("/home/you/train.py", f"{SITE}/fast/loop.py") == (name, name)
    over_dataset, _ = called_through("/home/you/train.py", f"{SITE}/keras/src/layers/adapt.py")
    assert over_dataset is None


@pytest.mark.parametrize(("name", "unwatched"), [("fit", True), ("train_on_batch", False)])
def test_what_a_fit_calls_that_is_not_patched_is_no_loop_of_the_program(name: str, unwatched: bool) -> None:
    problems: list[str] = []
    scope: dict[str, Any] = {"of_user": batch_lines.of_user, "in_fit": lambda: problems.append("not patched")}
    trainer = f"{SITE}/keras/src/backend/tensorflow/trainer.py"
    exec(compile("def step():\n    return of_user(in_fit=in_fit)\n", "<step>", "exec"), scope)
    exec(compile(f"def {name}():\n    return step()\n", trainer, "exec"), scope)
    exec(compile(f"def train():\n    return {name}()\n", "/home/you/train.py", "exec"), scope)
    assert text(scope["train"]()) == (None if unwatched else "train.py:2")
    assert problems == ["not patched"] * unwatched


@pytest.mark.parametrize(
    ("file", "started", "main", "expected"),
    [
        ("<string>", ["python", "-c", "import train"], None, "<string>:2"),
        ("<string>", ["python", "train.py", "-c"], "train.py", None),
        ("<string>", ["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"], None, None),
        ("<ipython-input-3-0a>", ["python", "/env/bin/ipython"], "/env/bin/ipython", "<ipython-input-3-0a>:2"),
        ("<attrs generated init>", ["python", "-c", "import train"], None, None),
    ],
)
def test_a_program_without_a_file_has_loops_and_code_that_a_program_generates_is_at_the_line_that_runs_it(
    file: str, started: list[str], main: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("__main__")
    if main is not None:
        module.__file__ = main
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.setattr(sys, "orig_argv", started)
    assert called_through(file)[0] == expected
    assert called_through("/home/you/train.py", file)[0] == (expected or "train.py:2")


@pytest.mark.parametrize("between", ["tqdm/std.py", "rich/progress.py", "accelerate/data_loader.py"])
def test_what_stands_between_a_loop_and_its_loader_is_no_library_that_trains(between: str) -> None:
    assert called_through("/home/you/train.py", f"{SITE}/{between}") == ("train.py:2", "train.py:2")
    trainer = [f"{SITE}/{file}" for file in ("lightning/loop.py", between, "torch/utils/data/dataloader.py")]
    assert called_through("/home/you/train.py", *trainer)[1] == "train.py:2, by loop.py:2"
    assert called_through(f"/home/you/{between}") == (f"{Path(between).name}:2", f"{Path(between).name}:2")


def test_an_iterator_that_an_old_method_of_tensorflow_makes_is_the_users_line() -> None:
    between = [f"{SITE}/tensorflow/python/{file}.py" for file in ("util/deprecation", "data/ops/dataset_ops")]
    over_dataset, _ = called_through("/home/you/train.py", *between)
    assert over_dataset == "train.py:2"


def test_a_training_and_a_validation_that_one_function_iterates_over_differ_in_what_called_it() -> None:
    def epoch() -> int:
        return batch_lines.path()

    def run() -> tuple[int, int]:
        training = epoch()
        return training, epoch()

    (training, validation), (again, _) = (run() for _ in range(2))
    assert training == again
    assert training != validation


@pytest.mark.parametrize(
    "maker",
    ["tensorflow/python/ops/script_ops.py", "torch/utils/data/_utils/fetch.py", "grain/_src/python/data_loader.py"],
)
def test_what_makes_a_batch_is_no_training(maker: str) -> None:
    assert called_through("/home/you/train.py", f"{SITE}/{maker}", "/home/you/data.py") == (None, None)
    assert called_through("/home/you/grain/train.py") == ("train.py:2", "train.py:2")


def test_a_package_that_is_run_as_a_program_is_the_users_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loop_of(main: ModuleType) -> str | None:
        monkeypatch.setitem(sys.modules, "__main__", main)
        user_code.origin.cache_clear()
        monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
        return called_through(f"{SITE}/mine/train.py", f"{SITE}/mine/loops.py")[0]

    module, command, file = ModuleType("__main__"), ModuleType("__main__"), ModuleType("__main__")
    module.__spec__ = ModuleSpec("mine.train", None)
    (tmp_path / "mytrain").write_text("import sys\nfrom mine.train import main\nsys.exit(main())\n")
    command.__file__, file.__file__ = str(tmp_path / "mytrain"), "/home/you/train.py"
    assert [loop_of(each) for each in (module, command, file)] == ["loops.py:2", "loops.py:2", None]
    user_code.origin.cache_clear()
