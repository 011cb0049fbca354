"""The costliest lines of a map in the graph: those that made the ops which TensorFlow's profiler sees run longest.

The map runs alone, on a few elements in memory, so that every op with a name of its graph is one of its own.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_bench.graph_ops import RANDOM_OPS
from pipeline_bench.system.processes import allowed_cpus
from pipeline_bench.tfdata import rebuild
from pipeline_bench.tfdata.pictures import JPEG_DECODERS
from pipeline_bench.tfdata.recipe import Recipe, RecordedCall
from pipeline_bench.tfdata.throughput import Deadline, FlatIterator, KeptElements, OutOfTimeError, endless
from pipeline_bench.user_code.line_profile import Line, LineCost, shares

_FED = 2
"""Elements that the map is given again and again."""
_LONGEST_S, _MOST_BYTES = 0.5, 30 << 20
"""A function of many cheap ops has some hundred thousand events on two cores by then, in 10 MB, which take Python about
a second to read. On more cores it runs for so much less time."""
_EVERY_OP = 3
"""The level of the profiler's tracer from which on it has cheap ops too."""
_EXECUTOR = "ExecutorState::Process"
"""The event in which a thread runs ops, and what it does between them."""
_ONE_SPAN_NS = 5_000
"""Two of the executor's events so near to each other are one span of its work."""
_OP_EVENT = re.compile(r"(?P<name>[\w.\\/>-]+):(?P<type>_?[A-Z]\w*)")
"""As TensorFlow names the event of an op: ``stft/rfft:RFFT``."""
_MOST_OF_LINE = 2 / 3
"""An op that takes so much of a line is named beside it."""


class GraphCosts(NamedTuple):
    """What of a function's time its lines and its ops take."""

    lines: list[LineCost]
    """The costliest first; those of the user's files alone."""
    ops: Mapping[Line, str]
    """The type of the op that takes most of a line, of those that one does."""
    decoding_share: float | None
    """What decoding pictures that may be JPEG files takes of the time; None where nothing does."""
    fixed_share: float | None
    """What the ops take that depend on nothing random; None where nothing is random, or no time was seen."""


class OpRun(NamedTuple):
    """One run of an op."""

    name: str
    type: str
    took_ns: int
    """With what the executor did on that thread since the op before: many cheap ops cost little else."""


def costs(
    recipe: Recipe,
    call: RecordedCall,
    scratch: Path,
    seconds: float,
    deadline: Deadline,
    follows: Callable[[str], bool],
    alive: Callable[[], None],
) -> GraphCosts:
    """Run a map alone for a while, and return which of its lines and ops take its time.

    Args:
        recipe: of the pipeline.
        call: the map.
        scratch: a folder for the files of caches, and for what the profiler writes.
        seconds: about the most time.
        deadline: ends what takes longer.
        follows: whether the lines of a file are the user's.
        alive: called now and then, as a sign of life.

    Raises:
        OutOfTimeError: the deadline came first, or reading what the profiler wrote would take too long.
        Exception: whatever the function, or a profiler that is on already, raises.
    """
    before = rebuild.up_to(recipe, recipe.same_kind_before(call), scratch)
    iterator = FlatIterator(endless(before))
    fed = KeptElements(before.element_spec, [iterator.take(deadline) for _ in range(_FED)]).dataset()
    dataset = rebuild.stage(recipe, call.id, [fed.repeat()], scratch)
    alone = FlatIterator(dataset)
    alone.take(deadline)  # what is done once is done here
    with _profiled(scratch / "profile") as files:
        end_s = time.monotonic() + min(seconds, _LONGEST_S * 2 / max(2, allowed_cpus()))
        for number in itertools.count():
            alone.take(deadline)
            if number + 1 >= _FED and time.monotonic() >= end_s:
                break
    alive()
    if sum(file.stat().st_size for file in files) > _MOST_BYTES:
        raise OutOfTimeError(seconds)

    def threads() -> Iterator[list[tuple[int, int, str]]]:
        for each in _threads(files):
            alive()
            if deadline.passed:
                raise OutOfTimeError(deadline.seconds)
            yield each

    graph = dataset._functions()[0].function.graph
    return of_runs(op_runs(threads()), lines_of_ops(graph, follows), randomness(graph))


@contextmanager
def _profiled(folder: Path) -> Iterator[list[Path]]:
    """Have TensorFlow's profiler trace every op in the block; what it wrote is in the list afterwards."""
    import tensorflow as tf

    files: list[Path] = []
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=_EVERY_OP, python_tracer_level=0, device_tracer_level=0
    )
    tf.profiler.experimental.start(str(folder), options)
    try:
        yield files
    except BaseException:
        tf.profiler.experimental.stop(save=False)
        raise
    tf.profiler.experimental.stop()
    files += folder.rglob("*.xplane.pb")


def _threads(files: Sequence[Path]) -> Iterator[list[tuple[int, int, str]]]:
    """Yield what each thread did: when each event began and ended, in ns, and its name."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    for file in files:
        space = xplane_pb2.XSpace()
        space.ParseFromString(file.read_bytes())
        for plane in space.planes:
            names = {number: metadata.name for number, metadata in plane.event_metadata.items()}
            for line in plane.lines:
                yield [
                    (each.offset_ps // 1000, (each.offset_ps + each.duration_ps) // 1000, names[each.metadata_id])
                    for each in line.events
                ]


def op_runs(threads: Iterator[list[tuple[int, int, str]]]) -> Iterator[OpRun]:
    """Yield the runs of ops among what threads did.

    Args:
        threads: of each, when its events began and ended, in ns, and their names.
    """
    op = functools.cache(_OP_EVENT.fullmatch)
    for events in threads:
        since_ns = busy_until_ns = 0
        for begun_ns, ended_ns, name in sorted(events, key=lambda event: (event[0], -event[1])):
            if name == _EXECUTOR:
                if begun_ns > busy_until_ns + _ONE_SPAN_NS:
                    since_ns = begun_ns
                busy_until_ns = max(busy_until_ns, ended_ns)
            elif found := op(name):
                yield OpRun(found["name"], found["type"], ended_ns - min(since_ns, begun_ns))
                since_ns = ended_ns


def lines_of_ops(graph: Any, follows: Callable[[str], bool]) -> Callable[[str], Line | None]:
    """Return what gives, for the name of an op that ran, the user's line that made it; None where none did.

    TensorFlow runs the functions that a graph calls as part of it, by names such as ``while/body/_1/while/cond/Sin`` of
    the op ``while/cond/Sin``. Of an op whose own name is in no graph, or in several of other lines, it is the line of
    what it is a part of.
    """
    follows = functools.cache(follows)
    outer: dict[str, Line | None] = {}
    inner: dict[str, set[Line | None]] = {}
    for each in _with_called(graph):
        for op in each.get_operations():
            users = [(at.filename, at.lineno) for at in op.traceback or () if follows(at.filename)]
            line = users[-1] if users else None
            if each is graph:
                outer[op.name] = line
            else:
                inner.setdefault(op.name, set()).add(line)

    @functools.cache
    def line_of(name: str) -> Line | None:
        for whole in _wholes(name):
            if whole in outer:
                return outer[whole]
            parts = whole.split("/")
            called = (inner.get("/".join(parts[start:])) for start in range(len(parts)))
            lines = next((each for each in called if each), set())
            if len(lines) == 1:
                return next(iter(lines))
        return None

    return line_of


def _wholes(name: str) -> Iterator[str]:
    """Yield the name of an op, then of what it is a part of, as of ``while`` for ``while/body/_1/while/Exp``."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def randomness(graph: Any) -> Callable[[str], bool] | None:
    """Return what tells, by the name of an op that ran, whether what it gives depends on a random draw of the graph.

    What a function gives that the graph calls does if any op of the function draws. None where nothing is random.
    """
    definition = graph.as_graph_def()
    drawing: set[str] = set()

    def draws(node: Any) -> bool:
        attributes = node.attr.values()
        named = {each.func.name for each in attributes}.union(
            *([of.name for of in each.list.func] for each in attributes)
        )
        return bool(RANDOM_OPS.search(node.op)) or not drawing.isdisjoint(named)

    bodies = {function.signature.name: function.node_def for function in definition.library.function}
    while more := {name for name, body in bodies.items() if name not in drawing and any(map(draws, body))}:
        drawing |= more
    depends: dict[str, bool] = {}
    for node in definition.node:  # each behind those whose outputs it takes
        given = (depends.get(name.partition(":")[0], False) for name in node.input)
        depends[node.name] = draws(node) or any(given)
    if not any(depends.values()):
        return None

    @functools.cache
    def is_random(name: str) -> bool:
        return next((depends[each] for each in _wholes(name) if each in depends), False)

    return is_random


def _with_called(graph: Any) -> Iterator[Any]:
    """Yield a graph, and those of the functions that it calls, each once: those within others are its own as well."""
    waiting, seen = [graph], {id(graph)}
    while waiting:
        each = waiting.pop()
        yield each
        called = [getattr(function, "graph", None) for function in getattr(each, "_functions", {}).values()]
        new = {id(inner): inner for inner in called if inner is not None and id(inner) not in seen}
        waiting += new.values()
        seen.update(new)


def of_runs(
    runs: Iterator[OpRun], line_of: Callable[[str], Line | None], is_random: Callable[[str], bool] | None = None
) -> GraphCosts:
    """Return what the lines, the decoding of pictures, and what is not random take, by the runs of their ops."""
    total_ns, decoding_ns, fixed_ns, decodes = 0, 0, 0, False
    of_line: Counter[Line] = Counter()
    of_op: dict[Line, Counter[str]] = {}
    for run in runs:
        total_ns += run.took_ns
        if run.type in JPEG_DECODERS:
            decodes, decoding_ns = True, decoding_ns + run.took_ns
        if is_random is not None and not is_random(run.name):
            fixed_ns += run.took_ns
        line = line_of(run.name)
        if line is not None:
            of_line[line] += run.took_ns
            of_op.setdefault(line, Counter())[run.type] += run.took_ns
    ops = {}
    for line, types in of_op.items():
        name, took_ns = types.most_common(1)[0]
        if took_ns >= _MOST_OF_LINE * of_line[line]:
            ops[line] = name.removeprefix("_Mkl").removeprefix("_Fused")
    if not total_ns:
        return GraphCosts([], {}, None, None)
    return GraphCosts(
        lines=shares(of_line, total_ns),
        ops=ops,
        decoding_share=decoding_ns / total_ns if decodes else None,
        fixed_share=fixed_ns / total_ns if is_random is not None else None,
    )
