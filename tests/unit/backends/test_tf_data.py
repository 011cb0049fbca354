"""Options of tf_data that cannot go together, refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError
from pipeline_bench.scenario.resolve import resolve

Options = plugins.find("backends", "tf_data").Options


def refusal(options: dict[str, Any]) -> str:
    document = {"name": "x", "variants": [{"name": "a", "backend": "tf_data", "options": options}]}
    with pytest.raises(ScenarioError) as caught:
        resolve(document)
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("cache", ["samples", "disk"])
def test_single_samples_cannot_be_cached_where_whole_batches_are_decoded(cache: str) -> None:
    said = refusal({"batch_before_map": True, "cache": cache})
    assert f'cache = "{cache}"' in said
    assert 'allowed beside it: cache = "none" or "records"' in said


@pytest.mark.parametrize(
    "undone",
    [
        {"parallel_calls": 2},
        {"interleave": "auto"},
        {"batch_before_map": True},
        {"cache": "disk"},
        {"deterministic": False},
    ],
    ids=str,
)
def test_what_python_decodes_has_no_options_for_decoding(undone: dict[str, Any]) -> None:
    (name,) = undone
    assert f"so {name} would change nothing" in refusal({"from_generator": True, **undone})


@pytest.mark.parametrize(
    "given", [{"cache": "ram"}, {"interleave": 0}, {"shuffle": -1}, {"parallel_calls": "all"}], ids=str
)
def test_a_value_that_there_is_not_is_refused_by_its_name(given: dict[str, Any]) -> None:
    (name,) = given
    assert name in refusal(given)


@given(
    st.fixed_dictionaries(
        {
            "parallel_calls": st.integers(1, 64) | st.just("auto"),
            "prefetch": st.integers(0, 64) | st.just("auto"),
            "interleave": st.integers(1, 64) | st.just("auto"),
            "deterministic": st.booleans(),
            "cache": st.sampled_from(["none", "records"]),
            "shuffle": st.integers(0, 1000),
            "batch_before_map": st.booleans(),
        }
    )
)
def test_what_can_go_together_is_taken_as_it_is_given(options: dict[str, Any]) -> None:
    taken = Options.model_validate(options)
    assert {name: getattr(taken, name) for name in options} == options
