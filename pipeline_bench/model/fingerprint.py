"""Which samples a pipeline gives, as digests: what an edit must leave as they are."""

from __future__ import annotations

from pipeline_bench.model import Data
from pipeline_bench.text import Line


class ElementComponent(Data):
    """Which samples arrived in one component (tensor) of the elements, by hash."""

    name: Line
    """Its path in the element: ``0``, ``image``, ``1.label``."""
    dtype: Line
    shape: Line
    """Without the batch's own size: ``[224, 224, 3]``; ``?`` marks a size that varies."""
    ordered: Line
    """A digest of the samples in their order, 16 hexadecimal digits."""
    unordered: Line
    """A digest of the samples in any order: the sum of their hashes modulo 2**64."""
    sample_hashes: tuple[int, ...] = ()
    """The first ones of them, as unsigned 64-bit numbers, to find how many are shared where the digests differ."""
    mean: float | None = None
    std: float | None = None
    """Over all finite values, of a numeric component."""
    random: bool = False
    """Whether its values differ from one seed to another, so that no digest can be compared."""
    kept_state: bool = False
    """Whether its values differ between two passes with one seed: Python, or a variable, goes on where it was."""
    projections: tuple[float, ...] = ()
    """Of dense floating values, of all samples in their order: sums with random signs, see `fingerprint`."""
    norms: tuple[float, ...] = ()
    """The Euclidean norm of the values that went into each projection."""


class Fingerprint(Data):
    """Which samples a pipeline gives on a small part of its input, with fixed seeds; the same part for every edit.

    The part: of each source the first elements or files, of what an interleave opens the first elements, an endless
    repeat as two passes.
    """

    complete: bool
    """Whether the small pipeline came to its end; else the time or the number of samples was used up."""
    elements: int
    samples: int
    batch_sizes: tuple[int, ...] = ()
    """The leading sizes of the elements that occurred, sorted, where they are batches."""
    remainder_dropped: int = 0
    """The largest batch whose incomplete rest is dropped; so many samples may differ at the end. 0 where none is."""
    components: tuple[ElementComponent, ...] = ()
    reason: Line | None = None
    """Why there is no fingerprint, where there is none."""
    as_written: Fingerprint | None = None
    """Of a pipeline with a fix, in a trial that was asked for it: what it gives as written in the same run."""
