"""The command `diagnose`: what its options refuse before anything is measured, and what its exit codes say."""

from __future__ import annotations

import json
import shlex
import subprocess
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from pipeline_bench.cli import run
from pipeline_bench.model.diagnosis import DEFAULT_BUDGET_S, CodeChange, Diagnosis
from pipeline_bench.model.session import Session
from pipeline_bench.run import diagnosis
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.scenario import Scenario
from tests.unit import diagnoses

SCRIPT = "def make_dataset():\n    raise RuntimeError('never called in the parent')\n\ndef make_model():\n    pass\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """In place of measuring: what to answer, and what was asked."""
    told: dict[str, Any] = {"session": diagnoses.session(), "interrupted": False}

    def examine(asked: Diagnosis, scenario: Scenario, folder: Path, observer: Any, **options: Any) -> Outcome:
        told.update(asked=asked, scenario=scenario, folder=folder)
        return Outcome(told["session"], folder, told["interrupted"])

    monkeypatch.setattr(diagnosis, "run_diagnosis", examine)
    return told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "FILE:FUNCTION"),
        (["trian.py"], "there is no file trian.py"),
        (["trian"], "there is no module trian"),
        (["-m", "train.py"], "-m train.py: it is not the name of a module"),
        (["-m", "train:make_dataset"], "it is not the name of a module"),
        (["train.py", "--model", "train.py:make_model"], "--model goes with a function"),
        (["train.py", "--batch-arg", "4"], "--batch-arg goes with a function"),
        (["train.py", "--epochs", "3"], "--epochs"),
        (["trian.py:make_dataset"], "train.py"),
        (["train.py:make_datset"], "did you mean 'make_dataset'"),
        (["train.py:make_dataset", "--model", "train.py:make_modle"], "did you mean 'make_model'"),
        (["train.py:make_dataset", "--budget", "5"], "from 20 to 86400 seconds"),
        (["train.py:make_dataset", "--budget", "1e6"], "from 20 to 86400 seconds"),
        (["train.py:make_dataset", "--budget", "nan"], "--budget"),
        (["train.py:make_dataset", "--batch-arg", "0"], "--batch-arg"),
        (["train.py", "--training", "0"], "it is no number from 1 on"),
        (["train.py", "--training", "fit"], "it is no number from 1 on"),
        (["train.py:make_dataset", "--stall-timeout", "0"], "--stall-timeout"),
        (["train.py:make_dataset", "--stall-timeout", "1e8"], "up to 10,000,000"),
        (["train.py:make_dataset", "--json", "no/such/folder.json"], "--json"),
        (["train.py:make_dataset", "--out", "train.py"], "--out"),
        (["train.py:make_dataset", "surplus"], "surplus"),
        (["train.py:make_dataset", "--nonsense"], "--nonsense"),
    ],
)
def test_bad_input_is_exit_2_with_the_culprit_and_no_traceback(
    arguments: list[str], said: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", *arguments]) == 2
    captured = capsys.readouterr()
    assert said.casefold() in captured.err.casefold()
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert [path.name for path in script.iterdir()] == ["train.py"]


@pytest.mark.parametrize(("workers", "code"), [(2, 2), (1, 0)])
@pytest.mark.usefixtures("script")
def test_a_script_is_not_run_as_one_of_several_workers_for_which_it_would_wait(
    workers: int, code: int, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = {"worker": [f"host-{number}:2222" for number in range(workers)]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    assert run(["diagnose", "train.py"]) == code
    assert ("asked" in found) is (code == 0)
    said = " ".join(capsys.readouterr().err.split())
    assert ("env -u TF_CONFIG pipeline-bench diagnose" in said) is (code == 2)
    assert run(["diagnose", "train.py:make_dataset"]) == 0


@pytest.mark.parametrize(
    ("session", "interrupted", "code"),
    [
        (diagnoses.session(), False, 0),
        (diagnoses.nothing_to_gain(), False, 0),
        (diagnoses.failed(), False, 1),
        (diagnoses.session(), True, 130),
    ],
    ids=["helped", "nothing to gain", "their function raised", "interrupted"],
)
def test_the_exit_code_says_whether_there_is_a_diagnosis(
    session: Session, interrupted: bool, code: int, script: Path, found: dict[str, Any]
) -> None:
    found.update(session=session, interrupted=interrupted)
    assert run(["diagnose", "train.py:make_dataset"]) == code


def test_the_default_budget_is_the_one_of_a_diagnosis(script: Path, found: dict[str, Any]) -> None:
    assert run(["diagnose", "train.py:make_dataset"]) == 0
    assert found["asked"].budget_s == DEFAULT_BUDGET_S


def test_the_options_arrive_and_the_report_is_printed_and_written(
    script: Path, found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "train.py:make_model", "--batch-arg", "64", "--budget", "30", "--allow-threads"]
    assert run(["diagnose", "train.py:make_dataset", *options, "--stall-timeout", "9"]) == 0
    asked = found["asked"]
    assert asked.target.argument == 64
    assert asked.model.name == "make_model"
    assert asked.model.argument is None
    assert (asked.budget_s, asked.allow_reordering, asked.allow_threads) == (30.0, False, True)
    assert {variant.run.stall_timeout_s for variant in found["scenario"].variants} == {9.0}
    assert "map(decode) starves the pipeline" in capsys.readouterr().out
    assert {path.name for path in found["folder"].iterdir()} >= {"report.md", "report.html"}


def test_a_training_is_the_same_with_a_zero_before_its_number(script: Path, found: dict[str, Any]) -> None:
    assert run(["diagnose", "train.py", "--training", "02"]) == 0
    assert found["asked"].target.training == "2"


LONG_PATH = "#!/bin/sh\n'''exec' /long/path/python \"$0\" \"$@\"\n' '''\n"


@pytest.mark.parametrize("code", ["#!/env/bin/python3\n", LONG_PATH], ids=["python", "a shell"])
def test_a_command_that_a_package_installed_is_a_script(code: str, script: Path, found: dict[str, Any]) -> None:
    (script / "train").write_text(code)
    assert run(["diagnose", "./train", "--", "--epochs", "3"]) == 0
    assert (found["asked"].target.file, found["asked"].target.arguments) == ("./train", ("--epochs", "3"))
    (script / "job").write_text("#!/bin/bash\npython train\n")
    assert run(["diagnose", "./job"]) == 2


def test_a_data_service_arrives_and_what_is_no_address_is_refused(
    script: Path, found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", "train.py:make_dataset", "--data-service", "grpc://store:5000"]) == 0
    assert found["asked"].data_service == "grpc://store:5000"
    assert run(["diagnose", "train.py:make_dataset", "--data-service", "store:5000"]) == 2
    assert "'store:5000' is no address of a tf.data service. Write grpc://HOST:PORT" in capsys.readouterr().err.replace(
        "\n", " "
    )


def test_with_the_session_on_stdout_the_report_is_on_stderr(
    script: Path, found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", "train.py:make_dataset", "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["diagnosis"]["proposal"] == "parallel map(decode) + prefetch"
    assert "map(decode) starves the pipeline" in captured.err


def test_interrupted_before_the_first_trial_nothing_stays(
    script: Path, found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found.update(session=diagnoses.begun(), interrupted=True)
    assert run(["diagnose", "train.py:make_dataset"]) == 130
    assert "nothing was measured" in capsys.readouterr().out
    assert not found["folder"].exists()


@pytest.mark.parametrize("kept", [(), ("session.json",)])
def test_interrupted_before_the_session_began_nothing_stays_and_nothing_measured_is_lost(
    script: Path, monkeypatch: pytest.MonkeyPatch, kept: tuple[str, ...]
) -> None:
    folders: list[Path] = []

    def interrupted(asked: Diagnosis, scenario: Scenario, folder: Path, *_: Any, **__: Any) -> Outcome:
        folders.append(folder)
        for name in kept:
            (folder / name).write_text("measured")
        raise KeyboardInterrupt

    monkeypatch.setattr(diagnosis, "run_diagnosis", interrupted)
    assert run(["diagnose", "train.py:make_dataset"]) == 130
    assert folders[0].exists() == bool(kept)


def with_patch(folder: Path) -> Session:
    """A diagnosis whose proposal changes the script."""
    session = diagnoses.session()
    assert session.diagnosis is not None
    diff = f"--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n-{SCRIPT.splitlines()[0]}\n+def make_dataset(size=1):\n"
    code = CodeChange(diff=f"{diff} {SCRIPT.splitlines()[1]}\n", root=str(folder))
    attempts = tuple(
        each.model_copy(update={"code": code}) if each.outcome == "proposed" else each
        for each in session.diagnosis.attempts
    )
    return session.model_copy(update={"diagnosis": session.diagnosis.model_copy(update={"attempts": attempts})})


@pytest.mark.parametrize("below", [".", "folder below"])
def test_the_last_line_is_a_command_that_applies_the_patch_from_here(
    below: str, script: Path, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "-q", str(script)], check=True)
    (script / below).mkdir(exist_ok=True)
    monkeypatch.chdir(script / below)
    found.update(session=with_patch(script))
    assert run(["diagnose", f"{script}/train.py:make_dataset"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("Patch: git ")
    subprocess.run(shlex.split(said.removeprefix("Patch: ")), check=True)
    assert (script / "train.py").read_text().startswith("def make_dataset(size=1):\n    raise")


def test_without_a_change_that_can_be_told_there_is_no_patch(
    script: Path, found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found.update(session=diagnoses.nothing_to_gain())
    assert run(["diagnose", "train.py:make_dataset"]) == 0
    assert "Patch:" not in capsys.readouterr().out
    assert not (found["folder"] / "fix.patch").exists()


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.usefixtures("script", "found")
def test_the_page_is_told_as_a_link_and_opened_where_that_is_asked(
    asked: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def browser(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    assert run(["diagnose", "train.py:make_dataset", *["--open"] * asked]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Page: "))
    link = line.removeprefix("Page: ")
    assert Path(url2pathname(urlsplit(link).path)).read_text().startswith("<!")
    assert opened == [link] * asked


def test_without_a_browser_that_is_said(
    script: Path, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert run(["diagnose", "train.py:make_dataset", "--open"]) == 0
    assert "no browser was found" in capsys.readouterr().err


def test_of_a_folder_with_many_files_only_the_nearest_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(50):
        (tmp_path / f"train_{number}.py").touch()
    assert run(["diagnose", f"{tmp_path}/trian_7.py:make"]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == ["Did you mean 'train_7.py'?"]
