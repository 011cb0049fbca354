"""Renders the example session in every form and the other kept ones as a page of text, and draws pictures for the docs.

``python docs/render_example.py`` measures nothing: the sessions are those that are kept beside the renderings.

The renderings are what tests/unit/test_example.py holds the reports against: after a change of a report that is meant,
run this and look at what git shows.
"""

import gzip
from pathlib import Path

from pipeline_bench.analysis import interference
from pipeline_bench.analysis.results import summarise
from pipeline_bench.model.session import Session, load, save
from pipeline_bench.report import csv, html, markdown, screen, trace

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "reports" / "example"
KEPT = sorted(path.parent for path in (ROOT / "reports").glob("*/session.json") if path.parent != EXAMPLE)
PICTURE = ROOT / "docs" / "compare.svg"
WALKTHROUGH = ROOT / "docs" / "walkthrough"
WIDTH_COLUMNS = 112


def renderings(session: Session) -> dict[str, str]:
    """Every form of a session, by the name of its file; the trace is the only one that is kept compressed."""
    return {
        "report.html": html.render(session),
        "report.md": markdown.render(session),
        "report.csv": csv.render(session),
        "trace.json.gz": trace.render(session),
    }


def read(path: Path) -> str:
    """A rendering as it was kept."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")


def main() -> None:
    """Write them all."""
    session = load(EXAMPLE)
    cores = session.environment.cores
    computed = {
        "results": summarise(session.scenario, session.trials, cores),
        "disturbances": interference.find(session.trials, cores),
    }
    if any(getattr(session, name) != found for name, found in computed.items()):  # a figure is new or computed anew
        session = session.model_copy(update=computed)
        save(session, EXAMPLE)
    for name, text in renderings(session).items():
        data = text.encode("utf-8")
        (EXAMPLE / name).write_bytes(gzip.compress(data, 9, mtime=0) if name.endswith(".gz") else data)
    PICTURE.write_text(screen.export_svg(session, WIDTH_COLUMNS), encoding="utf-8")
    for folder in KEPT:
        (folder / "report.md").write_text(markdown.render(load(folder)), encoding="utf-8")
    diagnosed = load(WALKTHROUGH)
    (WALKTHROUGH / "report.md").write_text(markdown.render(diagnosed), encoding="utf-8")
    for name, width in {"diagnose.svg": 80, "diagnose-160.svg": 160}.items():
        (WALKTHROUGH / name).write_text(screen.export_svg(diagnosed, width), encoding="utf-8")


if __name__ == "__main__":
    main()
