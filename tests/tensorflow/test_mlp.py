"""The small network with tanh, and the variables that sources share where TensorFlow runs eagerly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline_bench import graph_ops
from pipeline_bench.models.mlp import Mlp
from pipeline_bench.sources import Batch


def losses(model: Mlp, features: Any, steps: int) -> list[float]:
    """The losses of a training on one batch, in a graph of its own."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        v1.set_random_seed(0)
        batch = Batch(tf.constant(features), tf.zeros([len(features), 1]))
        graph = model.build(batch, batch)
        assert graph.accuracy is None
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return [float(session.run([graph.loss, graph.train])[0]) for _ in range(steps)]


@pytest.fixture
def features() -> Any:
    return np.random.default_rng(0).standard_normal((100, 32), dtype=np.float32)


def test_the_first_loss_is_the_sum_of_the_squared_errors_of_its_own_layers(features: Any) -> None:
    """100 samples of 8 outputs, each the difference of two tanh of about 0.6 rms: about 600 in all."""
    assert 300 < losses(Mlp(), features, 1)[0] < 800


def test_it_can_learn_what_it_is_to_learn(features: Any) -> None:
    found = losses(Mlp({"learning_rate": 1e-2}), features, 300)
    assert found[-1] < 0.1 * found[0]


def test_images_are_taken_flat_and_its_targets_are_the_same_in_every_trial(features: Any) -> None:
    reference = losses(Mlp(), features, 3)
    np.testing.assert_allclose(losses(Mlp(), features.reshape(100, 4, 8), 3), reference, rtol=1e-5)


@pytest.mark.parametrize("widths", [(8,), (64, 32, 4)])
def test_any_number_of_layers_will_do(widths: tuple[int, ...], features: Any) -> None:
    assert np.isfinite(losses(Mlp({"widths": widths}), features, 2)).all()


def test_all_who_ask_eagerly_by_a_name_count_together() -> None:
    """Also a dataset's map, which would otherwise hold a variable that is gone."""
    import tensorflow as tf

    first, second = (int(graph_ops.call_counter("eager calls")) for _ in range(2))
    mapped = tf.data.Dataset.range(3).map(lambda _: graph_ops.call_counter("eager calls"))
    assert [second - first, *(int(count) - first for count in mapped)] == [1, 2, 3, 4]
