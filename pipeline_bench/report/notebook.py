"""Session → a fragment of HTML for a notebook's output: no script, no style sheet, nothing to fetch."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.report.html import bars, content, diagnosis, environment, machine
from pipeline_bench.report.html.text import name
from pipeline_bench.text import units


@dataclass(frozen=True)
class _Part:
    """A part of a step as a length."""

    name: str
    colour: str
    percent: float
    text: str


def render(session: Session) -> str:
    """The conclusion, the verdicts and the figures; each step's parts are drawn as boxes of plain HTML."""
    if (found := diagnosis.view(session)) is not None:
        return (
            environment()
            .get_template("diagnosis_notebook.html")
            .render(
                title=name(session.scenario.name),
                machine=machine(session),
                conclusion=content.conclusion(session),
                diagnosis=found,
                own=units.plain_milliseconds,
                of_all=units.share,
            )
        )
    parts = [_parts(result) for result in content.in_order(session)]  # in the order of the table's rows
    return (
        environment()
        .get_template("notebook.html")
        .render(
            title=name(session.scenario.name),
            machine=machine(session),
            conclusion=content.conclusion(session),
            verdicts=content.verdicts(session),
            missing=content.missing(session),
            table=content.figures(session),
            parts=parts,
            legend=[(part, colour) for part, colour, _, _ in bars.PARTS],
        )
    )


def _parts(result: Result) -> list[_Part]:
    """The parts of the step that are above nothing; none where one was not measured."""
    shares = (result.input_wait_share, result.accelerator_utilization, result.host_slowdown_share)
    values = [max(0.0, share.value) for share in shares if share.value is not None]
    if len(values) < len(bars.PARTS) or not sum(values):
        return []
    return [
        _Part(part, colour, round(100 * value / sum(values), 2), f"{part}: {units.share(value)}")
        for (part, colour, _, _), value in zip(bars.PARTS, values, strict=True)
        if value
    ]
