"""Reading, overriding, checking, resolving and writing a scenario, and the ceilings that it is given."""

from __future__ import annotations

import contextlib
import datetime
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline_bench.errors import ScenarioError
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.check import quoted
from pipeline_bench.scenario.files import locate, to_toml
from pipeline_bench.scenario.load import load
from pipeline_bench.scenario.resolve import resolve


def write(folder: Path, text: str) -> str:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as caught:
        resolve(document, where="mine.toml")
    assert caught.value.exit_code == 2
    return f"{caught.value.message}\n{caught.value.hint}"


def backends_of(scenario: Scenario) -> list[str]:
    return [variant.backend for variant in scenario.variants]


def test_a_file_with_only_a_name_is_two_layer_under_that_name(tmp_path: Path) -> None:
    mine, default = load(write(tmp_path, 'name = "other"\n')), load("two_layer")
    assert mine.name == "other"
    assert (mine.variants, mine.published) == (default.variants, default.published)


def test_an_empty_file_is_named_as_its_file(tmp_path: Path) -> None:
    assert load(write(tmp_path, "")).name == "mine"


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    assert load(write(tmp_path, '\ufeffname = "windows"\n')).name == "windows"


def test_a_variant_is_the_files_values_with_its_own_on_top() -> None:
    scenario = resolve(
        {
            "name": "x",
            "source": {"batch_size": 64, "features": 8},
            "run": {"steps": 10, "repeats": 2},
            "variants": [
                {"backend": "feed_dict", "source": {"batch_size": 32}},
                {"backend": "tf_data", "run": {"time_s": 1.5}},
            ],
        }
    )
    first, second = scenario.variants[:2]
    assert (first.source.options["batch_size"], first.source.options["features"]) == (32, 8)
    assert (first.run.steps, first.run.time_s, first.run.repeats) == (10, None, 2)
    assert (second.run.steps, second.run.time_s, second.run.repeats) == (None, 1.5, 2)


def test_a_variant_that_names_the_default_kind_keeps_the_files_options() -> None:
    scenario = resolve(
        {
            "name": "x",
            "source": {"batch_size": 7},
            "variants": [{"backend": "feed_dict", "source": {"kind": "synthetic"}}],
        }
    )
    assert scenario.variants[0].source.options["batch_size"] == 7


def test_a_variants_own_key_of_a_table_keeps_the_others_of_the_scenarios() -> None:
    arguments = {"samples": 100, "crop": {"top": 1, "left": 2}}
    own = {"arguments": {"crop": {"left": 3}, "size": 32}}
    scenario = resolve(
        {
            "name": "x",
            "source": {"kind": "generator", "arguments": arguments},
            "variants": [
                {"name": "a", "backend": "feed_dict", "source": own},
                {"name": "b", "backend": "feed_dict", "source": {"arguments": {"crop": 5}}},
                {"name": "c", "backend": "feed_dict"},
            ],
        }
    )
    found = [variant.source.options["arguments"] for variant in scenario.variants[:3]]
    assert found[0] == {"samples": 100, "size": 32, "crop": {"top": 1, "left": 3}}
    assert found[1:] == [{"samples": 100, "crop": 5}, arguments]


def test_a_variants_own_files_of_a_slow_storage_keep_their_kind_or_start_from_another() -> None:
    source = {"kind": "slow_storage", "files": {"kind": "tfrecord", "batch_size": 4}}
    names = {"cold": {"page_cache": "cold"}, "csv": {"kind": "csv"}}
    variants = [{"name": name, "backend": "tf_data", "source": {"files": own}} for name, own in names.items()]
    cold, other = (
        variant.source.options["files"]
        for variant in resolve({"name": "x", "source": source, "variants": variants}).variants[:2]
    )
    assert (cold["kind"], cold["batch_size"], cold["page_cache"]) == ("tfrecord", 4, "cold")
    assert (other["kind"], other["batch_size"]) == ("csv", 32)


class TestCeilings:
    def test_one_is_added_and_shared_by_variants_that_differ_only_in_their_input(self) -> None:
        scenario = load("two_layer")
        assert backends_of(scenario) == ["feed_dict", "fifo_queue", "tf_data", "ceiling"]
        assert {variant.ceiling for variant in scenario.variants[:3]} == {"ceiling"}
        assert scenario.variants[3].is_ceiling

    def test_one_is_added_for_each_model_and_batch(self) -> None:
        scenario = load("batch_sizes")
        sizes = {v.name: v.source.options["batch_size"] for v in scenario.variants}
        measured = [variant for variant in scenario.variants if not variant.is_ceiling]
        assert len({variant.ceiling for variant in measured}) == len(set(sizes.values())) > 1
        assert all(sizes[variant.name] == sizes[variant.ceiling or ""] for variant in measured)

    def test_one_of_the_file_is_used(self) -> None:
        variants = [{"backend": "ceiling", "name": "the best"}, {"backend": "feed_dict"}]
        scenario = resolve({"name": "x", "variants": variants})
        assert [(variant.name, variant.ceiling) for variant in scenario.variants] == [
            ("the best", None),
            ("feed_dict", "the best"),
        ]

    def test_its_name_makes_way_for_a_variant_that_has_it(self) -> None:
        scenario = resolve({"name": "x", "variants": [{"backend": "feed_dict", "name": "ceiling"}]})
        assert [variant.name for variant in scenario.variants] == ["ceiling", "ceiling 2"]


class TestOverrides:
    @pytest.mark.parametrize(
        ("override", "place", "value"),
        [
            ("source.batch_size=32", ("source", "batch_size"), 32),
            (" source.batch_size = 32 ", ("source", "batch_size"), 32),
            ("source.latency_ms=2.5", ("source", "latency_ms"), 2.5),
            ("model.hidden_widths=[8, 4]", ("model", "hidden_widths"), [8, 4]),
        ],
    )
    def test_sets_a_key_of_every_variant(self, override: str, place: tuple[str, str], value: object) -> None:
        part, option = place
        for variant in load("two_layer", [override]).variants[:3]:
            assert getattr(variant, part).options[option] == value

    def test_a_bare_word_is_a_string(self) -> None:
        assert load("two_layer", ["runtime.device=cpu"]).variants[0].runtime.device == "cpu"
        assert load("two_layer", ['name="quoted = 1"']).name == "quoted = 1"

    @pytest.mark.parametrize("folder", ["2024-05-01", "2024-05-01T10:00:00", "10:00:00", "./2024"])
    def test_a_folder_may_be_named_by_a_date(self, folder: str) -> None:
        source = load("decode_jpeg", [f"source.path={folder}"]).variants[0].source
        assert source.options["path"] == folder

    @pytest.mark.parametrize("address", ["1", "fifo_queue"])
    def test_a_variant_is_addressed_by_position_or_name(self, address: str) -> None:
        scenario = load("two_layer", [f"variants.{address}.options.threads=4"])
        assert scenario.variant("fifo_queue").options["threads"] == 4

    def test_a_name_with_spaces_is_quoted(self) -> None:
        scenario = load("slow_source", ['variants."queue, 2 threads".options.threads=3'])
        assert scenario.variant("queue, 2 threads").options["threads"] == 3

    @pytest.mark.parametrize("name", ["a=b", 'the "=" of it', "it's = it"])
    def test_a_name_in_quotes_may_hold_what_parts_key_and_value(self, name: str, tmp_path: Path) -> None:
        file = write(tmp_path, f"[[variants]]\nname = {json.dumps(name)}\nbackend = 'fifo_queue'\n")
        scenario = load(file, [f"variants.{quoted(name)}.options.element='sample'"])
        assert scenario.variant(name).options["element"] == "sample"

    def test_the_variants_of_a_file_without_any_can_be_addressed(self, tmp_path: Path) -> None:
        scenario = load(write(tmp_path, 'name = "x"'), ["variants.tf_data.options.prefetch=3"])
        assert scenario.variant("tf_data").options["prefetch"] == 3

    @pytest.mark.parametrize(("override", "length"), [("run.time_s=2", (None, 2)), ("run.steps=7", (7, None))])
    def test_the_last_word_on_a_trials_length_holds(
        self, override: str, length: tuple[int | None, float | None], tmp_path: Path
    ) -> None:
        for text in ("[run]\nsteps = 5\n", "[run]\ntime_s = 5\n"):
            run = load(write(tmp_path, text), [override]).variants[0].run
            assert (run.steps, run.time_s) == length

    @pytest.mark.parametrize(
        ("override", "said"),
        [
            ("source.batch_size", "KEY=VALUE"),
            ("=3", "dotted key"),
            ("a b=3", "dotted key"),
            ("source.batch_size.deeper=3", "valid integer"),
            ("name.deeper=3", "name is a value, not a table"),
            ("variants.7.backend=tf_data", "position from 0 to 2"),
            ("variants.²=1", "dotted key"),
            ('variants."²".backend=1', "there is no variant '²'"),
            ("variants.feed_dit.backend=1", "Did you mean 'feed_dict'"),
            ("sorce.batch_size=3", "Did you mean 'source'"),
        ],
    )
    def test_a_wrong_one_is_refused_with_what_is_allowed(self, override: str, said: str) -> None:
        with pytest.raises(ScenarioError) as caught:
            load("two_layer", ["name=x", override])
        assert said in f"{caught.value.message} {caught.value.hint}"

    def test_a_name_keeps_its_capitals_in_a_hint(self, tmp_path: Path) -> None:
        file = write(tmp_path, '[[variants]]\nname = "Queue A"\nbackend = "fifo_queue"\n')
        with pytest.raises(ScenarioError) as caught:
            load(file, ["variants.Queue.backend=x"])
        assert "'Queue A'" in caught.value.hint


def test_run_values_hold_for_every_variant_whatever_the_file_says(tmp_path: Path) -> None:
    text = '[run]\ntime_s = 9\n[[variants]]\nbackend = "feed_dict"\nrun.steps = 4\n[[variants]]\nbackend = "tf_data"\n'
    scenario = load(write(tmp_path, text), run={"steps": 2, "repeats": 1})
    assert {(v.run.steps, v.run.time_s, v.run.repeats) for v in scenario.variants} == {(2, None, 1)}


class TestBackends:
    def test_keeps_the_variants_of_those_backends_in_the_files_order(self) -> None:
        scenario = load("slow_source", backends=["fifo_queue", "feed_dict"])
        assert backends_of(scenario) == ["feed_dict", *["fifo_queue"] * 3, "ceiling"]

    def test_adds_one_that_no_variant_has(self) -> None:
        scenario = load("queue_elements", backends=["tf_data"])
        assert backends_of(scenario) == ["tf_data", "ceiling"]
        assert scenario.variants[0].source.options["features"] == 784

    def test_said_twice_is_said_once(self) -> None:
        assert backends_of(load("two_layer", backends=["feed_dict", "feed_dict"])) == ["feed_dict", "ceiling"]

    def test_an_unknown_one_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(ScenarioError, match="no backend 'fifo_que'") as caught:
            load("two_layer", backends=["fifo_que"])
        assert "Did you mean 'fifo_queue'" in caught.value.hint


class TestFiles:
    def test_an_unknown_name_gets_the_nearest(self) -> None:
        with pytest.raises(ScenarioError, match="no scenario 'two_layr'") as caught:
            locate("two_layr")
        assert caught.value.hint.startswith("Did you mean 'two_layer'?")

    @pytest.mark.parametrize("name", ["gone.toml", "some/where", "x" * 5000, "."])
    def test_what_is_no_file_is_refused(self, name: str) -> None:
        with pytest.raises(ScenarioError):
            locate(name)

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ScenarioError, match="is a folder"):
            load(str(tmp_path))

    @pytest.mark.parametrize(
        "text",
        ["x = [", "name = 'a\n", "[run\n", "run.steps = " + "9" * 5000, "x = " + "[" * 100_000, "a." * 60 + "b = 1"],
    )
    def test_broken_toml_names_the_file(self, text: str, tmp_path: Path) -> None:
        file = write(tmp_path, text)
        with pytest.raises(ScenarioError, match="is not valid TOML") as caught:
            load(file)
        assert file in caught.value.message

    def test_a_binary_file_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.toml"
        file.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ScenarioError, match="cannot be read"):
            load(str(file))


ONE = {"backend": "feed_dict"}
QUEUE = {"backend": "fifo_queue"}


@pytest.mark.parametrize(
    ("document", "key", "said"),
    [
        ({"run": 3}, "run", "3 is no table"),
        ({"variants": {}}, "variants", "no list of tables"),
        ({"variants": []}, "variants", "no list of tables"),
        ({"variants": [3]}, "variants.0", "3 is no table"),
        ({"variants": [{**ONE, "options": 5}]}, "variants.feed_dict.options", "5 is no table"),
        ({"variants": [{**ONE, "run": 5}]}, "variants.feed_dict.run", "5 is no table"),
        ({"name": 7}, "name", "given: 7"),
        ({"name": datetime.date(2026, 1, 1)}, "name", "2026-01-01"),
        (
            {"source": {"kind": "generator", "arguments": {"since": datetime.date(2026, 1, 1)}}},
            "source.arguments.since",
            "2026-01-01 is a date or a time",
        ),
        ({"name": ""}, "name", "at least 1 character"),
        ({"name": "x", "question": False}, "question", "given: false"),
        ({"published": 0}, "published", "0 is no table"),
        ({"published": {"source": "x", "steps": 0}}, "published.steps", "given: 0"),
        ({"published": {"steps": 1}}, "published.source", "required"),
        (
            {"published": {"source": "x", "steps": 1, "figures": [{"variant": "feed_dict", "secnds": 1}]}},
            "published.figures.0.secnds",
            "Did you mean 'seconds'",
        ),
        (
            {"published": {"source": "x", "steps": 1, "figures": [{"variant": "feed_dit"}]}},
            "published.figures.0.variant",
            "Did you mean 'feed_dict'",
        ),
        ({"variants": [{"name": "a"}]}, "variants.a.backend", "is missing"),
        ({"variants": [{"backend": "feed_dikt"}]}, "variants.feed_dikt.backend", "Did you mean 'feed_dict'"),
        ({"variants": [{"backend": ["feed_dict"]}]}, "variants.0.backend", "there is no backend"),
        ({"variants": [ONE, ONE]}, "variants", "two variants are named 'feed_dict'"),
        ({"variants": [{**ONE, "name": 3}]}, "variants.0.name", "given: 3"),
        (
            {"variants": [{**QUEUE, "options": {"treads": 2}}]},
            "variants.fifo_queue.options.treads",
            "Did you mean 'threads'",
        ),
        ({"variants": [{**QUEUE, "options": {"threads": 0}}]}, "variants.fifo_queue.options.threads", "given: 0"),
        (
            {"variants": [{**QUEUE, "options": {"element": "sampel"}}]},
            "variants.fifo_queue.options.element",
            "mean 'sample'",
        ),
        (
            {"variants": [{"backend": "tf_data", "options": {"prefetch": "autoo"}}]},
            "variants.tf_data.options.prefetch",
            "should be 'auto'",
        ),
        ({"variants": [{**ONE, "source": {"batch_size": 0}}]}, "variants.feed_dict.source.batch_size", "given: 0"),
        ({"variants": [{**ONE, "run": {"repeats": -1}}]}, "variants.feed_dict.run.repeats", "given: -1"),
        (
            {"variants": [{**ONE, "ceiling": "x"}]},
            "variants.feed_dict.ceiling",
            "no variant 'x' has the backend",
        ),
        ({"source": {"kind": "syntetic"}}, "source.kind", "Did you mean 'synthetic'"),
        ({"source": {"kind": 3}}, "source.kind", "there is no source 3"),
        ({"source": {"batch_size": True}}, "source.batch_size", "given: true"),
        ({"source": {"latency_ms": float("nan")}}, "source.latency_ms", "finite"),
        ({"model": {"hidden_widths": [4, 0]}}, "model.hidden_widths.1", "given: 0"),
        ({"runtime": {"device": "tpu"}}, "runtime.device", "auto, cpu, gpu or gpu:N"),
        ({"runtime": {"intra_op_threads": -1}}, "runtime.intra_op_threads", "given: -1"),
        ({"runtime": {"kind": "x"}}, "runtime.kind", "unknown key"),
        ({"run": {"steps": 0}}, "run.steps", "given: 0"),
        ({"run": {"steps": True}}, "run.steps", "given: true"),
        ({"run": {"time_s": float("inf")}}, "run.time_s", "finite"),
        ({"run": {"steps": 1, "time_s": 1}}, "run", "not both"),
        ({"run": {"repeats": 0}}, "run.repeats", "given: 0"),
        ({"varaints": []}, "varaints", "Did you mean 'variants'"),
        (
            {"source": {"nonsense": 3}, "variants": [{**ONE, "source": {"kind": "memory"}}]},
            "source.nonsense",
            "unknown key",
        ),
        (
            {"source": {"batch_size": 0}, "variants": [{**ONE, "source": {"kind": "memory"}}]},
            "source.batch_size",
            "given: 0",
        ),
    ],
)
def test_a_complaint_names_file_key_and_what_is_allowed(document: dict[str, Any], key: str, said: str) -> None:
    text = refusal({"name": "x", **document})
    assert text.startswith(f"mine.toml, key {key}: ")
    assert said in text


TOP = {"name": "top", "backend": "ceiling", "loop": {"kind": "while_loop"}}


def test_variants_of_several_loops_share_the_ceiling_that_they_name() -> None:
    shared = [{**ONE, "name": kind, "ceiling": "top", "loop": {"kind": kind}} for kind in ("session", "callable")]
    scenario = resolve({"name": "x", "variants": [*shared, TOP]})
    assert [(each.name, each.ceiling) for each in scenario.variants] == [
        ("session", "top"),
        ("callable", "top"),
        ("top", None),
    ]
    kept = resolve({"name": "x", "variants": [*shared, TOP, {"backend": "tf_data"}]}, backends=["feed_dict"])
    assert "top" in [each.name for each in kept.variants]


@pytest.mark.parametrize(
    "other", [{"model": {"hidden_widths": [4]}}, {"source": {"batch_size": 4}}, {"run": {"seed": 3}}]
)
def test_a_ceiling_that_is_named_is_of_the_same_job(other: dict[str, Any]) -> None:
    text = refusal({"variants": [{**ONE, "ceiling": "top"}, {**TOP, **other}]})
    assert "'top' is of another job" in text
    assert next(iter(next(iter(other.values())))) in text


def test_every_error_is_told_at_once_and_each_of_them_once() -> None:
    document = {
        "nmae": "x",
        "run": {"repeats": 0, "seed": -1},
        "variants": [
            {"name": "a", "backend": "feed_dict", "options": {"x": 1}},
            {"name": "my queue", "backend": "fifo_queue", "options": {"threads": 0}, "source": {"batch_size": 0}},
            {"backend": "nothing"},
        ],
    }
    head, *lines = refusal(document).splitlines()
    assert head == "mine.toml has 7 errors:"
    keys = [line.removeprefix("- mine.toml, key ").split(": ")[0] for line in lines]
    assert sorted(keys) == sorted(
        [
            "nmae",
            "run.repeats",
            "run.seed",
            "variants.a.options.x",
            'variants."my queue".options.threads',
            'variants."my queue".source.batch_size',
            "variants.nothing.backend",
        ]
    )


def test_a_list_with_a_wrong_item_is_not_called_empty() -> None:
    said = refusal({"model": {"kind": "two_layer", "hidden_widths": [0]}})
    assert "model.hidden_widths.0: should be greater than or equal to 1" in said
    assert "fewer values" not in said
    assert "has fewer values than the 1 that it needs" in refusal({"model": {"kind": "two_layer", "hidden_widths": []}})


def test_an_error_that_ends_the_check_hides_none_before_it() -> None:
    text = refusal({"nmae": "x", "source": 3})
    assert "key nmae" in text
    assert "key source" in text


@given(st.text(max_size=30))
@example("variants.0=3")
@example("variants=3")
@example("run.steps=0x" + "f" * 5000)
@example("run=3\nrun.steps=4")
@example("name='\ud800'")
def test_whatever_an_override_is_it_holds_or_is_refused(override: str) -> None:
    with contextlib.suppress(ScenarioError):
        load("two_layer", [override])


@pytest.mark.parametrize(
    ("override", "kept"),
    [
        ("run.steps=5000", ["feed_dict", "fifo_queue"]),  # only the length is another
        ("source.features=32", []),  # another job
        ("variants.fifo_queue.options.threads=4", ["feed_dict"]),
    ],
)
def test_published_figures_of_another_job_are_left_out_with_a_note(override: str, kept: list[str]) -> None:
    scenario = load("two_layer", [override])
    assert scenario.published is not None
    assert [figure.variant for figure in scenario.published.figures] == kept
    assert ("published figures" in " ".join(scenario.notes)) == (len(kept) < 2)


def test_a_figure_of_as_many_threads_is_left_out_beside_others_and_kept_on_another_device() -> None:
    for override, kept in (("variants.0.runtime.intra_op_threads=8", 2), ("runtime.device=auto", 3)):
        published = load("cpu_threads", [override]).published
        assert published is not None
        assert len(published.figures) == kept


def test_a_file_with_another_source_does_not_inherit_the_published_figures(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n[source]\nbatch_size = 1024\n')
    assert load(str(path)).published is None
    path.write_text('name = "mine"\n')
    assert load(str(path)).published is not None


@pytest.mark.parametrize(
    ("runtime", "same_job"),
    [
        ('device = "cpu"\nlog_placement = true', True),
        ("intra_op_threads = 0", True),
        ("intra_op_threads = 3", False),
        ("replicas = 2", False),
    ],
)
def test_a_runtime_of_another_job_inherits_no_published_figures_as_with_set(
    runtime: str, same_job: bool, tmp_path: Path
) -> None:
    inherited = load(write(tmp_path, f'name = "mine"\n[runtime]\n{runtime}\n')).published
    overridden = load("two_layer", [f"runtime.{line}" for line in runtime.replace(" = ", "=").splitlines()]).published
    assert overridden is not None
    assert [bool(inherited and inherited.figures), bool(overridden.figures)] == [same_job, same_job]


def test_a_second_line_in_an_override_is_not_dropped_in_silence() -> None:
    with pytest.raises(ScenarioError, match="no KEY=VALUE"):
        load("two_layer", ["source.batch_size=32\nfoo=1"])


def test_a_backend_that_was_left_out_is_not_called_another_job() -> None:
    assert load("two_layer", ["run.seed=3"], ["feed_dict"]).notes == ()


@pytest.mark.parametrize("override", ["model.step_ms=5", "model.step_ms=abc"])
def test_an_override_that_every_variant_has_a_value_against_is_refused(override: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load("plan_accelerator", [override])
    assert "every variant sets its own model.step_ms" in caught.value.message
    assert 'variants."fast".model.step_ms' in caught.value.hint


MEMORY = {"kind": "memory"}


def variants_with(*parts: dict[str, Any]) -> str:
    return tomli_w.dumps({"variants": [{"name": f"v{i}", **ONE, **part} for i, part in enumerate(parts)]})


@pytest.mark.parametrize(
    ("override", "parts", "said"),
    [
        ("source.batch_size=7", [{"source": MEMORY}] * 2, "source.kind"),
        ("source.nonsense=7", [{"source": MEMORY}] * 2, "source.kind"),
        ("source.files.page_cache=cold", [{"source": MEMORY}] * 2, "source.kind"),
        ("source.kind=npz", [{"source": MEMORY}] * 2, "source.kind"),
        ("run.steps=7", [{"run": {"time_s": 1}}] * 2, "run.time_s"),
        ("run.steps=7", [{"run": {"time_s": 1}}, {"run": {"steps": 1}}], "run.time_s or run.steps"),
    ],
)
def test_an_override_that_no_variant_takes_is_refused(
    override: str, parts: list[dict[str, Any]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError, match=f"every variant sets its own {said}, so") as caught:
        load(write(tmp_path, variants_with(*parts)), [override])
    assert 'variants."v0".' in caught.value.hint


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("source.batch_size=7", [{"source": MEMORY}, {}]),
        ("source.batch_size=7", [{"source": {"kind": "synthetic"}}]),
        ("run.steps=7", [{"run": {"time_s": 1}}, {}]),
        ("run.repeats=7", [{"run": {"time_s": 1}}]),
    ],
)
def test_an_override_that_one_variant_takes_is_not_refused(
    override: str, parts: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert load(write(tmp_path, variants_with(*parts)), [override]) != load(write(tmp_path, variants_with(*parts)))


def test_a_key_within_a_table_is_refused_where_every_variant_has_it_and_else_set(tmp_path: Path) -> None:
    own = variants_with({"source": {"arguments": {"size": 3}}})
    file = write(tmp_path, f'{own}[source]\nkind = "generator"\n')
    with pytest.raises(ScenarioError, match=r"every variant sets its own source\.arguments\.size, so"):
        load(file, ["source.arguments.size=7"])
    for override in ("source.arguments.samples=7", "source.arguments={samples=7}"):
        arguments = load(file, [override]).variants[0].source.options["arguments"]
        assert arguments == {"size": 3, "samples": 7}


def test_another_kind_of_source_keeps_the_options_that_it_has_and_says_which_it_drops() -> None:
    scenario = load("decode_jpeg", ["source.image_size=32", "source.kind=npz", "source.batch_size=8"])
    assert {variant.source.kind for variant in scenario.variants} == {"npz"}
    assert {variant.source.options["batch_size"] for variant in scenario.variants} == {8}
    assert {variant.source.options["image_size"] for variant in scenario.variants} == {32}
    changed = load("decode_jpeg", ["source.kind=generator"])
    assert changed.notes == ("source.kind = generator has no option samples, image_size, which the scenario sets",)


def test_another_kind_of_files_behind_a_slow_storage_drops_its_options_as_well() -> None:
    scenario = load("cold_storage", ["source.files.kind=image_folder"])
    files = scenario.variants[0].source.options["files"]
    assert (files["kind"], files["page_cache"], files["samples"]) == ("image_folder", "cold", 1024)
    assert scenario.notes == ("source.files.kind = image_folder has no option files, which the scenario sets",)


@pytest.mark.parametrize(
    ("name", "overrides", "place", "defaults"),
    [
        ("shuffle_and_cache", [], "source", {"samples": 1024}),
        ("shuffle_and_cache", ["source.kind=npz"], "source", {"samples": 1024, "image_size": 96}),
        ("cold_storage", [], "source.files", {"samples": 1024, "files": 8}),
    ],
)
def test_a_path_leaves_out_what_the_scenario_says_of_synthetic_data(
    name: str, overrides: list[str], place: str, defaults: dict[str, int]
) -> None:
    scenario = load(name, [f"{place}.path=some/folder", *overrides])
    options = scenario.variants[0].source.options
    options = options["files"] if place == "source.files" else options
    assert options | defaults | {"path": "some/folder", "batch_size": 32} == options
    note = f"{place}.path has no use for {', '.join(defaults)} of synthetic data, which the scenario sets"
    assert scenario.notes == (note,)


@pytest.mark.parametrize("path", ["--set", "file"])
@pytest.mark.parametrize(
    ("kind", "option"),
    [("csv", "samples"), ("tfrecord", "files"), ("image_folder", "made_size"), ("npz", "image_size")],
)
def test_what_is_said_of_synthetic_data_beside_a_path_is_refused(
    path: str, kind: str, option: str, tmp_path: Path
) -> None:
    given = ["source.path=some/folder"] if path == "--set" else []
    file = write(tmp_path, f"source.kind = '{kind}'\n" + ("" if given else "source.path = 'some/folder'\n"))
    with pytest.raises(ScenarioError, match=rf"source\.{option} is of synthetic data, and source\.path names files"):
        load(file, [*given, f"source.{option}=10"])
    assert load(file, given).notes == ()
    load(file, [*given, "source.batch_size=10"])


def test_a_size_that_images_of_ones_own_are_resized_to_stands_beside_their_path() -> None:
    options = load("decode_jpeg", ["source.path=some/folder", "source.image_size=32"]).variants[0].source.options
    assert (options["path"], options["image_size"]) == ("some/folder", 32)


def test_an_option_given_beside_another_kind_is_held_against_that_kind() -> None:
    with pytest.raises(ScenarioError, match=r"source\.image_size: unknown key"):
        load("decode_jpeg", ["source.image_size=32", "source.kind=generator"])


def scenario(*entries: dict[str, Any]) -> Scenario:
    return resolve({"name": "test", "variants": list(entries)})


def test_variants_that_differ_in_backend_or_latency_share_one() -> None:
    found = scenario(
        {"name": "a", "backend": "feed_dict"},
        {"name": "b", "backend": "tf_data"},
        {"name": "c", "backend": "tf_data", "source": {"latency_ms": 5}},
    )
    assert {variant.ceiling for variant in found.variants[:3]} == {"ceiling"}
    assert found.variant("ceiling").source.options["latency_ms"] == 0


def test_ceilings_are_called_after_what_tells_them_apart() -> None:
    found = scenario(
        {"name": "a", "backend": "feed_dict", "source": {"batch_size": 32}},
        {"name": "b", "backend": "tf_data", "source": {"batch_size": 64}},
    )
    assert [variant.name for variant in found.variants[2:]] == ["ceiling, batch_size 32", "ceiling, batch_size 64"]


def test_a_setting_of_the_runtime_that_changes_no_step_makes_no_other_ceiling() -> None:
    found = scenario(
        {"name": "a", "backend": "feed_dict"},
        {"name": "b", "backend": "tf_data", "runtime": {"log_placement": True, "replication": "between_graph"}},
        {"name": "c", "backend": "tf_data", "runtime": {"replicas": 2}},
        {"name": "d", "backend": "fifo_queue", "runtime": {"replicas": 2, "synchronous": False}},
    )
    assert [variant.ceiling for variant in found.variants[:2]] == ["ceiling, replicas 1"] * 2
    assert [variant.ceiling for variant in found.variants[2:4]] == ["ceiling, replicas 2, replication in_graph"] * 2


def test_between_graph_workers_that_wait_for_each_other_have_another_ceiling_than_those_that_do_not() -> None:
    runtime = {"replicas": 2, "replication": "between_graph"}
    found = scenario(
        {"name": "a", "backend": "tf_data", "runtime": runtime},
        {"name": "b", "backend": "tf_data", "runtime": {**runtime, "synchronous": False}},
    )
    assert [variant.name for variant in found.variants[2:]] == [
        "ceiling, synchronous true",
        "ceiling, synchronous false",
    ]


def test_a_ceiling_runs_as_long_and_as_often_as_the_longest_of_its_variants() -> None:
    found = scenario(
        {"name": "a", "backend": "feed_dict", "run": {"steps": 5, "repeats": 5}},
        {"name": "b", "backend": "tf_data", "run": {"steps": 300, "repeats": 1}},
    )
    run = found.variant("ceiling").run
    assert (run.steps, run.repeats) == (300, 5)


def test_an_option_that_only_the_first_variant_has_is_not_shared() -> None:
    """TOML has no null: what one variant leaves unset must not come to it from the shared table."""
    variants = [{"backend": "feed_dict", "run": {"time_s": 1.0}}, {"backend": "tf_data", "run": {"steps": 2}}]
    scenario = resolve({"name": "x", "variants": variants})
    text = to_toml(scenario)
    assert resolve(tomllib.loads(text)) == scenario
    assert "time_s" not in tomllib.loads(text)["run"]


@pytest.mark.parametrize("other", [{}, {"a": 2}, {"kind": "y"}, {"b": {"c": 3}}, {"b": 4}])
def test_a_table_of_which_variants_have_other_keys_is_read_back_as_it_was(other: dict[str, Any]) -> None:
    """A table that all of them have would give the one its keys, which it has not."""
    tables = ({"a": 1, "b": {"c": 1, "d": 2}}, other, {"kind": "x", "a": 1})
    variants = [
        {"name": str(i), "backend": "feed_dict", "source": {"kind": "generator", "arguments": table}}
        for i, table in enumerate(tables)
    ]
    for entries in (variants, variants[1:], variants[::-1]):
        scenario = resolve({"name": "x", "variants": entries})
        assert resolve(tomllib.loads(to_toml(scenario))) == scenario


@pytest.mark.parametrize("part", ["source", "model", "loop"])
def test_a_kind_that_differs_from_itself_is_refused_as_any_that_is_none(part: str) -> None:
    """It was taken for another kind, of a variant that names none."""
    assert f"key {part}.kind: there is no {part} nan" in refusal({part: {"kind": float("nan")}})
