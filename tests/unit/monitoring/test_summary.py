"""The figures of a watched job, of which other work leaves out some steps."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_bench.analysis import measured, verdicts
from pipeline_bench.model import Series
from pipeline_bench.model.result import Result
from pipeline_bench.model.selftest import Checked
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.monitoring import record as watched
from pipeline_bench.monitoring.steps import StepLog
from pipeline_bench.monitoring.summary import VARIANT, disturbed_note, of_result, result_of
from tests.unit.analysis.test_measured import tracks
from tests.unit.records import record, track


def test_steps_that_others_disturbed_are_in_no_figure_and_told() -> None:
    """Each of the first 50 takes three times as long, while others take the CPU."""
    steps_ms = [30.0] * 50 + [10.0] * 100
    trial = record(VARIANT, 0, steps_ms, 4.0, samples=tracks(2500.0, (0.0, 1500.0)), warmup_steps=0)
    result = result_of(watched._scenario("train.py"), trial, 2, Checked(), None, True)
    assert result.step_ms.mean == 10.0
    assert result.steps == 100
    figures = of_result(result, 150, True)
    assert figures.line.startswith(
        "150 steps, 100 without other work beside them, of 10.0 ms; input wait 4.00 ms (40 %)"
    )
    assert disturbed_note(trial, 150, result) == (
        "50 of the job's 150 steps had other work beside them, and no figure is of those: with them a step takes "
        "16.7 ms"
    )


def of_waits(waits_ms: list[float], disturbed: tuple[float, float]) -> Result:
    """Return the figures of steps of 20 ms and a wait, while others take the CPU from one time to another."""
    log, at_ns = StepLog(), 0
    for wait_ms in waits_ms:
        wait_ns = int(wait_ms * 1e6)
        log.extend([at_ns], [at_ns + wait_ns + 20_000_000], [wait_ns], 1)
        at_ns += wait_ns + 20_000_000
    trial = of_log(log).model_copy(update={"samples": tracks(at_ns / 1e6, disturbed)})
    return result_of(watched._scenario("train.py"), trial, 2, Checked(), None, True)


def test_where_few_steps_have_the_wait_none_is_left_out() -> None:
    """The first step of each of three epochs waits 300 ms; others take the CPU in half of the steps between."""
    result = of_waits([300.0 if index % 60 == 0 else 0.0 for index in range(180)], (400.0, 1400.0))
    assert result.steps == 180
    assert result.input_wait_ms.value == pytest.approx(5.0)
    assert result.input_wait_share.value == pytest.approx(0.2)


def test_a_wait_that_other_work_caused_in_few_steps_is_left_out_with_them() -> None:
    """Of 300 steps, ten wait 200 ms while others have the CPU."""
    result = of_waits([200.0 if 100 <= index < 110 else 0.0 for index in range(300)], (2000.0, 4200.0))
    assert result.input_wait_share.value == pytest.approx(0.0)
    assert result.steps == 290


def test_where_nothing_disturbed_a_job_all_of_its_steps_count() -> None:
    trial = record(VARIANT, 0, [10.0] * 100, 4.0, samples=tracks(1000.0, None), warmup_steps=0)
    result = result_of(watched._scenario("train.py"), trial, 2, Checked(), None, True)
    assert of_result(result, 100, True).line.startswith("100 steps of 10.0 ms; input wait")
    assert disturbed_note(trial, 100, result) is None


def of_log(log: StepLog, warmup: int = 0) -> TrialRecord:
    rows = log.rows()
    assert rows.wait_ns is not None
    trial = record(VARIANT, 0, ((rows.end_ns - rows.start_ns) / 1e6).tolist(), 0.0, warmup_steps=warmup)
    assert trial.steps is not None
    columns = {"start_ns": rows.start_ns, "end_ns": rows.end_ns, "wait_ns": rows.wait_ns, "steps": rows.count}
    packed = {name: Series.pack(column) for name, column in columns.items()}
    return trial.model_copy(update={"steps": trial.steps.model_copy(update=packed)})


def test_rows_of_several_steps_count_as_so_many() -> None:
    """Epochs of a call of 50 steps and one of a single one, which alone waits, as with `steps_per_execution`."""
    log, at_ns = StepLog(), 0
    for _ in range(40):
        for took_ns, wait_ns, count in ((50_000_000, 0, 50), (9_000_000, 7_000_000, 1)):
            log.extend([at_ns], [at_ns + took_ns], [wait_ns], count)
            at_ns += took_ns
    result = result_of(watched._scenario("train.py"), of_log(log, 2), 2, Checked(), None, True)
    assert result.steps == 39 * 51
    assert result.step_ms.mean == pytest.approx(59 / 51)
    assert (result.step_ms.median, result.step_ms.p05, result.step_ms.p95) == (1.0, 1.0, 1.0)
    assert result.input_wait_ms.value == pytest.approx(39 * 7 / (39 * 51))
    assert result.input_wait_share.value == pytest.approx(7 / 59)
    assert of_result(result, result.steps, True).verdict_name == "input-bound"


def test_what_others_took_leaves_a_wait_about_the_threshold_in_doubt() -> None:
    """Each step waits 12 % of its time; on a CPU that others took a third of, that may be 10 %."""
    quiet = record(VARIANT, 0, [10.0] * 200, 1.2, samples=tracks(2500.0, None), warmup_steps=0)
    busy = record(VARIANT, 0, [10.0] * 200, 1.2, samples=tracks(2500.0, (0.0, 2500.0)), warmup_steps=0)
    found = [result_of(watched._scenario("train.py"), each, 2, Checked(), None, True).verdict for each in (quiet, busy)]
    assert [verdicts.first_words(each) for each in found] == ["input-bound", "inconclusive"]
    assert found[1].doubt is not None
    assert "while other work took" in found[1].text


@pytest.mark.parametrize(("disturbed", "taken"), [(range(2, 10), 0.4), (range(1), 0.05)])
def test_what_others_took_from_a_row_of_several_steps_is_of_all_its_time(disturbed: range, taken: float) -> None:
    """Calls of a second; others use half of a busy machine in some tenths of each."""
    log, second_ns = StepLog(), 10**9
    begins_ns = np.arange(40) * second_ns
    log.extend(begins_ns, begins_ns + second_ns, np.zeros(40, dtype=np.int64), 100)
    until_ns = (np.arange(400) + 1) * second_ns // 10
    columns = {
        "machine_cpu_percent": np.full(400, 100.0),
        "other_cpu_percent": np.isin(np.arange(400) % 10, disturbed) * 50.0,
    }
    samples = tuple(track(name, until_ns, column, "psutil") for name, column in columns.items())
    trial = of_log(log).model_copy(update={"samples": samples})
    assert measured.Measured(measured.AllSteps(trial, 2)).taken == pytest.approx(taken)
