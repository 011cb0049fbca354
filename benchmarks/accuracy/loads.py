"""Other work for the machine while something is measured: what shared machines do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

_BEGIN = "import sys\nfrom pipeline_bench.system.processes import end_with_parent\nend_with_parent(int(sys.argv[1]))\n"
"""A benchmark that is killed leaves no load to the next one."""
LOOP = "while True: pass"
_BURSTS = "import time\nwhile True:\n end = time.monotonic() + 2\n while time.monotonic() < end: pass\n time.sleep(3)\n"
_DISK = (
    "import os\nblock = os.urandom(1 << 20)\n"
    "while True:\n with open(sys.argv[2], 'wb') as file:\n  for _ in range(64):\n   file.write(block)\n"
    "  file.flush(); os.fsync(file.fileno())\n"
)

LOADS: dict[str, tuple[tuple[str, int], ...]] = {
    "nothing": (),
    "one loop": ((LOOP, 1),),
    "bursts": ((_BURSTS, os.cpu_count() or 1),),
    "disk": ((_DISK, 1),),
    "two loops": ((LOOP, 2),),
}
"""By name: which programs run beside the measuring, and how many of each. Bursts are 2 s on, 3 s off, on every core."""


def beside(name: str) -> AbstractContextManager[None]:
    """Run a load while the block runs."""
    return running(*LOADS[name])


@contextmanager
def running(*programs: tuple[str, int]) -> Iterator[None]:
    """Run so many of each program while the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen([sys.executable, "-c", _BEGIN + code, str(os.getpid()), str(Path(folder) / f"{number}")])
            for code, count in programs
            for number in range(count)
        ]
        try:
            yield
        finally:
            for process in processes:
                process.kill()
                process.wait()
