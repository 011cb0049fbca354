"""image_folder: one JPEG or PNG a file, in a folder for each class, the way that most people's first dataset lies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.sources import images
from pipeline_bench.sources.records import Raw, RecordFile, decoding, reading
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset


class ImageFolder(images.ImageSource):
    """The folders directly below are the classes, by name; without such folders all is class 0.

    Files are dealt out so that the classes alternate: each is spread evenly over the epoch, in the order of its names.
    """

    name = "image_folder"
    summary = "JPEG or PNG files in a folder for each class"
    Options = images.ImageOptions
    file_names = re.compile(r"\.(jpe?g|png)$", re.IGNORECASE)
    wanted = "*.jpg, *.jpeg or *.png"

    def dataset(self) -> SyntheticDataset:
        return self.image_dataset("image_folder", self.options.samples)

    @cached_property
    def files(self) -> Sequence[RecordFile]:
        return [RecordFile(str(path), i, 1, path.stat().st_size) for i, (_, path) in enumerate(self._dealt)]

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each file, int64 [records]."""
        return np.array([label for label, _ in self._dealt], dtype=np.int64)

    @cached_property
    def _dealt(self) -> list[tuple[int, Path]]:
        """The class and the path of each file, in the order of an epoch."""
        classes: dict[str, list[Path]] = {}
        for path in self.paths:
            parts = path.relative_to(self.root).parts
            name = parts[0] if len(parts) > 1 else ""  # of a file that lies in the root itself
            classes.setdefault(name, []).append(path)
        dealt = [
            ((rank + 0.5) / len(classes[name]), label, path)
            for label, name in enumerate(sorted(classes))
            for rank, path in enumerate(classes[name])
        ]
        return [(label, path) for _, label, path in sorted(dealt)]

    def load(self, index: int) -> Raw:
        with reading(self.name_of(index)):
            return (Path(self.files[index].path).read_bytes(),)

    def decode(self, index: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        with decoding(self.name_of(index)):
            return images.decode(raw[0], self.options), self.labels[index]

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        return tf.data.Dataset.from_tensors(path).map(lambda name: (tf.io.read_file(name),))

    def decode_op(self, index: Any, raw: Raw) -> tuple[Any, Any]:
        import tensorflow as tf

        return images.decode_op(raw[0], self.options), tf.gather(tf.constant(self.labels), index)

    def reader(self) -> Any:
        import tensorflow as tf

        return tf.compat.v1.WholeFileReader()

    def key_of(self, index: int) -> str:
        return self.files[index].path
