"""`pipeline-bench run` on scripts of TensorFlow 1, which train by `Session.run`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf  # noqa: TID253

from pipeline_bench.monitoring import calls, session_runs
from pipeline_bench.monitoring.calls import CallMonitor
from pipeline_bench.monitoring.session_runs import SessionRuns
from tests.tensorflow.programs import line_of, run, run_plain

SCRIPT = """
import sys, time
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()

def network(x):
    w = tf.get_variable("w" + x.op.name, [4, 1], initializer=tf.random_normal_initializer())
    loss = tf.reduce_mean(tf.square(tf.nn.dropout(x, rate=0.5) @ w))
    return tf.train.GradientDescentOptimizer(0.01).minimize(loss), loss

def slow(x):
    time.sleep(0.01)
    return x

def feeds():
    x, rate = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [])
    train, loss = network(x)
    other = tf.train.GradientDescentOptimizer(rate).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(60):
            batch = slow(np.ones([2, 4], np.float32) * step / 60)
            got = session.run([train, loss], {x: batch, "Placeholder_1:0": 0.1})[1]  # feeds
            session.run(other, {x: batch, rate: 0.0})
            if step % 5 == 4:
                loss.eval({x: np.repeat(slow(batch), 9, axis=0)})
                time.sleep(0.02)
    return got

def takes_from_a_queue():
    queue = tf.FIFOQueue(4, [tf.float32], [[2, 4]])
    made = tf.ensure_shape(tf.py_func(slow, [tf.ones([2, 4])], tf.float32), [2, 4])
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(made)]))
    train, loss = network(queue.dequeue())
    rate = tf.placeholder_with_default(0.5, [])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        for step in range(60):
            got = session.run({"train": train, "loss": loss}, {rate: 0.1})["loss"]  # queue
        coordinator.request_stop()
        session.run(queue.close(cancel_pending_enqueues=True))
        coordinator.join(threads)
    return got

def takes_from_an_iterator():
    def delayed(number):
        batch = tf.fill([2, 4], tf.cast(number, tf.float32) / 60)
        return tf.ensure_shape(tf.py_func(slow, [batch], tf.float32), [2, 4])
    train, loss = network(tf.data.make_one_shot_iterator(tf.data.Dataset.range(60).map(delayed)).get_next())
    tf.train.get_or_create_global_step()
    with tf.train.MonitoredTrainingSession() as session:
        while not session.should_stop():
            _, got = session.run((train, loss))  # iterator
    return got

def takes_and_feeds():
    taken = tf.data.make_one_shot_iterator(tf.data.Dataset.range(60).map(
        lambda number: tf.ensure_shape(tf.py_func(slow, [tf.fill([2, 4], 0.5)], tf.float32), [2, 4]))).get_next()
    x, words, keep = tf.placeholder(tf.float32, [None, 4]), tf.sparse_placeholder(tf.float32), tf.placeholder(tf.bool)
    train, loss = network(x)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(60):
            batch = session.run(taken)
            got = session.run((train, loss), {(x, keep): (batch, True), words: ([[0, 1]], [1.0], [2, 2])})[1]  # taken
    return got

for kind in (feeds, takes_from_a_queue, takes_from_an_iterator, takes_and_feeds):
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        print(kind.__name__, repr(kind()))
"""


@pytest.mark.slow
def test_a_loop_over_session_run_is_measured_whatever_feeds_it_and_trains_as_without(tmp_path: Path) -> None:
    watched, plain = run(tmp_path, SCRIPT), run_plain(tmp_path)
    assert (watched.returncode, plain.returncode) == (0, 0), watched.stderr
    assert watched.stdout == plain.stdout
    lines = {name: line_of(SCRIPT, f"# {name}") for name in ("feeds", "queue", "iterator", "taken")}
    left_out = r"(?:, \d+ without other work beside them,)?"  # on a busy machine
    pattern = rf"loop of train\.py:(\d+): (\d+) steps{left_out} of ([\d.]+) ms; input wait ([\d.]+) ms"
    told = re.findall(pattern, watched.stderr)
    found = {int(line): (int(steps), float(step_ms), float(wait_ms)) for line, steps, step_ms, wait_ms in told}
    assert sorted(found) == sorted(lines.values()), watched.stderr
    for name, line in lines.items():
        steps, step_ms, wait_ms = found[line]
        assert steps >= 45, name
        # The sleep is 10 ms; the queue's thread sleeps also while the rest of a step runs, long on a busy machine.
        assert wait_ms >= (9 - (step_ms - wait_ms) if name == "queue" else 9), (name, step_ms)
        assert 5 <= wait_ms <= step_ms
    assert watched.stderr.count("the time between two calls of Session.run, in which what is fed is made") == 1
    assert watched.stderr.count("a run of its own takes the batch there") == 1


STEP_NS = 1_000_000


class Program:
    """A program with a graph that trains, and a clock that only its runs turn on; they give nothing."""

    def __init__(self) -> None:
        self.now_ns, self.problems, self.monitors = 1, list[Exception](), dict[str, CallMonitor]()
        self.runs = SessionRuns(lambda: "train.py:7", self._watch, self.problems.append, None)
        self.graph = tf.Graph()
        self.session = SimpleNamespace(graph=self.graph, list_devices=list)
        with self.graph.as_default():
            self.x = tf.placeholder(tf.float32, [None, 4])
            self.taken = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(np.ones([2, 4], "f4"))).get_next()
            weights = tf.get_variable("w", [4, 1], use_resource=True)
            self.policy = self.x @ weights
            self.training = self.train(self.policy)
            self.training_in_graph = self.train(self.taken @ weights)
            self.resized = tf.reverse(self.x, [1])

    def train(self, given: Any) -> Any:
        return tf.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_mean(given))

    def _watch(self, line: str, begin: Callable[[str], CallMonitor]) -> CallMonitor:
        self.monitors[line] = self.monitors.get(line) or begin(line)
        return self.monitors[line]

    def run(self, fetches: Any, feed: Any = None, milliseconds: int = 1) -> None:
        def plain(_: Any) -> Any:
            self.sleep(milliseconds)
            return None, (0.0, [0.0])

        self.runs.run(self.session, fetches, feed, plain)

    def sleep(self, milliseconds: int) -> None:
        self.now_ns += milliseconds * STEP_NS

    def monitor(self) -> CallMonitor:
        """What watched its only loop, which has ended."""
        assert not self.problems
        (monitor,) = self.monitors.values()
        monitor.close()
        return monitor


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    made = Program()
    for module in (calls, session_runs):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: made.now_ns))
    yield made
    for monitor in made.monitors.values():
        monitor.drop()


BATCH = np.ones([2, 4], "f4")


def test_a_batch_that_a_run_of_its_own_takes_is_waited_for(program: Program) -> None:
    for _ in range(40):
        program.run(program.taken, milliseconds=8)
        program.run(program.training, {program.x: BATCH}, milliseconds=2)
    monitor = program.monitor()
    assert monitor.summary.input_wait_share == pytest.approx(0.8, abs=0.01)
    assert monitor.summary.step_ms == pytest.approx(10)
    assert "a run of its own takes the batch there" in monitor.record.remarks[0]


def test_a_batch_that_a_run_without_the_model_makes_is_waited_for(program: Program) -> None:
    """As one that decodes pictures in the graph."""
    for _ in range(40):
        program.run(program.resized, {program.x: BATCH}, milliseconds=8)
        program.run(program.training, {program.x: BATCH}, milliseconds=2)
    monitor = program.monitor()
    assert monitor.summary.input_wait_share == pytest.approx(0.8, abs=0.01)
    assert "in which what is fed is made" in monitor.record.remarks[0]


@pytest.mark.parametrize("acts", [1, 3])
@pytest.mark.parametrize("every", [1, 2])
def test_what_a_policy_computes_in_the_steps_is_no_wait_and_its_game_is(
    program: Program, acts: int, every: int
) -> None:
    """Also where it acts at random now and then."""
    for number in range(80):
        for _ in range(acts * (number % every == 0)):
            program.run(program.policy, {program.x: BATCH}, milliseconds=3)
        program.sleep(5)
        program.run(program.training, {program.x: BATCH}, milliseconds=2)
    monitor = program.monitor()
    assert monitor.summary.step_ms == pytest.approx(7 + 3 * acts / every, abs=0.3)
    assert monitor.summary.input_wait_ms == pytest.approx(5, abs=0.1)
    assert monitor.beside_ns <= 8 * acts * STEP_NS


@pytest.mark.parametrize(("took_ms", "told"), [(2, False), (50, True)])
def test_a_validation_of_one_run_or_more_is_no_part_of_a_step_and_told_where_it_is_much(
    program: Program, took_ms: int, told: bool
) -> None:
    """Whatever feeds the training; the time behind the loop is not of it."""
    for number in range(80):
        program.run(program.training_in_graph, milliseconds=10)
        for _ in range(2 * (number % 10 == 9)):
            program.run(program.policy, {program.x: BATCH}, milliseconds=took_ms)
    monitor = program.monitor()
    assert monitor.summary.step_ms == pytest.approx(10)
    assert monitor.beside_ns == 7 * 2 * took_ms * STEP_NS
    assert [each.split()[2:5] for each in monitor.record.remarks] == [["between", "its", "steps,"]] * told


@pytest.mark.parametrize(("value", "is_batch"), [(0.5, False), (np.float32(0.5), False), ([[0.5] * 4], True)])
def test_of_a_placeholder_without_a_shape_what_is_fed_says_whether_it_is_a_batch(
    program: Program, value: Any, is_batch: bool
) -> None:
    with program.graph.as_default():
        fed = tf.placeholder(tf.float32)
        train = program.train(program.taken @ tf.get_variable("v", [4, 1]) * fed)
    for _ in range(40):
        program.run(train, {fed: value})
        program.sleep(9)
    monitor = program.monitor()
    assert monitor.summary.input_wait_ms == pytest.approx(9 * is_batch)
    assert bool(monitor.record.remarks) == is_batch


def test_a_loop_that_feeds_a_sparse_tensor_or_a_tuple_is_measured(program: Program) -> None:
    with program.graph.as_default():
        words, state = (
            tf.sparse_placeholder(tf.float32),
            (tf.placeholder(tf.float32, [2]), tf.placeholder("float", [2])),
        )
        train = program.train(program.policy + tf.sparse_reduce_sum(words) + state[0] + state[1])
    for _ in range(100):
        sparse = tf.SparseTensorValue([[0, 1]], [1.0], [2, 2])
        program.run(train, {program.x: BATCH, words: sparse, (state[0], state[1]): ([0.0, 1.0], [2.0, 3.0])})
        program.sleep(9)
    assert program.monitor().summary.input_wait_share == pytest.approx(0.9, abs=0.01)


def test_a_run_that_is_not_understood_is_told_if_it_is_right(program: Program) -> None:
    """And left to the program's own error otherwise."""

    def fails(_: Any) -> Any:
        raise KeyError

    with pytest.raises(KeyError):
        program.runs.run(program.session, "nothing:0", None, fails)
    assert not program.problems
    program.run("nothing else:0")
    program.run("nothing else:0")
    assert [type(each) for each in program.problems] == [KeyError]
