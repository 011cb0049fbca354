"""How fast a pipeline could be if only one thing limited it."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.diagnosis import limits as limits_of
from pipeline_bench.diagnosis import model_step
from pipeline_bench.model.diagnosis import AS_WRITTEN, Limit
from pipeline_bench.model.element import Element
from pipeline_bench.model.events import Copied, InGraph, KeptMemory, KnownShapes
from pipeline_bench.model.pipeline import Inspection, Location, ScriptTraining, Stage, Target
from pipeline_bench.model.session import Session
from tests.unit.diagnoses import row, tensor
from tests.unit.diagnosis.simulated import (
    Machine,
    cost,
    diagnose,
    function,
    inspection,
    measured,
    python_decode,
    said,
    shuffled,
    stage,
    text_of,
)


def limits(session: Session) -> dict[str, Limit]:
    return {limit.name: limit for limit in said(session).limits}


def test_the_cores_the_model_and_the_disk_each_have_a_time_an_element() -> None:
    looked = python_decode(20.0).model_copy(update={"read_bytes": 2e6, "disk_bytes_per_s": 1e9})
    found = limits(measured(Machine(looked, lambda edits: 20.6, ceiling_ms=5.0)))
    assert found["all cores busy"].ms == 10.3  # 20.6 ms of CPU time over 2 cores
    assert found["the disk"].ms == 2.0
    assert found["the model"].ms is not None
    assert abs(found["the model"].ms - 5.0) < 1e-3


@pytest.mark.parametrize(("cpu_ms", "is_known"), [(20.0, True), (48.0, False)])
def test_cpu_time_of_stages_that_were_slowed_is_no_limit_above_the_step(cpu_ms: float, is_known: bool) -> None:
    """The step takes 20.6 ms on two cores."""
    limit = limits(measured(Machine(python_decode(cpu_ms), lambda edits: 20.6)))["all cores busy"]
    assert (limit.ms is not None) == is_known
    assert ("more than a step as written" in limit.text) == (not is_known)


def prefetched(cpu_ms: float = 48.0, behind_ms: float = 0.1) -> Inspection:
    """A map and a buffer of 200 batches behind it, in front of a batch."""
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=function("decode", python=True)),
        stage(2, "prefetch", 1, buffer_size=6400),
        stage(3, "batch", 2, batch_size=32),
    )
    held = cost(2, 0.1, elements=32)
    return inspection(stages, (cost(0, 0.1), cost(1, cpu_ms), held, cost(3, behind_ms)))


@pytest.mark.parametrize(
    ("looked", "is_known"),
    [
        (shuffled(200.0), True),  # which takes the 30.7 ms of CPU time that its table says, once the buffer is empty
        (shuffled(200.0, cardinality=None, pass_elements=None), True),
        (shuffled(6.0), False),  # it fills its buffer in no time
        (prefetched(), True),
        (prefetched(0.1, 48.0), False),
    ],
)
def test_cpu_time_above_a_step_that_a_full_buffer_fed_is_the_limit_of_later_steps(
    looked: Inspection, is_known: bool
) -> None:
    limit = limits(measured(Machine(looked, lambda edits: 6.0, ceiling_ms=5.95)))["all cores busy"]
    assert (limit.ms is not None) == is_known
    assert ("so it is none" in limit.text) == (not is_known)


def test_a_limit_that_was_not_measured_says_why() -> None:
    looked = python_decode(20.0).model_copy(
        update={"read_bytes": 2e6, "disk_reason": "the files are in memory (tmpfs).", "costs": ()}
    )
    found = limits(measured(Machine(looked, lambda edits: 20.6)))
    assert {name: limit.ms for name, limit in found.items()} == dict.fromkeys(found)
    assert found["the disk"].text == "the files are in memory (tmpfs)"
    assert found["the model"].text == "no --model was given"
    assert found["all cores busy"].text


def test_a_pipeline_that_reads_nothing_is_not_limited_by_the_disk() -> None:
    looked = python_decode(20.0).model_copy(update={"read_bytes": 0.0, "disk_bytes_per_s": 1e9})
    found = limits(measured(Machine(looked, lambda edits: 20.6)))
    assert (found["the disk"].ms, found["the disk"].text) == (None, "the pipeline reads no files")


def test_a_pipeline_whose_cache_is_full_is_not_limited_by_the_disk() -> None:
    looked = python_decode(20.0).model_copy(update={"read_bytes": 2e6, "disk_bytes_per_s": 1e9})
    costs = tuple(each.model_copy(update={"elements": 0.0}) for each in looked.costs)
    warm = looked.model_copy(update={"costs": costs})
    found = [limits(measured(Machine(each, lambda edits: 20.6)))["the disk"] for each in (warm, looked)]
    assert [limit.ms for limit in found] == [None, 2.0]
    assert found[0].text.startswith("files are read in the first epoch only")


def test_on_a_gpu_the_copy_of_a_batch_has_its_part_of_the_step_and_a_limit_of_its_own() -> None:
    copied = Copied(size_bytes=36 * 2**20, ms=8.0)
    session = diagnose(Machine(python_decode(20.0), lambda edits: 20.6, ceiling_ms=5.0, copied=copied), budget_s=40)
    limit = limits(session)["the copy to the GPU"]
    assert limit.ms == pytest.approx(8.0, rel=0.01)
    assert limit.text == "36.0 MiB a batch, at 4.39 GiB/s"
    written = session.result(AS_WRITTEN)
    assert written.device_copy.share.value == pytest.approx(8.0 / 20.6, rel=0.01)
    ahead = next((each for each in session.results if "to the GPU" in each.variant), None)
    assert ahead is not None
    assert ahead.device_copy.share.value is None
    assert ahead.device_copy.overlapped_share.value is not None
    on_cpu = measured(Machine(python_decode(20.0), lambda edits: 20.6, ceiling_ms=5.0))
    assert "the copy to the GPU" not in limits(on_cpu)


def of_shapes(lost_by_map: bool, promised: Element, known: Element) -> str:
    """What is said where the model is the limit, and is three times as fast traced for the known shapes."""
    looked = python_decode(2.0)
    made = tensor("float32", 8, 8, 3).model_copy(update={"shape": None}) if lost_by_map else tensor("float32", None)
    elements = [tensor("string"), row(made, tensor("int64")), promised]
    stages = (one.model_copy(update={"element": each}) for one, each in zip(looked.stages, elements, strict=True))
    looked = looked.model_copy(update={"stages": tuple(stages), "element": promised})
    shapes = KnownShapes(element=known, batches=12, ms=30.0, promised_ms=90.0)
    return text_of(Machine(looked, lambda edits: 2.0, ceiling_ms=90.0, known_shapes=shapes))


def test_shapes_that_are_not_promised_are_told_with_what_they_cost_the_model_and_who_lost_them() -> None:
    labels, unknown = tensor("int64", None), tensor("float32").model_copy(update={"shape": None})
    known = row(tensor("float32", None, 8, 8, 3), labels)
    told = "fit traces the model for {}, the shapes that the dataset promises (sizes are open from {}, on): a step of "
    assert told.format("float32[...]", "map(decode), train.py:11") in of_shapes(True, row(unknown, labels), known)
    text = of_shapes(False, row(tensor("float32", None, None, 8, 3), labels), known)
    assert told.format("float32[?, ?, 8, 3]", "batch, train.py:12") in text
    assert text.endswith(
        "the model alone then takes 90.0 ms. Traced for float32[?, 8, 8, 3], as the first 12 batches are, it takes "
        "30.0 ms. If all batches have these shapes, promise them in a last map, with tf.ensure_shape, which ends the "
        "training at any other batch; then diagnose again."
    )


def test_of_a_model_that_runs_as_eager_code_it_is_told_what_its_step_takes_as_a_graph() -> None:
    graph = InGraph(eager="model", eager_ms=39.0, ms=1.5)
    found = diagnose(Machine(python_decode(2.0), lambda edits: 2.0, ceiling_ms=39.0, in_graph=graph))
    assert said(found).text.endswith(
        "The model runs as eager code, op by op from Python: the model's run_eagerly is True. So a step of the model "
        "alone takes 39.0 ms, and 1.50 ms as a graph. If that is not for debugging, take it out; then diagnose again."
    )


def behind(ms: float, kept: bool, **of: Any) -> KeptMemory:
    """Steps behind those of 60 ms, with the kernel's part of them."""
    usual = {"kernel_ms": 1.0, "page_faults": 20.0} if kept else {"kernel_ms": 30.0, "page_faults": 7500.0}
    more_bytes = (4 << 20) if kept else 1 << 20
    return KeptMemory(**{"kept": kept, "ms": ms, "before_ms": 60.0, "more_bytes": more_bytes, **usual, **of})


def with_kept_memory(*found: KeptMemory, fed_by: str = "range") -> Session:
    looked = python_decode(2.0)
    source = looked.stages[0].model_copy(update={"method": fed_by})
    looked = looked.model_copy(update={"stages": (source, *looked.stages[1:])})
    return diagnose(Machine(looked, lambda edits: 2.0, ceiling_ms=60.0, kept_memory=found))


def test_memory_that_malloc_gives_back_is_told_with_how_to_keep_it() -> None:
    assert (
        "A step has 7,500 page faults, as malloc gives large blocks back to the kernel when they are freed. Where it "
        "keeps them, a step takes 50.0 ms in place of 60.0 ms, with 3.00 MiB more memory at least. Start the training "
        "with MALLOC_MMAP_MAX_=0 MALLOC_TOP_PAD_=67108864 in its environment; then diagnose again, with these."
    ) in said(with_kept_memory(behind(50.0, True), behind(60.0, False))).text


def test_kept_memory_is_told_before_that_no_fix_is_proven_and_behind_a_proposal() -> None:
    found = (behind(50.0, True), behind(60.0, False))
    nothing_gains, a_cache_gains = (
        said(diagnose(Machine(python_decode(2.0), step_ms, ceiling_ms=60.0, kept_memory=found))).text
        for step_ms in (lambda edits: 90.0, lambda edits: 61.0 if edits else 120.0)
    )
    assert nothing_gains.index("page faults") < nothing_gains.index("is proven to make it faster")
    assert a_cache_gains.index("Proposed:") < a_cache_gains.index("page faults")


@pytest.mark.parametrize(("version", "told"), [("2.20.1", False), ("2.21.0", True), ("3.0.0-rc1", True), (None, False)])
def test_a_generator_is_told_as_the_cause_where_tensorflow_does_it(version: str | None, told: bool) -> None:
    state = with_kept_memory(behind(40.0, True), behind(60.0, False), fed_by="from_generator")
    state = state.model_copy(update={"environment": state.environment.model_copy(update={"tensorflow": version})})
    diagnosis = said(state)
    assert diagnosis.inspection is not None
    text = model_step.freed_memory(state, diagnosis.inspection)
    assert ("sets it to do so as soon as a generator feeds it." in text) == told
    assert text.startswith("A step has 7,500 page faults")


def test_what_steps_with_kept_memory_take_less_is_no_more_than_the_kernels_part() -> None:
    found = behind(20.0, True, kernel_ms=12.0), behind(60.0, False)
    assert "a step takes 42.0 ms in place of 60.0 ms" in said(with_kept_memory(*found)).text


@pytest.mark.parametrize(
    "found",
    [
        (),
        (behind(30.0, True),),
        (behind(56.0, True), behind(60.0, False)),
        (behind(30.0, True), behind(31.0, False)),  # later steps are shorter by themselves
        (behind(50.0, True, before_ms=50.0), behind(60.0, False)),  # the machine was faster in that trial
        (behind(30.0, True, page_faults=7400.0), behind(60.0, False)),
        (behind(30.0, True), behind(60.0, False, kernel_ms=5.0)),  # the kernel had no more to save
    ],
)
def test_memory_is_not_told_where_keeping_it_is_not_what_made_steps_shorter(found: tuple[KeptMemory, ...]) -> None:
    assert "malloc" not in said(with_kept_memory(*found)).text


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ((behind(59.0, True), behind(60.0, False)), True),
        ((behind(30.0, True), behind(31.0, False)), True),
        ((behind(59.0, True),), False),
        ((behind(59.0, True, page_faults=7400.0), behind(60.0, False)), False),
        ((behind(30.0, True), behind(60.0, False, kernel_ms=5.0)), False),
        ((behind(50.0, True, before_ms=50.0), behind(60.0, False)), False),
    ],
)
def test_memory_that_was_kept_in_vain_is_told(found: tuple[KeptMemory, ...], told: bool) -> None:
    """`run` had advised it, and the diagnosis said nothing."""
    assert ("page faults are not what slows it" in said(with_kept_memory(*found)).text) == told


def test_of_many_inputs_whose_shapes_are_not_promised_some_are_named_and_the_rest_counted() -> None:
    def inputs(*shape: int | None) -> Element:
        parts = (tensor("int64", *shape).model_copy(update={"name": name}) for name in "abcde")
        return Element(kind="dict", parts=tuple(parts))

    text = of_shapes(False, inputs(None, None), inputs(None, 128))
    assert "fit traces the model for a int64[?, ?]; b int64[?, ?]; c int64[?, ?] and 2 more, the shapes" in text
    assert "Traced for a int64[?, 128]; b int64[?, 128]; c int64[?, 128] and 2 more, as the" in text


@pytest.mark.parametrize(("times", "seconds", "told"), [(40, 5.0, True), (2, 5.0, False), (40, 0.2, False)])
def test_a_loops_step_that_is_traced_anew_is_told_with_how_long_that_took(
    times: int, seconds: float, told: bool
) -> None:
    looked = python_decode(2.0)
    training = ScriptTraining(line="train.py:9", model=True, step="train_step")
    looked = looked.model_copy(update={"training": training})
    traced = Inspection(traced_anew=times, traced_anew_s=seconds)
    found = diagnose(Machine(looked, lambda edits: 500.0, ceiling_ms=480.0, told_as_written=traced), budget_s=40)
    trials = len(found.trials_of(AS_WRITTEN))
    sentence = (
        f"train_step is traced anew for batches of another shape: {40 * trials} times in {trials} trials of the "
        f"pipeline as written, which took {5 * trials}.0 s."
    )
    assert (sentence in said(found).text) is told
    assert ("traced anew" in said(found).text) is told


@pytest.mark.parametrize(
    ("drawn", "cached", "epochs", "told"),
    [
        ({"random": True}, True, 5, True),
        ({"draws_in_python": True}, True, 5, True),
        ({"python": True}, True, 5, False),
        ({"random": True}, False, 5, False),
        ({"random": True}, True, 1, False),
    ],
)
def test_a_cache_that_keeps_one_random_draw_for_all_epochs_is_told(
    drawn: dict[str, Any], cached: bool, epochs: int, told: bool
) -> None:
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "map", 0, of=function("augment", **drawn)),
        stage(2, "cache" if cached else "prefetch", 1),
    )
    training = ScriptTraining(line="train.py:9", epochs=epochs)
    looked = inspection(stages, (cost(0, 0.1), cost(1, 2.0), cost(2, 0.1))).model_copy(update={"training": training})
    found = list(limits_of.frozen(looked))
    assert [each.split(",")[0] for each in found] == ["cache"] * told
    assert all("keeps what augment drew in the first epoch" in each for each in found)


@pytest.mark.parametrize("part", ["take", "shard", "cache"])
def test_files_of_which_a_part_is_read_are_not_told_to_be_more_than_the_memory(part: str) -> None:
    looked = python_decode(2.0)
    costs = looked.costs if part != "cache" else tuple(e.model_copy(update={"elements": 0.0}) for e in looked.costs[:1])
    known = {"source_bytes": 1e11, "disk_bytes_per_s": 1e8, "read_bytes": 1e6, "sink": 3}
    stages = (*looked.stages, stage(3, part, 2))
    looked = looked.model_copy(update={**known, "stages": stages, "costs": (*costs, *looked.costs[len(costs) :])})
    assert "memory holds" not in text_of(Machine(looked, lambda edits: 90.0, ceiling_ms=90.0))


@pytest.mark.parametrize(
    ("source_bytes", "rate", "told"), [(1e11, 1e8, True), (1e9, 1e8, False), (1e11, 1e11, False), (1e11, None, False)]
)
def test_files_that_memory_does_not_hold_are_told_where_the_disk_is_slower_than_the_trials_steps(
    source_bytes: float, rate: float | None, told: bool
) -> None:
    """100 batches; of 100 GB each has 1 GB, which takes 10 s from a disk of 100 MB/s, and of 32 GB fits in memory."""
    known = {"source_bytes": source_bytes, "disk_bytes_per_s": rate, "read_bytes": 1e6}
    looked = python_decode(2.0).model_copy(update=known)
    text = text_of(Machine(looked, lambda edits: 90.0, ceiling_ms=90.0))
    said = "The files have 93.1 GiB, more than the memory. The trials read the first of them, which memory holds; from"
    assert (said in text) is told
    assert ("memory holds" in text) is told


OF_READER = Location(file="train.py", line=9, text="data = tf.data.experimental.make_csv_dataset(")


@pytest.mark.parametrize(
    ("behind", "left_early", "told"),
    [
        (stage(1, "repeat", 0), False, True),
        (stage(1, "repeat", 0), True, False),  # TensorFlow empties it at the end of each pass
        (stage(1, "repeat", 0, count=2), False, False),
        (stage(1, "repeat", 0).model_copy(update={"place": OF_READER}), False, True),
    ],
)
def test_a_cache_that_grows_for_ever_is_told(behind: Stage, left_early: bool, told: bool) -> None:
    cache = stage(2, "cache", 1).model_copy(update={"left_early": left_early})
    stages = (stage(0, "range"), behind, cache)
    looked = inspection(stages, tuple(cost(number, 1.0, element_bytes=2**20) for number in range(3)))
    found = list(limits_of.overflows(looked, 2**40))
    said = "cache, train.py:12, stands behind what never ends: it is never full, nothing is ever read from it, and it "
    assert [each.startswith(f"{said}grows for ever, 1.00 MiB a batch.") for each in found] == [True] * told
    assert any("in front of the repeat" in each for each in found) is (told and behind.place != OF_READER)


@pytest.mark.parametrize(
    ("again", "reshuffles", "of", "told"),
    [
        (False, True, "batch", "the first epoch, and its batches, for all others. If each epoch is to have its own, "),
        (False, True, "map", "the first epoch, for all others. If each epoch is to have its own, shuffle behind"),
        (True, True, "batch", None),
        (False, False, "batch", None),
    ],
)
def test_a_cache_behind_a_shuffle_that_keeps_the_order_of_the_first_epoch_is_told(
    again: bool, reshuffles: bool, of: str, told: str | None
) -> None:
    stages = (
        stage(0, "range"),
        stage(1, "shuffle", 0, buffer_size=100, reshuffle_each_iteration=reshuffles),
        stage(2, of, 1),
        stage(3, "cache", 2),
        stage(4, "shuffle" if again else "prefetch", 3),
    )
    found = list(limits_of.frozen(inspection(stages, tuple(cost(number, 1.0) for number in range(5)))))
    expected = (
        None if told is None else f"cache, train.py:13, keeps the order that shuffle, train.py:11, gave in {told}"
    )
    assert [each.startswith(str(expected)) for each in found] == [True] * (told is not None)


@pytest.mark.parametrize(
    ("seeds", "given", "behind", "by_seed", "told"),
    [
        ("counter", {"method": "map"}, {"method": "shuffle"}, True, True),
        ("range", {"method": "map"}, {"method": "batch"}, True, True),
        ("counter", {"method": "map"}, {"method": "repeat"}, True, True),  # which begins both anew
        ("random", {"method": "map"}, {"method": "shuffle"}, True, False),
        ("counter", {"method": "shuffle"}, {"method": "batch"}, True, False),  # a sample meets another number each time
        ("counter", {"method": "repeat"}, {"method": "shuffle"}, True, False),  # the counter goes on
        ("counter", {"method": "map"}, {"method": "shuffle"}, False, False),
        ("counter", {"method": "map"}, {"method": "map", "of": function("seeds", stateful=True)}, True, False),
        ("counter", {"method": "map"}, {"method": "map", "of": function("seeds", python=True)}, True, False),
        (
            "counter",
            {"method": "map", "num_parallel_calls": 4, "deterministic": False},
            {"method": "batch"},
            True,
            False,
        ),
    ],
)
def test_a_map_whose_seeds_are_counted_anew_in_each_epoch_is_told_to_draw_the_same_for_each_sample(
    seeds: str, given: dict[str, Any], behind: dict[str, Any], by_seed: bool, told: bool
) -> None:
    augment = function("augment").model_copy(update={"draws_by_seed": by_seed})
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, given["method"], 0, **{key: value for key, value in given.items() if key != "method"}),
        stage(2, seeds),
        stage(3, "zip", 1, 2),
        stage(4, behind["method"], 3, of=behind.get("of")),
        stage(5, "map", 4, of=augment),
    )
    looked = inspection(stages, tuple(cost(number, 1.0) for number in range(6)))
    found = list(limits_of.repeated_draws(looked))
    said = "zip, train.py:13, pairs each sample with a number, and the numbers begin anew in each epoch. If they are "
    assert [each.startswith(f"{said}the seeds of map(augment), train.py:15, ") for each in found] == [True] * told
    once = looked.model_copy(update={"training": ScriptTraining(line="train.py:9", model=True, epochs=1)})
    assert list(limits_of.repeated_draws(once)) == []


@pytest.mark.parametrize(
    ("alike", "calls", "told"),
    [(True, -1, True), (True, 4, True), (True, 1, False), (True, None, False), (False, -1, False)],
)
@pytest.mark.parametrize("within", [False, True])
def test_calls_beside_each_other_that_draw_alike_one_by_one_are_told_not_to(
    alike: bool, calls: int | None, told: bool, within: bool
) -> None:
    of = function("augment", random=True).model_copy(update={"draws_alike": alike})
    augment = stage(1, "map", 0, of=of, num_parallel_calls=calls)
    opening = stage(1, "interleave", 0, of=function("open"), inner=(augment,))
    looked = inspection((stage(0, "range"), opening if within else augment), (cost(0, 1.0), cost(1, 9.0)))
    text = text_of(Machine(looked, lambda edits: 20.0))
    name = "interleave(open)" if within else "map(augment)"
    assert (f"{name}, train.py:11, draws alike for several parts of an element, by equal seeds" in text) == told


@pytest.mark.parametrize(
    ("buffer_size", "dtype", "told"),
    [
        (True, "uint8", "(buffer_size=True counts as 1)"),
        (1, "uint8", "(buffer_size=1)"),
        (2, "uint8", ""),
        (True, "string", "(buffer_size=True counts as 1)"),
        (1, "string", ""),  # the names of files, of which there may be one
    ],
)
def test_a_shuffle_whose_buffer_holds_one_element_is_told_to_shuffle_nothing(
    buffer_size: int, dtype: str, told: str
) -> None:
    """`ds.shuffle(shuffle)` of a public script got the flag that asks for it."""
    stages = (
        stage(0, "range"),
        stage(1, "shuffle", 0, buffer_size=buffer_size).model_copy(update={"element": tensor(dtype)}),
        stage(2, "cache", 1),
    )
    looked = inspection(stages, tuple(cost(number, 1.0) for number in range(3)))
    said = f"shuffle, train.py:11, shuffles nothing: its buffer holds one element {told}."
    assert (said in text_of(Machine(looked, lambda edits: 5.0))) is bool(told)
    if told:
        assert not list(limits_of.frozen(looked)), "there is no order to keep"


@pytest.mark.parametrize(
    ("api", "in_loop", "step_ms", "told"),
    [
        ("arrays", True, 5.0, True),
        ("arrays", True, 1.0, True),  # which the model takes by itself
        ("generator", True, 5.0, True),
        ("arrays", False, 5.0, False),
        ("PyDataset", True, 5.0, False),
    ],
)
def test_what_a_loop_does_between_its_calls_of_fit_is_told_to_be_measured_by_run(
    api: str, in_loop: bool, step_ms: float, told: bool
) -> None:
    training = ScriptTraining(line="train.py:9", model=True, epochs=1, in_loop=in_loop)
    of_fit = inspection((stage(0, "copy"),), (cost(0, 0.02),)).model_copy(update={"api": api, "training": training})
    script = Target(file="train.py", name="", arguments=("--parts", "3"))
    text = text_of(Machine(of_fit, lambda edits: step_ms, ceiling_ms=1.0), target=script)
    said = "The script calls fit in a loop: what the loop does between two calls, such as loading the next part of"
    assert (said in text) is told
    assert ("`pipeline-bench run -- python train.py --parts 3` tells how long" in text) is told
