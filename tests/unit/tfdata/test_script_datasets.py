"""What is said of how a script was run."""

from __future__ import annotations

from pipeline_bench.model.pipeline import ScriptTraining
from pipeline_bench.tfdata import script_datasets


def test_the_command_that_measures_a_loop_is_the_scripts_and_not_its_neighbours() -> None:
    sentences = script_datasets.notes(ScriptTraining(line="engine.py:3"), 1e9, "-m pkg.main --n 2000")
    assert "`pipeline-bench run -- python -m pkg.main --n 2000`" in sentences[1]
