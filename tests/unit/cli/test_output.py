"""Where a command's text goes: stdout, a file, a compressed file."""

from __future__ import annotations

import gzip
import io
import json
import resource
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TextIO

import pytest

from pipeline_bench.cli import run
from pipeline_bench.cli.output import lenient, wrapped, write
from pipeline_bench.errors import UsageError
from pipeline_bench.model import session as saved
from pipeline_bench.report import trace
from tests.unit import sessions
from tests.unit.console import full_pipe, unread


@pytest.mark.parametrize(
    "stderr",
    [partial(Path("/dev/full").open, "w"), unread, partial(full_pipe, blocking=False)],
    ids=["full disk", "nobody reads", "full pipe"],
)
def test_what_stderr_does_not_take_is_lost(stderr: Callable[[], AbstractContextManager[TextIO]]) -> None:
    with stderr() as stream:
        print("x", file=lenient(stream), flush=True)


def test_a_file_that_ends_in_gz_is_compressed_and_another_is_not(tmp_path: Path) -> None:
    text = "ms → 100 ×\n"
    for name in ("a.json.gz", "a.txt"):
        write(text, tmp_path / name)
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()).decode() == text
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == text


def test_the_same_text_gives_the_same_compressed_file(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write("text", tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_file_that_cannot_be_written_is_a_usage_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--output .*gone.*cannot be written"):
        write("text", tmp_path / "gone" / "a.gz")


def test_a_file_that_does_not_fit_on_the_disk_leaves_the_old_one_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    file.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # as a disk with so much room
    try:
        with pytest.raises(UsageError, match="cannot be written: File too large"):
            write("text" * 4096, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("command", [["report", "a"], ["report", "a", "--details"], ["diff", "a", "b"]])
def test_a_file_has_no_escape_sequences_also_from_a_terminal(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bold and dim letters are none of the colours that a console can be asked to leave out."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any stream for a terminal
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        saved.save(sessions.normal(), tmp_path / name)
    assert run([*command, "-o", "out.txt"]) == 0
    text = (tmp_path / "out.txt").read_text(encoding="utf-8")
    assert "feed_dict" in text
    assert "\x1b" not in text


def test_a_trace_goes_to_stdout_or_compressed_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved.save(sessions.normal(), tmp_path)
    text = trace.render(saved.load(tmp_path))
    assert run(["report", str(tmp_path), "-f", "trace"]) == 0
    assert capsys.readouterr().out == text
    assert run(["report", str(tmp_path), "-f", "trace", "-o", str(tmp_path / "trace.json.gz")]) == 0
    with gzip.open(tmp_path / "trace.json.gz") as file:
        assert json.load(file) == json.loads(text)


def test_a_line_is_broken_between_words_for_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path = "/home/user/a-long-name/of-a-folder/with/its/report.html"
    line = f"fit of train.py: 89 steps of 163 ms; input wait 115 ms (70 %); page {path}"
    stream = io.StringIO()
    assert wrapped(line, stream) == line
    monkeypatch.setattr(stream, "isatty", lambda: True)
    broken = wrapped(line, stream).splitlines()
    assert " ".join(each.strip() for each in broken) == line
    assert all(len(each) <= 40 for each in broken[:-1])
    assert broken[-1] == f"    {path}"
