"""slow_storage: the files of another source, as they come from a network or a busy disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, cast

import numpy.typing as npt
from pydantic import Field, ValidationError, field_validator

from pipeline_bench import graph_ops, plugins
from pipeline_bench.errors import did_you_mean
from pipeline_bench.records import ArraySpec, PageCache, Raw, RecordFile, RecordSource
from pipeline_bench.records.pace import Pace, SteadySleep
from pipeline_bench.records.samples import Sample
from pipeline_bench.sources import Batch, Identity

_DAY_MS = 86_400_000


class SlowStorageOptions(plugins.Options):
    """How slow, and which files."""

    files: Annotated[
        dict[str, Any],
        Field(
            default_factory=lambda: {"kind": "tfrecord"},
            validate_default=True,
            description="the source of the files: its kind and its options",
        ),
    ]
    latency_ms: Annotated[
        float, Field(ge=0, le=_DAY_MS, allow_inf_nan=False, description="wait for the first byte of every file")
    ] = 0.0
    bandwidth_mb_s: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="10^6 bytes a second of every stream; unset: unlimited"),
    ] = None
    jitter: Annotated[
        float, Field(ge=0, le=1, description="a file's latency is longer or shorter by up to this share of it")
    ] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**32, description="of the jitter")] = 0

    @field_validator("files")
    @classmethod
    def _complete(cls, given: dict[str, Any]) -> dict[str, Any]:
        """With every default of that source filled in, so that a session says what was read."""
        kinds, kind = _file_kinds(), given.get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            raise ValueError(f"files.kind: {kind!r}: {did_you_mean(str(kind), kinds)}")
        rest = {key: value for key, value in given.items() if key != "kind"}
        try:
            # By way of JSON, as a scenario's own options are checked: no "3" for a 3.
            checked = kinds[kind].Options.model_validate_json(json.dumps(rest), strict=True)
        except ValidationError as error:
            raise ValueError(_told(error, kinds[kind])) from None
        return {"kind": kind, **checked.model_dump(mode="json")}


class SlowStorage(RecordSource):
    """Everything is the other source's; what reads its files waits for them, and holds neither a core nor the GIL."""

    name = "slow_storage"
    summary = "the files of another source, with a latency for each file and a bandwidth for each stream"
    Options = SlowStorageOptions
    timing_options = frozenset({"latency_ms", "bandwidth_mb_s", "jitter", "seed"})

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        own = dict(self.options.files)
        kind = cast(type[RecordSource], plugins.find("sources", own.pop("kind")))
        self.inner = kind(own)
        """The source of the files; it has no latency."""
        self.skipped = self.inner.skipped
        self.damaged_files = self.inner.damaged_files
        self._sleep = SteadySleep()

    def prepare(self, config: Any) -> None:
        self.inner.prepare(config)

    # What waits.

    @property
    def _waits(self) -> bool:
        return bool(self.options.latency_ms or self.options.bandwidth_mb_s)

    @cached_property
    def _pace(self) -> Pace:
        told = self.options
        return Pace.of(self.files, told.latency_ms, told.bandwidth_mb_s, told.jitter, told.seed)

    def load(self, place: int) -> Raw:
        """A record by itself, which is a request of its own: the latency and its bytes."""
        self._sleep(self._pace.request_us(place))
        return self.inner.load(place)

    def read(self, file: RecordFile) -> Iterator[Raw]:
        for place, raw in enumerate(self.inner.read(file), start=file.first):
            self._sleep(self._pace.wait_us(place))
            yield raw

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        def waited(place: Any, raw: Any) -> tuple[Any, Any]:
            with tf.control_dependencies([self._wait_op(place)]):
                return place + 1, tf.nest.map_structure(tf.identity, raw)

        records = self.inner.file_dataset(path, first)
        # A scan, because TensorFlow runs a map of this kind in parallel, and several records would wait side by side.
        return records.scan(tf.cast(first, tf.int64), waited) if self._waits else records

    def after_read(self, place: Any, raw: Raw) -> Any:
        import tensorflow as tf

        after = [] if (inner := self.inner.after_read(place, raw)) is None else [inner]
        return tf.group(self._wait_op(place), *after) if self._waits else inner

    def _wait_op(self, place: Any) -> Any:
        """An op that waits as long as the record at that place takes."""
        import tensorflow as tf

        with tf.device("/cpu:0"):
            wait_us = self._pace.wait_us_op(place)
            return tf.cond(
                wait_us > 0,
                lambda: graph_ops.steady_delay(wait_us, "slow_storage_overshoot"),
                lambda: tf.constant(0.0, tf.float64),
            )

    # What is the other source's.

    @property
    def batch_size(self) -> int:
        return self.inner.batch_size

    @property
    def skips(self) -> bool:
        return self.inner.skips

    @property
    def page_cache(self) -> PageCache:
        return self.inner.page_cache

    @property
    def files(self) -> Sequence[RecordFile]:
        return self.inner.files

    @property
    def has_reader(self) -> bool:
        return self.inner.has_reader

    @property
    def raw_specs(self) -> tuple[ArraySpec, ...]:
        return self.inner.raw_specs

    @property
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        return self.inner.sample_specs

    @property
    def padded_shape(self) -> tuple[int, ...]:
        return self.inner.padded_shape

    @property
    def identity(self) -> Identity:
        return self.inner.identity

    @property
    def reorder_window(self) -> int:
        return self.inner.reorder_window

    def check(self) -> None:
        self.inner.check()

    def decode(self, place: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        return self.inner.decode(place, raw)

    def decode_op(self, place: Any, raw: Raw) -> tuple[Any, Any]:
        return self.inner.decode_op(place, raw)

    def decode_batch_op(self, places: Any, raw: Raw) -> tuple[Any, Any]:
        return self.inner.decode_batch_op(places, raw)

    def name_of(self, place: int) -> str:
        return self.inner.name_of(place)

    def fault_in(self, message: str) -> str | None:
        return self.inner.fault_in(message)

    def reader(self) -> Any:
        return self.inner.reader()

    def key_of(self, place: int) -> str:
        return self.inner.key_of(place)

    def reserved(self, purpose: str) -> Sequence[Sample]:
        return self.inner.reserved(purpose)

    def finish(self, carried: Sequence[Any]) -> Batch:
        return self.inner.finish(carried)


def _file_kinds() -> dict[str, Any]:
    """The sources that can be wrapped, by name."""
    found = {name: plugins.find("sources", name) for name in plugins.names("sources")}
    return {name: kind for name, kind in found.items() if issubclass(kind, RecordSource) and kind is not SlowStorage}


def _told(error: ValidationError, kind: type[plugins.Plugin]) -> str:
    """The first thing that is wrong with the table, as it goes on after ``source.files: ``."""
    first = error.errors()[0]
    key = ".".join(["files", *map(str, first["loc"])])
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key: {did_you_mean(str(first['loc'][-1]), kind.Options.model_fields)}"
    return f"{key}: {first['msg'].removeprefix('Value error, ')} (given: {first['input']!r})"
