"""The live screen of a diagnosis: what is being tried, what was gained so far, and how much of the budget is left."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline_bench.analysis.speedups import beyond_ceiling, excludes_gain
from pipeline_bench.analysis.thresholds import LONG_STARTS
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING
from pipeline_bench.model.events import KEEP, TRACE, TRAIN
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial
from pipeline_bench.report.attempts import too_wide
from pipeline_bench.run.observer import Progress
from pipeline_bench.text import NAME, one_line, units
from pipeline_bench.ui import cut, figure_table, filled, overall_bar
from pipeline_bench.ui.progress import SessionProgress, fraction

_FOUND_LINES, _NOTE_LINES = (2, 4), (1, 3)
"""At the least and at the most: a tall terminal has room for a sentence that one of 24 lines cuts."""
_FIXED_LINES = 6 + _FOUND_LINES[0] + _NOTE_LINES[0]
"""Title, bottleneck, a blank line, heads, bar, what is tried, the latest note; and the line the cursor rests on."""
_MOST_ROWS = 12
_TELLING_S = 2.0
"""How much of the budget must be used before what the starts take is estimated from it."""
_FIGURES = (("ms", 8), ("gain", 7), ("95 % interval", 16), ("", 9))
_NARROW = 64
_BAR_CELLS = 6
"""The least that the bar of the budget takes, with the blanks around it."""
_PHASES = {
    "import": "starting",
    "build": "making the pipeline",
    "inspect": "measuring each stage alone",
    TRACE: "the model's first step",
    "fill": "filling the cache",
    "fingerprint": "recording its samples",
    KEEP: "steps with kept memory",
}
_STYLES = {"faster": "green", "slower": "yellow", "refused": "red", "failed": "red"}


def screen(state: SessionProgress, elapsed_s: float, width: int, height: int, note: str) -> RenderableType:
    """Return the current screen: always of the same number of lines and with columns of the same width.

    Args:
        state: of a session with a diagnosis.
        elapsed_s: since the session was started.
        width: columns of the terminal.
        height: its lines.
        note: the latest note; empty where there is none.
    """
    diagnosis = state.session.diagnosis
    assert diagnosis is not None
    rows = max(1, min(_MOST_ROWS, height - _FIXED_LINES))
    spare = max(0, height - _FIXED_LINES - rows)
    found_lines = min(_FOUND_LINES[1], _FOUND_LINES[0] + (spare + 1) // 2)
    note_lines = min(_NOTE_LINES[1], _NOTE_LINES[0] + spare // 2)
    sentence = found(state.session) or "searching for the stage that limits the pipeline"
    return Group(
        cut(Text(state.session.scenario.name, style="bold"), width),
        filled(f"→ {sentence}", width, found_lines),
        Text(),
        _gains(state, rows, width),
        overall_bar(
            elapsed_s - state.session.uncharged_s, diagnosis.budget_s, _time_left(state, elapsed_s, width), width
        ),
        cut(Text(now(state)), width),
        filled(note, width, note_lines, style="dim"),
    )


def left(session: Session, elapsed_s: float) -> str:
    """Return how much of the budget of a diagnosis is left, and about how long that takes if the starts take long."""
    left_s = _left_s(session, elapsed_s)
    starts = _with_starts(session, elapsed_s, left_s)
    left = f"{units.clock(left_s)} left"
    return f"{left}, about {starts} with the trials' starts" if starts else left


def _left_s(session: Session, elapsed_s: float) -> float:
    """Return the seconds that are left of the budget."""
    assert session.diagnosis is not None
    return max(0.0, session.diagnosis.budget_s - (elapsed_s - session.uncharged_s))


def _with_starts(session: Session, elapsed_s: float, left_s: float) -> str:
    """Return how long the rest of the budget takes about, if the trials' starts take long; else an empty string."""
    charged_s = elapsed_s - session.uncharged_s
    if session.uncharged_s <= LONG_STARTS * charged_s or charged_s < _TELLING_S or not left_s:
        return ""
    return units.clock(left_s * elapsed_s / charged_s)


def named(trial: Trial) -> str:
    """Return what a trial does, in words."""
    name = trial.variant.name
    known = {
        "inspection": "inspecting the pipeline",
        AS_WRITTEN: "the pipeline as written",
        CEILING: "the model alone, its ceiling",
    }
    return known.get(name, f"trying {one_line(name, NAME)}")


def now(state: SessionProgress) -> str:
    """Return what the running trial does, and how far it is."""
    if state.trial is None:
        return "deciding what to try next" if state.finished else "preparing"
    return f"{named(state.trial)}: {'starting' if state.last is None else stage(state.trial, state.last)}"


def stage(trial: Trial, progress: Progress) -> str:
    """Return what a running trial of a diagnosis does, or how far its training is."""
    if progress.phase != TRAIN:
        return _PHASES.get(progress.phase, progress.phase)
    speed = f", {units.milliseconds(progress.step_ms)} each" if progress.step_ms is not None else ""
    return f"{units.share(fraction(trial.variant, progress))}{speed}"


def best(session: Session) -> list[Result]:
    """Return what was tried so far: the pipeline as written, then the highest gain over it first."""
    tried = [result for result in session.results if result.trials and result.variant != CEILING]
    return sorted(tried, key=lambda result: (result.variant != AS_WRITTEN, -(result.speedup.value or 0.0)))


def outcome(session: Session, result: Result) -> str:
    """Return what can be said of a fix already: ``faster``, ``unproven``, ``refused``; empty where that is open."""
    diagnosis = session.diagnosis
    outcomes = {a.fix.variant: a.outcome for a in diagnosis.attempts} if diagnosis is not None else {}
    said: str = outcomes.get(result.variant, "pending")
    if said in ("pending", "not-tried"):
        said = {"faster": "faster", "slower": "slower"}.get(result.speedup.difference or "", "")
    if said == "no-gain" and not excludes_gain(result.speedup):
        return "unproven"
    return {"no-gain": "no gain", "not-applicable": "n/a"}.get(said, said)


def found(session: Session) -> str:
    """Return which stage limits the pipeline; with a model nothing before its ceiling was measured.

    Until then it is not known what part of a step the stages take, be it 60 % of a pipeline that hardly takes any.
    """
    diagnosis = session.diagnosis
    if diagnosis is None or diagnosis.bottleneck is None:
        return ""
    known = diagnosis.model is None or any(trial.variant == CEILING for trial in session.trials)
    return diagnosis.bottleneck.text if known else ""


def _gains(state: SessionProgress, rows: int, width: int) -> Table:
    # Without its outcome, the gain of a fix that was refused would be one to have.
    kept = range(len(_FIGURES)) if width >= _NARROW else (0, 1, 3)
    columns = [_FIGURES[place] for place in kept]
    room = max(8, width - sum(cells + 1 for _, cells in columns) - 1)
    table = figure_table("so far", room, [(head, cells, head in ("ms", "gain")) for head, cells in columns])
    shown = best(state.session)[:rows]
    for result in shown:
        said = outcome(state.session, result)
        figures = _cells(result, said, possible=not beyond_ceiling(result.speedup, state.session))
        table.add_row(Text(one_line(result.variant, NAME)), *(figures[place] for place in kept))
    for _ in range(rows - len(shown)):
        table.add_row("")
    return table


def _cells(result: Result, said: str, *, possible: bool) -> Sequence[Text]:
    gain, interval = (result.speedup.value, result.speedup.ci95) if possible else (None, None)
    is_known = interval is not None and not too_wide(interval)
    ends = units.ends(units.ratio, interval, "{}") if is_known else units.NOT_MEASURED
    is_base = result.variant == AS_WRITTEN
    return [
        Text(units.plain_milliseconds(result.step_ms.mean)),
        Text("" if is_base else units.ratio(gain), style=_STYLES.get(said, "")),
        Text("" if is_base else ends),
        Text("" if is_base else said, style=_STYLES.get(said, "dim")),
    ]


def _time_left(state: SessionProgress, elapsed_s: float, width: int) -> str:
    session, left_s = state.session, _left_s(state.session, elapsed_s)
    assert session.diagnosis is not None
    starts = _with_starts(session, elapsed_s, left_s)
    left = f"{units.count(state.finished, 'trial'):>10} {units.clock(left_s):>7} of "
    left += f"{units.clock(session.diagnosis.budget_s)} left"
    longer = f"{left}, about {starts} with starts"
    return longer if starts and len(longer) + _BAR_CELLS <= width else left
