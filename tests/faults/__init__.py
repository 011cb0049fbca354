"""Makes the backends of `pipeline_bench_faults` known to the program, as an installed package would."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def install(site: Path) -> list[Path]:
    """Write the record that pip would; return the folders to put on ``PYTHONPATH``."""
    record = site / "pipeline_bench_faults-0.1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: pipeline-bench-faults\nVersion: 0.1.0\n")
    backends = ("Faulty", "Unequal", "Serving")
    points = "".join(f"{name.lower()} = pipeline_bench_faults:{name}\n" for name in backends)
    (record / "entry_points.txt").write_text(f"[pipeline_bench.backends]\n{points}")
    return [site, FOLDER]
