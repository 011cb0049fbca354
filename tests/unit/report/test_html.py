"""The HTML report: every figure is in it as text, it asks for nothing, and nothing of a session becomes markup."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.session import Session
from pipeline_bench.report import html
from tests.unit import diagnoses, sessions
from tests.unit.report.pages import EVERY, HOSTILE, Page, hostile

FIGURES = {"step-time", "utilization", "split", "distribution", "timeline"}


@pytest.fixture(scope="module")
def normal() -> Page:
    return Page(html.render(sessions.normal()))


def test_what_stands_between_backticks_is_shown_as_code() -> None:
    session = sessions.normal()
    page = html.render(session.model_copy(update={"notes": ("Run `pipeline-bench <doctor>` once; not `so.",)}))
    assert "Run <code>pipeline-bench &lt;doctor&gt;</code> once; not `so." in page


def test_every_plot_has_alternative_text_and_a_table(normal: Page) -> None:
    assert {plot["id"] for plot in normal.plots} == FIGURES
    assert normal.values("role").count("img") == len(FIGURES)
    labels = [value for value in normal.values("aria-label") if "feed_dict" in value or "trials" in value]
    assert len(labels) == len(FIGURES)
    assert normal.values("class").count("figures") == len(FIGURES)


def test_many_disturbances_are_few_lines_and_a_list_that_is_folded() -> None:
    session = sessions.normal()
    found = tuple(
        Disturbance(
            kind="cpu-contention", variant=name, repeat=repeat, cost_share=0.01 * repeat, text=f"seen {repeat}."
        )
        for repeat in range(30)
        for name in ("feed_dict", "tf_data")
    )
    text = html.render(session.model_copy(update={"disturbances": found}))
    open_part, folded = text[text.index("What a reader should know") :].split("<details>")[:2]
    assert open_part.count("<tr>") == 1 + 2
    assert "in repeat 30 seen 29." in open_part
    assert folded.split("</details>")[0].count("<tr>") == 1 + len(found)
    assert len(re.findall('<td class="whole"[^>]*><span>cpu-contention</span>', text)) == 2 + len(found)


def test_one_page_has_one_median_a_variant_and_calls_a_mean_a_mean() -> None:
    session = sessions.normal()
    result = session.results[0]
    mean = result.step_ms.model_copy(update={"mean": 13.9})
    page = Page(html.render(sessions.with_result(session, "feed_dict", step_ms=mean)))
    plots = {plot["id"]: plot for plot in page.plots}
    labels = [note["text"] for note in plots["distribution"]["layout"]["annotations"] if note.get("name") == "value"]
    assert labels[0] == "median 12.3 ms"  # of the trials' medians, though all its pooled steps took 1 to 3 ms
    marks = plots["distribution"]["data"][len(session.results)]
    assert marks["x"][marks["marker"]["symbol"].index("diamond")] == result.step_ms.median
    labels = [note["text"] for note in plots["split"]["layout"]["annotations"] if note.get("name") == "value"]
    assert labels[0] == "mean 13.9 ms a step"
    assert plots["step-time"]["layout"]["xaxis"]["title"]["text"] == "mean step time, ms"
    assert plots["step-time"]["data"][0]["x"][0] == 13.9
    assert "A verdict speaks of the mean step" in page.text


@pytest.mark.parametrize("build", [*EVERY.values(), *diagnoses.EVERY.values()])
def test_every_element_is_closed_and_it_asks_for_nothing(build: Callable[[], Session]) -> None:
    page = Page(html.render(build()))
    assert page.open == []
    for tag, name, value in page.attributes:
        if name in ("src", "href", "srcset", "action", "poster", "data", "formaction"):
            assert (tag, value) == ("link", "data:,")
        assert not name.startswith("on"), f"<{tag} {name}> runs a script"
    assert not page.tags.keys() & {"iframe", "object", "embed", "img", "form", "base", "a"}
    style = html._file("page.css")
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_admits_this_pages_scripts_and_no_other(normal: Page) -> None:
    policy = next(
        value for tag, name, value in normal.attributes if (tag, name) == ("meta", "content") and "src" in value
    )
    library = gzip.decompress(base64.b64decode(normal.scripts["plotly"]))
    for script in (normal.scripts[""].encode(), library):
        assert base64.b64encode(hashlib.sha256(script).digest()).decode() in policy
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert "unsafe" not in directives["script-src"]
    assert "connect-src" not in directives


def test_hostile_texts_stay_text() -> None:
    page = Page(html.render(hostile()))
    assert page.tags["script"] == 3
    assert not page.tags.keys() & {"img", "a", "i"}
    for text in HOSTILE[:4]:
        assert text in page.text
    everything = page.text + "".join(page.values("aria-label")) + "".join(page.values("data-head"))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", everything)


def test_hostile_names_are_no_markup_to_plotly() -> None:
    for plot in Page(html.render(hostile())).plots:
        for text in strings(plot):
            assert set(re.findall(r"<(.*?)>", text)) <= {"b", "/b", "br", "extra", "/extra"}, text


def strings(value: Any) -> list[str]:
    """Every string of a plot that plotly may show."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []
