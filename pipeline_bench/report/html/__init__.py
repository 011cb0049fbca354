"""Session → one HTML file that opens offline, with plots, on a screen, a phone or paper. Pure: no clock, no chance."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from pipeline_bench.analysis.stats import BOOTSTRAP_FROM_TRIALS, MANY_ROUNDS
from pipeline_bench.analysis.thresholds import BOUND_SHARE, CERTAIN, COMPUTE_BOUND_AU, PROBABLE, SEVERE_SHARE
from pipeline_bench.model.session import Session
from pipeline_bench.report import PLACEMENT_METHOD, facts, in_order, pipeline_tree, step_parts
from pipeline_bench.report import diagnosis as words
from pipeline_bench.report.html import content, diagnosis, plots
from pipeline_bench.report.html.distribution import autotune, distribution, epochs
from pipeline_bench.report.html.elements import SHADES, Plot, json_block, name
from pipeline_bench.report.html.lanes import Clock, read_steps
from pipeline_bench.report.html.timeline import timeline
from pipeline_bench.text import TEXT, one_line, units

METHOD = (
    "Each trial runs in a process of its own; the trials of the variants take turns, because machines drift. A variant "
    "is held against the ceiling trial of the same round, and speed-ups against the baseline's.",
    "Warm-up is found afterwards in the step times themselves and left out of every figure, except of a total that is "
    "compared with a published one at the same number of steps.",
    "Intervals are 95 %, over rounds and not over steps. Those of shares, AU and speed-ups are Student's t, with the "
    f"usual scatter between rounds as a prior below {MANY_ROUNDS} rounds; the other ones are Student's t below "
    f"{BOOTSTRAP_FROM_TRIALS} trials, and bootstrapped from {BOOTSTRAP_FROM_TRIALS} on.",
    f"A variant is input-bound or host-bound from {units.share(BOUND_SHARE)} of the step, severely from "
    f"{units.share(SEVERE_SHARE)}, and compute-bound from an AU of {units.fraction(COMPUTE_BOUND_AU)}. The verdict is "
    f"given plainly from a probability of {units.confidence(CERTAIN)} on, as probable from "
    f"{units.confidence(PROBABLE)} on; below, it is inconclusive and names the plausible ones.",
)

_CODE = re.compile("`([^`]+)`")


def render(session: Session) -> str:
    """Return the page; names and texts of the session appear in it as text only."""
    drawn = _plots(session)
    there = [plot for plot in drawn.values() if plot is not None]
    return _page(
        "page.html",
        session,
        question=session.scenario.question,
        figures=content.figures(session),
        captions=[f"{each}." for each in facts.captions(session)],
        learning=content.figures(session, learning=True),
        published=content.published(session),
        together=content.together(session),
        checks=content.checks(session),
        troubles=list(facts.troubles(facts.unexplained(session), brief=False)),
        trial_name=content.trial_name,
        notes=list(dict.fromkeys((*session.scenario.notes, *session.notes))),
        disturbances=content.disturbances(session),
        work=content.work(session),
        precision=facts.precision(session),
        sections=content.sections(session),
        placement=content.placement(session),
        placement_method=PLACEMENT_METHOD,
        environment=content.environment(session),
        configuration=content.configuration(session),
        method=METHOD,
        package=session.environment.package,
        schema=session.schema_version,
        plots=drawn,
        drawn=there,
        # These are this package's own, or escaped for the place they stand in.
        policy=_policy(),
        css=Markup(_file("page.css")),  # noqa: S704
        script=Markup(_file("page.js")),  # noqa: S704
        plotly=Markup(_plotly() if there else ""),  # noqa: S704
        data=Markup(json_block([plot.for_plotly() for plot in there])),  # noqa: S704
    )


def fragment(session: Session) -> str:
    """Return the conclusion, the verdicts and the figures for a notebook's output, without script or style sheet.

    Each step's parts are drawn as boxes of plain HTML.
    """
    template = "notebook.html" if session.diagnosis is None else "diagnosis_notebook.html"
    parts = [  # in the order of the table's rows
        [
            (SHADES[part.colour], round(100 * length, 2), f"{part.name}: {units.share(value)}")
            for part, (value, length) in zip(step_parts.PARTS, step_parts.of(result), strict=False)
            if value
        ]
        for result in in_order(session)
    ]
    legend = [(part.name, SHADES[part.colour]) for part in step_parts.drawn(session.results)]
    return _page(template, session, table=content.figures(session), parts=parts, legend=legend)


def _page(template: str, session: Session, **values: Any) -> str:
    """Return a template filled with these values, and with what both a page and a notebook show."""
    found = session.diagnosis
    return (
        _templates()
        .get_template(template)
        .render(
            title=name(session.scenario.name),
            machine=f"{session.started_at} · {facts.machine(session)}",
            conclusion=words.headline(session),
            diagnosis=found,
            diagnosis_sections=list(words.sections(session, found)) if found is not None else [],
            diagnosis_html=diagnosis,
            tree_captions=pipeline_tree.captions,
            verdicts=content.verdicts(session),
            missing=content.missing(session),
            **values,
        )
    )


@cache
def _templates() -> jinja2.Environment:
    """Return the templates of this folder: every value is escaped, and a name that is not given is an error."""
    templates = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    templates.filters["prose"] = _prose
    return templates


def _harmless(value: Any) -> Any:
    """Return a value as a template shows it, the last gate: a text is one line, safe and of a bounded length."""
    if isinstance(value, str) and not isinstance(value, Markup):
        indent = value[: len(value) - len(value.lstrip(" "))]
        return indent + one_line(value, TEXT)
    return value


def _prose(text: str) -> Markup:
    """Return a sentence of a report for a template: what stands between backticks there is code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(_harmless(text)))))  # noqa: S704 - of escaped text


def _plots(session: Session) -> dict[str, Plot | None]:
    """Return the plots of a page in the order of their data; None where there is nothing to draw."""
    clock = Clock.of(session)
    read = {index: read_steps(record, clock) for index, record in enumerate(session.trials)}
    steps = {index: each for index, each in read.items() if each is not None}
    results = in_order(session)
    return {
        "autotune": autotune(session.diagnosis),
        "epochs": epochs(session),
        "step_time": plots.step_time(results),
        "utilization": plots.utilization(session, results),
        "split": plots.split(results),
        "distribution": distribution(session, results),
        "timeline": timeline(session, clock, steps, content.trials(session, clock, steps)),
    }


@cache
def _file(name: str) -> str:
    """Return a file of this folder."""
    return (files(__package__) / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Return plotly.js as base64 of gzip, 2 MB in place of 5; the same text at every call."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode("ascii")


@cache
def _policy() -> str:
    """Return the Content-Security-Policy: no request at all, and no script but ours and the plotly that it unpacks.

    plotly writes styles into its elements, which is why those are allowed inline.
    """
    digests = (hashlib.sha256(script.encode()).digest() for script in (_file("page.js"), get_plotlyjs()))
    scripts = " ".join(f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
