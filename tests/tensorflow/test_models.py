"""Models built into graphs of this process: what they take, where they start, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.models import Model
from pipeline_bench.models.mnist_cnn import MnistCnn
from pipeline_bench.models.mobilenet import MobileNet
from pipeline_bench.sources import Batch

Run = Callable[[Any, Any], Any]


def batch_of(tf: Any, shape: tuple[int, ...], labels: Any = None) -> Batch:
    """Samples that are the same whatever their shape."""
    features = np.random.default_rng(0).random(shape, dtype=np.float32)
    classes = np.arange(shape[0], dtype=np.int64) if labels is None else labels
    return Batch(tf.constant(features), tf.constant(classes))


def built(model: Model, shape: tuple[int, ...], run: Run, seed: int = 0, ops_before: int = 0) -> Any:
    """What `run` makes of a session and the model's graph, which has some ops of a backend in it already."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        v1.set_random_seed(seed)
        for _ in range(ops_before):
            tf.random.normal([1])
        graph = model.build(batch_of(tf, shape), batch_of(tf, shape))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return run(session, graph)


def losses(steps: int) -> Run:
    def run(session: Any, graph: Any) -> list[float]:
        return [float(session.run([graph.loss, graph.train])[0]) for _ in range(steps)]

    return run


def test_the_cnn_takes_images_flat_or_not_and_starts_alike_under_every_backend() -> None:
    model = MnistCnn()
    shapes = [(4, 784), (4, 28, 28), (4, 28, 28, 1)]
    first, *others = [built(model, shape, losses(2), ops_before=7 * i) for i, shape in enumerate(shapes)]
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-4)
    assert not np.allclose(built(model, shapes[0], losses(1), seed=1), first[:1], rtol=1e-3)


@pytest.mark.slow
def test_the_cnn_learns_a_batch_by_heart() -> None:
    def run(session: Any, graph: Any) -> float:
        for _ in range(40):
            session.run(graph.train)
        return float(session.run(graph.accuracy))

    assert built(MnistCnn({"dropout": 0.1}), (8, 784), run) == 1.0


def test_dropout_leaves_the_evaluation_alone() -> None:
    def run(session: Any, graph: Any) -> set[float]:
        return {float(session.run(graph.accuracy)) for _ in range(5)}

    assert len(built(MnistCnn({"dropout": 0.9}), (64, 784), run)) == 1


@pytest.mark.parametrize("shape", [(4, 1024), (4, 28, 28, 3), (4, 96, 96, 3)])
def test_the_cnn_says_which_options_give_what_it_takes(shape: tuple[int, ...]) -> None:
    with pytest.raises(PipelineBenchError) as caught:
        built(MnistCnn(), shape, losses(1))
    assert str(shape[1:]) in caught.value.message
    assert "image_size = 28 and channels = 1" in caught.value.hint


@pytest.mark.slow
def test_mobilenet_starts_alike_under_every_backend_and_trains_its_moving_averages() -> None:
    def run(session: Any, graph: Any) -> tuple[list[float], float]:
        import tensorflow as tf

        (mean,) = [v for v in tf.compat.v1.global_variables() if v.name.startswith("bn_Conv1/moving_mean")]
        return losses(2)(session, graph), float(np.abs(session.run(mean)).sum())

    first, moved = built(MobileNet({"alpha": 0.1}), (4, 32, 32, 1), run)
    other, _ = built(MobileNet({"alpha": 0.1}), (4, 32, 32, 1), run, ops_before=7)
    np.testing.assert_allclose(other, first, rtol=1e-4)
    assert moved > 0


@pytest.mark.parametrize("shape", [(4, 1024), (4, 28, 28, 1), (4, 32, 32, 2)])
def test_mobilenet_says_what_images_it_takes(shape: tuple[int, ...]) -> None:
    with pytest.raises(PipelineBenchError, match="32 × 32 pixels"):
        built(MobileNet(), shape, losses(1))
