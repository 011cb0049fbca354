"""Session → one HTML file that opens offline, with plots, on a screen, a phone or paper. Pure: no clock, no chance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from pipeline_bench.analysis.thresholds import BOUND_SHARE, COMPUTE_BOUND_AU, SEVERE_SHARE
from pipeline_bench.model.session import Session
from pipeline_bench.report import words
from pipeline_bench.report.html import account, assets, bars, content, diagnosis, placement
from pipeline_bench.report.html.autotune import autotune
from pipeline_bench.report.html.distribution import distribution
from pipeline_bench.report.html.figure import Figure
from pipeline_bench.report.html.steps import Clock, Floats, Steps, read_steps
from pipeline_bench.report.html.text import json_block, line, name
from pipeline_bench.report.html.timeline import timeline
from pipeline_bench.text import one_line, units

_METHOD = (
    "Each trial runs in a process of its own; the trials of the variants take turns, because machines drift. A variant "
    "is held against the ceiling trial of the same repeat, and speed-ups against the baseline's.",
    "Warm-up is found afterwards in the step times themselves and left out of every figure, except of a total that is "
    "compared with a published one at the same number of steps.",
    "Intervals are 95 %, over trials and not over steps: Student's t below 8 trials, bootstrap from 8 on. Where an "
    "interval straddles the threshold that would decide, the verdict is inconclusive. A variant is input-bound or "
    f"host-bound from {units.share(BOUND_SHARE)} of the step, severely from {units.share(SEVERE_SHARE)}, and "
    f"compute-bound from an AU of {units.fraction(COMPUTE_BOUND_AU)}.",
)


@dataclass(frozen=True)
class Plots:
    """The figures of a page; None where there is nothing to draw."""

    step_time: Figure | None
    utilization: Figure | None
    split: Figure | None
    distribution: Figure | None
    timeline: Figure | None
    autotune: Figure | None = None

    @property
    def drawn(self) -> list[Figure]:
        """Those that there are."""
        figures = (self.autotune, self.step_time, self.utilization, self.split, self.distribution, self.timeline)
        return [figure for figure in figures if figure is not None]


def render(session: Session) -> str:
    """The page; names and texts of the session appear in it as text only."""
    unreadable: list[str] = []
    plots = _plots(session, unreadable)
    return (
        environment()
        .get_template("page.html")
        .render(
            title=name(session.scenario.name),
            question=line(session.scenario.question),
            machine=machine(session),
            conclusion=content.conclusion(session),
            diagnosis=diagnosis.view(session),
            own=units.plain_milliseconds,
            of_all=units.share,
            verdicts=content.verdicts(session),
            missing=content.missing(session),
            figures=content.figures(session),
            captions=content.captions(session),
            learning=content.learning(session),
            published=content.published(session),
            troubles=account.troubles(session),
            notes=[line(note) for note in dict.fromkeys((*session.scenario.notes, *session.notes))],
            disturbances=account.disturbances(session),
            unreadable=unreadable,
            work=account.work(session),
            precision=account.precision(session),
            input=account.input_lines(session),
            threads=account.threads(session),
            loops=account.loops(session),
            placement=placement.view(session),
            environment=account.environment(session),
            configuration=account.configuration(session),
            method=_METHOD,
            package=line(session.environment.package),
            schema=session.schema_version,
            plots=plots,
            # These are this package's own, or escaped for the place they stand in.
            policy=assets.policy(),
            css=Markup(assets.text("page.css")),  # noqa: S704
            script=Markup(assets.text("page.js")),  # noqa: S704
            plotly=Markup(assets.plotly() if plots.drawn else ""),  # noqa: S704
            data=Markup(json_block([figure.plot() for figure in plots.drawn])),  # noqa: S704
        )
    )


@cache
def environment() -> jinja2.Environment:
    """Templates of this folder: every value is escaped, and a name that is not given is an error."""
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(assets.text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )


def machine(session: Session) -> str:
    """The machine in a line."""
    return line(f"{session.started_at} · {words.machine(session)}")


def _harmless(value: Any) -> Any:
    """The last gate: whatever text a template shows has no control or direction characters."""
    if isinstance(value, str) and not isinstance(value, Markup):
        indent = value[: len(value) - len(value.lstrip(" "))]
        return indent + one_line(value)
    return value


def _plots(session: Session, unreadable: list[str]) -> Plots:
    clock = Clock.of(session)
    steps = _steps(session, clock, unreadable)
    results = content.in_order(session)
    return Plots(
        step_time=bars.step_time(session, results),
        utilization=bars.utilization(session, results),
        split=bars.split(results),
        distribution=distribution(results, _measured(session, steps)),
        timeline=timeline(session, clock, steps, unreadable, account.trials(session, clock, steps)),
        autotune=autotune(session.diagnosis),
    )


def _steps(session: Session, clock: Clock, unreadable: list[str]) -> dict[int, Steps]:
    """Each trial's steps by its place in the session; a damaged column is told, and the rest is shown."""
    found: dict[int, Steps] = {}
    for index, record in enumerate(session.trials):
        try:
            read = read_steps(record, clock)
        except ValueError as error:
            unreadable.append(f"{name(record.variant)}, repeat {record.repeat + 1}: steps: {error}")
            continue
        if read is not None:
            found[index] = read
    return found


def _measured(session: Session, steps: dict[int, Steps]) -> dict[str, Floats]:
    """The measured steps of each variant's good trials, as its result counts them."""
    parts: dict[str, list[Floats]] = {}
    for index, record in enumerate(session.trials):
        if record.status == "ok" and index in steps and steps[index].measured_ms.size:
            parts.setdefault(record.variant, []).append(steps[index].measured_ms)
    return {variant: np.concatenate(found) for variant, found in parts.items()}
