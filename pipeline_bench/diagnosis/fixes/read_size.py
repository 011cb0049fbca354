"""Read files in larger pieces."""

from __future__ import annotations

from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import SetArgument
from pipeline_bench.model.pipeline import Inspection

_LARGE_BYTES = 8 * 2**20
"""tf.data reads 256 KiB at a time by default."""
_READERS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")


class ReadSize(FixKind):
    """A large read buffer, in place of the default one or a smaller."""

    name = "read_size"
    promise = 0.5

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        found = []
        for stage in inspection.stages:
            present = stage.arguments.get("buffer_size")
            large = isinstance(present, int) and present >= _LARGE_BYTES
            if stage.method in _READERS and not large:
                found.append(
                    self.fix(
                        inspection,
                        f"large reads in {stage.label}",
                        f"Have {short(stage)} read 8 MiB at a time",
                        SetArgument(stage=stage.id, argument="buffer_size", value=_LARGE_BYTES),
                        stages=[stage.id],
                    )
                )
        return found
