"""Sessions to make pages of, and a reader that says what is markup in a page and what is text."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import numpy as np

from pipeline_bench.model import Series
from pipeline_bench.model.events import Device
from pipeline_bench.model.result import Disturbance, Precision, Speedup, WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import PhaseMark, QueueDepth, Track, TrialRecord, TrialSteps
from pipeline_bench.report import html
from pipeline_bench.report.html import elements
from tests.unit import sessions

LIGHT_BACKGROUND, DARK_BACKGROUND = "#ffffff", "#14171b"
"""Of the style sheet."""
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """The elements, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        """Element, attribute, value."""
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        """By id; the page's own program has none."""
        self._script: str | None = None
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self._script = dict(attrs).get("id") or ""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"
        self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.texts.append(data)
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    @property
    def text(self) -> str:
        """All that a reader reads, runs of space as one."""
        return " ".join("".join(self.texts).split())

    @property
    def plots(self) -> list[dict[str, Any]]:
        """What plotly is handed."""
        plots: list[dict[str, Any]] = json.loads(self.scripts["plots"])
        return plots

    def values(self, attribute: str) -> list[str]:
        """Every value of an attribute."""
        return [value for _, name, value in self.attributes if name == attribute]


HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    '<a href="https://example.org">here</a><b>bold</b>&lt;i&gt;',
    "{{ 7 * 7 }}%{x}${y}",
    '<a href="//x.y">z</a>',
    "right\u202eto left\nand\ttwo lines\x00\x1b[2J",
    "x" * 10_000,
    "\n",
    "`<b>bold</b>` and an end `",
)


def interrupted() -> Session:
    """The second variant's first trial was interrupted; the others never began."""
    session = sessions.normal()
    stopped = session.trials[1].model_copy(update={"status": "interrupted", "reason": "interrupted by the user"})
    first, *rest = session.results
    nothing = [
        result.model_copy(update={"status": "interrupted" if i == 0 else "pending", "reason": "interrupted"})
        for i, result in enumerate(sessions.pending().results[1:])
    ]
    assert len(rest) == len(nothing)
    return session.model_copy(update={"trials": (session.trials[0], stopped), "results": (first, *nothing)})


def hostile() -> Session:
    """Every text that a scenario, a driver or a process may write holds something that must stay text."""
    session = sessions.normal()
    names = [f"{i}{text}" if text.strip() else text for i, text in enumerate(HOSTILE)]
    results = tuple(
        session.results[0].model_copy(
            update={
                "variant": name,
                "reason": name,
                "status": "partial",
                "verdict": session.results[0].verdict.model_copy(
                    update={"text": f"input-bound: {name}", "reason": name}
                ),
                "speedup": Speedup(over=names[0], reason=name),
                "device_utilization": session.results[0].device_utilization.model_copy(update={"source": name}),
                "work": WorkCheck(status="unequal", text=name),
            }
        )
        for name in names
    )
    trials = tuple(
        sessions.trial(i, name, 0, status="failed", reason=name, stderr_tail=name, stderr_file=name)
        for i, name in enumerate(names)
    )
    scenario = sessions.scenario(*(sessions.variant(name) for name in names), name=HOSTILE[0])
    return session.model_copy(
        update={
            "scenario": scenario.model_copy(update={"question": HOSTILE[1], "notes": HOSTILE}),
            "environment": sessions.CPU.model_copy(update={"accelerator_name": HOSTILE[0], "platform": HOSTILE[4]}),
            "command": HOSTILE[2],
            "notes": HOSTILE,
            "trials": trials,
            "results": results,
            "disturbances": tuple(Disturbance(kind="burst", variant=n, repeat=0, text=n) for n in names),
            "precision": Precision(goal=0.02, budget_s=600, text=HOSTILE[0]),
        }
    )


def plot(session: Session, name: str) -> dict[str, Any]:
    """One of the plots that a session's page draws, as plotly is handed it."""
    drawn = html._plots(session)[name.replace("-", "_")]
    assert drawn is not None
    handed: dict[str, Any] = json.loads(elements.json_block(drawn.for_plotly()))
    return handed


def recorded(index: int, variant: str, count: int, gpu: bool = False) -> TrialRecord:
    """A trial of that many steps of about 3 ms, with phases, device samples and a queue's depths."""
    begun = 10**12 + index * (count * 4_000_000 + 10**9)
    took = np.random.default_rng(index).integers(2_000_000, 4_000_000, count)
    end_ns = begun + 500_000_000 + np.cumsum(took)
    ended = int(end_ns[-1]) + 100_000_000
    at_ns = Series.pack(np.arange(begun, ended, 200_000_000))
    values = Series.pack(np.arange(at_ns.count) * 0.1)
    metric = "device_utilization_percent" if gpu else "cpu_seconds"
    return TrialRecord(
        index=index,
        variant=variant,
        repeat=index // 4,
        status="ok",
        started_ns=begun,
        ended_ns=ended,
        warmup_steps=20,
        device=Device(kind="gpu" if gpu else "cpu", name="0"),
        phases=tuple(
            PhaseMark(name=name, at_ns=begun + offset * 100_000_000)
            for offset, name in enumerate(("import", "build", "evaluate", "train"))
        ),
        steps=TrialSteps(
            start_ns=Series.pack(end_ns - took),
            end_ns=Series.pack(end_ns),
            wait_ns=Series.pack(took // 4),
            loss=Series.pack(np.ones(count)),
        ),
        samples=(Track(metric=metric, source="test", at_ns=at_ns, values=values),),
        queue_depths=(QueueDepth(name="input", capacity=5, at_ns=Series.pack(end_ns), size=Series.pack(took % 6)),),
    )


def measured(trials: int, steps_each: int, **options: Any) -> Session:
    """The normal session with that many trials of that many steps."""
    session = sessions.normal()
    names = [variant.name for variant in session.scenario.variants]
    records = tuple(recorded(i, names[i % 4], steps_each, **options) for i in range(trials))
    return session.model_copy(update={"trials": records})


EVERY = {
    "normal": sessions.normal,
    "troubled": sessions.troubled,
    "pending": sessions.pending,
    "interrupted": interrupted,
    "hostile": hostile,
}
