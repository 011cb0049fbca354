"""The window of NVML's figures, found by busy times that are known; the figures here are made of a known window."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_bench.model import Series
from pipeline_bench.model.selftest import GpuRun
from pipeline_bench.model.trial import Track
from pipeline_bench.selftest import windows
from tests.unit import records

MS = 1_000_000
METRIC, SOURCE = "device_utilization_percent", "NVML samples"


def cycles(period_ms: int, share: float, start_ms: int, lasts_ms: int = 6000) -> GpuRun:
    starts = np.arange(start_ms, start_ms + lasts_ms, period_ms) * MS if share else np.zeros(0, dtype=np.int64)
    return GpuRun(
        name=f"{share} of {period_ms}",
        kernel="wide",
        period_ms=period_ms,
        asked_share=share,
        busy_share=share,
        start_ns=start_ms * MS,
        end_ns=(start_ms + lasts_ms) * MS,
        busy_start_ns=Series.pack(starts) if share else None,
        busy_end_ns=Series.pack(starts + round(share * period_ms) * MS) if share else None,
    )


def runs(window_ms: int, latency_ms: int, bias_points: float = 0.0, up_to_late_ms: int = 0) -> list[GpuRun]:
    """Duty cycles one after the other, each with the figures of an instrument that has this window.

    `up_to_late_ms`: a figure is made anew in such a period, and stamped by the poll that reads it after that.
    """
    made = [
        cycles(period, share, start_ms=8000 * place)
        for place, (period, share) in enumerate(((20, 0.25), (500, 0.5), (2000, 0.25), (2000, 0.75), (20, 0.0)))
    ]
    busy = windows.Busy(made)
    found = []
    for run in made:
        at_ns = np.arange(run.start_ns, run.end_ns + 1500 * MS, 170 * MS).astype(np.float64)
        late_ns = at_ns % (up_to_late_ms * MS) if up_to_late_ms else 0
        to_ns = at_ns - late_ns - latency_ms * MS
        values = np.clip(busy.percent(to_ns - window_ms * MS, to_ns) + bias_points, 0, 100)
        found.append(run.model_copy(update={"tracks": (records.track(METRIC, at_ns, values, SOURCE),)}))
    return found


@pytest.mark.parametrize(("window_ms", "latency_ms"), [(167, 0), (200, 60), (1000, 100)])
def test_the_window_and_how_late_it_is_are_found(window_ms: int, latency_ms: int) -> None:
    found = windows.fit(runs(window_ms, latency_ms), METRIC, SOURCE)
    assert (found.window_ms, found.latency_ms) == (window_ms, latency_ms)
    assert found.period_ms == pytest.approx(170)
    assert found.error_points is not None
    assert found.error_points < 0.1  # also of periods of 2 s, of which the windows are no whole part


def test_the_latency_of_polled_figures_has_the_time_until_the_poll_in_it() -> None:
    found = windows.fit(runs(100, 60, up_to_late_ms=50), METRIC, SOURCE)
    assert found.window_ms == 100
    assert found.latency_ms in (80, 100)  # 60 and the mean of 0 to 50
    assert found.figure_points is not None
    assert found.error_points is not None
    assert found.figure_points > 3 * found.error_points  # what a single one is off by is little in a mean of many


def test_an_instrument_that_is_off_is_found_out() -> None:
    found = windows.fit(runs(200, 0, bias_points=15.0), METRIC, SOURCE)
    assert found.error_points is not None
    assert found.error_points > 12


def test_figures_that_do_not_move_tell_no_window() -> None:
    still = [run for run in runs(200, 0) if not run.asked_share]
    found = windows.fit(still, METRIC, SOURCE)
    assert found.window_ms is None
    assert found.reason


def test_without_a_figure_the_reason_is_the_instruments_own() -> None:
    why = "NVML does not report it while MIG is enabled on this GPU"
    refused = cycles(500, 0.5, 0).model_copy(
        update={"tracks": (Track(metric=METRIC, source="NVML utilization rates", reason=why),)}
    )
    assert windows.fit([refused], METRIC, "NVML utilization rates").reason == why
    assert windows.fit([refused], METRIC, SOURCE).reason == why  # NVML has no buffered samples there, without a word
    assert windows.fit([cycles(500, 0.5, 0)], METRIC, SOURCE).reason == "the driver gave no such figure"


def test_figures_that_also_speak_of_another_time_are_left_out() -> None:
    run = runs(1000, 0)[2]
    at_ns, values = windows.readings(run, METRIC, SOURCE)
    window = windows.fit(runs(1000, 0), METRIC, SOURCE)
    kept, _, to_ns = windows.inside(run, METRIC, window)
    assert windows.spoken_of(run, METRIC, window) == pytest.approx(kept.mean())
    assert np.max(to_ns) <= run.end_ns
    assert len(kept) == int(((at_ns - 1000 * MS >= run.start_ns) & (at_ns <= run.end_ns)).sum())
    assert len(kept) < len(values)


def test_kernels_that_overlap_are_busy_once() -> None:
    run = cycles(100, 0.5, 0, 200)
    twice = [run, run]
    assert windows.Busy(twice).percent(np.array([0.0]), np.array([200.0 * MS])) == pytest.approx(50)
