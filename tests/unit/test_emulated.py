"""An emulated device through results, environment, conclusion and reports: never mistaken for a real one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline_bench import environment
from pipeline_bench.analysis.conclusion import conclude
from pipeline_bench.analysis.difference import between
from pipeline_bench.analysis.gates import Limits
from pipeline_bench.analysis.results import summarise
from pipeline_bench.analysis.speedups import fastest
from pipeline_bench.environment import Accelerator, seen_by_tensorflow
from pipeline_bench.model import Series
from pipeline_bench.model.events import Device, Steps
from pipeline_bench.model.result import BUSY_TIME, CPU_TIME, DeviceUtilization
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial, TrialRecord, plan
from pipeline_bench.report import difference, facts
from pipeline_bench.report.html import plots
from pipeline_bench.run.trial_log import TrialLog
from pipeline_bench.samplers import Reading
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from tests.unit import records, sessions
from tests.unit.sessions import with_result

MS = 1_000_000
NAME = "emulated accelerator, busy {} ms a step"


def emulated(record: TrialRecord, busy_ms: float) -> TrialRecord:
    """The trial as one whose device was emulated, busy so long in every step; NVML and psutil saw others at work."""
    assert record.steps is not None
    busy = Series.pack(np.full(record.steps.count, round(busy_ms * MS), dtype=np.int64))
    loss = Series.pack(np.full(record.steps.count, np.nan))
    at_ns = np.linspace(0, record.ended_ns, 20)
    tracks = [
        records.track(metric, at_ns, np.linspace(0, 99, 20), source)
        for metric, source in (("cpu_seconds", "psutil"), ("device_utilization_percent", "NVML samples"))
    ]
    return record.model_copy(
        update={
            "steps": record.steps.model_copy(update={"busy_ns": busy, "loss": loss}),
            "device": Device(kind="emulated", name=NAME.format(f"{busy_ms:g}")),
            "accuracy": record.accuracy.model_copy(update={"before": None, "after": None}),
            "samples": tuple(tracks),
        }
    )


def two_devices() -> Scenario:
    """Variants a and b that emulate 1 ms a step, and c that emulates 4 ms, each with its ceiling."""
    entries = [
        {"name": name, "backend": "feed_dict", "model": {"kind": "emulated", "step_ms": step_ms}}
        for name, step_ms in (("a", 1.0), ("b", 1.0), ("c", 4.0))
    ]
    return resolve({"name": "test", "run": {"steps": 100, "repeats": 3}, "variants": entries})


def trials(scenario: Scenario, **step_ms: tuple[float, float, float]) -> list[TrialRecord]:
    """Three repeats of each variant: step, wait and busy time in ms; the ceilings take the busy time and 0.1 ms."""
    found = []
    for variant in scenario.variants:
        busy_ms = variant.model.options["step_ms"]
        took_ms, wait_ms, _ = step_ms.get(variant.name, (busy_ms + 0.1, None, busy_ms))
        found += [emulated(records.record(variant.name, r, took_ms, wait_ms), busy_ms) for r in range(3)]
    return found


def session(scenario: Scenario, of: list[TrialRecord]) -> Session:
    devices = [record.device for record in of if record.device]
    return records.session(scenario, of, seen_by_tensorflow(sessions.CPU, devices))


@pytest.fixture
def planned() -> Session:
    """The host keeps the device of 4 ms busy and not that of 1 ms."""
    scenario = two_devices()
    return session(scenario, trials(scenario, a=(4.0, 2.8, 1), b=(2.5, 1.4, 1), c=(4.2, 0.05, 4)))


@pytest.fixture
def one_device() -> Session:
    """Two variants on one emulated device of 1 ms."""
    scenario = resolve(
        {
            "name": "test",
            "model": {"kind": "emulated", "step_ms": 1.0},
            "run": {"steps": 100, "repeats": 3},
            "variants": [{"name": "a", "backend": "feed_dict"}, {"name": "b", "backend": "fifo_queue"}],
        }
    )
    return session(scenario, trials(scenario, a=(4.0, 2.8, 1), b=(2.0, 0.9, 1)))


def mixed() -> Session:
    """A variant that trained on the CPU, and b the same job on an emulated device."""
    entries = [
        {"name": "a", "backend": "feed_dict"},
        {"name": "b", "backend": "feed_dict", "model": {"kind": "emulated", "step_ms": 1.0}},
    ]
    scenario = resolve({"name": "mixed", "run": {"steps": 100, "repeats": 3}, "variants": entries})
    found = []
    for variant in scenario.variants:
        for repeat in range(3):
            record = records.record(variant.name, repeat, 4.0, 1.0 if variant.ceiling else None)
            found.append(emulated(record, 1.0) if variant.model.kind == "emulated" else record)
    return session(scenario, found)


def test_its_utilization_is_busy_over_wall_time_and_nothing_that_was_sampled(one_device: Session) -> None:
    percents = {result.variant: result.device_utilization for result in one_device.results}
    assert percents["a"].mean_percent == pytest.approx(25, rel=0.02)
    assert percents["b"].mean_percent == pytest.approx(50, rel=0.02)
    assert {used.source for used in percents.values()} == {BUSY_TIME}
    assert percents["a"].samples == one_device.result("a").steps


def test_a_loop_that_brings_no_busy_time_gives_no_utilization_and_says_so(one_device: Session) -> None:
    bare = [
        record.model_copy(update={"steps": record.steps.model_copy(update={"busy_ns": None})})
        for record in one_device.trials
        if record.steps
    ]
    used = summarise(one_device.scenario, bare, cores=2)[0].device_utilization
    assert used.mean_percent is None
    assert "busy time" in (used.reason or "")


def test_on_one_emulated_device_variants_are_compared_as_ever(one_device: Session) -> None:
    assert one_device.result("b").speedup.value == pytest.approx(2, rel=0.02)
    assert conclude(one_device).startswith("b is fastest: 2.00× the throughput of a")


def test_different_devices_are_not_held_against_each_other(planned: Session) -> None:
    assert planned.result("b").speedup.value == pytest.approx(1.6, rel=0.02)
    over = planned.result("c").speedup
    assert over.value is None
    assert over.reason == "the two emulate different devices: 'a' is not comparable with it"


def test_a_real_and_an_emulated_device_are_not_held_against_each_other() -> None:
    found = mixed()
    assert found.result("b").speedup.reason == "one of the two is emulated: 'a' is not comparable with it"
    best = fastest(found)
    assert best is not None
    assert best.variant == "a"
    assert "b" not in conclude(found).replace("-bound", "").split()


def test_the_conclusion_says_which_devices_are_kept_busy(planned: Session) -> None:
    assert conclude(planned) == (
        "Of the emulated accelerators, kept busy: 4 ms a step (c, AU 0.98); not kept busy: 1 ms a step (b, AU 0.44)."
    )


@pytest.mark.parametrize(
    ("doubted", "text"),
    [
        ("c", "probably kept busy: 4 ms a step (c, AU 0.98); not kept busy: 1 ms a step (b, AU 0.44)"),
        ("a", "kept busy: 4 ms a step (c, AU 0.98); probably not kept busy: 1 ms a step (b, AU 0.44)"),
    ],
)
def test_of_a_device_whose_verdict_is_probable_only_the_conclusion_says_probably(
    planned: Session, doubted: str, text: str
) -> None:
    """That one variant keeps its device busy is as sure as that one; that none does as the least sure of them."""
    probable = planned.result(doubted).verdict.model_copy(update={"certainty": "probable"})
    assert conclude(with_result(planned, doubted, verdict=probable)) == f"Of the emulated accelerators, {text}."


def test_a_device_whose_verdict_is_open_is_not_told(planned: Session) -> None:
    doubtful = [
        result.model_copy(update={"verdict": result.verdict.model_copy(update={"kind": "inconclusive"})})
        for result in planned.results
    ]
    said = conclude(planned.model_copy(update={"results": tuple(doubtful)}))
    assert said == "Of the emulated accelerators, not known: 1 ms a step (b, AU 0.44) and 4 ms a step (c, AU 0.98)."


def test_sessions_on_other_devices_are_not_divided_by_each_other_and_decide_no_gate(one_device: Session) -> None:
    step_ms = {"ceiling": 0.8}
    of_real = [records.record(t.variant, t.repeat, step_ms.get(t.variant, 1.0), 0.1) for t in one_device.trials]
    real = session(one_device.scenario, of_real)
    entries = [{"name": name, "backend": "feed_dict"} for name in ("a", "b")]
    changed = resolve({"name": "test", "model": {"kind": "emulated", "step_ms": 5.0}, "variants": entries})
    slower = session(changed, trials(changed, a=(8.0, 2.8, 5), b=(6.0, 0.9, 5)))
    for after, device in ((real, "a device that computed"), (slower, NAME.format("5"))):
        found = between(one_device, after, Limits(slower=0.05))
        assert {change.step_time.value for change in found.variants} == {None}
        first = found.variants[0]
        assert f"it trained on {NAME.format('1')} before and on {device} after" in first.text
        assert {gate.outcome for gate in found.gates} == {"undecided"}
        assert difference.headline(found).endswith("2 variants: 2 not comparable.")
        assert first.accelerator_utilization.change is not None
    assert between(one_device, one_device).variants[0].step_time.value == pytest.approx(1)


def test_the_environment_names_every_emulated_device() -> None:
    devices = [Device(kind="emulated", name=NAME.format(ms)) for ms in ("1", "4", "1")]
    found = seen_by_tensorflow(environment.describe(Accelerator(name="NVIDIA H200")), devices)
    assert found.accelerator_kind == "emulated"
    assert found.accelerator_name == "emulated accelerator, busy 1 ms a step; 4 ms a step"
    assert found.accelerator_reason is None


@pytest.mark.parametrize(("kind", "name"), [("cpu", None), ("gpu", "NVIDIA H200")])
def test_beside_real_ones_an_emulated_device_leaves_the_environment_alone(kind: Any, name: str | None) -> None:
    devices = [Device(kind="emulated", name=NAME.format("1")), Device(kind=kind, name=name or "CPU:0")]
    assert seen_by_tensorflow(environment.describe(Accelerator(name=name)), devices).accelerator_kind == kind


def test_of_real_and_emulated_ones_each_utilization_has_its_source() -> None:
    assert mixed().device_label == "mixed"
    assert (facts.busy_time(mixed()) or "").startswith("emul. util. of b; ceiling, ")


def test_beside_emulated_ones_a_real_device_is_labelled_as_itself() -> None:
    found = mixed()
    seen = DeviceUtilization(source=CPU_TIME, mean_percent=51.0)
    results = [found.results[0].model_copy(update={"device_utilization": seen}), *found.results[1:]]
    figure = plots.utilization(found, results)
    assert figure is not None
    assert "CPU 51 %" in figure.alt
    assert "mixed 51 %" not in figure.alt


def test_the_live_figure_and_the_record_are_of_its_busy_time(one_device: Session) -> None:
    trial: Trial = plan(one_device.scenario)[0]
    log = TrialLog(trial, 0)
    log.apply(Device(kind="emulated", name=NAME.format("1")))
    start_ns = np.arange(10, dtype=np.int64) * 4 * MS
    log.apply(
        Steps(
            first=0,
            start_ns=Series.pack(start_ns),
            end_ns=Series.pack(start_ns + 4 * MS),
            wait_ns=None,
            busy_ns=Series.pack(np.full(10, MS, dtype=np.int64)),
            loss=Series.pack(np.full(10, np.nan)),
        )
    )
    log.take([Reading("device_utilization_percent", "NVML samples", MS, value=93.0)])
    log.take([Reading("cpu_seconds", "psutil", at, value=at / 1e9) for at in (0, 20 * MS, 40 * MS)])
    progress = log.progress(40 * MS, cores=2)
    assert (progress.device_utilization_percent, progress.device_utilization_source) == (25.0, BUSY_TIME)
    assert [track.metric for track in log.tracks()] == ["cpu_seconds"]
    joined = log.joined_steps()
    assert joined is not None
    assert joined.busy_ns is not None
    assert joined.busy_ns.unpack().tolist() == [MS] * 10
