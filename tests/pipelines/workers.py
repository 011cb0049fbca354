"""One of the workers of a synchronous training: python workers.py SLOW_INPUT_S SLOW_MODEL_S, for TF_CONFIG's last."""

import json
import os
import sys
import time

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
config = json.loads(os.environ["TF_CONFIG"])
is_last = config["task"]["index"] == len(config["cluster"]["worker"]) - 1
input_s, model_s = (float(argument) if is_last else 0.0 for argument in sys.argv[1:])


def slept(seconds):
    def sleep(values):
        time.sleep(seconds)
        return values

    def op(values):
        return tf.ensure_shape(tf.numpy_function(sleep, [values], tf.float32), values.shape)

    return op


options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
dataset = tf.data.Dataset.range(40).map(lambda _: tf.ones([4, 8])).map(slept(input_s)).with_options(options)
distributed = strategy.experimental_distribute_dataset(dataset)
with strategy.scope():
    weights = tf.Variable(tf.ones([8, 1]))


@tf.function
def train(batch):
    def step(values):
        values = slept(0.01 + model_s)(values)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((values @ weights) ** 2)
        gradient = tape.gradient(loss, weights)
        (gradient,) = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, [gradient])
        weights.assign_sub(0.01 * gradient)

    strategy.run(step, args=(batch,))


for batch in distributed:
    train(batch)
