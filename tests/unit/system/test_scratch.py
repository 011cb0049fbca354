"""A folder for temporary files: it is there while its process lives, and no longer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system.files import ScratchFolder, sweep

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
