"""Which arguments of a step are made of no batch, by the text of the loop around it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.script import loop_step
from pipeline_bench.user_code import source_loops

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
    initialize_state = get_next
encoder, samples = Encoder(), Samples()
class Trainer: pass
trainer = Trainer()
trainer.encoder, trainer.samples = encoder, samples
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
        (
            "def fit(self):\n    for epoch in range(1):\n        hidden = self.encoder.initialize_hidden_state()\n"
            "        for x in batches: step(x, hidden)\nfit(trainer)",
            {1},
        ),
        ("for x in batches:\n    step(x, trainer.samples.initialize_state())", set()),
        ("for x in batches:\n    step(x, trainer.encoder.last_state())", set()),
        ("for x in batches:\n    trainer.encoder = Encoder()\n    step(x, trainer.encoder.init_state())", set()),
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


class Trainer:
    def __init__(self) -> None:
        self.step, self.first, self.mixed = 0, True, True


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for i, x in enumerate(xs): step(x, i == 0)", {1: False}),  # of horovod, and of SageMaker
        ("for i, x in bar(enumerate(xs)): step(x, warmup=i < 3)", {"warmup": False}),
        (  # of SIM: the variable is what the loop makes of its counter, and of the epoch's number
            "def epoch(number):\n    for i, x in enumerate(xs):\n        first = (i == 0 and number == 0)\n"
            "        step(x, first)\nepoch(0)",
            {1: False},
        ),
        (  # of ELECTRA: in neither of the first two rounds both are as in most
            "count, every = 0, 4\nwhile True:\n    x = xs\n    step(x, count == 1, take=count % every == 0)\n"
            "    count += 1",
            {1: False, "take": False},
        ),
        ("i = 0\nwhile i < 9:\n    step(xs, i == 0)\n    i = i + 1", {1: False}),
        ("first = True\nfor x in xs:\n    step(x, first)\n    first = False", {1: False}),
        ("first = True\nfor x in xs:\n    step(x, not first)\n    if first:\n        first = False", {1: True}),
        ("for x in xs:\n    step(x, own.first)\n    own.first = False", {1: False}),
        ("for x in xs:\n    step(x, own.step == 0)\n    own.step += 1", {1: False}),
        ("for epoch in range(2):\n    for x in xs: step(x, epoch == 0)", {1: True}),  # in all of the first epoch
        ("for i, x in enumerate(xs): step(x, i % 2 == 0, training=True)", {1: True, "training": True}),
        ("for i, x in enumerate(xs): step(x, own.mixed, i < 9999)", {1: True, 2: True}),
        ("flag = True\ndef run(training):\n    for x in xs: step(x, training, flag)\nrun(True)", {1: True, 2: True}),
        ("for x in xs: step(x, bool(own.step == 0))", {}),  # nothing of the user's is called
        ("first = True\nfor i, x in enumerate(xs):\n    step(x, first)\n    if i == 500: first = False", {}),
        ("first = True\nfor x in xs:\n    step(x, first)\n    first = not first", {}),
        ("first = True\nfor x in xs:\n    step(x, first)\n    first = False\n    first = True", {}),
        ("for x in xs:\n    for k in range(3): step(x, k == 0)", {}),  # in every third call
        ("for x in xs:\n    step(x, len(xs) == 2)", {}),
        ("for i, x in enumerate(xs):\n    step(x, i % (1 - i) == 0)", {}),  # fails one round later
        ("def inner(x, first): step(x, first)\nfor i, x in enumerate(xs): inner(x, i == 0)", {}),
        ("for i, x in enumerate(xs): step(x, i == 0), step(x, i != 0)", {}),
        ("for i, x in enumerate(xs): step(*[x, i == 0])", {}),
        ("for i, x in enumerate(xs): step(x, i)", {}),
    ],
)
def test_a_flag_is_what_it_is_in_most_rounds_of_the_loop_where_the_text_tells(
    loop: str, expected: dict[int | str, bool], tmp_path: Path
) -> None:
    found: list[dict[int | str, bool]] = []
    script = tmp_path / "train.py"
    script.write_text(loop)

    class ReachedError(Exception):
        pass

    def step(*arguments: Any, **named: Any) -> None:
        frame = sys._getframe(1)
        taken_in = [each for each in source_loops.around(body=False) if each.file == str(script)]
        if "for k in" in loop:
            taken_in = taken_in[1:]  # the batches are taken in the outer one
        found.append(loop_step.in_most_rounds(frame, arguments, named, taken_in))
        raise ReachedError

    names = {"step": step, "xs": ["x", "y"], "bar": iter, "own": Trainer()}
    with pytest.raises(ReachedError):
        exec(compile(script.read_text(), str(script), "exec"), names)
    assert found == [expected]
