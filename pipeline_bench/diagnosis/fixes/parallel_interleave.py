"""Read several files at the same time."""

from __future__ import annotations

from pipeline_bench.diagnosis import chain, segments
from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import AUTOTUNE, Interleave, SetArgument
from pipeline_bench.model.pipeline import Inspection, Stage

_FILES_A_CORE = 4
"""Reads wait more than they compute, so more of them are opened than there are cores."""
_MOST_FILES = 16
"""Each open file has its buffers; AUTOTUNE decides how many of them are read at the same time."""
_OTHER_ORDER = "the files' samples are mixed in another order"


class ParallelInterleave(FixKind):
    """Several files, or other inner datasets, at the same time."""

    name = "parallel_interleave"
    promise = 0.95

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        files = min(_MOST_FILES, max(4, _FILES_A_CORE * context.cores))
        found: list[Fix] = []
        for stage in inspection.stages:
            if stage.method == "interleave":
                found += self._of_interleave(inspection, stage, files)
            elif stage.method == "flat_map" and chain.reads_files(stage):
                found.append(self._of_flat_map(inspection, stage, files))
            elif stage.method in ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"):
                found += self._of_reader(inspection, stage, files)
        return found

    def _of_interleave(self, inspection: Inspection, stage: Stage, files: int) -> list[Fix]:
        given, cycle = stage.arguments.get("num_parallel_calls"), stage.arguments.get("cycle_length")
        risky = _needs_threads(stage)
        parallel = SetArgument(stage=stage.id, argument="num_parallel_calls", value=AUTOTUNE)
        wider = SetArgument(stage=stage.id, argument="cycle_length", value=files)
        found = []
        if given is None or given == 1:
            title = f"Have {short(stage)} read its inputs in parallel"
            found.append(
                self.fix(
                    inspection,
                    f"parallel {stage.label}",
                    title,
                    parallel,
                    stages=[stage.id],
                    reorders=chain.any_order(inspection, stage),
                    threads=risky,
                )
            )
        if cycle is None or (isinstance(cycle, int) and 0 < cycle < files):
            title = f"Have {short(stage)} read {files} inputs in parallel"
            edits = (wider, parallel)
            found.append(
                self.fix(
                    inspection,
                    f"{files} inputs in {stage.label}",
                    title,
                    *edits,
                    stages=[stage.id],
                    reorders=True,
                    threads=risky,
                    because=_OTHER_ORDER,
                )
            )
        return found

    def _of_flat_map(self, inspection: Inspection, stage: Stage, files: int) -> Fix:
        return self.fix(
            inspection,
            f"interleave for {stage.label}",
            f"Interleave {files} of the files that {short(stage)} reads one after another",
            Interleave(stage=stage.id, cycle_length=files),
            stages=[stage.id],
            reorders=True,
            threads=_needs_threads(stage),
            because=_OTHER_ORDER,
        )

    def _of_reader(self, inspection: Inspection, stage: Stage, files: int) -> list[Fix]:
        names = str(stage.arguments.get("filenames", ""))
        several = not names or (names.endswith(" files") and names != "1 files")
        present = stage.arguments.get("num_parallel_reads")
        if not several or stage.method == "FixedLengthRecordDataset" or (present is not None and present != 1):
            return []
        edit = SetArgument(stage=stage.id, argument="num_parallel_reads", value=files)
        title = f"Have {short(stage)} read {files} files at the same time"
        variant = f"parallel reads in {stage.label}"
        return [self.fix(inspection, variant, title, edit, stages=[stage.id], reorders=True, because=_OTHER_ORDER)]


def _needs_threads(stage: Stage) -> bool:
    """Whether a function of the user's in it must be safe to run on several threads at once."""
    return any(segments.may_differ(each) for each in (stage, *stage.inner))
