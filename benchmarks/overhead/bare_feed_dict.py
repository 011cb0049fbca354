"""The tutorial's feed_dict script, bare: no probe, no recorder, one time stamp a step. Prints the step times in ns."""

import json
import sys
import time

import tensorflow as tf

width, steps = int(sys.argv[1]), int(sys.argv[2])
v1 = tf.compat.v1
v1.disable_eager_execution()
v1.set_random_seed(0)

with tf.device("/cpu:0"):
    data = tf.random.normal([128, width], seed=1)
    target = tf.cast(tf.reduce_sum(data, axis=1, keepdims=True) > 0, tf.float32)
features = v1.placeholder(tf.float32, [128, width])
labels = v1.placeholder(tf.float32, [128, 1])


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
    for step in range(steps):
        stamps.append(time.monotonic_ns())
        batch_features, batch_labels = session.run([data, target])
        _, loss = session.run([train_op, loss_op], {features: batch_features, labels: batch_labels})
        if step % 500 == 0:
            print(step, loss, file=sys.stderr)
json.dump(stamps, sys.stdout)
