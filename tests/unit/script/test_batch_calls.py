"""Whether a loop calls more for each batch than one step, by the text of the loop and of what it calls."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipeline_bench.script import batch_calls
from pipeline_bench.user_code import source_loops
from pipeline_bench.user_code.source_loops import SourceLoop

HEAD = """\
class Function:
    def __init__(self, function): self.function = function
    @property
    def python_function(self): return self.function
    def get_concrete_function(self): 1 / 0
    def __call__(self, *given): return self.python_function(*given)
from contextlib import nullcontext
class tf: GradientTape = nullcontext
class net: train_on_batch = str
train = Function(lambda x: step())
@Function
def other(*x): tf.GradientTape()
@Function
def validate(*x): return x
def helper(): deeper()
def deeper(): other()
def hands_on(x): train(x)
def does_both(x):
    other()
    train(x)
class Gan:
    def all(self, x):
        self.critic(x)
        self.generator()
    @Function
    def critic(self, x): step()
    @Function
    def generator(*given): return 1
    @property
    def raises(self): 1 / 0
gan, Gan.critic, strategy = Gan(), Function(lambda x: step()), True
"""


BODIES = [
    ("train(x)", False),
    ("train(\n        x)", False),
    ("hands_on(x)", False),
    ("print, len([x]), str(train(x))", False),
    ("train(x)\n    train(x)", True),
    ("for _ in range(2): train(x)", False),  # in one line it cannot be told
    ("for _ in range(2):\n        train(x)", True),
    ("train(x)\n    for _ in range(2): other()", True),
    ("train(x)\n    other(x)", True),
    ("train(x)\n    net.train_on_batch(x)", True),
    ("train(x)\n    with tf.GradientTape(): pass", True),
    ("train(x)\n    helper()", True),
    ("does_both(x)", True),
    ("gan.all(x)", True),
    ("gan.critic(x)", False),
    ("gan.critic(x)\n    gan.raises", False),
    ("gan.critic(x)\n    gan.raises.of()", False),
    ("train(x)\n    try:\n        pass\n    finally:\n        other()", True),
    ("train(x)\n    if len(batches.left) % 5 == 0: other()", True),
    ("train(x)\n    if len(batches.left) % 5 == 0: validate(x)", False),
    ("train(x)\n    if strategy: other()", False),
    ("if strategy:\n        train(x)\n    else:\n        other()", False),
    ("if strategy:\n        train(x)\n        continue\n    other()", False),
    ("if strategy:\n        train(x)\n    other()", True),
    ("train(x)\n    def later(): other()", False),
    ("train(x)\n    break\n    other()", False),
    ("train(x)\n    missing.other", False),
]
FOR, WHILE = "for x in batches:\n    ", "while batches.left:\n    x = next(batches)\n    "
SOME = ("train(x)", "train(x)\n    train(x)", "for _ in range(2):\n        train(x)")


@pytest.mark.parametrize(
    ("loop", "body", "expected"),
    [
        *((FOR, *each) for each in BODIES),
        *((WHILE, *each) for each in BODIES if each[0] in SOME or "continue" in each[0] or "finally" in each[0]),
    ],
)
def test_a_loop_that_calls_more_for_each_batch_than_its_step_is_told_from_one_that_does_not(
    loop: str, body: str, expected: bool, tmp_path: Path
) -> None:
    taken_in: list[tuple[SourceLoop, ...]] = []
    found: list[str] = []

    class Batches:
        left: list[int]

        def __iter__(self) -> Batches:
            return self

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            taken_in.append(tuple(source_loops.around(body=False)))
            return self.left.pop()

    def step() -> None:
        frame = sys._getframe(1)  # of the tf.function; the call of it is outside of `__call__`
        while frame.f_code.co_name in ("<lambda>", "__call__") and frame.f_back is not None:
            frame = frame.f_back
        found.append(batch_calls.part("train", taken_in[0], frame))

    script = tmp_path / "train.py"
    text = HEAD + "for epoch in range(1):\n" + "".join(f"    {each}\n" for each in (loop + body).splitlines())
    script.write_text(text)
    batches = Batches()
    batches.left = [1, 2]
    names = {"step": step, "batches": batches, "missing": None}
    try:
        exec(compile(text, str(script), "exec"), names)
    except (AttributeError, ZeroDivisionError):
        assert "raises" in body or "missing" in body
    assert found[0] == ("train" if expected else "")


def test_a_batch_that_a_loop_takes_before_the_one_that_trains_tells_nothing() -> None:
    assert batch_calls.part("train", [SourceLoop(1, "train.py", 2)], sys._getframe()) == ""
