"""`pipeline-bench run` on scripts of TensorFlow 1, which train by `Session.run`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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

for kind in (feeds, takes_from_a_queue, takes_from_an_iterator):
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        print(kind.__name__, repr(kind()))
"""


@pytest.mark.slow
def test_a_loop_over_session_run_is_measured_whatever_feeds_it_and_trains_as_without(tmp_path: Path) -> None:
    watched, plain = run(tmp_path, SCRIPT), run_plain(tmp_path)
    assert (watched.returncode, plain.returncode) == (0, 0), watched.stderr
    assert watched.stdout == plain.stdout
    lines = {name: line_of(SCRIPT, f"# {name}") for name in ("feeds", "queue", "iterator")}
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
    assert watched.stderr.count("the time between two calls of Session.run") == 1
