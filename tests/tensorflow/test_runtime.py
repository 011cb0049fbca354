"""What a trial's runtime settings do to TensorFlow."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, sys
import tensorflow as tf
from pipeline_bench.scenario import Runtime
from pipeline_bench.worker import runtime

def threads(settings):
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    runtime.set_up(settings, None)
    # Its function is traced, which starts the runtime of eager execution before there is a session.
    ones = tf.data.Dataset.from_tensors(0).map(lambda _: tf.ones([4, 4]))
    made = v1.data.make_one_shot_iterator(ones).get_next()
    with v1.Session(config=runtime.session_config(settings)) as session:
        session.run(tf.matmul(made, made))
        return len(os.listdir("/proc/self/task"))

for asked in (1, 9):
    read, write = os.pipe()
    if os.fork() == 0:  # a process each: TensorFlow has one pool of such threads
        os.write(write, str(threads(Runtime(intra_op_threads=asked, inter_op_threads=1))).encode())
        os._exit(0)
    os.close(write)
    print(os.read(read, 16).decode())
    os.wait()
"""


def test_the_threads_of_an_op_are_those_asked_for_also_beside_tf_data() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True
    )
    one, nine = (int(line) for line in ran.stdout.split())
    assert nine - one == 8
