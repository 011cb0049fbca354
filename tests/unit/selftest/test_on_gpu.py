"""The search of the width at which feed_dict leaves a GPU starved, against GPUs of known speed."""

from __future__ import annotations

import pytest

from pipeline_bench.selftest import on_gpu


def search(kernels_ms_a_unit: float, fits: int = 2**20) -> dict[int, float]:
    """Follow the search on a GPU whose kernels take so long a unit, after 2 ms of the host's at each step."""
    found: dict[int, float] = {}
    width: int | None = on_gpu.FIRST_WIDTH
    while width is not None:
        kernels_ms = 0.05 + kernels_ms_a_unit * width
        found[width] = 100 * kernels_ms / (kernels_ms + 2.0) if width <= fits else 100.0
        width = on_gpu.next_width(found)
    return found


@pytest.mark.parametrize("kernels_ms_a_unit", [1e-5, 2e-5, 1e-4, 1e-3, 1e-2])
def test_a_width_is_found_on_slow_and_fast_gpus_in_a_few_trials(kernels_ms_a_unit: float) -> None:
    found = search(kernels_ms_a_unit)
    assert len(found) <= 6
    width = on_gpu.nearest_width(found)
    assert width is not None
    assert found[width] == pytest.approx(on_gpu.STARVED_PERCENT, abs=on_gpu.STARVED_WITHIN)


def test_a_width_that_does_not_fit_on_the_gpu_is_too_wide() -> None:
    found = search(1e-5, fits=20_000)
    assert on_gpu.nearest_width(found) == max(width for width in found if width <= 20_000)


def test_a_gpu_that_no_width_keeps_as_busy_ends_the_search() -> None:
    assert max(search(1e-9)) == 2**17
