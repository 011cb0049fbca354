"""The command `scenarios`."""

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest

from pipeline_bench.cli import run
from pipeline_bench.scenario.files import shipped
from pipeline_bench.scenario.load import load
from tests.unit.console import Terminal


def test_on_a_terminal_each_is_one_line_of_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["scenarios"]) == 0
    listed = [line for line in screen.getvalue().splitlines() if line.split(" ")[0] in shipped()]
    assert len(listed) == len(shipped())
    assert max(map(len, listed)) <= 80
    assert any(line.endswith("…") for line in listed)


def test_the_documentation_shows_the_list_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenarios"]) == 0
    listing = capsys.readouterr().out.partition("\n\n")[0]
    page = (Path(__file__).parents[3] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    assert f"$ pipeline-bench scenarios\n{listing}\n```\n" in page
    assert f"| {load('two_layer').variants[0].run.steps} steps |" in page


def test_other_values_than_the_files_have_no_usual_duration() -> None:
    name = next(name for name in shipped() if load(name).usual_duration_s is not None)
    assert load(name, ["run.repeats=9"]).usual_duration_s is None
    assert load(name, run={"steps": 9}).usual_duration_s is None


def test_prints_a_scenario_as_toml_that_is_the_same_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scenarios", "two_layer"]) == 0
    file = tmp_path / "copy.toml"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    assert load(str(file)) == load("two_layer")


def test_prints_every_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n')
    assert run(["scenarios", str(file)]) == 0
    resolved = tomllib.loads(capsys.readouterr().out)
    assert resolved["source"] == {"kind": "synthetic", "batch_size": 128, "features": 1024, "latency_ms": 0.0}
    assert [variant["name"] for variant in resolved["variants"]] == ["feed_dict", "fifo_queue", "tf_data", "ceiling"]


def test_an_invalid_scenario_is_one_message_with_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[source]\nbatchsize = 3\n")
    assert run(["scenarios", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f"Error: {file}, key source.batchsize: unknown key.",
        "Did you mean 'batch_size'? (allowed: batch_ms, batch_size, features, latency_ms)",
    ]


def test_the_help_has_an_optional_name_in_brackets_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenarios", "--help"]) == 0
    assert "[[" not in capsys.readouterr().out


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenarios", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "pipeline-bench scenario"


def test_a_scenario_may_come_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.write(writing, b'name = "piped"\n')
    os.close(writing)
    assert run(["scenarios", f"/dev/fd/{reading}"]) == 0
    os.close(reading)
    assert 'name = "piped"' in capsys.readouterr().out


def test_what_never_ends_is_no_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenarios", "/dev/zero"]) == 2
    assert "it holds more than 1.00 MiB" in capsys.readouterr().err
