"""Synthetic datasets: images that cost a decoder what photos cost, and tables; a sample from its index alone.

Parent and trial find the same folder from the same options. A file has its own name only once it is whole, so that what
was interrupted goes on where it stopped; a manifest says what the folder holds, and whether all of it is there.
"""

from __future__ import annotations

import fcntl
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.system.user_folders import user_folder

Kind = Literal["tfrecord", "image_folder", "npz", "csv"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CLASSES = 10
MANIFEST = "pipeline-bench-data.json"
FOLDER_VARIABLE = "PIPELINE_BENCH_DATA"
_UNFINISHED = ".part"

IMAGE_KEY, LABEL_KEY = "image/encoded", "image/class/label"
"""Of a tf.train.Example, as the ImageNet scripts of tensorflow/models write it."""

# Of a photo at this quality, 4:2:0, a pixel takes 0.2 to 0.5 bytes; with this much noise ours take 0.3.
_JPEG_QUALITY = 85
_COARSE, _MIDDLE = 6, 24
_NOISE = 10
_CHUNK = 128
_ESTIMATED_FROM = 16
_REPORT_EVERY_S = 0.1


@dataclass(frozen=True)
class SyntheticDataset:
    """What a dataset consists of; the same values give the same data.

    `side` is the pixels of an image's side, or the features of a line; of uneven images the most that a side may have.
    """

    kind: Kind
    samples: int
    files: int
    side: int
    seed: int = 0
    uneven: bool = False

    @property
    def noun(self) -> str:
        """What one sample is called: ``images``, ``lines``."""
        return "lines" if self.kind == "csv" else "images"

    @property
    def name(self) -> str:
        """The folder's name: ``tfrecord-1024-images-96px-8-files``."""
        parts = [self.kind, str(self.samples), self.noun, f"{self.side}{'columns' if self.kind == 'csv' else 'px'}"]
        parts += ["uneven"] if self.uneven else []
        parts += [str(self.files), "files"] if self.kind != "image_folder" else []
        return "-".join([*parts, *(["seed", str(self.seed)] if self.seed else [])])

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return self.samples if self.kind == "image_folder" else min(self.files, self.samples)

    def indices(self, file: int) -> range:
        """Return the samples of a file."""
        return range(self.samples * file // self.file_count, self.samples * (file + 1) // self.file_count)

    def path(self, file: int) -> str:
        """Return a file's path in the folder: ``data-00003-of-00008.tfrecord``, ``class_3/0000013.jpg``."""
        if self.kind == "image_folder":
            return f"class_{file % CLASSES}/{file:07}.jpg"
        return f"data-{file:05}-of-{self.file_count:05}.{self.kind}"


class Manifest(BaseModel):
    """The file that says what the folder of a dataset holds, and whether all of it is there."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    made_by: Literal["pipeline-bench"] = "pipeline-bench"
    version: Literal[1] = 1
    data: SyntheticDataset
    complete: bool = False
    size_bytes: int = 0


def datasets_root() -> Path:
    """Return the folder of all datasets: ``$PIPELINE_BENCH_DATA``, or the user's cache.

    Raises:
        UsageError: nothing says where that is.
    """
    given = os.environ.get(FOLDER_VARIABLE)
    try:
        return Path(given).expanduser().absolute() if given else user_folder("cache") / "data"
    except RuntimeError as error:
        of = f"the home folder in {given} is not known" if given else str(error)
        raise UsageError(
            f"The synthetic datasets have no folder to be kept in: {of}.",
            f"Set {FOLDER_VARIABLE} to a folder that can be written to.",
        ) from None


def dataset_folder(data: SyntheticDataset) -> Path:
    """Return where this dataset lies, or will."""
    return datasets_root() / data.name


def read_manifest(folder: Path) -> Manifest | None:
    """Return what the folder's manifest says; None where there is none, or none that can be read."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def present(data: SyntheticDataset, folder: Path) -> dict[int, int]:
    """Return the files that are there and whole: their index and their size in bytes."""
    sizes = {}
    for below in {str(Path(data.path(file)).parent) for file in range(min(data.file_count, CLASSES))}:
        try:
            with os.scandir(folder / below) as entries:
                sizes.update({os.path.normpath(f"{below}/{entry.name}"): entry.stat().st_size for entry in entries})
        except OSError:
            continue
    found = ((file, sizes.get(os.path.normpath(data.path(file)), 0)) for file in range(data.file_count))
    return {file: size_bytes for file, size_bytes in found if size_bytes}


def is_complete(data: SyntheticDataset, folder: Path) -> bool:
    """Return whether all of this dataset lies in the folder."""
    manifest = read_manifest(folder)
    return bool(
        manifest and manifest.complete and manifest.data == data and len(present(data, folder)) == data.file_count
    )


def label_of(index: int) -> int:
    """Return the class of a sample; neighbours have different ones."""
    return index % CLASSES


def image(data: SyntheticDataset, index: int) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image, uint8 [height, width, 3]: its class' colours, shapes of its own, and noise."""
    from PIL import Image

    generator = np.random.default_rng([data.seed, index])
    height = width = data.side
    if data.uneven:
        height, width = (int(side) for side in generator.integers((data.side + 1) // 2, data.side + 1, 2))
    own = generator.integers(0, 128, (_COARSE, _COARSE, 3), dtype=np.uint8)
    coarse: npt.NDArray[np.uint8] = own + _class_pattern(data.seed, label_of(index))
    middle = generator.integers(0, 48, (_MIDDLE, _MIDDLE, 3), dtype=np.uint8)
    smooth = [
        np.asarray(Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        for grid in (coarse, middle)
    ]
    noise = generator.integers(-_NOISE, _NOISE + 1, (height, width, 3), dtype=np.int8)
    return np.asarray(np.clip(smooth[0] + smooth[1] - 24 + noise, 0, 255), dtype=np.uint8)


@cache
def _class_pattern(seed: int, label: int) -> npt.NDArray[np.uint8]:
    """Return the colours of a class, coarse: what a model can learn."""
    generator = np.random.default_rng([seed, 2**32, label])
    return generator.integers(0, 128, (_COARSE, _COARSE, 3), dtype=np.uint8)


def jpeg(data: SyntheticDataset, index: int) -> bytes:
    """Return an image as a file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image(data, index)).save(file, "JPEG", quality=_JPEG_QUALITY)
    return file.getvalue()


def line(data: SyntheticDataset, index: int) -> str:
    """Return a line: `side` features, normal around the centre of its class, with five decimals, then the class."""
    label = label_of(index)
    centre = np.random.default_rng([data.seed, 2**32, label]).normal(0, 0.5, data.side)
    noise = np.random.default_rng([data.seed, index]).standard_normal(data.side)
    return ",".join([*(f"{value:.5f}" for value in (centre + noise).astype(np.float32)), str(label)])


def estimated_bytes(data: SyntheticDataset) -> int:
    """Return about how large the dataset is: of a few of its samples."""
    indices = range(min(_ESTIMATED_FROM, data.samples))
    sample: Callable[[int], int] = {
        "tfrecord": lambda index: len(jpeg(data, index)) + len(IMAGE_KEY) + len(LABEL_KEY) + 16 + 30,
        "image_folder": lambda index: len(jpeg(data, index)),
        "npz": lambda index: int(image(data, index).nbytes) + 8,
        "csv": lambda index: len(line(data, index)) + 1,
    }[data.kind]
    return round(sum(map(sample, indices)) / len(indices) * data.samples)


def make(
    data: SyntheticDataset, folder: Path, progress: Callable[[int], None] = lambda _: None, threads: int = 0
) -> None:
    """Make what of the dataset is not there yet.

    Args:
        data: what to make.
        folder: where; made if need be.
        progress: called in this thread, now and then, with the samples that are there.
        threads: that make images at a time; 0: one a core, 8 at most.

    Raises:
        OSError: the folder cannot be written, or is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_manifest(folder, Manifest(data=data))
    there = present(data, folder)
    made = sum(len(data.indices(file)) for file in there)
    progress(made)
    missing = [file for file in range(data.file_count) if file not in there]
    with ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        for samples in _write(data, folder, missing, pool):
            made += samples
            progress(made)
    size_bytes = sum(present(data, folder).values())
    _write_manifest(folder, Manifest(data=data, complete=True, size_bytes=size_bytes))


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    with _once_whole(folder / MANIFEST) as unfinished:
        unfinished.write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")


@contextmanager
def _once_whole(path: Path) -> Iterator[Path]:
    """Give the path to write to; what lies there gets the name of the file when the block has ended well."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError:  # the disk is full: what is there of the file takes room for nothing
        with suppress(OSError):
            unfinished.unlink()
        raise


def _write(data: SyntheticDataset, folder: Path, missing: list[int], pool: ThreadPoolExecutor) -> Iterator[int]:
    """Write the missing files; gives the numbers of samples that were written."""
    if data.kind == "image_folder":
        for label in range(CLASSES):
            (folder / f"class_{label}").mkdir(exist_ok=True)

        def write(file: int) -> None:
            with _once_whole(folder / data.path(file)) as unfinished:
                unfinished.write_bytes(jpeg(data, file))

        for chunk in _chunks(missing):
            list(pool.map(write, chunk))
            yield len(chunk)
        return
    write_file = {"tfrecord": _tfrecord, "npz": _npz, "csv": _csv}[data.kind]
    for file in missing:
        with _once_whole(folder / data.path(file)) as unfinished:
            yield from write_file(data, unfinished, list(data.indices(file)), pool)


def _tfrecord(data: SyntheticDataset, path: Path, indices: list[int], pool: ThreadPoolExecutor) -> Iterator[int]:
    import tensorflow as tf

    def example(index: int) -> bytes:
        feature = {
            IMAGE_KEY: tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg(data, index)])),
            LABEL_KEY: tf.train.Feature(int64_list=tf.train.Int64List(value=[label_of(index)])),
        }
        made = tf.train.Example(features=tf.train.Features(feature=feature))
        return bytes(made.SerializeToString(deterministic=True))

    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for chunk in _chunks(indices):
                for record in pool.map(example, chunk):
                    writer.write(record)
                yield len(chunk)
    except tf.errors.OpError as error:  # what of the system's errors TensorFlow raises, and does not number
        raise OSError(f"{path} cannot be written: {error.message.rpartition('; ')[2]}") from error


def _npz(data: SyntheticDataset, path: Path, indices: list[int], pool: ThreadPoolExecutor) -> Iterator[int]:
    pixels = np.zeros((len(indices), data.side, data.side, 3), dtype=np.uint8)
    labels = np.array([label_of(index) for index in indices], dtype=np.int64)
    for chunk in _chunks(indices):
        first = chunk[0] - indices[0]
        for row, made in enumerate(pool.map(lambda index: image(data, index), chunk), start=first):
            pixels[row] = made
        yield len(chunk)
    with path.open("wb") as file:
        np.savez(file, x=pixels, y=labels)


def _csv(data: SyntheticDataset, path: Path, indices: list[int], pool: ThreadPoolExecutor) -> Iterator[int]:
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write(",".join([*(f"f{column}" for column in range(data.side)), "label"]) + "\n")
        for chunk in _chunks(indices):
            file.writelines(f"{line(data, index)}\n" for index in chunk)
            yield len(chunk)


def _chunks(indices: list[int]) -> Iterator[list[int]]:
    return (indices[start : start + _CHUNK] for start in range(0, len(indices), _CHUNK))


def make_once(
    data: Mapping[str, Any], folder: str, report: Callable[..., object], clock: Callable[[], float] = time.monotonic
) -> None:
    """Make what is not there yet, one process at a time; called in a child, since TensorFlow writes the TFRecord files.

    Args:
        data: the fields of a `SyntheticDataset`.
        folder: where; made if need be.
        report: called with ``made`` a few times a second, with ``waiting`` while another process makes the same data.
        clock: seconds.

    Raises:
        PipelineBenchError: the folder cannot be written, or holds something else.
    """
    dataset, path = SyntheticDataset(**data), Path(folder)
    reported_s = float("-inf")

    def progress(count: int) -> None:
        nonlocal reported_s
        if clock() - reported_s >= _REPORT_EVERY_S or count == dataset.samples:
            reported_s = clock()
            report(made=count)

    try:
        path.mkdir(parents=True, exist_ok=True)
        with _locked(path, lambda: report(waiting=True)):
            # What another process may have made there since the parent looked.
            manifest = read_manifest(path)
            if manifest is not None and manifest.data != dataset:
                raise PipelineBenchError(f"it holds another synthetic dataset, {manifest.data.name}")
            if not is_complete(dataset, path):
                make(dataset, path, progress)
    except OSError as error:
        raise PipelineBenchError(error.strerror or str(error)) from error


@contextmanager
def _locked(folder: Path, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when the process ends, however it ends."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
