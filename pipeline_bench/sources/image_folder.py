"""image_folder: one JPEG or PNG a file, in a folder for each class, the way that most people's first dataset lies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_bench.records import Raw, RecordError, RecordFile, images
from pipeline_bench.records.made import SyntheticDataset


class _Listed(NamedTuple):
    files: list[RecordFile]
    labels: npt.NDArray[np.int64]


class ImageFolder(images.ImageSource):
    """The folders directly below are the classes, by name; without such folders all is class 0.

    Files are dealt out so that the classes alternate: each is spread evenly over the epoch, in the order of its names.
    """

    name = "image_folder"
    summary = "JPEG or PNG files in a folder for each class"
    Options = images.ImageOptions
    file_names = re.compile(r"\.(jpe?g|png)$", re.IGNORECASE)
    wanted = "*.jpg, *.jpeg or *.png"

    def _to_make(self) -> SyntheticDataset:
        options = self.options
        side, uneven = images.made_side(options), options.fit == "pad"
        return SyntheticDataset("image_folder", options.samples, options.samples, side, uneven=uneven)

    @property
    def files(self) -> Sequence[RecordFile]:
        return self._listed.files

    @cached_property
    def _listed(self) -> _Listed:
        classes = [self._class_of(path) for path in self.paths]
        names = sorted(set(classes))
        sizes, ranks = Counter(classes), Counter[str]()
        dealt = []
        for path, name in zip(self.paths, classes, strict=True):
            dealt.append(((ranks[name] + 0.5) / sizes[name], names.index(name), path))
            ranks[name] += 1
        dealt.sort()
        files = [RecordFile(str(path), i, 1, path.stat().st_size) for i, (_, _, path) in enumerate(dealt)]
        return _Listed(files, np.array([label for _, label, _ in dealt], dtype=np.int64))

    def _class_of(self, path: Path) -> str:
        """The name of the folder directly below the root; empty for a file that lies in the root itself."""
        parts = path.relative_to(self.root).parts
        return parts[0] if len(parts) > 1 else ""

    def load(self, place: int) -> Raw:
        try:
            return (Path(self.files[place].path).read_bytes(),)
        except OSError as error:
            raise RecordError(f"{self.name_of(place)} cannot be read: {error.strerror}.") from error

    def decode(self, place: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        try:
            return images.decode(raw[0], self.options), self._listed.labels[place]
        except ValueError as error:
            raise RecordError(f"{self.name_of(place)} cannot be decoded: {error}.") from error

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        return tf.data.Dataset.from_tensors(path).map(lambda name: (tf.io.read_file(name),))

    def decode_op(self, place: Any, raw: Raw) -> tuple[Any, Any]:
        import tensorflow as tf

        return images.decode_op(raw[0], self.options), tf.gather(tf.constant(self._listed.labels), place)

    def reader(self) -> Any:
        import tensorflow as tf

        return tf.compat.v1.WholeFileReader()

    def key_of(self, place: int) -> str:
        return self.files[place].path
