"""The command `plan`: its text, its JSON, and one message for what cannot be planned."""

from __future__ import annotations

from contextlib import redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.cli import hosts as command
from pipeline_bench.cli import run
from pipeline_bench.cli.options import UNREAD
from pipeline_bench.errors import UsageError
from pipeline_bench.hosts.ranks import Rank
from pipeline_bench.model.hosts import Plan
from tests.unit import records
from tests.unit.console import unread

EXAMPLE = str(Path(__file__).parents[3] / "reports" / "example")


@pytest.mark.parametrize(
    ("given_text", "expected_ms"),
    [("5ms", 5), ("0.005s", 5), ("5 ms", 5), (".5ms", 0.5), ("800us", 0.8), ("800µs", 0.8)],
)
def test_a_step_has_a_unit(given_text: str, expected_ms: float) -> None:
    assert command.step_ms(given_text) == pytest.approx(expected_ms)


@pytest.mark.parametrize("text", ["5", "", "ms", "0ms", "-5ms", "5 minutes", "1e3ms", "inf s", "99999s", "5ms\n5ms"])
def test_what_is_no_time_of_a_step_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is no time of a step") as caught:
        command.step_ms(text)
    assert "5ms" in caught.value.hint


@pytest.mark.parametrize("text", ["", "0", "1..", "..4", "4..1", "0..4", "1-4", "1..2..3", "1..2000000", "-1..4", "a"])
def test_what_is_no_range_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is no range of numbers") as caught:
        command.counts(text, "--hosts")
    assert "1..1000" in caught.value.hint


@given(fewest=st.integers(1, 1000), more=st.integers(0, 1000))
def test_a_range_is_two_numbers_and_one_number_is_both_ends(fewest: int, more: int) -> None:
    assert command.counts(f"{fewest}..{fewest + more}", "--hosts") == (fewest, fewest + more)
    assert command.counts(str(fewest), "--hosts") == (fewest, fewest)


def test_the_plan_is_shown_and_written_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert run(["plan", EXAMPLE, "--accelerator-step", "5ms", "--hosts", "1..1000", "--json", str(file)]) == 0
    made = Plan.model_validate_json(file.read_text(encoding="utf-8"))
    assert made.step_ms == 5
    assert [row.count for row in made.variants[0].rows][-1] == 1000
    assert made.variants[0].answer[:20] in capsys.readouterr().out


def test_its_file_is_written_also_where_its_text_has_no_reader(tmp_path: Path) -> None:
    with unread() as stdout, redirect_stdout(stdout):
        assert run(["plan", EXAMPLE, "--json", str(tmp_path / "plan.json")]) == UNREAD
    assert (tmp_path / "plan.json").exists()


def test_a_process_that_is_none_of_so_many_ranks_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the only host it would measure beside the others, in the same folder."""
    monkeypatch.setenv("PMI_RANK", "2")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert run(["compare", "tutorial", "--out", str(tmp_path)]) == 2
    assert "PMI_RANK is 2, and PMI_SIZE 2" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_two_processes_of_one_rank_do_not_save_into_one_folder(tmp_path: Path) -> None:
    """Also where both start at once, before either has saved anything."""
    folder = command.folder_of(Rank(1, 2, "pmi"), tmp_path / "out")
    assert not any(folder.iterdir())
    with pytest.raises(UsageError, match="rank-001 is there already, of another run, or of another process"):
        command.folder_of(Rank(1, 2, "pmi"), tmp_path / "out")


SLURM = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}


def test_a_rank_whose_folder_is_there_trains_all_the_same_and_keeps_its_sessions_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a requeue."""
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    arguments = ["run", "--out", str(tmp_path), "--", "touch", str(tmp_path / "trained")]
    assert run(arguments) == 0
    assert not any(tmp_path.glob("again-*"))
    (tmp_path / "trained").unlink()
    capsys.readouterr()
    assert run(arguments) == 0
    assert (tmp_path / "trained").exists()
    said, again = " ".join(capsys.readouterr().err.split()), tmp_path / "again-1"
    assert f"its sessions go to {again}/rank-001; at the end: pipeline-bench merge {again}" in said


def test_the_ranks_of_a_run_that_is_started_again_keep_their_sessions_in_one_folder(tmp_path: Path) -> None:
    """Rank 1 had died before it saved anything."""
    for again in ("", "again-1", "again-2"):
        for rank in "01":
            folder = command.folder_of_trainings({**SLURM, "SLURM_PROCID": rank}, tmp_path)
            assert folder == tmp_path / again / f"rank-00{rank}"
        (tmp_path / again / "rank-000" / "1-fit").mkdir()


def test_the_ranks_of_a_job_that_slurm_restarted_keep_their_sessions_in_one_folder(tmp_path: Path) -> None:
    """Rank 0 had left a session, and rank 1 none."""
    (tmp_path / "rank-000" / "1-fit").mkdir(parents=True)
    for rank in "01":
        environment = {**SLURM, "SLURM_PROCID": rank, "SLURM_RESTART_COUNT": "1"}
        assert command.folder_of_trainings(environment, tmp_path) == tmp_path / "again-1" / f"rank-00{rank}"


def test_a_training_in_the_shell_of_sbatch_is_that_of_one_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}
    assert command.folder_of_trainings(environment, tmp_path) == tmp_path
    assert "looks like the shell of sbatch" in capsys.readouterr().err
    assert command.folder_of_trainings(SLURM, tmp_path) == tmp_path / "rank-001"
    assert command.folder_of_trainings({}, tmp_path) == tmp_path
    assert capsys.readouterr().err == ""


def test_a_rank_whose_folder_cannot_be_made_trains_all_the_same(tmp_path: Path) -> None:
    """What is in the way stands for a full or read-only disk."""
    (tmp_path / "out").touch()
    assert command.folder_of_trainings(SLURM, tmp_path / "out") == tmp_path / "out" / "rank-001"


@pytest.mark.parametrize("option", ["--json=-", "--details", "--open"])
def test_a_rank_refuses_what_only_all_of_them_can_show(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert run(["compare", option, "--out", str(tmp_path / "out")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{option.partition('=')[0]} cannot be given to a rank" in said
    assert "pipeline-bench merge" in said
    assert not (tmp_path / "out").exists()


def test_a_rank_says_why_its_trials_failed_although_it_shows_none() -> None:
    """It was started with another scenario: without a word it ended with 1."""
    well = records.record("a", 0, 10.0)
    refused = well.model_copy(update={"status": "failed", "reason": "rank 1 has other trials than rank 0"})
    assert command.first_problem([well]) is None
    said = "2 of 3 trials did not end well; the first: rank 1 has other trials than rank 0"
    assert command.first_problem([well, refused, refused]) == said


@pytest.mark.parametrize(("ahead_s", "words"), [(0.9, None), (-3.0, "s behind that of"), (3.0, "s ahead of that of")])
def test_a_clock_for_which_merge_will_refuse_a_rank_is_told_at_the_start(ahead_s: float, words: str | None) -> None:
    said = command.clock_problem(ahead_s)
    assert said is None if words is None else said is not None and words in said


@pytest.mark.parametrize("given", [["--hosts", "2"], ["--on", "ray"], ["--hosts", "2", "--on", "slurm"]])
def test_hosts_and_where_they_are_go_together(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "two_layer", *given]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(f"Error: {' '.join(given)}: a run on several hosts needs --hosts N and --on ray.")


def test_json_on_stdout_is_nothing_but_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", EXAMPLE, "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert Plan.model_validate_json(captured.out).own_step
    assert "AU: share of the time" in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere"],
        [EXAMPLE, "--accelerator-step", "5"],
        [EXAMPLE, "--hosts", "4..1"],
        [EXAMPLE, "--accelerators", "0"],
        [EXAMPLE, "--variant", "nobody"],
        [EXAMPLE, "--json", "/nowhere/at/all.json"],
    ],
)
def test_a_mistake_is_one_message_and_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.strip()
    assert [*arguments, "nowhere"][1] in captured.err, "what was given"
    assert "Traceback" not in captured.err
