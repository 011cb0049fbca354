"""A resolved scenario as TOML that reads back as the same scenario."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.scenario.files import to_toml
from pipeline_bench.scenario.resolve import resolve


def test_an_option_that_only_the_first_variant_has_is_not_shared() -> None:
    """TOML has no null: what one variant leaves unset must not come to it from the shared table."""
    variants = [{"backend": "feed_dict", "run": {"time_s": 1.0}}, {"backend": "tf_data", "run": {"steps": 2}}]
    scenario = resolve({"name": "x", "variants": variants})
    text = to_toml(scenario)
    assert resolve(tomllib.loads(text)) == scenario
    assert "time_s" not in tomllib.loads(text)["run"]


@given(name=st.text(min_size=1), question=st.text(), variant=st.text(min_size=1), source=st.text())
def test_every_text_survives(name: str, question: str, variant: str, source: str) -> None:
    scenario = resolve(
        {
            "name": name,
            "question": question,
            "published": {"source": source, "steps": 3, "figures": [{"variant": variant, "seconds": 1e-7}]},
            "variants": [{"backend": "feed_dict", "name": variant}],
        }
    )
    assert resolve(tomllib.loads(to_toml(scenario))) == scenario
