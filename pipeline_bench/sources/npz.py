"""npz: arrays in .npz files, each loaded whole before its rows are used, as NumPy programs do."""

from __future__ import annotations

import os
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.sources import ArraySpec, RecordError
from pipeline_bench.sources.folder import FolderOptions, FolderSource
from pipeline_bench.sources.images import SCALE
from pipeline_bench.sources.records import Raw, RecordFile
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset

_USUAL_FEATURES = ("x", "features", "x_train", "images", "X", "data")
_USUAL_LABELS = ("y", "labels", "y_train", "label", "Y", "targets")
_NUMBERS = "biuf"
_MOST_BITS = 64
_LARGEST_LABEL = 2.0**63


class ArrayHead(NamedTuple):
    """Type and shape of an array in a file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class NpzOptions(FolderOptions):
    """Where the arrays are, and what they are called."""

    features: Annotated[
        str | None, Field(description=f"the array of the samples; unset: the first of {', '.join(_USUAL_FEATURES)}")
    ] = None
    labels: Annotated[
        str | None, Field(description=f"the array of the classes; unset: the first of {', '.join(_USUAL_LABELS)}")
    ] = None
    image_size: Annotated[int, Field(ge=8, le=4096, description="of synthetic data: pixels of a side")] = 96
    files: Annotated[int, Field(ge=1, le=2**16, description="of synthetic data: files that the samples are in")] = 4


class Npz(FolderSource):
    """The first axis counts the samples; features uint8 are scaled to 0 … 1, all others are cast to float32."""

    name = "npz"
    summary = "arrays in .npz files, loaded file by file"
    Options = NpzOptions
    file_names = re.compile(r"\.npz$")
    synthetic_options = FolderSource.synthetic_options | {"files", "image_size"}
    wanted = "*.npz"
    uneven = False
    python_part = "loads the files"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._kept: tuple[str, tuple[npt.NDArray[Any], ...]] | None = None
        self._lock = threading.Lock()

    def dataset(self) -> SyntheticDataset:
        return SyntheticDataset("npz", self.options.samples, self.options.files, self.options.image_size)

    @cached_property
    def _heads(self) -> dict[str, ArrayHead]:
        """The heads of features and labels in the first file, by the arrays' names."""
        path, options = str(self.paths[0]), self.options
        heads = _read_heads(path)
        names = (
            _choose(path, heads, options.features, _USUAL_FEATURES, "features"),
            _choose(path, heads, options.labels, _USUAL_LABELS, "labels"),
        )
        if names[0] == names[1]:
            raise RecordError(
                f"{path}: features and labels are both the array {names[0]!r}.",
                "Set labels to the array of the classes.",
            )
        return {name: heads[name] for name in names}

    def open_index(self, path: str) -> int:
        """See that the file has the arrays of the first one, and as many features as labels."""
        heads = _read_heads(path)
        if not self._heads.keys() <= heads.keys():
            raise RecordError(f"{path} does not have both arrays, {' and '.join(map(repr, self._heads))}.")
        for name, first in self._heads.items():
            head = heads[name]
            if (head.dtype, head.shape[1:]) != (first.dtype, first.shape[1:]):
                raise RecordError(
                    f"{path}: the array {name!r} is {head.dtype} {head.shape}, "
                    f"in the first file {first.dtype} {first.shape}."
                )
        shapes = {name: heads[name].shape for name in self._heads}
        _check_shapes(path, shapes)
        return next(iter(shapes.values()))[0]

    @property
    def raw_specs(self) -> tuple[ArraySpec, ...]:
        return tuple(ArraySpec(head.dtype.name, head.shape[1:]) for head in self._heads.values())

    @property
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        return ArraySpec("float32", self.raw_specs[0].shape), ArraySpec("int64")

    def load(self, index: int) -> Raw:
        file = self.file_of(index)
        with self._lock:
            # A single file: with more of them a small data set would be read once, and never again.
            if self._kept is None or self._kept[0] != file.path:
                self._kept = file.path, self._load_file(file)
            features, labels = self._kept[1]
        return features[index - file.first], labels[index - file.first]

    def forget(self) -> None:
        with self._lock:
            self._kept = None

    def read(self, file: RecordFile) -> Iterator[Raw]:
        yield from zip(*self._load_file(file), strict=True)

    def _load_file(self, file: RecordFile) -> tuple[npt.NDArray[Any], ...]:
        """Return the arrays of a file in the byte order of this machine: TensorFlow takes all bytes to be in that."""
        with _unpacking(f"{file.path} cannot be read"), np.load(file.path) as packed:
            read = [packed[name] for name in self._heads]
            arrays = tuple(array.astype(array.dtype.newbyteorder("="), copy=False) for array in read)
        if any(len(array) != file.records for array in arrays):
            raise RecordError(f"{file.path} was changed while it was read.")
        _check_labels(file.path, list(self._heads)[1], arrays[1])
        return arrays

    def decode(self, index: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        features, label = raw
        decoded = np.asarray(features, dtype=np.float32)
        scaled = decoded * SCALE if features.dtype == np.uint8 else decoded
        return scaled, np.asarray(label).reshape(()).astype(np.int64)

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

    def decode_op(self, index: Any, raw: Raw) -> tuple[Any, Any]:
        return self._decoded(raw, [])

    def decode_batch_op(self, indices: Any, raw: Raw) -> tuple[Any, Any]:
        return self._decoded(raw, [-1])

    def _decoded(self, raw: Raw, shape: list[int]) -> tuple[Any, Any]:
        """Features, and labels of that shape."""
        import tensorflow as tf

        features, labels = raw
        decoded = tf.cast(features, tf.float32)
        scaled = decoded * SCALE if features.dtype == tf.uint8 else decoded
        return scaled, tf.reshape(tf.cast(labels, tf.int64), shape)


@contextmanager
def _unpacking(problem: str) -> Iterator[None]:
    """Raise a RecordError where the block comes upon what is no .npz file, or cannot be read."""
    try:
        yield
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RecordError(f"{problem}: {reason}.") from error


def _read_heads(path: str) -> dict[str, ArrayHead]:
    """Return the arrays of a .npz file, by name."""
    heads = {}
    with _unpacking(f"{path} cannot be read as an .npz file"), zipfile.ZipFile(path) as packed:
        for entry in packed.namelist():
            with packed.open(entry) as file:
                read_header = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }[np.lib.format.read_magic(file)]
                shape, _, dtype = read_header(file)
            heads[entry.removesuffix(".npy")] = ArrayHead(dtype, shape)
    return heads


def _choose(path: str, heads: dict[str, ArrayHead], wanted: str | None, usual: tuple[str, ...], option: str) -> str:
    """Return the name of the array to take: the one that is asked for, else the first of the usual ones.

    Raises:
        RecordError: it is not there, or holds no numbers.
    """
    name = wanted or next((name for name in usual if name in heads), "")
    hint = f"Set {option} to the name of an array of numbers."
    if name not in heads:
        asked = f"no array {name!r}" if name else f"none of the arrays {', '.join(usual)}"
        raise RecordError(f"{path} has {asked}; its arrays: {', '.join(sorted(heads)) or 'none'}.", hint)
    dtype, shape = heads[name]
    if dtype.kind not in _NUMBERS or not shape:
        raise RecordError(f"{path}: the array {name!r} is no list of numbers, but {dtype}.", hint)
    if dtype.itemsize > _MOST_BITS // 8:
        raise RecordError(
            f"{path}: the array {name!r} is {dtype}: numbers have {_MOST_BITS} bits at most.",
            "Store it as float64 or float32.",
        )
    return name


def _check_shapes(path: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse features and labels that differ in number, no features, and more than one label a sample."""
    (of_features, features), (of_labels, labels) = shapes.items()
    if features[0] != labels[0]:
        raise RecordError(f"{path} has {features[0]} samples in {of_features!r} and {labels[0]} in {of_labels!r}.")
    if 0 in features[1:]:
        raise RecordError(f"{path}: the samples {of_features!r} have the shape {features}, which holds no features.")
    if labels[1:] not in ((), (1,)):
        raise RecordError(
            f"{path}: the labels {of_labels!r} have the shape {labels}, not one number a sample.",
            "Set labels to an array of classes, or store the number of the class in place of one-hot rows.",
        )


def _check_labels(path: str, name: str, labels: npt.NDArray[Any]) -> None:
    """Refuse labels that are no classes, where their type allows for such."""
    if labels.dtype.kind != "f":
        return
    wrong = np.flatnonzero(~(np.isfinite(labels) & (labels == np.floor(labels)) & (np.abs(labels) < _LARGEST_LABEL)))
    if wrong.size:
        value = labels.reshape(-1)[wrong[0]]
        raise RecordError(
            f"{path}, record {wrong[0] + 1}: the label in {name!r} is {value}, no whole number of a class."
        )
