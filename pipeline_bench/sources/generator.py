"""generator: samples from a user's own Python generator, as most people's first input pipeline is written."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence, Sized
from functools import cached_property
from itertools import islice
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from pipeline_bench import user_code
from pipeline_bench.errors import UsageError, UserCodeError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.script import loading
from pipeline_bench.sources import ArraySpec, Identity, RecordError, Sample, SampleOptions, SampleSource
from pipeline_bench.text import line_of, sentence
from pipeline_bench.user_code import targets

_BUILT_IN = "pipeline_bench.sources.generator:augmented_images"
# A stream has no epochs that are visible from outside: all of it counts as one.
_ENDLESS_EPOCH = 2**40
# The first feature of so many samples is kept, 64 MiB of them.
_MOST_FINGERPRINTS = 2**24
# How many exceptions of a generator that goes on after them are written out in full.
_TRACEBACKS_SHOWN = 3
# After so many bad samples without a good one, skipping them is no way on.
_MOST_IN_A_ROW = 1000
_END = object()
_CLASSES = 10
_BORDER = 4


def _holds_none(value: Any) -> bool:
    """Return whether a value of a scenario is None, or has one in it at any depth."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return value is None or any(map(_holds_none, inner))


class GeneratorOptions(SampleOptions):
    """Which callable gives the samples, and how they are batched."""

    callable: Annotated[
        str | None,
        Field(
            description="path/to/file.py:function or package.module:function, which gives (features, label) or a dict "
            "of both for each sample; called again when it ends; unset: images that are augmented with NumPy"
        ),
    ] = None
    arguments: Annotated[dict[str, Any], Field(default_factory=dict, description="keyword arguments of the callable")]
    length: Annotated[
        int | None,
        Field(ge=1, le=2**24, description="samples differ in the first axis, up to this; unset: all have one shape"),
    ] = None
    seed: Annotated[
        int, Field(ge=0, lt=2**32, description="of Python's and NumPy's global random numbers, set before the first")
    ] = 0

    @field_validator("callable")
    @classmethod
    def _names_a_callable(cls, value: str | None) -> str | None:
        if value is not None:
            _target(value)
        return value

    @field_validator("arguments")
    @classmethod
    def _can_be_written(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        if _holds_none(arguments):
            raise ValueError("a null cannot be written to a scenario's file: leave that argument out")
        return arguments


class Generator(SampleSource):
    """One call's samples after another's without end, numbered through; several threads share it behind a lock."""

    name = "generator"
    summary = "a Python generator of your own, path/to/file.py:function; by default one that augments images in NumPy"
    Options = GeneratorOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._callable = _target(self.options.callable or _BUILT_IN)
        self._fingerprints = _Fingerprints()

    @property
    def identity(self) -> Identity:
        return Identity(_ENDLESS_EPOCH, self._fingerprints.of)

    @property
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        shape: tuple[int | None, ...] = self._first_batch[0].features.shape
        if self.options.length is not None:
            shape = (None, *shape[1:])
        return ArraySpec("float32", shape), ArraySpec("int64")

    @property
    def padded_shape(self) -> tuple[int, ...]:
        shape = self._first_batch[0].features.shape
        return shape if self.options.length is None else (self.options.length, *shape[1:])

    def check(self) -> None:
        try:
            definition = targets.check(self._callable, "generator")
            targets.check_arguments(definition, self._callable.text, self.options.arguments)
        except UsageError as error:
            raise UsageError(f"source.callable: {error.message}.", sentence(error.hint)) from None

    def prepare(self, config: Any) -> None:
        """Take a batch from a call of its own: what the samples look like, and what the evaluation is made on."""
        assert self._first_batch

    def streams(self, threads: int) -> list[Iterator[Sample]]:
        shared = _SharedIterator(self._noting_fingerprints())
        return [shared] * threads

    def reserved(self, purpose: str) -> Sequence[Sample]:
        """Return the first samples of a call of its own, which the training's call gives as well."""
        return self._first_batch

    @cached_property
    def _function(self) -> Any:
        try:
            function = loading.load(self._callable)
        except UserCodeError as error:
            raise RecordError(f"The generator {self._callable.text}: {error.message}.") from error
        except (Exception, SystemExit) as error:
            _print_traceback(error)
            message = f"The generator {self._callable.text} cannot be imported: {line_of(error)}"
            raise RecordError(f"{message}{user_code.line_in(error)}.") from error
        if not callable(function):
            what = f"it is a {type(function).__name__}"
            raise RecordError(f"The generator {self._callable.text} is no function: {what}.")
        return function

    @cached_property
    def _first_batch(self) -> Sequence[Sample]:
        return list(islice(self._samples({}, None), self.batch_size))

    def _noting_fingerprints(self) -> Iterator[Sample]:
        for sample in self._samples(self.skipped, self._first_batch[0].features.shape):
            self._fingerprints.note(sample)
            yield sample

    def _samples(self, skipped: dict[int, str], shape: tuple[int, ...] | None) -> Iterator[Sample]:
        """Yield the samples of one call after another.

        Args:
            skipped: takes the numbers of what is left out, and why.
            shape: of the first sample's features; None: this is where it is found.
        """
        random.seed(self.options.seed)
        np.random.seed(self.options.seed)  # the numbers that the user's code draws
        number = 0
        while True:
            good = bad_in_a_row = 0
            values = self._pass(number, skipped)
            while True:
                try:
                    if (value := next(values, _END)) is _END:
                        break
                    sample = self._sample(number, value, shape)
                except RecordError as error:
                    if not self.skips:
                        raise
                    skipped[number] = error.message
                    bad_in_a_row += 1
                    if bad_in_a_row == _MOST_IN_A_ROW:
                        message = f"{bad_in_a_row:,} samples in a row were left out; the last one: {error.message}"
                        raise RecordError(message) from None
                else:
                    shape = sample.features.shape if shape is None else shape
                    good, bad_in_a_row = good + 1, 0
                    yield sample
                number += 1
            if not good:
                last = next(reversed(skipped.values()), "")
                raise RecordError(f"The generator {self._callable.text} ended without giving a sample. {last}".rstrip())

    def _pass(self, number: int, skipped: Sized) -> Iterator[Any]:
        """Yield what one call gives.

        Raises:
            RecordError: it raised; that ends the call.
        """
        function, given = self._function, None
        while True:
            try:
                given = iter(function(**self.options.arguments)) if given is None else given
                value = next(given, _END)
            except BaseException as error:  # a sys.exit() in it, for one, would end a thread without a word
                if len(skipped) < _TRACEBACKS_SHOWN:
                    _print_traceback(error)
                raise self._error_of(error, number) from error
            if value is _END:
                return
            yield value
            number += 1

    def _error_of(self, error: BaseException, number: int) -> RecordError:
        after = f"after {number:,} sample{'' if number == 1 else 's'}" if number else "before its first sample"
        where = user_code.line_in(error, self._function)
        return RecordError(f"The generator {self._callable.text} raised {line_of(error)} {after}{where}.")

    def _sample(self, number: int, value: Any, shape: tuple[int, ...] | None) -> Sample:
        """Return a value as a sample.

        Raises:
            RecordError: it is none.
        """
        try:
            features, label = _arrays_of(*_split(value))
            self._check_shape(features, shape)
        except ValueError as error:
            raise RecordError(f"Sample {number + 1:,} of the generator {self._callable.text} {error}.") from None
        return Sample(number, features, label)

    def _check_shape(self, features: npt.NDArray[np.float32], first: tuple[int, ...] | None) -> None:
        shape, length = features.shape, self.options.length
        if length is None:
            if first is not None and shape != first:
                raise ValueError(f"has features of shape {shape}, the first one {first}; uneven ones need `length`")
            if not features.size:
                raise ValueError(f"has no features: they are of shape {shape}")
        elif not shape or (first is not None and shape[1:] != first[1:]):
            raise ValueError(f"has features of shape {shape}, the first one {first}; only the first axis may differ")
        elif shape[0] > length:
            raise ValueError(f"has features of shape {shape}, and `length` allows {length} in the first axis")


def _target(text: str) -> Target:
    """Return the function that a scenario names.

    Raises:
        ValueError: it is no name of one; says what is allowed.
    """
    where, colon, name = text.rpartition(":")
    if colon and name.isidentifier() and where.endswith(".py"):
        return Target(file=where, name=name)
    if colon and name.isidentifier() and all(map(str.isidentifier, where.split("."))):
        return Target(module=where, name=name)
    raise ValueError("it must be path/to/file.py:function or package.module:function")


def _print_traceback(error: BaseException) -> None:
    sys.stderr.write(f"{user_code.traceback_of(error)}\n")
    sys.stderr.flush()


class _SharedIterator(Iterator[Sample]):
    """One iterator for several threads: each sample goes to one of them, an exception to all."""

    def __init__(self, samples: Iterator[Sample]) -> None:
        self._samples = samples
        self._lock = threading.Lock()
        self._failure: Exception | None = None

    def __next__(self) -> Sample:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            try:
                return next(self._samples)
            except Exception as error:
                self._failure = error
                raise


class _Fingerprints:
    """The first feature of every sample that was given, by its number; grows as they come."""

    def __init__(self) -> None:
        self._known = np.full(1024, np.inf, dtype=np.float32)

    def note(self, sample: Sample) -> None:
        """Remember a sample; called by one thread at a time."""
        if sample.number >= _MOST_FINGERPRINTS:
            return
        if sample.number >= len(self._known):
            self._known = np.pad(self._known, (0, len(self._known)), constant_values=np.inf)
        self._known[sample.number] = sample.features.flat[0] if sample.features.size else 0.0

    def of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """First features, float32; infinite of samples that were never given, NaN of those beyond what is kept."""
        known = self._known  # another thread may put a larger one in its place
        found = np.full(numbers.shape, np.inf, dtype=np.float32)
        inside = numbers < len(known)
        found[inside] = known[numbers[inside]]
        found[numbers >= _MOST_FINGERPRINTS] = np.nan
        return found


def _split(value: Any) -> tuple[Any, Any]:
    """Features and label of what a generator gave.

    Raises:
        ValueError: it is neither a pair nor a dict of both; this and what follows go on after "Sample 41 of … ".
    """
    if isinstance(value, dict):
        if not {"features", "label"} <= value.keys():
            given = ", ".join(sorted(map(repr, value)))
            raise ValueError(f"is a dict of {given or 'nothing'}; it needs 'features' and 'label'")
        return value["features"], value["label"]
    if isinstance(value, tuple | list) and len(value) == 2:  # noqa: PLR2004 - a pair
        return value[0], value[1]
    what = f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__
    raise ValueError(
        f"is of type {what}; it must be (features, label), or a dict of both: does it yield, one sample each?"
    )


def _arrays_of(features: Any, label: Any) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Features as float32, a copy: many generators fill one array again and again; the label as int64 []."""
    values, classes = _number_array(features, "features"), _number_array(label, "a label")
    if classes.size != 1:
        raise ValueError(f"has a label of shape {classes.shape}; a label is one whole number, the sample's class")
    whole = classes.reshape(()).astype(np.int64)
    if whole != classes.reshape(()):
        raise ValueError(f"has the label {classes.reshape(()).item()!r}; a label is a whole number, the sample's class")
    return values.astype(np.float32), whole


def _number_array(value: Any, what: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"has {what} that are no array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"has {what} of dtype {array.dtype}, which is no type of real numbers")
    return array


def augmented_images(
    samples: int = 2048, size: int = 64, seed: int = 0
) -> Iterator[tuple[npt.NDArray[np.float32], int]]:
    """Yield one pass over images that are augmented in Python, as a training script of a few lines does it.

    Each costs some 0.3 ms of a core at the default size, with the GIL held most of the time.

    Args:
        samples: images of a pass.
        size: pixels of the square that a crop leaves.
        seed: of the images and of what is done to them; every pass is the same.

    Yields:
        Features float32 [size, size, 3] and a class from 0 to 9, which shifts the image's brightness.
    """
    generator = np.random.default_rng(seed)
    wide = size + 2 * _BORDER
    images = generator.integers(0, 192, (_CLASSES, wide, wide, 3), dtype=np.uint8)
    for index in range(samples):
        label = index % _CLASSES
        top, left = generator.integers(0, 2 * _BORDER + 1, 2).tolist()
        image = images[label, top : top + size, left : left + size]
        if generator.random() < 0.5:  # noqa: PLR2004 - one image in two
            image = image[:, ::-1]
        noise = generator.normal(6 * label, 4, image.shape)
        yield _normalised(image, noise), label


def _normalised(image: npt.NDArray[np.uint8], noise: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the image with noise, contrast stretched around the mean, and channels scaled: float32, the same shape."""
    bright = np.clip(image.astype(np.float64) + noise, 0, 255) / 255
    middle = bright.mean(axis=(0, 1), keepdims=True)
    stretched = np.clip((bright - middle) * 1.1 + middle, 0, 1)
    scaled: npt.NDArray[np.float64] = (stretched - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    return scaled.astype(np.float32)
