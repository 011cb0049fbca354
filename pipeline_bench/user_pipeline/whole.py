"""The whole pipeline as written, run for a moment: its elements, what AUTOTUNE sets, what it reads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_bench.errors import UserCodeError
from pipeline_bench.user_pipeline import Inspection, Stage, Tuned, autotune, consumers, disk, elements, user_code

_ELEMENTS_WEIGHED = 64
_NAMES_LOOKED_AT = 64
_LONGEST_NAME = 4096
_LONG_FIRST = 3
"""Where the first element takes so many times the time for all of them, it must do."""


class Ran(NamedTuple):
    """What a moment's run showed."""

    element_bytes: float
    batch_size: int | None
    first_ns: float
    tuned: tuple[Tuned, ...]
    read_bytes: float | None
    files: tuple[str, ...]

    def entered(self, inspection: Inspection) -> Inspection:
        """The inspection with these figures."""
        return inspection.model_copy(update=self._asdict())


def run(
    dataset: Any,
    stages: Sequence[Stage],
    sink: int,
    seconds: float,
    scratch: Path,
    alive: Callable[[], None] = lambda: None,
) -> Ran:
    """Take elements for so long, at least one.

    Args:
        dataset: the pipeline as written.
        stages: of it.
        sink: the last one's id.
        seconds: how long, from the first element on; it alone where it took very long.
        scratch: where files are this program's own.
        alive: called for every element, as a sign of life.

    Raises:
        UserCodeError: it gives no element, or fails.
    """
    with user_code.element_errors(), disk.OpenFiles(apart_from=[scratch]) as opened:
        read_before = disk.bytes_read()
        start_ns = time.perf_counter_ns()
        iterator = iter(dataset)
        element = next(iterator, None)
        if element is None:
            raise UserCodeError(consumers.NO_ELEMENT, "Check its files and filters.")
        first_ns = float(time.perf_counter_ns() - start_ns)
        alive()
        batch_size = elements.batch_size(element)
        watch = autotune.Watch(iterator)
        sizes = [elements.nbytes(element)]
        count = 1
        end_s = time.monotonic() + (seconds if first_ns < _LONG_FIRST * seconds * 1e9 else 0.0)
        while time.monotonic() < end_s:
            alive()
            element = next(iterator, None)
            if element is None:
                break
            count += 1
            if len(sizes) < _ELEMENTS_WEIGHED:
                sizes.append(elements.nbytes(element))
            watch.look()
        read_after = disk.bytes_read()
    read = None if read_before is None or read_after is None else (read_after - read_before) / count
    files = tuple(dict.fromkeys((*opened.files, *named_files(dataset))))
    return Ran(sum(sizes) / len(sizes), batch_size, first_ns, watch.told(stages, sink), read, files)


def named_files(dataset: Any) -> tuple[str, ...]:
    """The files that the sources of a dataset name: elements that are strings and lead to a file."""
    import tensorflow as tf

    found: list[str] = []
    waiting = [dataset]
    while waiting:
        one = waiting.pop()
        before = one._inputs() if hasattr(one, "_inputs") else []
        waiting += before
        spec = getattr(one, "element_spec", None)
        if before or getattr(spec, "dtype", None) != tf.string or getattr(spec, "shape", [0]) != []:
            continue
        found += _that_exist(element.numpy() for element in one.take(_NAMES_LOOKED_AT))
    return tuple(found)


def _that_exist(names: Iterable[Any]) -> list[str]:
    paths = []
    for name in names:
        if isinstance(name, bytes) and 0 < len(name) < _LONGEST_NAME and b"\0" not in name:
            path = Path(name.decode(errors="surrogateescape"))
            with contextlib.suppress(OSError):  # a line of text is no path, and a part of it too long for one
                if path.is_file():
                    paths.append(str(path.resolve()))
    return paths
