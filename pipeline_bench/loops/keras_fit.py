"""keras_fit: `Model.fit` drives the steps, with Keras' own training function and handling of the dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic_ns
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.errors import UsageError
from pipeline_bench.loops import (
    COLUMNS,
    ENDED,
    WAITED,
    Array,
    EagerTraining,
    Job,
    Loop,
    Step,
    StepRecorder,
    record_call,
    row_of,
)
from pipeline_bench.sources import Batch

_ENDLESS_EPOCH_STEPS = 10**9
"""Of a trial whose length is a time: the callback ends it."""


class KerasFitOptions(plugins.Options):
    """Keras' own, under its own name."""

    steps_per_execution: Annotated[
        int, Field(ge=1, le=10**6, description="steps that Keras trains in one call of its training function")
    ] = 1


class KerasFit(Loop):
    """A `keras.Model` whose `train_step` trains the same model as every other loop, under `fit`.

    A step of it has what Keras does between two calls of the training function, callbacks included: the first step of a
    call begins when the last call's figures had been read. The figures leave the graph through variables, a row a step.
    """

    name = "keras_fit"
    summary = "keras.Model.fit: steps_per_execution steps a call of Keras' training function"
    Options = KerasFitOptions
    execution: ClassVar[Literal["graph", "eager"]] = "eager"

    def check(self, job: Job) -> None:
        super().check(job)
        in_a_call, steps = self.options.steps_per_execution, job.run.steps
        if steps is not None and steps % in_a_call:
            raise UsageError(
                f"{steps} steps are no multiple of steps_per_execution = {in_a_call}, and Keras trains no part of a "
                "call.",
                f"Set run.steps = {-(-steps // in_a_call) * in_a_call}, or another steps_per_execution.",
            )

    def run_eagerly(self, training: EagerTraining, record: StepRecorder) -> None:
        import tensorflow as tf

        in_a_call = self.options.steps_per_execution
        rows = _Rows(training, in_a_call)
        model = _model(training, rows)
        model.compile(optimizer=None, steps_per_execution=in_a_call, jit_compile=False)
        dataset = training.dataset
        if dataset is None:  # a ceiling takes no batch, and Keras wants one
            dataset = tf.data.Dataset.from_tensors(0).repeat()
        left = record.steps_left
        with _timed_iterators(rows):
            model.fit(
                dataset,
                steps_per_epoch=_ENDLESS_EPOCH_STEPS if left is None else left,
                callbacks=[_callback(rows, record, in_a_call)],
                shuffle=False,
                verbose=0,
            )


class _Rows:
    """Variables that the training function writes each step's figures to, a row a step of a call."""

    def __init__(self, training: EagerTraining, steps: int) -> None:
        import tensorflow as tf

        def zeros(shape: list[int], dtype: Any = tf.float64) -> Any:
            return tf.Variable(tf.zeros(shape, dtype), trainable=False)

        self._digest, self._steps, self._is_sampled = training.digest, steps, False
        with tf.device("/cpu:0"):
            self._rows, self._digests = zeros([steps, COLUMNS]), zeros([steps, _digest_size(training)])
            # Keras takes a batch while the step before it computes: what both wrote would have one wait for the other.
            self._taken_s = zeros([steps, 2])
            self._taken, self._written = zeros([], tf.int32), zeros([], tf.int32)
            self._sampled = zeros([], tf.bool)

    def take(self, asked_s: Any, there_s: Any) -> None:
        """Build what writes when a batch was asked for, and when it was there, in s since 1970."""
        import tensorflow as tf

        with tf.device("/cpu:0"):
            index = [[tf.math.floormod(self._taken.read_value(), self._steps)]]
            self._taken.assign_add(1, read_value=False)
            self._taken_s.scatter_nd_update(index, [tf.stack([asked_s, there_s])])

    def write(self, loss: Any, batch: Batch) -> None:
        """Build what writes the row of a step with that loss, and its digest where the call is sampled."""
        import tensorflow as tf

        with tf.device("/cpu:0"):
            row = row_of(Step(loss, loss))
            index = [[tf.math.floormod(self._written.read_value(), self._steps)]]
            self._written.assign_add(1, read_value=False)
            self._rows.scatter_nd_update(index, [row])
        if (digest := self._digest) is not None:

            def write_digest() -> Any:
                self._digests.scatter_nd_update(index, [digest(batch)])
                return tf.constant(True)

            tf.cond(self._sampled.read_value(), write_digest, lambda: tf.constant(False))

    def sample(self, sampled: bool) -> None:
        """Say whether the next call is sampled."""
        if sampled != self._is_sampled:
            self._is_sampled = sampled
            self._sampled.assign(sampled)

    def read(self) -> tuple[Array, Array | None]:
        """Return the rows of the call that has ended, and the digests of its steps, where it was sampled.

        A step is blocked for its batch from when that was asked for, or from the end of the step before, if that is
        later.
        """
        rows: Array = self._rows.numpy()
        asked_s, there_s = self._taken_s.numpy().T
        asked_s[1:] = np.maximum(asked_s[1:], rows[:-1, ENDED])
        rows[:, WAITED] = np.maximum(there_s - asked_s, 0.0)
        return rows, self._digests.numpy() if self._is_sampled else None


def _digest_size(training: EagerTraining) -> int:
    """Return how many numbers the digest of a step has."""
    import tensorflow as tf

    if (digest := training.digest) is None:
        return 0
    built = tf.function(lambda *tensors: digest(Batch(*tensors)), autograph=False).get_concrete_function(
        *training.dataset.element_spec
    )
    return int(built.structured_outputs.shape[0])


def _model(training: EagerTraining, rows: _Rows) -> Any:
    import keras

    class TrainedModel(keras.Model):  # type: ignore[misc]
        """Hands its batches to the model that every loop trains."""

        def train_step(self, data: Any) -> dict[str, Any]:
            batch = training.take()[0] if training.dataset is None else Batch(*data)
            loss = training.train_on(batch)
            rows.write(loss, batch)
            return {"loss": loss}

    return TrainedModel()


def _callback(rows: _Rows, record: StepRecorder, steps: int) -> Any:
    import keras

    class StepCallback(keras.callbacks.Callback):  # type: ignore[misc]
        """Gives every step to the recorder when the call that trained it is over."""

        def on_train_begin(self, logs: Any = None) -> None:
            self._begin()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            end_ns = monotonic_ns()
            if record_call(record, self._start_ns, end_ns, *rows.read()):
                self._begin()
            else:
                self.model.stop_training = True

        def _begin(self) -> None:
            rows.sample(record.should_sample_any(steps))
            self._start_ns = monotonic_ns()

    return StepCallback()


@contextmanager
def _timed_iterators(rows: _Rows) -> Iterator[None]:
    """Time what TensorFlow's iterators wait, in functions that are traced meanwhile: Keras makes its own there.

    Its training function takes a single step's batch as it is, and each of several as an optional one.
    """
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator
    from tensorflow.python.data.ops.optional_ops import _OptionalImpl

    plain, optional = OwnedIterator._next_internal, OwnedIterator.get_next_as_optional

    def timed(self: Any) -> Any:
        return _timed(lambda: plain(self), rows)

    def timed_optional(self: Any) -> Any:
        return _OptionalImpl(_timed(lambda: optional(self)._variant_tensor, rows), self.element_spec)

    OwnedIterator._next_internal, OwnedIterator.get_next_as_optional = timed, timed_optional
    try:
        yield
    finally:
        OwnedIterator._next_internal, OwnedIterator.get_next_as_optional = plain, optional


def _timed(fetch: Callable[[], Any], rows: _Rows) -> Any:
    """Return what `fetch` gives, whose wait is written down."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return fetch()
    taken, asked_s, there_s = graph_ops.between_stamps(fetch)
    rows.take(asked_s, there_s)
    with tf.control_dependencies([there_s]):
        return tf.nest.map_structure(tf.identity, taken, expand_composites=True)
