"""The command `report`: a saved session in each form, and what it says of files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_bench import session as saved
from pipeline_bench.cli import run
from pipeline_bench.report import csv, markdown
from tests.unit import sessions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved.save(sessions.normal(), tmp_path)
    return tmp_path


def test_each_form_is_what_its_renderer_makes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = saved.load(folder)
    for form, text in (
        ("markdown", markdown.render(session)),
        ("csv", csv.render(session)),
        ("json", session.to_json()),
    ):
        assert run(["report", str(folder), "-f", form]) == 0
        assert capsys.readouterr().out == text


def test_the_terminals_table_is_the_default(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(folder / "session.json")]) == 0
    assert "ms/step" in capsys.readouterr().out


def test_a_file_gets_what_stdout_would(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(folder), "-f", "markdown", "-o", str(folder / "out.md")]) == 0
    assert capsys.readouterr().out == ""
    assert (folder / "out.md").read_text() == markdown.render(saved.load(folder))


def test_a_file_that_is_no_session_is_exit_2_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "session.json").write_text('{"schema_version": 99}')
    assert run(["report", str(tmp_path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_unwritable_output_is_exit_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(folder), "-f", "csv", "-o", str(folder / "no" / "such.csv")]) == 2
    assert "--output" in capsys.readouterr().err
