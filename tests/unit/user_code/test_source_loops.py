"""Which loops of a text a call stands in."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline_bench.user_code import source_guards
from pipeline_bench.user_code.source_loops import SourceLoop, around, is_replaced, repeating

KEPT: dict[str, list[SourceLoop]] = {}


class Options:
    """Holds numbers, and computes one."""

    size = 12
    changed = 3

    def __init__(self) -> None:
        self.steps = 8
        self.own = SimpleNamespace(steps=9)

    @property
    def computed(self) -> int:
        raise AssertionError("the user's code was run")


class Flags:
    """As absl holds them."""

    def __init__(self) -> None:
        self.__dict__["__flags"] = {"steps": SimpleNamespace(_value=6)}


LAST: list[SourceLoop] | None = None


def here() -> list[SourceLoop]:
    found = list(around())
    return [loop for loop in found if loop.file == __file__]


def always() -> list[SourceLoop]:
    found = list(repeating())
    return [loop for loop in found if loop.file == __file__]


def test_the_innermost_loop_comes_first_with_those_of_the_callers_behind_it() -> None:
    for _ in range(1):
        outer = here()
        while True:
            both = here()
            break
    assert len(outer) == 1
    assert both[1:] == outer
    assert both[0].line > outer[0].line


def test_what_a_loop_goes_over_is_made_once_and_its_body_each_time() -> None:
    for goes_over in (here(),):
        assert goes_over == []
        assert len(here()) == 1
    assert here() == []


def test_a_loop_that_defines_a_function_does_not_repeat_its_calls() -> None:
    for _ in range(1):

        def defined() -> list[SourceLoop]:
            return here()

    assert defined() == []


def test_a_loop_in_one_line_counts_where_all_count() -> None:
    found = [__file__ in {each.file for each in list(around(body=body))} for body in (True, False) for _ in range(1)]
    assert found == [False, True]


def test_what_a_comprehension_goes_over_and_what_follows_a_loop_are_made_once() -> None:
    # fmt: off
    repeated, once = zip(*[
        (here(), over)
        for over
        in [here()]
    ], strict=True)
    # fmt: on
    assert [len(*repeated), len(*once)] == [1, 0]
    for is_last in (False,):
        if is_last:
            break
    else:
        assert here() == []


def test_a_generators_loop_has_the_loop_that_takes_from_it_repeat_its_calls() -> None:
    def epochs() -> Iterator[tuple[list[SourceLoop], list[SourceLoop]]]:
        before = here()
        for _ in range(2):
            yield before, here()

    for before, each in epochs():
        assert len(before) == 0
        assert len(each) == 2
        assert each[1:] == here()
    for _, each in list(epochs()):
        assert len(each) == 1


def test_a_generator_that_hands_on_another_ones_elements_goes_round_with_it() -> None:
    def epochs() -> Iterator[list[SourceLoop]]:
        for _ in range(2):
            yield here()

    def handed_on() -> Iterator[list[SourceLoop]]:
        yield from epochs()

    for each in handed_on():
        assert each[1:] == here()


@functools.cache
def cached() -> list[SourceLoop]:
    return always()


def in_a_dict(name: str) -> list[SourceLoop]:
    if name not in KEPT:
        KEPT[name] = always()
    return KEPT[name]


def returned_early(name: str) -> list[SourceLoop]:
    found = KEPT.get(name)
    if found is not None:
        return found
    KEPT[name] = found = always()
    return found


def tried_first(name: str) -> list[SourceLoop]:
    try:
        return KEPT[name]
    except KeyError:
        KEPT[name] = always()
    return KEPT[name]


def in_a_global() -> list[SourceLoop]:
    global LAST  # noqa: PLW0603 - as scripts do
    if LAST is None:
        LAST = always()
    return LAST


class Input:
    """Keeps what it made in an attribute."""

    def __init__(self) -> None:
        self.found: list[SourceLoop] | None = None

    def get(self) -> list[SourceLoop]:
        if self.found is None:
            self.found = always()
        return self.found

    @functools.cached_property
    def data(self) -> list[SourceLoop]:
        return always()


@pytest.mark.parametrize(
    "make",
    [
        cached,
        lambda: in_a_dict("dict"),
        lambda: returned_early("early"),
        lambda: tried_first("tried"),
        in_a_global,
        Input().get,
        lambda: Input().data,
    ],
)
def test_what_a_function_keeps_is_not_made_anew_by_the_loop_that_calls_it(make: Callable[[], list[SourceLoop]]) -> None:
    for _ in range(1):
        assert make() == []


def configured(training: bool, size: int | None = None) -> list[SourceLoop]:
    if size is None:
        size = 32
    if not training:
        return []
    return always() if size else []


def test_a_condition_that_comes_out_alike_in_each_round_leaves_a_loop_to_make_what_it_makes() -> None:
    training = True
    for epoch in range(1):
        assert len(configured(training)) == 1
        if training:
            assert len(always()) == 1
        assert epoch == 0


def test_what_only_some_rounds_make_is_not_made_anew_by_each() -> None:
    made: list[SourceLoop] | None = None
    for epoch in range(1):
        if epoch == 0:
            first = always()
        if made is None:
            made = always()
        try:
            raise NameError
        except NameError:
            failed = always()
        for _ in range(1):
            if epoch == 0:
                inner = always()
    assert (first, made, failed) == ([], [], [])
    assert len(inner) == 1, "the inner loop makes it each time, and only the outer one does not"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("if step >= 20: break", [21]),
        ("if step > options.steps: break", [10]),
        ("if step == steps + 1:\n        print(step)\n        break", [7]),
        ("if step >= unknown: break", []),
        ("if loss > 20: break", []),
        ("if step >= 20: continue", []),
        ("if loss > 9: continue\n    if step == 20: break", []),
        ("if step <= 20: break", []),
        ("if step >= 20 > epoch: break", []),
        ("step = step // 4\n    if step >= 20: break", []),
        ("for _ in batch:\n        if step >= 20: break", []),
    ],
)
@pytest.mark.parametrize("begins", ["", ", 2", ", start=2"])
def test_a_loop_that_counts_is_left_after_a_number_that_is_known(
    condition: str, expected: list[int], begins: str
) -> None:
    (loop,) = ast.parse(f"for step, batch in enumerate(data{begins}):\n    train(batch)\n    {condition}").body
    assert isinstance(loop, ast.For)
    expected = [number - 2 * bool(begins) for number in expected]
    assert list(source_guards.most_taken(loop, {"steps": 5, "options": SimpleNamespace(steps=8)})) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for _ in range(25): train(next(batches))", 25),
        ("for step in range(options.steps): train(*next(batches))", 8),
        ("for step in tqdm.tqdm(range(2, steps), desc='steps'): train(batches.get_next())", 3),
        ("for step in trange(steps): train(next(batches), next(others))", 5),
        ("for step in range(0, steps, 2): train(next(batches))", 3),
        ("for step in range(options.size * steps // 2 - 1): train(next(batches))", 29),
        ("for step in range(held['train']['steps']): train(next(batches))", 7),
        ("for step in range(int(options.own.steps / 2)): train(next(batches))", 4),
        ("for step in range(FLAGS.steps): train(next(batches))", 6),
        ("for step in range(options.computed): train(next(batches))", None),
        ("for step in range(options.changed): train(next(batches))", None),
        ("for step in range(steps // 0): train(next(batches))", None),
        ("for step in range(unknown): train(next(batches))", None),
        ("for step, batch in enumerate(zip(range(steps), batches)): train(batch)", 5),
        ("for batch in tqdm(islice(batches, 2, 12)): train(batch)", 12),
        ("for turn, batch in zip(cycle(range(2)), batches): train(batch)", None),
        ("for step in count(): train(next(batches))", None),
        ("for name in names: train(next(batches))", None),
    ],
)
def test_how_often_a_loop_over_a_range_goes_round_is_known(text: str, expected: int | None) -> None:
    (loop,) = ast.parse(text).body
    known = {
        "steps": 5,
        "options": Options(),
        "held": {"train": {"steps": 7}},
        "FLAGS": Flags(),
        "options.changed": None,
    }
    assert source_guards.rounds(loop, known) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for _ in range(5): train(next(batches))", True),
        ("for _ in range(5): train(next(batches), next(others))", True),
        ("for _ in range(5): train(next(batches), next(batches))", False),
        ("for _ in range(5): train(next(batches)), train(batches.get_next())", False),
        ("for _, x in zip(range(5), batches): train(x)", True),
        ("for _, x, y in zip(range(5), batches, batches): train(x, y)", False),
        ("for _, x in zip(range(5), batches): train(x, next(batches))", False),
        ("for _, some in enumerate(batched(batches, 4)): train(some)", False),
        ("for row in zip(range(8), next(batches)): train(row)", False),
        ("for _ in range(5): train(list(islice(batches, 4)))", False),
        ("for _ in range(5): step(batches)", True),
        ("for _ in range(5): step(batches, 1), step(batches, 2)", False),
        ("for _ in range(5): step(batches)\ndef step(batches): return next(batches)", True),
        ("for _ in range(5): step(batches)\ndef look(): return next(batches)", False),
        ("for _ in range(5): other(batches)", False),
        ("for _ in range(5): train(next(batches)), (lambda: next(batches))()", False),
        ("for _ in range(5): train(next(batches))\npretrain(batches)", False),
        ("for _ in range(5): train(next(batches))\nfor _ in range(3): next(batches)", False),
        ("for _ in range(5): train(next(batches))\nlook(next(batches))", True),
    ],
)
def test_whether_anything_else_takes_of_an_iterator_is_told(text: str, expected: bool) -> None:
    assert source_guards.take_alone(ast.parse(text).body, {"batches"}, [1], "step") is expected


@pytest.mark.parametrize(
    "head", ["for batch in data", "for step, batch in zip(steps, data)", "for step in enumerate(data)"]
)
def test_a_loop_that_does_not_count_from_its_beginning_is_not_known_to_be_left(head: str) -> None:
    (loop,) = ast.parse(f"{head}:\n    if step >= 20: break").body
    assert isinstance(loop, ast.For)
    assert not list(source_guards.most_taken(loop, {}))


class Data:
    """What a dataset is known by."""

    element_spec = None


TRAINS = "for batch in seen(is_replaced(), now): pass"


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        (f"now = data\nfor epoch in range(2):\n    {TRAINS}\n    now = Data()", True),
        (f"for fold in range(2):\n    now = Data()\n    for epoch in range(2):\n        {TRAINS}", False),
        (f"now, kept = data, {{0: data}}\nfor phase in range(2):\n    {TRAINS}\n    now = kept.get(0)", False),
        (f"now = data\nfor epoch in range(2):\n    {TRAINS}\n    now = like(data)", False),
    ],
    ids=["in each round", "in each outer round", "one of several", "made of the same"],
)
def test_a_loop_has_another_dataset_where_each_round_makes_one_anew(text: str, replaced: bool, tmp_path: Path) -> None:
    found: list[bool] = []

    def seen(told: bool, now: Data) -> list[Data]:
        found.append(told)
        return [now]

    script = tmp_path / "train.py"
    script.write_text(text, encoding="utf-8")
    names = {"Data": Data, "like": lambda data: Data(), "data": Data(), "seen": seen, "is_replaced": is_replaced}
    exec(compile(text, str(script), "exec"), names)
    assert set(found) == {replaced}
