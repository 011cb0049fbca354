"""The program as a user runs it, from the command line to its exit code, in a folder whose files shadow modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.model import session as sessions

QUICK = ["--steps", "40", "--repeats", "1", "--set", "source.features=32", "--set", "model.hidden_widths=[16]"]


SHADOWED = ("random", "queue", "json", "email", "numpy", "tensorflow", "pydantic", "keras", "pipeline_bench_faults")


@pytest.fixture(scope="module")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each name; whichever is executed leaves a trace and raises."""
    folder = tmp_path_factory.mktemp("program")
    for name in SHADOWED:
        trace = folder / "executed"
        (folder / f"{name}.py").write_text(f"open({str(trace)!r}, 'a').write('{name} ')\nraise ValueError('{name}')\n")
    return folder


def program(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The program as its command starts it: without the working folder on the path."""
    command = [sys.executable, "-P", "-m", "pipeline_bench", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def finished(hostile_folder: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    return hostile_folder, program("compare", *QUICK, "--json", "-", cwd=hostile_folder)


def test_a_comparison_executes_no_file_of_the_folder(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = finished
    assert not (folder / "executed").exists()
    assert {trial["status"] for trial in json.loads(done.stdout)["trials"]} == {"ok"}, done.stderr


@pytest.mark.slow
def test_the_doctor_executes_no_file_of_the_folder(hostile_folder: Path) -> None:
    found = json.loads(program("doctor", "--json", cwd=hostile_folder).stdout)
    assert not (hostile_folder / "executed").exists()
    assert found["usable"] is True
    assert found["tensorflow"]["matmul"]["ok"] is True
    assert found["tensorflow"]["devices"]


def test_json_on_stdout_is_the_file_and_nothing_else(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = finished
    assert done.returncode == 0, done.stderr
    (session_file,) = folder.glob("reports/*/session.json")
    assert done.stdout == session_file.read_text()


def test_the_report_then_goes_to_stderr(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = finished
    assert "Page: file://" in done.stderr
    assert "fifo_queue" in done.stderr


def test_the_session_file_keeps_its_contract(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """The names that others read, spelled out: a change of one is a change of the schema's version."""
    _, done = finished
    document: dict[str, Any] = json.loads(done.stdout)
    assert set(document) >= {"schema_version", "scenario", "environment", "trials", "results"}
    assert [result["variant"] for result in document["results"]] == ["feed_dict", "fifo_queue", "tf_data", "ceiling"]
    result = document["results"][1]
    assert set(result) >= {
        *("variant", "backend", "status", "trials", "steps", "step_ms", "samples_per_second", "input_wait_share"),
        *(
            "host_slowdown_share",
            "accelerator_utilization",
            "device_copy",
            "device_utilization",
            "speedup",
            "loss",
            "accuracy",
            "verdict",
        ),
    }
    assert set(result["step_ms"]) >= {"median", "p05", "p95", "ci95"}
    assert set(result["device_utilization"]) >= {"source", "mean_percent", "samples"}
    assert set(result["device_copy"]) >= {"ms", "share", "overlapped_share", "gain"}
    assert set(result["speedup"]) >= {"over", "value", "ci95"}
    assert set(result["accuracy"]) == {"before", "after"}
    assert result["speedup"]["over"] == "feed_dict"
    trial = document["trials"][0]
    assert set(trial) >= {"variant", "repeat", "status", "reason", "warmup_steps", "steps", "samples", "allowed_cpus"}
    assert trial["launcher"] == "forkserver"


def test_tensorflows_noise_stays_off_the_screen_and_is_kept(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = finished
    assert "tensorflow" not in done.stderr.replace("TensorFlow", "").lower().replace("tensorflow issue", "")
    assert any("deprecated" in file.read_text() for file in folder.glob("reports/*/trials/*fifo*.stderr"))


def test_the_saved_session_opens_again(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = finished
    (session_file,) = folder.glob("reports/*/session.json")
    assert sessions.load(session_file).to_json() == done.stdout
