"""Makes a recorded pipeline again: with edits, one stage on other inputs, or on a small part of the input.

Nothing of a TensorFlow graph is edited: the user's calls are made again with their live arguments. What an edit does
not touch is the user's own dataset object. Files that their pipeline would keep elements in (`cache` with a name,
`snapshot`) are never written; others under a scratch folder take their place. Those of a `cache` that an earlier run
has filled are read as the training would read them, by links to them, where nothing in front of it is changed.
"""

from __future__ import annotations

import contextlib
import glob
import graphlib
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import AUTOTUNE, KEEPING, Value
from pipeline_bench.model.edits import Edit, MoveBefore
from pipeline_bench.model.element_flow import never_full
from pipeline_bench.tfdata import composing, dataflow, subsample
from pipeline_bench.tfdata.plan import CallPlan, Node, Ref
from pipeline_bench.tfdata.public_api import Entry, Run, intercepted, replaced
from pipeline_bench.tfdata.recipe import Recipe, RecordedCall, writes_files

_ORDER_SEED = 20_011
"""The global seed while stages that only decide an order are made: the same for every seed of a fingerprint."""
_DECIDE_ORDER = ("shuffle", "list_files", "sample_from_datasets", "rejection_resample")


@dataclass(frozen=True)
class Rebuilt:
    """A pipeline made again: its dataset, and the datasets of the caches that edits inserted, upstream first.

    Iterating a cache's dataset to its end fills it for the pipeline, which shares it.
    """

    dataset: Any
    caches: tuple[Any, ...] = ()
    filled: tuple[Any, ...] = ()
    """The datasets of the user's caches whose files an earlier run has filled."""


def rebuild(
    recipe: Recipe,
    edits: Iterable[Edit],
    scratch: Path,
    cached_elements: int | None = None,
    *,
    without: Collection[str] = (),
    ahead_elements: int | None = None,
) -> Rebuilt:
    """Return the pipeline with the edits.

    Args:
        recipe: how the user made it.
        edits: applied one after another. Options, the service and the device always come at the end.
        scratch: a folder for the files of caches; made where it does not exist.
        cached_elements: how many elements an inserted cache keeps, which it then repeats; all of them where None.
        without: methods of the user's own calls to leave out: ``cache`` (but one that is never full) for a first epoch,
            ``shuffle`` where any batch will do, and its buffer need not be filled.
        ahead_elements: the most that a shuffle holds, or a skip leaves out; None: as written.

    Raises:
        PipelineBenchError: an edit does not fit, or a stage does not take what it gives it; the message has the reason.
    """
    plan = CallPlan(recipe)
    for edit in edits:
        edit.apply(plan)
    for stage in recipe.stages:
        stays_partial = stage.method in KEEPING and never_full(recipe.stages, stage)
        if stage.method in without and stage.id in plan.nodes and not stays_partial:
            plan.take_out(stage.id)
    plan.limit_ahead(ahead_elements)
    maker = _Maker(plan, scratch, cached_elements=cached_elements)
    return Rebuilt(_finished(plan, maker.dataset(plan.sink)), tuple(maker.caches), tuple(maker.filled))


def stage(recipe: Recipe, number: int, inputs: Sequence[Any], scratch: Path, ahead_elements: int | None = None) -> Any:
    """Return the dataset of one stage upon other datasets, in the order of `Stage.inputs`; a source takes none.

    A shuffle holds, and a skip leaves out, `ahead_elements` at the most.

    Raises:
        PipelineBenchError: it does not take them, or there are more or fewer of them.
    """
    plan = CallPlan(recipe)
    plan.limit_ahead(ahead_elements)
    node = plan.node(number)
    if len(inputs) != len(node.inputs):
        raise PipelineBenchError(f"{node.label} has {len(node.inputs)} inputs, not {len(inputs)}")
    maker = _Maker(plan, scratch)
    return maker.make(node, inputs) if inputs else maker.dataset(number)


def up_to(recipe: Recipe, number: int, scratch: Path) -> Any:
    """Return the dataset of a stage as written, whose elements those behind it take."""
    return _Maker(CallPlan(recipe), scratch).dataset(number)


def subsampled(
    recipe: Recipe, edits: Iterable[Edit], scratch: Path, seed: int, ahead_elements: int | None = None
) -> Any:
    """Return the pipeline with the edits on a small part of the input, the same part whatever the edits.

    Every stage is made again. Stages that decide an order (`shuffle`, `list_files`, …) decide it alike in every process
    and for every seed; random ops in the user's functions differ between seeds. Sets TensorFlow's global seed. Options
    of an edit are kept; a service and a device, which change no sample, are left out. Where a function keeps a state
    beside them, random ops run one after the other: one seed then gives the same again, unless the state does not.

    Raises:
        PipelineBenchError: an edit does not fit, or moves a filter in front of a map that may change what it looks at.
    """
    plan, edits = CallPlan(recipe), tuple(edits)
    for edit in edits:
        if isinstance(edit, MoveBefore):
            _check_filter(recipe, edit)
    plan.limit_ahead(ahead_elements)
    subsample.shrink(plan)
    for edit in edits:
        edit.apply(plan)
    plan.is_offloaded, plan.device_buffer = False, None
    in_order = any(stage.keeps_state for stage in recipe.stages)
    return _finished(plan, _Maker(plan, scratch, seed, draws_in_order=in_order).dataset(plan.sink))


def _check_filter(recipe: Recipe, edit: MoveBefore) -> None:
    """Check that a filter that moves decides on each element as it did: a few equal samples would not prove that.

    Raises:
        PipelineBenchError: it may look at what a map changes that it moves in front of.
    """
    moved = at = recipe.calls[edit.stage]
    read = dataflow.reads(moved.result) if moved.method == "filter" else set()
    while read != set() and at.id != edit.other:
        at = recipe.calls[at.inputs[0]]
        if at.method == "map":
            kept = dataflow.hands_on(at.result, recipe.dataset(at.inputs[0]).element_spec)
            if read is None or not read <= kept:
                raise PipelineBenchError(f"{moved.label} may look at what {at.label} changes")


def _finished(plan: CallPlan, dataset: Any) -> Any:
    """Return the dataset with what comes behind the sink."""
    if plan.options:
        dataset = dataset.with_options(_options(plan.options))
    if plan.is_offloaded:
        from pipeline_bench.tfdata import service

        dataset = service.offload(dataset)
    if plan.device_buffer is not None:
        dataset = _on_device(dataset, plan.device_buffer)
    return dataset


def _options(values: dict[str, Value]) -> Any:
    """Return a `tf.data.Options` of dotted names: ``{"threading.private_threadpool_size": 8}``."""
    import tensorflow as tf

    made = tf.data.Options()
    for name, value in values.items():
        *path, last = name.split(".")
        try:
            owner = made
            for part in path:
                owner = getattr(owner, part)
            setattr(owner, last, value)
        except (AttributeError, TypeError, ValueError) as error:
            raise PipelineBenchError(f"tf.data has no option {name} that can be {value!r}") from error
    return made


def _on_device(dataset: Any, buffer_size: int) -> Any:
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU")
    if not devices:
        raise PipelineBenchError("there is no GPU that TensorFlow can use to prefetch to")
    buffer = None if buffer_size == AUTOTUNE else buffer_size
    return dataset.apply(tf.data.experimental.prefetch_to_device(devices[0].name, buffer))


class _Maker:
    """Makes the datasets of a plan, each once: what did not change is taken as it is, what did is called again."""

    def __init__(
        self,
        plan: CallPlan,
        scratch: Path,
        seed: int | None = None,
        cached_elements: int | None = None,
        draws_in_order: bool = False,
    ) -> None:
        """Prepare to make a pipeline again; with a seed, the same stage shuffles alike in every process."""
        self._plan = plan
        self._scratch = scratch
        self._seed = seed
        self._draws_in_order = draws_in_order
        self._cached_elements = cached_elements
        self._made: dict[int, Any] = {}
        self.caches: list[Any] = []
        """The datasets of the caches that edits inserted, upstream first."""
        self.filled: list[Any] = []

    def dataset(self, number: int) -> Any:
        """Return the dataset of a node.

        Raises:
            PipelineBenchError: a stage cannot be made again with what the edits give it.
        """
        upstream: dict[int, tuple[int, ...]] = {}
        waiting = [number]
        while waiting:
            at = waiting.pop()
            if at not in upstream and at not in self._made:
                upstream[at] = self._plan.nodes[at].inputs
                waiting += upstream[at]
        for each in graphlib.TopologicalSorter(upstream).static_order():
            if each not in self._made:
                node = self._plan.nodes[each]
                inputs = [self._made[i] for i in node.inputs]
                self._made[each] = self._reused(node, inputs) or self.make(node, inputs)
        return self._made[number]

    def _reused(self, node: Node, inputs: Sequence[Any]) -> Any | None:
        """Return the recorded dataset, where it may stand for the node."""
        call = node.recorded
        if call is None or (call.entry is not None and (node.changed or self._seed is not None)):
            return None
        if not self._as_recorded(node, inputs):
            return None
        return call.result if node.take is None else call.result.take(node.take)

    def _as_recorded(self, node: Node, inputs: Sequence[Any]) -> bool:
        """Return whether a node gets what its call got."""
        recorded = (self._plan.nodes[number].recorded for number in node.inputs)
        return all(each is not None and each.result is made for each, made in zip(recorded, inputs, strict=True))

    def make(self, node: Node, inputs: Sequence[Any]) -> Any:
        """Call a node's function with datasets in the places of its inputs, in their order."""
        try:
            if self._seed is None:
                return self._called(node, inputs)
            import tensorflow as tf

            tf.random.set_seed(_ORDER_SEED if node.method in _DECIDE_ORDER else self._seed)
            with user_code.python_draws_as_before():
                user_code.seed_python(self._seed)  # for what a function draws while it is traced
                return self._called(node, inputs)
        except PipelineBenchError:
            raise
        except Exception as error:
            message = f"{node.label} cannot be made with this change: {user_code.summary(error)}"
            raise PipelineBenchError(message) from error

    def _called(self, node: Node, inputs: Sequence[Any]) -> Any:
        given, call = node.given(), node.recorded
        values = self._values(node.id, node.method, given, call)
        node = node.setting(**values) if values else node
        is_filled = False
        if "filename" in values and call is not None and self._seed is None and self._as_recorded(node, inputs):
            is_filled = _linked(given["filename"], values["filename"])
        datasets = iter(inputs)
        args, kwargs = replaced((node.args, node.kwargs), Ref, lambda _: next(datasets))
        if call is None and node.method in KEEPING:
            return self._inserted_keeper(node, args, kwargs)
        changes_inner = call is not None and (node.inner or self._seed is not None or call.needs_own_files())
        if call is not None and call.inner and changes_inner:
            with intercepted(_InnerCalls(call, lambda *each: self._inner_values(node, *each)).handle):
                made = _marked(lambda: _call(node, args, kwargs))
        else:
            made = _call(node, args, kwargs)
        if is_filled:
            self.filled.append(made)
        return made if node.take is None else made.take(node.take)

    def _inserted_keeper(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        limit, (dataset, *rest) = self._cached_elements, args
        kept = _call(node, (dataset if limit is None else dataset.take(limit), *rest), kwargs)
        self.caches.append(kept)
        return kept if limit is None else kept.repeat()

    def _values(self, number: int, method: str, given: dict[str, Any], recorded: RecordedCall | None) -> dict[str, Any]:
        """Return the file, the seed or the passes that a call is to be made with."""
        if writes_files(method, given):
            self._scratch.mkdir(parents=True, exist_ok=True)
            own = str(Path(tempfile.mkdtemp(prefix=f"{method}-", dir=self._scratch)) / "data")
            return {"path" if method == "snapshot" else "filename": own}
        if self._seed is not None and method in _DECIDE_ORDER and given.get("seed") is None:
            return {"seed": number & 0xFFFF}
        parallel = given.get("num_parallel_calls") is not None
        if self._draws_in_order and parallel and recorded is not None and recorded.stage().draws:
            return {"num_parallel_calls": 1}
        if self._seed is not None and method == "repeat":
            node = self._plan.nodes.get(number)
            most = self._plan.passes if node is None or node.passes is None else node.passes
            count = composing.static(-1 if given.get("count") is None else given["count"])
            if most is not None:
                return {"count": most if count is None or count < 0 else min(count, most)}
        return {}

    def _inner_values(self, node: Node, call: RecordedCall, given: dict[str, Any]) -> dict[str, Any] | None:
        """Return what to set in a call within a user's function; None to leave the call out."""
        if call.writes_files():
            return None
        return {**self._values(call.id, call.method, given, call), **node.inner.get(call.id, {})}


def _linked(cache: Any, own: str) -> bool:
    """Link the files of a cache that is full under another name; return whether it is.

    TensorFlow writes them as a checkpoint, and its index last.
    """
    import tensorflow as tf

    try:
        name = os.fsdecode(cache.numpy() if hasattr(cache, "numpy") else cache)
        tf.train.load_checkpoint(name)
        for path in Path(name).absolute().parent.glob(f"{glob.escape(Path(name).name)}.*"):
            Path(own + path.name.removeprefix(Path(name).name)).symlink_to(path)
    except Exception:  # there is none, it is no such file, or it cannot be read
        return False
    return True


def _call(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    assert node.entry is not None
    if node.per_file is not None:
        return subsample.opened(node, args, kwargs)
    if node.files is not None:
        return subsample.listed(node)
    with composing.of_any_rank():
        return node.entry.make(args, kwargs)


def _marked(call: Callable[[], Any]) -> Any:
    """Run a call; the code of this function marks the frame beyond which there is none of a user's function."""
    return call()


class _InnerCalls:
    """Changes the calls that a user's function makes while it is traced again, in the order in which they came."""

    def __init__(
        self, outer: RecordedCall, values: Callable[[RecordedCall, dict[str, Any]], dict[str, Any] | None]
    ) -> None:
        self._values = values
        self._function = outer.function
        self._levels = [iter(outer.inner)]
        self._thread = threading.get_ident()

    def handle(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        by_itself = self._function is not None and entry.is_behind(self._function)
        is_users = by_itself or user_code.called_by_other_code(2, _OWN_CODE)
        call = next(self._levels[-1], None) if threading.get_ident() == self._thread and is_users else None
        if call is None or call.entry is not entry:
            return run(args, kwargs)
        values = self._values(call, entry.given(args, kwargs))
        if values is None:
            return args[0]
        if values:
            bound = entry.signature.bind_partial(*args, **kwargs)
            bound.arguments.update(values)
            args, kwargs = bound.args, bound.kwargs
        self._levels.append(iter(call.inner))
        try:
            with _order_seed() if entry.method in _DECIDE_ORDER else contextlib.nullcontext():
                return run(args, kwargs)
        finally:
            self._levels.pop()


_OWN_CODE = {_marked.__code__, _InnerCalls.handle.__code__}


@contextmanager
def _order_seed() -> Iterator[None]:
    """Within a traced function, give the stages that decide an order the same seed whatever the seed is."""
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    before, graph.seed = graph.seed, _ORDER_SEED
    try:
        yield
    finally:
        graph.seed = before
