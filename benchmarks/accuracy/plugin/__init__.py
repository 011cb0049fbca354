"""Makes what `pipeline_bench_planted` plants known to the program, as an installed package would."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def install(site: Path) -> None:
    """Write the record that pip would, and let this process and those that it starts find it."""
    record = site / "pipeline_bench_planted-0.1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: pipeline-bench-planted\nVersion: 0.1.0\n")
    (record / "entry_points.txt").write_text(
        "[pipeline_bench.sources]\nplanted = pipeline_bench_planted:Planted\n"
        "[pipeline_bench.backends]\nplanted_copy = pipeline_bench_planted:PlantedCopy\n"
        "[pipeline_bench.loops]\nplanted_host = pipeline_bench_planted:PlantedHost\n"
    )
    folders = [str(site), str(FOLDER)]
    sys.path[:0] = folders
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
