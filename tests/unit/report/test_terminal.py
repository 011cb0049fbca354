from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from pipeline_bench.model.session import Session
from pipeline_bench.report.terminal import render
from tests.unit import sessions
from tests.unit.console import printed
from tests.unit.report import pages

FOLDER = Path("reports/20240501T120000-two_layer")


def shown(session: Session, width: int, folder: Path | None = FOLDER) -> str:
    return printed(render(session, folder, width), width)


@pytest.mark.parametrize("width", [60, 160])
@pytest.mark.parametrize("build", [sessions.judged, sessions.troubled, sessions.hostile, pages.hostile])
def test_no_line_is_wider_than_the_terminal(width: int, build: Callable[[], Session]) -> None:
    assert max(map(cell_len, shown(build(), width).splitlines())) <= width


def test_the_ceiling_comes_last() -> None:
    session = sessions.normal()
    turned = session.model_copy(update={"results": session.results[::-1]})
    lines = shown(turned, 80).splitlines()
    names = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in {"tf_data", "ceiling"}]
    assert names == ["tf_data", "ceiling", "tf_data", "ceiling"], "in the table of steps and in that of losses"


def test_hostile_names_are_text() -> None:
    text = shown(sessions.hostile(), 160)
    for part in ("[red]not red[/red]", "[/]", "two lines", "[link=http://example.org]click[/link]", "[bold]evil"):
        assert part in text
    assert "x" * 39 + "…" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_the_folder_is_whole_and_on_lines_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(sessions.normal(), 80, tmp_path / "reports" / "x").endswith("Session saved in\nreports/x\n")
    folder = Path("/") / ("long" * 30) / "x"
    text = shown(sessions.normal(), 60, folder)
    assert str(folder) in text.rpartition("Session saved in")[2].replace("\n", "")
    assert "saved" not in shown(sessions.normal(), 80, None)


@pytest.mark.parametrize("width", [40, 50, 58, 70])
def test_on_a_narrow_terminal_no_figure_of_a_table_is_cut(width: int) -> None:
    text = shown(sessions.normal(), width)
    assert not re.findall(r"\d+\.?…|…×", text)
    assert "12.3" in text
