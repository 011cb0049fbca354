"""A selftest by its command on stubs of the driver and of NVML, once: what is planted comes out at the other end.

The stub of the driver writes down what its kernels kept busy, and that of NVML computes its figures of it, with a
window, a latency and an error that are planted. What is TensorFlow's is left out; it proves nothing about a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline_bench import cli, environment
from pipeline_bench.analysis.results import summarise
from pipeline_bench.environment import Accelerator, describe
from pipeline_bench.model import session as sessions
from pipeline_bench.model.result import Result
from pipeline_bench.model.selftest import Checked, GpuRun, Part, Selftest, Window, last_selftest
from pipeline_bench.model.session import Session
from pipeline_bench.report import html, step_parts
from pipeline_bench.samplers.nvml_metrics import RATES_SOURCE, SAMPLES_SOURCE, UTILIZATION
from pipeline_bench.selftest import cases, gpu
from tests.stubs.nvml import gpu_environment, gpu_stub
from tests.unit import records

__all__ = ["gpu_stub"]

WINDOW_MS, LATENCY_MS, BIAS_POINTS = 100, 60, 3


@dataclass(frozen=True)
class Ran:
    """What the command left."""

    exit_code: int
    output: str
    session: Session
    selftest: Selftest
    checked: Checked
    """What later sessions find."""

    def part(self, name: str) -> Part:
        return next(part for part in self.selftest.parts if part.name == name)

    def window(self, source: str) -> Window:
        return next(window for window in self.selftest.windows if window.source == source)

    def gpu_run(self, name: str) -> GpuRun:
        return next(run for run in self.selftest.gpu_runs if run.name == name)


@pytest.fixture(scope="session")
def ran(gpu_stub: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("selftest")
    planted = {
        "NVML_STUB_WINDOW_MS": WINDOW_MS,
        "NVML_STUB_LATENCY_MS": LATENCY_MS,
        "NVML_STUB_BIAS": BIAS_POINTS,
        "NVML_STUB_PERIOD_MS": 20,
        "NVML_STUB_SAMPLE_TYPE": 0,
    }
    with pytest.MonkeyPatch.context() as patch:
        variables = gpu_environment(
            gpu_stub, folder / "timeline", **{name: str(each) for name, each in planted.items()}
        )
        for name, value in {**variables, "XDG_STATE_HOME": str(folder)}.items():
            patch.setenv(name, value)
        patch.setattr(environment, "TENSORFLOW_DISTRIBUTIONS", ())
        patch.setattr(gpu, "_QUICK_PERIODS_S", {330.0: 0.99})
        patch.setattr(gpu, "_QUICK_SHARES", (0.0, 0.5, 1.0))
        patch.setattr(gpu, "_KERNELS", {"wide": 1.0})
        patch.setattr(gpu, "_ACTIVITY_S", 0.7)
        done = CliRunner().invoke(cli.app, ["selftest", "--quick", "--no-live", "--out", str(folder)])
        driver, cpu = "999.99", environment.cpu_model()
        checked = last_selftest(driver, cpu, "NVIDIA Stub")
    (file,) = folder.glob("*/session.json")
    session = sessions.load(file)
    assert session.selftest is not None
    return Ran(done.exit_code, done.output, session, session.selftest, checked)


def test_the_command_judges_every_part_on_the_gpu_and_says_what_was_not_run(ran: Ran) -> None:
    samples = [check for check in ran.part(cases.UTILIZATION).checks if check.figure == SAMPLES_SOURCE]
    assert [check.passed for check in samples] == [True]  # of rates, which the poll stamps, a busy machine is a part
    assert ran.part(cases.ACTIVITY).status in ("passed", "failed")
    assert ran.part(cases.COPY).status == "shown"
    assert ran.part(cases.SOURCE).reason == "TensorFlow is not installed"
    assert ran.exit_code == (1 if ran.selftest.failed else 0), ran.output


def test_kernels_are_busy_for_their_share(ran: Ran) -> None:
    """On a busy machine they do not follow each other at once: a check plants what they came to."""
    shares = [run.busy_share for run in ran.selftest.gpu_runs if run.asked_share is not None]
    assert shares == [0.0, pytest.approx(0.5, abs=0.2), pytest.approx(0.9, abs=0.2)]


def test_the_window_latency_and_error_of_the_samples_are_found(ran: Ran) -> None:
    found = ran.window(SAMPLES_SOURCE)
    assert (found.window_ms, found.latency_ms) == (WINDOW_MS, LATENCY_MS)
    assert found.period_ms == pytest.approx(20, abs=0.1)
    assert found.error_points == pytest.approx(BIAS_POINTS, abs=1)


def test_rates_are_read_beside_the_samples(ran: Ran) -> None:
    """Which window they speak of is not asked: on a busy machine the polls that stamp them are late and few."""
    read = [track.source for run in ran.selftest.gpu_runs for track in run.tracks if track.at_ns and track.values]
    assert RATES_SOURCE in read
    assert ran.window(RATES_SOURCE).period_ms is not None


def test_later_sessions_find_the_windows_and_see_them(ran: Ran) -> None:
    assert ran.checked.usable_windows == ran.selftest.windows
    said = f"a figure is of {WINDOW_MS} ms, which end {LATENCY_MS} ms before its stamp"
    page = html.render(ran.session)
    assert said in page
    assert all(f"{check.what}, {check.figure}" in page for check in ran.part(cases.UTILIZATION).checks)
    assert f"{SAMPLES_SOURCE}: of {WINDOW_MS} ms; 95 % of the runs within" in " ".join(ran.output.split())


def of_a_trial(ran: Ran, run: GpuRun, known: tuple[Window, ...]) -> Session:
    """A trial whose steps fill a run, with what was sampled meanwhile."""
    steps = int((run.end_ns - run.start_ns) / 1e6)
    scenario = records.scenario("feed_dict", repeats=1)
    trials = [
        records.record(name, 0, 1.0, None, steps=steps, gpu=True, samples=run.tracks, start_ns=run.start_ns, noise=1e-6)
        for name in ("feed_dict", "ceiling")
    ]
    session = records.session(scenario, trials, describe(Accelerator()))
    return session.model_copy(update={"results": summarise(scenario, trials, 2, known)})


def utilization(ran: Ran, share: int, known: tuple[Window, ...]) -> Result:
    return of_a_trial(ran, ran.gpu_run(f"wide, {share} % of 330 ms"), known).results[0]


def test_the_error_that_was_found_is_the_interval_of_a_trials_utilization(ran: Ran) -> None:
    used = utilization(ran, 50, ran.checked.usable_windows).device_utilization
    assert used.source == SAMPLES_SOURCE
    assert used.window_ms == WINDOW_MS
    error = ran.window(SAMPLES_SOURCE).error_points
    assert used.ci95 is not None
    assert used.mean_percent is not None
    assert error is not None
    assert used.ci95 == pytest.approx((used.mean_percent - error, used.mean_percent + error))


def test_samples_that_speak_of_the_time_before_a_trial_count_only_without_their_window(ran: Ran) -> None:
    """Of an idle run behind a busy one a figure at its begin would say busy."""
    run = ran.gpu_run("wide, 100 % of 330 ms")
    track = next(track for track in run.tracks if (track.metric, track.source) == (UTILIZATION, SAMPLES_SOURCE))
    assert track.at_ns is not None
    early = int((track.at_ns.unpack() - run.start_ns < (WINDOW_MS + LATENCY_MS) * 1e6).sum())
    assert early > 0
    used = utilization(ran, 100, ran.checked.usable_windows).device_utilization
    assert run.busy_share is not None
    assert used.mean_percent == pytest.approx(100 * run.busy_share, abs=3)


@pytest.mark.parametrize("share", [25, 50, 100])
def test_gpm_says_which_share_of_the_sms_was_busy(ran: Ran, share: int) -> None:
    checks = {(check.what, check.figure): check for check in ran.part(cases.ACTIVITY).checks}
    check = checks[f"{share} % of the SMs", "sm active"]
    assert check.planted is not None
    assert 0.7 * share < check.planted < share + 1  # kernels that follow late on a busy machine
    assert check.measured == pytest.approx(check.planted, abs=5)


def test_what_gpm_says_of_tensor_cores_and_bus_is_shown(ran: Ran) -> None:
    checks = {(check.what, check.figure): check for check in ran.part(cases.ACTIVITY).checks}
    # Half of each kernel is on the tensor cores; on a busy machine kernels do not follow each other at once.
    tensor = checks["tensor cores", "tensor"].measured
    assert tensor is not None
    assert 25 < tensor < 60
    assert checks["copy to the device", "pcie rx"].measured == 900
    assert checks["copy to the device", "pcie rx"].passed is None


def test_what_gpm_said_of_a_run_is_a_line_of_the_report(ran: Ran) -> None:
    session = of_a_trial(ran, ran.gpu_run("25 % of the SMs"), ran.checked.usable_windows)
    _, line = step_parts.of_gpu(session)[0]
    busy = session.results[0].device_utilization.activity[0]
    assert busy.mean == pytest.approx(0.85 * 25, abs=0.2 * 25)
    assert busy.coverage is not None
    assert f"SMs busy {busy.mean:.0f} %" in line
    assert "warps 6 %" in line
    assert "PCIe out 100 MiB/s, PCIe in 900 MiB/s" in line
    assert f"(NVML GPM, windows of {busy.window_ms:.0f} ms, {busy.coverage:.0%} of" in line.replace(" %", "%")
