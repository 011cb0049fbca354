"""What the program without Python writes down, read from its pipe; `stream.h` says how it lies there."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.text import units

_HEAD = struct.Struct("=ii")
_STEP_HEAD = struct.Struct("=qqq")
_FAILURE_HEAD = struct.Struct("=ii")
_READ_BYTES = 1 << 20


class Ready(NamedTuple):
    """The session is open and has its variables."""


class Step(NamedTuple):
    """One training step; times in ns of ``time.monotonic_ns``, and what it fetched, float64 [n]."""

    start_ns: int
    end_ns: int
    sampled: bool
    values: Any


class Sizes(NamedTuple):
    """How many elements each queue of the input holds."""

    each: Sequence[int]


class Failure(NamedTuple):
    """Why the program ends: TensorFlow's error code, 0 where it is none of TensorFlow's, and what it says."""

    code: int
    in_training: bool
    text: str


class Done(NamedTuple):
    """The steps have been run and the variables written."""


Message = Ready | Step | Sizes | Failure | Done


def messages(read: int) -> Iterator[Message]:
    """What comes out of the pipe, message by message, until the other end is closed; an unfinished one is dropped.

    Raises:
        PipelineBenchError: it is nothing that the program writes.
    """
    pending = b""
    while block := os.read(read, _READ_BYTES):
        pending += block
        at = 0
        while len(pending) - at >= _HEAD.size:
            kind, length = _HEAD.unpack_from(pending, at)
            end = at + _HEAD.size + length
            if end > len(pending):
                break
            yield _message(kind, pending[at + _HEAD.size : end])
            at = end
        pending = pending[at:]


def _message(kind: int, content: bytes) -> Message:
    """A message by its kind, in the numbers of `stream.h`."""
    match kind:
        case 1:
            return Ready()
        case 2:
            start_ns, end_ns, sampled = _STEP_HEAD.unpack_from(content)
            return Step(start_ns, end_ns, bool(sampled), np.frombuffer(content, np.float64, offset=_STEP_HEAD.size))
        case 3:
            return Sizes(struct.unpack(f"={len(content) // 8}q", content))
        case 4:
            code, training = _FAILURE_HEAD.unpack_from(content)
            return Failure(code, bool(training), content[_FAILURE_HEAD.size :].decode(errors="replace"))
        case 5:
            return Done()
    raise PipelineBenchError(f"The native program wrote a message of the kind {kind}, which there is not.")


def how_ended(code: int) -> str:
    """An exit code in words: ``was killed by SIGKILL``, ``ended with the exit code 2``."""
    if code >= 0:
        return f"ended with the exit code {code}"
    return f"was killed by {units.signal_name(-code)}"
