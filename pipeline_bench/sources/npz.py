"""npz: arrays in .npz files, each loaded whole before its rows are used, as NumPy programs do."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.records import ArraySpec, Raw, RecordError, RecordFile, npz_files
from pipeline_bench.records.folder import FolderSource, MadeOptions
from pipeline_bench.records.made import SyntheticDataset

_USUAL_FEATURES = ("x", "features", "x_train", "images", "X", "data")
_USUAL_LABELS = ("y", "labels", "y_train", "label", "Y", "targets")
_SCALE = np.float32(1 / 255)
_KEPT = 4


class NpzOptions(MadeOptions):
    """Where the arrays are, and what they are called."""

    features: Annotated[
        str | None, Field(description=f"the array of the samples; unset: the first of {', '.join(_USUAL_FEATURES)}")
    ] = None
    labels: Annotated[
        str | None, Field(description=f"the array of the classes; unset: the first of {', '.join(_USUAL_LABELS)}")
    ] = None
    image_size: Annotated[int, Field(ge=8, le=4096, description="of made data: pixels of a side")] = 96
    files: Annotated[int, Field(ge=1, le=2**16, description="of made data: files that the samples are in")] = 4


class _Arrays(NamedTuple):
    files: list[RecordFile]
    names: tuple[str, str]
    features: npz_files.ArrayHead
    labels: npz_files.ArrayHead


class Npz(FolderSource):
    """The first axis counts the samples; features uint8 are scaled to 0 … 1, all others are cast to float32."""

    name = "npz"
    summary = "arrays in .npz files, loaded file by file"
    Options = NpzOptions
    file_names = re.compile(r"\.npz$")
    wanted = "*.npz"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._kept: dict[str, tuple[npt.NDArray[Any], ...]] = {}
        self._lock = threading.Lock()

    def _to_make(self) -> SyntheticDataset:
        return SyntheticDataset("npz", self.options.samples, self.options.files, self.options.image_size)

    @property
    def files(self) -> Sequence[RecordFile]:
        return self._arrays.files

    @cached_property
    def _arrays(self) -> _Arrays:
        """What lies where; every file must have the arrays of the first one, and as many features as labels."""
        options, files, first = self.options, [], 0
        known: tuple[npz_files.ArrayHead, npz_files.ArrayHead] | None = None
        names = ("", "")
        for path in map(str, self.paths):
            heads = npz_files.read_heads(path)
            if known is None:
                names = (
                    npz_files.choose(path, heads, options.features, _USUAL_FEATURES, "features"),
                    npz_files.choose(path, heads, options.labels, _USUAL_LABELS, "labels"),
                )
            here = [heads.get(name) for name in names]
            features, labels = here
            if features is None or labels is None:
                raise RecordError(f"{path} does not have both arrays, {names[0]!r} and {names[1]!r}.")
            known = known or (features, labels)
            _check_alike(path, names, (features, labels), known)
            if features.shape[0]:
                files.append(RecordFile(path, first, features.shape[0], Path(path).stat().st_size))
                first += features.shape[0]
        if not files or known is None:
            raise self.trouble("its arrays are empty", "Give files with samples.")
        return _Arrays(files, names, *known)

    @property
    def raw_specs(self) -> tuple[ArraySpec, ...]:
        return tuple(ArraySpec(head.dtype.name, head.shape[1:]) for head in self._arrays[2:])

    @property
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        return ArraySpec("float32", self._arrays.features.shape[1:]), ArraySpec("int64")

    def load(self, place: int) -> Raw:
        file = self.file_of(place)
        with self._lock:
            if file.path not in self._kept:
                while len(self._kept) >= _KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[file.path] = self._load_file(file)
            features, labels = self._kept[file.path]
        return features[place - file.first], labels[place - file.first]

    def read(self, file: RecordFile) -> Iterator[Raw]:
        yield from zip(*self._load_file(file), strict=True)

    def _load_file(self, file: RecordFile) -> tuple[npt.NDArray[Any], ...]:
        arrays = npz_files.read_arrays(file.path, self._arrays.names)
        if any(len(array) != file.records for array in arrays):
            raise RecordError(f"{file.path} was changed while it was read.")
        npz_files.see_that_all_are_whole(file.path, self._arrays.names[1], arrays[1])
        return arrays

    def decode(self, place: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        features, label = raw
        decoded = np.asarray(features, dtype=np.float32)
        return decoded * _SCALE if features.dtype == np.uint8 else decoded, np.asarray(label).reshape(()).astype(
            np.int64
        )

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        by_path = {os.fsencode(file.path): file for file in self.files}
        specs = self.raw_specs

        def load(name: bytes) -> tuple[npt.NDArray[Any], ...]:
            return self._load_file(by_path[name])

        def arrays(name: Any) -> Any:
            loaded = tf.numpy_function(load, [name], [spec.dtype for spec in specs])
            shaped = zip(loaded, specs, strict=True)
            return tuple(tf.ensure_shape(array, [None, *spec.shape]) for array, spec in shaped)

        return (
            tf.data.Dataset.from_tensors(path)
            .map(arrays)
            .flat_map(lambda *loaded: tf.data.Dataset.from_tensor_slices(loaded))
        )

    def decode_op(self, place: Any, raw: Raw) -> tuple[Any, Any]:
        features, labels = self.decode_batch_op(None, raw)
        return features, labels

    def decode_batch_op(self, places: Any, raw: Raw) -> tuple[Any, Any]:
        import tensorflow as tf

        features, labels = raw
        decoded = tf.cast(features, tf.float32)
        decoded = decoded * _SCALE if self._arrays.features.dtype == np.uint8 else decoded
        shape = [] if places is None else [-1]
        return decoded, tf.reshape(tf.cast(labels, tf.int64), shape)


def _check_alike(
    path: str,
    names: tuple[str, str],
    found: tuple[npz_files.ArrayHead, npz_files.ArrayHead],
    first: tuple[npz_files.ArrayHead, npz_files.ArrayHead],
) -> None:
    """See that a file's arrays are those of the first file, but for the number of samples.

    Raises:
        RecordError: they are not, or features and labels differ in number, or a label is more than one number.
    """
    features, labels = found
    for name, head, other in zip(names, found, first, strict=True):
        if (head.dtype, head.shape[1:]) != (other.dtype, other.shape[1:]):
            raise RecordError(
                f"{path}: the array {name!r} is {head.dtype} {head.shape}, "
                f"in the first file {other.dtype} {other.shape}."
            )
    if features.shape[0] != labels.shape[0]:
        raise RecordError(
            f"{path} has {features.shape[0]} samples in {names[0]!r} and {labels.shape[0]} in {names[1]!r}."
        )
    if 0 in features.shape[1:]:
        raise RecordError(f"{path}: the samples {names[0]!r} have the shape {features.shape}, which holds no features.")
    if labels.shape[1:] not in ((), (1,)):
        raise RecordError(
            f"{path}: the labels {names[1]!r} have the shape {labels.shape}, not one number a sample.",
            "Set labels to an array of classes, or store the number of the class in place of one-hot rows.",
        )
