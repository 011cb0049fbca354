"""Which arguments of a step are made of no batch, by the text of the loop around it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.script import loop_step

HEAD = """\
import numpy as np
SIZE, mask, batches = 4, np.ones(3), [np.zeros(2)]
def make(): return np.ones(3)
class Layer: last = mask
Layer.__module__ = "keras.src.layers.layer"
class Encoder(Layer):
    def init_state(self, size=2): return np.zeros(size)
    def last_state(self): return np.zeros(2)
    initialize_hidden_state = get_initial_state = zero_state = init_state
class Samples:
    def get_next(self): return np.zeros(2)
encoder, samples = Encoder(), Samples()
"""


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for x in batches:\n    step(x, mask)", set()),
        ("for x in batches:\n    def steps(y, z=x * 2):\n        for _ in range(1): step(y, z)\n    steps(x)", set()),
        (
            "def steps(x, size):\n    for _ in range(1): step(x, np.zeros(size))\nfor x in batches: steps(x, len(x))",
            set(),
        ),
        ("def steps(x):\n    for _ in range(1): step(x, np.zeros(SIZE))\nfor x in batches: steps(x)", {1}),
        ("for x in batches:\n    match (x * 2, 1):\n        case (u, v): step(x, u)", set()),
        ("for x in batches:\n    match len(x):\n        case n: step(x, np.zeros(n))", set()),
        ("for x in batches:\n    noise = np.zeros(2)\n    noise[:] = x\n    step(x, noise)", set()),
        ("for x in batches:\n    noise = [1]\n    noise.append(x)\n    step(x, noise)", set()),
        ("for x in batches:\n    noise = np.zeros(2)\n    np.copyto(noise, x)\n    step(x, noise)", set()),
        (
            "for epoch in range(1):\n    for x in batches:\n        step(x, z=np.zeros((SIZE * 2, 3), 'f4'))",
            {"z"},
        ),
        (
            "for x in batches:\n    noise = np.random.normal(0, 1, [SIZE]).astype('f4')\n    str(step(x, noise))",
            {1},
        ),
        ("while batches:\n    x = batches.pop()\n    noise = np.zeros(SIZE)\n    step(noise, x)", {0}),
        ("while batches:\n    x = batches.pop()\n    step(x, x)", set()),
        ("for x in batches:\n    noise = np.zeros(len(x))\n    step(x, noise)", set()),
        ("for x in batches:\n    size = x.shape[0]\n    noise = np.zeros(size)\n    step(x, noise)", set()),
        ("for x in batches:\n    noise = np.zeros(SIZE)\n    noise += x.sum()\n    step(x, noise)", set()),
        ("for x in batches:\n    step(x, make())", set()),
        ("for x in batches:\n    step(x, np.square(mask))", set()),
        ("for epoch in range(1):\n    for x in batches:\n        step(x, mask)\n    mask = x", set()),
        ("def turn():\n    global mask\n    mask = mask.T\nfor x in batches:\n    turn()\n    step(x, mask)", set()),
        ("for x in batches:\n    step(x, mask), step(mask, x)", set()),
        ("for x in batches:\n    step(*[x, mask])", set()),
        ("step(batches, mask)", set()),
        (
            "for epoch in range(1):\n    state = encoder.init_state()\n    for x in batches:\n        step(x, state)",
            {1},
        ),
        ("def run(own):\n    for x in batches: step(x, own.init_state())\nrun(encoder)", {1}),
        ("for x in batches:\n    state = encoder.init_state(len(x))\n    step(x, state)", set()),
        ("for x in batches:\n    encoder = Encoder()\n    step(x, encoder.init_state())", set()),
        ("state = encoder.init_state()\nfor x in batches:\n    str(step(x, state))\n    state = x", set()),
        ("for x in batches:\n    step(x, encoder.last)", set()),
        ("for x in batches:\n    step(x, encoder.last_state())", set()),
        *(
            (f"for x in batches:\n    step(x, encoder.{name}())", {1})
            for name in ("initialize_hidden_state", "get_initial_state", "zero_state")
        ),
        ("for x in batches:\n    step(x, samples.get_next())", set()),
    ],
)
def test_an_argument_is_of_no_batch_that_is_there_before_the_loop_or_made_of_numbers(
    loop: str, expected: set[int | str], tmp_path: Path
) -> None:
    found = []

    def step(*arguments: Any, **named: Any) -> int:
        found.append(loop_step.of_no_batch(sys._getframe(1), len(arguments), [*named]))
        return 1

    script = tmp_path / "train.py"
    script.write_text(HEAD + loop)
    exec(compile(script.read_text(), str(script), "exec"), {"step": step})
    assert found[0] == expected
