"""Whatever text a session, an event, a scenario or an exception holds: it is taken in, and steers no terminal."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pipeline_bench import plugins, user_code
from pipeline_bench.analysis.difference import between
from pipeline_bench.cli import run
from pipeline_bench.diagnosis.variants import INSPECTION
from pipeline_bench.errors import PipelineBenchError, ScenarioError, SessionError
from pipeline_bench.model import events
from pipeline_bench.model import session as saved
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING
from pipeline_bench.model.difference import Difference
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.session import Session
from pipeline_bench.report import csv, html, markdown, terminal, trace
from pipeline_bench.report import difference as reports
from pipeline_bench.scenario.files import COMPONENTS, to_toml
from pipeline_bench.scenario.load import load
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.text import is_utf8
from pipeline_bench.worker import bad_record
from pipeline_bench.worker.devices import TensorFlowReport
from tests.unit import diagnoses, sessions
from tests.unit.console import printed
from tests.unit.hostile import DATA, TEXT, UTF8, fields, holds_str, is_text, planted, unsafe
from tests.unit.report import pages

KEPT = {AS_WRITTEN, CEILING, INSPECTION}
"""Names that a diagnosis knows its variants by."""
SESSIONS: dict[str, Callable[[], Session]] = {
    "normal": sessions.normal,
    "troubled": sessions.troubled,
    "disturbed": pages.hostile,
    "diagnosed": diagnoses.with_model,
    "failed": diagnoses.failed,
}


def every_view(session: Session) -> dict[str, str]:
    """Every rendering of a session, by its name; the ends of lines of CSV are \\r\\n."""
    views = {
        "terminal": printed(terminal.render(session, Path("reports/a"), 100), 100),
        "markdown": markdown.render(session),
        "notebook": html.fragment(session),
        "html": html.render(session),
        "csv": csv.render(session).replace("\r\n", "\n"),
        "trace": trace.render(session),
        "json": session.to_json(),
    }
    try:
        difference = between(session, session)
    except PipelineBenchError:  # nothing was measured
        return views
    return views | {
        "diff": printed(reports.terminal(difference, 100), 100),
        "diff markdown": reports.markdown(difference),
        "diff json": difference.to_json(),
    }


@pytest.mark.parametrize("model", [Session, Difference, TensorFlowReport, *events.Event.__args__])
def test_every_text_of_a_model_is_made_safe_but_what_is_data(model: type[BaseModel]) -> None:
    found = {
        where: is_text(annotation, metadata) or any(hasattr(part, "pattern") for part in metadata)
        for where, annotation, metadata in fields(model)
        if holds_str(annotation)
    }
    assert {where for where, safe in found.items() if not safe} <= DATA


@pytest.mark.parametrize("name", SESSIONS)
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(UTF8, min_size=1, max_size=12))
def test_no_view_of_a_session_steers_a_terminal(
    name: str, texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("session")
    numbers: dict[str, int] = {}

    def replace(text: str) -> str:
        number = numbers.setdefault(text, len(numbers))
        return text if text in KEPT else f"{texts[number % len(texts)]}{number}"

    (folder / "session.json").write_text(json.dumps(planted(SESSIONS[name](), replace)))
    session = saved.load(folder)
    assert {view: unsafe(text) for view, text in every_view(session).items() if unsafe(text)} == {}


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data(), value=ANY_JSON)
def test_whatever_a_session_file_holds_it_is_read_or_refused(
    data: st.DataObject, value: Any, tmp_path_factory: Any
) -> None:
    file = tmp_path_factory.mktemp("session") / "session.json"
    document = json.loads(sessions.troubled().to_json())
    node: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not (node[key] and isinstance(node[key], dict | list)) or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = value
    file.write_text(json.dumps(document))
    said = ""
    try:
        saved.load(file)
    except SessionError as error:
        said = error.message + error.hint
    assert not unsafe(said)


@given(TEXT, st.sampled_from(["error", "traceback"]))
def test_an_event_with_any_text_is_made_and_sent_and_is_safe(text: str, field: str) -> None:
    made = events.Failed.model_validate({"error": "", field: text})
    (heard,) = [events.decode(line) for line in events.encode(made).splitlines()]
    assert heard == made
    assert not unsafe(getattr(heard, field))


@given(TEXT)
def test_an_event_that_is_a_copy_with_any_text_is_sent_too(text: str) -> None:
    """As of the files that a pipeline reads, whose names may be no text, and which have to be opened by them."""
    inspection = Inspection().model_copy(update={"files": (text,)})
    heard = events.decode(events.encode(events.Inspected(inspection=inspection)))
    assert isinstance(heard, events.Inspected)
    assert not unsafe(heard.inspection.files[0])


@given(UTF8)
def test_what_is_no_event_is_quoted_safely(text: str) -> None:
    with pytest.raises(PipelineBenchError) as caught:
        events.decode(text.encode() + b"?")
    assert not unsafe(caught.value.message + caught.value.hint)


def leaves() -> st.SearchStrategy[Any]:
    return st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.sampled_from(["tfrecord", "tf_data"])


COMMON = ("kind", "backend", "name", "files", "options", "batch_size", "steps", "path", "time_s", "repeats", "device")
RARE = ("threads", "figures", "variant", "element", "latency_ms", "run", "source", "model", "published", "variants")
KEYS = st.sampled_from([*COMMON, *RARE]) | TEXT
VALUES = st.recursive(
    leaves(), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def components(group: plugins.Group) -> st.SearchStrategy[Any]:
    """A table that says one of the kinds that there are, or anything else."""
    known = [(kind, sorted(plugins.find(group, kind).Options.model_fields)) for kind in plugins.names(group)]
    tables = st.sampled_from(known).flatmap(
        lambda each: st.dictionaries(st.sampled_from([*each[1], "kind"]), VALUES, max_size=3).map(
            lambda table: {"kind": each[0], **table}
        )
    )
    return tables | VALUES


PARTS = {part: components(group) for part, group in COMPONENTS.items()}
VARIANTS = st.fixed_dictionaries(
    {"backend": st.sampled_from(plugins.names("backends")) | VALUES},
    optional={"name": VALUES, "options": VALUES, "run": VALUES, "runtime": VALUES, **PARTS},
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4) | st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("name", "question", "published", "run", "runtime"), VALUES),
        **PARTS,
        "variants": st.lists(VARIANTS, max_size=3) | VALUES,
    },
)


@settings(max_examples=100)
@given(DOCUMENTS)
@example({"run": {"steps": 10**400}})
@example({"run": {"steps": None}})
@example({"source": {"kind": "generator", "arguments": {"given": [{"inner": None}]}}})
@example({"variants": [{"backend": "tf_data", "run": {"steps": None, "time_s": None}}]})
def test_whatever_a_scenario_holds_it_is_refused_or_resolved_and_the_same_as_printed(document: dict[str, Any]) -> None:
    try:
        scenario = resolve(document, default_name="x")
    except ScenarioError as error:
        shown = error.message + error.hint
    else:
        shown = to_toml(scenario)
        assert resolve(tomllib.loads(shown)) == scenario
    assert not unsafe(shown)


@pytest.mark.parametrize("kind", [["a"], None], ids=str)
@pytest.mark.parametrize("place", ["source", "model", "loop", "variants.source", "backend", "files"])
def test_a_kind_that_is_no_text_is_refused_by_its_key(place: str, kind: object) -> None:
    table = {"kind": kind}
    documents: dict[str, dict[str, Any]] = {
        "variants.source": {"variants": [{"backend": "tf_data", "source": table}]},
        "backend": {"variants": [{"backend": kind}]},
        "files": {"source": {"kind": "slow_storage", "files": table}},
    }
    with pytest.raises(ScenarioError, match=f"{place.rpartition('.')[2]}.*(no|files.kind)"):
        resolve(documents.get(place, {place: table}), where="mine.toml", default_name="x")


@pytest.mark.parametrize(
    "key", ["source.kind", "model.kind", "loop.kind", "variants.0.backend", "variants.0.loop.kind"]
)
def test_a_kind_that_is_no_text_is_refused_on_the_command_line_too(key: str) -> None:
    with pytest.raises(ScenarioError, match=f"{key.rpartition('.')[2]}: there is no"):
        load("two_layer", [f'{key}=["a"]'])
    with pytest.raises(ScenarioError, match=r"files\.kind"):
        load("two_layer", ['source={kind="slow_storage",files={kind=["a"]}}'])


@given(name=UTF8, option=UTF8)
def test_a_scenario_as_printed_is_the_same_scenario_and_steers_nothing(name: str, option: str) -> None:
    document = {
        "name": name,
        "question": name,
        "published": {"source": option, "steps": 3, "figures": [{"variant": name, "seconds": 1e-7}]},
        "source": {"kind": "generator", "callable": "a.py:f", "arguments": {option: option}},
        "variants": [{"backend": "feed_dict", "name": name}],
    }
    scenario = resolve(document)
    text = to_toml(scenario)
    assert not unsafe(text)
    assert resolve(tomllib.loads(text)) == scenario
    assert scenario.variants[0].source.options["arguments"] == {option: option}


@given(TEXT.filter(lambda text: not is_utf8(text)), st.sampled_from(["name", "question", "path"]))
def test_a_text_that_cannot_be_written_is_refused_by_its_key(text: str, key: str) -> None:
    document = {"source": {"kind": "csv", "path": text}} if key == "path" else {key: text}
    with pytest.raises(ScenarioError, match=f"{key}: .*UTF-8"):
        resolve({"name": "x", **document})


@given(TEXT, TEXT)
def test_an_error_says_nothing_that_steers(message: str, hint: str) -> None:
    error = PipelineBenchError(message, hint)
    assert not unsafe(f"{error.message}{error.hint}{error}")


@given(TEXT)
def test_what_a_users_exception_says_can_be_sent(text: str) -> None:
    try:
        raise type(text.replace("\x00", "") or "E", (ValueError,), {})(text)
    except ValueError as error:
        told = events.Failed(
            error=bad_record.explained(error) + user_code.summary(error), traceback=user_code.traceback_of(error)
        )
    assert "test_hostile_text.py" in told.traceback
    assert not unsafe(told.error + told.traceback)
    assert events.decode(events.encode(told)[:-1]) == told


def test_a_users_exception_of_50_mb_is_a_few_thousand_characters() -> None:
    try:
        raise ValueError("\x1b[31m" + "x" * 50_000_000 + "the end")
    except ValueError as error:
        told = events.Failed(error=bad_record.explained(error), traceback=user_code.traceback_of(error))
        within = user_code.element_error(error)
    assert len(events.encode(told)) < 50_000
    assert told.traceback.endswith("the end")
    assert len(within.message) < 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ["\x1b]0;title\x07"],
        ["report", "\x1b]0;title\x07"],
        ["report", "a", "--\x1b]0;title\x07"],
        ["report", "a", "-f", "\x9b2J"],
        ["scenarios", "\x9b2J"],
        ["compare", "--set", "\x1b]0;title\x07=1"],
        ["compare", "--set", 'source."\\u009b2J"=1'],
        ["compare", "--backends", "\x9b2J"],
        ["diagnose", "\x1b]0;title\x07:f"],
        ["diff", "\x9b2J", "b"],
        ["lesson", "\x1b]0;title\x07"],
        ["data", "make", "\x9b2J", "--out", "a", "--size", "1GB"],
    ],
    ids=repr,
)
def test_a_command_line_is_quoted_safely(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert not unsafe(captured.out + captured.err)
    assert "Traceback" not in captured.err
