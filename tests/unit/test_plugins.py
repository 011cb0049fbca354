"""Finding plug-ins: the files of this package, and entry points of other installed ones."""

import json
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pipeline_bench import plugins
from pipeline_bench.analysis import interference
from pipeline_bench.analysis.results import summarise
from pipeline_bench.cli import BUG, run
from pipeline_bench.errors import ScenarioError, UsageError
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Component
from pipeline_bench.scenario.files import json_schema
from pipeline_bench.scenario.load import load
from pipeline_bench.scenario.resolve import resolve
from tests.unit import records

BROKEN = ("backends", "sources", "models", "loops")
PACKAGE = Path(__file__).parents[1] / "plugin_package"


def _clear() -> None:
    plugins._classes.cache_clear()
    plugins._entry_points.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Path | None], None]]:
    """Stand in for pip: put a package's folder, and the record that pip writes beside it, on the path."""

    def put(entry_points: str, code: Path | None) -> None:
        record = tmp_path / "pipeline_bench_recycled-0.1.0.dist-info"
        record.mkdir()
        (record / "METADATA").write_text("Metadata-Version: 2.1\nName: pipeline-bench-recycled\nVersion: 0.1.0\n")
        (record / "entry_points.txt").write_text(entry_points)
        monkeypatch.syspath_prepend(tmp_path)
        if code is not None:
            monkeypatch.syspath_prepend(code)
        _clear()

    yield put
    for module in ("pipeline_bench_recycled", "broken_plugin", "moody_plugin"):
        sys.modules.pop(module, None)
    _clear()


@pytest.fixture
def recycled(install: Callable[[str, Path | None], None]) -> None:
    """Install tests/plugin_package, with the entry points that its pyproject.toml declares."""
    declared = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [
        line
        for group, points in declared.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    install("\n".join(lines) + "\n", PACKAGE)


def test_the_built_in_ones_are_found_by_the_names_of_their_files() -> None:
    assert {"feed_dict", "fifo_queue", "tf_data", "ceiling"} <= set(plugins.names("backends"))
    assert "synthetic" in plugins.names("sources")
    assert "two_layer" in plugins.names("models")
    assert "session" in plugins.names("loops")


@pytest.mark.parametrize("group", plugins.GROUPS)
def test_every_one_has_a_summary_and_options_with_defaults_and_meanings(group: plugins.Group) -> None:
    for name in plugins.names(group):
        plugin = plugins.find(group, name)
        assert plugin.summary
        plugin.Options()  # every option has a default
        for option, field in plugin.Options.model_fields.items():
            assert field.description, f"{name}.{option} has no description"


@pytest.mark.usefixtures("recycled")
def test_a_backend_of_another_package_is_found_checked_and_resolved() -> None:
    assert "recycled" in plugins.names("backends")
    assert plugins.origin("backends", "recycled") == "pipeline-bench-recycled"
    scenario = resolve({"name": "x", "variants": [{"backend": "recycled"}]})
    assert scenario.variants[0].options == {"batches": 4}
    with pytest.raises(ScenarioError, match=r"variants\.recycled\.options\.batches"):
        resolve({"name": "x", "variants": [{"backend": "recycled", "options": {"batches": 0}}]})


@pytest.mark.usefixtures("recycled")
def test_a_source_of_files_of_another_package_can_be_used_as_it_is_and_as_slow_storage() -> None:
    files = {"kind": "vectors", "path": "some/folder"}
    for source in (files, {"kind": "slow_storage", "files": files}):
        scenario = resolve({"name": "x", "source": source, "variants": [{"backend": "feed_dict"}]})
        options = scenario.variants[0].source.options
        assert options.get("files", options)["features"] == 8


@pytest.mark.usefixtures("recycled")
def test_it_is_listed_with_its_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backends", "--json"]) == 0
    row = next(row for row in json.loads(capsys.readouterr().out) if row["name"] == "recycled")
    assert (row["origin"], row["error"]) == ("pipeline-bench-recycled", None)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("gone_module:Class", "cannot be loaded"),
        ("json:dumps", "is no plug-in class"),
    ],
)
def test_a_broken_entry_point_names_its_package_and_hides_no_other(
    value: str, said: str, install: Callable[[str, Path | None], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(f"[pipeline_bench.backends]\nbroken = {value}\n", None)
    with pytest.raises(UsageError, match=said) as caught:
        plugins.find("backends", "broken")
    assert "'broken'" in caught.value.message
    assert run(["backends"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert "feed_dict" in out


def test_a_broken_source_is_nothing_to_slow_storage_of_another_nor_to_the_schema(
    install: Callable[[str, Path | None], None],
) -> None:
    install("[pipeline_bench.sources]\nbroken = gone_module:Class\n", None)
    assert load("cold_storage").variants[0].source.options["files"]["kind"] == "tfrecord"
    assert "broken" not in json_schema()["properties"]["source"]["properties"]["kind"]["enum"]
    with pytest.raises(ScenarioError, match="did you mean 'tfrecord'"):
        load("cold_storage", ["source.files.kind=tfrecords"])
    with pytest.raises(UsageError, match="'broken' = 'gone_module:Class'"):
        load("cold_storage", ["source.files.kind=broken"])


def test_a_session_whose_plugins_no_longer_load_has_its_results(
    install: Callable[[str, Path | None], None],
) -> None:
    of = records.scenario("feed_dict")
    found = records.session(of, [records.record(name, 0, 5.0) for name in ("feed_dict", "ceiling")])
    install("".join(f"[pipeline_bench.{group}]\nbroken = gone_module:Class\n" for group in BROKEN), None)
    kinds = {name: Component(kind="broken") for name in ("source", "model", "loop")}
    variant = of.baseline.model_copy(update={"backend": "broken", **kinds})
    changed = of.model_copy(update={"variants": (variant, *of.variants[1:])})
    assert not variant.emulated_device
    assert not interference.find(found.trials, 2, changed)
    assert summarise(changed, found.trials, 2)[0].step_ms == found.results[0].step_ms


def test_a_scenario_that_cannot_be_read_hides_no_other_in_the_list(
    install: Callable[[str, Path | None], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install("[pipeline_bench.sources]\ntfrecord = gone_module:Class\n", None)
    assert run(["scenarios"]) == 0
    listed = {line.partition(" ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "cannot be read: Two plug-ins" in listed["decode_jpeg"]
    assert load("two_layer").question in listed["two_layer"]


@pytest.mark.parametrize("body", ["Options = dict", "del name"])
def test_a_class_without_a_name_or_options_hides_no_other(
    body: str,
    install: Callable[[str, Path | None], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = "from pipeline_bench.backends import DatasetBackend\n\nclass Broken(DatasetBackend):\n    name = 'broken'\n"
    (tmp_path / "broken_plugin.py").write_text(f"{code}    {body}\n")
    install("[pipeline_bench.backends]\nbroken = broken_plugin:Broken\n", None)
    assert run(["backends"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "is no plug-in class" in out
    assert "feed_dict" in out


@pytest.mark.parametrize(("raised", "at_fault"), [("[].pop()", "pipeline-bench-recycled"), ("safe(3)", None)])
def test_an_error_of_a_plugin_is_not_called_a_bug_of_this_program(
    raised: str,
    at_fault: str | None,
    install: Callable[[str, Path | None], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = (
        "from pipeline_bench.backends import DatasetBackend\nfrom pipeline_bench.text import safe\n\n"
        "class Broken(DatasetBackend):\n    name = 'broken'\n"
    )
    (tmp_path / "broken_plugin.py").write_text(f"{code}    def unavailable(self):\n        {raised}\n")
    install("[pipeline_bench.backends]\nbroken = broken_plugin:Broken\n", None)
    monkeypatch.setattr(NvmlSampler, "open", NvmlSampler)
    assert run(["compare", "two_layer", "--backends", "broken", "--out", str(tmp_path / "out")]) == BUG
    said = capsys.readouterr().err
    assert (f"a plug-in of the package {at_fault}." in said) == (at_fault is not None)
    assert ("This is a bug of pipeline-bench" in said) == (at_fault is None)


def test_an_entry_point_without_a_distribution_has_its_module_for_an_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("lone", "some_module:Class", "pipeline_bench.backends")
    monkeypatch.setattr(plugins, "_classes", lambda group: {"lone": point})
    assert plugins.origin("backends", "lone") == "some_module"


def test_a_plugin_of_another_group_is_refused(install: Callable[[str, Path | None], None]) -> None:
    install("[pipeline_bench.sources]\nrecycled = pipeline_bench_recycled:Recycled\n", PACKAGE)
    with pytest.raises(UsageError, match="no plug-in class of this group"):
        plugins.find("sources", "recycled")


def test_two_plugins_of_one_name_are_refused_where_it_is_used(install: Callable[[str, Path | None], None]) -> None:
    install("[pipeline_bench.backends]\ntf_data = pipeline_bench_recycled:Recycled\n", PACKAGE)
    with pytest.raises(UsageError, match="the package pipeline-bench-recycled") as caught:
        plugins.find("backends", "tf_data")
    assert "the built-in one" in caught.value.message
    assert plugins.find("backends", "feed_dict")


def test_the_schema_of_a_scenario_has_what_a_plugins_options_refer_to(
    install: Callable[[str, Path | None], None], tmp_path: Path
) -> None:
    code = """
        from enum import Enum
        from pipeline_bench.sources.memory import Memory

        class Mood(Enum):
            GOOD, BAD = "good", "bad"

        class Moody(Memory):
            name = "moody"

            class Options(Memory.Options):
                mood: Mood = Mood.GOOD
    """
    (tmp_path / "moody_plugin.py").write_text(textwrap.dedent(code))
    install("[pipeline_bench.sources]\nmoody = moody_plugin:Moody\n", None)
    schema = Draft202012Validator(json_schema())
    assert schema.is_valid({"source": {"kind": "moody", "mood": "bad"}})
    assert not schema.is_valid({"source": {"kind": "moody", "mood": "ugly"}})
