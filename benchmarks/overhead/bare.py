"""The tutorial's scripts, bare: no probe, no recorder, one time stamp a step. Prints the step times in ns.

Arguments: ``feed_dict`` or ``fifo_queue``, the width, the steps.
"""

import json
import sys
import time

import tensorflow as tf

fed, width, steps = sys.argv[1] == "feed_dict", int(sys.argv[2]), int(sys.argv[3])
v1 = tf.compat.v1
v1.disable_eager_execution()
v1.set_random_seed(0)


def sums_above_0(inputs: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reduce_sum(inputs, axis=1, keepdims=True) > 0, tf.float32)


with tf.device("/cpu:0"):
    data = tf.random.normal([128, width], seed=1)
    target = sums_above_0(data)
    queue = v1.FIFOQueue(5, [tf.float32], [[128, width]])
    runner = v1.train.QueueRunner(queue, [queue.enqueue([data])])
    features = v1.placeholder(tf.float32, [128, width]) if fed else queue.dequeue()
labels = v1.placeholder(tf.float32, [128, 1]) if fed else sums_above_0(features)


def dense(inputs: tf.Tensor, name: str, width_out: int) -> tf.Tensor:
    weights = v1.get_variable(
        f"{name}/w", [inputs.shape[1], width_out], initializer=v1.random_normal_initializer(stddev=0.1)
    )
    biases = v1.get_variable(f"{name}/b", [width_out], initializer=v1.constant_initializer(0.1))
    return tf.matmul(inputs, weights) + biases


logits = dense(tf.nn.relu(dense(features, "first", width)), "second", 1)
loss_op = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
train_op = v1.train.AdamOptimizer(1e-2).minimize(loss_op)

stamps = []
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    coordinator = v1.train.Coordinator()
    threads = [] if fed else runner.create_threads(session, coord=coordinator, start=True)
    for step in range(steps):
        stamps.append(time.monotonic_ns())
        feed = dict(zip([features, labels], session.run([data, target]), strict=True)) if fed else None
        _, loss = session.run([train_op, loss_op], feed)
        if step % 500 == 0:
            print(step, loss, file=sys.stderr)
    coordinator.request_stop()
    session.run(queue.close(cancel_pending_enqueues=True))
    coordinator.join(threads)
json.dump(stamps, sys.stdout)
