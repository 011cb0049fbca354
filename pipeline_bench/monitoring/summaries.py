"""Writes the figures of a training's epochs where TensorBoard shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline_bench.monitoring.steps import JobSummary


def opened(writer: Any) -> Any:
    """Return the writer, which may be given as the folder of TensorBoard's logs."""
    import tensorflow as tf

    return tf.summary.create_file_writer(str(writer)) if isinstance(writer, str | Path) else writer


def write(writer: Any, figures: JobSummary, epoch: int) -> None:
    """Write the figures that were measured as scalars of the epoch, in the units that their names say."""
    import tensorflow as tf

    scalars = {
        "step_ms": figures.step_ms,
        "input_wait_ms": figures.input_wait_ms,
        "input_wait_share": figures.input_wait_share,
        "utilization_at_most": figures.utilization_at_most,
        "device_utilization_percent": figures.device_utilization_percent,
    }
    # As `tf.summary.scalar` writes them, which refuses to where TensorBoard is not installed on the training's machine.
    metadata = tf.compat.v1.SummaryMetadata(data_class="DATA_CLASS_SCALAR")
    metadata.plugin_data.plugin_name = "scalars"
    with writer.as_default():
        for name, value in scalars.items():
            if value is not None:
                tf.summary.write(
                    f"pipeline_bench/{name}", tf.constant(value, tf.float32), step=epoch, metadata=metadata
                )
    writer.flush()
