"""What the shell completes, asked as bash asks it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_bench.lessons.engine import lessons
from pipeline_bench.model import session as saved
from pipeline_bench.scenario.files import shipped
from tests.unit import sessions

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "pipeline_bench"]


def completed(words: list[str], folder: Path) -> list[str]:
    """What stands for the last word."""
    asked = {"_PIPELINE_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(["pipeline-bench", *words])}
    environment = {**os.environ, **asked, "COMP_CWORD": str(len(words)), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(PROGRAM, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [line for line in done.stdout.split("\n") if line]


def test_scenarios_and_lessons_are_completed(tmp_path: Path) -> None:
    every = set(shipped())
    assert set(completed(["compare", ""], tmp_path)) == every
    assert completed(["scenarios", "python_overhead_"], tmp_path) == ["python_overhead_wide"]
    assert set(completed(["lesson", ""], tmp_path)) == {each.name for each in lessons()}


def test_what_of_the_scenario_can_be_named_is_completed(tmp_path: Path) -> None:
    assert completed(["compare", "two_layer", "--backends", "feed_dict,t"], tmp_path) == ["feed_dict,tf_data"]
    assert 'variants."feed_dict, 32".' in completed(["compare", "batch_sizes", "--set", "variants."], tmp_path)
    assert completed(["compare", "none_such", "--backends", ""], tmp_path) == []


@pytest.mark.parametrize("words", [["report", "la"], ["diff", "la"], ["diff", "last~1", "la"]])
def test_the_words_for_sessions_are_completed(words: list[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "reports" / name).mkdir(parents=True)
        saved.save(sessions.normal(), tmp_path / "reports" / name)
    assert completed(words, tmp_path) == ["last", "last~1"]


def test_the_shells_file_is_written_for_the_program(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    script = f"{sys.executable} -m pipeline_bench --install-completion; echo done"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert "bash completion installed" in done.stdout, done
    (written,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".sh"]
    assert "_PIPELINE_BENCH_COMPLETE=complete_bash" in written.read_text()
    assert written.read_text().rstrip().endswith(" pipeline-bench")
