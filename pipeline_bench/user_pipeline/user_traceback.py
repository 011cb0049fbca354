"""An exception of the user's code as they would see it: from their own first frame down, without this program's."""

from __future__ import annotations

import traceback

from pipeline_bench.text import FIELD_CHARACTERS, message_of, one_line, said
from pipeline_bench.user_pipeline import places


def text(error: BaseException) -> str:
    """The traceback with its causes, as Python prints it, made safe; a very long one is cut in the middle."""
    told = traceback.TracebackException.from_exception(error)
    _trim(told, set())
    return said("".join(told.format()).rstrip(), FIELD_CHARACTERS)


def _trim(told: traceback.TracebackException | None, seen: set[int]) -> None:
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    frames = [frame for frame in told.stack if not places.is_machinery(frame.filename)]
    while frames and places.origin(frames[0].filename) == "other":
        frames.pop(0)
    theirs = [frame for frame in frames if not _of_tensorflow(frame.filename)]
    frames = theirs or frames  # TensorFlow says in its message which lines of a traced function it means
    told.stack = traceback.StackSummary.from_list(frames)
    _trim(told.__cause__, seen)
    _trim(told.__context__, seen)
    for inner in told.exceptions or ():  # of an ExceptionGroup
        _trim(inner, seen)


def _of_tensorflow(file: str) -> bool:
    return places.origin(file) == "tensorflow" or places.is_converted(file)


def message(error: BaseException, limit: int = 300) -> str:
    """What an exception says, in one line with its type: ``ValueError: no such file``.

    Of the trace that TensorFlow puts into the message of an error in a traced function, only its end is kept.
    """
    name = type(error).__name__
    words = message_of(error).strip()
    if words.startswith("in user code:"):
        words = words.splitlines()[-1].strip().removeprefix(f"{name}: ")
    return one_line(f"{name}: {words}" if words else name, limit)
