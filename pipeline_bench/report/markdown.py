"""Session → Markdown that pastes into a pull request: one table, one sentence a variant, what went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pipeline_bench import units
from pipeline_bench.session import Estimate, Interval, Result, Session

_NAME_LIMIT = 80
_TEXT_LIMIT = 600

# What Markdown or the HTML inside it would take for its own.
_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&$!@]|(?<!\w)_|_(?!\w))")

_HEADS = ("variant", "ms/step", "samples/s", "input wait", "compute", "host slowdown", "AU", "device util.", "speed-up")


def render(session: Session) -> str:
    """Everything a reader of a pull request needs; names and texts of the scenario are escaped."""
    blocks = [
        _heading(session),
        _table(_HEADS, [_row(session, result) for result in session.results]),
        _caption(session),
        "\n".join(f"- **{escape(r.variant)}**: {escape(r.verdict.text, _TEXT_LIMIT)}" for r in session.results),
        *_published(session),
        *_troubles(session),
        *(f"Note: {escape(note, _TEXT_LIMIT)}" for note in session.notes),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str, limit: int = _NAME_LIMIT) -> str:
    """The text on one line, at most `limit` characters of it, shown by Markdown as it is."""
    return _SPECIAL.sub(r"\\\1", units.one_line(text, limit))


def _heading(session: Session) -> str:
    environment = session.environment
    facts = [environment.accelerator_name, units.count(environment.cores, "core")]
    facts += [f"driver {environment.driver}"] if environment.driver else []
    facts += [f"TensorFlow {environment.tensorflow}"] if environment.tensorflow else []
    machine = f"{environment.accelerator_kind.upper()}: {', '.join([*facts, f'Python {environment.python}'])}"
    lines = [f"### pipeline-bench: {escape(session.scenario.name)}", escape(session.scenario.question, _TEXT_LIMIT)]
    return "\n\n".join([line for line in lines if line] + [escape(machine, _TEXT_LIMIT)])


def _row(session: Session, result: Result) -> list[str]:
    is_baseline = result.speedup.over == result.variant
    return [
        escape(result.variant),
        _with_interval(units.plain_milliseconds(result.step_ms.median), result.step_ms.ci95),
        units.rate(result.samples_per_second),
        _share(result.input_wait_share),
        _share(result.accelerator_utilization),
        _share(result.host_slowdown_share),
        units.fraction(result.accelerator_utilization.value),
        units.percent(result.device_utilization.mean_percent),
        "1×" if is_baseline else _with_interval(units.ratio(result.speedup.value), result.speedup.ci95),
    ]


def _share(estimate: Estimate) -> str:
    shown = units.share(estimate.value)
    if estimate.value is None or estimate.ci95 is None:
        return shown
    low, high = (f"{limit * 100:.0f}" for limit in estimate.ci95)
    return f"{shown} ({low} to {high})"


def _with_interval(shown: str, ci95: Interval | None) -> str:
    return shown if ci95 is None else f"{shown} ({ci95[0]:.2f} to {ci95[1]:.2f})"


def _caption(session: Session) -> str:
    sources = dict.fromkeys(r.device_utilization.source for r in session.results if r.device_utilization.source)
    steps = sorted({result.steps for result in session.results if result.steps})
    measured = f"{steps[0]} to {steps[-1]} measured steps a variant" if steps else "nothing was measured"
    parts = [
        "in brackets: 95 % intervals over trials",
        measured,
        *(f"device utilization: {escape(source)}" for source in sources),
        f"pipeline-bench {escape(session.environment.package)}, {escape(session.started_at)}",
    ]
    return f"<sub>{'; '.join(parts)}</sub>"


def _published(session: Session) -> Iterator[str]:
    published = session.scenario.published
    rows = [
        [
            escape(result.variant),
            units.seconds(figures.seconds),
            units.seconds(figures.our_seconds),
            units.ratio(figures.seconds_ratio),
            units.percent(figures.device_utilization_percent),
            units.percent(figures.our_device_utilization_percent),
        ]
        for result in session.results
        if (figures := result.published) is not None
    ]
    if published is not None and rows:
        heads = (f"{published.steps} steps", "published", "ours", "ratio", "published util.", "our util.")
        yield f"Published: {escape(published.source, _TEXT_LIMIT)}\n\n{_table(heads, rows)}"


def _troubles(session: Session) -> Iterator[str]:
    for record in session.trials:
        if record.status != "ok":
            reason = escape(record.reason or "no reason is known", _TEXT_LIMIT)
            yield f"**{escape(record.variant)}**, repeat {record.repeat + 1}, {record.status}: {reason}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))
