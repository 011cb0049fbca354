"""The command `sessions`, and the words that name its sessions to other commands."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text

import pipeline_bench
from pipeline_bench.cli import options, run
from pipeline_bench.model import Series
from pipeline_bench.model import session as saved
from pipeline_bench.model.diagnosis import CodeChange
from pipeline_bench.report import diagnosis
from pipeline_bench.report.diagnosis import headline
from pipeline_bench.system.files import in_use
from tests.unit import diagnoses, sessions
from tests.unit.report.pages import EVERY, measured

TIMES = {
    "first": "2026-03-01T10:00:00+00:00",
    "third": "2026-03-03T10:00:00+00:00",
    "second": "2026-03-03T09:30:00+02:00",  # earlier than the third by its zone alone
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sessions whose names and dates of files say nothing about their order."""
    folder = tmp_path_factory.mktemp("three")
    for name, began in TIMES.items():
        keep(folder / name, began)
    return folder


@pytest.fixture(autouse=True)
def reports(three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return Path(shutil.copytree(three, tmp_path / "reports"))


def keep(folder: Path, began: str, session: saved.Session | None = None) -> None:
    folder.mkdir(parents=True)
    made = (session or sessions.normal()).model_copy(update={"started_at": began, "command": f"did {folder.name}"})
    os.utime(saved.save(made, folder), (0, 0))


def keep_19(reports: Path, month: str, session: saved.Session | None = None) -> None:
    """Keep one of each of the first days of the month: one is saved, the others are its text with another day."""
    keep(reports / "more-1", f"{month}-01T00:00:00+00:00", session)
    text = (reports / "more-1" / "session.json").read_text()
    for day in range(2, 20):
        (reports / f"more-{day}").mkdir()
        (reports / f"more-{day}" / "session.json").write_text(text.replace(f"{month}-01T", f"{month}-{day:02}T"))


def test_they_are_listed_newest_first_with_command_verdict_and_path(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(reports / "diagnosed", "2026-03-02T10:00:00+00:00", diagnoses.session())
    assert run(["sessions"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f"reports/{name}") for name in ("third", "second", "diagnosed", "first")]
    assert places == sorted(places)
    for part in ("did second", "two_layer", "is fastest", "last~1", "map(decode) starves the pipeline"):
        assert part in out


@pytest.mark.parametrize(("word", "name"), [("last", "third"), ("last~0", "third"), ("last~2", "first")])
def test_a_word_names_a_session_to_report_and_to_load(word: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", word, "-f", "json"]) == 0
    assert f'"did {name}"' in capsys.readouterr().out
    assert pipeline_bench.load(word).command == f"did {name}"


def test_a_report_says_where_the_page_and_the_patch_are(
    reports: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "code", lambda session: CodeChange(diff="a diff", root="/home/user"))
    keep(reports / "fixed", "2026-03-09T10:00:00+00:00", diagnoses.session())
    assert run(["report", "last"]) == 0
    assert "Page: " not in capsys.readouterr().out
    for name, text in {"report.html": "", "fix.patch": "a diff"}.items():
        (reports / "fixed" / name).write_text(text, encoding="utf-8")
    assert run(["report", "last"]) == 0
    out = capsys.readouterr().out
    assert f"Page: {(reports / 'fixed' / 'report.html').absolute().as_uri()}\n" in out
    assert f"\nPatch: git -C /home/user apply {(reports / 'fixed' / 'fix.patch').absolute()}\n" in out


@pytest.mark.parametrize("other", ["b diff", "a diff\n"])
def test_a_report_offers_no_patch_that_is_not_its_sessions(
    other: str, reports: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "code", lambda session: CodeChange(diff="a diff", root="/home/user"))
    keep(reports / "fixed", "2026-03-09T10:00:00+00:00", diagnoses.session())
    (reports / "fixed" / "fix.patch").write_text(other, encoding="utf-8")
    assert run(["report", "last"]) == 0
    assert "Patch: " not in capsys.readouterr().out


def test_a_diff_of_words_names_the_folders(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "last~1", "last"]) == 0
    out = capsys.readouterr().out
    assert "reports/second" in out
    assert "reports/third" in out


def test_fewer_than_the_word_asks_for_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "last~3"]) == 2
    error = capsys.readouterr().err
    assert "There is no session last~3: the folder reports here holds 3." in error
    assert "pipeline-bench sessions" in error


def test_what_is_still_measured_has_no_word(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with in_use(reports / "third"):
        assert run(["report", "last", "-f", "json"]) == 0
        assert '"did second"' in capsys.readouterr().out
        assert run(["sessions"]) == 0
        listed = capsys.readouterr().out
        assert run(["report", "last~2"]) == 2
        assert "holds 2 and 1 that is still measured" in capsys.readouterr().err
        assert options.session_words("last") == ["last", "last~1"]
    rows = listed.split("2026-03-0")
    assert "still measuring; so far: " in rows[1]
    assert "still measuring" not in "".join(rows[2:])
    assert rows[1].rstrip().endswith("last")  # the word stands before the next one's date
    assert run(["report", "last", "-f", "json"]) == 0
    assert '"did third"' in capsys.readouterr().out


def test_a_file_of_that_name_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path / "last", "2020-01-01T00:00:00+00:00")
    assert run(["report", "last", "-f", "json"]) == 0
    assert '"started_at": "2020-01-01T00:00:00+00:00"' in capsys.readouterr().out


def test_a_damaged_one_is_said_to_be_and_hides_no_other(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (reports / "third" / "session.json").write_text('{"started_at": "2026-04-01T10:00:00+00:00"')
    os.mkfifo(reports / "pipe.json")
    (reports / "pipe").mkdir()
    os.mkfifo(reports / "pipe" / "session.json")
    assert run(["sessions"]) == 0
    out = capsys.readouterr().out
    assert "is no session, or a damaged one" in out
    assert "did first" in out


def test_no_column_of_a_trial_is_read_for_a_line(
    reports: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(reports / "measured", "2026-03-04T10:00:00+00:00", measured(8, 50))
    monkeypatch.setattr(Series, "unpack", lambda column: pytest.fail("a column was unpacked"))
    assert run(["sessions"]) == 0
    assert "did measured" in capsys.readouterr().out


@pytest.mark.parametrize("made", EVERY.values(), ids=EVERY)
def test_a_line_says_what_the_whole_session_does(made: Callable[[], saved.Session], reports: Path) -> None:
    keep(reports / "made", "2026-03-04T10:00:00+00:00", made())
    whole, without = (saved.load(reports / "made", series=series) for series in (True, False))
    assert headline(without) == headline(whole)


def test_a_trial_with_a_field_of_another_version_is_told(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(reports / "newer", "2026-03-04T10:00:00+00:00", measured(1, 50))
    file = reports / "newer" / "session.json"
    file.write_text(file.read_text().replace('"warmup_steps": 20', '"warmup_steps": 20, "heat": 1'))
    assert run(["sessions"]) == 0
    assert "a field that this version does not know, trials.0.heat" in " ".join(capsys.readouterr().out.split())


def test_another_folder_is_listed_without_words(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports.rename(reports.with_name("kept"))
    assert run(["sessions", "kept"]) == 0
    out = capsys.readouterr().out
    assert "kept/third" in out
    assert "last" not in out


def test_without_any_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sessions", str(tmp_path)]) == 0
    assert "No session is kept in" in capsys.readouterr().out


def test_where_no_command_has_saved_a_session_yet_no_folder_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    assert run(["sessions"]) == 0
    assert "No session is kept in" in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sessions", str(tmp_path / "none")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_a_word_that_names_no_session_is_told_what_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "lst"]) == 2
    assert "or last;" in " ".join(capsys.readouterr().err.split())


def test_a_file_in_place_of_the_folder_is_refused(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = reports / "third" / "session.json"
    assert run(["sessions", str(file)]) == 2
    assert f"pipeline-bench report {file}" in capsys.readouterr().err


def test_only_the_newest_are_shown_unless_all_are_asked_for(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_19(reports, "2025-01")
    assert run(["sessions"]) == 0
    out = capsys.readouterr().out
    assert "2 older sessions not shown" in out
    assert "reports/more-1 " not in out
    assert run(["sessions", "--all"]) == 0
    assert "reports/more-1 " in capsys.readouterr().out


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (40, 8)])
def test_a_terminal_shows_as_many_as_it_has_room_for(
    width: int, height: int, reports: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"COLUMNS": str(width), "LINES": str(height), "FORCE_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    long = diagnoses.session(diagnoses.diagnosis().model_copy(update={"stopped": "interrupted"}))
    keep_19(reports, "2026-05", long)
    assert run(["sessions"]) == 0
    lines = Text.from_ansi(capsys.readouterr().out).plain.splitlines()
    assert len(lines) < height  # the prompt is below
    assert max(map(cell_len, lines)) <= width
    assert lines[0].split()[:2] == ["last", "2026-05-19"]
    assert f"{(22 - (height - 3) // 4)} older sessions not shown" in " ".join(lines)


def test_a_pipe_lists_as_many_with_colours_as_without(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LINES": "8", "FORCE_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    assert run(["sessions"]) == 0
    assert "reports/first" in capsys.readouterr().out
