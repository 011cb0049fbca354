"""The command `compare`: what its options refuse, before anything is measured."""

from pathlib import Path

import pytest

from pipeline_bench.cli import run
from pipeline_bench.samplers.nvml import NvmlSampler


@pytest.fixture(autouse=True)
def _no_process_asks_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NvmlSampler, "open", NvmlSampler)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["two_layr"], "two_layer"),
        (["nowhere/at_all.toml"], "does not exist"),
        (["--backends", "tf_dat"], "did you mean 'tf_data'"),
        (["--backends", ","], "--backends"),
        (["--backends", "feed_dict", "--backends", "tf_dat"], "did you mean 'tf_data'"),
        (["--backends", "feed_dit", "--backends", "tf_data"], "did you mean 'feed_dict'"),
        (["--steps", "0"], "--steps"),
        (["--steps", "many"], "--steps"),
        (["--time", "0"], "--time"),
        (["--time", "nan"], "--time"),
        (["--repeats", "0"], "--repeats"),
        (["--seed", "-1"], "--seed"),
        (["--stall-timeout", "-1"], "--stall-timeout"),
        (["--steps", "5", "--time", "3"], "--time"),
        (["--steps", "5", "--set", "run.steps=9"], "Leave out one of the two"),
        (["--steps", "5", "--set", "run.time_s=9"], "Leave out one of the two"),
        (["--seed", "5", "--set", "variants.0.run.seed=9"], "Leave out one of the two"),
        (["--set", "source.batchsize=3"], "source.batchsize"),
        (["--precision", "two"], "from 0.1% to 50%: 2%, or 0.02"),
        (["--precision", "2"], "Write 2% for a percentage"),
        (["--precision", "0%"], "from 0.1% to 50%"),
        (["--budget", "60", "--repeats", "3"], "Leave out one of the two"),
        (["--budget", "60", "--set", "run.steps=9"], "run.steps"),
        (["--precision", "2%", "--budget", "0"], "--budget"),
        (["--precision", "2%", "--budget", "inf"], "--budget"),
        (["--precision", "2%", "--backends", "ceiling"], "no speed-up to measure"),
        (["--nonsense"], "--nonsense"),
        (["two_layer", "surplus"], "surplus"),
    ],
)
def test_bad_input_is_exit_2_with_the_culprit_and_no_traceback(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert said.casefold() in captured.err.casefold()
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_refused_run_leaves_an_earlier_export_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = tmp_path / "result.json"
    export.write_text("of an earlier run")
    (tmp_path / "file").write_text("")
    assert run(["compare", "--json", str(export), "--out", str(tmp_path / "file")]) == 2
    assert "--out" in capsys.readouterr().err
    assert export.read_text() == "of an earlier run"


def test_an_export_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(["compare", "--json", str(tmp_path / "no" / "such" / "folder.json"), "--out", str(tmp_path / "out")]) == 2
    )
    assert "--json" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_link_for_the_session_that_leads_to_no_file_yet_is_left_as_it_was(tmp_path: Path) -> None:
    link = tmp_path / "latest.json"
    link.symlink_to("run5.json")
    (tmp_path / "file").write_text("")
    assert run(["compare", "two_layer", "--json", str(link), "--out", str(tmp_path / "file")]) == 2
    assert link.is_symlink()
    assert not link.exists()
