"""A PyDataset's workers: what is worth a try, and the code to write."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from pipeline_bench.diagnosis import bottleneck, fixes, idea_bounds, next_trial, segments, step_times
from pipeline_bench.diagnosis.fixes import Context
from pipeline_bench.diagnosis.patching import patch
from pipeline_bench.diagnosis.step_times import StepTimes
from pipeline_bench.model import Series
from pipeline_bench.model.calls import WORKERS
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING, Attempt, Bottleneck, CodeChange, Diagnosis
from pipeline_bench.model.edits import Edit, SetArgument
from pipeline_bench.model.function_edits import KeepBatches
from pipeline_bench.model.pipeline import Inspection, Location, ScriptTraining
from pipeline_bench.model.task import Task
from pipeline_bench.model.trial import TrialRecord
from tests.unit.diagnosis.recorded import FILE, fix_of, patched
from tests.unit.diagnosis.simulated import (
    Machine,
    cost,
    diagnose,
    find,
    function,
    inspection,
    said,
    stage,
    with_function,
    with_stage,
)


def looked_at(workers: int = 1, processes: bool = False, cpu_ms: float = 10.0) -> Inspection:
    """A PyDataset whose batches take 10 ms each."""
    given: Any = {"workers": workers, "use_multiprocessing": processes, "max_queue_size": 10}
    made = [stage(0, "__getitem__", of=function("Batches", python=True)), stage(1, WORKERS, 0, **given)]
    if workers > 1 or processes:
        made.append(stage(2, "queue", 1))
    made.append(stage(3, "copy", made[-1].id))
    costs = [cost(each.id, 10.0 if each.id == 0 else 0.1, cpu_ms if each.id == 0 else 0.1) for each in made]
    return inspection(tuple(made), tuple(costs)).model_copy(update={"api": "PyDataset"})


def candidates(looked: Inspection, **context: Any) -> dict[str, Attempt]:
    settings = {"cores": 4, "as_written_ms": 10.2, **context}
    return {each.fix.kind + "/" + each.fix.variant: each for each in fixes.attempts(looked, Context(**settings))}


@pytest.mark.parametrize(
    ("looked", "expected"),
    [
        (looked_at(), {"worker_threads/4 worker threads", "worker_processes/4 worker processes"}),
        (looked_at(cpu_ms=0.5), {"worker_threads/32 worker threads"}),
        (
            looked_at(4),
            {"longer_queue/queue of 40", "no_workers/no worker pool", "worker_processes/4 worker processes"},
        ),
        (looked_at(4, processes=True), {"worker_threads/4 worker threads", "worker_processes/2 worker processes"}),
    ],
)
def test_workers_are_changed_where_they_may_help(looked: Inspection, expected: set[str]) -> None:
    assert expected <= candidates(looked).keys()


def beside(ms: float | None, looked: Inspection | None = None, typical_wait_ms: float = 33.0) -> Bottleneck:
    """Of steps of 80 ms, which the model alone takes 35 ms of: with what a batch took beside it."""
    times = StepTimes(80.0, 35.0, 33.0, typical_wait_ms, steps=100, beside_model_ms=ms)
    return bottleneck.find(looked or looked_at(), 2, times)


def test_what_a_batch_takes_beside_the_model_explains_the_wait_and_is_told_with_what_it_takes_alone() -> None:
    alone = beside(None)
    assert (alone.certainty, alone.share) == ("probable", 0.125)
    found = beside(60.0)
    assert (found.stage, found.share, found.certainty, found.cause) == (0, 0.75, "certain", "python")
    assert found.text == (
        "__getitem__(Batches), train.py:10, takes 75 % of the time between two batches: it runs Python, one call at a "
        "time. Alone it takes 10.0 ms for a batch, beside the model 60.0 ms: they share the cores, the memory and "
        "Python's lock. The model computes meanwhile: its step waits for 41 % of it."
    )
    assert beside(200.0).share == 1.0
    assert "beside the model 80.0 ms" in beside(200.0).text, "each step takes one batch"


def test_a_batch_that_takes_little_more_beside_the_model_or_is_hidden_but_where_epochs_begin_counts_as_alone() -> None:
    assert beside(12.0) == beside(None)
    assert beside(38.0, typical_wait_ms=1.0) == beside(None, typical_wait_ms=1.0)
    assert beside(60.0, typical_wait_ms=1.0).share == 0.75, "steps that it fills wait for it within epochs too"
    of_tf_data = looked_at().model_copy(update={"api": "tf.data"})
    assert beside(60.0, of_tf_data) == beside(None, of_tf_data)


def test_what_a_batch_takes_beside_the_model_is_its_share_of_the_steps_of_the_same_trial() -> None:
    """Where other work slowed a trial, a step is that of the others: by its mean a batch took all of it."""
    told = Inspection(beside_model_ns=48e6)
    state = diagnose(Machine(looked_at(), lambda edits: 80.0, ceiling_ms=35.0, told_as_written=told), budget_s=60.0)
    assert step_times.of(state).beside_model_ms == pytest.approx(48.0, rel=0.01)

    def slowed(trial: TrialRecord) -> TrialRecord:
        assert trial.steps is not None
        twice = {name: Series.pack(2 * getattr(trial.steps, name).unpack()) for name in ("start_ns", "end_ns")}
        steps = trial.steps.model_copy(update=twice)
        return trial.model_copy(update={"steps": steps, "inspection": Inspection(beside_model_ns=96e6)})

    first, *_ = state.trials_of(AS_WRITTEN)
    trials = tuple(slowed(each) if each is first else each for each in state.trials)
    beside_ms = step_times.of(state.model_copy(update={"trials": trials})).beside_model_ms
    assert beside_ms == pytest.approx(48.0, rel=0.01)


def test_what_a_batch_takes_beside_the_model_changes_neither_what_is_tried_nor_the_limits_but_bounds_ideas() -> None:
    looked = with_function(looked_at(), 0, random=True, costliest="line 7", costliest_share=0.8)

    def ended(told: Inspection | None) -> Diagnosis:
        machine = Machine(looked, lambda edits: 80.0, ceiling_ms=35.0, told_as_written=told)
        return said(diagnose(machine, allow_threads=True))

    plain, timed = ended(None), ended(Inspection(beside_model_ns=60e6))
    assert {each.fix.variant for each in timed.attempts} == {each.fix.variant for each in plain.attempts}
    assert timed.limits == plain.limits
    assert timed.inspection == plain.inspection
    assert timed.bottleneck is not None
    assert "beside the model 60.0 ms" in timed.bottleneck.text
    assert any("a step would be at most 2.29× as fast" in each for each in timed.beyond), timed.beyond


def test_a_pipeline_of_tf_data_has_no_workers_and_a_py_dataset_no_prefetch() -> None:
    kinds = {name.partition("/")[0] for name in candidates(looked_at())}
    assert kinds == {"worker_threads", "worker_processes", "keep_batches"}
    of_tf_data = looked_at().model_copy(update={"api": "tf.data"})
    assert not kinds & {name.partition("/")[0] for name in candidates(of_tf_data)}


def test_threads_run_a_method_of_the_users_beside_itself_only_where_that_is_allowed() -> None:
    refused = candidates(looked_at())
    assert "--allow-threads tries it" in refused["worker_threads/4 worker threads"].reason
    assert refused["worker_processes/4 worker processes"].outcome == "pending"
    allowed = candidates(looked_at(), allow_threads=True)
    assert allowed["worker_threads/4 worker threads"].outcome == "pending"
    already = candidates(looked_at(2))
    assert already["worker_threads/4 worker threads"].outcome == "pending", "they run it on two threads as it is"


@pytest.mark.parametrize(
    ("workers", "processes", "said"),
    [(1, False, "one call at a time"), (4, False, "on several threads"), (4, True, "in several processes")],
)
def test_the_workers_are_said_to_run_it_as_many_do(workers: int, processes: bool, said: str) -> None:
    assert find(looked_at(workers, processes), 4, 10.2).text.endswith(f"it runs Python, {said}.")


def test_only_a_pool_runs_beside_the_copy() -> None:
    assert len(segments.of(looked_at(), 4).groups) == 1
    assert segments.of(looked_at(4), 4).groups == ((3, 2), (1,), (0,))


WITHOUT_IMPORT = "class Batches:\n    def __getitem__(self, index):\n        return 1\n"


KEPT = "keep_batches/keep what __getitem__(Batches) gives"


def kept(looked: Inspection, **context: Any) -> Attempt:
    return candidates(looked, **context)[KEPT]


def test_batches_are_kept_where_they_are_the_same_in_every_epoch_and_memory_has_room() -> None:
    found = kept(looked_at(4))
    assert found.outcome == "pending"
    assert "takes about 97.7 KiB in memory" in found.fix.because
    too_many = kept(looked_at(), free_memory_bytes=99_000.0)
    assert too_many.outcome == "not-tried"
    assert too_many.reason == "what is kept would take 97.7 KiB, and memory has room for 96.7 KiB."
    assert KEPT not in candidates(drawing(looked_at()))
    assert KEPT not in candidates(with_stage(looked_at(), 0, epoch_hooks=True))


def drawing(looked: Inspection) -> Inspection:
    """The same PyDataset, but for what it draws."""
    return with_function(looked, 0, random=True)


def test_processes_that_would_draw_what_the_others_draw_are_not_tried() -> None:
    found = candidates(drawing(looked_at()))["worker_processes/4 worker processes"]
    assert found.outcome == "not-tried"
    assert "each may draw what the others draw, in every epoch" in found.reason
    assert candidates(drawing(looked_at()), allow_threads=True)["worker_threads/4 worker threads"].outcome == "pending"
    already = candidates(drawing(looked_at(4, processes=True)))
    assert already["worker_processes/2 worker processes"].outcome == "pending", "they do as it is written"


@pytest.mark.parametrize(
    ("looked", "is_told"),
    [
        (drawing(looked_at()), True),
        (drawing(looked_at(4)), True),
        (drawing(looked_at(cpu_ms=0.5)), False),
        (drawing(looked_at(4, processes=True)), False),
        (looked_at(), False),
    ],
)
def test_where_it_computes_and_draws_it_is_said_how_processes_can_be_tried(looked: Inspection, is_told: bool) -> None:
    def told(given: Inspection) -> list[str]:
        return [
            each for each in idea_bounds.ideas(given, 4, 10.2, 2.0, 1.0) if "default_rng((self.epoch, index))" in each
        ]

    assert len(told(looked)) == is_told
    library = tuple(each.model_copy(update={"place": looked.stages[1].place}) for each in looked.stages)
    assert not told(looked.model_copy(update={"stages": library})), "nobody edits a library's method"


def test_batches_that_nobody_would_ask_for_again_are_not_kept() -> None:
    once = ScriptTraining(line="train.py:9", epochs=1)
    found = kept(looked_at().model_copy(update={"training": once}))
    assert found.outcome == "not-tried"
    assert "passes over its data once" in found.reason


def test_batches_that_processes_make_are_kept_in_one_process() -> None:
    looked = looked_at(4, processes=True)
    found = kept(looked)
    assert found.outcome == "pending"
    assert found.fix.because.endswith("; the first epoch may take up to 4 times as long")
    assert found.fix.title == (
        "Keep the batches that Batches's __getitem__ makes, in one process in place of the workers, so that only the "
        "first epoch makes them"
    )
    method = "    def __getitem__(self, index):\n        return load(index)\n"
    head = f"import functools\n\n\nclass Batches(PyDataset):\n{method}\n\n"
    source = f"{head}train = Batches(workers=4, use_multiprocessing=True)\n"
    places = {
        0: Location(file=FILE, line=5),
        1: Location(file=FILE, line=9, end_line=9, column=8, end_column=52),
    }
    stages = tuple(each.model_copy(update={"place": places.get(each.id)}) for each in looked.stages)
    code = patch.change({FILE: source}, looked.model_copy(update={"stages": stages}), found.fix)
    assert code.diff is not None, code.text
    decorated = head.replace(method, f"    @functools.lru_cache(maxsize=None)\n{method}")
    assert patched(source, code.diff) == f"{decorated}train = Batches(workers=1, use_multiprocessing=False)\n"


@pytest.mark.parametrize(("epochs", "is_proposed"), [(2, False), (20, True)])
def test_a_first_epoch_without_the_processes_counts_for_what_keeps_their_batches(
    epochs: int, is_proposed: bool
) -> None:
    """A batch takes 2.7 ms by four processes, 10.5 ms by one, and 1 ms where it is kept."""
    training = ScriptTraining(line="train.py:9", model=True, epochs=epochs)
    looked = looked_at(4, processes=True).model_copy(update={"training": training})

    def step_ms(edits: tuple[Edit, ...]) -> float:
        if any(isinstance(edit, KeepBatches) for edit in edits):
            return 1.0
        return 10.5 if SetArgument(stage=1, argument="workers", value=1) in edits else 2.7

    found = said(diagnose(Machine(looked, step_ms, ceiling_ms=0.8)))
    assert ((found.proposal or "").startswith("keep what")) == is_proposed


def keeping_itself() -> Inspection:
    """A PyDataset whose class keeps what it makes: from the second epoch on a batch takes next to nothing."""
    looked = looked_at()
    first, *others = looked.costs
    kept_ms = cost(0, 0.01).model_copy(update={"first_epoch_ns": first.elapsed_ns, "first_epoch_cpu_ns": first.cpu_ns})
    return looked.model_copy(update={"costs": (kept_ms, *others)})


def test_what_a_class_keeps_itself_is_not_kept_once_more() -> None:
    later = kept(keeping_itself(), as_written_ms=0.4)
    assert later.outcome == "not-tried"
    assert later.reason.endswith("which read what the first one kept: only the first epoch can gain.")


def test_the_first_epoch_of_a_class_that_keeps_what_it_makes_is_told_as_such() -> None:
    found = find(keeping_itself().of_first_epoch(), 4, 10.2)
    assert found.text.endswith(
        " This is the first epoch, in which __getitem__(Batches), train.py:10 keeps what it makes: it takes less in "
        "later ones."
    )


@pytest.mark.parametrize(
    ("looked", "as_written_ms", "said"),
    [
        (keeping_itself(), 0.4, "The first epoch makes what the class keeps and takes about 10.2 ms per"),
        (
            keeping_itself().of_first_epoch().model_copy(update={"training": ScriptTraining(line="a.py:9", epochs=1)}),
            10.2,
            " The fit passes over its data once: what the class keeps is never asked for.",
        ),
    ],
)
def test_of_a_class_that_keeps_what_it_makes_no_cache_is_told(
    looked: Inspection, as_written_ms: float, said: str
) -> None:
    text = find(looked, 4, as_written_ms).text
    assert said in text
    assert "cache" not in text


def test_what_is_gained_with_a_class_that_keeps_what_it_makes_is_of_the_first_epoch_and_of_no_cache() -> None:
    training = ScriptTraining(line="train.py:9", model=True, epochs=5)
    looked = keeping_itself().of_first_epoch().model_copy(update={"training": training})
    machine = Machine(looked, lambda edits: 5.0 if edits else 10.2, ceiling_ms=2.0)
    found = said(diagnose(machine, allow_threads=True))
    assert ", in the first epoch." in found.text
    assert "cache" not in found.text


def warm(looked: Inspection) -> dict[str, set[bool]]:
    """Of each variant, whether its trials first make a pass."""
    ran = Machine(looked, lambda _: 0.4, ceiling_ms=0.2)
    diagnose(ran, budget_s=60.0, allow_threads=True)
    found = defaultdict[str, set[bool]](set)
    for trial in ran.ran:
        found[trial.variant.name].add(Task.model_validate(trial.variant.source.options).warm)
    return found


def test_trials_first_make_what_a_class_keeps_but_for_processes_that_lose_it() -> None:
    found = warm(keeping_itself())
    in_threads, in_processes = (
        set().union(*(each for name, each in found.items() if what in name)) for what in ("threads", "processes")
    )
    assert (found[AS_WRITTEN], in_threads, in_processes) == ({True}, {True}, {False})
    assert found[CEILING] == {False}
    assert set().union(*warm(keeping_itself().of_first_epoch()).values()) == {False}


def handing_over() -> Inspection:
    """Four processes make a batch in 0.2 ms, and handing it over takes 60 ms."""
    looked = looked_at(4, processes=True)
    costs = (cost(0, 0.2), cost(1, 0.0), cost(2, 60.0, 0.0), cost(3, 0.1))
    return looked.model_copy(update={"costs": costs})


def test_handing_over_what_processes_make_is_told_and_saved_by_threads_and_by_no_pool() -> None:
    found = find(handing_over(), 4, 61.0)
    assert (found.stage, found.cause, found.certainty) == (2, "handing-over", "certain")
    assert "it hands the workers' batches over, one at a time, from their processes as bytes." in found.text
    offered = candidates(handing_over(), as_written_ms=61.0, allow_threads=True)
    for name in ("worker_threads/4 worker threads", "no_workers/no worker pool"):
        assert offered[name].outcome == "pending"
    of_batches = kept(handing_over(), as_written_ms=61.0)
    assert of_batches.outcome == "pending"


def test_a_generator_that_keras_2_has_threads_for_is_said_to_run_on_several() -> None:
    given: Any = {"workers": 4, "use_multiprocessing": False, "max_queue_size": 10}
    stages = (stage(0, "generator", of=function("batches", python=True), **given), stage(3, "copy", 0))
    looked = inspection(stages, (cost(0, 10.0), cost(3, 0.1))).model_copy(update={"api": "generator"})
    assert "it runs Python, on several threads." in find(looked, 4, 10.2).text
    assert segments.of(looked, 4).groups == ((3,), (0,))


def test_batches_are_not_kept_by_processes_that_end_with_the_epoch() -> None:
    offered = candidates(looked_at(), allow_threads=True)
    keeping = next(each.fix for each in offered.values() if each.fix.kind == "keep_batches")
    together = {
        each.fix.kind: next_trial.compatible(keeping, each.fix, looked_at())
        for each in offered.values()
        if each.fix.kind != "keep_batches"
    }
    assert together == {"worker_threads": True, "worker_processes": False}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            """\
# of the flowers
from __future__ import annotations

import keras

class Batches(keras.utils.PyDataset):
    # makes one
    @traced
    def __getitem__(self, index):
        return load(index)
""",
            {
                "import keras": "import functools\nimport keras",
                "    @traced": "    @functools.lru_cache(maxsize=None)\n    @traced",
            },
        ),
        (
            """\
import keras
import functools


class Batches(keras.utils.PyDataset):

    def __getitem__(self, index):
        return load(index)
""",
            {"    def __getitem__": "    @functools.lru_cache(maxsize=None)\n    def __getitem__"},
        ),
        (
            f"from functools import partial\n{WITHOUT_IMPORT}",
            {
                "from functools": "import functools\nfrom functools",
                "    def __getitem__": "    @functools.lru_cache(maxsize=None)\n    def __getitem__",
            },
        ),
        (
            f"import os, functools\n{WITHOUT_IMPORT}",
            {"    def __getitem__": "    @functools.lru_cache(maxsize=None)\n    def __getitem__"},
        ),
        (f"import keras\n\nfunctools = 3\n\n{WITHOUT_IMPORT}", None),
        (f"import other as functools\n\n{WITHOUT_IMPORT}", None),
        (f"{WITHOUT_IMPORT}\nimport functools\n", None),
        (
            f"import keras\n\n{WITHOUT_IMPORT}\nimport functools\n",
            {
                "import keras": "import functools\nimport keras",
                "    def __getitem__": "    @functools.lru_cache(maxsize=None)\n    def __getitem__",
            },
        ),
        (WITHOUT_IMPORT, None),
    ],
)
def test_the_method_that_keeps_batches_is_decorated(source: str, expected: dict[str, str] | None) -> None:
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "@" in text or "def" in text)
    looked = with_stage(looked_at(), 0, place=Location(file=FILE, line=line))
    code = patch.change({FILE: source}, looked, fix_of(KeepBatches(stage=0, workers=1)))
    if expected is None:
        assert code.diff is None
        assert code.text.startswith(
            "Write `@functools.lru_cache(maxsize=None)` above `__getitem__(Batches)` (train.py:"
        )
        return
    assert code.diff is not None, code.text
    wanted = source
    for old, new in expected.items():
        wanted = wanted.replace(old, new, 1)
    assert patched(source, code.diff) == wanted


def placed(looked: Inspection, place: Location | None, *ids: int) -> Inspection:
    """The inspection with the place of these stages, and none of the others."""
    stages = tuple(each.model_copy(update={"place": place if each.id in ids else None}) for each in looked.stages)
    return looked.model_copy(update={"stages": stages})


def changed(source: str, call: str, ids: tuple[int, ...], *edits: Edit, looked: Inspection | None = None) -> CodeChange:
    """The change where the first such call of the source makes these stages."""
    before, found, _ = source.partition(call)
    assert found
    line, column = 1 + before.count("\n"), len(before) - before.rfind("\n") - 1
    place = Location(file=FILE, line=line, end_line=line, column=column, end_column=column + len(call))
    return patch.change({FILE: source}, placed(looked or looked_at(), place, *ids), fix_of(*edits))


FOUR = SetArgument(stage=1, argument="workers", value=4)
FOUR_PROCESSES = (FOUR, SetArgument(stage=1, argument="use_multiprocessing", value=True))


@pytest.mark.parametrize(
    ("made", "named"),
    [("gen = Batches(d)", "Batches"), ("gen = library.of.Batches(d)", "library.of.Batches"), ("gen = flow(d)", None)],
)
def test_the_method_of_a_librarys_class_is_decorated_before_the_call_of_it(made: str, named: str | None) -> None:
    source = f"import library\nif True:\n    {made}\n"
    code = changed(source, made.removeprefix("gen = "), (0, 1), KeepBatches(stage=0, workers=1))
    if named is None:
        assert code.diff is None
        assert "`Class.__getitem__ = functools.lru_cache(maxsize=None)(Class.__getitem__)` before the call" in code.text
        return
    assert code.diff is not None, code.text
    kept = f"    {named}.__getitem__ = functools.lru_cache(maxsize=None)({named}.__getitem__)\n"
    assert patched(source, code.diff) == f"import functools\nimport library\nif True:\n{kept}    {made}\n"


SOURCE = """\
class Batches(PyDataset):
    def __init__(self, count, **kwargs):
        super().__init__()


train = Batches(3200)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Batches(3200)", "Batches(3200, workers=4, use_multiprocessing=True)"),
        ("super().__init__()", "super().__init__(workers=4, use_multiprocessing=True)"),
    ],
)
def test_the_arguments_are_written_where_the_workers_are_set(before: str, after: str) -> None:
    code = changed(SOURCE, before, (1,), *FOUR_PROCESSES)
    assert code.diff is not None, code.text
    assert patched(SOURCE, code.diff) == SOURCE.replace(before, after)


def test_workers_that_are_given_by_their_place_are_not_given_again() -> None:
    source = "class Batches(PyDataset):\n    def __init__(self):\n        super().__init__(2, False)\n"
    code = changed(source, "super().__init__(2, False)", (1,), FOUR, looked=looked_at(2))
    assert code.diff is not None, code.text
    assert "super().__init__(4, False)" in patched(source, code.diff)


def test_where_nothing_is_known_of_the_call_the_words_name_the_py_dataset() -> None:
    found = placed(looked_at(), None)
    edit = SetArgument(stage=1, argument="workers", value=8)
    code = patch.change({}, found, fix_of(edit))
    assert code.text == (
        "Give the PyDataset the argument `workers=8`, or that attribute where its class takes no such argument; in "
        "Keras 2, `fit` takes it (no diff: where its call stands is not known)."
    )


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("train = flow(d)", "    train.workers = 4\n    train.use_multiprocessing = True\n"),
        ("self.train = flow(d)", "    self.train.workers = 4\n    self.train.use_multiprocessing = True\n"),
        ("trains[0] = flow(d)", None),
        ("fit(flow(d))", None),
        ("a, b = flow(d), 1", None),
        ("train = flow(d); go()", None),
    ],
)
def test_what_a_library_makes_is_given_its_workers_after_its_call(made: str, expected: str | None) -> None:
    source = f"if True:\n    {made}  # all of it\n"
    code = changed(source, "flow(d)", (0, 1), *FOUR_PROCESSES)
    if expected is None:
        assert code.diff is None
        assert "workers=4" in code.text
        return
    assert code.diff is not None, code.text
    assert patched(source, code.diff) == f"{source}{expected}"


def test_what_is_made_without_keras_init_is_given_its_workers_after_its_call() -> None:
    source, looked = "train = Batches(9)\nfit(train)\n", with_stage(looked_at(), 1, by_attributes=True)
    code = changed(source, "Batches(9)", (1,), FOUR, looked=looked)
    assert code.diff is not None, code.text
    assert patched(source, code.diff) == "train = Batches(9)\ntrain.workers = 4\nfit(train)\n"


@pytest.mark.parametrize(
    ("method", "given", "expected"),
    [
        ("fit_generator", "train", "train, workers=4"),
        ("fit", "train, workers=1, epochs=2", "train, workers=4, epochs=2"),
    ],
)
def test_in_keras_2_what_a_library_makes_is_given_its_workers_in_the_call_that_takes_it(
    method: str, given: str, expected: str
) -> None:
    source = f"history = model.{method}({given})\n"
    code = changed(source, f"model.{method}({given})", (0, 1), FOUR)
    assert code.diff is not None, code.text
    assert patched(source, code.diff) == f"history = model.{method}({expected})\n"


@pytest.mark.parametrize(("call", "alike"), [("Batches(3200)", ("train.py:7",)), ("super().__init__()", ())])
def test_a_py_dataset_that_is_made_alike_elsewhere_is_named(call: str, alike: tuple[str, ...]) -> None:
    source = f"{SOURCE}fit(Batches(3200))\nfit(Batches(9))\n"
    source += "class Other(PyDataset):\n    def __init__(self):\n        super().__init__()\n"
    code = changed(source, call, (1,), FOUR)
    assert code.diff
    assert code.alike == alike
