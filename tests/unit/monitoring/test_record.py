"""The session of a watched job, which every report can show, and the samples of its device in bounded memory."""

import errno
import io
import os
import re
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline_bench.analysis.conclusion import conclude
from pipeline_bench.analysis.difference import between
from pipeline_bench.environment import cpu_model
from pipeline_bench.model import session as sessions
from pipeline_bench.model.events import Device
from pipeline_bench.model.result import CPU_TIME
from pipeline_bench.model.selftest import Checked, Window, keep_last
from pipeline_bench.model.session import Session
from pipeline_bench.monitoring.page_faults import PageFaults
from pipeline_bench.monitoring.publishing import Publisher
from pipeline_bench.monitoring.record import JobRecord, write_line
from pipeline_bench.monitoring.sampling import Readings, SamplerThread
from pipeline_bench.monitoring.steps import NO_WAIT_NS, StepLog, StepRows
from pipeline_bench.monitoring.summary import JobSummary
from pipeline_bench.plugins import renderer
from pipeline_bench.report import html, markdown
from pipeline_bench.samplers import Reading, Sampler
from pipeline_bench.samplers.nvml import STOPPED, NvmlSampler, Timeouts
from pipeline_bench.samplers.nvml_metrics import METRICS, RATES_SOURCE, UTILIZATION
from pipeline_bench.system.processes import allowed_cpus
from tests.stubs.nvml import nvml_stub, use

__all__ = ["nvml_stub"]

MS = 10**6
CPU = Device(kind="cpu", name="CPU")


@pytest.fixture(autouse=True)
def machine_without_nvml(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process less for each job that is kept, but where the test is about NVML."""
    monkeypatch.setattr("pipeline_bench.monitoring.record._accelerators", {})
    if "nvml_stub" not in request.fixturenames:
        monkeypatch.setattr(NvmlSampler, "open", NvmlSampler)


def finished(steps: int = 100, wait_ms: float = 1.0, count: int = 1, reason: str | None = None) -> Session:
    """The session of a job whose steps take 4 ms, of which they wait so long."""
    record = JobRecord("my job", CPU)
    starts = np.arange(steps) * 4 * MS * count
    wait_ns = int(wait_ms * MS) * count if wait_ms >= 0 else NO_WAIT_NS
    record.log.extend(starts, starts + 4 * MS * count, wait_ns, count)
    record.reason = reason
    return record.finish(None).session


def without_a_step() -> JobSummary:
    """The figures of a job that has taken no step."""
    record = JobRecord("my job", CPU)
    figures = record.summary()
    record.finish(None)
    return figures


def test_the_session_has_the_jobs_figures_and_is_watched() -> None:
    session = finished()
    (result,) = session.results
    assert session.watched
    assert result.step_ms.mean == pytest.approx(4.0)
    assert result.input_wait_ms.value == pytest.approx(1.0)
    assert result.input_wait_share.value == pytest.approx(0.25)
    assert (result.verdict.kind, result.verdict.severe) == ("input-bound", True)
    assert result.steps == 90  # without the warm-up


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_line_is_written_also_where_the_stream_cannot_show_its_folder(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    write_line(without_a_step(), "fit", Path(os.fsdecode(b"caf\xe9")))
    assert stream.buffer.getvalue().endswith(b"; session in caf?\n")


class FullDisk(io.StringIO):
    """A stream to a disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_stream_that_takes_no_line_does_not_end_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = without_a_step()
    closed = io.StringIO()
    closed.close()
    for stream in (FullDisk(), closed, None):
        monkeypatch.setattr(sys, "stdout", stream)
        write_line(figures, "fit")


def test_what_a_ceiling_would_tell_is_not_measured_and_says_what_is_known() -> None:
    (result,) = finished().results
    assert result.accelerator_utilization.value is None
    assert "at most 0.75" in str(result.accelerator_utilization.reason)
    assert result.host_slowdown_share.value is None
    assert result.samples_per_second is None
    assert result.missing["samples_per_second"]


def test_a_job_cites_the_machines_last_selftest_and_counts_figures_by_its_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    window = Window(source=RATES_SOURCE, window_ms=100, latency_ms=0, error_points=3.0)
    found: list[Session] = []
    for windows in ((), (window,)):
        keep_last(Checked(at="2026-11-22T12:00:00+00:00", cpu=cpu_model(), windows=windows))
        record = JobRecord("short", Device(kind="gpu", name="a GPU"))
        record.log.extend(np.arange(100) * 4 * MS, np.arange(1, 101) * 4 * MS, MS, 1)
        record._readings.add([Reading(UTILIZATION, RATES_SOURCE, 300 * MS, 40.0)])
        found.append(record.finish(None).session)
    assert [session.checked and session.checked.at for session in found] == 2 * ["2026-11-22T12:00:00+00:00"]
    assert [session.results[0].device_utilization.mean_percent for session in found] == [None, 40.0]


def test_rows_of_several_steps_are_counted_as_those() -> None:
    session = finished(steps=10, count=8)
    assert session.results[0].steps == 72
    assert session.results[0].step_ms.mean == pytest.approx(4.0)
    assert session.results[0].verdict.kind == "input-bound"
    assert any("80 steps are kept as 10 rows" in note for note in session.notes)


def test_a_wait_that_was_not_measured_keeps_its_reason() -> None:
    (result,) = finished(wait_ms=-1, reason="the input is distributed").results
    assert result.input_wait_share.value is None
    assert result.input_wait_share.reason == "the input is distributed"
    assert result.verdict.kind == "not-measured"


def test_a_job_without_a_step_has_a_session_that_says_so() -> None:
    session = JobRecord("idle", CPU).finish(None).session
    assert session.trials[0].status == "failed"
    assert "no step" in str(session.trials[0].reason)
    assert session.results[0].verdict.kind == "not-measured"


def test_a_rank_says_which_process_trains_and_how_far_its_clock_is_off_that_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    record = JobRecord("my job", CPU, tmp_path)
    record.log.extend(np.arange(100) * 4 * MS, np.arange(1, 101) * 4 * MS, MS, 1)
    folder = record.finish(None).folder
    assert folder is not None
    host = sessions.load(folder).host
    assert host is not None
    assert host.clock_offset_s == pytest.approx(0, abs=60)
    assert host.pid == os.getpid()


def test_the_end_is_kept_once(tmp_path: Path) -> None:
    record = JobRecord("my job", CPU, tmp_path)
    record.log.extend(np.arange(50) * MS, np.arange(1, 51) * MS, 1000)
    kept = record.finish("the job was ended by KeyboardInterrupt")
    assert kept.folder is not None
    assert sessions.load(kept.folder) == kept.session
    assert kept.session.notes == ("the job was ended by KeyboardInterrupt",)
    assert record.finish(None) is kept
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("late_wait_ms", [0.4, 2.0])
def test_the_last_line_has_the_figures_of_the_page_though_the_warm_up_differs(late_wait_ms: float) -> None:
    record = JobRecord("my job", CPU)
    waits = np.where(np.arange(60) < 30, 3.0, late_wait_ms) * MS
    record.log.extend(np.arange(60) * 4 * MS, np.arange(1, 61) * 4 * MS, waits.astype(np.int64))
    meanwhile = record.summary()
    kept = record.finish(None)
    (result,) = kept.session.results
    assert kept.figures.input_wait_share == result.input_wait_share.value
    assert kept.figures.input_wait_share != meanwhile.input_wait_share, "of all steps but the first"
    assert record.summary() == kept.figures
    assert (kept.figures.step_ms, kept.figures.verdict) == (result.step_ms.mean, result.verdict)


def test_the_last_line_has_a_wait_where_that_of_one_step_is_not_known() -> None:
    record = JobRecord("my job", CPU)
    waits = np.full(60, MS)
    waits[30] = NO_WAIT_NS
    record.log.extend(np.arange(60) * 4 * MS, np.arange(1, 61) * 4 * MS, waits)
    assert record.finish(None).figures.input_wait_share == pytest.approx(0.25)


def running(out: Path, monkeypatch: pytest.MonkeyPatch, steps: int = 50) -> JobRecord:
    """A job that is due to be saved, and was not by its sampler."""
    monkeypatch.setattr("pipeline_bench.monitoring.record._KEEP_EVERY_NS", 0)
    monkeypatch.setattr("pipeline_bench.monitoring.record.SamplerThread", NoSampler)
    record = JobRecord("my job", CPU, out)
    record.log.extend(np.arange(steps) * MS, np.arange(1, steps + 1) * MS, 1000)
    return record


class NoSampler:
    """In the place of the sampler's thread."""

    problem = None

    def __init__(self, *_: object) -> None:
        pass

    def poll(self) -> None:
        pass

    close = poll


def test_a_running_job_is_saved_and_in_the_same_folder_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = running(tmp_path, monkeypatch)
    told = []
    record.on_kept = lambda: told.append(record.kept)
    record.keep()
    (folder,) = tmp_path.iterdir()
    session = sessions.load(folder)
    assert (session.results[0].steps, session.trials[0].status) == (45, "ok")
    assert session.trials[0].allowed_cpus == allowed_cpus()
    assert "had not ended" in session.notes[0]
    record.log.extend(np.arange(50, 60) * MS, np.arange(51, 61) * MS, 1000)
    ended = record.finish(None)
    assert ended.folder == folder
    assert sessions.load(folder).results[0].steps == 54
    assert sessions.load(folder).notes == ()
    assert [kept and kept.figures.steps for kept in told] == [45, 54]  # as the sessions have them
    record.keep()
    assert sessions.load(folder) == ended.session


def test_what_is_done_with_each_saving_counts_for_how_often_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, spent_ns, saved = running(tmp_path, monkeypatch), [0], list[int]()
    monkeypatch.setattr("time.thread_time_ns", lambda: spent_ns[0])

    def told() -> None:
        saved.append(spent_ns[0])
        spent_ns[0] += 10**10  # as by a look at all modules of a large program

    record.on_kept = told
    for _ in range(3):
        record.keep()
    assert len(saved) == 1


def test_what_its_memory_takes_is_counted_from_when_it_trains_and_remarked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []

    class Looks(PageFaults):
        def __init__(self) -> None:
            looks.append(trains)

        def remarks(self) -> tuple[str, ...]:
            return ("the kernel makes its memory",)

    monkeypatch.setattr("pipeline_bench.monitoring.record.PageFaults", Looks)
    monkeypatch.setattr(Publisher, "is_due", True)
    record, trains = running(tmp_path, monkeypatch, steps=2), False
    record.publish()
    trains = True
    record.log.extend(np.arange(2, 60) * MS, np.arange(3, 61) * MS, 1000)
    record.publish()
    record.publish()
    ended = record.finish(None)
    assert looks == [True]
    assert ended.remarks == ended.session.notes == ("the kernel makes its memory",)
    assert running(tmp_path, monkeypatch).finish(None).remarks == (), "it was too short to be looked at"


def test_what_is_no_training_yet_is_not_saved_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = running(tmp_path, monkeypatch, steps=3)
    record.keep()
    record.drop()
    assert list(tmp_path.iterdir()) == []


def test_a_fork_ends_though_a_thread_of_its_parent_held_the_lock_and_leaves_the_parents_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = running(tmp_path, monkeypatch)
    record.keep()
    (folder,) = tmp_path.iterdir()
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with record._lock:
            held.set()
            let_go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            record.finish("ended in the fork")
        finally:
            os._exit(int(sys.exc_info()[0] is not None))
    assert os.waitpid(child, 0)[1] == 0
    let_go.set()
    thread.join()
    assert "had not ended" in sessions.load(folder).notes[0]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_does_not_disturb_the_job(tmp_path: Path) -> None:
    in_the_way = tmp_path / "reports"
    in_the_way.write_text("a file")
    record = JobRecord("my job", CPU, in_the_way)
    kept = record.finish(None)
    assert kept.folder is None
    assert str(in_the_way) in str(record.problem)
    assert record.problem in kept.session.notes


@pytest.mark.parametrize(
    ("steps", "wait_ms", "reason"),
    [(100, 1.0, None), (100, -1, "it is distributed"), (1, 1.0, None)],
    ids=["input-bound", "not measured", "one step"],
)
def test_every_report_shows_it(steps: int, wait_ms: float, reason: str | None) -> None:
    session = finished(steps, wait_ms, reason=reason)
    verdict = session.results[0].verdict
    assert conclude(session)
    for name, function in (("csv", "render"), ("trace", "render"), ("html", "fragment")):
        assert renderer(name, function)(session)
    for page in (markdown.render(session), html.render(session)):
        assert "my job" in page
    assert verdict.text.split(":")[0] in markdown.render(session).replace("\\", "")
    assert between(session, session)


@pytest.mark.parametrize(
    ("opening_s", "waits_s", "in_the_tracks", "of_the_machine"),
    [
        (1, 60, STOPPED, STOPPED),
        (1000, 0.1, "NVML had not answered when the trial ended", "NVML had not answered when it was closed"),
    ],
)
def test_a_job_beside_an_nvml_that_hangs_ends_with_its_steps_and_the_reason(
    nvml_stub: Path,
    monkeypatch: pytest.MonkeyPatch,
    opening_s: float,
    waits_s: float,
    in_the_tracks: str,
    of_the_machine: str,
) -> None:
    monkeypatch.setattr("pipeline_bench.monitoring.record._NVML_OPENS_WITHIN_S", waits_s)
    use(monkeypatch, nvml_stub, NVML_STUB_MODE="hang_in_init")
    hanging = NvmlSampler.open(Timeouts(opening_s, end_s=0.2))
    monkeypatch.setattr(NvmlSampler, "open", lambda: hanging)
    record = JobRecord("my job", Device(kind="gpu", name="GPU", pci_bus_id="0000:01:00.0"))
    assert hanging.pid is not None, "the job waited until the opening was given up"
    record.log.extend(np.arange(50) * MS, np.arange(1, 51) * MS, 1000)
    session = record.finish(None).session
    assert session.trials[0].status == "ok"
    assert {track.reason for track in session.trials[0].samples if track.metric in METRICS} == {in_the_tracks}
    assert session.environment.accelerator_reason == of_the_machine
    assert hanging.pid is None


def test_nvml_is_asked_of_the_machine_once_for_all_trainings_of_a_process_on_its_cpu(
    nvml_stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, nvml_stub)
    monkeypatch.setattr("pipeline_bench.monitoring.record._NVML_OPENS_WITHIN_S", 60)
    asked = []
    for _ in range(2):
        record = JobRecord("my job", CPU)
        asked.append(record._gpu.pid is not None)
        assert record.finish(None).session.environment.driver is not None
    assert asked == [True, False]


def test_the_conclusion_names_what_limits_the_job() -> None:
    assert conclude(finished(wait_ms=3.0)) == "job is severely input-bound."
    hardly = conclude(finished(wait_ms=0.0))  # beside other tests it is only probable
    assert re.match("job is (probably )?not input-bound;", hardly)


def test_a_job_whose_command_line_and_name_are_no_text_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", os.fsdecode(b"caf\xe9")])
    record = JobRecord("a \udcff\x1b]0;title\x07 job", CPU, tmp_path)
    kept = record.finish("a \ud800 reason")
    session = kept.session
    assert kept.folder is not None
    assert sessions.load(kept.folder) == session
    assert session.command == "train.py 'caf\\xe9'"
    assert session.scenario.name == "a \\xff job"


SECOND = 10**9


def cpu(at_s: float, seconds: float) -> Reading:
    return Reading("cpu_seconds", "psutil", int(at_s * SECOND), seconds)


def gpu(at_s: float, percent: float) -> Reading:
    return Reading("device_utilization_percent", "NVML samples", int(at_s * SECOND), percent)


def test_a_cpus_utilization_is_cpu_time_over_wall_time_and_cores() -> None:
    readings = Readings()
    readings.add([cpu(0, 0.0)])
    readings.add([cpu(10, 5.0)])
    readings.add([cpu(20, 25.0)])
    for since_s, expected in ((0, 100 * 25 / 80), (10, 50.0)):
        percent, source = readings.utilization(since_s * SECOND, cores=4, gpu=False)
        assert percent == pytest.approx(expected)
        assert source == CPU_TIME


def test_a_gpus_utilization_is_what_it_said_since_then() -> None:
    readings = Readings()
    readings.add([gpu(1, 90.0), gpu(2, 20.0), gpu(3, 40.0), cpu(1, 0.0), cpu(3, 2.0)])
    assert readings.utilization(2 * SECOND, cores=4, gpu=True) == (30.0, "NVML samples")


def test_while_a_job_trains_its_gpus_utilization_is_that_of_the_steps_alone() -> None:
    """Epochs of 1 s, each with an evaluation of 1 s behind it; the first step traces for a second."""
    log = StepLog()
    log.extend([0], [SECOND], 0)
    for epoch in (1, 3):
        starts = epoch * SECOND + np.arange(100) * 10 * MS
        log.extend(starts, starts + 10 * MS, 0)
    readings = Readings()
    readings.add([gpu(0.5, 0.0), *(gpu(at_s, 80.0 if int(at_s) % 2 else 2.0) for at_s in np.arange(1.3, 5.0, 0.2))])
    rows = log.rows(first=False)
    assert readings.utilization(0, cores=4, gpu=True, steps=rows) == (80.0, "NVML samples")
    idle = Readings()
    idle.add([gpu(2.5, 2.0)])
    assert idle.utilization(0, cores=4, gpu=True, steps=rows) == (None, None)


def test_the_figures_of_an_epoch_take_no_longer_the_more_epochs_were_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, whose readings are matched with the steps, in the training's own thread."""
    matched: list[list[int]] = []

    def utilization(since_ns: int, cores: int, is_gpu: bool, steps: StepRows) -> tuple[None, None]:
        matched.append(steps.start_ns.tolist())
        return None, None

    record = JobRecord("fit", Device(kind="gpu", name="a GPU"))
    monkeypatch.setattr(record._readings, "utilization", utilization)
    for begin_ns in (100, 200, 300):
        record.log.extend([begin_ns, begin_ns + 10], [begin_ns + 10, begin_ns + 20], 0)
        record.summary(record.log.totals, begin_ns)
    record.drop()
    assert matched == [[110], [200, 210], [300, 310]]


def test_one_sample_makes_no_rate_and_no_sample_no_utilization() -> None:
    readings = Readings()
    readings.add([cpu(1, 3.0)])
    assert readings.utilization(0, cores=4, gpu=False) == (None, None)
    assert readings.utilization(0, cores=4, gpu=True) == (None, None)


def test_many_samples_are_thinned_evenly() -> None:
    readings = Readings(max_readings=100)
    for second in range(5000):
        readings.add([cpu(second, second / 2)])
    kept = [reading.at_ns // SECOND for reading in readings.all()]
    assert len(kept) <= 100
    gaps = {after - before for before, after in pairwise(kept)}
    assert len(gaps) == 1
    assert kept[0] == 0
    assert 5000 - kept[-1] <= 2 * max(gaps)


def test_a_reason_is_never_thinned_away() -> None:
    readings = Readings(max_readings=10)
    for second in range(40):
        readings.add([cpu(second, 0.0)])
    readings.add([Reading("cpu_seconds", "psutil", 41 * SECOND, reason="the process has ended")])
    assert readings.all()[-1].reason == "the process has ended"


class Once(Sampler):
    """Gives one reading a poll, and remembers being closed."""

    closed = False
    polls = 0

    def poll(self) -> list[Reading]:
        assert not self.closed
        self.polls += 1
        return [cpu(self.polls, self.polls)]

    def close(self) -> None:
        self.closed = True


def test_the_last_poll_is_at_the_end_and_none_after_it() -> None:
    sampler, readings = Once(), Readings()
    thread = SamplerThread([sampler], readings)
    thread.close()
    seen = len(readings.all())
    assert seen >= 1
    assert sampler.closed
    thread.poll()
    thread.close()
    assert len(readings.all()) == seen


def test_while_jax_is_at_work_a_wait_bounds_no_utilization(monkeypatch: pytest.MonkeyPatch) -> None:
    record = JobRecord("job", Device(kind="cpu", name="CPU"))
    record.log.extend([0, 10, 20], [10, 20, 30], [5, 5, 5])
    assert record.summary().utilization_at_most == 0.5
    bridge = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    assert record.summary().utilization_at_most is None
    record.drop()


def test_where_jax_closes_its_devices_before_the_job_ends_a_wait_is_not_called_severe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where TensorFlow was imported first: what was registered last is done first as Python ends."""
    at_work = [True]
    monkeypatch.setattr("pipeline_bench.monitoring.record.jax_is_at_work", lambda: at_work[0])
    record = JobRecord("my job", CPU)
    starts = np.arange(100) * 4 * MS
    record.log.extend(starts, starts + 4 * MS, 3 * MS)
    record.publish()
    at_work[0] = False
    verdict = record.finish(None).figures.verdict
    assert (verdict.kind, verdict.severe) == ("input-bound", False)


def test_a_stop_and_a_lock_that_was_held_are_both_named_where_steps_are_left_out() -> None:
    record = JobRecord("job", CPU)
    record.log._stops = record._readings.stops = [(10_000 * MS, 16_000 * MS)]
    starts = np.array([0, 4, 8, 9_999]) * MS
    record.log.extend(starts, np.array([4, 8, 9_999, 16_001]) * MS, MS)
    (note,) = (each for each in record.finish(None).session.notes if "left out" in each)
    assert "a paused container, or something held Python's lock without computing: 1 step" in note
