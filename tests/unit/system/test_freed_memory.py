"""What malloc keeps, in a process of its own: there is no way back."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pipeline_bench.system import freed_memory
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

gave_back = freed_memory.gives_back()
if "keep" in sys.argv:
    assert freed_memory.keep()
ctypes.CDLL(None).mallopt(-3, 1 << 17)  # as TensorFlow's generator_dataset_op does
touch()
before = freed_memory.used().page_faults
for _ in range(10):
    touch()
print(freed_memory.used().page_faults - before, int(gave_back))
"""

OTHER = """
#include <stddef.h>
extern void *__libc_malloc(size_t);
void *malloc(size_t size) { return __libc_malloc(size); }
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has another malloc")
@pytest.mark.parametrize(("words", "settings", "kept"), [([], "", False), (["keep"], "", True), ([], SETTINGS, True)])
def test_blocks_that_are_kept_need_no_new_pages(words: list[str], settings: str, kept: bool) -> None:
    environment = {**os.environ, **dict(each.split("=") for each in settings.split())}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, *words], env=environment, capture_output=True, text=True, check=True
    )
    faults, gave_back = map(int, done.stdout.split())
    assert (faults < 10 * (1 << 25) / os.sysconf("SC_PAGE_SIZE") / 10) == kept
    assert bool(gave_back) == (settings == "")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
def test_another_malloc_is_told_from_glibcs(tmp_path: Path) -> None:
    """As jemalloc or tcmalloc, which are loaded before the C library."""
    source, library = tmp_path / "other.c", tmp_path / "libother.so"
    source.write_text(OTHER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    asks = "from pipeline_bench.system import freed_memory; print(freed_memory.gives_back())"

    def told(preload: str) -> str:
        environment = {**os.environ, "LD_PRELOAD": preload}
        asked = [sys.executable, "-c", asks]
        return subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert told("") == str(platform.libc_ver()[0] == "glibc")
    assert told(str(library)) == "False"


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="malloc is not glibc's")
def test_what_nobody_uses_is_given_back_though_a_block_behind_it_is_in_use() -> None:
    libc, size_bytes, process = ctypes.CDLL(None), 1 << 16, psutil.Process()
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    blocks = [libc.malloc(size_bytes) for _ in range(1600)]
    for block in blocks:
        ctypes.memset(block, 1, size_bytes)
    *freed, last = blocks
    for block in freed:
        libc.free(block)
    before_bytes = process.memory_info().rss
    freed_memory.give_back()
    assert before_bytes - process.memory_info().rss > 1000 * size_bytes
    libc.free(last)
