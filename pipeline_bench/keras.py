"""``pipeline_bench.keras.StarvationMonitor``: measures how long the steps of ``model.fit`` wait for input.

Keras looks its training function up for each step, so a function in its place can hand on an iterator that is timed
(`monitoring.probe`), and see when each step begins. Nothing else of the model is touched, nothing is added to the calls
that Keras makes a step, and the model's own function is back at the end.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_bench.model.session import Session
from pipeline_bench.monitoring import harmless, tell_unwatched
from pipeline_bench.monitoring.epochs import age_s
from pipeline_bench.monitoring.fit import Course
from pipeline_bench.monitoring.fit_watch import FitWatch, timing_of
from pipeline_bench.monitoring.record import JobRecord, SavedJob, write_line
from pipeline_bench.text import line_of
from pipeline_bench.user_code import legacy_keras

# Whoever imports this module is in a job of Keras, in whose process it is already: Keras 3, Keras 2 or both.
if "keras" not in sys.modules and legacy_keras.NAME in sys.modules:
    import tf_keras as keras
else:
    import keras

if TYPE_CHECKING:
    from pipeline_bench.monitoring.summary import JobSummary

_NOT_ENDED = "the training ended without saying so: something outside of its steps raised"

_ENDS_OF_STEPS = ("on_batch_end", "on_train_batch_end")
_METHODS_OF_STEPS = ("on_batch_begin", "on_train_batch_begin", *_ENDS_OF_STEPS)


def holds_steps(callback: Any) -> bool:
    """Return whether a callback is called at the end of each step in the training's own thread, on JAX too.

    There Keras calls them in a thread beside it unless some callback has a method for the end of a step, and does not
    say that it is `async_safe`.
    """
    return not getattr(callback, "async_safe", False) and _has_own(callback, _ENDS_OF_STEPS)


def _has_own(callback: Any, names: Sequence[str]) -> bool:
    """Return whether a callback, or its class, has one of these methods of its own: else Keras does not call it."""
    packages = [sys.modules[name] for name in ("keras", legacy_keras.NAME) if name in sys.modules]
    plain = [package.callbacks.Callback for package in packages]
    return any(
        name in vars(callback) or getattr(type(callback), name, None) not in [getattr(each, name) for each in plain]
        for name in names
    )


class AnyKerasCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that Keras 3 and Keras 2 both take, whichever of them its class is of."""

    def __init__(self) -> None:
        super().__init__()
        self._supports_tf_logs = True  # else Keras 2 reads the losses of each step for it

    def _implements_train_batch_hooks(self) -> bool:
        return _has_own(self, _METHODS_OF_STEPS)

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False


def _nothing() -> None:
    """Do nothing; unlike a lambda, this can be pickled."""


def _opened(writer: Any) -> Any:
    """Return the `tf.summary` writer, which may be given as the folder of TensorBoard's logs."""
    import tensorflow as tf

    return tf.summary.create_file_writer(str(writer)) if isinstance(writer, str | Path) else writer


def _write_scalars(writer: Any, figures: JobSummary, epoch: int) -> None:
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


class StarvationMonitor(AnyKerasCallback):
    """Prints the input wait of the steps after each epoch, and saves a session of the training.

    Its own errors are written to stderr, and the training goes on without it. A copy of it watches trainings of its
    own, and has no writer unless that is a folder.

    Attributes:
        session: the session of the last training that ended; None before.
        folder: the session's folder; None if it was not saved.
        figures: the figures of that training; None before.
        on_kept: is called, from the next training on, when a session was saved, in whichever thread did it.
        diagnosable: whether `pipeline-bench diagnose` knows what the next training takes its batches from.
        on_problem: is given what went wrong in the watching, which then ends; None: it is written to stderr.
    """

    def __init__(
        self,
        writer: Any = None,
        out: Path | str | None = "reports",
        quiet: bool = False,
        name: str = "training job",
    ) -> None:
        """Make a monitor for one or more trainings.

        Args:
            writer: a `tf.summary` writer, or the folder of TensorBoard's logs; gets the figures of each epoch.
            out: the folder in which the session's own folder is made; None keeps no file.
            quiet: print no line after each epoch.
            name: the job's name in the report.
        """
        super().__init__()
        self.session: Session | None = None
        self.folder: Path | None = None
        self.figures: JobSummary | None = None
        self._writer = writer
        self._opened: Any = None
        """The writer, once something was written to it."""
        self._out = None if out is None else Path(out)
        self._quiet = quiet
        self._name = name
        self.counts_start_up = False
        """Whether the session also keeps how long the process had run before the training."""
        self.diagnosable = True
        self.on_kept: Callable[[], None] = _nothing
        self.on_problem: Callable[[Exception], None] | None = None
        self._record: JobRecord | None = None
        self._watch: FitWatch | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, as `copy.deepcopy` and `pickle` make one: nothing of a training that runs here."""
        writer = self._writer if isinstance(self._writer, str | Path) else None
        own = {"_writer": writer, "_opened": None, "_record": None, "_watch": None}
        return {**self.__dict__, **own, "on_kept": _nothing, "on_problem": None}

    def give_up(self, error: Exception) -> None:
        """End the watching of a training without a session, because of what went wrong in it."""
        watch, self._watch = self._watch, None
        with suppress(Exception):
            if watch is not None:
                watch.abandon()
        (self.on_problem or functools.partial(tell_unwatched, self._name))(error)

    @harmless
    def on_train_begin(self, logs: Any = None) -> None:
        if self._watch is not None:  # an earlier training ended without saying so
            self._end(_NOT_ENDED)
        watch = self._watch = FitWatch(self.model, self.params or {}, self._name, self._out, timing_of(self.model))
        if self.counts_start_up:
            watch.course.before_s = age_s()
        self._record = watch.record
        watch.record.on_kept, watch.record.diagnosable = self.on_kept, self.diagnosable
        # Keras tells nobody that another callback raised: the session is kept when this one goes, or the program ends.
        watch.finalizer = weakref.finalize(self, watch.finish_quietly, _NOT_ENDED)

    @property
    def kept(self) -> SavedJob | None:
        """What was saved last of the last training, which may still run."""
        return self._record.kept if self._record is not None else None

    @property
    def course(self) -> Course | None:
        """The course of the training that runs; None otherwise."""
        return self._watch.course if self._watch is not None else None

    @harmless
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._watch is not None:
            self._watch.begin_epoch(int(epoch))

    @harmless
    def on_test_begin(self, logs: Any = None) -> None:
        if self._watch is not None:  # validation is no part of a step
            self._watch.flush()
            self._watch.course.begin_validation()

    @harmless
    def on_test_end(self, logs: Any = None) -> None:
        if self._watch is not None:
            self._watch.course.end_validation()

    @harmless
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._watch is None:
            return
        self._watch.end_epoch()
        if self._quiet and self._writer is None:
            return
        figures = self._watch.epoch_summary()
        if not self._quiet:
            write_line(figures, f"epoch {epoch + 1}")
        if self._writer is not None:
            try:
                self._opened = self._opened or _opened(self._writer)
                _write_scalars(self._opened, figures, epoch)
            except Exception as error:  # a full disk, a closed writer: that is no reason to end a training
                self._writer = self._opened = None
                self._watch.record.notes.append(f"the summary writer failed: {line_of(error)}")

    @harmless
    def on_train_end(self, logs: Any = None) -> None:
        if self._watch is not None:
            self._end(None)

    @property
    def summary(self) -> JobSummary | None:
        """The figures of the training so far; None before it begins and after it has ended."""
        return self._watch.record.summary() if self._watch is not None else None

    @harmless
    def close(self) -> None:
        """End a training that Keras did not end; do nothing if it has ended."""
        if self._watch is not None:
            self._end(_NOT_ENDED)

    def _end(self, reason: str | None) -> None:
        watch = self._watch
        assert watch is not None
        kept = watch.finish(reason)
        self._watch = None
        self.session, self.folder, self.figures = kept.session, kept.folder, kept.figures
        if not self._quiet:
            write_line(kept.figures, self._name, self.folder, watch.record.problem)
