"""The session file: saved whole or not at all, and a damaged one is told."""

import errno
import functools
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from rich.cells import cell_len

from pipeline_bench.environment import Accelerator, describe
from pipeline_bench.errors import SessionError
from pipeline_bench.model import Series, diagnosis, element, fingerprint, pipeline, selftest
from pipeline_bench.model import session as sessions
from pipeline_bench.model.result import Activity, DeviceCopy, Result, Verdict
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord, TrialSteps
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.report import screen
from pipeline_bench.scenario.load import load as load_scenario
from tests.unit.console import words

NINE = Series.pack([1] * 9).model_dump()


@pytest.fixture
def session() -> Session:
    steps = TrialSteps(
        start_ns=Series.pack([0, 10]), end_ns=Series.pack([9, 19]), wait_ns=None, loss=Series.pack([0.7, float("nan")])
    )
    return Session(
        started_at="2026-01-01T00:00:00+00:00",
        scenario=load_scenario("two_layer"),
        environment=describe(Accelerator(reason="no driver")),
        trials=(
            TrialRecord(index=0, variant="feed_dict", repeat=0, status="ok", started_ns=0, ended_ns=20, steps=steps),
        ),
        results=(
            Result(
                variant="feed_dict",
                backend="feed_dict",
                status="pending",
                verdict=Verdict(kind="not-measured", text="Not yet."),
            ),
        ),
    )


def test_what_is_saved_is_read_again(session: Session, tmp_path: Path) -> None:
    path = sessions.save(session, tmp_path)
    assert path == tmp_path / "session.json"
    assert sessions.load(path) == session
    assert sessions.load(tmp_path) == session
    assert list(tmp_path.iterdir()) == [path]


def test_two_trials_of_one_name_need_not_be_alike(session: Session, tmp_path: Path) -> None:
    """A diagnosis that looked at its pipeline twice has two inspections of the same round."""
    one, none = Series.pack([0]), Series.pack(np.zeros(1))
    steps = TrialSteps(start_ns=one, end_ns=one, wait_ns=None, loss=none)
    second = session.trials[0].model_copy(update={"index": 1, "steps": steps})
    twice = session.model_copy(update={"trials": (*session.trials, second)})
    assert sessions.load(sessions.save(twice, tmp_path)) == twice


def test_printed_it_is_the_terminals_report_without_colours(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert str(session).split() == words(screen.render(session, 100), 100).split()
    assert "\x1b" not in str(session)
    assert max(map(cell_len, str(session).splitlines())) <= 100


def test_at_a_prompt_it_takes_a_line(session: Session) -> None:
    assert repr(session).startswith(f"<Session {session.scenario.name!r}: ")
    assert len(repr(session)) < 120


def test_the_file_is_json_without_nan_that_anyone_may_read(session: Session, tmp_path: Path) -> None:
    path = sessions.save(session, tmp_path)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(
    call: str, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions.save(session, tmp_path)

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(SessionError, match="No space left on device") as caught:
        sessions.save(session.model_copy(update={"command": "newer"}), tmp_path)
    assert str(tmp_path / "session.json") in caught.value.message
    monkeypatch.undo()
    assert sessions.load(tmp_path) == session
    assert [path.name for path in tmp_path.iterdir()] == ["session.json"]


@pytest.mark.parametrize("folder", ["gone", "file"])
def test_a_folder_that_is_none_is_told(session: Session, tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SessionError, match="cannot be written"):
        sessions.save(session, tmp_path / folder)


@pytest.mark.parametrize("name", ["gone.json", "."])
def test_a_missing_file_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="cannot be read"):
        sessions.load(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"schema_version": 1}'])
def test_a_damaged_file_is_told_by_name(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    file.write_bytes(content)
    with pytest.raises(SessionError) as caught:
        sessions.load(file)
    assert str(file) in caught.value.message


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("results.0.step_ms.median", 1e308, r"step_ms\.median"),  # a step that no machine takes
        ("trials.0.warmup_steps", -1, r"warmup_steps: .*greater than or equal to 0"),
        ("trials.0.steps.loss.count", 600_000_000, r"would unpack to 4\.\d+ GiB, .* to 1\.00 GiB at most"),
        ("trials.0.steps.end_ns", NINE, r"repeat 1: steps.end_ns: it holds 9 values, and .* beside it 2"),
        ("trials.0.steps.wait_ns", NINE, r"repeat 1: steps.wait_ns: it holds 9 values, and .* beside it 2"),
        ("trials.0.steps.loss", NINE, r"repeat 1: steps.loss: it holds 9 values, and .* beside it 2"),
        ("schema_version", sessions.SCHEMA_VERSION + 1, f"schema version {sessions.SCHEMA_VERSION + 1}"),
    ],
)
def test_what_is_damaged_is_named(session: Session, tmp_path: Path, path: str, value: Any, said: str) -> None:
    content = json.loads(session.to_json())
    *places, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    functools.reduce(lambda part, place: part[place], places, content)[last] = value
    (tmp_path / "session.json").write_text(json.dumps(content))
    with pytest.raises(SessionError, match=said) as caught:
        sessions.load(tmp_path)
    assert ("Upgrade" in caught.value.hint) == (path == "schema_version")


def test_a_column_of_autotune_that_is_damaged_is_told(session: Session, tmp_path: Path) -> None:
    column = Series.pack([1])
    tuned = pipeline.Tuned(stage=0, node="ParallelMapV2", parameter="parallelism", at_ns=column, values=column)
    trial = session.trials[0].model_copy(update={"inspection": pipeline.Inspection(tuned=(tuned,))})
    content = json.loads(session.model_copy(update={"trials": (trial,)}).to_json())
    content["trials"][0]["inspection"]["tuned"][0]["values"]["data"] = "AAAA"
    (tmp_path / "session.json").write_text(json.dumps(content))
    with pytest.raises(SessionError, match=r", repeat 1: inspection\.tuned\.0\.values: a packed column"):
        sessions.load(tmp_path)


def test_a_pipe_and_a_device_are_not_even_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, what in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device")):
        with pytest.raises(SessionError, match=f"cannot be read: it is {what}, and not a file"):
            sessions.load(path)


def test_a_file_larger_than_a_session_is_told(tmp_path: Path) -> None:
    with (tmp_path / "session.json").open("wb") as file:
        file.truncate((1 << 30) + 1)  # a hole: it takes no room
    with pytest.raises(SessionError, match=r"it holds more than 1\.00 GiB"):
        sessions.load(tmp_path)


def test_a_session_of_the_first_schema_opens_and_becomes_one_of_this() -> None:
    session = sessions.load(Path(__file__).parents[1] / "data" / "session-v1.json")
    assert session.schema_version == sessions.SCHEMA_VERSION
    assert [trial.work for trial in session.trials] == [None] * len(session.trials)
    assert session.result("feed_dict").speedup.difference is None
    assert sessions.Session.model_validate_json(session.to_json()) == session


def test_of_an_element_that_an_older_file_has_as_text_nothing_is_known() -> None:
    stage = pipeline.Stage.model_validate({"id": 0, "method": "map", "element": "(float32[?, 3], int64[?])"})
    assert stage.element is None


@pytest.mark.parametrize(
    "noun",
    [
        *(diagnosis.Diagnosis, diagnosis.Bottleneck, diagnosis.Fix, diagnosis.Attempt, diagnosis.Equality),
        *(diagnosis.CodeChange, diagnosis.Limit, pipeline.Target, pipeline.Inspection, pipeline.Stage),
        *(pipeline.Location, UserFunction, pipeline.StageCost, pipeline.Tuned, element.Element),
        *(fingerprint.Fingerprint, fingerprint.ElementComponent, TrialRecord, Session),
        *(selftest.Selftest, selftest.Part, selftest.Check, selftest.GpuRun, selftest.Window, selftest.Copy),
        *(selftest.Checked, Activity, DeviceCopy),
    ],
    ids=lambda noun: noun.__name__,
)
def test_the_page_on_the_session_file_names_every_field(noun: type[BaseModel]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "session.md").read_text(encoding="utf-8")
    named = set(re.findall("`([a-z0-9_]+)`", page))
    assert not set(noun.model_fields) - named
