"""A call in the user's Python moved into a function that keeps its results: what is offered, and the diff."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from pipeline_bench.diagnosis import attempt_statistics, fixes, idea_bounds, next_trial
from pipeline_bench.diagnosis.fixes import Context, cache_size
from pipeline_bench.diagnosis.patching import patch
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.model.diagnosis import Attempt, CodeChange, Diagnosis
from pipeline_bench.model.edits import SetArgument
from pipeline_bench.model.function_edits import Memoize
from pipeline_bench.model.pipeline import Inspection, Location, ScriptTraining, Target
from tests.unit.diagnosis.recorded import FILE, fix_of, patched
from tests.unit.diagnosis.simulated import (
    Machine,
    cost,
    diagnose,
    function,
    inspection,
    said,
    stage,
    with_function,
    with_stage,
)
from tests.unit.diagnosis.test_workers import looked_at

HEAD = '''\
"""Of pictures."""

import os

SIZE = 4
made = []


def load(path, size=SIZE):
    made.append(path)
    return Array([path, size])


class Array(list):
    copy = lambda self: Array(self)


'''


def call_in(source: str, text: str, *arguments: str, gives: Any = "array") -> MemoizableCall:
    """Return the call that a text makes, where it stands first in a source."""
    found = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call) and ast.unparse(each) == text]
    first = min(found, key=lambda each: each.lineno)
    return MemoizableCall(
        file=FILE,
        line=first.lineno,
        column=first.col_offset,
        end_line=first.end_lineno or 0,
        end_column=first.end_col_offset or 0,
        text=text,
        arguments=arguments,
        share=0.8,
        batch_bytes=2**20,
        gives=gives,
    )


def of_generator(call: MemoizableCall, **changed: Any) -> Inspection:
    made = function("batches", python=True).model_copy(update={"memoizable": call})
    stages = (stage(0, "generator", of=made), stage(3, "copy", 0))
    looked = inspection(stages, (cost(0, 10.0, 10.0), cost(3, 0.1, 0.1)))
    return looked.model_copy(update={"api": "generator", "pass_elements": 100, **changed})


def of_tf_data(call: MemoizableCall, **changed: Any) -> Inspection:
    made = function("samples", python=True).model_copy(update={"memoizable": call})
    stages = (stage(0, "from_generator", of=made), stage(3, "batch", 0, batch_size=4))
    looked = inspection(stages, (cost(0, 10.0, 10.0), cost(3, 0.1, 0.1)))
    return looked.model_copy(update={"pass_elements": 100, **changed})


def of_py_dataset(call: MemoizableCall, **workers: Any) -> Inspection:
    made = function("Batches", python=True, random=True).model_copy(update={"memoizable": call})
    return with_stage(looked_at(**workers), 0, function=made).model_copy(update={"pass_elements": 100})


def attempts(looked: Inspection, **context: Any) -> list[Attempt]:
    return list(fixes.attempts(looked, Context(**{"cores": 4, "as_written_ms": 10.2, **context})))


def offered(looked: Inspection, **context: Any) -> Attempt:
    return next(each for each in attempts(looked, **context) if each.fix.kind == "memoize")


CALL = call_in(HEAD + "x = load(1)\n", "load(1)", "number")
MASK = call_in(HEAD + "x = load(2)\n", "load(2)", "number").model_copy(update={"share": 0.15, "batch_bytes": 2**19})


@pytest.mark.parametrize("of", [of_generator, of_py_dataset, of_tf_data])
def test_it_is_offered_with_the_memory_that_it_takes(of: Any) -> None:
    found = offered(of(CALL))
    assert found.outcome == "pending"
    assert found.fix.title == "Keep what `load(1)` gives, so that only the first epoch calls it"
    assert "takes about 100 MiB in memory" in found.fix.because
    assert found.fix.keeps
    too_many = offered(of(CALL), free_memory_bytes=99e6)
    assert too_many.outcome == "not-tried"
    assert too_many.reason == "what is kept would take 100 MiB, and memory has room for 94.4 MiB."


def test_of_64_bit_floats_that_smaller_ones_hold_it_is_said_what_these_would_take() -> None:
    """Of volumes of whole numbers, which `get_fdata` of nibabel gives as 64-bit floats."""
    found = offered(of_generator(CALL.model_copy(update={"singles": True})), free_memory_bytes=99e6)
    assert found.reason.startswith("what is kept would take 100 MiB, and memory has room for 94.4 MiB; 32-bit floats, ")
    assert " would take 50.0 MiB (" in found.reason


def test_of_arguments_that_are_drawn_the_memory_grows() -> None:
    found = offered(of_py_dataset(CALL.model_copy(update={"drawn": True})))
    assert found.fix.because == (
        "takes about 100 MiB in memory, and may take more with each epoch, as its arguments are drawn anew; "
        "right only if it gives the same in each epoch"
    )


@pytest.mark.parametrize(
    ("drawn", "more"),
    [
        ([None], ", and may take more with each epoch: whether its arguments are drawn anew is not known"),
        ([False, None], ", and may take more with each epoch: whether some arguments are drawn anew is not known"),
        ([True, None], ", and may take more with each epoch, as some arguments are drawn anew"),
        ([True, True], ", and may take more with each epoch, as all arguments are drawn anew"),
        ([False, False], ""),
    ],
)
def test_of_several_calls_it_is_said_whether_some_or_all_arguments_are_drawn(
    drawn: list[bool | None], more: str
) -> None:
    calls = [CALL.model_copy(update={"drawn": each}) for each in drawn]
    because = cache_size.price_of_results(calls, 1.0)
    assert because.rpartition("; right only if ")[0].endswith(f"memory{more}")


def of_two_calls() -> Inspection:
    """A PyDataset of pictures and masks."""
    return with_function(of_py_dataset(CALL), 0, also_memoizable=(MASK,))


def test_several_calls_are_kept_together() -> None:
    found = offered(of_two_calls())
    assert [edit.call for edit in found.fix.edits if isinstance(edit, Memoize)] == [CALL, MASK]
    assert found.fix.variant == "keep what load(1) gives, and 1 more"
    assert found.fix.title == (
        "Keep what `load(1)` gives and what `load(2)` gives, so that only the first epoch makes them"
    )
    assert found.fix.because == "takes about 150 MiB in memory; right only if each gives the same in each epoch"
    assert cache_size.priced(found.fix, of_two_calls(), 10).because.startswith("takes about 15.0 MiB in memory")


@pytest.mark.parametrize(("free_mib", "kept"), [(151, [CALL, MASK]), (149, [CALL]), (99, [MASK])])
def test_of_several_calls_those_are_kept_that_memory_has_room_for(free_mib: int, kept: list[MemoizableCall]) -> None:
    found = offered(of_two_calls(), free_memory_bytes=free_mib * 2.0**20)
    assert found.outcome == "pending"
    assert [edit.call for edit in found.fix.edits if isinstance(edit, Memoize)] == kept


def test_of_several_calls_of_which_memory_has_room_for_none_the_smallest_is_told() -> None:
    found = offered(of_two_calls(), free_memory_bytes=49 * 2.0**20)
    assert found.reason == "what is kept would take 50.0 MiB, and memory has room for 49.0 MiB."


def test_calls_of_which_each_takes_little_are_tried_for_what_they_take_together() -> None:
    two = (CALL.model_copy(update={"share": 0.025}), MASK.model_copy(update={"share": 0.025}))
    both = with_function(of_generator(two[0]), 0, also_memoizable=two[1:])
    alone, together = offered(of_generator(two[0])), offered(both)
    assert (alone.outcome, together.outcome) == ("not-tried", "pending")


def test_where_batches_are_the_same_in_each_epoch_calls_are_kept_only_if_the_batches_are_too_many() -> None:
    looked = with_function(of_py_dataset(CALL.model_copy(update={"batch_bytes": 100.0})), 0, random=False)
    assert not any(each.fix.kind == "memoize" for each in attempts(looked))
    found = offered(looked, free_memory_bytes=99_000.0)  # of 100 batches of 1,000 bytes
    assert found.outcome == "pending"


def with_costly_line(looked: Inspection, **changed: Any) -> Inspection:
    return with_stage(with_function(looked, 0, costliest="line 7", costliest_share=0.8), 0, **changed)


def ideas_of(looked: Inspection, **context: Any) -> list[str]:
    texts = idea_bounds.ideas(looked, 4, 10.2, None, 1.0, attempts=attempts(looked, **context))
    return [each for each in texts if "spends 80 % of its time in line 7. If that does the same in every" in each]


@pytest.mark.parametrize(
    ("looked", "why"),
    [
        (with_costly_line(of_py_dataset(CALL)), "draws random numbers, so its batches cannot be kept, and "),
        (with_costly_line(of_generator(CALL)), ""),
    ],
)
def test_what_a_costly_line_gives_is_to_be_kept_by_hand_only_where_no_trial_keeps_it(
    looked: Inspection, why: str
) -> None:
    assert ideas_of(looked) == []
    (text,) = ideas_of(looked, free_memory_bytes=99e6)
    assert f", train.py:10, {why}spends 80 %" in text


def test_what_a_costly_line_gives_is_to_be_kept_by_hand_where_a_class_shuffles_between_epochs() -> None:
    looked = with_costly_line(looked_at())
    assert ideas_of(looked) == []
    (text,) = ideas_of(with_costly_line(looked_at(), epoch_hooks=True))
    assert "may give other batches in each epoch, as its class does something between them, and spends" in text
    assert "in memory or in files; else, as where it changes pictures at random, make it cheaper." in text
    (text,) = ideas_of(looked, free_memory_bytes=99_000.0)
    assert "train.py:10, spends 80 %" in text


@pytest.mark.parametrize(("runs", "run_ms", "told"), [(128.0, 0.03, True), (8.0, 5.0, False), (2.0, 0.03, False)])
def test_a_short_line_that_runs_often_for_a_batch_may_take_all_of_its_rows_at_once(
    runs: float, run_ms: float, told: bool
) -> None:
    looked = with_costly_line(with_function(of_generator(CALL), 0, costliest_runs=runs, costliest_run_ns=run_ms * 1e6))
    (text,) = idea_bounds.ideas(looked, 4, 10.2, None, 1.0)
    first = "It runs 128 times a batch: if it takes rows of an array" if told else "If that does the same in every"
    assert f"spends 80 % of its time in line 7. {first}" in text
    assert "; else, as where it changes pictures at random, make it cheaper." in text, "whether it draws is not known"


def test_ops_of_tensorflow_that_python_runs_one_by_one_belong_in_a_map() -> None:
    def told(**known: Any) -> list[str]:
        texts = idea_bounds.ideas(with_function(of_generator(CALL), 0, **known), 4, 10.2, None, 1.0)
        return [each for each in texts if "ops of TensorFlow's one by one" in each]

    (text,) = told(eager_ops=65.0, eager_share=0.62)
    assert (
        "spends 62 % of its time in lines that run ops of TensorFlow's one by one, 65 for a batch. Call these" in text
    )
    assert "If that took no time" in text
    assert told() == told(eager_ops=65.0, eager_share=0.1) == told(eager_ops=2.0, eager_share=0.62) == []


@pytest.mark.parametrize("method", ["map", "from_generator"])
def test_ops_that_python_runs_one_by_one_are_told_of_once(method: str) -> None:
    def told(**known: Any) -> list[str]:
        of = function("load", python=True).model_copy(update=known)
        slow = stage(0, method, of=of, num_parallel_calls=-1) if method == "map" else stage(0, method, of=of)
        return list(idea_bounds.ideas(inspection((slow,), (cost(0, 10.0),)), 4, 10.2, None, 1.0))

    (text,) = told()
    assert "one by one" not in text
    (text,) = told(eager_ops=65.0, eager_share=0.5)
    assert "with num_parallel_calls" in text


def test_a_stage_that_took_longer_alone_than_all_did_still_saves_its_share_at_most() -> None:
    known = with_function(of_generator(CALL), 0, costliest="line 7", costliest_share=0.5)
    slower = known.model_copy(update={"costs": (cost(0, 40.0), *known.costs[1:])})
    (text,) = idea_bounds.ideas(slower, 4, 10.0, None, 1.0)
    assert "at most 2.00× as fast" in text


def test_a_class_that_keeps_what_it_makes_is_not_told_to_keep_it() -> None:
    looked = with_costly_line(looked_at())
    (first, *others) = looked.costs
    kept = first.model_copy(update={"first_epoch_ns": first.elapsed_ns, "first_epoch_cpu_ns": first.cpu_ns})
    assert ideas_of(looked.model_copy(update={"costs": (kept, *others), "cold": True})) == []


def test_a_diagnosis_says_what_to_keep_by_hand_where_it_keeps_nothing() -> None:
    def beyond(call: MemoizableCall | None) -> str:
        looked = with_function(with_costly_line(of_generator(CALL)), 0, memoizable=call)
        found = said(diagnose(Machine(looked, lambda edits: 10.2, ceiling_ms=2.0)))
        return " ".join(found.beyond)

    assert "spends 80 %" in beyond(None)
    assert "spends 80 %" not in beyond(CALL)


def test_of_a_generator_the_fix_that_gained_in_too_few_trials_is_the_most_promising() -> None:
    """That a PyDataset would save the wait was all that the report said."""
    machine = Machine(of_generator(CALL), lambda edits: 12.0 if edits else 20.0, noise=0.2, seed=4, ceiling_ms=9.0)
    found = said(diagnose(machine, budget_s=20.0))
    assert found.proposal is None
    assert "In a PyDataset with workers, " in found.text
    assert "The most promising is keep what load(1) gives" in found.text
    assert "use --budget" in found.text


def test_without_the_length_of_an_epoch_the_memory_is_not_known() -> None:
    found = offered(of_generator(CALL, pass_elements=None), free_memory_bytes=99e6)
    assert "whose size is not known" in found.fix.because


def test_a_trial_that_made_a_whole_pass_knows_the_memory() -> None:
    looked = of_tf_data(CALL, pass_elements=None)
    found = offered(looked)
    assert "takes about 7.00 MiB in memory" in cache_size.priced(found.fix, looked, 7).because


def test_a_combination_with_it_keeps_the_caveats_of_the_other_fix() -> None:
    looked = of_tf_data(CALL, pass_elements=None)
    mapped = stage(4, "map", 0, of=function("f", python=True))
    stages = (looked.stages[0], mapped, looked.stages[1].model_copy(update={"inputs": (4,)}))
    looked = looked.model_copy(update={"stages": stages, "costs": (*looked.costs, cost(4, 10.0, 10.0))})

    def period_ms(edits: Any) -> float:
        parallel = any(isinstance(edit, SetArgument) and edit.stage == 4 for edit in edits)
        return 20.2 - 9.0 * any(isinstance(edit, Memoize) for edit in edits) - 8.0 * parallel

    found = said(diagnose(Machine(looked, period_ms, cached_elements=7), allow_threads=True))
    assert found.proposal == "keep what load(1) gives + parallel map(f)"
    assert found.attempt(found.proposal).fix.because == (
        "takes about 7.00 MiB in memory; right only if it gives the same in each epoch; "
        "its function must be safe to call from several threads"
    )


def test_with_a_cache_it_would_gain_nothing() -> None:
    looked = of_tf_data(CALL)
    found = {each.fix.kind: each.fix for each in attempts(looked)}
    assert not next_trial.compatible(found["memoize"], found["cache"], looked)
    assert next_trial.compatible(found["memoize"], found["out_of_python"], looked)


def test_it_is_tried_as_early_as_what_the_call_takes_is_worth() -> None:
    """Of a call that takes little of making a batch, threads come first."""
    for share, first in ((0.98, "memoize"), (0.2, "worker_threads")):
        looked = of_py_dataset(CALL.model_copy(update={"share": share}))
        found = attempts(looked, allow_threads=True)
        assert next(each.fix.kind for each in found if each.fix.kind in ("memoize", "worker_threads")) == first
    hopeless = offered(of_tf_data(CALL.model_copy(update={"share": 0.01})))
    assert hopeless.reason == "`load(1)` takes 1.0 % of the time: there is almost nothing to gain."


def test_what_no_later_epoch_would_use_is_not_kept() -> None:
    found = offered(of_generator(CALL, training=ScriptTraining(line="train.py:9", epochs=1)))
    assert found.outcome == "not-tried"


def test_what_processes_call_is_kept_in_one_process() -> None:
    found = offered(of_py_dataset(CALL, workers=4, processes=True))
    assert found.outcome == "pending"
    assert found.fix.title == (
        "Keep what `load(1)` gives, in one process in place of the workers, so that only the first epoch calls it"
    )
    keeping, *others = found.fix.edits
    assert isinstance(keeping, Memoize)
    assert others == [
        SetArgument(stage=1, argument="workers", value=1),
        SetArgument(stage=1, argument="use_multiprocessing", value=False),
    ]


def test_it_goes_with_threads_and_not_with_processes() -> None:
    looked = of_py_dataset(CALL)
    found = attempts(looked, allow_threads=True)
    keeping = next(each.fix for each in found if each.fix.kind == "memoize")
    together = {each.fix.kind: next_trial.compatible(keeping, each.fix, looked) for each in found}
    assert together["worker_threads"]
    assert not together["worker_processes"]


def test_it_gains_nothing_in_the_first_epoch() -> None:
    looked = of_generator(CALL)
    keeping = offered(looked)
    asked = Diagnosis(target=Target(file="train.py", name="make"), budget_s=60, inspection=looked)
    assert attempt_statistics._in_all(keeping.fix, asked, {keeping.fix.variant: 4.0}, 2.0) == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("body", "call", "arguments", "gives", "expected"),
    [
        (
            "def batch(path):\n    return load(path)\n",
            "load(path)",
            ("path",),
            "array",
            "@functools.lru_cache(maxsize=None)\ndef kept_load(path):\n    return load(path)\n\n\n"
            "def batch(path):\n    return kept_load(path).copy()\n",
        ),
        (
            "def batch(path):\n    return load(\n        path)\n",
            "load(path)",
            ("path",),
            "opened",
            "@functools.lru_cache(maxsize=None)\ndef kept_load(path):\n    return (load(\n    path)).copy()\n\n\n"
            "def batch(path):\n    return kept_load(path).copy()\n",
        ),
        (
            "class Of:\n    size = 3\n    def load(self, path):\n        return load(path, self.size)\n"
            "    def make(self, path):\n        return self.load(path)\n\n\n"
            "OF = Of()\n\n\ndef batch(path):\n    return OF.make(path)\n",
            "self.load(path)",
            ("self", "path"),
            "array",
            "@functools.lru_cache(maxsize=None)\ndef kept_load(self, path):\n    return self.load(path)\n\n\n"
            "class Of:\n    size = 3\n    def load(self, path):\n        return load(path, self.size)\n"
            "    def make(self, path):\n        return kept_load(self, path).copy()\n\n\n"
            "OF = Of()\n\n\ndef batch(path):\n    return OF.make(path)\n",
        ),
        (
            "# Of one.\n@staticmethod\ndef batch(path):\n    return [load(each, SIZE) for each in (path, path)]\n",
            "load(each, SIZE)",
            ("each",),
            "constant",
            "@functools.lru_cache(maxsize=None)\ndef kept_load(each):\n    return load(each, SIZE)\n\n\n"
            "# Of one.\n@staticmethod\ndef batch(path):\n    return [kept_load(each) for each in (path, path)]\n",
        ),
        (
            "class Of:\n    sizes = [3]\n    def make(self, path):\n        def inner(i):\n"
            "            return (load(os.path.join(path, 'a'),\n                    size=self.sizes[i]))  # here\n"
            "        return inner(0)\n\n\ndef batch(path):\n    return Of().make(path)\n",
            "load(os.path.join(path, 'a'), size=self.sizes[i])",
            ("path", "self.sizes[i]"),
            "other",
            "@functools.lru_cache(maxsize=None)\ndef kept_load(path, item):\n"
            "    return (load(os.path.join(path, 'a'),\n        size=item))\n\n\n"
            "class Of:\n    sizes = [3]\n    def make(self, path):\n        def inner(i):\n"
            "            return (copy.deepcopy(kept_load(path, self.sizes[i])))  # here\n"
            "        return inner(0)\n\n\ndef batch(path):\n    return Of().make(path)\n",
        ),
        (
            "def batch(path):\n    class tensor:\n        numpy = lambda: path\n"
            "    return load(tensor.numpy())\n",
            "load(tensor.numpy())",
            ("tensor.numpy()",),
            "array",
            "@functools.lru_cache(maxsize=None)\ndef kept_load(tensor):\n    return load(tensor)\n\n\n"
            "def batch(path):\n    class tensor:\n        numpy = lambda: path\n"
            "    return kept_load(tensor.numpy()).copy()\n",
        ),
        (
            "class Of:\n    width, size = 2, 3\n    def make(self, path):\n"
            '        return load(f"{path}", (self.size, self.width))\n\n\n'
            "def batch(path):\n    return Of().make(path)\n",
            "load(f'{path}', (self.size, self.width))",
            ("f'{path}'", "self.size", "self.width"),
            "array",
            "@functools.lru_cache(maxsize=None)\ndef kept_load(item, size, width):\n"
            "    return load(item, (size, width))\n\n\n"
            "class Of:\n    width, size = 2, 3\n    def make(self, path):\n"
            '        return kept_load(f\'{path}\', self.size, self.width).copy()\n\n\n'
            "def batch(path):\n    return Of().make(path)\n",
        ),
    ],
)  # fmt: skip
def test_the_diff_makes_the_call_once_and_gives_the_same(
    body: str, call: str, arguments: tuple[str, ...], gives: Any, expected: str
) -> None:
    source = HEAD + body
    made = call_in(source, call, *arguments, gives=gives)
    imports = "import functools\n" if gives != "other" else "import functools\nimport copy\n"
    wanted = HEAD.replace("import os\n", f"{imports}import os\n") + expected
    assert rewritten(source, made) == wanted
    before, after = run(source), run(wanted)
    assert before["batch"]("a") == after["batch"]("a") == after["batch"]("a")
    after["batch"]("a").append(1)
    assert before["batch"]("a") == after["batch"]("a")
    assert len(after["made"]) == 1


def changed(source: str, *calls: MemoizableCall) -> CodeChange:
    edits = (Memoize(stage=0, call=call) for call in calls)
    return patch.change({FILE: source}, of_generator(calls[0]), fix_of(*edits))


def rewritten(source: str, *calls: MemoizableCall) -> str:
    code = changed(source, *calls)
    assert code.diff is not None, code.text
    return patched(source, code.diff)


def run(source: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(compile(source, FILE, "exec"), space)
    return space


def check_kept(source: str, after: str, argument: str, times: int) -> None:
    """Both must give the same, and `after` must load so often in two epochs."""
    before, kept = run(source), run(after)
    assert before["batch"](argument) == kept["batch"](argument) == kept["batch"](argument)
    assert len(kept["made"]) == times


NONE = """\
def read(path, size=None):
    return None if path == "b" else load(path, SIZE if size is None else size)


def batch(paths):
    found = []
    for path in paths:
        x = read(path)
        if x is None:
            continue
        found.append(x)
    return found
"""


@pytest.mark.parametrize("gives", ["array", "opened"])
def test_where_a_file_asks_for_none_what_may_be_none_is_copied(gives: Any) -> None:
    """`cv2.imread` gives None of a file that it cannot read, and none of those looked at need be one."""
    source = HEAD + NONE
    made = call_in(source, "read(path)", "path", gives=gives)
    after = rewritten(source, made)
    within = {"array": "read(path)", "opened": "copy.deepcopy(read(path))"}[gives]
    assert f"def kept_read(path):\n    return {within}\n" in after
    assert "        x = copy.deepcopy(kept_read(path))\n" in after
    check_kept(source, after, "abc", times=2)
    without = source.replace("        if x is None:\n            continue\n", "")
    after = rewritten(without, call_in(without, "read(path)", "path", gives=gives))
    assert "        x = kept_read(path).copy()\n" in after, "a parameter that is not given"


def test_several_calls_become_functions_of_their_own() -> None:
    source = HEAD + "def batch(path):\n    return load(path) + load(path, 3)\n"
    calls = [call_in(source, text, "path") for text in ("load(path)", "load(path, 3)")]
    after = rewritten(source, *calls)
    assert after == HEAD.replace("import os\n", "import functools\nimport os\n") + (
        "@functools.lru_cache(maxsize=None)\ndef kept_load(path):\n    return load(path)\n\n\n"
        "@functools.lru_cache(maxsize=None)\ndef kept_load_2(path):\n    return load(path, 3)\n\n\n"
        "def batch(path):\n    return kept_load(path).copy() + kept_load_2(path).copy()\n"
    )
    check_kept(source, after, "a", times=2)


RUN = """\
def batch(path):
    size = SIZE
    if path:
        # The picture.
        x = load(path, size)  # as it lies there
        x = resized(x,
                    size)
        # Its half.
        x = (x[:1] if size
             else x)  # cut
        x = Array(x + [1])
    return x


def resized(x, size):
    return Array([*x, size])
"""


def test_assignments_in_a_row_become_a_function_of_their_own() -> None:
    source = HEAD + RUN
    first = source.splitlines().index("        x = load(path, size)  # as it lies there") + 1
    made = MemoizableCall(
        file=FILE,
        line=first,
        column=8,
        end_line=first + 5,
        end_column=20,
        text="x = load(path, size); …",
        variable="x",
        arguments=("path", "size"),
        share=0.8,
        gives="array",
    )
    after = rewritten(source, made)
    assert (
        after
        == HEAD.replace("import os\n", "import functools\nimport os\n")
        + """\
@functools.lru_cache(maxsize=None)
def kept_x(path, size):
    x = load(path, size)
    x = resized(x,
                size)
    # Its half.
    x = (x[:1] if size
         else x)  # cut
    return x


def batch(path):
    size = SIZE
    if path:
        # The picture.
        x = kept_x(path, size).copy()  # as it lies there
        x = Array(x + [1])
    return x


def resized(x, size):
    return Array([*x, size])
"""
    )
    check_kept(source, after, "a", times=1)
    offer = offered(of_generator(made))
    lines = f"lines {first} to {first + 5}"
    assert offer.fix.variant == f"keep x of {lines}"
    assert offer.fix.title == f"Keep the `x` that {lines} make, so that only the first epoch makes it"
    moved = source.replace("x = resized(x,", "y = resized(x,")
    assert changed(moved, made).diff is None


def assignments_in(source: str, first: str, last: str, **known: Any) -> MemoizableCall:
    """Return the assignments from a line of a source to another one, without their blanks."""
    lines = source.splitlines()
    begins, ends = (next(n for n, line in enumerate(lines) if line.strip() == text) for text in (first, last))
    column = len(lines[begins]) - len(first)
    code = lines[ends].partition("#")[0].rstrip()
    return MemoizableCall(
        file=FILE, line=begins + 1, column=column, end_line=ends + 1, end_column=len(code), text="x = …", **known
    )


LEAVES = """\
def maybe(path):
    return None if path == "b" else load(path)


def batch(paths):
    found = []
    for path in paths:
        x = maybe(path)  # as it lies there
        # Of some files there is none.
        if x is None:
            continue
        # Its half.
        x = x[:1]  # cut
        found.append(x)
    return found
"""


def test_what_leaves_without_a_result_stays_behind_the_function_of_assignments() -> None:
    source = HEAD + LEAVES
    first = "x = maybe(path)  # as it lies there"
    made = assignments_in(source, first, "x = x[:1]  # cut", variable="x", arguments=("path",), gives="array")
    after = rewritten(source, made)
    kept = "    x = maybe(path)\n    if x is None:\n        return x\n    # Its half.\n    x = x[:1]  # cut\n"
    assert f"@functools.lru_cache(maxsize=None)\ndef kept_x(path):\n{kept}    return x\n" in after
    assert after.endswith("""\
    for path in paths:
        x = copy.deepcopy(kept_x(path))  # as it lies there
        # Of some files there is none.
        if x is None:
            continue
        found.append(x)
    return found
""")
    check_kept(source, after, "abc", times=2)


def test_assignments_that_leave_in_two_places_stay_as_they_are() -> None:
    """Of what the function gives it is not known which of them left: the first one raised where the other goes on."""
    two = "raise FileNotFoundError(path)\n        x = maybe(x[0])\n        if x is None:\n            continue\n"
    source = HEAD + LEAVES.replace("x = maybe(path)", "x = load(path)").replace("continue\n", two, 1)
    first = "x = load(path)  # as it lies there"
    made = assignments_in(source, first, "x = x[:1]  # cut", variable="x", arguments=("path",), gives="array")
    assert run(source)["batch"]("abc") == [["a"], ["c"]]
    assert changed(source, made).diff is None


def test_assignments_to_several_variables_become_one_function() -> None:
    body = "class Held:\n    def __init__(self, path):\n        self.array = load(path)\n\n\n"
    body += "def batch(path):\n    held = Held(path)\n    x = held.array\n    x = Array([*x, 1])\n    return x\n"
    source = HEAD + body
    known = {"variable": "x", "arguments": ("path",), "gives": "array"}
    made = assignments_in(source, "held = Held(path)", "x = Array([*x, 1])", **known)
    after = rewritten(source, made)
    kept = "    held = Held(path)\n    x = held.array\n    x = Array([*x, 1])\n    return x\n"
    assert f"def kept_x(path):\n{kept}\n\ndef batch(path):\n    x = kept_x(path).copy()\n    return x\n" in after
    check_kept(source, after, "a", times=1)


BETWEEN = """\
def batch(paths):
    found, masks = {}, {}
    for n, path in enumerate(paths):
        x = load(path)  # as it lies there
        # The mask.
        mask = load(path, 2)
        if len(x) > 1:
            # Longer.
            x = x[:1]  # cut
        else:
            x = Array(x)
        if mask:
            mask = Array(mask)
        # Stored.
        found[n,] = Array([*x,
                           SIZE])  # with its size
        masks[n,] = mask[:1]
    return found, masks
"""


def test_what_stands_between_assignments_stays_behind_the_function_and_a_part_of_something_gets_its_result() -> None:
    source = HEAD + BETWEEN
    runs = [("x = load(path)  # as it lies there", "SIZE])  # with its size", "x")]
    runs += [("mask = load(path, 2)", "masks[n,] = mask[:1]", "mask")]
    known = {"arguments": ("path",), "gives": "array"}
    made = [assignments_in(source, first, last, variable=name, **known) for first, last, name in runs]
    after = rewritten(source, *made)
    assert after.endswith("""\
@functools.lru_cache(maxsize=None)
def kept_x(path):
    x = load(path)
    if len(x) > 1:
        # Longer.
        x = x[:1]  # cut
    else:
        x = Array(x)
    x = Array([*x,
                       SIZE])
    return x


@functools.lru_cache(maxsize=None)
def kept_mask(path):
    mask = load(path, 2)
    if mask:
        mask = Array(mask)
    mask = mask[:1]
    return mask


def batch(paths):
    found, masks = {}, {}
    for n, path in enumerate(paths):
        x = kept_x(path).copy()  # as it lies there
        # The mask.
        mask = kept_mask(path).copy()
        # Stored.
        found[n,] = x  # with its size
        masks[n,] = mask
    return found, masks
""")
    check_kept(source, after, "abc", times=6)


def test_what_only_a_class_knows_by_its_name_is_named_as_code_outside_of_it_does() -> None:
    body = "class _Of:\n    __size = 3\n    def __load(self, path):\n        return load(path, self.__size)\n"
    body += "    def make(self, path):\n        x = self.__load(path)\n        x = Array(x[: self.__size])\n"
    source = HEAD + body + "        return x\n"
    known = {"variable": "x", "arguments": ("self", "path", "self.__size"), "owner": "self", "gives": "array"}
    known["owner_reads"] = ("__size",)
    made = assignments_in(source, "x = self.__load(path)", "x = Array(x[: self.__size])", **known)
    after = rewritten(source, made)
    assert "    x = self._Of__load(path)\n    x = Array(x[: __size])\n" in after
    assert "        x = kept_x(self, path, self.__size).copy()\n        return x\n" in after
    one = run(after)["_Of"]()
    assert one.make("a") == one.make("a") == ["a", 3]


def test_rows_that_are_looked_up_in_a_table_of_the_object_are_handed_over_by_the_object() -> None:
    body = "class Of:\n    def __init__(self):\n        self.table = Array([1])\n    def make(self, path):\n"
    body += "        rows = self.table[self.table.index(1) :]\n        x = load(path, rows)\n        return x\n"
    source = HEAD + body
    known = {"variable": "x", "arguments": ("self", "path"), "owner": "self", "gives": "array"}
    made = assignments_in(source, "rows = self.table[self.table.index(1) :]", "x = load(path, rows)", **known)
    after = rewritten(source, made)
    kept = "    rows = self.table[self.table.index(1) :]\n    x = load(path, rows)\n    return x\n"
    assert f"def kept_x(self, path):\n{kept}" in after
    assert "        x = kept_x(self, path).copy()\n        return x\n" in after
    assert run(after)["Of"]().make("a") == ["a", [1]]


def test_one_assignment_that_takes_a_part_of_what_a_call_gives_becomes_a_function() -> None:
    source = HEAD + "def batch(path):\n    x = load(path)[:1]\n    return x\n"
    known = {"variable": "x", "arguments": ("path",), "gives": "array"}
    made = assignments_in(source, "x = load(path)[:1]", "x = load(path)[:1]", **known)
    after = rewritten(source, made)
    assert "def kept_x(path):\n    x = load(path)[:1]\n    return x\n" in after
    assert after.endswith("def batch(path):\n    x = kept_x(path).copy()\n    return x\n")
    offer = offered(of_generator(made.model_copy(update={"share": 0.8})))
    assert offer.fix.title == f"Keep the `x` that line {made.line} makes, so that only the first epoch makes it"


def test_a_parameter_is_no_name_that_its_function_assigns_to() -> None:
    body = "def batch(item):\n    x = load(item.x)\n    x = Array([*x, item.x])\n    return x\n"
    source = HEAD + body
    first = source.splitlines().index("    x = load(item.x)") + 1
    of = {"line": first, "column": 4, "end_line": first + 1, "end_column": 27, "variable": "x", "text": "x = …"}
    made = MemoizableCall(file=FILE, arguments=("item.x",), gives="array", **of)
    after = rewritten(source, made)
    assert "def kept_x(x_2):\n    x = load(x_2)\n    x = Array([*x, x_2])\n    return x\n" in after
    assert "    x = kept_x(item.x).copy()\n    return x\n" in after


@pytest.mark.parametrize(
    ("call", "arguments", "parameters", "body"),
    [
        ("load(image.shape, mask.shape)", ("image.shape", "mask.shape"), "shape, shape_2", "load(shape, shape_2)"),
        ("load(mask, self.mask)", ("mask", "self.mask"), "mask, mask_2", "load(mask, mask_2)"),
        ("load(shape(image.shape))", ("image.shape",), "shape_2", "load(shape(shape_2))"),
        ("load(image, size=self.size)", ("image", "self.size"), "image, size", "load(image, size=size)"),
    ],
)
def test_each_parameter_has_a_name_that_stands_for_nothing_else(
    call: str, arguments: tuple[str, ...], parameters: str, body: str
) -> None:
    source = f"{HEAD}def shape(of):\n    return of\n\n\ndef batch(self, image, mask):\n    return {call}\n"
    made = call_in(source, call, *arguments)
    after = rewritten(source, made)
    assert f"def kept_load({parameters}):\n    return {body}\n" in after
    assert f"    return kept_load({', '.join(arguments)}).copy()\n" in after
    run(after)


def test_what_methods_read_of_their_object_is_a_parameter_too() -> None:
    """Code in another file may set it, as a class does that is derived from this one."""
    body = "class Of:\n    size = 3\n    def load(self, path):\n        return load(path, self.size)\n"
    body += "    def make(self, path):\n        return self.load(path)\n"
    source = HEAD + body
    made = call_in(source, "self.load(path)", "self", "path")
    made = made.model_copy(update={"owner": "self", "owner_reads": ("size",)})
    after = rewritten(source, made)
    assert "def kept_load(self, path, size):\n    return self.load(path)\n" in after
    assert "        return kept_load(self, path, self.size).copy()\n" in after
    one = run(after)["Of"]()
    assert one.make("a") == ["a", 3]
    one.size = 4
    assert one.make("a") == ["a", 4]


def test_a_call_that_is_not_there_any_more_is_told_in_words() -> None:
    source = HEAD + "def batch(path):\n    return load(path)\n"
    made = call_in(source, "load(path)", "path")
    fix = fix_of(Memoize(stage=0, call=made))
    for text in (source.replace("    return load(path)", "    return  load(path)"), None):
        code = patch.change({} if text is None else {FILE: text}, of_generator(made), fix)
        assert code.diff is None
        assert code.text.startswith("Move `load(path)` (line 19 of train.py) into a function under `@functools.lru_")


def test_the_place_of_a_stage_needs_no_file_of_the_call() -> None:
    """The call may be in a file beside the one that holds the class."""
    source = HEAD + "def batch(path):\n    return load(path)\n"
    made = call_in(source, "load(path)", "path")
    looked = with_stage(of_generator(made), 0, place=Location(file="/home/user/other.py", line=1))
    assert patch.change({FILE: source}, looked, fix_of(Memoize(stage=0, call=made))).diff is not None
