"""Which samples a pipeline gives on a small part of its input: digests that an edit must leave as they are.

A sample is a row where the elements are batches, else the element; it is hashed by its content, whatever batch it came
in. The small pipeline runs twice with different seeds: what differs then is random, and no digest of it is compared.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.user_pipeline import Component, Fingerprint, Stage, elements, user_code
from pipeline_bench.user_pipeline.sketch import Sketch

SEEDS = (11, 23)
"""Any two that differ: what changes from one to the other is random."""
MOST_SAMPLES = 4096
"""Of the small input; with the time and the bytes below, what bounds a fingerprint."""
MOST_S = 4.0
_MOST_BYTES = 64 << 20
_HASHES_KEPT = 128
"""Enough to tell how many samples are shared, in 1 to 2 kB of the session file for each component."""
_MODULUS = 1 << 64
_ALIKE_SHARE = 0.9
"""Of two runs that were cut off, parallel stages may have given a few other samples at the end."""

Array = npt.NDArray[Any]


@dataclass
class _Tally:
    """One component's samples so far."""

    hashes: list[int] = field(default_factory=list)
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    sketch: Sketch = field(default_factory=Sketch)

    def add_values(self, values: Array) -> None:
        if values.dtype.kind not in "fiub" or not values.size:
            return
        numbers = values.astype(np.float64, copy=False)
        finite = numbers[np.isfinite(numbers)]
        self.count += finite.size
        self.total += float(finite.sum())
        self.squares += float(np.square(finite).sum())

    @property
    def moments(self) -> tuple[float | None, float | None]:
        """Mean and standard deviation, where they are numbers."""
        if not self.count:
            return None, None
        mean = self.total / self.count
        variance = max(0.0, self.squares / self.count - mean * mean)
        return (mean, variance**0.5) if np.isfinite(mean) and np.isfinite(variance) else (None, None)


@dataclass
class _Run:
    """One pass over the small pipeline."""

    tallies: dict[str, _Tally] = field(default_factory=dict)
    elements: int = 0
    samples: int = 0
    batch_sizes: set[int] = field(default_factory=set)
    batched: bool = False
    complete: bool = False


def of(
    make: Callable[[int], Any],
    stages: Sequence[Stage],
    limit_s: float,
    alive: Callable[[], None] = lambda: None,
) -> Fingerprint:
    """The fingerprint of a pipeline.

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
    with user_code.element_errors():
        first_dataset = make(SEEDS[0])
        specs = dict(elements.flatten(first_dataset.element_spec))
        suspect = any(map(_may_keep_state, stages)) and not any(map(_draws_in_parallel, stages))
        pass_s = limit_s / (3 if suspect else 2)
        first = _pass_over(first_dataset, padding, pass_s, MOST_SAMPLES, alive)
        second = _pass_over(make(SEEDS[1]), padding, pass_s, first.samples, alive)
        random = {name for name, tally in first.tallies.items() if _is_random(tally, second.tallies.get(name), first)}
        stateful: set[str] = set()
        if suspect and random:
            again = _pass_over(make(SEEDS[0]), padding, pass_s, first.samples, alive).tallies
            stateful = {name for name in random if _is_random(first.tallies[name], again.get(name), first)}
    return Fingerprint(
        complete=first.complete,
        elements=first.elements,
        samples=first.samples,
        batch_sizes=tuple(sorted(first.batch_sizes)),
        remainder_dropped=max((size for size in dropped if isinstance(size, int)), default=0),
        components=tuple(
            _component(name, tally, specs.get(name), first.batched, name in random, name in stateful)
            for name, tally in first.tallies.items()
        ),
    )


def _may_keep_state(stage: Stage) -> bool:
    """Whether a stage may go on from pass to pass where it was, whatever the seed: Python, a variable, a table."""
    function = stage.function
    return function is not None and (function.python or (function.stateful and not function.random))


def _draws_in_parallel(stage: Stage) -> bool:
    """Whether random ops run beside each other: they draw in any order, so that one seed gives several passes."""
    calls = stage.arguments.get("num_parallel_calls")
    return stage.function is not None and stage.function.random and calls not in (None, 1)


def _component(name: str, tally: _Tally, spec: Any, batched: bool, random: bool, kept_state: bool) -> Component:
    mean, std = tally.moments
    projections, norms = tally.sketch.figures
    return Component(
        name=name,
        dtype=getattr(getattr(spec, "dtype", None), "name", "?"),
        shape=_shape(spec, batched),
        ordered=_digest(b"".join(number.to_bytes(8, "little") for number in tally.hashes)).hex(),
        unordered=f"{sum(tally.hashes) % _MODULUS:016x}",
        sample_hashes=tuple(tally.hashes[:_HASHES_KEPT]),
        mean=mean,
        std=std,
        random=random,
        kept_state=kept_state,
        projections=projections,
        norms=norms,
    )


def _shape(spec: Any, batched: bool) -> str:
    shape = getattr(spec, "shape", None)
    if shape is None or shape.rank is None:
        return "?"
    sizes = shape.as_list()[1 if batched else 0 :]
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"


def _is_random(tally: _Tally, other: _Tally | None, run: _Run) -> bool:
    if other is None:
        return True
    shared = (Counter(tally.hashes) & Counter(other.hashes)).total()
    if run.complete:
        return shared < len(tally.hashes) or len(tally.hashes) != len(other.hashes)
    return shared < _ALIKE_SHARE * min(len(tally.hashes), len(other.hashes))


def _pass_over(dataset: Any, padding: float | None, seconds: float, most: int, alive: Callable[[], None]) -> _Run:
    """Hash the samples until the end, or until the time, the bytes or the number are used up."""
    run = _Run()
    end_s = time.monotonic() + seconds
    size = 0
    for element in dataset:
        alive()
        rows = elements.batch_size(element)
        run.batched = rows is not None
        left = most - run.samples  # one element may hold millions: a long vector is taken for a batch of numbers
        for name, leaf in elements.flatten(element):
            tally = run.tallies.setdefault(name, _Tally())
            for values, digest in itertools.islice(samples(leaf, rows, padding), left):
                tally.add_values(values)
                if _is_dense(leaf):
                    tally.sketch.add(values)
                tally.hashes.append(int.from_bytes(digest, "little"))
        run.elements += 1
        run.samples += 1 if rows is None else min(rows, left)
        run.batch_sizes |= set() if rows is None else {rows}
        size += elements.nbytes(element)
        if run.samples >= most or size >= _MOST_BYTES or time.monotonic() > end_s:
            # One more would tell whether this was the end, and may take long: a second pass ends at the same sample.
            run.complete = False
            return run
    run.complete = True
    return run


def _is_dense(leaf: Any) -> bool:
    return not any(hasattr(leaf, name) for name in ("element_spec", "dense_shape", "nested_row_splits"))


def samples(leaf: Any, rows: int | None, padding: float | None = None) -> Iterator[tuple[Array, bytes]]:
    """The samples in one component of an element: the values of each, and a hash of its content.

    Args:
        leaf: a tensor, a ragged or a sparse one, or a dataset (of `window`).
        rows: how many samples it holds; None where it is one.
        padding: the value that fills up the samples of a padded batch, not part of them; None where none does.
    """
    if hasattr(leaf, "element_spec"):
        inside = [digest for part in leaf for _, one in elements.flatten(part) for _, digest in samples(one, None)]
        yield np.empty(0), _digest(b"".join(inside))
    elif hasattr(leaf, "dense_shape"):
        yield from _sparse(leaf, rows)
    elif hasattr(leaf, "nested_row_splits"):
        whole = leaf.numpy()
        for sample in whole if rows is not None else [whole]:
            yield _values(sample), _digest(b"".join(_ragged(sample)))
    else:
        array = leaf.numpy() if hasattr(leaf, "numpy") else np.asarray(leaf)
        for sample in array if rows is not None else [array]:
            kept = np.asarray(sample) if padding is None else _unpadded(np.asarray(sample), padding)
            yield kept, _digest(_content(kept))


def _sparse(leaf: Any, rows: int | None) -> Iterator[tuple[Array, bytes]]:
    indices, values = leaf.indices.numpy(), leaf.values.numpy()
    if rows is None:
        yield values, _digest(_content(indices) + _content(values))
        return
    edges = np.searchsorted(indices[:, 0], np.arange(rows + 1))
    for start, end in itertools.pairwise(edges):
        own = values[start:end]
        yield own, _digest(_content(indices[start:end, 1:]) + _content(own))


def _ragged(sample: Any) -> Iterator[bytes]:
    """The content of a ragged sample: the same whether its rows happen to be of one length or not."""
    array = np.asarray(sample)
    if array.ndim > 1 or (array.dtype == object and array.size and isinstance(array.flat[0], np.ndarray)):
        yield len(array).to_bytes(8, "little")
        for part in array:
            yield from _ragged(part)
    else:
        yield _content(array)


def _values(sample: Any) -> Array:
    array = np.asarray(sample)
    if array.dtype != object:
        return array
    parts = [_values(part) for part in array if isinstance(part, np.ndarray)]
    return np.concatenate([part.ravel() for part in parts]) if parts else np.empty(0)


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


def _padding(stages: Sequence[Stage]) -> float | None:
    """The value that padded batches are filled up with; None where there are none."""
    padded = [stage for stage in stages if stage.method == "padded_batch"]
    if not padded:
        return None
    value = padded[-1].arguments.get("padding_values")
    return float(value) if isinstance(value, int | float) else 0.0


def _unpadded(array: Array, padding: float) -> Array:
    """The array without what is nothing but padding at the end of each axis."""
    filled = array != (b"" if array.dtype.kind in "OSU" else padding)
    if not array.ndim or not filled.any():
        return array if not array.ndim else array[(slice(0, 0),) * array.ndim]
    ends = [int(axis.max()) + 1 for axis in np.nonzero(filled)]
    return array[tuple(slice(0, end) for end in ends)]
