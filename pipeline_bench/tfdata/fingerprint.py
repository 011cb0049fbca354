"""Which samples a pipeline gives on a small part of its input: digests that an edit must leave as they are.

A sample is a row where the elements are batches, else the element; it is hashed by its content, whatever batch it came
in. The small pipeline runs twice with different seeds: what differs then is random, and no digest of it is compared.

A function may round in another way when it gets a whole batch: the same mathematics, other last bits, another digest.
A random projection distinguishes rounding from other values: sums of a sample's values with random signs, which are the
same everywhere. The sum of what differs is about as large as its Euclidean norm (the Johnson-Lindenstrauss lemma with
one dimension; a single value that differs shows in full), so that comparing sums is comparing samples by the norm of
their difference. See `pipeline_bench.diagnosis.equality`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench import user_code
from pipeline_bench.model.element import axes
from pipeline_bench.model.fingerprint import ElementComponent, Fingerprint
from pipeline_bench.model.pipeline import Stage
from pipeline_bench.text import NAME, joined, one_line
from pipeline_bench.tfdata import describe
from pipeline_bench.tfdata.iterators import end_aside
from pipeline_bench.tfdata.subsample import LEAVE_OUT

SEEDS = (11, 23)
"""Any two that differ: what changes from one to the other is random."""
MOST_SAMPLES = 4096
"""Of the small input; with the time and the bytes below, what bounds a fingerprint."""
_MOST_S = 4.0
_LEAST_S = 2.5
"""Less is soon too little for a whole pass, without which nothing can be said of samples that are all random."""
_SHARE = 0.4
"""Of the time limit of a trial's task: what is aimed at, 5 % of the budget."""
_MOST_BYTES = 64 << 20
_HASHES_KEPT = 128
"""Enough to find how many samples are shared, in 1 to 2 kB of the session file for each component."""
_MODULUS = 1 << 64
_ALIKE_SHARE = 0.9
"""Of two runs that were cut off, parallel stages may have given a few other samples at the end."""
_BUCKETS = 128
"""Sums kept; sample n is in the sum n modulo this, so that all samples count, in their order."""
_GOLDEN = 0.618033988749895
"""Its multiples modulo 1 differ from each other: samples in the same sum have weights of their own."""
_SIGNS_SEED = 7
_NAMED = 3
"""Of stages that may leave all samples out, so many are named."""
_NAN, _INFINITY = 3.0, 5.0
"""What stands for NaN and the infinities, which have no sum."""

Array = npt.NDArray[Any]
_Padding = defaultdict[str, Any]
"""By the component's name what fills it up."""


@dataclass
class _Tally:
    """One component's samples so far."""

    hashes: list[int] = field(default_factory=list)
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    projections: list[float] = field(default_factory=lambda: [0.0] * _BUCKETS)
    norms: list[float] = field(default_factory=lambda: [0.0] * _BUCKETS)
    """Squares of the norms."""
    dense: bool = True

    def add(self, values: Array, digest: bytes) -> None:
        number = len(self.hashes)
        self.hashes.append(int.from_bytes(digest, "little"))
        if values.dtype.kind not in "fiub" or not values.size:
            return
        numbers = values.astype(np.float64, copy=False).ravel()
        finite = numbers[np.isfinite(numbers)]
        self.count += finite.size
        self.total += float(finite.sum())
        self.squares += _dot(finite, finite)
        if self.dense and values.dtype.kind == "f":
            flat = np.nan_to_num(numbers, nan=_NAN, posinf=_INFINITY, neginf=-_INFINITY)
            weight = 1.0 + (number // _BUCKETS) * _GOLDEN % 1.0
            with np.errstate(over="ignore", invalid="ignore"):
                self.projections[number % _BUCKETS] += weight * _dot(flat, _signs(flat.size))
                self.norms[number % _BUCKETS] += weight * weight * _dot(flat, flat)

    def is_random(self, other: _Tally | None, complete: bool) -> bool:
        """Return whether another pass gave other samples."""
        if other is None:
            return True
        own, others = len(self.hashes), len(other.hashes)
        shared = (Counter(self.hashes) & Counter(other.hashes)).total()
        return shared < max(own, others) if complete else shared < _ALIKE_SHARE * min(own, others)

    def component(self, name: str, spec: Any, batched: bool, random: bool, kept_state: bool) -> ElementComponent:
        """Return what is kept of it."""
        mean = self.total / self.count if self.count else math.nan
        std = max(0.0, self.squares / self.count - mean * mean) ** 0.5 if self.count else math.nan
        has_moments = math.isfinite(mean) and math.isfinite(std)
        used = min(len(self.hashes), _BUCKETS)
        sums, squares = self.projections[:used], self.norms[:used]
        # Of values that are not floating, or too large to be squared, there are none.
        has_sums = any(squares) and all(map(math.isfinite, (*sums, *squares)))
        return ElementComponent(
            name=name,
            dtype=getattr(getattr(spec, "dtype", None), "name", "?"),
            shape=_shape(spec, batched),
            ordered=_digest(b"".join(number.to_bytes(8, "little") for number in self.hashes)).hex(),
            unordered=f"{sum(self.hashes) % _MODULUS:016x}",
            sample_hashes=tuple(self.hashes[:_HASHES_KEPT]),
            mean=mean if has_moments else None,
            std=std if has_moments else None,
            random=random,
            kept_state=kept_state,
            projections=tuple(sums) if has_sums else (),
            norms=tuple(map(math.sqrt, squares)) if has_sums else (),
        )


def _dot(one: Array, other: Array) -> float:
    """Return the sum of the products, by this thread alone.

    The threads of a BLAS, which `@` calls, wait for each other: on a busy machine 12 ms for 50,000 values.
    """
    return float(np.einsum("i,i", one, other))


@functools.lru_cache(maxsize=4)
def _signs(size: int) -> Array:
    """Return so many signs, as floating numbers; the same in every process."""
    return np.random.default_rng(_SIGNS_SEED).integers(0, 2, size, dtype=np.int8) * 2.0 - 1.0


def _shape(spec: Any, batched: bool) -> str:
    shape = getattr(spec, "shape", None)
    return "?" if shape is None or shape.rank is None else axes(describe.shape(shape[1 if batched else 0 :]))


@dataclass
class _Pass:
    """One pass over the small pipeline."""

    tallies: dict[str, _Tally] = field(default_factory=dict)
    elements: int = 0
    samples: int = 0
    batch_sizes: set[int] = field(default_factory=set)
    complete: bool = True


def most_s(limit_s: float) -> float:
    """Return how long a fingerprint may take in a trial whose task has so much time."""
    return min(limit_s, _MOST_S, max(_LEAST_S, _SHARE * limit_s))


def of(
    make: Callable[[int], Any],
    stages: Sequence[Stage],
    limit_s: float,
    alive: Callable[[], None] = lambda: None,
) -> Fingerprint:
    """Return the fingerprint of a pipeline.

    Args:
        make: makes the small pipeline anew, with a seed for what is random.
        stages: of the pipeline as written.
        limit_s: the most time for both passes.
        alive: called now and then, as a sign of life.

    Raises:
        UserCodeError: the pipeline fails on the small part.
    """
    padding = _padding(stages)
    dropped = [stage.arguments.get("batch_size") for stage in stages if stage.arguments.get("drop_remainder") is True]
    suspect = any(stage.keeps_state for stage in stages)
    pass_s = limit_s / (3 if suspect else 2)
    with user_code.element_errors():
        dataset = make(SEEDS[0])
        specs = dict(describe.components(dataset.element_spec))
        first = _pass_over(dataset, padding, pass_s, MOST_SAMPLES, alive)

        def changed(seed: int, eager_seed: int) -> set[str]:
            """Return the components that another pass gives other samples of; it may be cut off earlier.

            The second seed is for what Python draws by TensorFlow meanwhile, as in a `py_function`.
            """
            dataset = make(seed)
            _seed_eager(eager_seed)
            again = _pass_over(dataset, padding, pass_s, first.samples, alive)
            complete = first.complete and again.samples >= first.samples
            others = again.tallies
            return {name for name, tally in first.tallies.items() if tally.is_random(others.get(name), complete)}

        random = changed(SEEDS[1], SEEDS[1])
        kept_state = random & changed(*SEEDS) if suspect and random else set()
    return Fingerprint(
        complete=first.complete,
        elements=first.elements,
        samples=first.samples,
        batch_sizes=tuple(sorted(first.batch_sizes)),
        remainder_dropped=max((size for size in dropped if isinstance(size, int)), default=0),
        components=tuple(
            tally.component(name, specs.get(name), bool(first.batch_sizes), name in random, name in kept_state)
            for name, tally in first.tallies.items()
        ),
        reason=None if first.tallies else _none_arrives(stages),
    )


def _seed_eager(seed: int) -> None:
    import tensorflow as tf

    tf.random.set_seed(seed)


def _none_arrives(stages: Sequence[Stage]) -> str:
    """Return why no sample of the small pipeline arrives, as far as its stages show it."""
    able = [one_line(stage.label, NAME) for stage in stages if stage.method in (*LEAVE_OUT, "skip", "shard", "take")]
    behind = f" behind {joined(able[:_NAMED], 'or')}" if able else ""
    return f"of the first elements of the input, which alone are compared, none arrives{behind}"


def digests(element: Any) -> list[bytes]:
    """Return a hash of the content of each component of an element."""
    return [digest for _, leaf in describe.components(element) for _, digest in _samples(leaf, None)]


def _padding(stages: Sequence[Stage]) -> _Padding | None:
    """Return the value that each component of padded batches is filled up with; None where there are none."""
    padded = [stage for stage in stages if stage.method == "padded_batch"]
    if not padded:
        return None
    value = padded[-1].arguments.get("padding_values")
    with contextlib.suppress(ValueError, TypeError):  # where it is one text, and no value for each component
        return defaultdict(float, json.loads(value if isinstance(value, str) else ""))
    return defaultdict(lambda: 0.0 if value is None else value)


def _pass_over(dataset: Any, padding: _Padding | None, seconds: float, most: int, alive: Callable[[], None]) -> _Pass:
    """Hash the samples until the end, or until the time, the bytes or the number are used up."""
    done = _Pass()
    end_s = time.monotonic() + seconds
    size = 0
    held = [iter(dataset)]  # its end may take a minute: nothing but the list holds it then
    for element in held[0]:
        alive()
        rows = describe.batch_size(element)
        left = most - done.samples  # one element may hold millions: a long vector is taken for a batch of numbers
        for name, leaf in describe.components(element):
            tally = done.tallies.setdefault(name, _Tally(dense=_is_dense(leaf)))
            filler = None if padding is None else padding[name]
            for values, digest in itertools.islice(_samples(leaf, rows, filler), left):
                tally.add(values, digest)
        done.elements += 1
        done.samples += 1 if rows is None else min(rows, left)
        done.batch_sizes |= set() if rows is None else {rows}
        size += describe.nbytes(element)
        if done.samples >= most or size >= _MOST_BYTES or time.monotonic() > end_s:
            # One more would show whether this was the end, and may take long: a second pass ends at the same sample.
            done.complete = False
            break
    end_aside(held)
    return done


def _is_dense(leaf: Any) -> bool:
    return not any(hasattr(leaf, name) for name in ("element_spec", "dense_shape", "nested_row_splits"))


def _samples(leaf: Any, rows: int | None, padding: Any = None) -> Iterator[tuple[Array, bytes]]:
    """Yield the samples in one component of an element: the values of each, and a hash of its content.

    Args:
        leaf: a tensor, a ragged or a sparse one, or a dataset (of `window`).
        rows: how many samples it holds; None where it is one.
        padding: the value that fills up the samples of a padded batch, not part of them; None where none does.
    """
    if hasattr(leaf, "element_spec"):
        parts = [one for part in leaf for _, one in describe.components(part)]
        yield np.empty(0), _digest(b"".join(digest for one in parts for _, digest in _samples(one, None)))
    elif hasattr(leaf, "dense_shape"):
        yield from _sparse_samples(leaf, rows)
    elif hasattr(leaf, "nested_row_splits"):
        whole = leaf.numpy()
        for sample in whole if rows is not None else [whole]:
            yield _ragged_values(sample), _digest(b"".join(_ragged_content(sample)))
    else:
        array = leaf.numpy() if hasattr(leaf, "numpy") else np.asarray(leaf)
        for sample in array if rows is not None else [array]:
            kept = np.asarray(sample) if padding is None else _unpadded(np.asarray(sample), padding)
            yield kept, _digest(_content(kept))


def _sparse_samples(leaf: Any, rows: int | None) -> Iterator[tuple[Array, bytes]]:
    indices, values = leaf.indices.numpy(), leaf.values.numpy()
    if rows is None:
        yield values, _digest(_content(indices) + _content(values))
        return
    edges = np.searchsorted(indices[:, 0], np.arange(rows + 1))
    for start, end in itertools.pairwise(edges):
        own = values[start:end]
        yield own, _digest(_content(indices[start:end, 1:]) + _content(own))


def _ragged_content(sample: Any) -> Iterator[bytes]:
    """Yield the content of a ragged sample: the same whether its rows happen to be of one length or not."""
    array = np.asarray(sample)
    if array.ndim > 1 or (array.dtype == object and array.size and isinstance(array.flat[0], np.ndarray)):
        yield len(array).to_bytes(8, "little")
        for part in array:
            yield from _ragged_content(part)
    else:
        yield _content(array)


def _ragged_values(sample: Any) -> Array:
    array = np.asarray(sample)
    if array.dtype != object:
        return array
    parts = [_ragged_values(part).ravel() for part in array if isinstance(part, np.ndarray)]
    return np.concatenate(parts) if parts else np.empty(0)


def _content(array: Any) -> bytes:
    """Shape and values as bytes; strings by their content, each with its length."""
    array = np.asarray(array)
    shape = np.asarray(array.shape, dtype=np.int64).tobytes()
    if array.dtype.kind in "OSU":
        parts = [part if isinstance(part, bytes) else str(part).encode() for part in array.ravel()]
        return shape + b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return shape + np.ascontiguousarray(array).tobytes()


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8).digest()


def _unpadded(array: Array, padding: Any) -> Array:
    """Return the array without what is nothing but padding at the end of each axis; the default of strings is empty."""
    if array.dtype.kind in "OSU":
        padding = padding.encode() if isinstance(padding, str) else b""
    filled = array != padding
    if not array.ndim or not filled.any():
        return array if not array.ndim else array[(slice(0, 0),) * array.ndim]
    ends = [int(axis.max()) + 1 for axis in np.nonzero(filled)]
    return array[tuple(slice(0, end) for end in ends)]
