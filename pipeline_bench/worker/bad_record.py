"""Finds the record that a trial failed at: TensorFlow's errors say what is wrong with one, but not which it is.

Outside the measured time the records are read and decoded once more, one by one, from where training was.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.sources import RecordError, Source
from pipeline_bench.sources.records import RecordSource, undecodable
from pipeline_bench.text import message_of, one_line, safe_message
from pipeline_bench.worker.sample_audit import SKIPPED_RECORDS_KEPT

_MOST_S = 20.0
# Of the stall timeout: the watch of the trial must not take the search for a hang.
_TIMEOUT_SHARE = 0.5

_SAYS_NOTHING = ("Graph execution error", "Detected at", "File ", "Node:", "in user code:")
_IN_TENSORFLOW = re.compile(r"\{\{.*?\}\}\s*|\s*\[\[\{\{.*?\}\}\]\]|\s*\[Op:\w+\]")
# Of "Could not parse example input, value: '…'", which quotes the whole record.
_FOREIGN_BYTES = re.compile(r", value: '.*", re.DOTALL)
_OF_PYTHON = re.compile(r"\bRecordError: (.+)")

TryOne = Callable[[int], str | None]
"""Reads and decodes the record with an index: what is wrong with it, as a sentence that names it, or None."""


def search_limit_s(stall_timeout_s: float) -> float:
    """Return how long a search may take, in seconds."""
    return min(_MOST_S, _TIMEOUT_SHARE * stall_timeout_s)


@contextmanager
def named(source: Source, config: Any, first: Callable[[], int], limit_s: float) -> Iterator[None]:
    """Put file and record in front of an error of TensorFlow's, where it is one of a record.

    Args:
        source: whose records were trained on.
        config: the ConfigProto of the trial's session.
        first: gives the index of the record to begin the search with; called when there is an error.
        limit_s: how long the search may take, in seconds.

    Raises:
        RecordError: the record at fault was found.
        PipelineBenchError: it was not; the error as it was, and how many records were tried.
    """
    import tensorflow as tf

    try:
        yield
    except tf.errors.ResourceExhaustedError:
        raise
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        message = _message(error)
        if of_python := _OF_PYTHON.search(message):
            raise RecordError(of_python[1].strip()) from error
        if not isinstance(source, RecordSource):
            raise
        begin = first()
        if fault := _fault_in(source, message):
            raise RecordError(fault) from error
        with _trying(source, config) as try_one:
            found, tried = search(_indices(begin, source.records), try_one, limit_s)
        if found is not None:
            raise RecordError(found) from error
        traceback.print_exc()  # the message of the trial is then all that is known of it
        raise PipelineBenchError(_not_found(explained(error), tried, source.records)) from error


def search(
    indices: Iterable[int], try_one: TryOne, limit_s: float, clock: Callable[[], float] = time.monotonic
) -> tuple[str | None, int]:
    """Try one record after another, at most for `limit_s` seconds, until something is wrong with one.

    Returns:
        What is wrong with it, as a sentence that names it, or None; how many were tried.
    """
    end_s = clock() + limit_s
    tried = 0
    for index in indices:
        if tried and clock() >= end_s:
            break
        found = try_one(index)
        tried += 1
        if found is not None:
            return found, tried
    return None, tried


def enter_skipped(source: Source, session: Any, config: Any) -> None:
    """Enter the records that the graph left out into `SampleSource.skipped`, the first ones with what is wrong."""
    if not isinstance(source, RecordSource) or not source.skips:
        return
    indices = [index for index in undecodable(session) if index not in source.skipped]
    if not indices:
        return
    with _trying(source, config) as try_one:
        for i, index in enumerate(indices):
            found = try_one(index) if i < SKIPPED_RECORDS_KEPT else None
            source.skipped[index] = found or f"{source.name_of(index)} cannot be decoded."


def explained(error: BaseException) -> str:
    """Return the exception as a reader wants it: its type and the first line of its message that says anything."""
    if isinstance(error, PipelineBenchError):
        return error.in_full
    return f"{type(error).__name__}: {_first_line(error)}".removesuffix(": ")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in _message(error).splitlines()]
    return next((line for line in lines if line and not line.startswith(_SAYS_NOTHING)), "")


def _fault_in(source: RecordSource, message: str) -> str | None:
    try:
        return source.fault_in(message)
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}."


def _message(error: BaseException) -> str:
    """Return an error's message; bytes that are no text hide TensorFlow's own error behind a UnicodeDecodeError."""
    if isinstance(error, UnicodeDecodeError):
        return safe_message(_FOREIGN_BYTES.sub("", error.object.decode(errors="replace")))
    of_tensorflow = getattr(error, "message", None)
    return safe_message(of_tensorflow) if of_tensorflow and isinstance(of_tensorflow, str) else message_of(error)


def _indices(first: int, records: int) -> Iterator[int]:
    """Return the index of every record once, from the first one on."""
    return ((first + offset) % records for offset in range(records))


def _not_found(text: str, tried: int, records: int) -> str:
    tries = f"all {records:,}" if tried == records else f"{tried:,} of {records:,}"
    return f"{text} ({tries} records of the source were read and decoded once more: nothing is wrong with them)"


@contextmanager
def _trying(source: RecordSource, config: Any) -> Iterator[TryOne]:
    """Give a function that reads a record in Python and decodes it by TensorFlow, in a graph of its own."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        at = v1.placeholder(tf.int64, [])
        raw = tuple(v1.placeholder(spec.dtype, spec.shape) for spec in source.raw_specs)
        decoded = source.decode_shaped_op(at, raw)
        prepared = v1.tables_initializer()
        with v1.Session(config=config) as session:
            session.run(prepared)

            def try_one(index: int) -> str | None:
                try:
                    session.run(
                        [part.op for part in decoded], {at: index, **dict(zip(raw, source.load(index), strict=True))}
                    )
                except RecordError as error:
                    return error.message
                except (tf.errors.OpError, UnicodeDecodeError) as error:
                    reason = one_line(_IN_TENSORFLOW.sub("", _first_line(error)).strip().rstrip("."))
                    return f"{source.name_of(index)} cannot be decoded: {reason}."
                return None

            yield try_one
