"""The selftest's trainings on a GPU, by what they leave: scripted trials, the stubs of NVML and of the driver."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from pipeline_bench.analysis.thresholds import BUSY_SHARE
from pipeline_bench.model import session as sessions
from pipeline_bench.model.selftest import Check, Part, Selftest
from pipeline_bench.model.trial import Trial
from pipeline_bench.run import comparison, machine
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.selftest import cases, on_gpu, training
from pipeline_bench.selftest.training import attempt
from pipeline_bench.system import interrupts
from pipeline_bench.worker.devices import Matmul, TensorFlowDevice, TensorFlowReport
from tests.integration import scripted_gpu
from tests.integration.program import scripted_launcher
from tests.stubs.nvml import gpu_stub, stub_environment
from tests.trials import new_session, parts_of

__all__ = ["gpu_stub"]

REPORT = TensorFlowReport(
    tensorflow="2",
    import_s=1,
    built_with_cuda=True,
    devices=(TensorFlowDevice(kind="gpu", name="NVIDIA Stub"),),
    cpu_threads=2,
    matmul=Matmul(device="/gpu:0", ok=True),
)
NO_GPU = REPORT.model_copy(update={"devices": (), "reasons": ("Cannot dlopen some GPU libraries.",)})

Train = Callable[..., Outcome]


@pytest.fixture(scope="module")
def train(gpu_stub: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Run the steps of the trainings, whatever each of them comes to; with other variables of the environment."""

    def run(report: TensorFlowReport = REPORT, observer: Observer | None = None, **variables: str) -> Outcome:
        folder = tmp_path_factory.mktemp("selftest")
        timeline, neighbour = folder / "timeline", folder / "neighbour"
        timeline.touch()
        neighbour.touch()
        stubs = {"NVML_STUB_TIMELINE": timeline, "CUDA_STUB_TIMELINE": neighbour, "NVML_STUB_NEIGHBOUR": neighbour}
        names = {name: str(path) for name, path in stubs.items()} | {"NVML_STUB_WINDOW_MS": "100"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in stub_environment(gpu_stub, **names, **variables).items():
                patch.setenv(name, value)
            patch.setattr(machine, "ask_tensorflow", lambda: machine.TensorFlowAnswer(report))
            launcher = partial(scripted_launcher, module="tests.integration.scripted_gpu")
            patch.setattr(comparison, "best_launcher", lambda log, *_: (launcher(log), None))
            with closing(NvmlSampler.open()) as sampler, interrupts.deferred():
                return steps(training.Bench(folder, observer or Observer(), sampler))

    return run


def steps(bench: training.Bench) -> Outcome:
    session = new_session(on_gpu.searching("gpu:0")).model_copy(update={"selftest": Selftest(), "trials": ()})
    outcome = Outcome(session, bench.folder, interrupted=False)
    sessions.save(session, bench.folder)
    for step in training.steps(bench):
        outcome = attempt(step, outcome)
        if outcome.interrupted:
            break
    return outcome


def check_of(part: Part, what: str, figure: str) -> Check:
    (found,) = [check for check in part.checks if (check.what, check.figure) == (what, figure)]
    return found


@pytest.fixture(scope="module")
def outcome(train: Train) -> Outcome:
    return train()


def is_disturbed(part: Part) -> bool:
    """Whether a part may have missed its truth as the stub was sampled late, and no width starved it: a busy machine.

    A stub does that beside less work than a GPU's driver.
    """
    return part.status == "disturbed" or (part.status == "failed" and (part.taken_share or 0.0) >= BUSY_SHARE)


def test_every_training_has_its_part_and_all_pass_on_a_gpu_that_does_as_it_should(outcome: Outcome) -> None:
    found = parts_of(outcome)
    assert list(found) == [
        *(cases.TRAINING, cases.PLACED, cases.MIRRORED, cases.MATPOW, cases.NEIGHBOUR),
        *(cases.TUTORIAL, cases.STARVED),
    ]
    assert all(part.status == "passed" or is_disturbed(part) for part in found.values()), found
    assert found[cases.TRAINING].status == "passed", found
    assert check_of(found[cases.TRAINING], "function of 10", "device").measured_word == "gpu"
    assert check_of(found[cases.PLACED], "mirrored", "matrix products").measured_word == "GPU:0"


def test_each_comparison_is_kept_whole_in_a_session_of_its_own(outcome: Outcome) -> None:
    kept = {path.name: sessions.load(path) for path in (outcome.folder / training.FOLDER).iterdir()}
    starved = set() if is_disturbed(parts_of(outcome)[cases.STARVED]) else {"two_layer_starved"}
    assert {"training", "two_layer", "width"} | starved <= set(kept)
    for session in kept.values():
        assert {trial.status for trial in session.trials} == {"ok"}
        assert session.selftest is None
    assert {variant.run.steps for variant in kept["two_layer"].scenario.variants} == {5000}


def test_the_width_at_which_feed_dict_starves_this_gpu_is_found_and_the_tutorial_repeated_with_it(
    outcome: Outcome,
) -> None:
    part = parts_of(outcome)[cases.STARVED]
    if is_disturbed(part):
        pytest.skip("other programs took so much of the CPU that the stub was sampled late")
    width = sessions.load(outcome.folder / training.FOLDER / "two_layer_starved").scenario.variants[0].model.options
    (units,) = width["hidden_widths"]
    assert units == pytest.approx(scripted_gpu.STARVED_WIDTH, rel=0.3)
    found = check_of(part, f"feed_dict, {units} units", "utilization")
    assert found.planted == 31
    assert found.passed


def test_the_other_process_is_there_beside_its_trial_alone(outcome: Outcome) -> None:
    session = sessions.load(outcome.folder / training.FOLDER / "training")
    (trial,) = [trial for trial in session.trials if trial.variant == on_gpu.BESIDE]
    lines = (outcome.folder / "neighbour").read_text().splitlines()
    begun_ns = [float(line.split()[0]) for line in lines]
    assert len(begun_ns) > 1
    before = [each.ended_ns for each in session.trials if each.index < trial.index]
    behind = [each.started_ns for each in session.trials if each.index > trial.index]
    assert max(before) <= min(begun_ns)
    assert max(begun_ns) <= min(behind)
    # NVML's answer may be of a moment ago: the trial behind may be said to have been disturbed as well.
    assert on_gpu.BESIDE in [each.variant for each in session.disturbances if each.kind == "gpu-contention"]


def test_without_a_gpu_of_tensorflows_there_is_one_reason_and_no_trial(train: Train) -> None:
    outcome = train(NO_GPU)
    (part,) = parts_of(outcome).values()
    assert (part.name, part.status) == (cases.TRAINING, "not-run")
    assert part.reason == "TensorFlow uses no GPU here; Cannot dlopen some GPU libraries."
    assert not (outcome.folder / training.FOLDER).exists()


@pytest.fixture
def only_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the steps behind the first: what is looked at is in that one."""
    every = training.steps
    monkeypatch.setattr(training, "steps", lambda bench: iter(list(every(bench))[:1]))


@pytest.mark.slow
@pytest.mark.usefixtures("only_ways")
def test_a_way_that_does_not_train_fails_its_part_with_its_reason_and_no_other(train: Train) -> None:
    found = parts_of(train(SCRIPTED_GPU_RAISES="mirrored"))
    assert [part.name for part in found.values() if part.status == "failed"] == [cases.MIRRORED]
    assert check_of(found[cases.MIRRORED], "mirrored", "device").reason == "InternalError: planted"


@pytest.mark.slow
@pytest.mark.usefixtures("only_ways")
def test_a_trial_that_hangs_ends_with_the_time_and_what_is_behind_it_had_none(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_WAYS_LIMIT_S", 10.0)
    outcome = train(SCRIPTED_GPU_HANGS="callable")
    found = parts_of(outcome)
    hung = check_of(found[cases.TRAINING], "callable", "device")
    assert hung.measured_word == "failed"
    assert hung.reason == "the selftest's limit for these trials, 10 s, was over"
    assert (found[cases.MATPOW].status, found[cases.MATPOW].reason) == ("not-run", "there was no time for it")
    session = sessions.load(outcome.folder / training.FOLDER / "training")
    assert [trial.status for trial in session.trials] == ["ok", "failed"]


class Impatient(Observer):
    """Interrupts when a trial of that number is about to begin."""

    def trial_started(self, trial: Trial) -> None:
        if trial.index == 1:
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_ends_the_trainings_and_keeps_what_was_trained(train: Train) -> None:
    outcome = train(observer=Impatient())
    assert outcome.interrupted
    found = parts_of(outcome)
    assert check_of(found[cases.TRAINING], "session", "device").passed
    assert cases.TUTORIAL not in found
    session = sessions.load(outcome.folder / training.FOLDER / "training")
    assert session.trials[0].status == "ok"
