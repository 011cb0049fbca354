"""Sessions to make pages of, and a reader that says what is markup in a page and what is text."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from typing import Any

from pipeline_bench.session import Disturbance, Precision, Session, Speedup, WorkCheck
from tests.unit import sessions

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
                "verdict": session.results[0].verdict.model_copy(update={"text": f"input-bound: {name}"}),
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


EVERY = {
    "normal": sessions.normal,
    "troubled": sessions.troubled,
    "pending": sessions.pending,
    "interrupted": interrupted,
    "hostile": hostile,
}
