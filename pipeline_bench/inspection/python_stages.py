"""What in the user's code takes the time of a stage: its lines, and the calls in Python that can be kept."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.inspection import disk, graph_lines
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import one_line, units
from pipeline_bench.text.units import NS_PER_S
from pipeline_bench.tfdata import describe, fingerprint, rebuild
from pipeline_bench.tfdata.recipe import Recipe, RecordedCall
from pipeline_bench.tfdata.throughput import Deadline, FlatIterator, KeptElements, endless
from pipeline_bench.user_code import installed, memoize
from pipeline_bench.user_code.line_profile import (
    Follow,
    Line,
    LineCost,
    Tracer,
    in_this_thread,
    is_whole_function,
    line_costs,
    pools_in_this_thread,
)

_PROFILE_SHARE = 2 / 3
"""Of the time: what following the lines may take; finding a call has the rest."""
_MOSTLY = 1 / 2
"""Of a call: where the user's lines take less, those of the library that calls them are followed too."""
_LONGEST = 3
"""Times what it is given: an element that comes later is given up."""
_TURN_S = 2.0
"""What waits longer for its turn goes on: the call that runs may itself wait for it, as one that takes of a dataset."""
_ABOUT_ALL = 0.9
"""Of a call: the only line of a function that takes so much is its whole cost."""
_NEARLY = 2 / 3
"""Of what the costliest line takes: one that takes so much is told beside it, for another run may find it costlier."""
_OF_DATASETS = re.compile("Dataset|Iterator")
"""In the types of the ops that make a dataset, or wait for an element of one: no map can take these."""
_COMPARED = 2
"""Elements of two passes that are compared, to tell whether the passes are the same."""


def look_into(
    inspection: Inspection,
    number: int,
    take: Callable[[], Any],
    seconds: float,
    alive: Callable[[], None],
    *,
    taker: Callable[[], Callable[[], Any]] | None = None,
    again: Callable[[], Callable[[], Any]] | None = None,
    library: str | None = None,
    follow: Follow = in_this_thread,
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[Inspection]:
    """Give the inspection with the costliest line of a stage's Python, then with the calls in it that can be kept.

    Args:
        inspection: of the pipeline.
        number: the stage.
        take: has it give one more element.
        seconds: about the most time.
        alive: called now and then, as a sign of life.
        taker: returns a `take` that begins anew; None where no call is looked for, as where the Python writes files.
        again: returns a `take` that gives the same element each time, but for what is random in it; None: none does.
        library: the folder whose lines are followed too where the user's take little of a call.
        follow: where the Python runs.
        alone: has it run in one thread at a time.
    """
    op_runner = sys.modules.get("tensorflow.python.pywrap_tfe"), "TFE_Py_FastPathExecute"
    with (
        _callers(sys.modules.get("PIL.Image"), "open") as opening,
        _callers(*op_runner, lambda _, op, *given: op == "WriteFile") as writing,
        _callers(*op_runner, lambda _, op, *given: not _OF_DATASETS.search(op)) as eager,
        disk.writing_watched() as has_written,
    ):
        lines = line_costs(take, seconds * _PROFILE_SHARE, _is_written, follow)
        writes_files = bool(writing) or has_written(lines.calls)
    alive()
    shares = {(each.place.file, each.place.line): each.share for each in lines.own}
    if ops := sum(eager[line] for line in shares):
        share = sum(each for line, each in shares.items() if line in eager)
        inspection = with_function(inspection, number, eager_ops=ops / lines.calls, eager_share=share)
    own = lines.own
    if library is not None and sum(each.share for each in own) < _MOSTLY:
        inside = f"{library}{os.sep}"
        own = line_costs(take, seconds * _PROFILE_SHARE, lambda f: f.startswith(inside) or _is_written(f), follow).own
        alive()
    if own:
        inspection = _with_lines(inspection, number, own)
        yield inspection
    if taker is None or writes_files:  # what stands for another result would be there for good
        return
    places = [(each.place.file, each.place.line) for each in lines.whole if each.share >= memoize.WORTH]
    places += [each for each in opening if each not in places]
    with alone(), pools_in_this_thread():
        calls = memoize.find(taker, places, seconds * (1 - _PROFILE_SHARE), alive, again)
    if calls:
        elements = (cost.elements if (cost := inspection.cost(number)) is not None else None) or 1.0
        first, *others = (each.model_copy(update={"batch_bytes": each.batch_bytes * elements}) for each in calls)
        yield with_function(inspection, number, memoizable=first, also_memoizable=tuple(others))


def with_sizes(
    inspection: Inspection,
    number: int,
    taker: Callable[[], Callable[[], Any]],
    batches: int | None,
    seconds: float,
    alive: Callable[[], None],
) -> Iterator[Inspection]:
    """Give the inspection with what the calls of a stage that can be kept give in an epoch of so many batches.

    Nothing is given where there are none, or the batches are not known. See `memoize.with_sizes`.
    """
    function = inspection.stage(number).function
    if function is None or not function.memoizable_calls or not batches:
        return
    with pools_in_this_thread():
        first, *others = memoize.with_sizes(function.memoizable_calls, taker, batches, seconds, alive)
    yield with_function(inspection, number, memoizable=first, also_memoizable=tuple(others))


@contextmanager
def _callers(
    module: ModuleType | None, name: str, counts: Callable[..., bool] | None = None
) -> Iterator[Counter[Line]]:
    """Give how often each of the user's lines calls a function in the block, itself or by a library.

    Lines that open a picture by Pillow take little: what asks for the pixels first decodes them, in another line.

    Args:
        module: that the function is called from; None: nothing has imported it.
        name: the function's.
        counts: whether a call with these arguments counts; None: each does.
    """
    lines = Counter[Line]()
    if module is None:
        yield lines
        return
    plain = getattr(module, name)

    def called(*given: Any, **options: Any) -> Any:
        frame = None if counts is not None and not counts(*given, **options) else inspect.currentframe()
        while frame is not None and not _is_written(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            lines[frame.f_code.co_filename, frame.f_lineno] += 1
        return plain(*given, **options)

    with user_code.patched(module, name, called):
        yield lines


def of_tf_data(
    recipe: Recipe, inspection: Inspection, scratch: Path, seconds: float, alive: Callable[[], None]
) -> Iterator[Inspection]:
    """Give the inspection with the costliest line of the costliest stage, and with the calls in it that can be kept.

    Nothing is given where that stage has no function of the user's, fails here, or is too slow for it. Calls are looked
    for in Python alone, where two passes give different elements: a cache keeps those that are the same.

    Args:
        recipe: of the pipeline.
        inspection: of it, with the costs of its stages.
        scratch: a folder for the files of caches.
        seconds: about the most time.
        alive: called after each element, as a sign of life.
    """
    stage = costliest(inspection)
    cost = inspection.cost(stage.id) if stage is not None else None
    if stage is None or cost is None:
        return
    each_ns = max(cost.elapsed_ns or 0.0, cost.first_epoch_ns or 0.0) / (cost.elements or 1.0)
    in_graph = stage.method == "map"
    if not (stage.runs_python or in_graph) or 2 * _COMPARED * each_ns > seconds * NS_PER_S:
        return
    runs_later = bool(cost.elapsed_ns)  # else a cache behind it keeps what it gives
    try:  # an element that fails may be one that the pipeline leaves out, and what was measured counts without this
        with Deadline(_LONGEST * seconds) as deadline:
            if not stage.runs_python:
                yield from _of_graph(recipe, inspection, stage, scratch, seconds, deadline, alive)
                return
            if stage.method == "from_generator" and _gives_doubles(recipe.calls[stage.id]):
                inspection = with_function(inspection, stage.id, doubles=True)
                yield inspection
            made = rebuild.up_to(recipe, stage.id, scratch)
            dataset, tokens = endless(made), describe.python_tokens(made) if in_graph else set[bytes]()

            def taker() -> Callable[[], Any]:
                iterator = FlatIterator(dataset)
                return lambda: iterator.take(deadline)

            take = taker()
            one, other = ([fingerprint.digests(each()) for _ in range(_COMPARED)] for each in (take, taker()))
            alive()

            def of_one_element() -> Callable[[], Any]:
                before = rebuild.up_to(recipe, recipe.same_kind_before(recipe.calls[stage.id]), scratch)
                given = KeptElements(before.element_spec, [FlatIterator(before).take(deadline)]).dataset().repeat()
                iterator = FlatIterator(rebuild.stage(recipe, stage.id, [given], scratch))
                return lambda: iterator.take(deadline)

            yield from look_into(
                inspection,
                stage.id,
                take,
                seconds,
                alive,
                taker=taker if runs_later and one != other else None,
                again=of_one_element if stage.method == "map" else None,
                follow=functools.partial(in_graphs, tokens=tokens),
                alone=one_at_a_time,
            )
    except Exception:
        return


def _gives_doubles(call: RecordedCall) -> bool:
    """Return whether most of a generator's first element are 64-bit floats where its dataset has smaller ones."""
    import tensorflow as tf

    if call.function is None or call.given().get("args"):
        return False
    try:
        given = tf.nest.flatten(next(iter(call.function())))
    except Exception:  # of the user's code; what follows may do without it
        return False
    becomes = [spec.dtype for spec in tf.nest.flatten(call.result.element_spec)]
    smaller = {tf.float32, tf.float16, tf.bfloat16}
    pairs = zip(given, becomes, strict=False)  # a list of numbers stands for one array
    return describe.are_doubles(given, [each for each, dtype in pairs if dtype in smaller])


def _of_graph(
    recipe: Recipe,
    inspection: Inspection,
    stage: Stage,
    scratch: Path,
    seconds: float,
    deadline: Deadline,
    alive: Callable[[], None],
) -> Iterator[Inspection]:
    """Give the inspection with the costliest line of a map in the graph; a function of one line has no costlier one."""
    found = graph_lines.costs(recipe, recipe.calls[stage.id], scratch, seconds, deadline, _is_written, alive)
    known = {"decoding_share": found.decoding_share, "fixed_share": found.fixed_share}
    inspection = with_function(inspection, stage.id, **known)
    yield _with_lines(inspection, stage.id, found.lines, found.ops) if len(found.lines) > 1 else inspection


def costliest(inspection: Inspection) -> Stage | None:
    """Return the stage that takes most of the time of a batch by itself, in any epoch; None where none was measured."""
    costs = {cost.stage: max(cost.elapsed_ns or 0.0, cost.first_epoch_ns or 0.0) for cost in inspection.costs}
    number = max(costs, key=costs.__getitem__, default=None)
    return inspection.stage(number) if number is not None and costs[number] else None


@contextmanager
def in_graphs(tracer: Tracer, tokens: Collection[bytes] = ()) -> Iterator[None]:
    """Follow the Python that graphs call (`tf.py_function`, `tf.numpy_function`, `from_generator`) in the block.

    TensorFlow calls it in threads of its own; one of them is followed at a time.

    Args:
        tracer: that follows it.
        tokens: of what is followed, so that of a stage in front of it nothing is; none: all is.
    """
    from tensorflow.python.ops.script_ops import FuncRegistry

    plain, followed = FuncRegistry.__call__, threading.Lock()

    def call(self: Any, token: bytes | str, *given: Any) -> Any:
        known = token.encode() if isinstance(token, str) else token
        if (tokens and known not in tokens) or not followed.acquire(blocking=False):
            return plain(self, token, *given)
        try:
            with in_this_thread(tracer):
                return plain(self, token, *given)
        finally:
            followed.release()

    with user_code.patched(FuncRegistry, "__call__", call):
        yield


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Have the Python that graphs call run in one thread at a time in the block: what is drawn then is its own."""
    from tensorflow.python.ops.script_ops import FuncRegistry

    plain, turn = FuncRegistry.__call__, threading.RLock()

    def call(self: Any, *given: Any) -> Any:
        has_turn = turn.acquire(timeout=_TURN_S)
        try:
            return plain(self, *given)
        finally:
            if has_turn:
                turn.release()

    with user_code.patched(FuncRegistry, "__call__", call):
        yield


def _is_written(file: str) -> bool:
    """Return whether a file is of the user's own writing, and not what AutoGraph made of it."""
    return user_code.is_users(file) and not user_code.is_converted(file)


def end_of_sentence(code: str) -> str:
    """Return a line of code as a sentence ends: with dots where more of it follows, and without a second full stop."""
    shown = one_line(code, 80)
    goes_on = sum(map(shown.count, "([{")) > sum(map(shown.count, ")]}")) and not shown.endswith("…")
    return f"{shown}{' …' if goes_on else '' if shown.endswith(('.', '…')) else '.'}"


def _with_lines(
    inspection: Inspection, number: int, lines: Sequence[LineCost], ops: Mapping[Line, str] | None = None
) -> Inspection:
    """Return the inspection with the line that takes most of a call, in the stage's function or in what it calls.

    Without it where that is all of the function, and about all of its time: the stage's own figure says as much.

    Args:
        inspection: of the pipeline.
        number: the stage.
        lines: of its Python, or of what made its ops, the costliest first.
        ops: the type of the op of TensorFlow's that takes most of a line, of those that one does.
    """
    function = inspection.stage(number).place
    beside = None if function is None else function.file

    def place(line: LineCost) -> str:
        here = line.place
        return f"line {here.line}" + ("" if beside == here.file else f" of {file_name(here.file, beside=beside)}")

    def told(line: LineCost) -> str:
        op = (ops or {}).get((line.place.file, line.place.line))
        return f"is in {place(line)}{f' ({op})' if op else ''}: {end_of_sentence(line.place.text)}"

    first, *others = lines[:2]
    called = inspection.stage(number).function
    is_start = called is not None and (called.file, called.line) == (first.place.file, first.place.line)
    if is_start and first.share >= _ABOUT_ALL and is_whole_function(first.place):
        return inspection
    of = "" if inspection.api != "tf.data" else f" of {inspection.stage(number).label}"
    note = f"Of a call{of}, {units.share(first.share)} {told(first)}"
    if others and others[0].share >= _NEARLY * first.share:
        note += f" Nearly as much, {units.share(others[0].share)}, {told(others[0])}"
    ran = {"costliest_runs": first.runs, "costliest_run_ns": first.run_ns}
    known = with_function(inspection, number, costliest=place(first), costliest_share=first.share, **ran)
    return known.model_copy(update={"notes": (*inspection.notes, note)})


def file_name(file: str, beside: str | None = None) -> str:
    """Return a file's name and as many folders as tell which it is: ``reading.py``, ``keras/…/preprocessing/image.py``.

    Args:
        file: its path.
        beside: a file that the reader knows; what lies in its folder needs none.
    """
    path = PurePath(file)
    if beside is not None and PurePath(beside).parent == path.parent:
        return path.name
    inside = PurePath(installed.inside(file) or "")
    short = PurePath(*path.parts[-2:])
    if len(inside.parts) <= len(short.parts) + 1:
        return str(inside) if inside.parts else str(short)
    return f"{inside.parts[0]}/…/{short}"


def with_function(inspection: Inspection, number: int, **known: Any) -> Inspection:
    """Return the inspection with what is known of the user's function of a stage."""
    stage = inspection.stage(number)
    if stage.function is None:
        return inspection
    changed = stage.model_copy(update={"function": stage.function.model_copy(update=known)})
    stages = tuple(changed if each.id == number else each for each in inspection.stages)
    return inspection.model_copy(update={"stages": stages})
