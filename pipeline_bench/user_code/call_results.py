"""What calls in the user's Python gave: the size of it, what two results have in common, and copies of them."""

from __future__ import annotations

import ast
import copy
import hashlib
import itertools
import mmap
import numbers
import sys
from collections.abc import Iterator
from typing import Any

from pipeline_bench.model.calls import Gives, MemoizableCall
from pipeline_bench.user_code import source_guards

_PLAIN = (str, bytes, numbers.Number)
"""What is no array, and has no parts; NumPy's single numbers are among the numbers."""
_PARTS_COMPARED = 16
"""Of each of two results, as of a list of frames: each with each takes long."""
_HAS_OPENED = {"filename", "format", "info", "n_frames", "tile"}
_DOES_OPENED = {"_getexif", "draft", "getexif", "seek"}
"""What a picture of Pillow's that is an open file has and does, and its copy has not, or others of."""


def memory_bytes(value: Any) -> float | None:
    """Return the memory that a result takes; None where it is nothing to keep, such as an iterator."""
    if isinstance(value, tuple | list | dict):
        sizes = [memory_bytes(each) for each in (value.values() if isinstance(value, dict) else value)]
        return None if None in sizes else sys.getsizeof(value) + sum(each for each in sizes if each is not None)
    return _picture_bytes(value) if _is_picture(value) else _part_bytes(value)


def _picture_bytes(picture: Any) -> float | None:
    """Return the memory of a picture of Pillow's; None of an open file, as one in a list of them is."""
    pixel_bytes = 1 if picture.mode in ("1", "L", "P") else 4
    return None if is_opened(picture) else float(picture.width * picture.height * pixel_bytes)


def _part_bytes(value: Any) -> float | None:
    """Return the memory of a value that has no parts."""
    import numpy as np
    import tensorflow as tf

    if isinstance(value, np.ndarray):
        base = _base_of(value)  # which is held as long as any part of it
        if value.dtype.hasobject or isinstance(base, mmap.mmap):
            return None
        return float(len(base) if isinstance(base, bytes | bytearray) else getattr(base, "nbytes", value.nbytes))
    if isinstance(value, tf.Tensor) and tf.executing_eagerly() and value.dtype != tf.string:
        return float(value.dtype.size * value.shape.num_elements())
    # A file that cannot be read gives None.
    return float(sys.getsizeof(value)) if value is None or isinstance(value, _PLAIN) else None


def digest(value: Any) -> Any:
    """Return what two results have in common only where they are the same to the last bit."""
    import numpy as np

    if isinstance(value, tuple | list):
        return type(value), tuple(map(digest, value))
    if isinstance(value, dict):
        return frozenset((key, digest(each)) for key, each in value.items())
    array = np.asarray(value)
    return array.dtype, array.shape, hashlib.sha256(array.tobytes()).digest()


def gives(value: Any) -> Gives:
    """Return what a result is, for who hands out copies of it; of what is `loaded`, before that."""
    import numpy as np
    import tensorflow as tf

    if is_opened(value):
        return "opened"
    if isinstance(value, np.ndarray) or _is_picture(value):
        return "array"
    return "constant" if isinstance(value, str | bytes | numbers.Number | np.generic | tf.Tensor) else "other"


def is_opened(value: Any) -> bool:
    """Return whether a value holds a file open, where its copy holds none, and all that it is asked for.

    So do a picture of Pillow's that is not decoded yet, and a part of an array in a file, as of
    `np.load(path, mmap_mode="r")[3]`; not most of a file, of which parts may be read later, nor one to write to.
    """
    import numpy as np

    if isinstance(value, np.ndarray):
        mapped = _base_of(value)
        return isinstance(mapped, mmap.mmap) and not value.flags.writeable and 2 * value.nbytes <= len(mapped)
    return _is_picture(value) and bool(getattr(value, "tile", None))


def _base_of(array: Any) -> Any:
    """Return what has the memory of an array: the map of a file, which it holds open, another array, or itself."""
    import numpy as np

    base = array
    while (of := base.base if isinstance(base, np.ndarray) else base.obj) is not None:
        base = of
        if not isinstance(base, np.ndarray | memoryview):
            break
    return base


def share_memory(one: Any, other: Any) -> bool:
    """Return whether two results have memory in common: as of a call that fills the same array, or picture, anew."""
    import numpy as np

    some = [list(itertools.islice(_parts(each), _PARTS_COMPARED)) for each in (one, other)]
    arrays = [[part for part in each if isinstance(part, np.ndarray)] for each in some]
    pictures = [{id(part) for part in each if _is_picture(part)} for each in some]
    return bool(pictures[0] & pictures[1]) or any(
        np.may_share_memory(left, right) for left in arrays[0] for right in arrays[1]
    )


def _parts(value: Any) -> Iterator[Any]:
    """Yield what is in a value: itself, or the values in a list, a tuple or a dictionary, and in these."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for each in value:
            yield from _parts(each)
    else:
        yield value


def asks_of_opened(call: MemoizableCall) -> bool:
    """Return whether the file of a call names what a picture that is an open file has, and a copy of it has not.

    What stands in the call itself does not count, nor a method by the name of such a value, as `str.format` is one.
    """
    nodes, end = source_guards.nodes(call.file), (call.end_line, call.end_column)
    methods = {id(each.func) for each in nodes if isinstance(each, ast.Call)}
    return any(
        each.attr in _DOES_OPENED or (each.attr in _HAS_OPENED and id(each) not in methods)
        for each in nodes
        if isinstance(each, ast.Attribute) and not (call.line, call.column) <= (each.lineno, each.col_offset) < end
    )


def loaded(value: Any) -> Any:
    """Return a value that holds no file open: with its pixels decoded, or of a map a copy in memory."""
    if not is_opened(value):
        return value
    if not _is_picture(value):
        return value.copy()
    value.load()
    return value


def _is_picture(value: Any) -> bool:
    """Return whether a value is a picture of Pillow's, which the user's code has imported then."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def are_singles(value: Any) -> bool:
    """Return whether a value is an array of 64-bit floats that 32-bit ones hold to the last bit."""
    import numpy as np

    if not isinstance(value, np.ndarray) or value.dtype != np.float64:
        return False
    with np.errstate(over="ignore"):
        return np.array_equal(value, value.astype(np.float32), equal_nan=True)


def copied(value: Any) -> Any:
    """Return a value as the diff has it handed out."""
    kind = gives(value)
    return value if kind == "constant" else value.copy() if kind == "array" else copy.deepcopy(value)
