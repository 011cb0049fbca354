"""The HTML report in a real browser: it opens from a file, asks for nothing, draws every plot, and fits a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_bench.model.session import load
from pipeline_bench.report import html
from tests.browser.devtools import BINARIES, Browser, Json, binary
from tests.unit import diagnoses
from tests.unit.report import pages as sessions
from tests.unit.report.pages import DARK_BACKGROUND, LIGHT_BACKGROUND, measured

EVERY = {
    **sessions.EVERY,
    **{f"diagnosis {name}": diagnoses.EVERY[name] for name in ("drained", "branched", "thirty", "hostile")},
}
EXAMPLE = Path(__file__).parents[2] / "reports" / "example"
DRAWN = "document.documentElement.classList.contains('drawn')"
TABLES = "!document.documentElement.classList.contains('plots')"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(binary() is None, reason=f"no browser on PATH: none of {', '.join(BINARIES)}"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = binary()
    assert executable is not None
    with Browser(executable, tmp_path_factory.mktemp("browser") / "profile") as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each session as a file."""
    folder = tmp_path_factory.mktemp("pages")
    made = {name: make() for name, make in EVERY.items()} | {"example": load(EXAMPLE)}
    for name, session in made.items():
        (folder / f"{name}.html").write_text(html.render(session), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


def complaints(events: list[Json]) -> list[Json]:
    """What the browser's console would show, a violated policy included, and dialogs that a script opened."""
    found = []
    for event in events:
        kind, told = event["method"], event["params"]
        if kind in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening"):
            found.append(told)
        if kind == "Log.entryAdded" and told["entry"]["level"] in ("warning", "error"):
            found.append(told)
        if kind == "Runtime.consoleAPICalled" and told["type"] in ("warning", "error", "assert"):
            found.append(told)
    return found


def requests(events: list[Json]) -> list[str]:
    """Every address that was asked for, the page's own file and what lies in the page itself left out."""
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith("data:") and not url.endswith(".html")]


@pytest.mark.parametrize("name", [*EVERY, "example"])
def test_it_opens_quietly_draws_every_plot_and_never_scrolls_sideways(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.events.clear()
    browser.view(1280)
    browser.open(pages[name], TABLES if name == "pending" else DRAWN)
    drawn = browser.evaluate(
        "[...document.querySelectorAll('.plot')].map((plot) => [plot.id,"
        " plot.querySelectorAll('svg.main-svg .trace').length])"
    )
    assert bool(drawn) == (name != "pending")
    for plot, traces in drawn:
        assert traces > 0, f"{plot} shows nothing"
    assert complaints(browser.events) == []
    assert requests(browser.events) == []
    assert_nothing_scrolls_sideways(browser, 1280)


@pytest.mark.parametrize(
    "name",
    [
        "example",
        *(pytest.param(name, marks=() if name == "hostile" else pytest.mark.slow) for name in EVERY),
    ],
)
def test_it_never_scrolls_sideways_on_a_phone(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.view(390, mobile=True)
    browser.open(pages[name], TABLES if name == "pending" else DRAWN)
    assert_nothing_scrolls_sideways(browser, 390)


def assert_nothing_scrolls_sideways(browser: Browser, width: int) -> None:
    """With everything open, neither the page nor a plot is wider than the screen."""
    browser.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    wide = browser.evaluate(
        "[...document.querySelectorAll('.plot .main-svg')].filter((svg) => svg.getBoundingClientRect().right >"
        f" {width}).length"
    )
    assert wide == 0


def test_a_short_name_is_whole_beside_the_longest_verdict_on_a_phone(browser: Browser, pages: dict[str, Path]) -> None:
    browser.view(390, mobile=True)
    browser.open(pages["normal"], DRAWN)
    lines = browser.evaluate(
        "(() => { const row = document.querySelector('.verdicts li');"
        " row.querySelector('.badge').textContent = 'probably severely host-bound';"
        " return row.querySelector('b bdi').getClientRects().length; })()"
    )
    assert lines == 1


def test_no_name_lies_on_its_figure_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    session = measured(4, 300)
    longest = "loader_with_a_name_of_two_lines"
    named = [result.model_copy(update={"variant": f"{i} {longest}"}) for i, result in enumerate(session.results)]
    trials = [trial.model_copy(update={"variant": f"{i} {longest}"}) for i, trial in enumerate(session.trials)]
    page = tmp_path / "long.html"
    page.write_text(
        html.render(session.model_copy(update={"results": tuple(named), "trials": tuple(trials)})), encoding="utf-8"
    )
    browser.view(390, mobile=True)
    browser.open(page, DRAWN)
    overlapping = browser.evaluate(  # by more than a letter
        "[...document.querySelectorAll('.plot')].flatMap((plot) => {"
        " const boxes = [...plot.querySelectorAll('.annotation-text')].map((text) => text.getBoundingClientRect());"
        " return boxes.filter((a, i) => boxes.some((b, j) => i < j && a.left + 8 < b.right && b.left + 8 < a.right"
        " && a.top < b.bottom && b.top < a.bottom)).map(() => plot.id); })"
    )
    assert overlapping == []


def test_names_are_text_in_the_plots(browser: Browser, pages: dict[str, Path]) -> None:
    browser.view(1280)
    browser.open(pages["hostile"], DRAWN)
    shown = browser.evaluate("[...document.querySelectorAll('.plot text')].map((text) => text.textContent)")
    assert "0</script><script>alert…" in shown
    assert '4<a href="//x.y">z</a>' in shown  # short enough to stand in a label whole
    assert browser.evaluate("document.querySelectorAll('.main-svg a, img, .plot script').length") == 0


def test_one_drawing_suits_both_colour_schemes(browser: Browser, pages: dict[str, Path]) -> None:
    fill = "getComputedStyle(document.querySelector('#split .annotation text')).fill"
    browser.view(1280)
    browser.open(pages["normal"], DRAWN)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = browser.evaluate(fill)
    assert browser.evaluate(paper) == rgb(LIGHT_BACKGROUND)
    browser.view(1280, dark=True)
    assert browser.evaluate(paper) == rgb(DARK_BACKGROUND)
    assert browser.evaluate(fill) != light
    browser.view(1280, dark=True, media="print")
    assert browser.evaluate(fill) == light
    assert browser.evaluate(paper) == rgb(LIGHT_BACKGROUND)


def rgb(colour: str) -> str:
    """A colour as the browser writes it."""
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_a_drawing_of_the_screens_width_fits_the_paper(browser: Browser, pages: dict[str, Path]) -> None:
    browser.view(1280)
    browser.open(pages["normal"], DRAWN)
    browser.view(1280, media="print")
    browser.evaluate("document.querySelector('main').style.width = '680px'")
    right = browser.evaluate(
        "Math.max(...[...document.querySelectorAll('#timeline .main-svg')].map((svg) =>"
        " svg.getBoundingClientRect().width))"
    )
    assert right <= 680
    browser.view(1280)


@pytest.mark.parametrize("name", ["normal", "pending"])
def test_everything_is_open_on_paper_also_without_plots(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.view(1280)
    browser.open(pages[name], TABLES if name == "pending" else DRAWN)
    closed = "document.querySelectorAll('details:not([open])').length"
    before = browser.evaluate(closed)
    assert before > 0
    assert browser.evaluate(f"dispatchEvent(new Event('beforeprint')) && {closed}") == 0
    assert browser.evaluate(f"dispatchEvent(new Event('afterprint')) && {closed}") == before


def test_zooming_into_the_time_line_shows_the_part(browser: Browser, pages: dict[str, Path]) -> None:
    browser.view(1280)
    browser.open(pages["example"], DRAWN)
    axis = "document.getElementById('timeline')._fullLayout.xaxis.range"
    before = browser.evaluate(axis)
    place = browser.evaluate(
        "(() => { const plot = document.getElementById('timeline'); plot.scrollIntoView();"
        " const box = plot.getBoundingClientRect(); return [box.left, box.top, box.width]; })()"
    )
    left, top, width = place
    for kind, share in (("mousePressed", 0.4), ("mouseMoved", 0.5), ("mouseMoved", 0.6), ("mouseReleased", 0.6)):
        browser.call(
            "Input.dispatchMouseEvent", type=kind, x=left + share * width, y=top + 140, button="left", clickCount=1
        )
    low, high = browser.evaluate(axis)
    assert before[0] < low < high < before[1]


def test_a_button_shows_the_steps_above_the_axis(browser: Browser, pages: dict[str, Path]) -> None:
    browser.view(1280)
    browser.open(pages["example"], DRAWN)
    axis = "document.getElementById('timeline')._fullLayout.yaxis3.range[1]"
    drawn = (
        "Math.max(...document.getElementById('timeline').data.filter((trace) => trace.yaxis === 'y3')"
        ".flatMap((trace) => trace.y))"
    )
    before, highest = browser.evaluate(axis), browser.evaluate(drawn)
    assert before < highest
    browser.evaluate("document.querySelector('#timeline [data-attr=zoom][data-val=auto]').click()")
    assert browser.evaluate(axis) >= highest


def test_without_a_decompressor_every_table_is_open(browser: Browser, pages: dict[str, Path]) -> None:
    script = browser.call("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.DecompressionStream")[
        "identifier"
    ]
    try:
        browser.events.clear()
        browser.view(1280)
        browser.open(pages["normal"], TABLES)
        assert browser.evaluate("[...document.querySelectorAll('details.figures')].every((table) => table.open)")
        assert browser.evaluate("getComputedStyle(document.querySelector('.plot')).display") == "none"
        assert browser.evaluate("document.querySelector('.unplotted').checkVisibility()")
        assert complaints(browser.events) == []
    finally:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_a_finger_on_a_plot_scrolls_the_page(browser: Browser, pages: dict[str, Path]) -> None:
    browser.view(390, 800, mobile=True)
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=1)
    try:
        browser.open(pages["normal"], DRAWN)
        top = browser.evaluate(
            "(() => { const plot = document.getElementById('timeline'); plot.scrollIntoView();"
            " return plot.getBoundingClientRect().top; })()"
        )
        before = browser.evaluate("scrollY")
        browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": 200, "y": top + 150}])
        for moved in range(15, 120, 15):
            finger = {"x": 200, "y": top + 150 - moved}
            browser.call("Input.dispatchTouchEvent", type="touchMove", touchPoints=[finger])
        browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        assert browser.evaluate(f"scrollY > {before}")
    finally:
        browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
