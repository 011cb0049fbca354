"""What the library refuses before it measures, and what importing it costs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pipeline_bench
from pipeline_bench import library, plugins
from pipeline_bench.errors import ScenarioError, SessionError, UsageError
from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.pipeline import Target
from pipeline_bench.run import diagnosis
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario.load import load
from tests.unit import diagnoses


def test_importing_the_package_loads_nothing_else_and_no_use_loads_tensorflow_early() -> None:
    code = (
        "import sys; before = set(sys.modules); import pipeline_bench\n"
        "def loaded(*names): return sorted({name.split('.')[0] for name in set(sys.modules) - before} & set(names))\n"
        "print(loaded('numpy', 'pydantic', 'tensorflow', 'keras', 'rich', 'typer', 'psutil', 'jinja2', 'plotly'))\n"
        "pipeline_bench.load; print(loaded('jinja2', 'plotly', 'rich', 'tensorflow'))\n"
        "pipeline_bench.monitor; print(loaded('tensorflow'))\n"
        "from pipeline_bench import plugins; [plugins.find(g, n) for g in plugins.GROUPS for n in plugins.names(g)]\n"
        "print(loaded('tensorflow'))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "[]\n[]\n[]\n[]\n"


@pytest.mark.parametrize("name", ["compare", "diagnose", "load", "monitor"])
def test_the_package_offers_the_library_by_name(name: str) -> None:
    assert callable(getattr(pipeline_bench, name))
    assert name in dir(pipeline_bench)


def test_a_type_checker_takes_the_annotations() -> None:
    assert (Path(pipeline_bench.__file__).parent / "py.typed").is_file()


def test_another_name_is_none() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'measure'"):
        _ = pipeline_bench.measure


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "steps and time": (lambda: library.compare(steps=3, time_s=1.0), "both given"),
    "one string for several": (lambda: library.compare(backends="feed_dict"), "['feed_dict', 'tf_data']"),
    "a number of numpy's": (
        lambda: library.compare("two_layer", repeats=np.int64(0)),  # type: ignore[arg-type] # as a notebook does
        "given: 0)",
    ),
    "a budget beside a length": (
        lambda: library.compare("two_layer", budget_s=20, steps=50),
        "which already sets the length",
    ),
    "a budget of one second": (
        lambda: library.diagnose("train.py:make_dataset", budget_s=1),
        "it is from 20 to 86400 seconds",
    ),
    "no function": (lambda: library.diagnose([1]), "given as a list"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused_before_anything_is_measured(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(UsageError) as refused:
        call()
    assert words in refused.value.message + refused.value.hint


def test_an_unknown_scenario_and_a_wrong_setting_say_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two_layre"):
        library.compare("two_layre", out=tmp_path)
    with pytest.raises(ScenarioError, match="batch_sise"):
        library.compare(settings={"source.batch_sise": 3}, out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "written"),
    [(3, "3"), (0.5, "0.5"), (True, "true"), ("cold", "cold"), ([1, 2], "[1, 2]"), (["a"], '["a"]')],
)
def test_a_setting_is_written_as_the_command_line_has_it(value: object, written: str) -> None:
    assert library._toml(value) == written


def test_settings_are_pythons_own_values() -> None:
    settings = {
        "source": {"kind": "tfrecord", "path": Path("2024"), "batch_size": np.int64(32)},
        "model.hidden_widths": np.array([8, 4]),
        'variants."queue, 2 Python threads".options': {"threads": 3},
    }
    scenario = load("decode_jpeg", list(library._written(settings)))
    queue = scenario.variant("queue, 2 Python threads")
    assert (queue.source.options["path"], queue.source.options["batch_size"]) == ("2024", 32)
    assert (queue.model.options["hidden_widths"], queue.options["threads"]) == ([8, 4], 3)


@pytest.mark.parametrize("value", [None, object(), [object()]])
def test_a_setting_that_no_scenario_holds_is_refused_with_its_key(value: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"source\.path is a"):
        library.compare("decode_jpeg", settings={"source.path": value}, out=tmp_path)


@pytest.mark.parametrize("budget_s", [0.0, -1.0, float("inf"), float("nan"), 1e9])
def test_a_budget_that_is_no_time_is_refused(budget_s: float) -> None:
    with pytest.raises(UsageError, match="budget_s"):
        library.diagnose("train.py:make_dataset", budget_s=budget_s)
    with pytest.raises(UsageError, match="budget_s"):
        library.compare("two_layer", budget_s=budget_s)


def test_a_scenario_that_cannot_run_here_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NvmlSampler, "open", NvmlSampler)
    monkeypatch.setattr(plugins.find("backends", "tf_data"), "unavailable", lambda _: "it is not there")
    with pytest.raises(UsageError, match="it is not there"):
        library.compare("two_layer", backends=["tf_data"], out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_script_is_named_with_numbers_or_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("def make_dataset():\n    return data\n")
    asked: list[Target] = []

    def examine(diagnosis: Diagnosis, scenario: object, folder: Path, *_: object, **__: object) -> Outcome:
        asked.append(diagnosis.target)
        return Outcome(diagnoses.session(), folder, interrupted=False)

    monkeypatch.setattr(diagnosis, "run_diagnosis", examine)
    library.diagnose(str(script), arguments=["--epochs", 3], dataset=2, training=1)
    assert (asked[0].arguments, asked[0].dataset, asked[0].training) == (("--epochs", "3"), "2", "1")
    with pytest.raises(UsageError, match="given one string"):
        library.diagnose(str(script), arguments="--epochs 3")
    with pytest.raises(UsageError, match="goes with a whole script"):
        library.diagnose(f"{script}:make_dataset", arguments=["--epochs", "3"])


def test_a_script_is_not_run_as_one_of_several_workers_for_which_it_would_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"worker": ["host-0:2222", "host-1:2222"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    script = tmp_path / "train.py"
    script.write_text("def make_dataset():\n    return data\n")
    with pytest.raises(UsageError, match="TF_CONFIG names 2 workers") as raised:
        library.diagnose(str(script))
    assert 'del os.environ["TF_CONFIG"]' in raised.value.hint


@pytest.mark.parametrize(("interrupted", "raised"), [(False, SessionError), (True, KeyboardInterrupt)])
def test_a_session_that_a_full_disk_cut_off_is_not_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool, raised: type[BaseException]
) -> None:
    def cut_off(*_: object, **__: object) -> Outcome:
        return Outcome(diagnoses.session(), tmp_path, interrupted=interrupted, unsaved="No space left on device.")

    monkeypatch.setattr(library, "run_comparison", cut_off)
    monkeypatch.setattr(diagnosis, "run_diagnosis", cut_off)
    (tmp_path / "train.py").write_text("def make_dataset():\n    return data\n")
    with pytest.raises(raised):
        library.compare("two_layer")
    with pytest.raises(raised) as caught:
        library.diagnose(f"{tmp_path}/train.py:make_dataset")
    assert interrupted or caught.value.session.diagnosis is not None  # type: ignore[attr-defined]


def test_a_diagnosis_that_a_full_disk_cut_off_stays_so_where_its_code_is_saved(tmp_path: Path) -> None:
    outcome = Outcome(diagnoses.session(), tmp_path, interrupted=False, unsaved="No space left on device.")
    assert diagnosis._with_code(outcome, Observer()).unsaved == "No space left on device."
