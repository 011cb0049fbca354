"""What the loop native makes of its program's messages, which come in whatever order its threads wrote them."""

from __future__ import annotations

import os
import struct
from typing import Any

import pytest

from pipeline_bench.loops.native import NativeLoop

DONE = struct.pack("=ii", 5, 0)
SIZES = struct.pack("=iiq", 3, 8, 4)


def has_come_to_its_end(content: bytes) -> bool:
    """What the loop says of a program that wrote this and closed its pipe."""
    loop: Any = NativeLoop()
    loop._fetched = object()  # no step comes
    read, write = os.pipe()
    try:
        os.write(write, content)
        os.close(write)
        ended: bool = loop._take(read, None)
    finally:
        os.close(read)
    return ended


@pytest.mark.parametrize(
    ("content", "ended"), [(SIZES + DONE, True), (DONE + SIZES, True), (SIZES, False), (b"", False)]
)
def test_a_program_has_come_to_its_end_when_it_said_so(content: bytes, ended: bool) -> None:
    """The thread that tells the queues' sizes may add to the last block."""
    assert has_come_to_its_end(content) == ended
