"""A working folder whose files have the names of modules: none of them is executed, and everything works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_bench.model import session as sessions

SHADOWED = ("random", "queue", "json", "email", "numpy", "tensorflow", "pydantic", "keras", "pipeline_bench_faults")


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A folder with a file for each name; whichever is executed leaves a trace and raises."""
    for name in SHADOWED:
        trace = tmp_path / "executed"
        (tmp_path / f"{name}.py").write_text(
            f"open({str(trace)!r}, 'a').write('{name} ')\nraise ValueError('{name}')\n"
        )
    return tmp_path


def program(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program as its command starts it: without the working folder on the path."""
    command = [sys.executable, "-P", "-m", "pipeline_bench", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def test_a_comparison_executes_no_file_of_the_folder(hostile_folder: Path) -> None:
    ended = program(hostile_folder, "compare", "--backends", "tf_data", "--steps", "5", "--repeats", "1", "--no-live")
    assert not (hostile_folder / "executed").exists()
    assert ended.returncode == 0, ended.stderr
    (folder,) = (hostile_folder / "reports").iterdir()
    assert {record.status for record in sessions.load(folder).trials} == {"ok"}


def test_the_doctor_executes_no_file_of_the_folder(hostile_folder: Path) -> None:
    ended = program(hostile_folder, "doctor", "--json")
    assert not (hostile_folder / "executed").exists()
    found = json.loads(ended.stdout)
    assert found["usable"] is True
    assert found["tensorflow"]["matmul"]["ok"] is True
    assert found["tensorflow"]["devices"]
