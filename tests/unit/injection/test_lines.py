"""What a loop, and the program that it is in, are called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.progress import track

from pipeline_bench.injection import entries, lines

LOOP = "def where(of_loop):\n    return of_loop()\n"


def where(file: str) -> str | None:
    """The line of a loop in that file."""
    scope: dict[str, Any] = {}
    exec(compile(LOOP, file, "exec"), scope)
    found: str | None = scope["where"](lines.of_loop)
    return found


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
            return iter([lines.of_loop()])

    (shown,) = track(Batches(), disable=True, total=1)
    assert shown is not None
    assert shown.startswith("test_lines.py:")


def test_a_notebooks_kernel_is_called_so_and_cannot_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "/a/train.py", "-v"])
    monkeypatch.setattr(sys, "argv", ["/a/train.py", "-v"])
    assert (entries.program(), entries.command()) == ("train.py", ("python", "/a/train.py", "-v"))
    monkeypatch.setattr(sys, "argv", ["/env/ipykernel_launcher.py", "-f", "kernel.json"])
    assert (entries.program(), entries.command()) == ("a notebook", ())
