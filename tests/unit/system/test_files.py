"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system import files
from pipeline_bench.system.files import (
    ScratchFolder,
    in_use,
    is_in_use,
    own_temporary_files,
    read_text,
    sweep,
    write_atomically,
)


def test_text_and_bytes_arrive(tmp_path: Path) -> None:
    write_atomically(tmp_path / "text", "zwölf\n")
    write_atomically(tmp_path / "bytes", b"\x00\xff")
    assert (tmp_path / "text").read_bytes() == "zwölf\n".encode()
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "old"


def test_the_mode_of_a_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o600)
    write_atomically(path, "new")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_keeps_pointing_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    link = tmp_path / "link"
    link.symlink_to("target")
    write_atomically(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_a_link_to_itself_is_no_file_to_write(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        write_atomically(tmp_path / "loop", "new")


@pytest.mark.parametrize("read", [False, True], ids=["opens it", "reads it"])
def test_a_pipe_that_nobody_reads_is_given_up(read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody opens it, or whoever does takes nothing."""
    monkeypatch.setattr(files, "_READER_WITHIN_S", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) if read else None
    with pytest.raises(OSError, match="takes nothing" if read else "nobody reads"):
        write_atomically(pipe, bytes(1 << 20))
    if reader is not None:
        os.close(reader)


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "through it")
    reader.join()
    assert read == ["through it"]


LEFT_BEHIND = """
import os, sys
from pipeline_bench.system.files import ScratchFolder
folder = ScratchFolder()
(folder.path / "samples").write_bytes(b"x")
os._exit(0)  # as a trial that is killed: nothing is tidied up
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_goes_with_what_it_holds(temporary: Path) -> None:
    folder = ScratchFolder()
    (folder.path / "samples").write_bytes(b"x")
    folder.remove()
    assert not list(temporary.iterdir())


def test_what_a_killed_trial_left_goes_with_the_next_one(temporary: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-c", LEFT_BEHIND], env=environment, check=True)
    assert len(list(temporary.iterdir())) == 1
    ScratchFolder().remove()
    assert not list(temporary.iterdir())


def test_the_folder_of_a_trial_that_runs_stays(temporary: Path) -> None:
    running = ScratchFolder()
    ScratchFolder().remove()
    assert list(temporary.iterdir()) == [running.path]
    running.remove()


def test_a_disk_with_too_little_room_is_said_before_it_is_full(temporary: Path) -> None:
    with pytest.raises(
        PipelineBenchError, match=r"take \S+ \S+, and the folder for temporary files, .* left"
    ) as caught:
        ScratchFolder(2**60, "The samples")
    assert "TMPDIR" in caught.value.hint
    assert not list(temporary.iterdir())


def test_a_folder_that_is_not_there_is_said(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "gone"))
    with pytest.raises(PipelineBenchError, match=r"gone.*No such file"):
        ScratchFolder()


def test_a_disk_without_locks_is_said_and_keeps_nothing(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    running = ScratchFolder()
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refuse)
        sweep()
        with pytest.raises(PipelineBenchError, match="No locks available"):
            ScratchFolder()
    assert list(temporary.iterdir()) == [running.path]
    running.remove()


def test_of_two_at_once_neither_sweeps_the_others(temporary: Path) -> None:
    """Many are made and swept side by side; each stays until its own end."""
    lost: list[Path] = []

    def make_and_remove() -> None:
        for _ in range(50):
            with ScratchFolder() as folder:
                sweep()
                if not folder.path.exists():
                    lost.append(folder.path)

    threads = [threading.Thread(target=make_and_remove) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not lost
    assert not list(temporary.iterdir())


def test_temporary_files_have_a_folder_once_there_is_one_and_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "_sanitize_params", tempfile._sanitize_params)  # type: ignore[attr-defined]
    with own_temporary_files():
        assert not list(tmp_path.iterdir())
        made = [Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp(prefix=b"x").decode())]
        assert {path.parent.parent for path in made} == {tmp_path}
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())
    assert Path(tempfile.mkdtemp()).parent == tmp_path, "and not in a folder that is gone"


@pytest.mark.timeout(20)
def test_a_folder_is_in_use_until_the_block_ends_and_nobody_waits_for_its_lock(tmp_path: Path) -> None:
    assert not is_in_use(tmp_path)
    with in_use(tmp_path), in_use(tmp_path):
        assert is_in_use(tmp_path)
    assert not is_in_use(tmp_path)
    assert not is_in_use(tmp_path / "gone")
    scratch = ScratchFolder()  # a session without a folder of the user's is kept in one
    with in_use(scratch.path):
        assert is_in_use(scratch.path)
    scratch.remove()


def test_a_pipe_is_read_to_its_end_and_one_that_nobody_writes_to_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("ab" * 50_000))
    writer.start()
    assert read_text(pipe, 1 << 20) == "ab" * 50_000
    writer.join()
    monkeypatch.setattr(files, "_WRITER_WITHIN_S", 0.1)
    with pytest.raises(ValueError, match="nothing was written to it for"):
        read_text(pipe, 1 << 20)


def test_what_the_kernel_makes_up_is_not_read_in_place_of_a_file() -> None:
    """As /proc/kmsg, whose reader waits for the kernel's next message."""
    assert read_text(Path("/proc/self/status"), 1 << 20, regular=True) == ""
