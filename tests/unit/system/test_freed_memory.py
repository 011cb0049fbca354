"""What malloc keeps, in a process of its own: there is no way back."""

import os
import platform
import subprocess
import sys

import pytest

from pipeline_bench.system.freed_memory import SETTINGS

FAULTS = """
import ctypes, sys
from pipeline_bench.system import freed_memory

def touch():
    "Have a block of 32 MiB, write to each page, and free it."
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    block = libc.malloc(1 << 25)
    ctypes.memset(block, 1, 1 << 25)
    libc.free(block)

if "keep" in sys.argv:
    assert freed_memory.keep()
ctypes.CDLL(None).mallopt(-3, 1 << 17)  # as TensorFlow's generator_dataset_op does
touch()
before = freed_memory.page_faults()
for _ in range(10):
    touch()
print(freed_memory.page_faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has another malloc")
@pytest.mark.parametrize(("words", "settings", "kept"), [([], "", False), (["keep"], "", True), ([], SETTINGS, True)])
def test_blocks_that_are_kept_need_no_new_pages(words: list[str], settings: str, kept: bool) -> None:
    environment = {**os.environ, **dict(each.split("=") for each in settings.split())}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, *words], env=environment, capture_output=True, text=True, check=True
    )
    pages = 10 * (1 << 25) // os.sysconf("SC_PAGE_SIZE")
    assert (int(done.stdout) < pages / 10) == kept
