"""The live screen of a running session: a row per variant, never more lines or wider columns than at its start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pipeline_bench.analysis import precision
from pipeline_bench.analysis.verdicts import in_brief
from pipeline_bench.model.result import BUSY_TIME, CPU_TIME, EMULATED_LABEL
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial, TrialRecord
from pipeline_bench.report import VERDICT_STYLES
from pipeline_bench.report.layout import fitting
from pipeline_bench.report.terminal import title
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.text import NAME, one_line, units
from pipeline_bench.ui import cut, diagnosing, figure_table, filled, overall_bar, sparkline
from pipeline_bench.ui.console import ForegroundLive
from pipeline_bench.ui.progress import SessionProgress, VariantProgress, stage

REFRESH_S = 0.25
"""The least time between two drawings: the profiler must not slow what it measures."""

_FIXED_LINES = 7
"""Title, heads, a blank line, the overall bar, the phase, the latest note; and the line that the cursor rests on."""
_MORE_NOTE_LINES = 2
"""At the most, where the terminal has room for them."""
_VERDICT_CELLS = len("compute-bound?")
_TRIALS_CELLS = len("10000 trials")
_NARROW, _WIDE = 76, 110
_NAME_CELLS = (8, 32)


class LiveView(Observer):
    """Shows a session's progress in place while it runs; on leaving the context the screen is as it was before.

    Args:
        console: a console on a terminal.
        clock: seconds, for the pace of drawing and the time gone by.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._state: SessionProgress | None = None
        self._note = ""
        self._preparing = ""
        self._started_s = clock()
        self._drawn_s = float("-inf")
        self._live = ForegroundLive(
            console=console,
            auto_refresh=False,
            screen=False,
            transient=True,
            vertical_overflow="crop",
            get_renderable=self.render,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def preparing(self, what: str) -> None:
        self._preparing = f"{one_line(what)} …"
        self._draw()

    def making(self, what: str, made: int, total: int) -> None:
        self._preparing = f"making data, {one_line(what)}: {made:,} of {total:,} …"
        if self._clock() - self._drawn_s >= REFRESH_S or made == total:
            self._draw()

    def session_started(self, session: Session, plan: Sequence[Trial]) -> None:
        self._state = SessionProgress(session, plan)
        self._started_s = self._clock()
        self._draw()

    def trial_started(self, trial: Trial) -> None:
        if self._state is not None:
            self._state.start(trial)
            self._draw()

    def progress(self, trial: Trial, progress: Progress) -> None:
        if self._state is not None:
            self._state.update(trial, progress)
            if self._clock() - self._drawn_s >= REFRESH_S:
                self._draw()

    def trial_finished(self, trial: Trial, record: TrialRecord, session: Session) -> None:
        if self._state is not None:
            self._state.finish(trial, record, session)
            self._draw()

    def note(self, text: str) -> None:
        self._note = one_line(text)
        self._draw()

    def render(self) -> RenderableType:
        state = self._state
        if state is None:
            return cut(Text(self._preparing, style="dim"), self._console.width)
        width, height = self._console.width, self._console.height
        if state.session.diagnosis is not None:
            return diagnosing.screen(state, self._clock() - self._started_s, width, height, self._note)
        goal = [cut(_precision(state.session), width)] if state.open_ended else []
        lines = height - _FIXED_LINES - len(goal)
        rows, left_out = _window(state, lines)
        note_lines = 1 + min(_MORE_NOTE_LINES, max(0, lines - len(state.rows)))
        more = [Text(f"… {left_out} more", style="dim")] if left_out else []
        return Group(
            cut(title(state.session), width),
            _table(rows, state, width),
            *more,
            Text(),
            _overall(state, self._clock() - self._started_s, width),
            *goal,
            cut(_phase(state), width),
            filled(self._note or _instrument(state), width, note_lines, style="dim"),
        )

    def _draw(self) -> None:
        self._drawn_s = self._clock()
        if self._live.is_started:
            self._live.refresh()


def _window(state: SessionProgress, lines: int) -> tuple[list[VariantProgress], int]:
    """Return as many rows as fit, the running one among them, and how many were left out."""
    rows = list(state.rows.values())
    if len(rows) <= lines:
        return rows, 0
    shown = max(1, lines - 1)  # one line says how many more there are
    middle = next((i for i, row in enumerate(rows) if row.running), min(state.finished, len(rows) - 1))
    first = min(max(0, middle - shown // 2), len(rows) - shown)
    return rows[first : first + shown], len(rows) - shown


def _table(rows: Sequence[VariantProgress], state: SessionProgress, width: int) -> Table:
    """Column widths follow from the scenario and the terminal alone, so no value can move them."""
    variants = [row.variant for row in state.rows.values()]
    planned = [0 if state.open_ended else variant.run.repeats for variant in variants]
    trial_cells = max(len("trial"), *(2 * len(str(repeats)) + 1 for repeats in planned))
    bar_cells, spark_cells = (16, 24) if width >= _WIDE else (8, 10) if width >= _NARROW else (6, 8)
    device = _device(state)
    columns = {"trial": trial_cells, "": bar_cells, "ms/step": 7, "wait": 5, device: 5, "history": spark_cells}
    if width >= _NARROW:
        columns["verdict"] = _VERDICT_CELLS
    heads = [*columns]
    least, most = _NAME_CELLS
    widths = {head: cells + 1 for head, cells in columns.items()}
    shown = fitting(widths, ("history", "", device, "wait", "trial"), width - least - 3)
    longest = max(Text(variant.name).cell_len for variant in variants)
    room = width - 1 - sum(widths[head] for head in shown) - 1
    right = {"trial", "ms/step", "wait", device}
    aligned = [(head, columns[head], head in right) for head in shown]
    table = figure_table("variant", max(least, min(most, longest, room)), aligned, marked=True)
    for row in rows:
        mark, name, *figures = _cells(row, state, bar_cells, spark_cells)
        table.add_row(mark, name, *(figures[heads.index(head)] for head in shown))
    return table


def _device(state: SessionProgress) -> str:
    """Return the device for the head of its column; before a trial has ended, the running trial's."""
    if state.finished == 0 and state.source == BUSY_TIME:
        return EMULATED_LABEL
    return state.session.device_label


def _cells(row: VariantProgress, state: SessionProgress, bar_cells: int, spark_cells: int) -> list[RenderableType]:
    repeat = row.finished + 1 if row.running else row.finished
    bar: RenderableType = ProgressBar(total=1.0, completed=row.fraction, width=bar_cells) if row.running else Text()
    verdict = Text()
    if row.verdict is not None:
        verdict = Text(in_brief(row.verdict), style=VERDICT_STYLES[row.verdict.kind])
    if not row.done:
        verdict.stylize("dim")  # it can still change
    return [
        _mark(row),
        Text(row.variant.name, style="bold" if row.running else ""),
        Text(f"{repeat}" if state.open_ended else f"{repeat}/{row.variant.run.repeats}"),
        bar,
        Text(units.plain_milliseconds(row.step_ms)),
        Text(units.share(row.input_wait_share)),
        Text(units.percent(row.device_percent)),
        Text(sparkline(list(row.history), spark_cells), style="cyan"),
        verdict,
    ]


def _mark(row: VariantProgress) -> Text:
    if row.running:
        return Text("●", style="cyan")
    if row.failed:
        return Text("✗", style="red")
    return Text("✓", style="green") if row.done else Text("·", style="dim")


def _overall(state: SessionProgress, elapsed_s: float, width: int) -> Table:
    left_s = state.left_s(elapsed_s)
    left = units.NOT_MEASURED if left_s is None else units.clock(left_s)
    total = len(state.plan)
    done, all_of_it = state.trials_done, float(max(1, total))
    count = f"{state.finished:>{len(str(total))}}/{total} trials"
    if state.session.precision is not None:
        done, all_of_it = elapsed_s, state.session.precision.budget_s
        count = f"{units.count(state.finished, 'trial'):>{_TRIALS_CELLS}}"
        left = f"{left} of the budget"
    return overall_bar(done, all_of_it, f"{count} {units.clock(elapsed_s):>7} elapsed {left:>7} left", width)


def _precision(session: Session) -> Text:
    """Return how well the least known speed-up is known and the goal, short enough for a narrow terminal."""
    assert session.precision is not None
    if session.precision.goal is None:
        still = units.count(len(precision.open_questions(session)), "question")
        shown = f"{still} open" if session.precision.repeats else "until everything is decided"
        return Text(f"round {session.precision.repeats + 1}; {shown}")
    known = f"goal ±{units.precision(session.precision.goal)}; {precision.widest_words(session)}"
    worst, judged_from = precision.widest(session), precision.judged_from(session.scenario)
    is_reached = worst is not None and worst.half_width <= session.precision.goal
    if is_reached and session.precision.repeats < judged_from:
        known += f"; counts from {judged_from} repeats on"
    return Text(known)


def _phase(state: SessionProgress) -> Text:
    trial, last = state.trial, state.last
    if trial is None:
        return Text("all trials have ended" if state.ended else "preparing")
    text = Text(f"{one_line(trial.variant.name, NAME)}, repeat {trial.repeat + 1}: ")
    return text.append(stage(trial, last) if last is not None else "starting")


def _instrument(state: SessionProgress) -> str:
    """Return how the device utilization on the screen is had."""
    if not state.source:
        return ""
    if state.source == BUSY_TIME:
        return f"{EMULATED_LABEL}: {BUSY_TIME} ÷ wall time"
    meaning = " ÷ (wall time × cores)" if state.source == CPU_TIME else ""
    return f"{state.session.environment.accelerator_kind.upper()}: {state.source}{meaning}"
