"""Graphs built in this process: what the source, the delay and the device prefetch are made of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pipeline_bench import graph_ops
from pipeline_bench.backends.tf_data import TfData
from pipeline_bench.sources.memory import Memory
from pipeline_bench.sources.synthetic import Synthetic


def test_the_label_is_one_where_the_features_sum_to_more_than_zero(tf: Any) -> None:
    batch = Synthetic({"batch_size": 64, "features": 8}).finish(
        Synthetic({"batch_size": 64, "features": 8}).produce(64)
    )
    with tf.compat.v1.Session() as session:
        features, labels = session.run(batch.tensors)
    assert features.shape == (64, 8)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(labels, (features.sum(axis=1, keepdims=True) > 0).astype(np.float32))
    assert 0 < labels.mean() < 1


def test_every_run_of_the_source_makes_new_samples_that_are_standard_normal(tf: Any) -> None:
    (features,) = Synthetic({"batch_size": 128, "features": 256}).produce(128)
    with tf.compat.v1.Session() as session:
        first, second = session.run(features), session.run(features)
    assert not np.array_equal(first, second)
    assert abs(first.mean()) < 0.02
    assert abs(first.std() - 1) < 0.02


def test_a_delay_waits_once_at_each_run(tf: Any) -> None:
    """The dataset behind it would sleep a second time, for the end of its one element, without its `take`."""
    _, elapsed_s = graph_ops.timed(lambda: [graph_ops.delay(100_000)])
    with tf.compat.v1.Session() as session:
        runs = [session.run(elapsed_s) for _ in range(3)]
    assert all(run > 0.095 for run in runs)
    assert min(runs) < 0.19


def test_runs_of_one_delay_overlap(tf: Any) -> None:
    _, first_s = graph_ops.timed(lambda: [graph_ops.delay(100_000)])
    _, both_s = graph_ops.timed(lambda: [graph_ops.delay(100_000) for _ in range(8)])
    with tf.compat.v1.Session() as session:
        session.run([first_s, both_s])
        assert session.run(both_s) < 4 * session.run(first_s)


def test_consumers_run_after_the_second_stamp(tf: Any) -> None:
    (value,), elapsed_s = graph_ops.timed(lambda: [graph_ops.delay(1000)])
    assert elapsed_s.dtype == tf.float64
    assert "timestamp" in " ".join(dependency.name.lower() for dependency in value.op.control_inputs)


def test_batches_are_prefetched_onto_the_device_that_is_asked_for(tf: Any) -> None:
    """A second logical CPU stands in for the GPU: the plumbing is the same, the copy to a GPU's memory is not."""
    v1 = tf.compat.v1
    source = Synthetic({"batch_size": 4, "features": 3})
    feeding = TfData({"device_prefetch": True}).connect(source, "/cpu:1")
    config = v1.ConfigProto(device_count={"CPU": 2})
    with v1.Session(config=config) as session:
        feeding.start(session)
        features, wait_s = session.run([feeding.batch.features, feeding.wait_s])
    assert features.shape == (4, 3)
    assert wait_s >= 0
    iterators = [op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == "IteratorGetNext"]
    assert [op.device for op in iterators] == ["/device:CPU:1"]


def test_a_call_counter_gives_every_number_once_in_all_threads(tf: Any) -> None:
    """Built twice, and once inside a parallel map: all count together."""
    calls = graph_ops.call_counter("calls")
    again = graph_ops.call_counter("calls")
    mapped = tf.data.Dataset.range(200).map(lambda _: graph_ops.call_counter("calls"), num_parallel_calls=8)
    iterator = tf.compat.v1.data.make_initializable_iterator(mapped.batch(50))
    batch = iterator.get_next()
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(iterator.initializer)
        with ThreadPoolExecutor(8) as pool:
            single = list(pool.map(lambda i: int(session.run(again if i % 2 else calls)), range(400)))
            rows = list(pool.map(lambda _: session.run(batch).tolist(), range(4)))
    given = sorted([*single, *(number for row in rows for number in row)])
    assert given == list(range(600))


def test_samples_in_memory_are_read_in_order_and_from_the_beginning_again(tf: Any) -> None:
    source = Memory({"batch_size": 4, "features": 3, "samples": 10})
    batch = source.finish(source.produce(4))
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        found = [session.run(batch.tensors) for _ in range(5)]
    numbers = np.concatenate([numbers for _, _, numbers in found])
    np.testing.assert_array_equal(numbers, np.arange(20))
    rows = np.concatenate([features for features, _, _ in found])
    np.testing.assert_array_equal(rows[:10], rows[10:])
    np.testing.assert_array_equal(source.identity.fingerprints(numbers), rows[:, 0])
    assert len(np.unique(rows[:10, 0])) == 10


def test_a_dataset_in_memory_is_no_constant_of_the_graph(tf: Any) -> None:
    """Each optimization of a graph, and of a tf.data function, copies its constants: seconds for some megabytes."""
    source = Memory({"samples": 1024, "features": 1024, "batch_size": 4})
    dataset = tf.data.Dataset.range(3).map(lambda _: source.produce(4))
    batch = tf.compat.v1.data.make_initializable_iterator(dataset)
    features, numbers = batch.get_next()
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(batch.initializer)
        got, given = session.run([features, numbers])
    assert tf.compat.v1.get_default_graph().as_graph_def().ByteSize() < 100_000
    assert [tuple(row) for row in got] == [tuple(source.numbered(number)[0]) for number in given]
