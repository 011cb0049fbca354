"""A selftest as a table and in words: what was planted, what was measured, the error; how later sessions cite it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline_bench.analysis.thresholds import BUSY_SHARE
from pipeline_bench.model.selftest import Check, Checked, Part, Selftest, Unit, Window
from pipeline_bench.model.session import Session
from pipeline_bench.report.layout import DETAILS
from pipeline_bench.text import NAME, grouped, one_line, units

_STYLES = {"passed": "green", "failed": "bold red", "shown": "dim", "disturbed": "yellow", "not-run": "yellow"}
_CELLS = (12, 12, 12, 6)
_LEAST_NAME = 20
"""Columns that a check's name needs beside its figures; with fewer these stand behind it, in words."""
_FIGURES = ("planted", "measured", "error")
_INDENT = 2


_SHOWN: dict[Unit, Callable[[float], str]] = {
    "share": lambda number: f"{100 * number:.1f} %",
    "ms": units.milliseconds,
    "percent": "{:.1f} %".format,
    "us": "{:.1f} µs".format,
    "cores": "{:.3f} cores".format,
    "mib_per_s": "{:,.0f} MiB/s".format,
    "ratio": "{:.3f}×".format,
}


def value(number: float | None, unit: Unit) -> str:
    """Return a planted or measured figure with its unit."""
    return units.NOT_MEASURED if number is None else _SHOWN[unit](number)


def error(check: Check) -> str:
    """Return an error as it is judged: in points of a share, relative of a time or a ratio."""
    if check.error is None:
        return ""
    match check.unit:
        case "share":
            return f"{100 * check.error:+.1f} points"
        case "percent":
            return f"{check.error:+.1f} points"
        case "cores":
            return ""
        case _:
            return f"{100 * check.error:+.1f} %"


_DISTURBED = "other work took too much of the CPU; repeat it on a quieter machine."


def table(selftest: Selftest, width: int) -> RenderableType:
    """Return the table of every check by part, and the notes below it, for so many columns."""
    lines = (line for part in selftest.parts for line in _part(part, width))
    return Group(_grid("", (), width), *lines, *_notes(selftest))


def summary(selftest: Selftest, most: int, width: int) -> RenderableType:
    """Return the worst check of each part that has a figure, the names of the others, and the notes.

    Args:
        selftest: as far as it has come.
        most: how many parts have a row; those that passed with most to spare are only named.
        width: the columns there are.
    """
    with_figure = [part for part in selftest.parts if part.worst is not None and part.worst.unit != "word"]
    if (left := len(with_figure) - most) > 0:
        may_go = (part for part in with_figure if part.status == "passed")
        spared = sorted(may_go, key=lambda part: part.worst.excess if part.worst else 0.0)[:left]
        with_figure = [part for part in with_figure if part not in spared]
    rows = [[Text(part.name), *_row(part.worst)[1:-1], _status(part)] for part in with_figure if part.worst is not None]
    grid = _grid("the worst figure of a part", rows, width, (*_CELLS[:-1], len("disturbed")))
    passed = [part.name for part in selftest.parts if part.status == "passed" and part not in with_figure]
    also = [Text.assemble(("also passed: ", "green"), ", ".join(passed))] if passed else []
    windows = (
        Text(f"{each.source}: of {each.window_ms:.0f} ms; 95 % of the runs within {each.error_points:.1f} points")
        for each in selftest.windows
        if each.error_points is not None and each.window_ms is not None
    )
    not_run = grouped((part.reason, part.name) for part in selftest.parts if part.status == "not-run" and part.reason)
    # The headline names them all.
    names = ["not run"] if len(not_run) == 1 else [f"{', '.join(each)}: not run" for each in not_run.values()]
    reasons = (
        Text.assemble((f"{name}: ", "yellow"), one_line(reason)) for name, reason in zip(names, not_run, strict=True)
    )
    every = Text(f"every check: {DETAILS}, or the page", style="dim")
    return Group(*([grid] if with_figure else []), *also, *windows, *_failures(selftest), *reasons, every)


def _grid(
    head: str | None, rows: Sequence[Sequence[Text]], width: int, cells_of_columns: Sequence[int] = _CELLS
) -> RenderableType:
    """Return rows as `_row` gives them, below a line of heads unless `head`, that of their names, is None."""
    if width - sum(cells_of_columns) - len(cells_of_columns) < _LEAST_NAME:
        return Group(*map(_in_words, rows))
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(ratio=1)
    for cells in cells_of_columns:
        grid.add_column(justify="right", width=cells, no_wrap=True)
    if head is not None:
        grid.add_row(*(Text(each, style="dim") for each in (head, *_FIGURES, "")))
    for row in rows:
        grid.add_row(*row)
    return grid


def _in_words(row: Sequence[Text]) -> Text:
    """Return a row as a line of text, each figure behind its head."""
    name, *figures, mark = row
    said = [f"{head} {figure}" for head, figure in zip(_FIGURES, figures, strict=True) if figure.plain]
    return Text.assemble(name, f": {', '.join(said)}  ", mark)


def _part(part: Part, width: int) -> Iterator[RenderableType]:
    yield Text.assemble((f"{part.name}  ", "bold"), _status(part), (_load(part), "dim"))
    yield Padding(_grid(None, [_row(check) for check in _shown(part)], width - _INDENT), (0, 0, 0, _INDENT))


def _status(part: Part) -> Text:
    return Text(part.status.replace("-", " "), style=_STYLES[part.status])


def _shown(part: Part) -> Iterator[Check]:
    """Yield the checks of a part that get a line: of words only those that failed, and one that stands for the rest."""
    words = [check for check in part.checks if check.unit == "word"]
    yield from (check for check in part.checks if check.unit != "word")
    failed = [check for check in words if check.passed is False]
    alike = grouped(((check.planted_word, check.measured_word), check) for check in words if check.passed is not False)
    yield from failed
    for same in alike.values():
        name = same[0].what if len(same) == 1 else units.count(len(same), "variant")
        yield same[0].model_copy(update={"what": name})


def _row(check: Check) -> list[Text]:
    mark = {True: ("ok", "green"), False: ("FAILED", "bold red"), None: ("shown", "dim")}[check.passed]
    name = Text(f"{one_line(check.what, NAME)}, {check.figure}")
    if check.reason and check.measured is None and check.unit != "word":
        name.append(f": {check.reason}", style="dim")
    if check.unit == "word":
        planted, measured = check.planted_word, check.measured_word
    else:
        planted, measured = _planted(check), value(check.measured, check.unit)
    return [name, Text(planted), Text(measured), Text(error(check)), Text(*mark)]


def _planted(check: Check) -> str:
    """Return the figure that was planted, or the direction that is expected."""
    return check.planted_word or value(check.planted, check.unit)


HEADS = ("check", "part", "planted", "measured", "error", "result")


def rows(selftest: Selftest) -> Iterator[tuple[str, list[str]]]:
    """Yield the cells of each check below `HEADS`, as texts: the first, and the others."""
    for part in selftest.parts:
        for check in _shown(part):
            what, *figures = (cell.plain for cell in _row(check))
            yield what, [part.name, *figures]


def _load(part: Part) -> str:
    """Return what other work took of the CPU meanwhile, where it was worth a word."""
    if part.taken_share is None or part.taken_share < BUSY_SHARE:
        return ""
    return f"  beside other work, {units.share(part.taken_share)} of the CPU"


def _notes(selftest: Selftest) -> Iterator[Text]:
    """Yield what NVML's figures were found to speak of, what failed means, and what could not be run."""
    for window in selftest.windows:
        yield Text.assemble((f"{window.source}: ", "bold"), _window(window))
    yield from _failures(selftest)
    for part in selftest.parts:
        if part.status == "not-run":
            yield Text.assemble((f"{part.name} was not run: ", "yellow"), one_line(part.reason or ""))


def _failures(selftest: Selftest) -> Iterator[Text]:
    """Yield what it means that a part failed, and which one other work has disturbed."""
    for part in selftest.parts:
        if part.status == "failed":
            yield Text.assemble((f"{part.name} failed: ", "bold red"), part.meaning, ".")
            yield from (Text(f"  {one_line(reason)}", style="dim") for reason in dict.fromkeys(_reasons(part)))
        elif part.status == "disturbed":
            yield Text.assemble((f"{part.name} was not decided: ", "yellow"), _DISTURBED)


def _reasons(part: Part) -> Iterator[str]:
    """Yield why the part, and those of its checks that did not pass, have no figure."""
    yield from filter(None, [part.reason])
    yield from (f"{each.what}, {each.figure}: {each.reason}" for each in part.checks if each.reason and not each.passed)


def facts(session: Session) -> list[tuple[str, str]]:
    """Return a line for each part of a selftest, its worst check and what a failure means, and for NVML's windows."""
    if session.selftest is None:
        return []
    windows = [(window.source, _window(window)) for window in session.selftest.windows]
    return [*((part.name, _line(part)) for part in session.selftest.parts), *windows]


def _window(window: Window) -> str:
    """Return what a figure of NVML's speaks of, how often there is a new one, and how far it is to be believed."""
    if window.window_ms is None:
        return f"which time a figure is of is not known: {one_line(window.reason or '')}"
    text = f"a figure is of {window.window_ms:.0f} ms, which end {window.latency_ms or 0:.0f} ms before its stamp"
    text += f"; a new one every {window.period_ms or 0:.0f} ms"
    if window.error_points is None:
        return f"{text}; its error is not known: {one_line(window.reason or '')}"
    return f"{text}; {units.count(window.runs, 'run')}, of which 95 % within {window.error_points:.1f} points"


def _line(part: Part) -> str:
    if part.status == "not-run":
        return f"not run: {one_line(part.reason or '')}"
    worst = part.worst
    text = str(part.status)
    if worst is not None and worst.unit != "word":
        verb = "expected" if worst.planted_word else "planted"
        text += f"; worst: {worst.what}, {worst.figure} {value(worst.measured, worst.unit)}"
        text += f" where {_planted(worst)} was {verb}"
        text += f" ({error(worst)})" if error(worst) else ""
    if part.status == "failed":
        return ". ".join([f"{text}{_load(part)}", f"What it means: {part.meaning}", *map(one_line, _reasons(part))])
    return f"{text}{_load(part)}"


def cited(session: Session) -> list[tuple[str, str]]:
    """Return how far the program may be believed here, by the last selftest; nothing of a session that did not look."""
    return [] if session.checked is None or session.selftest is not None else [("this machine", words(session.checked))]


def words(checked: Checked) -> str:
    """Return the last selftest of this machine in a sentence: ``checked on 22 November: waits within 2 %, …``."""
    if checked.at is None:
        return "never checked: `pipeline-bench selftest` measures how accurate the figures are here"
    found = [
        f"{name} within {100 * error:.1f} points"
        for name, error in (("waits", checked.wait_error), ("AU", checked.utilization_error))
        if error is not None
    ]
    on = f" on {_day(checked.windows_at)}" if checked.windows_at else ""
    found += [
        f"utilization ({window.source}) within {window.error_points:.1f} points{on}"
        for window in checked.windows
        if window.error_points is not None
    ]
    found += [f"cost {100 * checked.cost_share:.1f} %"] if checked.cost_share is not None else []
    text = (
        f"checked on {_day(checked.at)}{' (quick)' if checked.quick else ''}: {', '.join(found) or 'nothing could be'}"
    )
    if checked.failed:
        text += f"; failed: {', '.join(checked.failed)}"
    if checked.disturbed:
        text += f"; not decided beside other work: {', '.join(checked.disturbed)}"
    if checked.other_driver:
        text += f"; that was with {_driver(checked.driver)}: run `pipeline-bench selftest` again"
    return text


def _day(at: str) -> str:
    try:
        day = datetime.fromisoformat(at)
    except ValueError:
        return one_line(at, NAME)
    return f"{day.day} {day:%B %Y}"


def _driver(driver: str | None) -> str:
    return f"driver {driver}" if driver else "no driver"
