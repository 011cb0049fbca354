"""The generator source in Python: how its samples are numbered, what it leaves out, and what it says of bad ones."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline_bench.errors import UsageError
from pipeline_bench.sources import RecordError, Sample
from pipeline_bench.sources.generator import Generator

Write = Callable[..., Generator]


@pytest.fixture
def write(tmp_path: Path, request: pytest.FixtureRequest) -> Write:
    """A source over a file whose function `make` has that body."""

    def written(body: str, **options: Any) -> Generator:
        path = tmp_path / f"user_{abs(hash((request.node.name, body)))}.py"
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        path.write_text(f"import random\nimport numpy as np\ndef make(**arguments):\n{lines}\n", encoding="utf-8")
        return Generator({"callable": f"{path}:make", "batch_size": 2, **options})

    return written


def samples(source: Generator, count: int) -> list[Sample]:
    return list(islice(source.streams(1)[0], count))


def labels(found: list[Sample]) -> list[int]:
    return [int(sample.label) for sample in found]


PASS = "for i in range(3):\n    yield np.full((2, 2), i), i"


def test_passes_follow_each_other_and_the_numbers_go_on(write: Write) -> None:
    found = samples(write(PASS), 7)
    assert [sample.number for sample in found] == list(range(7))
    assert labels(found) == [0, 1, 2, 0, 1, 2, 0]
    assert found[0].features.dtype == np.float32
    assert found[0].label.dtype == np.int64


def test_what_the_samples_look_like_comes_from_a_call_of_its_own(write: Write) -> None:
    source = write(PASS)
    source.prepare(None)
    features, label = source.sample_specs
    assert (features.dtype, features.shape, label.dtype, label.shape) == ("float32", (2, 2), "int64", ())
    assert labels(list(source.reserved("evaluation"))) == [0, 1]
    assert labels(samples(source, 1)) == [0]


@pytest.mark.parametrize(
    "given",
    [
        "yield [[1, 2]], 1",
        "yield (np.array([[1, 2]], np.uint8), np.int8(1))",
        "yield {'features': [[1, 2]], 'label': [1], 'more': 0}",
        "yield [[[1, 2]], 1.0]",
        "return iter([([[True, 2]], True)])",
    ],
)
def test_samples_come_in_many_forms(write: Write, given: str) -> None:
    (found,) = samples(write(given), 1)
    np.testing.assert_array_equal(found.features, [[1, 2]])
    assert found.label == 1
    assert found.label.shape == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("np.zeros((2, 3)), 1", r"has features of shape \(2, 3\), the first one \(2, 2\)"),
        ("np.array([['a', 'b'], ['c', 'd']]), 1", "has features of dtype <U1"),
        ("[[1, 2], [3]], 1", "has features that are no array"),
        ("np.zeros((2, 2)), 1.5", "has the label 1.5; a label is a whole number"),
        ("np.zeros((2, 2)), np.eye(3)[0]", r"has a label of shape \(3,\)"),
        ("np.zeros((2, 2))", "is of type ndarray; it must be"),
        ("1, 2, 3", "is of type tuple of 3; it must be"),
        ("{'image': 1}", "is a dict of 'image'; it needs 'features' and 'label'"),
    ],
)
def test_a_bad_sample_is_told_by_its_number(write: Write, given: str, words: str) -> None:
    source = write(f"yield np.zeros((2, 2)), 0\nyield np.ones((2, 2)), 0\nyield {given}")
    with pytest.raises(RecordError, match=rf"^Sample 3 of the generator .*:make {words}"):
        samples(source, 3)


def test_bad_samples_can_be_left_out_and_are_counted(write: Write) -> None:
    source = write("yield [1], 0\nyield [1, 2], 1\nyield [3], 2", on_error="skip", batch_size=1)
    found = samples(source, 4)
    assert labels(found) == [0, 2, 0, 2]
    assert [sample.number for sample in found] == [0, 2, 3, 5]
    assert list(source.skipped) == [1, 4]
    assert "has features of shape (2,)" in source.skipped[1]


def test_a_generator_that_raises_is_told_with_its_line_and_how_far_it_came(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write("for i in range(5):\n    yield [i], 0\nraise ValueError('no\\nluck')")
    with pytest.raises(RecordError, match=r"make raised ValueError: no luck after 5 samples \(user_\d+\.py:6\)\.$"):
        samples(source, 6)
    shown = capfd.readouterr().err
    assert "raise ValueError('no\\nluck')" in shown
    assert "sources/generator.py" not in shown


def test_a_generator_that_raises_can_be_called_again(write: Write) -> None:
    source = write("yield [1], 0\nyield [2], 1\nraise KeyError('x')", on_error="skip")
    assert labels(samples(source, 5)) == [0, 1, 0, 1, 0]
    assert list(source.skipped) == [2, 5]
    assert "raised KeyError: 'x' after 2 samples" in source.skipped[2]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("body", ["return iter([])", "yield from ()", "raise ValueError('at once')", "return 3"])
def test_a_pass_without_a_sample_ends_the_trial(write: Write, body: str, on_error: str) -> None:
    with pytest.raises(RecordError, match=r"ended without giving a sample|before its first sample"):
        samples(write(body, on_error=on_error), 1)


def test_endless_bad_samples_are_not_left_out_for_ever(write: Write) -> None:
    source = write("yield [1], 0\nwhile True:\n    yield 'bad'", on_error="skip", batch_size=1)
    with pytest.raises(RecordError, match="1,000 samples in a row were left out; the last one: Sample 1,001 "):
        samples(source, 2)


def test_sys_exit_in_a_generator_is_an_error_like_any_other(write: Write) -> None:
    with pytest.raises(RecordError, match=r"raised SystemExit: 3 after 2 samples"):
        samples(write("yield [1], 0\nyield [1], 0\nraise SystemExit(3)"), 3)


def test_an_array_that_is_filled_again_and_again_is_copied(write: Write) -> None:
    source = write("buffer = np.zeros(1, np.float32)\nfor i in range(3):\n    buffer[0] = i\n    yield buffer, i")
    assert [float(sample.features[0]) for sample in samples(source, 3)] == [0, 1, 2]


def test_uneven_samples_have_a_length_up_to_the_option(write: Write) -> None:
    source = write("for i in (1, 3, 2):\n    yield np.ones((i, 4)), i", length=3)
    assert source.sample_specs[0].shape == (None, 4)
    assert source.padded_shape == (3, 4)
    assert source.uneven
    _, features, _ = source.stacked(samples(source, 3))
    assert features.shape == (3, 3, 4)
    assert features.sum() == 6 * 4
    with pytest.raises(RecordError, match=r"has features of shape \(3, 4\), and `length` allows 2"):
        samples(write("yield np.ones((1, 4)), 0\nyield np.ones((3, 4)), 0", length=2), 2)
    with pytest.raises(RecordError, match="only the first axis may differ"):
        samples(write("yield np.ones((1, 4)), 0\nyield np.ones((1, 5)), 0", length=2), 2)


def test_threads_share_one_generator_and_each_sample_comes_once(write: Write) -> None:
    streams = write("for i in range(10**6):\n    yield [i], 0").streams(4)
    found: list[list[Sample]] = [[] for _ in streams]

    def take(stream: Iterator[Sample], into: list[Sample]) -> None:
        into += islice(stream, 200)

    threads = [threading.Thread(target=take, args=pair) for pair in zip(streams, found, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = sorted((sample.number, float(sample.features[0])) for part in found for sample in part)
    assert every == [(i, float(i)) for i in range(800)]


def test_an_exception_reaches_every_thread(write: Write) -> None:
    first, second = write("yield [1], 0\nyield [2], 0\nraise ValueError('planted')").streams(2)
    next(first)
    next(second)
    for stream in (first, second, first):
        with pytest.raises(RecordError, match="planted"):
            next(stream)


def test_what_comes_with_a_number_is_known_once_it_was_given(write: Write) -> None:
    source = write("for i in range(3000):\n    yield [i + 0.5], 0")
    identity = source.identity
    found = samples(source, 2500)
    numbers = np.array([sample.number for sample in found])
    np.testing.assert_array_equal(identity.fingerprints(numbers), numbers + np.float32(0.5))
    assert np.isinf(identity.fingerprints(np.array([2500, 10**6]))).all()
    assert np.isnan(identity.fingerprints(np.array([2**30]))).all()


def test_the_global_random_numbers_are_the_same_in_every_trial(write: Write) -> None:
    body = "while True:\n    yield [random.random(), np.random.rand()], 0"
    found = []
    for seed in (0, 0, 1):
        state = random.getstate()
        found.append([sample.features.tolist() for sample in samples(write(body, seed=seed), 3)])
        random.setstate(state)
    assert found[0] == found[1] != found[2]


def test_arguments_reach_the_callable(write: Write) -> None:
    assert labels(samples(write("yield [1], arguments['label']", arguments={"label": 7}), 1)) == [7]


@pytest.mark.parametrize("text", ["train.py", "train.py:", ":make", "a-b:make", "train.py:a.b", "a..b:make"])
def test_a_callable_that_is_no_name_is_refused_with_the_options(text: str) -> None:
    with pytest.raises(ValidationError, match=r"path/to/file\.py:function or package\.module:function"):
        Generator({"callable": text})


def test_a_callable_that_is_not_there_is_refused_before_anything_is_run(write: Write) -> None:
    with pytest.raises(UsageError, match=r"^source\.callable: there is no file gone\.py\.$"):
        Generator({"callable": "gone.py:make"}).check()
    write("raise SystemExit").check()


def test_a_callable_that_cannot_be_imported_shows_the_users_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("broken", "\nimport no_such_module\n"), ("number", "make = 3")):
        (tmp_path / f"{name}_generator.py").write_text(text)
    with pytest.raises(RecordError, match=r"No module named 'no_such_module' \(broken_generator\.py:2\)"):
        Generator({"callable": f"{tmp_path}/broken_generator.py:make"}).prepare(None)
    shown = capfd.readouterr().err
    assert "import no_such_module" in shown
    assert "loading.py" not in shown
    with pytest.raises(RecordError, match="is no function: it is a int"):
        Generator({"callable": f"{tmp_path}/number_generator.py:make"}).prepare(None)
    with pytest.raises(RecordError, match="there is no 'other' in"):
        Generator({"callable": f"{tmp_path}/number_generator.py:other"}).prepare(None)


def test_the_built_in_generator_gives_small_images_and_the_same_ones_again() -> None:
    source = Generator({"arguments": {"samples": 20}})
    source.check()
    assert source.sample_specs[0].shape == (64, 64, 3)
    found = samples(source, 40)
    assert labels(found[:20]) == [i % 10 for i in range(20)]
    np.testing.assert_array_equal(found[3].features, found[23].features)
    assert not np.array_equal(found[3].features, found[13].features)
    assert np.isfinite(found[3].features).all()
