"""What the shell completes, asked as bash asks it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_bench import cli
from pipeline_bench.lessons.reading import lessons
from pipeline_bench.model import session as saved
from pipeline_bench.scenario.files import shipped
from tests.unit import sessions

ROOT = Path(__file__).parents[2]


def asked(words: list[str]) -> dict[str, str]:
    """The variables in which bash asks for what may stand for the last word."""
    line = "\n".join(["pipeline-bench", *words])
    return {"_PIPELINE_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """What may stand for the last word, asked in this process."""

    def ask(*words: str) -> list[str]:
        with monkeypatch.context() as patch:
            for name, value in asked(list(words)).items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit):
                cli.run([])
        said = capsys.readouterr()
        assert said.err == ""
        return [line for line in said.out.split("\n") if line]

    return ask


def test_scenarios_are_completed_by_the_program(tmp_path: Path) -> None:
    environment = {**os.environ, **asked(["scenarios", "python_overhead_"]), "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-m", "pipeline_bench"]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["python_overhead_wide"], "")


def test_scenarios_and_lessons_are_completed(completed: Callable[..., list[str]]) -> None:
    assert set(completed("compare", "")) == set(shipped())
    assert set(completed("lesson", "")) == {each.name for each in lessons()}


def test_what_of_the_scenario_can_be_named_is_completed(completed: Callable[..., list[str]]) -> None:
    assert completed("compare", "two_layer", "--backends", "feed_dict,t") == ["feed_dict,tf_data"]
    assert 'variants."feed_dict, 32".' in completed("compare", "batch_sizes", "--set", "variants.")
    assert completed("compare", "none_such", "--backends", "") == []


@pytest.mark.parametrize("words", [["report", "la"], ["diff", "la"], ["diff", "last~1", "la"]])
def test_the_words_for_sessions_are_completed(
    words: list[str], completed: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / "reports" / name).mkdir(parents=True)
        saved.save(sessions.normal(), tmp_path / "reports" / name)
    assert completed(*words) == ["last", "last~1"]


def test_the_shells_file_is_written_for_the_program(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    script = f"{sys.executable} -m pipeline_bench --install-completion; echo done"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert "bash completion installed" in done.stdout, done
    (written,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".sh"]
    assert "_PIPELINE_BENCH_COMPLETE=complete_bash" in written.read_text()
    assert written.read_text().rstrip().endswith(" pipeline-bench")
