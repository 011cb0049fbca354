"""What a look at the whole pipeline tells of the files that it reads."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf  # noqa: TID253

from pipeline_bench.tfdata import pipeline_benchmark


def test_strings_that_lead_to_files_are_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    names = tf.data.Dataset.from_tensor_slices([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    assert pipeline_benchmark.named_files(names.map(tf.io.read_file).batch(2)) == (str(tmp_path / "a.txt"),)


def test_lines_of_text_are_no_files_however_long(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word " * 200 + "\n" + "/word" * 900 + "\n")
    assert pipeline_benchmark.named_files(tf.data.TextLineDataset(str(tmp_path / "a.txt")).batch(2)) == ()
