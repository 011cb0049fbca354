"""What makes a comparison unfair is named with both values, and what does not is not."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.analysis.conditions import ceilings_differ_in, conditions
from pipeline_bench.model.diagnosis import AS_WRITTEN
from pipeline_bench.model.difference import Condition
from pipeline_bench.model.result import Precision
from pipeline_bench.model.session import Environment, Session
from pipeline_bench.scenario import Component, Runtime, Variant
from tests.unit import sessions
from tests.unit.diagnosis.simulated import Machine, diagnose, python_decode

OTHER: dict[str, Any] = {
    "accelerator_kind": "gpu",
    "accelerator_name": "NVIDIA Other",
    "driver": "999.9",
    "tensorflow": "9.9",
    "python": "3.99",
    "platform": "Other",
    "cpu": "Other CPU",
    "cores": 99,
    "memory_bytes": 2**40,
    "package": "9.9.9",
}


def changed(**changes: Any) -> Session:
    session = sessions.normal()
    return session.model_copy(update={"environment": session.environment.model_copy(update=changes)})


def with_variants(change: dict[str, Any], *names: str) -> Session:
    session = sessions.normal()
    variants = tuple(v.model_copy(update=change) if v.name in names else v for v in session.scenario.variants)
    return session.model_copy(update={"scenario": session.scenario.model_copy(update={"variants": variants})})


def test_the_same_conditions_are_fair() -> None:
    assert conditions(sessions.normal(), sessions.normal()) == ()


@pytest.mark.parametrize("field", [name for name in Environment.model_fields if name != "accelerator_reason"])
def test_every_field_of_the_environment_counts(field: str) -> None:
    """A field that is added to the environment must be given another value here, or be ignored with a reason."""
    (found,) = conditions(changed(), changed(**{field: OTHER[field]}))
    assert found.before != found.after
    assert found.variants == ()


def test_some_pages_of_memory_more_are_no_difference() -> None:
    memory = sessions.CPU.memory_bytes
    assert conditions(changed(memory_bytes=memory), changed(memory_bytes=memory + 4096)) == ()


@pytest.mark.parametrize(
    ("change", "name", "before", "after"),
    [
        ({"backend": "tf_data"}, "backend", "feed_dict", "tf_data"),
        ({"options": {"threads": 4}}, "options.threads", "not set", "4"),
        ({"source": Component(kind="synthetic", options={"batch_size": 64})}, "source.batch_size", "128", "64"),
        ({"source": Component(kind="files", options={"batch_size": 128})}, "source.kind", "synthetic", "files"),
        (
            {"model": Component(kind="two_layer", options={"hidden_widths": [1]})},
            "model.hidden_widths",
            "not set",
            "[1]",
        ),
        ({"options": {"name": "none"}}, "options.name", "not set", "none"),
        ({"options": {"name": ""}}, "options.name", "not set", "empty"),
        ({"loop": Component(kind="other")}, "loop.kind", "session", "other"),
        ({"runtime": Runtime(intra_op_threads=3)}, "runtime.intra_op_threads", "0", "3"),
    ],
)
def test_every_option_of_the_job_counts(change: dict[str, Any], name: str, before: str, after: str) -> None:
    expected = Condition(name=name, before=before, after=after, variants=("feed_dict",))
    assert expected in conditions(sessions.normal(), with_variants(change, "feed_dict"))


@pytest.mark.parametrize("key", ["steps", "seed"])
def test_the_length_of_a_run_and_its_seed_count(key: str) -> None:
    run = sessions.normal().scenario.variants[0].run.model_copy(update={key: 77})
    (found,) = conditions(sessions.normal(), with_variants({"run": run}, "tf_data"))
    assert (found.name, found.after, found.variants) == (f"run.{key}", "77", ("tf_data",))


@pytest.mark.parametrize("key", ["repeats", "stall_timeout_s"])
def test_more_repeats_are_not_unfair(key: str) -> None:
    run = sessions.normal().scenario.variants[0].run.model_copy(update={key: 77})
    assert conditions(sessions.normal(), with_variants({"run": run}, "tf_data")) == ()


def test_the_same_change_of_several_variants_is_told_once() -> None:
    change = {"loop": Component(kind="other")}
    (found,) = conditions(sessions.normal(), with_variants(change, "feed_dict", "tf_data"))
    assert found.variants == ("feed_dict", "tf_data")


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"source": Component(kind="synthetic", options={"batch_size": 64})}, ("source.batch_size",)),
        ({"source": Component(kind="synthetic", options={"batch_size": 128, "latency_ms": 9.0})}, ()),
        ({"source": Component(kind="not-installed", options={"batch_size": 128})}, ("source.kind",)),
        ({"model": Component(kind="two_layer", options={"hidden_widths": [1]})}, ("model.hidden_widths",)),
        ({"loop": Component(kind="other")}, ("loop.kind",)),
        ({"runtime": Runtime(intra_op_threads=3)}, ("runtime.intra_op_threads",)),
        ({"options": {"threads": 4}}, ()),
    ],
)
def test_the_jobs_of_ceilings_differ_in_all_but_the_way_to_a_batch(
    change: dict[str, Any], keys: tuple[str, ...]
) -> None:
    other = with_variants(change, "ceiling")
    assert ceilings_differ_in(sessions.normal(), other, "ceiling") == keys
    assert ceilings_differ_in(sessions.normal(), other, "feed_dict") == keys
    assert ceilings_differ_in(sessions.normal(), with_variants(change, "feed_dict"), "feed_dict") == ()


def test_a_variant_of_one_session_alone_is_no_condition() -> None:
    extra: Variant = sessions.variant("new", "other")
    session = sessions.normal()
    scenario = session.scenario.model_copy(update={"variants": (*session.scenario.variants, extra)})
    assert conditions(session, session.model_copy(update={"scenario": scenario})) == ()


def test_a_ceiling_that_the_session_lacks_is_no_error() -> None:
    """Anybody may have written the file."""
    lacking = with_variants({"ceiling": "nowhere"}, "feed_dict")
    assert ceilings_differ_in(lacking, lacking, "feed_dict") == ()


def test_what_a_diagnosis_chose_by_what_it_measured_is_no_other_job() -> None:
    before, after = (
        diagnose(Machine(python_decode(ms), lambda edits, ms=ms: ms, ceiling_ms=5.0), budget_s=40)  # type: ignore[misc]
        for ms in (400.0, 20.0)
    )
    lengths = [{variant.run.time_s for variant in each.scenario.variants} for each in (before, after)]
    assert lengths[0] != lengths[1]
    assert conditions(before, after) == ()
    assert ceilings_differ_in(before, after, AS_WRITTEN) == ()


@pytest.mark.parametrize(("key", "value"), [("name", "tune.py"), ("command", "train.py --lr 1")])
def test_jobs_of_another_name_or_command_are_no_fair_comparison(key: str, value: str) -> None:
    watched = sessions.normal().model_copy(update={"watched": True})
    changes = {"scenario": watched.scenario.model_copy(update={"name": value})} if key == "name" else {key: value}
    (found,) = conditions(watched, watched.model_copy(update=changes))
    assert (found.name, found.after) == ({"name": "job"}.get(key, key), value)
    assert conditions(watched, watched) == ()


def test_where_an_op_ran_is_logged_beside_the_steps() -> None:
    logged = with_variants({"runtime": Runtime(log_placement=True)}, "feed_dict")
    assert conditions(sessions.normal(), logged) == ()
    assert ceilings_differ_in(sessions.normal(), logged, "feed_dict") == ()


@pytest.mark.parametrize(
    ("goal", "name", "counts"), [(None, "two_layer", False), (0.02, "two_layer", True), (None, "own", True)]
)
def test_the_steps_that_a_comparison_chose_itself_make_no_other_job(
    goal: float | None, name: str, counts: bool
) -> None:
    before = sessions.normal().model_copy(update={"precision": Precision(goal=goal, budget_s=60)})
    variants = tuple(
        v.model_copy(update={"run": v.run.model_copy(update={"steps": 20})}) for v in before.scenario.variants
    )
    scenario = before.scenario.model_copy(update={"variants": variants, "name": name})
    found = conditions(before, before.model_copy(update={"scenario": scenario}))
    assert [each.name for each in found] == ["run.steps"] * counts


def test_a_notebooks_kernel_has_another_file_at_each_start() -> None:
    one = sessions.normal().model_copy(update={"watched": True, "command": "ipykernel_launcher.py -f kernel-1.json"})
    assert conditions(one, one.model_copy(update={"command": "ipykernel_launcher.py -f kernel-2.json"})) == ()
