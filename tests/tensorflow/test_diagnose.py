"""A diagnosis of code that does its worst: one answer in words, in time, and nothing of it left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pipeline_bench import cli
from pipeline_bench.diagnosis import search, variants
from pipeline_bench.model import session as sessions
from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.pipeline import Target
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial
from pipeline_bench.run.comparison import new_session
from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.runner import Runner
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.tfdata import describe

HOSTILE = Path(__file__).parents[1] / "pipelines" / "hostile.py"
BUDGET_S = 10.0
LEFT_BEHIND = f"604.{os.getpid()}"
"""What the processes that a function of hostile.py starts have among their arguments, in this run alone."""
os.environ["HOSTILE_SECONDS"] = LEFT_BEHIND  # before the server starts, which the trials have it from

Diagnose = Callable[..., Session]


class First(search.Search):
    """The first trials of a diagnosis and no more."""

    def __init__(self, trials: int) -> None:
        super().__init__(1e9)
        self._trials = trials

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        return (session, None) if len(session.trials) >= self._trials else super().next(session)


def run_trials(
    server: TrialServer,
    folder: Path,
    name: str,
    model: str | None = None,
    *,
    file: Path = HOSTILE,
    trials: int = 2,
    stall_timeout_s: float | None = None,
) -> Session:
    dataset = Target(file=str(file), name=name)
    network = Target(file=str(file), name=model) if model is not None else None
    asked = Diagnosis(target=dataset, model=network, budget_s=BUDGET_S)
    scenario = variants.scenario(asked, stall_timeout_s)
    gpu = NvmlSampler()
    session = new_session(scenario, gpu, "diagnose").model_copy(update={"diagnosis": asked})
    return Runner(folder, server, gpu, Observer(), planner=First(trials)).run(session).session


@pytest.fixture
def diagnose(fork_server: TrialServer, tmp_path: Path) -> Diagnose:
    """Run the first trials of a diagnosis of a function of hostile.py, or of another file."""

    def run(name: str, model: str | None = None, **options: object) -> Session:
        return run_trials(fork_server, tmp_path, name, model, **options)  # type: ignore[arg-type]

    return run


def failure(session: Session) -> str:
    """Why there is no diagnosis; nothing of this program's own is in what the user reads of it."""
    assert session.diagnosis is not None
    assert session.diagnosis.failure is not None
    told = [session.diagnosis.failure, session.diagnosis.traceback, *(trial.stderr_tail for trial in session.trials)]
    assert not any("pipeline_bench/" in text for text in told), told
    return session.diagnosis.failure


def left_behind() -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["cmdline"]) if LEFT_BEHIND in (each.info["cmdline"] or [])]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param(
            "exits_with_3", "it called sys.exit(3) instead of returning a dataset. Put", marks=pytest.mark.slow
        ),
        pytest.param("exits_at_once", "its process ended with exit code 0", marks=pytest.mark.slow),
        ("aborts", "its process was killed by SIGABRT"),
        ("goes_on_in_a_fork", "its process ended with exit code 0"),
        ("closes_every_file", "closed files that it did not open"),
        ("nothing", "the function returned None"),
        pytest.param("an_array", "the function returned a ndarray", marks=pytest.mark.slow),
        pytest.param("an_iterator", "Return the dataset itself, not an iterator over it", marks=pytest.mark.slow),
        pytest.param("raises_what_has_no_text", "raises_what_has_no_text failed: _SilentError", marks=pytest.mark.slow),
        ("of_a_graph", "Make it outside of tf.Graph().as_default()"),
        pytest.param(
            "raises_what_steers",
            "raises_what_steers failed: ValueError: a lone \\xff\ufffd surrogate, and",
            marks=pytest.mark.slow,
        ),
        pytest.param("raises_megabytes", "raises_megabytes failed: ValueError: xxx", marks=pytest.mark.slow),
        ("raises_what_steers_later", "ValueError: a bell\ufffd and"),
        pytest.param("raises_megabytes_later", "ValueError: xxx", marks=pytest.mark.slow),
    ],
)
def test_what_the_function_does_is_told_in_one_message(diagnose: Diagnose, name: str, message: str) -> None:
    assert message in failure(diagnose(name))


def test_what_is_no_model_is_told_before_the_stages_are_measured(diagnose: Diagnose) -> None:
    session = diagnose("numbers", "an_array")
    assert "The model's function returned ndarray, which is no model." in failure(session)
    (looked,) = session.trials_of(variants.INSPECTION)
    assert looked.inspection is not None
    assert looked.inspection.costs == ()


def test_the_traceback_of_a_function_in_the_pipeline_is_the_users(diagnose: Diagnose) -> None:
    found = diagnose("raises_later", trials=1).diagnosis
    assert found is not None
    files = [line.strip() for line in found.traceback.splitlines() if line.startswith("  File ")]
    assert files == [f'File "{HOSTILE}", line {_line("raise ValueError")}, in _broken']


def _line(text: str) -> int:
    lines = HOSTILE.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_generator_that_is_used_up_is_not_called_empty(diagnose: Diagnose) -> None:
    assert "in its first pass and none in the next" in failure(diagnose("used_up"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sleeps", "your function did not return within 2 s; what trains when the file is imported belongs under"),
        ("hangs_later", f"hostile.py:{_line('time.sleep(600 if')} in _stuck"),
    ],
)
def test_what_never_ends_is_ended_and_the_place_named(diagnose: Diagnose, name: str, message: str) -> None:
    told = failure(diagnose(name, stall_timeout_s=2.0))
    assert message in told
    assert "hostile.py" in told


@pytest.mark.slow
def test_code_that_holds_the_interpreters_lock_is_ended_too(diagnose: Diagnose) -> None:
    session = diagnose("holds_the_lock", stall_timeout_s=3.0)
    assert session.diagnosis is not None
    assert "your function did not return within 3 s" in (session.diagnosis.failure or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import tensorflow as tf\ntf.compat.v1.disable_eager_execution()\n", "switched eager execution off"),
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.parse_args()\n", "sys.exit(2)"),
        ("def make(:\n", "SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(diagnose: Diagnose, tmp_path: Path, text: str, message: str) -> None:
    script = tmp_path / "mein Skript é.py"
    script.write_text(
        f"{text}\nimport tensorflow as tf\ndef make(): return tf.data.Dataset.range(9)\n", encoding="utf-8"
    )
    assert message in failure(diagnose("make", file=script))


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks and fingerprints take what is a part of the budget, and not a few seconds."""
    monkeypatch.setattr(variants, "_LIMIT_S", (0.8, 30.0))


@pytest.mark.usefixtures("briefly")
def test_a_flood_leaves_the_figures_alone(diagnose: Diagnose) -> None:
    assert [trial.status for trial in diagnose("floods", trials=1).trials] == ["ok"]
    assert not left_behind()


@pytest.mark.slow
def test_a_fork_that_hangs_and_a_temporary_folder_that_is_removed_cost_nothing(diagnose: Diagnose) -> None:
    session = diagnose("hangs_in_a_fork_and_removes_its_temporary_folder")
    assert [trial.status for trial in session.trials] == ["ok", "ok"]
    assert session.trials[1].fingerprint is not None
    assert session.trials[1].fingerprint.reason is None


def test_a_tree_of_processes_does_not_outlive_its_trial(diagnose: Diagnose) -> None:
    diagnose("leaves_a_tree_of_processes")
    assert not left_behind()


@pytest.mark.usefixtures("briefly")
def test_the_files_of_the_pipelines_own_cache_are_not_touched(diagnose: Diagnose, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    cache = tmp_path / "cache"
    text = HOSTILE.read_text(encoding="utf-8").replace('os.environ["HOSTILE_CACHE"]', repr(str(cache / "data")))
    script.write_text(text, encoding="utf-8")
    cache.mkdir()
    (cache / "data.index").write_bytes(b"from a run of theirs")
    session = diagnose("cached_in_a_file", file=script)
    assert [trial.status for trial in session.trials] == ["ok", "ok"]
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == {"data.index": b"from a run of theirs"}
    inspection = session.diagnosis.inspection if session.diagnosis else None
    assert inspection is not None
    assert not any("lockfile" in (cost.reason or "") for cost in inspection.costs), inspection.costs


@pytest.mark.usefixtures("briefly")
@pytest.mark.slow
def test_a_dataset_that_goes_elsewhere_still_finds_its_model_and_one_file_runs_once(
    diagnose: Diagnose, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    text = HOSTILE.read_text(encoding="utf-8") + f"\nopen({str(runs)!r}, 'a').write('x')\n"
    (tmp_path / "script.py").write_text(text, encoding="utf-8")
    relative = Path(os.path.relpath(tmp_path / "script.py"))
    session = diagnose("goes_elsewhere", "make_model", file=relative)
    assert [(trial.status, trial.reason) for trial in session.trials] == [("ok", None)] * 2
    assert runs.read_text() == "xx", "once in each trial"


@pytest.mark.slow
def test_a_long_vector_is_no_batch_whose_samples_all_have_to_be_looked_at(diagnose: Diagnose) -> None:
    session = diagnose("long_vectors", stall_timeout_s=5.0)
    assert [(trial.status, trial.reason) for trial in session.trials] == [("ok", None)] * 2
    assert session.trials[-1].fingerprint is not None


def test_elements_that_may_be_missing_are_described() -> None:
    import tensorflow as tf

    made = tf.data.Dataset.range(9).map(tf.experimental.Optional.from_value)
    assert describe.element(made.element_spec).text == "optional int64[]"


@pytest.mark.usefixtures("commands_share_server")
def test_an_interrupted_diagnosis_is_saved_and_leaves_no_process(
    fork_server: TrialServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = psutil.Process(fork_server.pid)

    def interrupt() -> None:
        while not server.children():
            time.sleep(0.05)
        time.sleep(0.3)  # until it is under way
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    assert cli.run(["diagnose", f"{HOSTILE}:slow", "--budget", "20", "--no-live", "--out", str(tmp_path)]) == 130
    thread.join()
    assert "Traceback" not in capfd.readouterr().err
    assert not server.children()
    (saved,) = tmp_path.glob("*/session.json")
    assert sessions.load(saved).trials[-1].status == "interrupted"


@pytest.mark.usefixtures("commands_share_server")
def test_a_function_that_fails_ends_the_command_with_1_and_their_own_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = f"{HOSTILE}:raises_what_has_no_text"
    assert cli.run(["diagnose", target, "--budget", "20", "--no-live", "--out", str(tmp_path)]) == 1
    shown = capfd.readouterr()
    assert "raises_what_has_no_text failed: _SilentError" in shown.out
    assert "pipeline_bench/" not in shown.out + shown.err
