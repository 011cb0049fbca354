"""Whether two fingerprints are of the same samples."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.diagnosis import equality
from pipeline_bench.model.fingerprint import ElementComponent, Fingerprint
from tests.unit.diagnosis.simulated import component, fingerprint

HASHES = tuple(range(100, 164))


def test_the_same_digests_are_identical() -> None:
    found = equality.compare(fingerprint(component(HASHES)), fingerprint(component(HASHES)))
    assert (found.status, found.text) == ("identical", "the same samples in the same order (64 samples compared)")
    assert equality.refusal(found, False) is None


@given(st.permutations(HASHES))
def test_another_order_is_reordered_and_refused_unless_allowed(other: list[int]) -> None:
    found = equality.compare(fingerprint(component(HASHES)), fingerprint(component(tuple(other))))
    assert found.status == ("identical" if tuple(other) == HASHES else "reordered")
    refused = "It gives the same samples in another order (64 samples compared); --allow-reordering accepts that."
    assert equality.refusal(found, False) == (None if tuple(other) == HASHES else refused)
    assert equality.refusal(found, True) is None


@given(st.integers(1, 64))
def test_other_samples_are_refused_whatever_is_allowed(count: int) -> None:
    other = (*range(10_000, 10_000 + count), *HASHES[count:])
    found = equality.compare(fingerprint(component(HASHES)), fingerprint(component(other)))
    assert found.status == "unequal"
    assert found.text == f"{count} of 64 samples of component 0 differ"
    assert equality.refusal(found, True) is not None


def test_an_image_with_the_label_of_another_is_refused() -> None:
    labels = tuple(range(500, 564))
    written = fingerprint(component(HASHES, name="image"), component(labels, name="label"))
    apart = fingerprint(component(HASHES[::-1], name="image"), component(labels, name="label"))
    together = fingerprint(component(HASHES[::-1], name="image"), component(labels[::-1], name="label"))
    assert equality.compare(written, apart).status == "unequal"
    assert equality.compare(written, together).status == "reordered"


def dropping(hashes: Sequence[int], labels: Sequence[int], size: int) -> Fingerprint:
    components = (component(tuple(hashes), name="image"), component(tuple(labels), name="label"))
    return fingerprint(*components, remainder_dropped=size)


def test_what_a_dropped_remainder_leaves_out_is_told_and_more_is_refused() -> None:
    def other(count: int) -> str:
        replaced = (*reversed(HASHES[count:]), *range(900, 900 + count))
        found = fingerprint(component(replaced), remainder_dropped=4)
        return equality.compare(fingerprint(component(HASHES), remainder_dropped=4), found).status

    assert other(3) == "reordered"
    assert other(4) == "unequal", "an incomplete batch has one sample less than a whole one"


@pytest.mark.parametrize("count", [1, 16, 31])
def test_a_dropped_remainder_does_not_explain_other_samples_in_the_old_order(count: int) -> None:
    """A function that judges its whole batch, `if x.max() > 1: x /= 255`, changed half of the samples: "reordered"."""
    labels = [each % 7 for each in HASHES]
    changed = (*range(900, 900 + count), *HASHES[count:])
    found = equality.compare(dropping(HASHES, labels, 64), dropping(changed, labels, 64))
    assert (found.status, found.text.split(" sample")[0]) == ("unequal", str(count))


def test_a_dropped_remainder_does_not_explain_the_labels_of_others() -> None:
    labels = [each % 7 for each in HASHES]
    order = [*reversed(range(1, 64)), 0]
    whole = ([HASHES[each] for each in order[:-1]] + [900], [labels[each] for each in order])
    swapped = list(whole[1])
    swapped[3], swapped[5] = swapped[5], swapped[3]
    assert equality.compare(dropping(HASHES, labels, 32), dropping(*whole, 32)).status == "reordered"
    found = equality.compare(dropping(HASHES, labels, 32), dropping(whole[0], swapped, 32))
    assert (found.status, found.text) == ("unequal", "the components of a sample no longer belong together")


def test_missing_samples_are_refused() -> None:
    found = equality.compare(fingerprint(component(HASHES)), fingerprint(component(HASHES[:60])))
    assert found.status == "unequal"


@pytest.mark.parametrize(
    ("update", "told"),
    [({"dtype": "uint8"}, "uint8, not float32"), ({"shape": "[4]"}, "[4], not [8]"), ({"name": "x"}, "components x")],
)
def test_another_form_is_refused(update: dict[str, str], told: str) -> None:
    other = fingerprint(component(HASHES).model_copy(update=update))
    found = equality.compare(fingerprint(component(HASHES)), other)
    assert found.status == "unequal"
    assert told in found.text


def test_other_batch_sizes_are_refused() -> None:
    other = fingerprint(component(HASHES), batch_sizes=(16,))
    found = equality.compare(fingerprint(component(HASHES)), other)
    assert (found.status, found.text) == ("unequal", "the batches have 16 samples, not 8 samples")


@pytest.mark.parametrize("complete", [True, False])
def test_batches_of_many_sizes_go_by_the_order_and_say_nothing_of_the_samples(complete: bool) -> None:
    """Windows by length were refused with a prefetch behind them: of 4 samples, "not 1 or 2 or 3 or 4 or others"."""
    sides = [fingerprint(component(HASHES), batch_sizes=sizes) for sizes in ((1, 2, 3, 4, 7), (4,))]
    found = equality.compare(*(each.model_copy(update={"complete": complete}) for each in sides))
    assert found.status == "identical"
    other = fingerprint(component(HASHES[1:]), batch_sizes=(4,)).model_copy(update={"complete": complete})
    assert equality.compare(sides[0].model_copy(update={"complete": complete}), other).status != "identical"


def test_random_values_are_compared_by_their_distribution() -> None:
    def drawn(first: int, mean: float = 0.5, std: float = 0.25) -> object:
        made = component(tuple(range(first, first + 64)), is_random=True)
        return made.model_copy(update={"mean": mean, "std": std})

    def compared(*other: object) -> str:
        return equality.compare(
            fingerprint(drawn(0), component(HASHES, name="1")),  # type: ignore[arg-type]
            fingerprint(*other),  # type: ignore[arg-type]
        ).status

    label = component(HASHES, name="1")
    assert compared(drawn(1000, 0.52), label) == "random"
    assert compared(drawn(1000, 1.5), label) == "unequal"
    assert compared(drawn(1000, 0.5, 0.01), label) == "unequal"
    assert compared(drawn(1000), component(HASHES[::-1], name="1")) == "reordered"


def test_what_is_drawn_beside_samples_that_get_it_by_chance_has_no_order() -> None:
    """A parallel map adds noise to crops and returns both: the noise itself is the same, and comes as its calls do."""
    noise = tuple(range(64))

    def noisy(first: int, order: int, labels: tuple[int, ...] = HASHES) -> Fingerprint:
        crops = component(tuple(range(first, first + 64)), is_random=True)
        return fingerprint(crops, component(noise[::order], is_random=True, name="1"), component(labels, name="2"))

    assert equality.compare(noisy(1000, 1), noisy(5000, -1)).status == "random"
    assert equality.compare(noisy(1000, 1), noisy(5000, -1, HASHES[::-1])).status == "reordered"
    assert equality.compare(noisy(1000, 1), noisy(1000, -1)).status == "unequal", "the crops are in their old order"


def test_what_was_random_must_stay_so() -> None:
    written = fingerprint(component(HASHES, is_random=True))
    frozen = fingerprint(component(tuple(range(64))))
    found = equality.compare(written, frozen)
    assert (found.status, found.text) == ("unequal", "component 0 is no longer random with the fix")


def test_a_fingerprint_that_was_cut_off_is_compared_as_far_as_it_goes() -> None:
    written = fingerprint(component(HASHES))
    shorter = fingerprint(component(HASHES[:40]), complete=False)
    assert equality.compare(written, shorter).status == "identical"
    assert "first 40 samples" in equality.compare(written, shorter).text
    other = fingerprint(component(HASHES[1:41]), complete=False)
    assert equality.compare(written, other).status == "not-told"


def test_what_seems_random_on_one_side_alone_is_not_told_where_a_fingerprint_was_cut_off() -> None:
    label = component(HASHES, name="1")
    written = fingerprint(component(HASHES, is_random=True), label)
    frozen = fingerprint(component(HASHES), label, complete=False)
    assert equality.compare(written, frozen).status == "not-told"


def test_without_a_fingerprint_nothing_is_told_and_the_reason_is() -> None:
    assert equality.compare(None, fingerprint()).status == "not-told"
    reason = fingerprint(component(HASHES), reason="the time was used up.")
    found = equality.compare(fingerprint(), reason)
    assert (found.status, found.text) == ("not-told", "with the fix: the time was used up")


def sketched(hashes: tuple[int, ...], *projections: float, **updates: object) -> ElementComponent:
    figures = {"projections": projections, "norms": (100.0,) * len(projections)}
    return component(hashes, name="x").model_copy(update={**figures, **updates})


@pytest.mark.parametrize(("difference", "status"), [(1e-5, "identical"), (1e-2, "unequal")])
def test_rounding_in_the_last_digits_is_told_and_accepted_and_more_is_not(difference: float, status: str) -> None:
    written = fingerprint(sketched(HASHES, 3.0, 5.0))
    found = equality.compare(written, fingerprint(sketched(tuple(range(64)), 3.0, 5.0 + difference)))
    assert found.status == status
    assert ("by rounding" in found.text) == (status == "identical")


def test_rounded_values_beside_samples_in_another_order_are_refused() -> None:
    written = fingerprint(sketched(HASHES, 3.0), component(HASHES, name="label"))
    other = fingerprint(sketched(tuple(range(64)), 3.0), component(HASHES[::-1], name="label"))
    assert equality.compare(written, other).status == "unequal"


def test_rounding_is_no_excuse_for_integers_and_missing_samples() -> None:
    whole = fingerprint(sketched(HASHES, 3.0, dtype="int32"))
    other = fingerprint(sketched(tuple(range(64)), 3.0, dtype="int32"))
    assert equality.compare(whole, other).status == "unequal"
    fewer = fingerprint(sketched(tuple(range(63)), 3.0))
    assert equality.compare(fingerprint(sketched(HASHES, 3.0)), fewer).status == "unequal"
