"""An input that is built and run in this process, without a model."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline_bench.backends import Backend
from pipeline_bench.sources import Source


class Carried(NamedTuple):
    """What an input said and brought: a triple of numbers, features and labels for each batch."""

    reorder_window: int | None
    batches: list[tuple[Any, Any, Any]]


def carry(backend: Backend, source: Source, batches: int, seed: int = 0) -> Carried:
    """The first batches that reach a model, of a run with that seed."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        v1.set_random_seed(seed)
        feeding = backend.connect(source, None)
        features, labels, numbers = feeding.batch
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            feeding.start(session)
            try:
                found = [
                    session.run(
                        (numbers, features, labels), feeding.fetch(session) if feeding.wait == "fetch" else None
                    )
                    for _ in range(batches)
                ]
            finally:
                feeding.stop(session)
    return Carried(feeding.reorder_window, found)
