"""Makes the datasets of a plan: what did not change is taken as it is, what did is called again."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.user_pipeline import composing, smaller, user_code
from pipeline_bench.user_pipeline.plan import Node, Plan, mapped
from pipeline_bench.user_pipeline.public_api import Entry, Run, intercepted
from pipeline_bench.user_pipeline.recording import Call

_ORDER_SEED = 20_011
"""The global seed while stages that only decide an order are made: the same for every seed of a fingerprint."""
_DECIDE_ORDER = ("shuffle", "list_files", "sample_from_datasets", "rejection_resample")


class Maker:
    """Makes datasets; each once."""

    def __init__(
        self,
        plan: Plan,
        scratch: Path,
        seed: int | None = None,
        cached_elements: int | None = None,
    ) -> None:
        """With a seed, everything is made again, and the same stage shuffles alike in every process."""
        self._plan = plan
        self._scratch = scratch
        self._seed = seed
        self._cached_elements = cached_elements
        self._made: dict[int, Any] = {}
        self.caches: list[Any] = []
        """The datasets of the caches that edits inserted, upstream first."""

    def dataset(self, number: int) -> Any:
        """The dataset of a node.

        Raises:
            PipelineBenchError: a stage cannot be made again with what the edits give it.
        """
        for each in self._order(number):
            if each not in self._made:
                node = self._plan.nodes[each]
                self._made[each] = self._reused(node) or self.make(node, [self._made[i] for i in node.inputs])
        return self._made[number]

    def _order(self, number: int) -> list[int]:
        """The node and all upstream of it, upstream first."""
        order: list[int] = []
        waiting = [(number, False)]
        while waiting:
            at, ready = waiting.pop()
            if ready:
                order.append(at)
            elif at not in order and at not in self._made:
                waiting += [(at, True), *((each, False) for each in reversed(self._plan.nodes[at].inputs))]
        return list(dict.fromkeys(order))

    def _reused(self, node: Node) -> Any | None:
        call = node.recorded
        if call is None or (call.entry is not None and (node.changed or self._seed is not None)):
            return None
        inputs = [self._made[each] for each in node.inputs]
        recorded = [self._plan.nodes[each].recorded for each in node.inputs]
        same = all(r is not None and r.result is made for r, made in zip(recorded, inputs, strict=True))
        if not same:
            return None
        return call.result if node.take is None else call.result.take(node.take)

    def make(self, node: Node, inputs: Sequence[Any]) -> Any:
        """Call a node's function with datasets in the places of its inputs, in their order."""
        try:
            with self._seeded(node.method):
                return self._called(self._prepared(node), inputs)
        except PipelineBenchError:
            raise
        except Exception as error:
            message = f"{node.label} cannot be made with this change: {user_code.summary(error)}"
            raise PipelineBenchError(message) from error

    def _called(self, node: Node, inputs: Sequence[Any]) -> Any:
        assert node.entry is not None
        datasets = iter(inputs)
        args, kwargs = mapped((node.args, node.kwargs), lambda _: next(datasets))
        if node.recorded is None and node.method == "cache":
            return self._inserted_cache(args[0], node.given().get("filename", ""))
        if self._changes_inner(node):
            with intercepted(_Within(node, self._change).handle):
                made = _marked(lambda: _call(node, args, kwargs))
        else:
            made = _call(node, args, kwargs)
        return made if node.take is None else made.take(node.take)

    def _inserted_cache(self, dataset: Any, filename: str) -> Any:
        limit = self._cached_elements
        cached = (dataset if limit is None else dataset.take(limit)).cache(filename)
        self.caches.append(cached)
        return cached if limit is None else cached.repeat()

    def _prepared(self, node: Node) -> Node:
        """The node with the files, the seed and the passes that it is to be made with."""
        values = self._values(node.id, node.method, node.given(), node.recorded)
        return node.setting(**values) if values else node

    def _values(self, number: int, method: str, given: dict[str, Any], recorded: Call | None) -> dict[str, Any]:
        if method == "snapshot":
            return {"path": self._own_path(method)}
        if method == "cache" and not _is_empty(given.get("filename", "")):
            return {"filename": self._own_path(method)}
        if self._seed is not None and method in _DECIDE_ORDER and given.get("seed") is None:
            return {"seed": number & 0xFFFF}
        if self._seed is not None and method == "repeat":
            return self._passes(number, given)
        return {}

    def _passes(self, number: int, given: dict[str, Any]) -> dict[str, Any]:
        node = self._plan.nodes.get(number)
        most = node.passes if node is not None else None
        if most is None:
            most = self._plan.passes
        if most is None:
            return {}
        count = composing.static(-1 if given.get("count") is None else given["count"])
        return {"count": most if count is None or count < 0 else min(count, most)}

    def _own_path(self, method: str) -> str:
        self._scratch.mkdir(parents=True, exist_ok=True)
        return str(Path(tempfile.mkdtemp(prefix=f"{method}-", dir=self._scratch)) / "data")

    def _changes_inner(self, node: Node) -> bool:
        call = node.recorded
        if call is None or not call.inner:
            return False
        return bool(node.inner) or self._seed is not None or call.needs_own_files()

    def _change(self, node: Node, call: Call, given: dict[str, Any]) -> dict[str, Any] | None:
        """What to set in a call within a user's function; None to leave the call out."""
        if call.writes_files():
            return None
        return {**self._values(call.id, call.method, given, call), **node.inner.get(call.id, {})}

    @contextmanager
    def _seeded(self, method: str) -> Iterator[None]:
        if self._seed is not None:
            import tensorflow as tf

            tf.random.set_seed(_ORDER_SEED if method in _DECIDE_ORDER else self._seed)
        yield


def _is_empty(filename: Any) -> bool:
    return isinstance(filename, str | bytes) and not filename


def _call(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    assert node.entry is not None
    if node.per_file is not None:
        return smaller.opened(node, args, kwargs)
    if node.files is not None:
        return smaller.listed(node)
    return node.entry.make(args, kwargs)


def _marked(call: Callable[[], Any]) -> Any:
    """Run a call; the code of this function marks the frame beyond which there is none of a user's function."""
    return call()


class _Within:
    """Changes the calls that a user's function makes while it is traced again, in the order in which they came."""

    def __init__(self, node: Node, change: Any) -> None:
        assert node.recorded is not None
        self._node = node
        self._change = change
        self._function = node.recorded.function()
        self._levels = [iter(node.recorded.inner)]
        self._thread = threading.get_ident()

    def handle(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        by_itself = self._function is not None and entry.is_behind(self._function)
        if threading.get_ident() != self._thread or not (by_itself or user_code.called_by_other_code(2, _OWN_CODE)):
            return run(args, kwargs)
        call = next(self._levels[-1], None)
        if call is None or call.entry is not entry:
            return run(args, kwargs)
        values = self._change(self._node, call, _given(entry, args, kwargs))
        if values is None:
            return args[0]
        if values:
            bound = entry.signature.bind_partial(*args, **kwargs)
            bound.arguments.update(values)
            args, kwargs = bound.args, bound.kwargs
        self._levels.append(iter(call.inner))
        try:
            with _graph_seed(entry.method):
                return run(args, kwargs)
        finally:
            self._levels.pop()


_OWN_CODE = {_marked.__code__, _Within.handle.__code__}


def _given(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(entry.signature.bind_partial(*args, **kwargs).arguments)


@contextmanager
def _graph_seed(method: str) -> Iterator[None]:
    """Within a traced function, give the stages that decide an order the same seed whatever the seed is."""
    if method not in _DECIDE_ORDER:
        yield
        return
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    before, graph.seed = graph.seed, _ORDER_SEED
    try:
        yield
    finally:
        graph.seed = before
