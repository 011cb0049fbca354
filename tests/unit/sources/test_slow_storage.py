"""The options of slow storage, which hold another source's, and what it leaves to that source."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline_bench.analysis.speedups import batch_size
from pipeline_bench.errors import ScenarioError, UsageError
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.sources.image_folder import ImageFolder
from pipeline_bench.sources.records import RecordSource
from pipeline_bench.sources.slow_storage import SharedBucket, SlowStorage, SlowStorageOptions, SteadySleep


def scenario(*backends: str, **source: Any) -> Scenario:
    return resolve(
        {
            "name": "test",
            "source": {"kind": "slow_storage", **source},
            "variants": [{"name": name, "backend": name} for name in backends or ("feed_dict",)],
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from PIL import Image

    for index in range(8):
        path = tmp_path / f"c{index % 2}" / f"{index}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((9, 9, 3), 20 * index, dtype=np.uint8)).save(path)
    return tmp_path


def source(folder: Path, files: dict[str, Any] | None = None, **options: Any) -> RecordSource:
    files = {"kind": "image_folder", "path": str(folder), "batch_size": 4, "image_size": 8, **(files or {})}
    made: Any = SlowStorage.make({"files": files, **options})
    return made  # type: ignore[no-any-return]


def test_every_default_of_the_files_is_filled_in() -> None:
    options = scenario(files={"kind": "image_folder", "batch_size": 8}).variants[0].source.options
    expected = ImageFolder({"batch_size": 8}).options.model_dump(mode="json")
    assert options["files"] == {"kind": "image_folder", **expected}


def test_the_samples_of_a_step_are_those_of_the_files() -> None:
    assert batch_size(scenario(files={"kind": "image_folder", "batch_size": 8}).variants[0]) == 8


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"kind": "image_foldr"}, "did you mean 'image_folder'"),
        ({"kind": "memory"}, "files.kind: 'memory'"),
        ({"kind": "slow_storage"}, "files.kind: 'slow_storage'"),
        ({}, "files.kind: None"),
        ({"kind": "image_folder", "batch_sise": 3}, "did you mean 'batch_size'"),
        ({"kind": "image_folder", "batch_size": 0}, "files.batch_size: Input should be greater than or equal to 1"),
        ({"kind": "image_folder", "batch_size": "3"}, "files.batch_size: Input should be a valid integer"),
    ],
)
def test_wrong_options_of_the_files_are_named_by_their_key(files: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(files=files)
    assert "source.files" in caught.value.message
    assert words in caught.value.message


def test_variants_of_other_latency_share_a_ceiling() -> None:
    document = {
        "name": "test",
        "source": {"kind": "slow_storage", "files": {"kind": "image_folder"}},
        "variants": [
            {"name": str(latency), "backend": "feed_dict", "source": {"latency_ms": latency}} for latency in (0, 5)
        ],
    }
    assert len({variant.ceiling for variant in resolve(document).variants if variant.ceiling}) == 1


def test_the_samples_are_the_files_own_and_come_in_their_order(folder: Path) -> None:
    slow = source(folder, latency_ms=1)
    plain = ImageFolder({"path": str(folder), "batch_size": 4, "image_size": 8})
    slow.throttle.sleep = SteadySleep(sleep=lambda _: None)  # type: ignore[union-attr]
    assert slow.records == plain.records == 8
    for stream, other in zip(slow.streams(1), plain.streams(1), strict=True):
        for _ in range(20):
            found, expected = next(stream), next(other)
            assert found.number == expected.number
            np.testing.assert_array_equal(found.features, expected.features)


def test_what_cannot_be_decoded_is_skipped(folder: Path) -> None:
    (folder / "c0" / "2.png").write_bytes(b"no image")
    slow = source(folder, {"on_error": "skip"}, latency_ms=0.001)
    stream = slow.streams(1)[0]
    for _ in range(7):
        next(stream)
    assert slow.skips
    assert len(slow.skipped) == 1


def test_reading_waits_and_what_is_read_beforehand_does_not(folder: Path) -> None:
    slept_s: list[float] = []
    slow = source(folder, latency_ms=50, bandwidth_mb_s=1)
    slow.throttle.sleep = SteadySleep(clock_ns=lambda: 0, sleep=slept_s.append)  # type: ignore[union-attr]
    slow.check()
    assert len(slow.reserved("evaluation")) == 4
    assert np.isfinite(slow.identity.fingerprints(np.arange(8))).all()
    assert not slept_s
    stream = slow.streams(1)[0]
    for _ in range(slow.records):
        next(stream)
    expected_s = [0.05 + file.size_bytes / 1e6 for file in slow.files]
    assert slept_s == pytest.approx(expected_s)
    slow.sample(5)
    assert slept_s[8:] == pytest.approx(expected_s[5:6])


@pytest.mark.parametrize("latest_ms", [0, 40])
def test_all_who_share_a_bucket_have_its_rate_together(latest_ms: int, tmp_path: Path) -> None:
    """Two readers in one thread's time: each asks as soon as it was served; 4 MB at 10 MB/s take 0.4 s.

    On a busy machine one gets no core for up to 40 ms when its bytes are there: the storage is no slower for that.
    """
    now_ns = [1_000_000_000]
    due = [0.0, 0.0]
    late = np.random.default_rng(0)

    def bucket(reader: int) -> SharedBucket:
        def sleep(seconds: float) -> None:
            due[reader] = now_ns[0] + seconds * 1e9 + late.uniform(0, latest_ms) * 1e6

        def clock_ns() -> int:
            return max(now_ns[0], int(due[reader]))

        return SharedBucket(tmp_path / "bucket", 10.0, clock_ns, sleep, lambda *_: 0)

    readers = [bucket(0), bucket(1)]
    served = [0, 0]
    while sum(served) < 40:
        reader = min((0, 1), key=lambda each: due[each])
        now_ns[0] = max(now_ns[0], int(due[reader]))
        readers[reader].take(100_000)
        served[reader] += 1
    took_s = (max(due) - 1e9) / 1e9
    assert took_s == pytest.approx(0.4, abs=0.01 + latest_ms / 1000)
    assert latest_ms or abs(served[0] - served[1]) <= 1


def test_a_source_whose_readers_take_turns_goes_to_another_process(folder: Path, tmp_path: Path) -> None:
    slow = source(folder, total_mb_s=1000.0, shared=str(tmp_path / "bucket"))
    there = pickle.loads(pickle.dumps(slow))
    assert there.sample(5).number == 5
    assert (tmp_path / "bucket").read_bytes()


def test_who_shares_a_bucket_does_not_wait_for_a_clock_that_was_set_back(tmp_path: Path) -> None:
    now_ns, slept_s = [10**18], list[float]()
    bucket = SharedBucket(tmp_path / "bucket", 10.0, lambda: now_ns[0], slept_s.append, lambda *_: 0)
    bucket.take(1_000_000)
    now_ns[0] -= 3600 * 10**9
    bucket.take(1_000_000)
    assert slept_s == pytest.approx([0.1, 0.2], abs=0.01)


def test_hosts_whose_clocks_differ_take_turns_by_the_clock_of_the_bucket(tmp_path: Path) -> None:
    """A host whose clock is 0.9 s ahead asks first: the next one waits for its bytes, and not for its clock."""
    slept_s: list[float] = []
    for clock_ns in (lambda: time.time_ns() + 900_000_000, time.time_ns):
        SharedBucket(tmp_path / "bucket", 10.0, clock_ns, slept_s.append).take(1_000_000)
    assert slept_s == pytest.approx([0.1, 0.2], abs=0.15)


@pytest.mark.parametrize("content", [b"3 5 7", b"cat\ndog\n", b"pipeline-bench-bucket\n", b"\0" * 1000])
def test_a_file_that_is_no_bucket_is_refused_beforehand_and_stays_as_it_is(
    content: bytes, folder: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "labels.txt"
    shared.write_bytes(content)
    with pytest.raises(UsageError, match=r"labels\.txt: it holds something else"):
        source(folder, total_mb_s=1.0, shared=str(shared)).check()
    with pytest.raises(UsageError, match=r"labels\.txt: it holds something else"):
        SharedBucket(shared, 1.0, ahead_ns=lambda *_: 0).take(1)
    assert shared.read_bytes() == content


def test_a_bucket_that_is_there_is_taken_up_and_an_empty_file_becomes_one(folder: Path, tmp_path: Path) -> None:
    shared = tmp_path / "bucket"
    slow = source(folder, total_mb_s=1000.0, shared=str(shared))
    slow.check()
    assert not shared.exists()
    shared.touch()
    for _ in range(2):
        slow.check()
        slow.sample(0)
    assert shared.read_bytes().startswith(b"pipeline-bench-bucket ")


@pytest.mark.parametrize(
    ("shared", "problem"), [("gone/bucket", "gone is no folder that can be written to"), ("c0", "it is no file that")]
)
def test_a_bucket_that_cannot_be_made_is_one_message_beforehand(
    shared: str, problem: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=problem):
        source(folder, total_mb_s=1.0, shared=str(tmp_path / shared)).check()


@pytest.mark.parametrize("half", [{"total_mb_s": 1.0}, {"shared": "bucket"}])
def test_a_total_and_the_file_that_shares_it_belong_together(half: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="belong together"):
        SlowStorageOptions.model_validate(half)
