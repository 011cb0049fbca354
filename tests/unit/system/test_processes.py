"""When a process is not forked: whatever an import leaves behind that a fork would break."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from pipeline_bench.errors import UsageError
from pipeline_bench.system import processes


def test_a_descriptor_of_any_number_is_read() -> None:
    """`select.select` takes none from 1024 on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("no process may have so many files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    read, write = os.pipe()
    many = os.dup2(read, 1999)
    try:
        assert not processes.readable(many, 0)
        os.write(write, b"x")
        assert processes.readable(many, 60)
    finally:
        for descriptor in (read, write, many):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_quiet_import_may_be_forked() -> None:
    assert processes.why_not_forkable(processes.threads()) is None


def test_a_thread_that_the_import_started_forbids_forking() -> None:
    before = processes.threads()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="waiter")
    thread.start()
    try:
        told = processes.why_not_forkable(before)
        assert told == "importing TensorFlow started 1 thread that a fork breaks: waiter of the module threading"
    finally:
        release.set()
        thread.join()


NATIVE = """
import sys
sys.path.insert(0, {folder!r})
from pipeline_bench.errors import UsageError
from pipeline_bench.system import processes
before = processes.threads()
with processes.thread_starts() as started_by:
    import {module}
assert processes.threads() - before, "the import starts a thread"
print(processes.why_not_forkable(before, started_by))
"""


def test_a_pool_that_its_library_ends_at_a_fork_does_not_forbid_it() -> None:
    script = NATIVE.format(folder="", module="numpy.linalg")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "3"}
    assert _said(script, environment) == "None"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("other", "importing TensorFlow started 1 thread that a fork breaks: one of the module pool"),
        ("jemalloc_bg_thd", "None"),
    ],
)
def test_a_native_thread_that_would_be_missing_is_named_with_its_module(
    name: str, expected: str, tmp_path: Path
) -> None:
    source = tmp_path / "pool.c"
    source.write_text(POOL, encoding="utf-8")
    include = sysconfig.get_paths()["include"]
    compiler = shutil.which("cc")
    if compiler is None or not (Path(include) / "Python.h").exists():
        pytest.skip("no C compiler, or no headers of Python's")
    library, named = str(tmp_path / "pool.so"), f'-DNAME="{name}"'
    command = [compiler, "-shared", "-fPIC", "-pthread", named, f"-I{include}", str(source), "-o", library]
    subprocess.run(command, check=True)
    told = _said(NATIVE.format(folder=str(tmp_path), module="pool"), dict(os.environ))
    assert told == expected


POOL = """
#define _GNU_SOURCE
#include <Python.h>
#include <pthread.h>
#include <unistd.h>
static void *idle(void *none) { for (;;) pause(); return none; }
static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "pool", 0, -1, 0 };
PyMODINIT_FUNC PyInit_pool(void) {
    pthread_t thread;
    pthread_create(&thread, 0, idle, 0);
    pthread_setname_np(thread, NAME);
    return PyModule_Create(&module);
}
"""


def _said(script: str, environment: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_open_accelerator_forbids_forking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "open_files", lambda: ["/dev/null", "/dev/nvidia0"])
    assert processes.why_not_forkable(processes.threads()) == "importing TensorFlow opened /dev/nvidia0"


def test_how_long_a_thread_had_no_core_is_not_known_of_one_that_is_gone() -> None:
    assert processes.queued_s(os.getpid()) is not None
    assert processes.queued_s(2**22 + 1) is None  # Linux gives no process so high a number


def test_the_open_files_are_this_processes(tmp_path: Path) -> None:
    with (tmp_path / "opened").open("w"):
        assert str(tmp_path / "opened") in processes.open_files()


def test_a_proc_that_is_missing_or_anothers_is_one_message(tmp_path: Path) -> None:
    processes.check_proc_mount()
    with pytest.raises(UsageError, match="is not mounted"):
        processes.check_proc_mount(tmp_path)
    (tmp_path / "self").symlink_to(str(os.getppid()))
    with pytest.raises(UsageError, match="is that of another namespace"):
        processes.check_proc_mount(tmp_path)
