"""The folder of a cache on disk: it is there while its trial lives, and no longer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.records.disk_cache import CacheFolder

LEFT_BEHIND = """
import os, sys
from pipeline_bench.records.disk_cache import CacheFolder
folder = CacheFolder(0)
(folder.path / "samples").write_bytes(b"x")
os._exit(0)  # as a trial that is killed: nothing is tidied up
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_goes_with_what_it_holds(temporary: Path) -> None:
    folder = CacheFolder(0)
    (folder.path / "samples").write_bytes(b"x")
    folder.remove()
    assert not list(temporary.iterdir())


def test_what_a_killed_trial_left_goes_with_the_next_one(temporary: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-c", LEFT_BEHIND], env=environment, check=True)
    assert len(list(temporary.iterdir())) == 1
    CacheFolder(0).remove()
    assert not list(temporary.iterdir())


def test_the_folder_of_a_trial_that_runs_stays(temporary: Path) -> None:
    running = CacheFolder(0)
    CacheFolder(0).remove()
    assert list(temporary.iterdir()) == [running.path]
    running.remove()


def test_a_disk_with_too_little_room_is_said_before_it_is_full(temporary: Path) -> None:
    with pytest.raises(
        PipelineBenchError, match=r"take \S+ \S+, and the folder for temporary files, .* left"
    ) as caught:
        CacheFolder(2**60)
    assert "TMPDIR" in caught.value.hint
    assert not list(temporary.iterdir())


def test_a_folder_that_is_not_there_is_said(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "gone"))
    with pytest.raises(PipelineBenchError, match=r"gone.*No such file"):
        CacheFolder(0)
