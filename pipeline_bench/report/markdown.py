"""Session → Markdown for a pull request: what it says, one table, a sentence a variant, what went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pipeline_bench.analysis import advice
from pipeline_bench.analysis.speedups import conclude, smallest
from pipeline_bench.model.result import BUSY_TIME, Estimate, Interval, Result, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.report import diagnosis_markdown, diagnosis_words, disturbed, placement_markdown, words
from pipeline_bench.text import one_line, units

_NAME_LIMIT = 80
_TEXT_LIMIT = 600
_DISTURBANCES_SHOWN = 8

# What Markdown or the HTML inside it would take for its own.
_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&$!@]|(?<![^\W_])_|_(?![^\W_]))")

# What makes a list, a rule or a heading of the line that it begins.
_LEADING = re.compile(r"^(?=[-+=])|^\d+(?=[.)](?:\s|$))")

_HEADS = ("variant", "ms/step", "samples/s", "input wait", "compute", "host slowdown", "AU", "device util.", "speed-up")


def render(session: Session) -> str:
    """Everything a reader of a pull request needs; names and texts of the scenario are escaped."""
    if session.diagnosis is not None:
        found = diagnosis_markdown.blocks(session, session.diagnosis, escape, table)
        told = [_heading(session), *found, _disturbances(session), *_troubles(session)]
        told += [f"Note: {escape(note, _TEXT_LIMIT)}" for note in session.notes] + [_origin(session)]
        return "\n\n".join(block for block in told if block) + "\n"
    blocks = [
        _heading(session),
        table(_heads(session), [_row(session, result) for result in session.results]),
        _caption(session),
        "\n".join(f"- **{escape(r.variant)}**: {escape(r.verdict.text, _TEXT_LIMIT)}" for r in session.results),
        _learning(session),
        _precision(session),
        _list("Work:", _work(session)),
        _list("Storage:", words.storage(session)),
        _list("Skipped by:", words.left_out(session)),
        _list("Threads:", advice.thread_remarks(session)),
        _list("Loops:", advice.loop_remarks(session)),
        *placement_markdown.blocks(session, escape, table),
        _disturbances(session),
        *_published(session),
        *_troubles(session),
        *(f"Note: {escape(note, _TEXT_LIMIT)}" for note in session.notes),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str, limit: int = _NAME_LIMIT) -> str:
    """The text on one line, at most `limit` characters of it, shown by Markdown as it is."""
    escaped = _LEADING.sub(r"\g<0>\\", _SPECIAL.sub(r"\\\1", one_line(text, limit)))
    return escaped.replace("://", ":\\//").replace("www.", "www\\.")  # GitHub makes links of these by itself


def _heading(session: Session) -> str:
    lines = [
        f"### pipeline-bench: {escape(session.scenario.name)}",
        f"**{escape(_conclusion(session), _TEXT_LIMIT)}**",
        escape(session.scenario.question, _TEXT_LIMIT),
        escape(words.machine(session), _TEXT_LIMIT),
    ]
    return "\n\n".join(line for line in lines if line)


def _conclusion(session: Session) -> str:
    return conclude(session) if session.diagnosis is None else diagnosis_words.headline(session, session.diagnosis)


def _origin(session: Session) -> str:
    return f"<sub>pipeline-bench {escape(session.environment.package)}, {escape(session.started_at)}</sub>"


def _heads(session: Session) -> Sequence[str]:
    emulated = session.environment.accelerator_kind == "emulated"
    return [f"{session.device_label} util." if emulated and head == "device util." else head for head in _HEADS]


def _row(session: Session, result: Result) -> list[str]:
    utilization = result.device_utilization
    return [
        escape(result.variant),
        _with_interval(units.plain_milliseconds(result.step_ms.median), result.step_ms.ci95),
        _rate(result),
        _share(result.input_wait_share),
        _share(result.accelerator_utilization),
        _share(result.host_slowdown_share),
        units.fraction(result.accelerator_utilization.value),
        _with_whole_interval(units.percent(utilization.mean_percent), utilization.ci95),
        "1×" if result.speedup.over == result.variant else _speedup(result.speedup),
    ]


def _rate(result: Result) -> str:
    shown, interval = units.rate(result.samples_per_second), result.samples_per_second_ci95
    return shown if interval is None else f"{shown} ({units.rate(interval[0])} to {units.rate(interval[1])})"


def _speedup(speedup: Speedup) -> str:
    shown = _with_interval(units.ratio(speedup.value), speedup.ci95)
    if speedup.difference != "none":
        return shown
    return f"no difference found ({smallest(speedup)}): {shown}"


def _share(estimate: Estimate) -> str:
    percents = estimate.ci95 and (estimate.ci95[0] * 100, estimate.ci95[1] * 100)
    return _with_whole_interval(units.share(estimate.value), percents if estimate.value is not None else None)


def _with_whole_interval(shown: str, ci95: Interval | None) -> str:
    return shown if ci95 is None else f"{shown} ({ci95[0]:.0f} to {ci95[1]:.0f})"


def _with_interval(shown: str, ci95: Interval | None) -> str:
    return shown if ci95 is None else f"{shown} ({ci95[0]:.2f} to {ci95[1]:.2f})"


def _caption(session: Session) -> str:
    sources = dict.fromkeys(r.device_utilization.source for r in session.results if r.device_utilization.source)
    sources.pop(BUSY_TIME, None)
    steps = sorted({result.steps for result in session.results if result.steps})
    measured = f"{steps[0]} to {steps[-1]} measured steps a variant" if steps else "nothing was measured"
    parts = [
        "in brackets: 95 % intervals over trials",
        measured,
        *(f"device utilization: {escape(source)}" for source in sources),
        *([escape(busy, _TEXT_LIMIT)] if (busy := words.busy_time(session)) else []),
        f"pipeline-bench {escape(session.environment.package)}, {escape(session.started_at)}",
    ]
    return f"<sub>{'; '.join(parts)}</sub>"


def _work(session: Session) -> Iterator[tuple[str, str]]:
    """What is known of the samples that each variant trained on; a ceiling has no input."""
    ceilings = session.scenario.ceilings
    for result in session.results:
        if result.work.text and result.variant not in ceilings:
            yield result.variant, result.work.text


def _precision(session: Session) -> str:
    return "" if session.precision is None else escape(session.precision.text, _TEXT_LIMIT)


def _disturbances(session: Session) -> str:
    by_kind = session.diagnosis is not None
    return _list("Disturbances:", disturbed.lines(session.disturbances, _DISTURBANCES_SHOWN, by_kind=by_kind))


def _list(head: str, items: Iterable[tuple[str, str]]) -> str:
    """A list under its head, each item with its name; nothing where there is none."""
    lines = [f"- **{escape(name, _TEXT_LIMIT)}**: {escape(text, _TEXT_LIMIT)}" for name, text in items]
    return "\n".join([head, "", *lines]) if lines else ""


def _learning(session: Session) -> str:
    """What the model learned; ceilings left out, which train on one batch over and over."""
    rows = [
        [
            escape(result.variant),
            units.loss(result.loss),
            units.share(result.accuracy.before),
            units.share(result.accuracy.after),
        ]
        for result in session.results
        if result.verdict.kind != "ceiling" and (result.loss is not None or result.accuracy.after is not None)
    ]
    return table(("variant", "final loss", "accuracy before", "after"), rows) if rows else ""


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
        heads = (units.count(published.steps, "step"), "published", "ours", "ratio", "published util.", "our util.")
        yield f"Published: {escape(published.source, _TEXT_LIMIT)}\n\n{table(heads, rows)}"


def _troubles(session: Session) -> Iterator[str]:
    for record in session.trials:
        if record.status != "ok":
            reason = escape(record.reason or "no reason is known", _TEXT_LIMIT)
            yield f"**{escape(record.variant)}**, repeat {record.repeat + 1}, {record.status}: {reason}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str] = ()) -> str:
    """A table of cells that are Markdown already; the first column and those of words to the left, the others right."""
    rule = ["---", *("---" if head in words else "---:" for head in heads[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))
