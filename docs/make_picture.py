"""Draws docs/compare.svg from the example session: ``python docs/make_picture.py``."""

from pathlib import Path

from pipeline_bench.report.terminal import export_svg
from pipeline_bench.session import load

ROOT = Path(__file__).parent.parent
WIDTH_COLUMNS = 112

if __name__ == "__main__":
    session = load(ROOT / "reports" / "example")
    (ROOT / "docs" / "compare.svg").write_text(export_svg(session, None, WIDTH_COLUMNS), encoding="utf-8")
