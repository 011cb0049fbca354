"""``pipeline_bench.keras.StarvationMonitor``: after each epoch of ``model.fit``, how long its steps waited for input.

How the steps are timed is told in `monitoring.fit`; here is the callback, and what it says.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Whoever imports this module is in a job of Keras, in whose process it is already.
import keras

from pipeline_bench.model.session import Session
from pipeline_bench.monitoring.fit import Timing, Watch
from pipeline_bench.monitoring.monitor import told
from pipeline_bench.text import line_of

if TYPE_CHECKING:
    from pipeline_bench.monitoring.figures import JobSummary

_UNTOLD = "the training ended without saying so: something outside of its steps raised"


class StarvationMonitor(keras.callbacks.Callback):  # type: ignore[misc]
    """Tells after each epoch how long the steps waited for input, and keeps a session at the end of the training.

    Attributes:
        session: the session of the last training that has ended.
        folder: where it was saved; None where it was not.
    """

    def __init__(
        self,
        writer: Any = None,
        out: Path | str | None = "reports",
        quiet: bool = False,
        name: str = "training job",
    ) -> None:
        """Make one.

        Args:
            writer: a `tf.summary` writer, or the folder of TensorBoard's logs: takes the figures of each epoch.
            out: the folder in which the session's own folder is made; None keeps no file.
            quiet: no line after each epoch.
            name: of the job, for the report.
        """
        super().__init__()
        self.session: Session | None = None
        self.folder: Path | None = None
        self._writer = writer
        self._out = None if out is None else Path(out)
        self._quiet = quiet
        self._name = name
        self._watch: Watch | None = None
        self._timing: Timing | None = None
        self._timed_model: weakref.ref[Any] | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        if self._watch is not None:  # an earlier training ended without saying so
            self._end(_UNTOLD)
        if isinstance(self._writer, str | Path):
            import tensorflow as tf

            self._writer = tf.summary.create_file_writer(str(self._writer))
        watch = self._watch = Watch(self.model, self.params or {}, self._name, self._out, self._timing_of(self.model))
        # Where another callback raises nobody is told: the session is kept when this one goes, or the program ends.
        weakref.finalize(self, watch.finish, _UNTOLD)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._watch is not None:
            self._watch.begin_epoch()

    def on_test_begin(self, logs: Any = None) -> None:
        if self._watch is not None:  # validation is no part of a step
            self._watch.flush()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._watch is None:
            return
        figures = self._watch.end_epoch()
        if not self._quiet:
            told(figures, f"epoch {epoch + 1}")
        if self._writer is not None:
            try:
                _write(self._writer, figures, epoch)
            except Exception as error:  # a full disk, a closed writer: that is no reason to end a training
                self._writer = None
                self._watch.record.notes.append(f"the summary writer failed: {line_of(error)}")

    def on_train_end(self, logs: Any = None) -> None:
        if self._watch is not None:
            self._end(None)

    @property
    def summary(self) -> JobSummary | None:
        """The figures of the training so far; None before it begins and after it has ended."""
        return self._watch.summary() if self._watch is not None else None

    def _timing_of(self, model: Any) -> Timing | None:
        if keras.backend.backend() != "tensorflow":
            return None
        if self._timing is None or self._timed_model is None or self._timed_model() is not model:
            self._timing, self._timed_model = Timing(), weakref.ref(model)
        return self._timing

    def _end(self, reason: str | None) -> None:
        assert self._watch is not None
        watch, self._watch = self._watch, None
        self.session, self.folder = watch.finish(reason)
        if not self._quiet and self._out is not None:
            told(watch.figures, self._name, self.folder, watch.record.problem)


def _write(writer: Any, figures: JobSummary, epoch: int) -> None:
    """The figures that were measured, as scalars of the epoch, in the units that their names say."""
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
