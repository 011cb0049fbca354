"""Real trials over files that are damaged, gone or of no kind: each ends with one message, or leaves them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.model.session import Session
from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.scenario import Scenario
from pipeline_bench.sources import RecordError, synthetic_dataset
from pipeline_bench.sources.image_folder import ImageFolder
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset
from pipeline_bench.sources.tfrecord import HEADER, read_index
from pipeline_bench.worker import bad_record
from tests import trials
from tests.tensorflow import images
from tests.tensorflow.beside import WhenStepping
from tests.tensorflow.conftest import RunScenario

RECORDS = 24
BATCH = 6

BACKENDS: list[dict[str, Any]] = [
    {"name": "feed_dict", "backend": "feed_dict"},
    {"name": "queue", "backend": "fifo_queue", "options": {"threads": 2}},
    {"name": "samples", "backend": "fifo_queue", "options": {"threads": 2, "element": "sample"}},
    {"name": "generator", "backend": "tf_data", "options": {"from_generator": True}},
    {"name": "readers", "backend": "reader_queue", "options": {"threads": 2}},
    {"name": "readers, shuffled", "backend": "reader_queue", "options": {"shuffle": 12}},
    {"name": "tf_data", "backend": "tf_data", "options": {"parallel_calls": 2}},
]

ALIKE, DIFFERENT = [BACKENDS[1], BACKENDS[5]], [*BACKENDS[:1], *BACKENDS[2:5], *BACKENDS[6:]]
"""Those beside which there is one that is much the same, and the others."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return images.make_plain(tmp_path, RECORDS)


def truncate(folder: Path) -> Path:
    """A photograph of which half has arrived."""
    from PIL import Image

    path = folder / "a" / "14.jpg"
    pixels = np.random.default_rng(3).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def garble(folder: Path) -> Path:
    return images.garble(folder / "b" / "17.jpg")


def train(
    run_scenario: RunScenario, folder: Path, *variants: dict[str, Any], steps: int = 12, **source: Any
) -> Session:
    return images.train(run_scenario, folder, *variants, steps=steps, model=images.FED, batch_size=BATCH, **source)


@pytest.mark.parametrize(
    ("spoil", "backends"),
    [
        pytest.param(truncate, [BACKENDS[0], BACKENDS[-1]], marks=pytest.mark.slow),
        (garble, DIFFERENT),
        pytest.param(garble, ALIKE, marks=pytest.mark.slow),
    ],
)
def test_a_damaged_file_ends_the_trial_and_is_named(
    run_scenario: RunScenario, folder: Path, spoil: Any, backends: list[dict[str, Any]]
) -> None:
    """What decodes is Python's or TensorFlow's; what finds the record differs by the backend."""
    bad = spoil(folder)
    for record in train(run_scenario, folder, *backends).trials:
        assert record.status == "failed", record.variant
        assert (record.reason or "").startswith(f"{bad} cannot be decoded: "), (record.variant, record.reason)
        assert "Traceback" not in (record.reason or "")


def test_a_damaged_file_that_was_only_read_ahead_fails_no_trial(run_scenario: RunScenario, folder: Path) -> None:
    """It is in the third batch, and two are trained on, while there is time to read it.

    The queue has one thread: the batch that a second one still makes is lost when the runner stops for the bad record.
    """
    garble(folder)
    given = {"from_generator": True, "prefetch": 2}
    ahead = [
        BACKENDS[0],
        {"name": "queue", "backend": "fifo_queue", "options": {"threads": 1}},
        {"name": "generator", "backend": "tf_data", "options": given},
        {"name": "keras", "backend": "py_dataset", "options": {"workers": 2}},
    ]
    slow = {"kind": "emulated", "step_ms": 100}
    for record in images.train(run_scenario, folder, *ahead, steps=2, model=slow, batch_size=BATCH).trials:
        assert (record.status, record.reason) == ("ok", None), record.variant


@pytest.mark.parametrize("backends", [DIFFERENT, pytest.param(ALIKE, marks=pytest.mark.slow)])
def test_damaged_files_are_left_out_and_counted(
    run_scenario: RunScenario, folder: Path, backends: list[dict[str, Any]]
) -> None:
    bad = [truncate(folder), garble(folder)]
    session = train(run_scenario, folder, *backends, on_error="skip")
    for record in session.trials:
        assert record.status == "ok", (record.variant, record.reason)
        assert record.work is not None
        assert record.work.skipped == 2, record.variant
        named = sorted(record.work.skipped_records)
        for path, text in zip(bad, named, strict=True):
            assert text.startswith(f"{path} cannot be decoded: "), (record.variant, text)
        result = session.result(record.variant)
        assert result.work.status == "equal", (record.variant, result.work.text)
        assert "skipped" in result.work.text, (record.variant, result.work.text)


def test_where_every_file_is_damaged_there_is_nothing_to_skip_to(run_scenario: RunScenario, folder: Path) -> None:
    for path in folder.rglob("*.jpg"):
        path.write_bytes(b"no image")
    for record in train(run_scenario, folder, *BACKENDS[-2:], steps=2, on_error="skip").trials:
        assert record.status == "failed"
        assert f"None of the {RECORDS} records" in (record.reason or "")


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_link_to_nowhere_is_named(run_scenario: RunScenario, folder: Path, on_error: str) -> None:
    path = folder / "a" / "14.jpg"
    path.unlink()
    path.symlink_to(folder / "nowhere")
    for record in train(run_scenario, folder, *BACKENDS[-2:], on_error=on_error).trials:
        assert record.status == "failed", record.variant
        assert str(path) in (record.reason or ""), (record.variant, record.reason)


def test_a_folder_with_the_name_of_an_image_is_no_record(run_scenario: RunScenario, folder: Path) -> None:
    (folder / "a" / "14.jpg").unlink()
    (folder / "a" / "14.jpg").mkdir()
    for record in train(run_scenario, folder, *BACKENDS[-2:]).trials:
        assert record.work is not None
        assert record.work.numbered is not None, record.reason
        assert (record.work.numbered.epoch_samples, record.work.numbered.lost) == (RECORDS - 1, 0)


def test_a_folder_without_images_is_refused_before_any_trial(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=str(tmp_path)):
        ImageFolder(ImageFolder.Options(path=str(tmp_path))).check()


def test_an_error_that_is_no_record_s_says_how_many_were_tried(folder: Path) -> None:
    import tensorflow as tf

    source = images.source(folder)
    with (
        pytest.raises(PipelineBenchError, match=f"InvalidArgumentError: planted .all {RECORDS} records of the source"),
        bad_record.named(source, None, lambda: 5, limit_s=20),
    ):
        raise tf.errors.InvalidArgumentError(None, None, "planted")


def test_an_error_that_python_raised_within_tensorflow_keeps_its_words(folder: Path) -> None:
    import tensorflow as tf

    text = "{{function_node x}} pipeline_bench.sources.RecordError: a.jpg cannot be decoded: no.\nTraceback: …"
    with pytest.raises(RecordError) as caught, bad_record.named(images.source(folder), None, pytest.fail, limit_s=20):
        raise tf.errors.UnknownError(None, None, text)
    assert caught.value.message == "a.jpg cannot be decoded: no."


def test_memory_that_ran_out_is_not_taken_for_a_record_s_fault(folder: Path) -> None:
    import tensorflow as tf

    truncate(folder)
    with (
        pytest.raises(tf.errors.ResourceExhaustedError),
        bad_record.named(images.source(folder), None, pytest.fail, limit_s=20),
    ):
        raise tf.errors.ResourceExhaustedError(None, None, "planted")


def test_of_a_file_of_many_records_the_record_is_named(run_scenario: RunScenario, tmp_path: Path) -> None:
    import tensorflow as tf

    synthetic_dataset.make(SyntheticDataset("tfrecord", RECORDS, 2, 16), tmp_path)
    path = sorted(tmp_path.glob("*.tfrecord"))[1]
    records = [bytes(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    records[7] = records[7].replace(b"JFIF", b"JUNK").replace(b"\xff\xd8", b"\x00\x00")
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    source = {"kind": "tfrecord", "path": str(tmp_path), "batch_size": BATCH, "image_size": 8}
    for trial in images.run(run_scenario, source, *BACKENDS[-2:], steps=12, model=images.FED).trials:
        assert (trial.reason or "").startswith(f"{path}, record 8 cannot be decoded: "), (trial.variant, trial.reason)


def test_a_record_with_a_wrong_checksum_is_named(run_scenario: RunScenario, tmp_path: Path) -> None:
    synthetic_dataset.make(SyntheticDataset("tfrecord", RECORDS, 2, 16), tmp_path)
    path = sorted(tmp_path.glob("*.tfrecord"))[1]
    index = read_index(str(path))
    content = bytearray(path.read_bytes())
    content[int(index.offsets[7]) + HEADER.size + 1] ^= 1
    path.write_bytes(content)
    source = {"kind": "tfrecord", "path": str(tmp_path), "batch_size": BATCH, "image_size": 8}
    for trial in images.run(run_scenario, source, *BACKENDS[-2:], steps=12, model=images.FED).trials:
        assert trial.reason == f"{path}, record 8: its bytes do not match their checksum.", trial.variant


@pytest.mark.slow
def test_a_record_of_foreign_bytes_is_named(run_scenario: RunScenario, tmp_path: Path) -> None:
    """TensorFlow quotes it in its error, which then is no text."""
    import tensorflow as tf

    synthetic_dataset.make(SyntheticDataset("tfrecord", RECORDS, 1, 16), tmp_path)
    (path,) = tmp_path.glob("*.tfrecord")
    records = [bytes(record) for record in tf.compat.v1.io.tf_record_iterator(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in (*records[:15], b"\xaa\xff" * 20, *records[16:]):
            writer.write(record)
    source = {"kind": "tfrecord", "path": str(tmp_path), "batch_size": BATCH, "image_size": 8}
    for trial in images.run(run_scenario, source, *BACKENDS[-3:], steps=12, model=images.FED).trials:
        assert trial.reason == f"{path}, record 16 cannot be decoded: Could not parse example input.", trial.variant


@pytest.mark.parametrize(
    "entry",
    [BACKENDS[-1], *(pytest.param(BACKENDS[number], marks=pytest.mark.slow) for number in (0, 4))],
    ids=lambda entry: str(entry["name"]),
)
def test_a_file_that_goes_while_it_is_trained_on_ends_the_trial(
    fork_server: TrialServer, folder: Path, tmp_path_factory: pytest.TempPathFactory, entry: dict[str, Any]
) -> None:
    path = folder / "a" / "14.jpg"

    def run(scenario: Scenario) -> Session:
        return trials.run(fork_server, scenario, tmp_path_factory.mktemp("session"), WhenStepping(path.unlink))

    record = train(run, folder, entry, steps=4000).trials[0]
    assert record.status == "failed"
    assert (record.reason or "").startswith(f"{path} cannot be read: "), record.reason
