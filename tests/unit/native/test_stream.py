"""What the program without Python writes, read back however the pipe cuts it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench import native
from pipeline_bench.errors import PipelineBenchError

NUMBERS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.lists(st.floats(allow_nan=False), max_size=6)
MESSAGES = st.one_of(
    st.just(native.SessionReady()),
    st.just(native.EndMessage()),
    st.builds(native.StepMessage, NUMBERS, NUMBERS, st.booleans(), VALUES),
    st.builds(native.Sizes, st.lists(NUMBERS, max_size=4).map(tuple)),
    st.builds(native.Failure, st.integers(0, 16), st.booleans(), st.text(max_size=30)),
)


def written(message: native.Message) -> bytes:
    """As stream.h has it."""
    match message:
        case native.SessionReady():
            kind, content = 1, b""
        case native.StepMessage():
            head = struct.pack("=qqq", message.start_ns, message.end_ns, message.sampled)
            kind, content = 2, head + np.array(message.values, dtype=np.float64).tobytes()
        case native.Sizes():
            kind, content = 3, struct.pack(f"={len(message.each)}q", *message.each)
        case native.Failure():
            kind, content = 4, struct.pack("=ii", message.code, message.in_training) + message.text.encode()
        case native.EndMessage():
            kind, content = 5, b""
    return struct.pack("=ii", kind, len(content)) + content


def read_back(content: bytes) -> list[native.Message]:
    read, write = os.pipe()
    try:
        os.write(write, content)
        os.close(write)
        return list(native.messages(read))
    finally:
        os.close(read)


def plain(messages: Iterable[native.Message]) -> list[native.Message]:
    return [m._replace(values=list(m.values)) if isinstance(m, native.StepMessage) else m for m in messages]


@given(st.lists(MESSAGES, max_size=8), st.integers(1, 64), st.integers(0, 7))
def test_every_message_comes_back_and_an_unfinished_one_is_dropped(
    messages: list[native.Message], block_bytes: int, unfinished_bytes: int
) -> None:
    content = b"".join(map(written, messages)) + written(native.Sizes((1, 2)))[:unfinished_bytes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_READ_BYTES", block_bytes)
        found = plain(read_back(content))
    assert found == messages
    assert [type(message) for message in found] == [type(message) for message in messages]


def test_a_message_that_there_is_not_is_refused() -> None:
    with pytest.raises(PipelineBenchError, match="of the kind 9"):
        read_back(struct.pack("=ii", 9, 0))
