"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pipeline_bench.system.files import write_atomically


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


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "through it")
    reader.join()
    assert read == ["through it"]
