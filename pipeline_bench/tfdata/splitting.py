"""A map's function in two: the statements before it draws random numbers, which a cache may keep, and the others.

`splits` is pure text, for the patch. `halves` compiles the same text for a trial: what is tried is what is written.
`with_splits` finds out where a function can be divided, by tracing: before the division no op may change a state, and
with one seed both halves, one after the other, must give bit for bit what the function gives.
"""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import KEEPING
from pipeline_bench.model.pipeline import Stage
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.text import REASON, one_line
from pipeline_bench.tfdata import composing, describe, map_functions, throughput, variables
from pipeline_bench.tfdata.map_functions import CalledFunction, DefinedFunction
from pipeline_bench.tfdata.recipe import Recipe, RecordedCall, upstream
from pipeline_bench.user_code import function_calls, source_guards

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LOOKS_INTO_ITSELF = frozenset({"locals", "vars", "globals", "eval", "exec", "dir", "super", "__class__"})
_NOT_PLAIN = "its parameters are not all plain names without defaults"
_NOT_DEFINED = (
    "it is no plain function, or method of its own class, of one definition, and no lambda without comments that only "
    "calls one"
)
_COMPARED = 2
"""Elements that both ways are run on: their random numbers come from one seed, so that one bit would show."""
_SEED = 17


class CannotSplitError(Exception):
    """A function cannot be divided; the message says why, as the end of a sentence."""


@dataclass(frozen=True)
class Split:
    """A function divided behind some of its statements.

    Attributes:
        statements: how many of its body belong to the first half, without the docstring.
        parameters: of the function, without those that a lambda gives the same for all elements.
        crossing: the variables that the second half takes from the first.
        bodies: the text of both halves, without indentation.
        given: what such a lambda gives, of each half the texts by parameter.
        owner: the parameter of a method that is its object, in a tuple; empty of any other function.
    """

    statements: int
    parameters: tuple[str, ...]
    crossing: tuple[str, ...]
    bodies: tuple[str, str]
    given: tuple[dict[str, str], dict[str, str]]
    owner: tuple[str, ...] = ()

    def fixed(self, name: str) -> str:
        """Return the definition of the first half, which gives what crosses."""
        takes = (*self.owner, *self.parameters, *self.given[0])
        return _definition(name, takes, f"{self.bodies[0]}return {', '.join(self.crossing)}\n")

    def random(self, name: str) -> str:
        """Return the definition of the second half, which takes what crosses."""
        return _definition(name, (*self.owner, *self.crossing, *self.given[1]), self.bodies[1])

    def mapped(self, half: int, name: str) -> str:
        """Return the text of what a map is given for a half that is defined under a name: that name, or a lambda."""
        takes, given = ", ".join((self.parameters, self.crossing)[half]), self.given[half]
        more = "".join(f", {parameter}={text}" for parameter, text in given.items())
        return f"lambda {takes}: {name}({takes}{more})" if given else name


def splits(
    text: str, name: str, line: int, called: CalledFunction | None = None, is_method: bool = False
) -> list[Split]:
    """Return every way to divide a function, the longest first half first.

    Args:
        text: of the file.
        name: of the function.
        line: where its definition begins, from 1.
        called: how the map's lambda calls the function; None where the function is the map's own.
        is_method: whether the map's function is a method of an object.

    Raises:
        CannotSplitError: there is none that is sure to do the same.
    """
    function = _found(text, name, line, is_method)
    _check(function, called is not None)
    given = _given(function, called)
    if private := variables.private([function, *map(ast.parse, given.values())]):
        raise CannotSplitError(f"it uses {min(private)}, a private name, which means another one outside of its class")
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    parameters = tuple(each.arg for each in function.args.args)
    first_element = int(is_method)
    owner, elements = parameters[:first_element], parameters[first_element : len(parameters) - len(given)]
    if any(variables.changes(function.body, each) for each in owner):
        raise CannotSplitError("it changes its object")
    lines, outer = _LINE.findall(text), map_functions.names_in(given.values())
    found, hidden = [], set[str]()
    for count in range(1, len(body)):
        first, last = body[:count], body[count:]
        if any(isinstance(each, ast.Return) for each in source_guards.own_nodes(first)):
            break
        bounds = (function.lineno, body[0].lineno - 1, first[-1].end_lineno or 0, last[-1].end_lineno or 0)
        if bounds[0] > bounds[1] or bounds[2] >= last[0].lineno:
            continue  # a line holds both
        imports = [ast.unparse(each) for each in first if isinstance(each, ast.Import | ast.ImportFrom)]
        again = "".join(f"{each}\n" for each in imports)  # a module is no tensor, and does not cross
        bodies = (_dedented(lines[bounds[1] : bounds[2]]), again + _dedented(lines[bounds[2] : bounds[3]]))
        needed = variables.needed(last)
        crossing = tuple(each for each in (*elements, *variables.bound(first, parameters)) if each in needed)
        hides = outer & {*elements, *crossing}  # as the parameters of a half's lambda
        hidden |= hides
        if crossing and len(imports) < count and not hides:
            used = [{each: given[each] for each in given if each in variables.named(part)} for part in (first, last)]
            found.append(Split(count, elements, crossing, bodies, (used[0], used[1]), owner))
    if not found and hidden:
        raise CannotSplitError(f"its lambda gives it {min(hidden)}, which is also the name of a variable in it")
    if not found:
        raise CannotSplitError("there is no line between two of its statements where it could be divided")
    return found[::-1]


def halves(function: Any, statements: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a user's function as two, divided behind so many statements.

    Raises:
        PipelineBenchError: it cannot be.
    """
    try:
        defined = _defined(function)
        found = next((each for each in _splits_of(defined) if each.statements == statements), None)
    except CannotSplitError as error:
        raise PipelineBenchError(f"the map's function cannot be divided: {error}") from None
    if found is None:
        raise PipelineBenchError(f"the map's function cannot be divided behind {statements} statements")
    return _both(defined, found)


def with_splits(recipe: Recipe) -> tuple[Stage, ...]:
    """Return the stages, of each random map with what is known of dividing its function; not of one that is cached."""
    caches = [stage for stage in recipe.stages if stage.method in KEEPING]
    cached = upstream(recipe.calls, [before for stage in caches for before in stage.inputs])
    return tuple(
        stage if stage.id in cached or stage.method != "map" else _with_split(recipe, stage, recipe.calls[stage.id])
        for stage in recipe.stages
    )


def _with_split(recipe: Recipe, stage: Stage, call: RecordedCall) -> Stage:
    if stage.function is None or not stage.function.random:
        return stage
    try:
        found = _division(recipe, call)
    except CannotSplitError as reason:
        found = {"undivided": one_line(str(reason), REASON)}
    except Exception as error:  # of the user's code
        found = {"undivided": one_line(f"its two parts fail: {user_code.summary(error)}", REASON)}
    function: UserFunction = stage.function.model_copy(update=found)
    return stage.model_copy(update={"function": function})


def _division(recipe: Recipe, call: RecordedCall) -> dict[str, Any]:
    """Return the fields of a `UserFunction` that say where a random map's function can be divided.

    Raises:
        CannotSplitError: nowhere.
    """
    dataset = recipe.dataset(recipe.same_kind_before(call))
    reason, defined = "", _defined(call.function)
    for split in _splits_of(defined):
        first, second = _both(defined, split)
        try:
            part = _fixed_part(dataset, first)
        except CannotSplitError as error:
            reason = str(error)
        except Exception as error:  # of the user's code: what crosses is no tensor, or has no value yet
            reason = f"its fixed part alone fails: {user_code.summary(error)}"
        else:
            size_bytes = _prove(dataset, call.function, first, second)
            return {"fixed_statements": split.statements, "fixed_bytes": size_bytes, "fixed_reads": part.stateful}
    raise CannotSplitError(reason)


def _fixed_part(dataset: Any, first: Callable[..., Any]) -> UserFunction:
    """Return what the graph of a first half tells of it.

    Raises:
        CannotSplitError: it draws random numbers, runs Python or changes a state; or what it hands over is no tensor,
            and would be one behind a map.
    """
    seen: list[Any] = []

    def traced(*args: Any) -> Any:
        value = first(*args)
        seen.append(value)
        return value

    found = describe.function(first, dataset.map(traced))
    never = {"draws random numbers": found.random, "runs Python": found.python, "changes a state": found.changes_state}
    if does := next((does for does, applies in never.items() if applies), ""):
        raise CannotSplitError(f"its first line {does} already")
    crossing = seen[-1] if isinstance(seen[-1], tuple) and type(seen[-1]) is tuple else (seen[-1],)
    if not all(map(_stays_as_it_is, crossing)):
        raise CannotSplitError("what crosses from its fixed part to its random one is not all tensors")
    return found


def _stays_as_it_is(value: Any) -> bool:
    import tensorflow as tf

    if type(value) is dict:
        return all(map(_stays_as_it_is, value.values()))
    return isinstance(value, tf.Tensor | tf.RaggedTensor | tf.SparseTensor)


def _prove(dataset: Any, whole: Any, first: Callable[..., Any], second: Callable[..., Any]) -> float:
    """Compare both halves, one after the other in one graph, with the whole on the same inputs and one seed.

    Returns:
        The bytes that the first half gives for an element, on average.

    Raises:
        CannotSplitError: they give something else, or the whole itself does not give the same twice.
    """
    iterator, taken = throughput.FlatIterator(dataset.take(_COMPARED)), []
    with suppress(StopIteration):  # what is in front may give others in each pass: files in any order
        while True:
            taken.append(iterator.take())
    inputs = throughput.KeptElements(dataset.element_spec, taken).dataset()
    together = composing.composed([first, second])
    one, again, divided = (_values(inputs, each, whole) for each in (whole, whole, together))
    if one != again:
        raise CannotSplitError("a seed does not repeat its random numbers, so that its halves cannot be compared to it")
    if divided != one:
        raise CannotSplitError("its two parts, one after the other, give other values than the whole")
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


def _splits_of(found: DefinedFunction) -> list[Split]:
    code = found.plain.__code__
    text = "".join(linecache.getlines(code.co_filename))
    return splits(text, found.plain.__name__, code.co_firstlineno, found.called, found.is_method)


def _defined(function: Any) -> DefinedFunction:
    found = map_functions.defined(function)
    if found is None:
        raise CannotSplitError(_NOT_DEFINED)
    return found


def _both(found: DefinedFunction, split: Split) -> tuple[Callable[..., Any], Callable[..., Any]]:
    name = found.plain.__name__
    first = _compiled(found.plain, split.fixed(f"{name}_fixed"), f"{name}_fixed", split.statements)
    second = _compiled(found.plain, split.random(f"{name}_random"), f"{name}_random", split.statements)
    return found.of_elements(first, split.given[0]), found.of_elements(second, split.given[1])


def _compiled(function: Any, text: str, name: str, statements: int) -> types.FunctionType:
    """Return a definition as a function with the variables around another; its text is where AutoGraph looks for it."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
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
    return types.FunctionType(code, function.__globals__, name, None, closure)


def _found(text: str, name: str, line: int, is_method: bool) -> ast.FunctionDef:
    try:
        tree = ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError):
        raise CannotSplitError("its file cannot be read as Python") from None
    for node in ast.walk(tree):
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.FunctionDef) and each.name == name and each.lineno == line:
                if isinstance(node, ast.ClassDef) != is_method:
                    raise CannotSplitError("it is a method, and not of the object that it is given by")
                return each
    raise CannotSplitError("it has no definition of its own by def, without a decorator")


def _given(function: ast.FunctionDef, called: CalledFunction | None) -> dict[str, str]:
    """Return what a lambda gives a function beside the elements, the texts by parameter.

    Raises:
        CannotSplitError: a default is no literal, or the function sets one of these parameters anew.
    """
    given = {} if called is None else called.given(function)
    if given is None:
        raise CannotSplitError(_NOT_PLAIN)
    if anew := variables.stored(function.body) & given.keys():
        raise CannotSplitError(f"it sets its parameter {min(anew)} anew")
    return given


def _check(function: ast.FunctionDef, may_have_defaults: bool) -> None:
    """Raise `CannotSplitError` where a function may not do the same in two halves."""
    given = function.args
    plain = not (given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs)
    plain = plain and bool(given.args) and (may_have_defaults or not given.defaults)
    reasons = {"it has a decorator": bool(function.decorator_list), _NOT_PLAIN: not plain}
    for node in (each for statement in function.body for each in ast.walk(statement)):
        if isinstance(node, ast.Global | ast.Nonlocal):
            reasons["it sets variables of other functions or of its module"] = True
        elif isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            reasons["it is a generator or a coroutine"] = True
        elif isinstance(node, ast.Name) and node.id in _LOOKS_INTO_ITSELF:
            reasons[f"it uses {node.id}"] = True
        elif isinstance(node, ast.Constant | ast.JoinedStr) and node.lineno != node.end_lineno:
            own = function.body[0]
            if not (isinstance(own, ast.Expr) and node is own.value):
                reasons["a text in it has several lines"] = True
    reason = next((each for each, applies in reasons.items() if applies), None)
    if reason is not None:
        raise CannotSplitError(reason)


def _dedented(lines: list[str]) -> str:
    """Return statements from the first column on; a comment, or what is in brackets, may begin left of them."""
    rows = "".join(lines).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    code = (row for row in rows if row.strip() and not row.lstrip().startswith("#"))
    column = next((len(row) - len(row.lstrip()) for row in code), 0)
    moved = [row.lstrip() if row[:column].strip() or not row.strip() else row[column:] for row in rows]
    return "\n".join(moved).strip("\n") + "\n"


def _definition(name: str, parameters: tuple[str, ...], body: str) -> str:
    return f"def {name}({', '.join(parameters)}):\n{textwrap.indent(body, '    ')}"
