"""A map's function in two: the statements before it draws random numbers, which a cache may keep, and the others.

`halves` compiles for a trial the text that the patch writes (`function_halves`): what is tried is what is written.
`with_splits` finds out where a function can be divided, by tracing: before the division no op may change a state, and
with one seed both halves, one after the other, must give bit for bit what the function gives.
"""

from __future__ import annotations

import linecache
import math
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePath
from types import CellType, FunctionType
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import KEEPING
from pipeline_bench.model.pipeline import Stage
from pipeline_bench.model.user_function import FixedPart, UserFunction
from pipeline_bench.text import REASON, one_line
from pipeline_bench.tfdata import composing, describe, function_halves, map_functions, throughput
from pipeline_bench.tfdata.function_halves import CannotSplitError, Split, Within
from pipeline_bench.tfdata.map_functions import DefinedFunction
from pipeline_bench.tfdata.recipe import Recipe, RecordedCall, upstream
from pipeline_bench.user_code import function_calls

_NOT_DEFINED = (
    "it is no plain function, or method of its own class, of one definition, and no lambda without comments that only "
    "calls one"
)
_COMPARED = 2
"""Elements that both ways are run on: their random numbers come from one seed, so that one bit would show."""
_SEED = 17


def halves(function: Any, statements: int, within: str = "") -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a user's function as two, divided behind so many statements.

    Args:
        function: of the map.
        statements: of it, or of the function that it calls.
        within: the name of that function; empty where it is divided itself.

    Raises:
        PipelineBenchError: it cannot be.
    """
    try:
        defined = _defined(function)
        ways = _splits_of(defined, function_halves.splits_within if within else function_halves.splits)
        if (found := function_halves.chosen(ways, statements, within)) is not None:
            return _both(defined, found)
    except CannotSplitError as error:
        raise PipelineBenchError(f"the map's function cannot be divided: {error}") from None
    raise PipelineBenchError(f"the map's function cannot be divided behind {statements} statements")


_InTime = Callable[[Iterable[Split]], Iterator[Split]]
"""Yields divisions as long as there is time to look at them."""


def with_splits(
    recipe: Recipe, seconds: float = math.inf, alive: Callable[[], None] = lambda: None
) -> tuple[Stage, ...]:
    """Return the stages, of each random map with what is known of dividing its function; not of one that is cached.

    Args:
        recipe: of the pipeline.
        seconds: no further division is looked at after that time.
        alive: called before each of them, as a sign of life: it is traced.
    """
    end_s = time.monotonic() + seconds

    def in_time(ways: Iterable[Split]) -> Iterator[Split]:
        for each in ways:
            alive()
            if time.monotonic() > end_s:
                return
            yield each

    caches = [stage for stage in recipe.stages if stage.method in KEEPING]
    cached = upstream(recipe.calls, [before for stage in caches for before in stage.inputs])
    return tuple(
        stage if stage.id in cached or stage.method != "map" else _with_split(recipe, stage, in_time)
        for stage in recipe.stages
    )


def _with_split(recipe: Recipe, stage: Stage, in_time: _InTime) -> Stage:
    if stage.function is None or not stage.function.random:
        return stage
    if stage.function.row_copies:  # every graph of it takes long to make, and what it does to batches is kept nowhere
        return stage
    try:
        found = _division(recipe, recipe.calls[stage.id], in_time)
    except CannotSplitError as reason:
        found = {"undivided": one_line(str(reason), REASON)}
    except Exception as error:  # of the user's code
        found = {"undivided": one_line(f"its two parts fail: {user_code.summary(error)}", REASON)}
    function: UserFunction = stage.function.model_copy(update=found)
    return stage.model_copy(update={"function": function})


def _division(recipe: Recipe, call: RecordedCall, in_time: _InTime) -> dict[str, Any]:
    """Return the fields of a `UserFunction` that say where a random map's function can be divided.

    Raises:
        CannotSplitError: nowhere.
    """
    dataset, defined = recipe.dataset(recipe.same_kind_before(call)), _defined(call.function)
    _check_names(defined.plain, defined.owner)
    wanted, own = call.result.element_spec, iter(list[Split]())
    try:
        own = in_time(_splits_of(defined, function_halves.splits))
        whole, reason = _longest(dataset, wanted, defined, own), ""
    except CannotSplitError as error:
        whole, reason = None, str(error)
    within = _splits_of(defined, function_halves.splits_within)
    of_call = (
        next(map(_ahead, within), 0) if whole is None else whole[0].statements
    )  # which the first drawing one makes
    ways = in_time([each for each in within if _ahead(each) == of_call])
    try:
        found = _proven(dataset, call.function, defined, *_longest(dataset, wanted, defined, ways))
    except Exception:  # of the user's code, or it is not proven
        if whole is None:
            raise CannotSplitError(reason) from None
        found, ways = _proven(dataset, call.function, defined, *whole), own
    return {**found, "fixed_smaller": _smaller(dataset, call, defined, ways, found["fixed_bytes"] / 2)}


def _smaller(
    dataset: Any, call: RecordedCall, defined: DefinedFunction, ways: Iterable[Split], most_bytes: float
) -> FixedPart | None:
    """Return the first of shorter divisions that hands over so many bytes or fewer; None where none is proven."""
    inputs = _some(dataset)
    for split in ways:
        with suppress(Exception):  # of the user's code, or it is not proven
            if _handed_over(inputs, _both(defined, split)[0]) <= most_bytes:
                part = _longest(dataset, call.result.element_spec, defined, [split])
                return FixedPart(**_proven(dataset, call.function, defined, *part))
    return None


def _ahead(split: Split) -> int | None:
    return None if split.within is None else split.within.ahead


def _longest(dataset: Any, wanted: Any, defined: DefinedFunction, ways: Iterable[Split]) -> tuple[Split, UserFunction]:
    """Return the first division of which the fixed part does the same whenever it runs, and what is known of that part.

    Args:
        dataset: in front of the map.
        wanted: the spec of what the map gives.
        defined: the definition of the map's function.
        ways: the divisions, the best first.

    Raises:
        CannotSplitError: there is none.
    """
    reason = ""
    for split in ways:
        try:
            handed = len(split.crossing) + len(split.gives) - 1
            part = _fixed_part(dataset, wanted, *_both(defined, split), handed)
        except CannotSplitError as error:
            reason = str(error)
        except Exception as error:  # of the user's code: what crosses is no tensor, or has no value yet
            reason = f"its two parts fail: {user_code.summary(error)}"
        else:
            return split, part
    raise CannotSplitError(reason or "no time was left to trace its parts")


def _proven(dataset: Any, whole: Any, defined: DefinedFunction, split: Split, part: UserFunction) -> dict[str, Any]:
    """Return the fields of a `UserFunction` for a division, where both parts give what the whole gives.

    Args:
        dataset: in front of the map.
        whole: the map's function.
        defined: its definition.
        split: the division.
        part: what is known of its fixed part.

    Raises:
        CannotSplitError: they give something else.
    """
    size_bytes = _prove(dataset, whole, *_both(defined, split))
    return {
        "fixed_statements": split.statements,
        "fixed_within": "" if split.within is None else split.within.name,
        "fixed_up_to": f"line {split.line} of {PurePath(defined.plain.__code__.co_filename).name}",
        "fixed_bytes": size_bytes,
        "fixed_reads": part.stateful,
    }


def _fixed_part(
    dataset: Any, wanted: Any, first: Callable[..., Any], second: Callable[..., Any], handed: int
) -> UserFunction:
    """Return what the graph of a first half tells of it.

    Args:
        dataset: in front of the map.
        wanted: the spec of what the map gives.
        first: the first half.
        second: the second half.
        handed: how many values the second half takes from the first.

    Raises:
        CannotSplitError: it draws random numbers, runs Python or changes a state; what it hands over is no tensor, and
            would be one behind a map, or one dict twice; or both maps give other static shapes than the whole.
    """
    seen: list[Any] = []

    def traced(*args: Any) -> Any:
        value = first(*args)
        seen.append(value)
        return value

    fixed = dataset.map(traced)
    found = describe.function(first, fixed)
    never = {"draws random numbers": found.random, "runs Python": found.python, "changes a state": found.changes_state}
    if does := next((does for does, applies in never.items() if applies), ""):
        raise CannotSplitError(f"its first line {does} already")
    crossing = seen[-1] if handed > 1 else (seen[-1],)  # else a map would spread a tuple that crosses alone
    if not all(map(function_halves.stays_as_it_is, crossing)):
        raise CannotSplitError("what crosses from its fixed part to its random one is not all tensors")
    dicts = [*function_halves.dicts(crossing)]
    if len({*dicts}) < len(dicts):  # behind a map these are two, and a change of one is lost
        raise CannotSplitError("one dict crosses from its fixed part to its random one twice")
    if fixed.map(second).element_spec != wanted:
        raise CannotSplitError("its two parts give other static shapes than the whole")
    return found


def _prove(dataset: Any, whole: Any, first: Callable[..., Any], second: Callable[..., Any]) -> float:
    """Compare both halves, one after the other in one graph, with the whole on the same inputs and one seed.

    Returns:
        The bytes that the first half gives for an element, on average.

    Raises:
        CannotSplitError: they give something else, or the whole itself does not give the same twice.
    """
    inputs = _some(dataset)
    together = composing.composed([first, second])
    one, again, divided = (_values(inputs, each, whole) for each in (whole, whole, together))
    if one != again:
        raise CannotSplitError("a seed does not repeat its random numbers, so that its halves cannot be compared to it")
    if divided != one:
        raise CannotSplitError("its two parts, one after the other, give other values than the whole")
    return _handed_over(inputs, first)


def _some(dataset: Any) -> Any:
    """Return a dataset of the first elements of another one, the same in each pass."""
    iterator, taken = throughput.FlatIterator(dataset.take(_COMPARED)), []
    with suppress(StopIteration):  # what is in front may give others in each pass: files in any order
        while True:
            taken.append(iterator.take())
    return throughput.KeptElements(dataset.element_spec, taken).dataset()


def _handed_over(inputs: Any, first: Callable[..., Any]) -> float:
    """Return the bytes that a first half gives for an element, on average."""
    sizes = [describe.nbytes(each) for each in inputs.map(first)]
    return sum(sizes) / max(len(sizes), 1)


@contextmanager
def _traced_anew(whole: Any) -> Iterator[None]:
    """Trace the `tf.function`s in a function's module again: an op has its seed from when it is made.

    Python's and NumPy's numbers, which are drawn while a function is traced, come from one seed as well.
    """
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    kept = {name: each for name, each in whole.__globals__.items() if isinstance(each, Function)}
    user_code.seed_python(_SEED)
    whole.__globals__.update({name: each._clone(each.python_function) for name, each in kept.items()})
    try:
        yield
    finally:
        whole.__globals__.update(kept)


def _values(dataset: Any, function: Any, whole: Any) -> list[Any]:
    """Return what a function gives, with one seed: each component's path, type and bytes.

    Args:
        dataset: of the inputs, the same in each pass.
        function: the user's, or its two halves.
        whole: the user's.
    """
    import tensorflow as tf

    tf.random.set_seed(_SEED)
    # A map that runs on several threads would share one stream of random numbers among them in any order.
    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False
    with _traced_anew(whole):
        elements = list(dataset.map(function).with_options(options))
    parts = [pair for each in elements for pair in describe.components(each)]
    return [(path, *_bytes(part)) for path, value in parts for part in tf.nest.flatten(value, expand_composites=True)]


def _bytes(tensor: Any) -> tuple[str, tuple[int, ...], Any]:
    array = tensor.numpy()
    plain = array if isinstance(array, bytes) else array.tolist() if array.dtype == object else array.tobytes()
    return tensor.dtype.name, tuple(tensor.shape), plain


def _splits_of(found: DefinedFunction, ways: Callable[..., list[Split]]) -> list[Split]:
    """Return the divisions of a function, by one of the functions of `function_halves`."""
    code = found.plain.__code__
    text = "".join(linecache.getlines(code.co_filename))
    return ways(text, found.plain.__name__, code.co_firstlineno, found.called, bool(found.owner))


def _defined(function: Any) -> DefinedFunction:
    found = map_functions.defined(function)
    if found is None:
        raise CannotSplitError(_NOT_DEFINED)
    return found


def _check_names(function: Any, owner: tuple[Any, ...] = ()) -> None:
    """Raise `CannotSplitError` where a name for a half is taken, as by a base class in another file.

    Args:
        function: that is divided.
        owner: the object whose method it is, in a tuple; empty of any other function.
    """
    names = [f"{function.__name__}{end}" for ends in function_halves.NAME_ENDS for end in ends]
    taken = [each for each in names if (hasattr(owner[0], each) if owner else each in function.__globals__)]
    if taken:
        raise CannotSplitError(f"{taken[0]}, a name for one of its two parts, is taken")


def _both(found: DefinedFunction, split: Split) -> tuple[Callable[..., Any], Callable[..., Any]]:
    name = found.plain.__name__
    called = {} if split.within is None else _called_halves(found.plain, split.within)
    one, other = [*called, "", ""][:2]
    first = _compiled(found.plain, split.fixed(f"{name}_fixed", one), f"{name}_fixed", split.statements, called)
    second = _compiled(found.plain, split.random(f"{name}_random", other), f"{name}_random", split.statements, called)
    spread = len(split.crossing) > 1
    return found.of_elements(first, split.given[0], spread), found.of_elements(second, split.given[1])


def _called_halves(function: Any, within: Within) -> dict[str, FunctionType]:
    """Return both halves of the function that another one calls, by name.

    Raises:
        CannotSplitError: what it calls by that name is not the function of that definition.
    """
    plain, name, split = map_functions.value(function, within.name), within.name, within.split
    place = function.__code__.co_filename, within.line
    if not isinstance(plain, FunctionType) or (plain.__code__.co_filename, plain.__code__.co_firstlineno) != place:
        raise CannotSplitError(f"{name}, which it calls, is another function than the one of its file")
    _check_names(plain)
    return {
        f"{name}_fixed": _compiled(plain, split.fixed(f"{name}_fixed"), f"{name}_fixed", split.statements, {}),
        f"{name}_random": _compiled(plain, split.random(f"{name}_random"), f"{name}_random", split.statements, {}),
    }


def _compiled(function: Any, text: str, name: str, statements: int, around: Mapping[str, FunctionType]) -> FunctionType:
    """Return a definition as a function with the variables around another; its text is where AutoGraph looks for it.

    Args:
        function: the other one.
        text: of the definition.
        name: that it defines.
        statements: behind how many the other one is divided.
        around: functions that it gets as variables around it, besides.
    """
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells |= {each: CellType(half) for each, half in around.items()}
    if cells:
        text = f"def _around({', '.join(cells)}):\n{textwrap.indent(text, '    ')}"
    file = f"<{name} {statements} of {function.__code__.co_filename}:{function.__code__.co_firstlineno}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    code = next(
        each
        for each in function_calls.inner_codes(compile(text, file, "exec", dont_inherit=True))
        if each.co_name == name
    )
    closure = tuple(cells[each] for each in code.co_freevars)
    return FunctionType(code, function.__globals__, name, None, closure)
