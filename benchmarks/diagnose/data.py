"""The files that the pipelines read: made once, from a fixed seed, into one folder of about 100 MB.

``python -m benchmarks.diagnose.data`` makes them. The folder is that of the environment variable `VARIABLE`, by default
one below the user's cache folder. The pipelines read the same variable.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

VARIABLE = "DIAGNOSE_DATA"
VERSION = "4"
"""Written beside the files when all are made; another version's files are made anew."""

CLASSES = ("cat", "dog", "horse", "sheep")
IMAGES = 320
SIZE = (640, 480)
WORDS = 5000
SHARDS = 8


def folder() -> Path:
    """Where the files are, or are to be made."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(VARIABLE) or cache / "pipeline-bench" / "diagnose")


def make() -> Path:
    """Make the files unless they are there, and return their folder."""
    into = folder()
    mark = into / "version"
    if mark.is_file() and mark.read_text() == VERSION:
        return into
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    makers: tuple[Callable[[Path, np.random.Generator], None], ...] = (
        _images,
        _masks,
        _records,
        _examples,
        _text,
        _tabular,
        _arrays,
        _audio,
    )
    for number, maker in enumerate(makers):
        maker(into, np.random.default_rng(number))
    mark.write_text(VERSION)
    return into


def _picture(rng: np.random.Generator) -> Image.Image:
    """Smooth colours with a little grain: a JPEG of it is about as large as one of a photograph."""
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(SIZE, Image.Resampling.BICUBIC)
    grain = rng.integers(0, 24, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
    return Image.fromarray((np.asarray(coarse) // 8 * 7 + grain).astype(np.uint8))


def _images(into: Path, rng: np.random.Generator) -> None:
    """``images/CLASS/NUMBER.jpg``."""
    for number in range(IMAGES):
        file = into / "images" / CLASSES[number % len(CLASSES)] / f"{number:04}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        _picture(rng).save(file, quality=90)


def _masks(into: Path, rng: np.random.Generator) -> None:
    """``scenes/NUMBER.jpg`` with ``masks/NUMBER.png`` of the same size."""
    for name in ("scenes", "masks"):
        (into / name).mkdir()
    for number in range(160):
        _picture(rng).save(into / "scenes" / f"{number:04}.jpg", quality=90)
        mask = Image.fromarray(rng.integers(0, 2, (6, 8), dtype=np.uint8)).resize(SIZE, Image.Resampling.NEAREST)
        mask.save(into / "masks" / f"{number:04}.png")


def _records(into: Path, rng: np.random.Generator) -> None:
    """``readings/NUMBER.tfrecord.gz``: vectors of 16384 small integers as bytes; ``blobs/NUMBER.tfrecord``: 96 KiB."""
    import tensorflow as tf

    for name in ("readings", "blobs"):
        (into / name).mkdir()
    for shard in range(SHARDS):
        with tf.io.TFRecordWriter(str(into / "readings" / f"{shard:02}.tfrecord.gz"), options="GZIP") as writer:
            for _ in range(150):
                writer.write(rng.integers(0, 40, 16_384, dtype=np.uint8).tobytes())
        with tf.io.TFRecordWriter(str(into / "blobs" / f"{shard:02}.tfrecord")) as writer:
            for _ in range(24):
                writer.write(rng.bytes(96 * 1024))


def _examples(into: Path, rng: np.random.Generator) -> None:
    """``photos/NUMBER.tfrecord``: Examples of a JPEG and its label; ``clicks/…``: Examples of 8 small features."""
    import tensorflow as tf

    def feature(**lists: object) -> tf.train.Feature:
        return tf.train.Feature(**lists)

    for name in ("photos", "clicks"):
        (into / name).mkdir()
    for shard in range(SHARDS):
        with tf.io.TFRecordWriter(str(into / "photos" / f"{shard:02}.tfrecord")) as writer:
            for _ in range(IMAGES // SHARDS):
                file = io.BytesIO()
                _picture(rng).save(file, "JPEG", quality=90)
                features = {
                    "image": feature(bytes_list=tf.train.BytesList(value=[file.getvalue()])),
                    "label": feature(int64_list=tf.train.Int64List(value=[int(rng.integers(4))])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
        with tf.io.TFRecordWriter(str(into / "clicks" / f"{shard:02}.tfrecord")) as writer:
            for _ in range(1000):
                features = {
                    f"f{column}": feature(float_list=tf.train.FloatList(value=[float(rng.standard_normal())]))
                    for column in range(8)
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _text(into: Path, rng: np.random.Generator) -> None:
    """``vocabulary.txt``, ``queries.txt`` with a word a line, ``reviews.txt`` with a label, a tab and a review."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = sorted({"".join(rng.choice(letters, rng.integers(3, 10))) for _ in range(WORDS)})
    (into / "vocabulary.txt").write_text("\n".join(words) + "\n")
    (into / "queries.txt").write_text("\n".join(word.title() for word in rng.choice(words, 10_000)) + "\n")
    reviews = (
        f"{rng.integers(2)}\t{' '.join(rng.choice(words, rng.integers(8, 60))).capitalize()}!" for _ in range(6000)
    )
    (into / "reviews.txt").write_text("\n".join(reviews) + "\n")


def _tabular(into: Path, rng: np.random.Generator) -> None:
    """``houses.csv``: ten columns of numbers, one of text, and the price, with a header."""
    columns = [*(f"x{number}" for number in range(10)), "town", "price"]
    rows = rng.standard_normal((10_000, 11)).round(4)
    lines = (",".join([*(f"{x}" for x in row[:10]), f"town{abs(int(row[0] * 40))}", f"{row[10]}"]) for row in rows)
    (into / "houses.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")


def _arrays(into: Path, rng: np.random.Generator) -> None:
    """``arrays.npz``: features float32[9600, 64] with labels; ``series.npy``: float32[12000, 8]."""
    np.savez(
        into / "arrays.npz",
        features=rng.standard_normal((9600, 64), dtype=np.float32),
        labels=rng.integers(0, 10, 9600),
    )
    np.save(into / "series.npy", rng.standard_normal((12_000, 8), dtype=np.float32))


def _audio(into: Path, rng: np.random.Generator) -> None:
    """``audio/NUMBER.wav``: one second of mono at 16 kHz; ``logs/NUMBER.txt.gz``: lines of text."""
    for name in ("audio", "logs"):
        (into / name).mkdir()
    for number in range(200):
        tone = np.sin(np.arange(16_000) * rng.uniform(0.01, 0.6)) * 8000 + rng.standard_normal(16_000) * 500
        with wave.open(str(into / "audio" / f"{number:04}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(tone.astype(np.int16).tobytes())
    for number in range(SHARDS):
        values = rng.integers(0, 1000, (400, 200))
        text = "\n".join(" ".join(map(str, row)) for row in values)
        (into / "logs" / f"{number:02}.txt.gz").write_bytes(gzip.compress(text.encode(), 6))


if __name__ == "__main__":
    print(make())
