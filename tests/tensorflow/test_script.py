"""A script as its user wrote it is run up to its training, and no further."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.trials import selected

HEAD = """
import os, sys; sys.path.append("site-packages"); os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import numpy as np, keras, tensorflow as tf
data = tf.data.Dataset.range(40).map(lambda x: (tf.cast([x], tf.float32), 0.0)).batch(4)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
"""
ZIPPED = (
    "import time\ndef wait(y): return [time.sleep(0.5), y][1]\n"
    "slow = data.take(9).map(lambda x, y: (x, tf.numpy_function(wait, [y], tf.float32)))\n"
    "for _ in zip(data, slow, data):\n    with tf.GradientTape() as tape: pass"
)
"""A step takes a batch from each of several iterators; the second is the slowest, however slowly the others begin."""
# What each is, and what is to be found: the dataset's elements in a line, whether there is a model, and where.
SCRIPTS: dict[str, tuple[str, Any]] = {
    "fit": (
        "model.fit(data.take(7), epochs=int(sys.argv[2]))\nopen('after', 'w')\nmodel.fit(data, callbacks=[])",
        [7, True, 7, 3, False, [9]],
    ),
    "goes_on": ("for _ in range(2): pass\nmodel.fit(data, epochs=9, initial_epoch=4)", [10, True, 8, 5, False]),
    "in_a_loop": ("from beside import train\nfor fold in range(3):\n    train(model, data)", [10, True, 2, 1, True]),
    "fit_by_name": ("model.fit(x=data.take(os.get_terminal_size().lines), verbose=0)", [10, True, 7]),
    "several_a_call": (
        "model.compile('sgd', 'mse', steps_per_execution=4)\nmodel.fit(np.zeros([99, 1]), np.zeros(99))",
        ["arrays", True, 8],
    ),
    "guarded": (
        "try:\n    model.fit(data)\nexcept Exception:\n    sys.exit(5)\nfinally:\n    open('after', 'w')",
        [10, True, 8],
    ),
    "tries_again": ("while True:\n    try: model.fit(data)\n    except: open('after', 'w')", [10, True, 8]),
    "within_with": (
        "import contextlib\nwith contextlib.ExitStack() as stack:\n    stack.callback(open, 'after', 'w')\n"
        "    with tf.distribute.MirroredStrategy(['/cpu:0']).scope():\n        model.fit(data)",
        [10, True, 11],
    ),
    "thread": (
        "import threading\nthread = threading.Thread(target=lambda: model.fit(data))\nthread.start()\nthread.join()\n"
        "open('after', 'w')",
        [10, True, 8],
    ),
    "second_thread": (
        "import threading, time\n"
        "threading.Thread(target=lambda: [time.sleep(0.5), model.fit(data), open('after', 'w')]).start()\n"
        "model.fit(data.take(2))",
        [2, True, 9],
    ),
    "thread_behind_the_end": (
        "import threading, time\nthreading.Thread(target=lambda: [time.sleep(0.5), model.fit(data)]).start()",
        [10, True, 8],
    ),
    "interrupted": (
        "import signal\nsignal.signal(signal.SIGALRM, lambda *_: 1 / 0)\nsignal.setitimer(signal.ITIMER_REAL, 0.5)\n"
        "try: model.fit(data)\nfinally: open('after', 'w')",
        [10, True, 10],
    ),
    "mixed": ("keras.config.set_dtype_policy('mixed_float16')\nmodel.fit(data)", [10, True, 8]),
    "at_import": ("import imported", [10, True, 7]),
    "in_scopes": (
        "from tensorflow.python.eager.context import context\nnp.seterr(over='raise')\n"
        "class Placed(keras.Model):\n"
        "    def train_step(self, batch):\n        assert context().device_name.endswith('CPU:0')\n"
        "        return {'loss': tf.ones([])}\n"
        "model = Placed()\nmodel.compile('sgd', 'mse', run_eagerly=True)\n"
        "with tf.device('CPU:0'): model.fit(data)",
        [10, True, 15],
    ),
    "frees": (
        "def samples():\n    try:\n        while True: yield 1.0\n    finally: open('freed', 'w')\n"
        "for x in tf.data.Dataset.from_generator(samples, tf.float32): x + 1",
        [-2, False, 11],
    ),
    "forks": (
        "import multiprocessing\nchild = multiprocessing.get_context('fork').Process(target=lambda: model.fit(data))\n"
        "child.start()\nchild.join()\nopen('after', 'w')",
        "the script trains in a process that it forks, which is not looked into name the function that makes",
    ),
    "validates_first": ("from looped import epoch\nepoch(data.take(5), False)\nepoch(data, True)", [10, False, 4]),
    "validates_by_the_step_that_trains": (
        "train_ds, valid_ds = data.take(9), data.take(5)\n"
        "@tf.function\ndef step(x):\n    with tf.GradientTape(): return x\n"
        "for batches in (valid_ds, train_ds):\n    for x, y in batches: step(x)",
        [5, True, 12, "train_ds"],
    ),
    "another_in_each_round": (
        "def train():\n    now = data\n    for epoch in range(3):\n        for x, y in now:\n"
        "            with tf.GradientTape(): pass\n        now = tf.data.Dataset.range(3).batch(1)\ntrain()",
        [10, False, 10, True],
    ),
    "left_by_its_count": (
        "limit = 6\nfor epoch in range(2):\n    for i, (x, y) in enumerate(data):\n"
        "        with tf.GradientTape(): pass\n        if i == limit - 1:\n            print(i)\n            break",
        [10, False, 9, None, 6, False],
    ),
    "left_behind_its_end": (
        "for epoch in range(2):\n    for i, (x, y) in enumerate(data):\n"
        "        with tf.GradientTape(): pass\n        if i > 20: break",
        [10, False, 8, None, 22, False],
    ),
    "iterators_of_few_batches": (
        "big = tf.data.Dataset.range(99).batch(1)\nfor epoch in range(9):\n    batches = iter(big)\n"
        "    for _ in range(4): x = next(batches)",
        [99, False, 9, None, 4, True],
    ),
    "counted_beside_its_iterator": (
        "batches = iter(data.repeat())\nfor epoch in range(5):\n    for i, (x, y) in zip(range(100), batches):\n"
        "        with tf.GradientTape(): pass",
        [-1, False, 7, 500, None, False],
    ),
    "behind_a_look": (
        "@tf.function\ndef critic(x):\n    with tf.GradientTape(): return x\n@tf.function\ndef generator(): return 1\n"
        "batches = iter(data)\nmodel(next(batches)[0])\nfor _ in range(6):\n    x, y = next(batches)\n    critic(x)\n"
        "    generator()",
        [10, True, 12, 7, None, False],
    ),
    "counted_calls_of_a_step": (
        "@tf.function\ndef step(batches):\n    x, y = next(batches)\n    with tf.GradientTape(): return x\n"
        "batches = iter(data)\nfor _ in range(20):\n    step(batches)",
        [10, False, 11, 20, None, False],
    ),
    "counted_by_a_function": (
        "batches = iter(data.repeat())\ndef get(): return next(batches)\nfor _ in range(4): get(), get()",
        [-1, False, 7, None, None, False],
    ),
    "counted_by_another_number_in_each_pass": (
        "limits = [4, 400]\ndef epoch(limit):\n    for _, x in zip(range(limit), data):\n"
        "        with tf.GradientTape(): pass\nfor number in range(2):\n    epoch(limits[number])",
        [10, False, 9, None, None, False],
    ),
    "prepares_for_a_module": (
        "import loop_beside\nlabels = np.concatenate([y for x, y in data])\nloop_beside.train(data.take(5))",
        [5, False, 5],
    ),
    "evaluates_before_a_module_trains": (
        "import loop_beside\nmodel.evaluate(data.take(4), verbose=0)\nloop_beside.train(data)",
        [10, False, 5],
    ),
    "evaluates_only": (
        "import loop_beside\nmodel.evaluate(data.take(4), verbose=0)\nmodel.evaluate(data, verbose=0)",
        [4, True, 8],
    ),
    "keras_2_layers_enter_tapes": (
        "import tf_keras\ninputs = tf_keras.Input([1])\n"
        "scores = tf_keras.Model(inputs, tf_keras.layers.Lambda(lambda x: x * 2)(inputs))\n"
        "for x, y in data.take(9): scores(x)\nfor x, y in data:\n    with tf.GradientTape(): pass",
        [10, False, 11],
    ),
    "prepares": ("for x, y in data: x.numpy()\nmodel.fit(data.take(2))", [2, True, 8]),
    "neighbour": ("from beside import train\ntrain(model, data)", [10, True, 2, 1, False]),
    "counted_loop": (
        "batches, epochs = iter(data.repeat()), int(sys.argv[2])\n"
        "for epoch in range(epochs):\n    for step in range(4):\n        x, y = next(batches)",
        [-1, False, 7, 12, None, False],
    ),
    "loop": ("next(iter(data.take(3)))\nfor x, y in data:\n    x + 1", [10, False, 8]),
    "through_a_generator": (
        "def halves(data):\n    for x, y in data:\n        yield x / 2\n"
        "for x in halves(data):\n    with tf.GradientTape(): pass",
        [10, False, 8, "halves, through_a_generator.py:7"],
    ),
    "in_a_generator": (
        "def losses(data):\n    for x, y in data:\n        with tf.GradientTape(): yield x\n"
        "for loss in losses(data): pass",
        [10, False, 8, ""],
    ),
    "one_shot_iterator": (
        "v1 = tf.compat.v1.data\nv1.Dataset.range(9).make_one_shot_iterator().get_next()\n"
        "batches = v1.make_one_shot_iterator(data.take(7))\nfor _ in range(7):\n"
        "    x, y = batches.get_next()\n    with tf.GradientTape(): pass",
        [7, False, 9],
    ),
    "iterator_of_two": (
        "@tf.function\ndef step(batches):\n    return next(batches)\n"
        "train_it, val_it = iter(data), iter(data.take(5))\nstep(train_it)",
        [10, False, 10],
    ),
    "iterator_of_two_that_is_no_argument": (
        "train_it, val_it = iter(data), iter(data.take(5))\n"
        "@tf.function\ndef step():\n    return next(train_it)\nstep()",
        [10, False, 7],
    ),
    "graph_loop": (
        "@tf.function\ndef train():\n    for x, y in data:\n        x + 1.0\ntrain()",
        [10, False, 9],
    ),
    "graph_loop_over_an_argument": (
        "@tf.function\ndef train(batches):\n    for x, y in batches:\n        x + 1.0\ntrain(data.take(6))",
        [6, False, 9],
    ),
    "graph_loop_that_prepares": (
        "@tf.function\ndef total(batches):\n    found = 0.0\n    for x, y in batches: found += y[0]\n    return found\n"
        "few = data.take(7)\n@tf.function\ndef train():\n    for x, y in few:\n"
        "        with tf.GradientTape(): x + 1.0\ntotal(data)\ntrain()",
        [7, False, 15],
    ),
    "graph_loop_of_a_step_that_was_traced": (
        "@tf.function\ndef step(x):\n    with tf.GradientTape(): return x\nstep(next(iter(data))[0])\n"
        "@tf.function\ndef train(batches):\n    for x, y in batches: step(x)\ntrain(data)",
        [10, False, 13],
    ),
    "graph_loop_where_no_other_trains": (
        "@tf.function\ndef train(batches):\n    for x, y in batches: x + 1.0\n"
        "train(data)\nif not data: model.fit(data)",
        [10, False, 9],
    ),
    "distributed": (
        "strategy = tf.distribute.OneDeviceStrategy('/cpu:0')\n"
        "data = strategy.experimental_distribute_dataset(data)\n"
        "@tf.function\ndef step(batch):\n    return batch[0] + 1.0\n"
        "for batch in data:\n    strategy.run(step, (batch,))",
        [10, False, 12],
    ),
    "distributed_in_a_graph": (
        "data = tf.distribute.OneDeviceStrategy('/cpu:0').experimental_distribute_dataset(data)\n"
        "@tf.function\ndef train(batches):\n    for batch in batches:\n        batch[0] + 1.0\ntrain(data)",
        [10, False, 10],
    ),
    "passes_once": ("for x, y in data:\n    with tf.GradientTape(): pass", [10, False, 7, True]),
    "step_in_a_function": (
        "@tf.function\ndef step(x):\n    with tf.GradientTape(): return x + 1.0\nfor x, y in data.take(5): step(x)",
        [5, True, 10],
    ),
    "step_of_a_method": (
        "from tensorflow.python.eager.context import context\nclass Trainer:\n"
        "    @tf.function(jit_compile=True)\n"
        "    def step(self, batch, scale, *, double):\n"
        "        with tf.GradientTape(): loss = scale * double * tf.reduce_sum(batch['x'][0])\n"
        "        open('stepped', 'w')\n        assert context().device_name.endswith('CPU:0')\n"
        "        return loss\n"
        "trainer = Trainer()\n"
        "with tf.device('CPU:0'):\n"
        "    for batch in data.map(lambda x, y: {'x': (x, y)}):\n        trainer.step(batch, 2.0, double=2)",
        [10, True, 17, [24.0, 88.0]],
    ),
    "step_with_summaries": (
        "logs = tf.summary.create_file_writer('logs')\n@tf.function\ndef step(x):\n"
        "    with tf.GradientTape(), logs.as_default():\n"
        "        tf.summary.write('first', x[0, 0], 1)\n        return x[0, 0]\n"
        "for x, y in data.take(5): step(x)",
        [5, True, 13, [0.0, 4.0], 1],
    ),
    "step_of_something_else": (
        "@tf.function\ndef step(x):\n    with tf.GradientTape(): return x + 1.0\n"
        "for x, y in data.take(5): step(x * 2.0)",
        [5, False, 10],
    ),
    "step_of_a_part_and_something_made_of_another": (
        "@tf.function\ndef step(x, y):\n    with tf.GradientTape(): return x + y\n"
        "for x, y in data.take(5): step(x.numpy() / 2, y)",
        [5, False, 10],
    ),
    "step_of_a_turned_part": (
        "@tf.function\ndef step(x, y):\n    with tf.GradientTape(): return x\n"
        "for x, y in data.take(5): step(tf.transpose(x), y)",
        [5, False, 10],
    ),
    "step_of_noise": (
        "SIZE = 3\n@tf.function\ndef step(x, noise, scale):\n"
        "    with tf.GradientTape(): return tf.reduce_sum(x) + tf.reduce_sum(0.0 * noise * scale)\n"
        "for epoch in range(2):\n    for x, y in data.take(5):\n        noise = tf.random.normal([1, SIZE])\n"
        "        step(x, noise, scale=np.ones([SIZE], 'float32'))",
        [5, True, 12, [6.0, 22.0]],
    ),
    "step_of_most_rounds": (
        "class Encoder(keras.layers.Layer):\n    def initialize_hidden_state(self): return tf.zeros([4, 3])\n"
        "class Trainer:\n    encoder = Encoder()\n    @tf.function\n    def step(self, x, hidden, first):\n"
        "        with tf.GradientTape(): return tf.reduce_sum(x) + tf.reduce_sum(hidden) + (99.0 if first else 0.0)\n"
        "    def train(self):\n        for epoch in range(2):\n"
        "            hidden = self.encoder.initialize_hidden_state()\n"
        "            for i, (x, y) in enumerate(data): self.step(x, hidden, first=i == 0)\nTrainer().train()",
        [10, True, 17, [6.0, 22.0]],
    ),
    "step_among_others": (
        "class Gan:\n    @tf.function\n    def critic(self, x):\n        with tf.GradientTape(): return x\n"
        "    @tf.function\n    def generator(self): return 1\n"
        "    def train(self, batches):\n        for x, y in batches:\n            self.critic(x)\n"
        "            self.generator()\nGan().train(data)",
        [10, True, 14],
    ),
    "train_on_batch_again": (
        "for x, y in data:\n    model.train_on_batch(x, y)\n    model.train_on_batch(x, y)",
        [10, True, 7],
    ),
    "step_beside_a_generator": (
        "from threading import Event\ndraws = Event()\n"
        "@tf.function\ndef draw(): return draws.set() or Event().wait(1.5)\n"
        "def samples():\n    yield 1.0\n    draw()\n"
        "@tf.function\ndef step(x):\n    with tf.GradientTape(): return x\n"
        "for x in tf.data.Dataset.from_generator(samples, tf.float32).prefetch(2): draws.wait() and step(x)",
        [-2, True, 17],
    ),
    "step_that_runs_eagerly": (
        "tf.config.run_functions_eagerly(True)\n@tf.function\ndef step(x):\n    with tf.GradientTape(): return x\n"
        "for x, y in data.take(5): step(x)",
        [5, False, 11],
    ),
    "preview": (
        "for x, y in data.take(3): print(x)\n"
        "for epoch in range(2):\n    for x, y in data.take(8):\n        with tf.GradientTape() as tape: model(x)",
        [8, False, 9, False],
    ),
    "first_step": (
        "def step(x):\n    with tf.GradientTape(): open('stepped', 'w')\n"
        "for x, y in data.take(1): step(x)\nos.remove('stepped')\nfor x, y in data.take(5): step(x)",
        [5, False, 11],
    ),
    "progress_bar": (
        "from helper import bar\nfor x, y in bar(enumerate(data)):\n    with tf.GradientTape() as tape: pass",
        [10, False, 8],
    ),
    "few_batches": (
        "few = data.take(2)\nfor epoch in range(3):\n    for x, y in few:\n        with tf.GradientTape(): pass",
        [2, False, 9],
    ),
    "ends_well": (  # as sys.exit(main()) does
        "def main():\n    for x, y in data.take(2):\n        with tf.GradientTape(): pass\nsys.exit(main())",
        [2, False, 8],
    ),
    "ends_well_without": ("sys.exit(0)", "ran to its end, and no training was found"),
    "own_folder": (
        "assert os.path.isabs(__file__) and 'own_folder.py' in os.listdir(os.path.dirname(__file__))\n"
        "assert not os.path.isabs(sys.argv[0])\nmodel.fit(data)",
        [10, True, 9],
    ),
    "builds_its_weights": (
        "model.train_on_batch(np.zeros([1, 1]), np.zeros(1))\nmodel.fit(data)",
        [10, True, 8],
    ),
    "one_step": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "for x, y in data.take(1):\n    with tf.GradientTape(): pass",
        [1, False, 8, "pools are open"],
    ),
    "flax": (
        "class State:\n    def apply_gradients(self): return self\n"
        "state = State()\nfor x, y in data: state = state.apply_gradients()\nopen('after', 'w')",
        [10, False, 10],
    ),
    "jax_beside_keras": (
        "import types\nsys.modules['jax'] = types.ModuleType('jax')\nimport jax; jax.value_and_grad = abs\n"
        "def keras_way(): model.fit(data)\nstep = jax.value_and_grad(1) and len\n"
        "count = sum(1 for _ in data)\nfor x, y in data: step(x)\nopen('after', 'w')",
        [10, False, 13],
    ),
    "torch_over_tf_data": (
        "sys.path.insert(0, 'stand_in')\nfrom torch_step import train\ndef keras_way(): model.fit(data)\n"
        "train(next(iter(data.take(4))))\nfor x in range(90): train(x)  # a check, and another training, before\n"
        "count = sum(1 for _ in data)\nfor x, y in data: train(x)\nopen('after', 'w')",
        [10, False, 13],
    ),
    "torch_over_others": (
        "del keras, tf, data, model\nsys.path.insert(0, 'stand_in')\nfrom torch_step import train\n"
        "for x in range(90): train(x)\nopen('after', 'w')",
        "The training of torch_step.py:3 takes its batches from no tf.data pipeline",
    ),
    "zipped": (ZIPPED, [9, False, 10, 1, 2]),
    "zipped_of_before": (ZIPPED, [10, False, 10, 0, 2]),
    **{
        f"zipped_in_a_function{of_before}": (
            "pair = [iter(data.take(9)), iter(data)]\n@tf.function\ndef step(its):\n    with tf.GradientTape():\n"
            "        for _ in tf.range(2): x, y = [next(each) for each in its]\n    return y\nstep(pair)",
            found,
        )
        for of_before, found in (("", [9, False, 7, 0, 2]), ("_of_before", [10, False, 7, 1, 2]))
    },
    "starts_processes": (
        "import subprocess\nsubprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 2.5: 1'])",
        "trained nothing itself; it started processes, which are not looked into",
    ),
    "reads": ("import json\njson.load(sys.stdin)", "where standard input is empty: have it take a file"),
    "fit_of_an_iterator": (
        "import tf_keras\nold = tf_keras.Sequential([tf_keras.layers.Dense(1)])\nold.compile('sgd', 'mse')\n"
        "old.fit(data.as_numpy_iterator(), epochs=3, steps_per_epoch=3)",
        [10, True, 10, 1, False],
    ),
    "many_ops_in_a_model": (
        "import tf_keras\nx = given = tf_keras.Input((1,))\nfor _ in range(60): x = tf.nn.relu(x)\n"
        "old = tf_keras.Model(given, x)\nold.compile('sgd', 'mse')\nold.fit(data, epochs=3)",
        [10, True, 12],
    ),
    "as_numpy": ("for x, y in data.as_numpy_iterator():\n    x + y", [10, False, 7]),
    "adapts": (
        "n = keras.layers.Normalization()\nn.adapt(data.map(lambda x, y: x))\nfor x, y in data.take(9): x + 1",
        [9, False, 9],
    ),
    "no_training_in_it": ("if len(sys.argv) > 9: model.fit(data)\nfor x, y in data: x + 1", [10, False, 8]),
    "train_on_batch": (
        "for x, y in data.take(1): print(x)\nfor x, y in data:\n    model.train_on_batch(x, y)",
        [10, True, 8, None, False],
    ),
    "fit_on_each_batch": ("for x, y in data:\n    model.fit(x, y, verbose=0)", [10, True, 7]),
    "fit_on_one_batch_again": (
        "batches = iter(data)\nx, y = next(batches)\nfor _ in range(2): model.fit(x, y)",
        ["arrays", True, 9],
    ),
    "gan": (
        "for x, y in data:\n    model.train_on_batch(np.zeros([8, 5]), np.zeros(8))",
        [10, False, 7],
    ),
    "evaluate": ("print(model.evaluate(data.take(4)))", [4, True, 7, 1, False]),
    "evaluates_first": ("model.evaluate(data.take(2), verbose=0)\nmodel.fit(data)", [10, True, 8]),
    "generator": ("model.fit((each for each in []))", ["generator", True, 7]),
    "py_dataset": (
        "class Own(keras.utils.PyDataset):\n    def __len__(self): return 3\nmodel.fit(Own())",
        ["PyDataset", True, 9],
    ),
    "prepares_in_fit": (
        "class Preparing(keras.Model):\n"
        "    def train_step(self, batch): return {'loss': tf.reduce_sum(batch[0])}\n"
        "    def prepared(self, x, y): return x + 1.0, y\n"
        "    def fit(self, x): super().fit(x.map(self.prepared))\n"
        "    def train_on_batch(self, x, y): return super().train_on_batch(*self.prepared(x, y))\n"
        "model = Preparing()\nmodel.compile('sgd', 'mse')\nmodel.fit(data)",
        [10, True, 10, [10.0, 26.0]],  # as the classes of KerasHub do
    ),
    "annotated": ("class Named:\n    size: int\nmodel.fit(data.take(Named.__annotations__['size'](6)))", [6, True, 9]),
    "keras_2": (
        "import tf_keras\nold = tf_keras.Sequential([tf_keras.layers.Dense(1)])\nold.compile('sgd', 'mse')\n"
        "list(data)\nold.fit(data.take(6))",
        [6, True, 11],
    ),
    "keras_2_sequence": (
        "import tf_keras\nclass Own(tf_keras.utils.Sequence):\n    def __len__(self): return 3\n"
        "tf_keras.Sequential([tf_keras.layers.Dense(1)]).fit(Own(), workers=2)",
        ["PyDataset", True, 10],
    ),
    "keras_2_zip": (
        "import tf_keras\nold = tf_keras.Sequential([tf_keras.layers.Dense(1)])\n"
        "batches = ((np.zeros([4, 1]), np.zeros(4)) for _ in range(9))\n"
        "old.fit(map(lambda batch: batch, batches), steps_per_epoch=3)",
        ["generator", True, 10],
    ),
    "keras_2_arrays": (
        "import tf_keras\nold = tf_keras.Sequential([tf_keras.layers.Dense(1)])\n"
        "old.fit(np.zeros([8, 1]), np.zeros(8))",
        ["arrays", True, 9],
    ),
    "second_fit": (
        "model.fit(data.take(2), verbose=0).history['loss']\nmodel.fit(data.take(3))  # training 2",
        [3, True, 8],
    ),
    "fit_in_a_callback": (
        "other = keras.Sequential([keras.layers.Dense(1)])\nother.compile('sgd', 'mse')\n"
        "class Inner(keras.callbacks.Callback):\n"
        "    def on_epoch_end(self, epoch, logs=None): other.fit(data.take(1), verbose=0)\n"
        "model.fit(data.take(2), callbacks=[Inner()], verbose=0)\nmodel.fit(data.take(3))  # training 3",
        [3, True, 12],  # as `run` numbers them
    ),
    "of_a_callback": (
        "other = keras.Sequential([keras.layers.Dense(1)])\nother.compile('sgd', 'mse')\n"
        "class Inner(keras.callbacks.Callback):\n"
        "    def on_epoch_end(self, epoch, logs=None): other.fit(data.take(1), verbose=0)\n"
        "model.fit(data.take(2), callbacks=[Inner()], verbose=0)\nmodel.fit(data.take(3))  # training 2",
        [1, True, 10],
    ),
    "second_loop": (
        "for x, y in data.take(9): x + 1\nfor x, y in data.take(5): x + 1  # training 8",
        [5, False, 8],
    ),
    "third_beside": (
        "from beside import train\nfor size in (2, 3): train(model, data.take(size))\nmodel.evaluate(data.take(4))\n"
        "train(model, data)  # training 3",
        [10, True, 2],
    ),
    "idle_pool": (
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\npool.submit(int).result()",
        "ran to its end, and no training was found",
    ),
    "no_such": (
        "model.fit(data, verbose=0)  # training 5",
        "has no training 5 it has 1: no_such.py:7",
    ),
    "bare": (
        "x = tf.Variable(1.0)\nfor step in range(10**9):\n    with tf.GradientTape() as tape: y = x * x\n"
        "    tape.gradient(y, x)",
        "The training of bare.py:10 takes its batches from no tf.data pipeline",
    ),
    "bare_before_fit": (
        "x = tf.Variable(1.0)\nfor step in range(200):\n    with tf.GradientTape() as tape: y = x * x\n"
        "    tape.gradient(y, x)\nmodel.fit(data, epochs=2)",
        "most of the wait lies; --training 11 measures the fit of that line, if the script comes to it: each trial "
        "then runs this loop to its end first",
    ),
    "bare_graph": (
        "@tf.function\ndef step(x):\n    with tf.GradientTape(): return x\nwhile True:\n    step(tf.zeros([]))",
        "The training of bare_graph.py:11 takes its batches from no tf.data pipeline",
    ),
    "bare_iterators": (
        "while True:\n    x, y = next(iter(data))\n    with tf.GradientTape() as tape: pass\n    tape.gradient(x, x)",
        "bare_iterators.py:8 makes an iterator for every batch: each starts the pipeline again",
    ),
    "bare_session": (
        "graph = tf.Graph()\nwith tf.compat.v1.Session(graph=graph) as session:\n    with graph.as_default():\n"
        "        one = tf.constant(1)\n    while True:\n        session.run(one)",
        "bare_session.py:12 trains by Session.run, in which no pipeline can be looked at or changed `pipeline-bench "
        "run -- python bare_session.py --epochs 3`",
    ),
    "bare_batches": (
        "model.train_on_batch(np.zeros([8, 1]), np.zeros(8))",
        "takes its batches from no tf.data pipeline, which is what could be changed `pipeline-bench run "
        "-- python bare_batches.py --epochs 3`",
    ),
    "unknown_beside": (
        "import beside\nbeside.train(model, object())",
        "`pipeline-bench run -- python unknown_beside.py --epochs 3`",
    ),
    "unknown": (
        "model.fit(object())",
        "the fit of unknown.py:7 takes its batches from what cannot be looked at here, object of builtins: only a "
        "tf.data.Dataset, a PyDataset, a generator and arrays can `pipeline-bench run -- python unknown.py --epochs 3` "
        "says how long each of its trainings waits for its input",
    ),
    "keras_2_num_batches": (
        "import tf_keras\nclass Foo(tf_keras.utils.Sequence):\n    num_batches = 9\n"
        "    def __len__(self): return 10\n    def __getitem__(self, i): return np.zeros([8, 1]), np.zeros(8)\n"
        "old = tf_keras.Sequential([tf_keras.layers.Dense(1)])\nold.compile('sgd', 'mse')\nold.fit(Foo())",
        "its num_batches is not its length, 10, and Keras 3, which reads it here, takes it for that: give it another "
        "name in Foo; `pipeline-bench run -- python keras_2_num_batches.py --epochs 3`",
    ),
    "loader": (
        "class DataLoader: __module__ = 'torch.utils.data.dataloader'\nmodel.fit(DataLoader())",
        "waits for its input; `pipeline-bench compare loaders` trains one model with tf.data, a PyDataset, grain and a "
        "DataLoader",
    ),
    "eager_off": ("tf.compat.v1.disable_eager_execution()\nmodel.fit(data)", "switched eager execution off"),
    "keras_2_eager_off": (
        "import tf_keras\ntf.compat.v1.disable_eager_execution()\n"
        "old = tf_keras.Sequential([tf_keras.layers.Dense(1)])\nold.compile('sgd', 'mse')\n"
        "old.fit(np.zeros([8, 1]), np.zeros(8))",
        "so that what the fit of keras_2_eager_off.py:11 takes cannot be inspected take that call out",
    ),
    "nothing_of_jax": (
        "import types\njax = types.ModuleType('jax')\nfor x in np.ones([9, 1]): x + 1",
        "`pipeline-bench run -- python nothing_of_jax.py --epochs 3` says how long each of its trainings waits for its "
        "input, also over a DataLoader, grain or arrays",
    ),
    "no_dataset": ("class Other:\n    def fit(self): pass\nOther().fit()", "no training was found"),
    "needs": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('x')\np.parse_args([])",
        "failed before its training: the following arguments are required: x its own arguments follow --",
    ),
    "exits": ("sys.exit(2)", "failed before its training: it called sys.exit(2)"),
    "made_before": ("os.makedirs('site-packages')", "each trial runs it anew: have it accept what it made before"),
    "refuses_a_second_run": (
        "raise ValueError('not empty')",
        "ValueError: not empty its first run, which looked at the pipeline, came to its training",
    ),
    "unreadable": ("model.fit(data", "SyntaxError: '(' was never closed"),
    "raises": ("model.fit(dta)", "NameError: name 'dta' is not defined"),
    "within.train": (
        "from .helper import take\nassert (__name__, __package__, __file__) == ('__main__', 'within', sys.argv[0])\n"
        "model.fit(take(data))",
        [3, True, 9],
    ),
    "within": ("from . import helper\nmodel.fit(helper.take(data))", [3, True, 8]),
}
RUN = """
import contextlib, gc, json, os, re, sys, threading, time, traceback
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.system import main_thread, processes
from pipeline_bench.script import loading, training_data
from pipeline_bench.worker import consumers
import keras
import tensorflow as tf

def reach(name):
    where = {"module": name} if name.startswith("within.") or name == "within" else {"file": name + ".py"}
    which = None if "module" in where else re.search(r"# training (\\d+)", open(where["file"]).read())
    try:
        places = {"zipped_of_before": 0, "zipped_in_a_function_of_before": 1}
        place = places.get(name)  # as the trial before took it
        target = Target(**where, name="", arguments=("--epochs", "3"), training=which and which[1], of_loop=place)
        training = loading.reach_training(target, again=name == "refuses_a_second_run")
        line = int(training.line.partition(":")[2])
        kind = training_data.kind(training.data)
        if kind in ("tf.data", "distributed"):
            kind = training.data.cardinality
            kind = int(kind() if callable(kind) else kind)
        found = [kind, training.model is not None, line]
        if name in ("fit", "goes_on", "neighbour", "in_a_loop", "evaluate", "train_on_batch", "fit_of_an_iterator"):
            found += [training.epochs, training.in_loop]
        if name == "fit":
            found.append(training.later_fits)
        if name == "graph_loop_over_an_argument":
            assert [each.name for each in training.datasets] == ["", "data"], training.datasets
        if name in ("passes_once", "preview", "another_in_each_round"):
            found.append(training.never_reads_again)
        if name in ("through_a_generator", "in_a_generator"):
            found.append(training.handed_on_by)
        if name.startswith(("count", "left_", "behind_", "iterators_")):
            trained, _ = training_data.choose(training, None, lambda data: None)
            found += [trained.steps, trained.pass_steps, trained.leaves_passes]
        if name == "validates_by_the_step_that_trains":
            trained, data = training_data.choose(training, None, lambda data: None)
            assert trained.model and int(data.cardinality()) == 9
            found.append(trained.dataset)
        eager = {"step_that_runs_eagerly": "functions", "preview": "no-function", "flax": None, "distributed": None}
        assert name not in eager or training.eager == eager[name], training.eager
        parts = {"step_among_others": "critic", "behind_a_look": "critic", "train_on_batch_again": "train_on_batch"}
        assert training.model is None or training.part == parts.get(name, ""), training.part
        calls = {"fit": 1, "several_a_call": 4, "in_scopes": None, "keras_2": 1, "fit_on_each_batch": None}
        assert name not in calls or training.steps_a_call == calls[name], training.steps_a_call
        one = {"fit": False, "several_a_call": False, "fit_on_one_batch_again": True, "keras_2_arrays": True}
        assert name not in one or training.one_batch == one[name], training.one_batch
        if name.startswith("zipped"):
            found += [training.of_loop, len({each.name for each in training.datasets})]
        if name == "one_step":
            with contextlib.suppress(RuntimeError):
                found.append(ThreadPoolExecutor(1).submit("pools are open".strip).result())
        if name == "mixed":
            assert keras.config.dtype_policy().name == "mixed_float16"
        if name == "at_import":
            lazily = threading.Thread(target=lambda: __import__("imported").data, daemon=True)
            lazily.start()
            lazily.join(60)
            assert not lazily.is_alive()
        if name == "in_scopes":
            assert np.geterr()["over"] == "raise"
            step = consumers.step_of(training.model)
            assert [step(batch) for batch in training.data.take(2)] == [1.0, 1.0]
        if name in STEPS:
            assert not os.path.exists("stepped")
            step = consumers.step_of(training.model)
            found.append([step(batch) for batch in training.data.take(2)])
        if name == "step_of_a_method":
            os.remove("stepped")
        if name == "step_with_summaries":
            sys.modules["__main__"].logs.flush()
            (logs,) = os.listdir("logs")
            found.append(sum(1 for each in tf.compat.v1.train.summary_iterator(os.path.join("logs", logs))))
    except UserCodeError as error:
        found = f"{error.message} {error.hint}"
    if name in WAITED:  # what would go on, or come again, has the time to
        time.sleep(1)
    with open(f"{name}.json", "w") as file:
        json.dump(found, file)

def tell(name):
    try:
        reach(name)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)

gc.collect()
gc.freeze()  # else each fork looks through all that was imported
STEPS = ("step_of_a_method", "step_with_summaries", "step_of_noise", "step_of_most_rounds", "prepares_in_fit")
WAITED = ("guarded", "tries_again", "within_with", "thread", "second_thread", "interrupted", "frees")
parent, waited = os.getpid(), []
processes.end_with_parent(os.getppid())  # a script that never ends must not outlive a run that is given up
for name in sys.argv[1:]:
    pid = os.fork()  # as each trial is a fork, whose main thread is never given back
    if pid == 0:
        processes.end_with_parent(parent)
        main_thread.lend(lambda: tell(name))
    if name in WAITED:
        waited.append(pid)
    else:
        os.waitpid(pid, 0)
    if name.startswith("keras_2"):
        import tf_keras  # once for those that come, and not in each of them
for pid in waited:
    os.waitpid(pid, 0)
"""


BROADER = {
    *("fit_by_name", "guarded", "thread_behind_the_end", "mixed", "left_behind_its_end", "neighbour", "few_batches"),
    *("distributed_in_a_graph", "step_of_a_turned_part", "flax", "fit_of_an_iterator", "many_ops_in_a_model", "gan"),
    *("starts_processes", "keras_2_arrays", "keras_2_eager_off", "second_loop", "third_beside", "bare_graph", "within"),
    *("as_numpy", "exits", "raises", "bare_batches", "no_dataset", "interrupted", "evaluates_first", "graph_loop"),
    *("fit_in_a_callback", "keras_2_num_batches", "keras_2_zip", "loop", "second_fit", "ends_well"),
    *("graph_loop_where_no_other_trains", "step_of_a_part_and_something_made_of_another", "evaluates_only"),
    *("graph_loop_of_a_step_that_was_traced", "another_in_each_round"),
}
"""Scripts beside which the default run has one that is much the same."""
BARE = {
    *("needs", "made_before", "refuses_a_second_run", "ends_well_without", "idle_pool", "reads", "nothing_of_jax"),
    *("exits", "no_dataset"),
}
"""Scripts that use neither the data nor the model."""


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is found in each script that a test was selected for."""
    asked = selected(request, "name")
    names = sorted((name for name in SCRIPTS if name in asked), key=lambda name: name.startswith("keras_2"))
    folder = tmp_path_factory.mktemp("scripts")
    files = {"within": "within/__main__.py", "within.train": "within/train.py"}
    (folder / "site-packages").mkdir()
    (folder / "within").mkdir()
    (folder / "within" / "__init__.py").touch()
    (folder / "within" / "helper.py").write_text("def take(data):\n    return data.take(3)\n")
    for name, (body, _) in SCRIPTS.items():
        head = HEAD.partition("data = ")[0] if name in BARE else HEAD
        (folder / files.get(name, f"{name}.py")).write_text(head + body)
    (folder / "site-packages" / "helper.py").write_text(
        "def bar(data):\n    for each in data:\n        yield each[1]\n"
    )
    (folder / "imported.py").write_text(HEAD + "model.fit(data)")
    (folder / "looped.py").write_text(
        "import tensorflow as tf\nweight = tf.Variable(1.0)\ndef epoch(data, trains):\n    for x, y in data:\n"
        "        if trains:\n            with tf.GradientTape(): weight.assign(tf.reduce_sum(x))\n"
    )
    (folder / "loop_beside.py").write_text(
        "import tensorflow as tf\n\ndef train(data):\n    for epoch in range(2):\n        for x, y in data:\n"
        "            with tf.GradientTape(): pass\n"
    )
    (folder / "beside.py").write_text("def train(model, data):\n    model.fit(data)\n")
    (folder / "torch_step.py").write_text("import torch\ndef train(x):\n    torch.autograd.backward(x)\n")
    (folder / "stand_in" / "torch" / "autograd").mkdir(parents=True)
    (folder / "stand_in" / "torch" / "__init__.py").write_text("from torch import autograd\n")
    (folder / "stand_in" / "torch" / "autograd" / "__init__.py").write_text("def backward(x): pass\n")
    variables = {**os.environ, "TMPDIR": str(folder)}  # the forks end without removing AutoGraph's files
    command = [sys.executable, "-c", RUN, *names]
    subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, check=True, timeout=600, env=variables)
    assert not (folder / "after").exists(), "the script went on behind its training"
    assert "frees" not in names or (folder / "freed").exists(), "the buffers of its loop go on filling"
    assert not (folder / "stepped").exists(), "a step of the training was run"
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in names}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in BROADER else ()) for name in SCRIPTS]
)
def test_what_a_script_was_about_to_train_on_is_found(found: dict[str, Any], name: str) -> None:
    expected = SCRIPTS[name][1]
    if isinstance(expected, str):
        assert expected in found[name]
    else:
        assert found[name] == expected
