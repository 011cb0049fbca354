"""One of the workers of a synchronous training: python workers.py KIND SLOW_INPUT_S SLOW_MODEL_S [RANK].

The rank that is slow, by so many seconds of input for two steps and of its model for one, is TF_CONFIG's last by
default. KIND is what takes the batches: a loop in Python, a function that takes one, a loop in a graph, or Keras' fit.
"""

import contextlib
import json
import os
import sys
import time

import keras
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
config = json.loads(os.environ["TF_CONFIG"])
kind, *planted_s = sys.argv[1:4]
slow = int(sys.argv[4]) if sys.argv[4:] else len(config["cluster"]["worker"]) - 1
input_s, model_s = (float(each) if config["task"]["index"] == slow else 0.0 for each in planted_s)


def slept(seconds):
    def sleep(values):
        time.sleep(seconds)
        return values

    def op(values):
        return tf.ensure_shape(tf.numpy_function(sleep, [values], tf.float32), values.shape)

    return op


options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
# Six samples are shared out evenly to two workers and to three, else fit raises.
dataset = tf.data.Dataset.range(40).map(lambda _: tf.ones([6, 8])).map(slept(input_s)).with_options(options)


class Model(keras.Model):
    """Keras' fit refuses batches with labels under this strategy, and results without a dimension."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.slow = slept(0.01 + model_s)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, values):
        return self.dense(self.slow(values))

    def train_step(self, values):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(values) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss[None]}


with strategy.scope():
    model = Model()
    model.build((None, 8))
    model.compile("sgd")


@tf.function
def train(batch):
    strategy.run(model.train_step, args=(batch,))


@tf.function
def train_next(iterator):
    train(next(iterator))


@tf.function
def train_all(batches):
    for batch in batches:
        train(batch)


if kind == "fit":
    model.fit(dataset, verbose=0)
else:
    distributed = strategy.experimental_distribute_dataset(dataset)
    if kind == "loop":
        for batch in distributed:
            train(batch)
    elif kind == "function":
        iterator = iter(distributed)
        with contextlib.suppress(tf.errors.OutOfRangeError):  # a worker that left earlier would end the others
            while True:
                train_next(iterator)
    elif kind == "graph":
        train_all(distributed)
