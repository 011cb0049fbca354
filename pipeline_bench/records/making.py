"""Makes data sets: images that cost a decoder what photos cost, and tables of numbers; a sample from its place alone.

A file has its own name only once it is whole, so that what was interrupted goes on where it stopped.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline_bench.records.made import CLASSES, UNFINISHED, Manifest, SyntheticDataset, present, write_manifest

Told = Callable[[int], None]
"""Hears how many samples are there."""

IMAGE_KEY, LABEL_KEY = "image/encoded", "image/class/label"
"""Of a tf.train.Example, as the ImageNet scripts of tensorflow/models write it."""

# Of a photo at this quality, 4:2:0, a pixel takes 0.2 to 0.5 bytes; with this much noise ours take 0.3.
_JPEG_QUALITY = 85
_COARSE, _MIDDLE = 6, 24
_NOISE = 10
_CHUNK = 128
_ESTIMATED_FROM = 16


def label_of(place: int) -> int:
    """The class of a sample; neighbours have different ones."""
    return place % CLASSES


def image(data: SyntheticDataset, place: int) -> npt.NDArray[np.uint8]:
    """The pixels of a made image, uint8 [height, width, 3]: its class' colours, shapes of its own, and noise."""
    from PIL import Image

    generator = np.random.default_rng([data.seed, place])
    height = width = data.side
    if data.uneven:
        height, width = (int(side) for side in generator.integers((data.side + 1) // 2, data.side + 1, 2))
    own = generator.integers(0, 128, (_COARSE, _COARSE, 3), dtype=np.uint8)
    coarse: npt.NDArray[np.uint8] = own + _class_pattern(data.seed, label_of(place))
    middle = generator.integers(0, 48, (_MIDDLE, _MIDDLE, 3), dtype=np.uint8)
    smooth = [
        np.asarray(Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        for grid in (coarse, middle)
    ]
    noise = generator.integers(-_NOISE, _NOISE + 1, (height, width, 3), dtype=np.int8)
    return np.asarray(np.clip(smooth[0] + smooth[1] - 24 + noise, 0, 255), dtype=np.uint8)


def jpeg(data: SyntheticDataset, place: int) -> bytes:
    """A made image as a file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image(data, place)).save(file, "JPEG", quality=_JPEG_QUALITY)
    return file.getvalue()


def row(data: SyntheticDataset, place: int) -> npt.NDArray[np.float32]:
    """The features of a made line, float32 [side]: normal around the centre of its class."""
    centre = np.random.default_rng([data.seed, 2**32, label_of(place)]).normal(0, 0.5, data.side)
    noise = np.random.default_rng([data.seed, place]).standard_normal(data.side)
    return np.asarray(centre + noise, dtype=np.float32)


def line(data: SyntheticDataset, place: int) -> str:
    """A made line: the features with five decimals, then the class."""
    return ",".join([*(f"{value:.5f}" for value in row(data, place)), str(label_of(place))])


def estimated_bytes(data: SyntheticDataset) -> int:
    """About how large the data is: of a few of its samples."""
    places = range(min(_ESTIMATED_FROM, data.samples))
    sample: Callable[[int], int] = {
        "tfrecord": lambda place: len(jpeg(data, place)) + len(IMAGE_KEY) + len(LABEL_KEY) + 16 + 30,
        "image_folder": lambda place: len(jpeg(data, place)),
        "npz": lambda place: int(image(data, place).nbytes) + 8,
        "csv": lambda place: len(line(data, place)) + 1,
    }[data.kind]
    return round(sum(map(sample, places)) / len(places) * data.samples)


def make(data: SyntheticDataset, folder: Path, told: Told = lambda _: None, threads: int = 0) -> None:
    """Make what of the data is not there yet; a manifest in the folder says what it is, and when it is complete.

    Args:
        data: what to make.
        folder: where; made if need be.
        told: called in this thread, now and then.
        threads: that make images at a time; 0: one a core, 8 at most.

    Raises:
        OSError: the folder cannot be written, or is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, Manifest(data=data))
    there = present(data, folder)
    made = sum(len(data.places(file)) for file in there)
    told(made)
    with ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        missing = [file for file in range(data.file_count) if file not in there]
        for samples in (
            _images(data, folder, missing, pool)
            if data.kind == "image_folder"
            else (written for file in missing for written in _file(data, folder, file, pool))
        ):
            made += samples
            told(made)
    size_bytes = sum(present(data, folder).values())
    write_manifest(folder, Manifest(data=data, complete=True, size_bytes=size_bytes))


def _images(data: SyntheticDataset, folder: Path, missing: list[int], pool: ThreadPoolExecutor) -> Iterator[int]:
    for label in range(CLASSES):
        (folder / f"class_{label}").mkdir(exist_ok=True)

    def write(file: int) -> None:
        path = folder / data.path(file)
        unfinished = path.with_name(path.name + UNFINISHED)
        unfinished.write_bytes(jpeg(data, file))
        unfinished.replace(path)

    for chunk in _chunks(missing):
        list(pool.map(write, chunk))
        yield len(chunk)


def _file(data: SyntheticDataset, folder: Path, file: int, pool: ThreadPoolExecutor) -> Iterator[int]:
    """Write one file of many samples; gives the numbers of samples that were written."""
    path = folder / data.path(file)
    unfinished = path.with_name(path.name + UNFINISHED)
    writing = {"tfrecord": _tfrecord, "npz": _npz, "csv": _csv}[data.kind]
    yield from writing(data, unfinished, list(data.places(file)), pool)
    unfinished.replace(path)


def _tfrecord(data: SyntheticDataset, path: Path, places: list[int], pool: ThreadPoolExecutor) -> Iterator[int]:
    import tensorflow as tf

    def example(place: int) -> bytes:
        feature = {
            IMAGE_KEY: tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg(data, place)])),
            LABEL_KEY: tf.train.Feature(int64_list=tf.train.Int64List(value=[label_of(place)])),
        }
        made = tf.train.Example(features=tf.train.Features(feature=feature))
        return bytes(made.SerializeToString(deterministic=True))

    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for chunk in _chunks(places):
                for record in pool.map(example, chunk):
                    writer.write(record)
                yield len(chunk)
    except tf.errors.OpError as error:  # what of the system's errors TensorFlow raises, and does not number
        raise OSError(f"{path} cannot be written: {error.message.rpartition('; ')[2]}") from error


def _npz(data: SyntheticDataset, path: Path, places: list[int], pool: ThreadPoolExecutor) -> Iterator[int]:
    pixels = np.zeros((len(places), data.side, data.side, 3), dtype=np.uint8)
    labels = np.array([label_of(place) for place in places], dtype=np.int64)

    def put(index: int) -> None:
        pixels[index] = image(data, places[index])

    for chunk in _chunks(list(range(len(places)))):
        list(pool.map(put, chunk))
        yield len(chunk)
    with path.open("wb") as file:
        np.savez(file, x=pixels, y=labels)


def _csv(data: SyntheticDataset, path: Path, places: list[int], pool: ThreadPoolExecutor) -> Iterator[int]:
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write(",".join([*(f"f{column}" for column in range(data.side)), "label"]) + "\n")
        for chunk in _chunks(places):
            file.writelines(f"{line(data, place)}\n" for place in chunk)
            yield len(chunk)


def _chunks(places: list[int]) -> Iterable[list[int]]:
    return (places[start : start + _CHUNK] for start in range(0, len(places), _CHUNK))


@cache
def _class_pattern(seed: int, label: int) -> npt.NDArray[np.uint8]:
    """The colours of a class, coarse: what a model can learn."""
    generator = np.random.default_rng([seed, 2**32, label])
    return generator.integers(0, 128, (_COARSE, _COARSE, 3), dtype=np.uint8)
