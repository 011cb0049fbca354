"""What a page says of the variants in words and tables: verdicts, figures, published figures beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline_bench.analysis.speedups import conclude, smallest
from pipeline_bench.model.result import PublishedComparison, Result, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.report import diagnosis_words, words
from pipeline_bench.report.html import colours, tables
from pipeline_bench.report.html.tables import Cell, Table
from pipeline_bench.report.html.text import NAME_LIMIT, line, name
from pipeline_bench.text import units


@dataclass(frozen=True)
class VerdictLine:
    """One variant's verdict, as the page opens with it."""

    variant: str
    word: str
    colour: str
    severe: bool
    text: str
    is_ceiling: bool


def in_order(session: Session) -> list[Result]:
    """The results as every view lists them: in the scenario's order, the ceilings last."""
    references = tables.ceilings(session)
    return sorted(session.results, key=lambda result: result.variant in references)


def verdicts(session: Session) -> list[VerdictLine]:
    """A line a variant."""
    references = tables.ceilings(session)
    return [
        VerdictLine(
            name(result.variant),
            f"severely {result.verdict.kind}" if result.verdict.severe else result.verdict.kind,
            colours.VERDICTS[result.verdict.kind],
            result.verdict.severe,
            _without_its_word(result),
            result.variant in references,
        )
        for result in in_order(session)
    ]


def _without_its_word(result: Result) -> str:
    """The sentence; the badge before it says the verdict's word already."""
    text = line(result.verdict.text)
    for word in (f"severely {result.verdict.kind}: ", f"{result.verdict.kind}: "):
        text = text.removeprefix(word)
    return text[:1].upper() + text[1:]


def conclusion(session: Session) -> str:
    """The sentence that the page opens with; a name that would fill it is cut as everywhere."""
    if session.diagnosis is not None:
        return line(diagnosis_words.headline(session, session.diagnosis))
    text = conclude(session)
    for variant in session.scenario.variants:
        if len(variant.name) > NAME_LIMIT:
            text = text.replace(variant.name, name(variant.name))
    return line(text)


def missing(session: Session) -> list[str]:
    """What a whole session would have and this one lacks, each with its reason."""
    if session.diagnosis is not None:  # what it did not come to is said of each fix
        stopped = any(trial.status == "interrupted" for trial in session.trials)
        return ["It was interrupted; fixes that were not tried are listed as such."] if stopped else []
    planned = sum(variant.run.repeats for variant in session.scenario.variants)
    ended = len(session.trials)
    lines = []
    if ended < planned:
        lines.append(f"{ended} of {units.count(planned, 'planned trial')} ended.")
    for result in in_order(session):
        if result.status != "ok":
            why = f": {line(result.reason)}" if result.reason else ""
            lines.append(f"{name(result.variant)}, {result.status}{why}.")
    return lines


def figures(session: Session) -> Table:
    """Time and utilization side by side: the table that the page is about."""
    heads = (
        "variant",
        "ms/step",
        "samples/s",
        "input wait",
        "compute",
        "host slowdown",
        "AU",
        f"{session.device_label} util.",
        "speed-up",
    )
    rows = [_figures_row(result) for result in in_order(session)]
    return tables.table("Each variant's figures, with 95 % intervals over trials", heads, rows)


def _figures_row(result: Result) -> list[Cell | str]:
    rate, rates = result.samples_per_second, result.samples_per_second_ci95
    return [
        Cell(name(result.variant), "" if result.status == "ok" else result.status),
        tables.milliseconds(result.step_ms.median, result.step_ms.ci95, result.step_ms.reason or result.reason),
        Cell(
            units.rate(rate),
            f"{units.rate(rates[0])} to {units.rate(rates[1])}" if rates else "",
            None if rate is not None else result.missing.get("samples_per_second", result.reason),
        ),
        *(
            cell if cell.text != units.NOT_MEASURED else replace(cell, reason=cell.reason or result.reason)
            for cell in (
                tables.share(result.input_wait_share),
                tables.share(result.accelerator_utilization),
                tables.share(result.host_slowdown_share),
                tables.fraction(result.accelerator_utilization),
                tables.device(result.device_utilization),
            )
        ),
        _speedup(result),
    ]


def learning(session: Session) -> Table:
    """What the model learned, for a reader who asks whether it did."""
    rows = []
    for result in in_order(session):
        accuracy, lost = result.accuracy, result.loss is None
        unknown = accuracy.before is None and accuracy.after is None
        rows.append(
            (
                name(result.variant),
                Cell(units.loss(result.loss), "", result.missing.get("loss", result.reason) if lost else None),
                Cell(
                    units.share(accuracy.before), "", result.missing.get("accuracy", result.reason) if unknown else None
                ),
                units.share(accuracy.after),
            )
        )
    heads = ("variant", "final loss", "accuracy before", "accuracy after")
    return tables.table("Loss and accuracy", heads, rows)


def _speedup(result: Result) -> Cell:
    speedup = result.speedup
    if speedup.over == result.variant and speedup.value is None:
        return Cell("1×", "the baseline")
    cell = tables.ratio(speedup.value, speedup.ci95, speedup.reason or result.reason)
    said = no_difference(speedup)
    return Cell(cell.text, cell.under, cell.reason, said)


def no_difference(speedup: Speedup) -> str:
    """What an interval that holds 1 says: that nothing was found, and how much could have been missed."""
    if speedup.difference != "none":
        return ""
    return f"no difference found ({smallest(speedup)})"


def captions(session: Session) -> list[str]:
    """What the heads of the figures' table have no room to say."""
    overs = dict.fromkeys(name(r.speedup.over) for r in session.results if r.speedup.over is not None)
    return [
        "ms/step is the median of the trials' medians; all other figures are of means. "
        "AU, accelerator utilization: the ceiling's step time over the variant's, which is its compute part.",
        *(f"Speed-up: samples a second over those of {over}, repeat by repeat." for over in overs),
        *([f"{busy}."] if (busy := words.busy_time(session)) else []),
        *(
            ["A ceiling trains on one batch over and over, so its loss and accuracy say nothing."]
            if tables.ceilings(session)
            else []
        ),
    ]


def published(session: Session) -> tuple[str, Table, list[str]] | None:
    """The source, the table and remarks of an author's figures beside ours; None where there are none."""
    figures = session.scenario.published
    rows = [(result.variant, result.published) for result in in_order(session) if result.published is not None]
    if figures is None or not rows:
        return None
    heads = ("variant", "published time", "ours", "ours ÷ theirs", "published util.", "ours", "ours ÷ theirs")
    table = tables.table(f"{units.count(figures.steps, 'step')}", heads, [_published_row(*row) for row in rows])
    return line(figures.source), table, [*_gains(rows), *_published_remarks(session, rows)]


def _published_row(variant: str, figures: PublishedComparison) -> list[Cell | str]:
    scaled = figures.scaled_from_steps
    return [
        name(variant),
        units.seconds(figures.seconds),
        Cell(units.seconds(figures.our_seconds), f"scaled from {scaled} steps" if scaled is not None else ""),
        units.ratio(figures.seconds_ratio),
        units.percent(figures.device_utilization_percent),
        units.percent(figures.our_device_utilization_percent),
        units.ratio(figures.device_utilization_ratio),
    ]


def _gains(rows: Sequence[tuple[str, PublishedComparison]]) -> Iterator[str]:
    first_name, first = rows[0]
    for variant, figures in rows[1:]:
        if not (first.seconds and figures.seconds):
            continue
        theirs, ours = units.ratio(first.seconds / figures.seconds), units.NOT_MEASURED
        if first.our_seconds and figures.our_seconds:
            ours = units.ratio(first.our_seconds / figures.our_seconds)
        yield f"From {name(first_name)} to {name(variant)} the author gained {theirs}; here it is {ours}."


def _published_remarks(session: Session, rows: Sequence[tuple[str, PublishedComparison]]) -> Iterator[str]:
    both = any(f.device_utilization_percent and f.our_device_utilization_percent is not None for _, f in rows)
    if both and (other := words.other_device(session)):
        yield f"Their utilization is a GPU's, ours {other}: compare their changes rather than their ratio."
