"""What the loop native makes of its program's messages, which come in whatever order its threads wrote them."""

from __future__ import annotations

import os
import resource
import struct
from typing import Any

import pytest

from pipeline_bench.loops.native import NativeLoop, _wait_for_start

DONE = struct.pack("=ii", 5, 0)
FAR = 1100
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


def test_a_pipe_behind_many_open_files_is_waited_for() -> None:
    """`select.select` refuses descriptors from 1024 on."""
    read, write = os.pipe()
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most <= FAR:
        pytest.skip(f"a process may have {most} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, FAR + 1), most))
    record: Any = None
    try:
        os.dup2(read, FAR)
        os.write(write, SIZES)
        _wait_for_start(FAR, record)
    finally:
        for each in (read, write, FAR):
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
