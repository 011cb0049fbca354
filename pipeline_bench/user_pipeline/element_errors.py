"""What the user's own code raised while elements were taken, in the user's own words.

tf.data wraps an exception of a map function or a generator in an error of its own, with Python's traceback as text
inside where there was Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline_bench.errors import PipelineBenchError, UserCodeError
from pipeline_bench.text import FIELD_CHARACTERS, message_of, said

_NODES = re.compile(r"\{\{(?:function_node|node) [^}]*\}\}\s*")
_OPERATION = re.compile(r"\s*\[Op:\w+\](?: name:.*)?\s*$")
_ITERATOR = re.compile(
    r"^Error in user-defined function passed to \w+(?::\d+)? transformation with iterator: [\w:\[\]]+: "
)
_NODE_LIST = re.compile(r"\s*\[\[[^\]]*\]\]\s*$")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line \d+')
_LONGEST_MESSAGE = 600
_NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "<__array_function__")
_TRACEBACK = "Traceback (most recent call last):"
_CREATED_AT = re.compile(r"Detected at node .* defined at \(most recent call last\):.*", re.DOTALL)


def of(error: BaseException) -> UserCodeError:
    """The error of an op of the user's pipeline, as one of the user's code.

    The message is the last line of what Python raised, or what the op says; the traceback holds the frames that are
    the user's.
    """
    of_tensorflow = getattr(error, "message", "")
    whole = said(of_tensorflow, FIELD_CHARACTERS) if of_tensorflow else message_of(error)
    text = _OPERATION.sub("", _NODES.sub("", whole)).strip()
    text = _NODE_LIST.sub("", _ITERATOR.sub("", text))
    head, marker, rest = text.partition(_TRACEBACK)
    if not marker:
        return UserCodeError(_message(text, error))
    frames, last = _python(rest)
    traceback = "\n".join([_TRACEBACK, *frames, *last]) if frames else ""
    return UserCodeError(_message(last[0] if last else head, error), traceback=traceback)


@contextmanager
def named() -> Iterator[None]:
    """Raise what the user's pipeline raises inside the block as `UserCodeError`.

    Raises:
        UserCodeError: an op of the pipeline failed.
    """
    import tensorflow as tf

    try:
        yield
    except (PipelineBenchError, StopIteration):
        raise
    except tf.errors.OpError as error:
        raise of(error) from error


def _message(text: str, error: BaseException) -> str:
    words = _CREATED_AT.sub("", text).strip()
    line = " ".join(words.split())[:_LONGEST_MESSAGE]
    kind = type(error).__name__
    return f"The pipeline failed while its elements were taken: {line or kind}"


def _python(text: str) -> tuple[list[str], list[str]]:
    """The user's frames of a traceback as text, and the lines after the frames."""
    frames: list[str] = []
    after: list[str] = []
    keep = False
    for line in text.splitlines():
        if line.strip().startswith("[[") or not line.strip():
            continue
        found = _FRAME.match(line)
        if found:
            keep = not any(part in found["file"] for part in _NOT_THE_USERS)
        if line.startswith(" "):
            if keep:
                frames.append(line.rstrip())
        else:
            keep = False
            after.append(line.rstrip())
    return frames, after
