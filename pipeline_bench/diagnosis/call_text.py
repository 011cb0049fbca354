"""The text of calls of tf.data: their arguments by name and position, and how values are written. Pure."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence

from pipeline_bench.diagnosis.source_chain import Source, UntoldError
from pipeline_bench.user_pipeline import AUTOTUNE, PrefetchToDevice, SetOptions, Value

_FILES = ("filenames", "compression_type", "buffer_size", "num_parallel_reads")
PARAMETERS: dict[str, tuple[str, ...]] = {
    "map": ("map_func", "num_parallel_calls", "deterministic"),
    "flat_map": ("map_func",),
    "interleave": ("map_func", "cycle_length", "block_length", "num_parallel_calls", "deterministic"),
    "filter": ("predicate",),
    "batch": ("batch_size", "drop_remainder", "num_parallel_calls", "deterministic"),
    "padded_batch": ("batch_size", "padded_shapes", "padding_values", "drop_remainder"),
    "shuffle": ("buffer_size", "seed", "reshuffle_each_iteration"),
    "prefetch": ("buffer_size",),
    "cache": ("filename",),
    "repeat": ("count",),
    "take": ("count",),
    "skip": ("count",),
    "TFRecordDataset": _FILES,
    "TextLineDataset": _FILES,
    "list_files": ("file_pattern", "shuffle", "seed"),
}
"""The first parameters of tf.data's calls in their order, TensorFlow 2.21, for arguments that are given by position."""
_TUNABLE = {"num_parallel_calls", "num_parallel_reads", "cycle_length", "buffer_size"}
"""Arguments that take AUTOTUNE."""


def value_text(argument: str, value: Value) -> str:
    """A value as Python: ``tf.data.AUTOTUNE``, ``16``, ``"cache"``, ``None``."""
    if value == AUTOTUNE and not isinstance(value, bool) and argument in _TUNABLE:
        return "tf.data.AUTOTUNE"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def arguments_text(method: str, arguments: Mapping[str, Value], prefix: str) -> str:
    """The arguments of a new call; the first parameter by position, ``repeat(-1)`` as ``repeat()``."""
    first = PARAMETERS[method][0]
    said: list[str] = []
    for name, value in arguments.items():
        if method == "repeat" and value in (None, -1):
            continue
        text = value_text(name, value).replace("tf.data.", prefix)
        said.append(text if name == first and not said else f"{name}={text}")
    return ", ".join(said)


def argument_node(call: ast.Call, argument: str) -> ast.expr | None:
    """What a call gives for an argument, by name or by position; None where it gives nothing.

    Raises:
        UntoldError: arguments come out of a sequence, so that positions do not tell.
    """
    for keyword in call.keywords:
        if keyword.arg == argument:
            return keyword.value
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    parameters = PARAMETERS.get(name, ())
    if any(isinstance(each, ast.Starred) for each in call.args):
        raise UntoldError("its arguments are in a sequence")
    place = parameters.index(argument) if argument in parameters else len(call.args)
    return call.args[place] if place < len(call.args) else None


def keywords(source: Source, call: ast.Call) -> tuple[int, str]:
    """Where a call takes another keyword: the offset, and what comes before it."""
    close = source.end(call) - 1
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not given:
        return close, ""
    last = max(given, key=source.end)
    begun = source.start(last)
    for keyword in call.keywords:
        if keyword.value is last:
            begun = source.at(keyword.lineno, keyword.col_offset)
    place = source.after_brackets(source.end(last), close)
    indent = source.bytes[source.line_start(begun) : begun]
    own_line = not indent.strip() and source.line_start(begun) > source.start(call)
    if own_line and b"#" not in source.bytes[place:close]:
        return place, f",{source.new_line.decode()}{indent.decode()}"
    return place, ", "


def fused(source: Source, functions: Sequence[ast.expr], unpacked: Sequence[bool]) -> Callable[[], bytes]:
    """One function of consecutive maps' functions: ``lambda *x: g(*f(*x))``.

    Args:
        source: the file that they are in.
        functions: upstream first.
        unpacked: whether what each of them but the last gives is a tuple, which the next one takes as its arguments.
    """

    def text() -> bytes:
        inner = b"*x"
        for function, star in zip(functions, [*unpacked, False], strict=True):
            own = source.slice(source.start(function), source.end(function))
            called = own if isinstance(function, ast.Name | ast.Attribute | ast.Call) else b"(" + own + b")"
            inner = (b"*" if star else b"") + called + b"(" + inner + b")"
        return b"lambda *x: " + inner

    return text


def options_lines(edit: SetOptions, name: str, prefix: str) -> list[str]:
    """The statements that make the options."""
    given = [f"{name}.{key} = {value_text(key, value)}" for key, value in edit.options.items()]
    return [f"{name} = {prefix}Options()", *given]


def device_call(edit: PrefetchToDevice, prefix: str) -> str:
    """The call that hands elements to the first GPU ahead of time."""
    size = "" if edit.buffer_size == AUTOTUNE else f", buffer_size={edit.buffer_size}"
    return f'.apply({prefix}experimental.prefetch_to_device("/GPU:0"{size}))'
