"""Whether a fix left the samples as they were, from the fingerprints of the pipeline with it and as written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from pipeline_bench.model.diagnosis import Equality
from pipeline_bench.model.fingerprint import ElementComponent, Fingerprint
from pipeline_bench.text import NAME, REASON, one_line, units

_STANDARD_ERRORS = 6.0
"""A mean this many standard errors from the other is no chance. Values within a sample hang together: the errors are
those of the number of samples."""
_TOLERANCE = 0.02
"""Less than this part of a standard deviation is no other distribution: sums of float32 round."""
_STD_FACTOR = 1.5
"""Standard deviations of random values within this factor of each other are distinguished by many samples only."""
_EPSILONS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
_ROUNDING_STEPS = 8.0
"""Values whose difference is, in the Euclidean norm, no more than this many units in their last place are the same but
for rounding: a function that gets a whole batch may sum in another order. 1e-6 of a float32."""
_PROJECTION_ERRORS = 4.0
"""A sum with random signs is within this many times the norm but for 1 of 16,000 (a normal distribution)."""

_FIXED_SIZES = 2
"""Of batches of one size: that, and the rest at the end. Those of a `group_by_window` have more, which go by the order
of the samples, and at the end of a part of the input by where that was cut."""

_REORDERED = "the same samples in another order"
_APART = "the components of a sample no longer belong together"
_BUT_ROUNDED = "; floating values differ by rounding, in their last digits"


_Pairs = list[tuple[ElementComponent, ElementComponent]]
"""The components of the elements, as written and with the fix."""


def compare(baseline: Fingerprint | None, other: Fingerprint | None) -> Equality:
    """Return whether two pipelines give the same samples on the same part of the input.

    Args:
        baseline: of the pipeline as written; None where its trial reported none.
        other: of the pipeline with the fix.
    """
    if baseline is None or other is None:
        return Equality(text="the trial ended before its samples were recorded")
    for which, each in (("as written", baseline), ("with the fix", other)):
        if each.reason is not None or not each.components:
            return Equality(text=f"{which}: {(each.reason or 'no sample was compared').rstrip('.')}")
    if (fault := _other_form(baseline, other)) is not None:
        return Equality(status="unequal", text=fault)
    pairs = list(zip(baseline.components, other.components, strict=True))
    if not (baseline.complete and other.complete):
        return _as_far_as_known(pairs)
    return _whole(baseline, other, pairs)


def refusal(equality: Equality, allow_reordering: bool) -> str | None:
    """Return why a fix is refused, in one sentence, whatever it gains; None where its samples are as they should be."""
    if equality.status == "unequal":
        return f"It changes which samples arrive: {equality.text}."
    if equality.status == "reordered" and not allow_reordering:
        return f"It gives {equality.text}; --allow-reordering accepts that."
    return None


def _other_form(baseline: Fingerprint, other: Fingerprint) -> str | None:
    """Return what differs in the form of the elements, which no order and no chance explains."""
    names, others = (", ".join(component.name for component in each.components) for each in (baseline, other))
    if names != others:
        return one_line(f"the elements have the components {others}, not {names}", REASON)
    return _other_types(baseline, other) or _other_batches(baseline, other)


def _other_types(baseline: Fingerprint, other: Fingerprint) -> str | None:
    for one, two in zip(baseline.components, other.components, strict=True):
        if one.dtype != two.dtype:
            return f"{_named(one)} is {two.dtype}, not {one.dtype}"
        if one.shape != two.shape and "?" not in one.shape + two.shape:
            return f"{_named(one)} has the shape {two.shape}, not {one.shape}"
    return None


def _other_batches(baseline: Fingerprint, other: Fingerprint) -> str | None:
    own, theirs = baseline.batch_sizes, other.batch_sizes
    if max(len(own), len(theirs)) > _FIXED_SIZES:
        return None
    if baseline.complete and other.complete:
        same = own == theirs
    else:  # the last, incomplete batch may not have been reached
        same = bool(own) == bool(theirs) and (not own or max(own) == max(theirs))
    if same:
        return None
    return f"the batches have {_sizes(theirs)}, not {_sizes(own)}"


def _sizes(sizes: tuple[int, ...]) -> str:
    if not sizes:
        return "no common size"
    shown = [str(size) for size in sizes[:4]]
    return f"{' or '.join(shown)}{' or others' if len(sizes) > len(shown) else ''} samples"


def _whole(baseline: Fingerprint, other: Fingerprint, pairs: _Pairs) -> Equality:
    """Compare two pipelines that came to their ends, so that their digests are of all samples."""
    rounded = [(one, two) for one, two in pairs if baseline.samples == other.samples and _rounded(one, two)]
    # Where calls beside each other draw, and so other samples get what is drawn, its order is one of chance as well.
    drawn = any(_drawn(one, two) for one, two in pairs)
    exact = [pair for pair in pairs if not (drawn and all(each.random for each in pair)) and pair not in rounded]
    if any(one.ordered != two.ordered and one.unordered != two.unordered for one, two in exact):
        return _differing(baseline, other, exact)
    # What is drawn anew each time has no digest; how many samples there were is the same for all components.
    if baseline.samples != other.samples:
        return Equality(status="unequal", text=f"{other.samples:,} samples arrive, not {baseline.samples:,}")
    if (fault := next(_other_distributions(pairs, baseline.samples), None)) is not None:
        return Equality(status="unequal", text=fault)
    found = _same(exact, len(exact) + len(rounded) < len(pairs), baseline.samples)
    if rounded and found.status == "reordered":  # what was rounded is in its old order
        return Equality(status="unequal", text=_APART)
    return found.model_copy(update={"text": f"{found.text}{_BUT_ROUNDED}"}) if rounded else found


def _rounded(one: ElementComponent, two: ElementComponent) -> bool:
    """Return whether two components hold the same samples in the same order but for the rounding of floating values."""
    if one.ordered == two.ordered or one.random or two.random or "?" in one.shape + two.shape:
        return False
    epsilon = _EPSILONS.get(one.dtype)
    if epsilon is None or not one.norms or len(one.norms) != len(two.norms):
        return False
    reach = _PROJECTION_ERRORS * _ROUNDING_STEPS * epsilon
    figures = zip(one.projections, two.projections, one.norms, two.norms, strict=True)
    return all(abs(left - right) <= reach * min(norms) for left, right, *norms in figures)


def _same(exact: _Pairs, some_random: bool, samples: int) -> Equality:
    """Return whether the same samples also come in the same order."""
    compared_samples = units.count(samples, "sample")
    if any(one.ordered != two.ordered for one, two in exact):
        if not _still_together(exact):
            return Equality(status="unequal", text=_APART)
        return Equality(status="reordered", text=f"{_REORDERED} ({compared_samples} compared)")
    return _in_order(some_random, compared_samples)


def _in_order(some_random: bool, compared: str) -> Equality:
    if some_random:
        return Equality(status="random", text=f"the same apart from random content ({compared} compared)")
    return Equality(status="identical", text=f"the same samples in the same order ({compared} compared)")


def _still_together(exact: _Pairs) -> bool:
    """Return whether a sample still has all its components, an image its label, as far as samples are listed."""
    left, right = (Counter(zip(*(pair[side].sample_hashes for pair in exact), strict=False)) for side in (0, 1))
    # A cut list holds other samples when their order is another: then nothing follows.
    whole = all(Counter(one.sample_hashes) == Counter(two.sample_hashes) for one, two in exact)
    return left == right or not whole


def _drawn(one: ElementComponent, two: ElementComponent) -> bool:
    """Return whether the values are random on both sides, so that only their distribution can be compared."""
    return one.random and two.random and one.unordered != two.unordered


def _differing(baseline: Fingerprint, other: Fingerprint, exact: _Pairs) -> Equality:
    """Compare components that hold other samples: where the order is another, a dropped remainder may explain these."""
    dropped = max(0, max(baseline.remainder_dropped, other.remainder_dropped) - 1)  # a whole batch is not dropped
    explained = 0
    for one, two in exact:
        if one.unordered == two.unordered:
            continue
        if one.random != two.random:
            which = "random" if two.random else "no longer random"
            return Equality(status="unequal", text=f"{_named(one)} is {which} with the fix")
        listed = len(one.sample_hashes) >= baseline.samples and len(two.sample_hashes) >= other.samples
        count = _missing(one.sample_hashes, two.sample_hashes)
        if listed and count <= dropped:
            explained = max(explained, count)
            continue
        compared = min(len(one.sample_hashes), len(two.sample_hashes))
        if listed:
            all_of_them = units.count(max(baseline.samples, other.samples), "sample")
            text = f"{count:,} of {all_of_them} of {_named(one)} differ"
            return Equality(status="unequal", text=text)
        if dropped:  # which samples fell to the end of the shuffle does not follow from the first ones
            return Equality(text=f"of {_named(one)} only the first {compared:,} samples are known one by one")
        return Equality(status="unequal", text=f"the samples of {_named(one)} differ")
    return _but_for_dropped(exact, explained)


def _but_for_dropped(exact: _Pairs, dropped: int) -> Equality:
    """Return whether the samples are the same in another order, but for so many that fell to a rest that is dropped."""
    rest = units.count(dropped, "sample")
    left, right = (list(zip(*(pair[side].sample_hashes for pair in exact), strict=False)) for side in (0, 1))
    if _shared(left, right) == _shared(right, left):
        return Equality(status="unequal", text=f"{rest} differ, and the others are in their old order")
    distinct = any(len(set(one.sample_hashes)) == len(one.sample_hashes) for one, _ in exact)
    if distinct and _missing(left, right) > dropped:
        return Equality(status="unequal", text=_APART)
    text = f"{_REORDERED}, except {rest} of the incomplete last batch, which is dropped"
    return Equality(status="reordered", text=text)


def _missing(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """Return how many samples of either side the other side does not have."""
    own, others = Counter(left), Counter(right)
    return max((own - others).total(), (others - own).total())


def _shared(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[Hashable]:
    """Return those of the left that the right has too, in their order; what is there several times as often."""
    rest, shared = Counter(right), []
    for each in left:
        if rest[each]:
            rest[each] -= 1
            shared.append(each)
    return shared


def _as_far_as_known(pairs: _Pairs) -> Equality:
    """Compare the first samples one by one, where one of the two passes had to end early."""
    exact = [(one, two) for one, two in pairs if not (one.random or two.random)]
    compared = [min(len(one.sample_hashes), len(two.sample_hashes)) for one, two in exact]
    if changed := next((one for one, two in pairs if one.random != two.random), None):
        return Equality(text=f"{_named(changed)} seems random in one of the two, and there was no time left to be sure")
    if not exact or not min(compared):
        return Equality(text="there was no time left to compare samples")
    if all(one.sample_hashes[:n] == two.sample_hashes[:n] for (one, two), n in zip(exact, compared, strict=True)):
        return _in_order(len(exact) < len(pairs), f"the first {units.count(min(compared), 'sample')}")
    return Equality(text="the first samples differ, and there was no time left to compare all")


def _other_distributions(pairs: _Pairs, samples: int) -> Iterator[str]:
    """Yield where the moments of random values differ by more than chance; σ/√n is the standard error of a mean."""
    for one, two in pairs:
        if not _drawn(one, two) or one.mean is None or two.mean is None or one.std is None or two.std is None:
            continue
        spread = max(one.std, two.std)
        reach = spread * max(_TOLERANCE, _STANDARD_ERRORS * math.sqrt(2 / max(1, samples)))
        if abs(one.mean - two.mean) > reach:
            yield f"the values of {_named(one)} have the mean {two.mean:.3g}, not {one.mean:.3g}"
        allowed = _STD_FACTOR + _STANDARD_ERRORS / math.sqrt(max(1, samples))
        if spread > allowed * min(one.std, two.std) + _TOLERANCE * abs(one.mean):
            yield f"the values of {_named(one)} have the standard deviation {two.std:.3g}, not {one.std:.3g}"


def _named(component: ElementComponent) -> str:
    return f"component {one_line(component.name, NAME)}"
