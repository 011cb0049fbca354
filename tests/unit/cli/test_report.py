"""The command `report`: a saved session in each form, and what it says of files that are none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipeline_bench.cli import run
from pipeline_bench.model import session as saved
from pipeline_bench.report import markdown
from tests.unit import sessions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved.save(sessions.normal(), tmp_path)
    return tmp_path


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


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.html", "<!doctype html>"), ("a.md", "### "), ("a.csv", "variant,"), ("a.json", "{"), ("a", "")],
)
def test_without_a_format_the_name_of_the_file_decides(folder: Path, name: str, begins: str) -> None:
    assert run(["report", str(folder), "-o", str(folder / name)]) == 0
    text = (folder / name).read_text()
    assert text.lower().startswith(begins)
    assert ("<html" in text.lower()) == (name == "a.html")


def test_a_page_is_not_written_to_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run(["report", str(folder), "-f", "html"]) == 2
    assert "-o report.html" in capsys.readouterr().err


def test_a_damaged_column_is_an_error_that_names_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "session.json"
    content = json.loads(file.read_text())
    content["trials"][2]["steps"]["end_ns"]["data"] = "AAAA"
    file.write_text(json.dumps(content))
    for form in ("terminal", "html", "markdown", "csv", "json", "trace"):
        assert run(["report", str(folder), "-f", form]) == 2
        assert f"{content['trials'][2]['variant']}, repeat 1: steps.end_ns" in capsys.readouterr().err


def test_a_path_that_is_no_text_is_read_and_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = folder.rename(tmp_path.with_name(os.fsdecode(b"caf\xe9")))
    for form in ("terminal", "html", "markdown", "csv", "json", "trace"):
        assert run(["report", str(odd), "-f", form, "-o", str(odd / os.fsdecode(f"{form}\xe9".encode("latin-1")))]) == 0
    assert run(["diff", str(odd), str(odd)]) == 0
    assert "caf\\xe9" in capsys.readouterr().out
    assert run(["report", str(odd / "none")]) == 2
    assert "caf\\xe9/none cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["report"], ["diff"]])
def test_a_dash_is_stdout_and_no_file(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert run([*command, *(["."] * (1 + (command == ["diff"]))), "-o", "-"]) == 0
    assert "two_layer" in capsys.readouterr().out
    assert not Path("-").exists()


@pytest.mark.parametrize(("command", "name"), [("report", "x.pdf"), ("report", "x.pdf.gz"), ("diff", "x.html")])
def test_a_name_that_ends_in_no_form_is_refused_with_those_there_are(
    command: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, *([str(folder)] * (1 + (command == "diff"))), "-o", str(folder / name)]) == 2
    error = capsys.readouterr().err
    assert ".md, " in error
    assert "--format" in error
    assert not (folder / name).exists()


def test_the_name_of_its_file_is_the_form_of_a_diff_too(folder: Path) -> None:
    assert run(["diff", str(folder), str(folder), "-o", str(folder / "x.MD")]) == 0
    assert "| --- |" in (folder / "x.MD").read_text()
