"""tf_data_service: a tf.data pipeline whose first part runs in worker processes of the tf.data service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pipeline_bench import plugins
from pipeline_bench.backends import DatasetBackend
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.sources import Source
from pipeline_bench.sources.datasets import (
    OPEN_PER_TURN,
    Auto,
    PipelineOptions,
    Resources,
    batched,
    built,
    calls_of,
    most,
    prefetched,
    turns_of_files,
)
from pipeline_bench.sources.records import RecordSource
from pipeline_bench.tfdata import service, service_cluster
from pipeline_bench.tfdata.service import ServiceProcesses

# What a worker has ready beside the files that it reads: TensorFlow's own buffers, found with 2.21.
_BUFFERED_BATCHES = 32
# How far the parts of workers may drift apart, or an epoch: the trial takes what is there, and hears of a worker late.
_DRIFT_BATCHES = 256
_POLICIES = {"auto": "FILE_OR_DATA"}


class TfDataServiceOptions(plugins.Options):
    """Whose workers, what they do, and how they share the work."""

    workers: Annotated[
        int | None, Field(ge=1, le=64, description="worker processes on this machine, started for the trial; unset: 1")
    ] = None
    dispatcher: Annotated[
        str | None,
        Field(
            json_schema_extra={"pattern": service_cluster.ADDRESS},
            description='of a cluster that is there, "grpc://HOST:PORT"; its workers read the same paths',
        ),
    ] = None
    sharding: Annotated[
        Literal["off", "dynamic", "file", "data", "auto"],
        Field(
            description="off: each gives everything; dynamic: files as they come; file, data, auto: a fixed part each"
        ),
    ] = "dynamic"
    compression: Annotated[Literal["auto", "none"], Field(description="of what crosses to the trial")] = "auto"
    cut: Annotated[
        Literal["records", "samples", "batches"],
        Field(description="what crosses: records as read, samples decoded, or whole batches"),
    ] = "batches"
    parallel_calls: Annotated[
        Annotated[int, Field(ge=1)] | Auto, Field(description="records decoded at a time, by each process that does so")
    ] = 1
    interleave: Annotated[
        Annotated[int, Field(ge=1, le=4096)] | Auto, Field(description="files that take turns in each worker")
    ] = 1
    prefetch: Annotated[
        Annotated[int, Field(ge=0)] | Auto, Field(description="batches ready ahead of the step in the trial")
    ] = "auto"

    @field_validator("dispatcher")
    @classmethod
    def _has_an_address(cls, given: str | None) -> str | None:
        try:
            return None if given is None else service_cluster.address(given)
        except UsageError as error:
            raise ValueError(error.in_full.removesuffix(".")) from None

    @model_validator(mode="after")
    def _one_cluster(self) -> TfDataServiceOptions:
        if self.workers is not None and self.dispatcher is not None:
            raise ValueError("workers are this program's own, and dispatcher names another cluster: give one of them")
        return self


class TfDataService(DatasetBackend):
    """The pipeline is cut in two: workers run the first part, and send what it gives to the trial."""

    name = "tf_data_service"
    summary = "tf.data service: worker processes read, decode and batch, and send what they made to the trial"
    Options = TfDataServiceOptions
    has_processes = True
    works_ahead = True  # the workers do, whatever the trial's own prefetch
    _processes: ServiceProcesses | None = None
    _cluster: service_cluster.Watch | None = None

    @property
    def starts_servers(self) -> bool:
        return self.options.dispatcher is None

    def start_processes(self, source: Source, *, can_fork: bool) -> None:
        dispatcher = self.options.dispatcher
        if dispatcher is None:
            self._processes = ServiceProcesses(self.options.workers or 1, can_fork=can_fork)
        elif not service_cluster.is_dispatcher(dispatcher):
            raise PipelineBenchError(f"No tf.data service answers at options.dispatcher = {dispatcher!r}.")
        else:
            self._cluster = service_cluster.Watch(dispatcher)

    def why_dead(self, stalled_s: float | None) -> str | None:
        if self._processes is not None:
            return self._processes.why_dead(stalled_s)
        return None if self._cluster is None else self._cluster.why_dead(stalled_s)

    def why_silent(self, limit_s: float) -> str | None:
        watched = self._processes or self._cluster
        return None if watched is None else watched.why_silent(limit_s)

    def was_silent(self) -> Sequence[str]:
        watched = self._processes or self._cluster
        return () if watched is None else watched.was_silent()

    def end_processes(self) -> None:
        if self._processes is not None:
            self._processes.end()

    def check(self, source: Source) -> None:
        if not isinstance(source, RecordSource):
            raise UsageError(
                f"tf_data_service cannot carry the source {source.name}: its samples are made by Python or with "
                "variables, which the service's workers do not have.",
                "Use a source of files, tfrecord for one, or another backend.",
            )
        if source.python_part is not None:
            raise UsageError(
                f"tf_data_service cannot carry this source {source.name}: Python {source.python_part}, and no op that "
                "calls Python crosses to the service's workers.",
                "Use tfrecord, csv or image_folder, without source.total_mb_s, or the backend tf_data.",
            )
        if source.skips:
            raise UsageError(
                "tf_data_service cannot say which records its workers left out.",
                'Use source.on_error = "raise", or the backend tf_data.',
            )

    def python_part(self, source: Source) -> str | None:
        return "watches the service's processes"

    def endless(self, source: Source, resources: Resources, finished: bool) -> Any:
        return built(lambda: self._made(source), source, finished)

    def _made(self, source: Source) -> Any:
        assert isinstance(source, RecordSource)
        options: TfDataServiceOptions = self.options
        calls = calls_of(self.pipeline)

        def decode(number: Any, raw: Any) -> tuple[Any, ...]:
            return number, *source.decode_shaped_op(number % source.records, raw)

        made = turns_of_files(source, options.interleave)
        if options.cut == "records":
            made = self._cross(made)
        made = made.map(decode, num_parallel_calls=calls)
        if options.cut == "samples":
            made = self._cross(made)
        made = batched(made, source)
        return self._cross(made) if options.cut == "batches" else made

    def _cross(self, dataset: Any) -> Any:
        """Return the dataset, run by the service's workers."""
        options: TfDataServiceOptions = self.options
        target = self._processes.address if self._processes is not None else options.dispatcher
        if target is None:
            raise PipelineBenchError("tf_data_service has no workers in a process that is no trial's own.")
        policy = _POLICIES.get(options.sharding, options.sharding.upper())
        return service.distribute(dataset, policy, target, "AUTO" if options.compression == "auto" else None)

    def batches(self, made: Any, source: Source) -> Any:
        return prefetched(made, self.options.prefetch, one_call=True)

    def overtaken_samples(self, source: Source) -> int:
        """Return what the workers hold while others go on; with a fixed part each, nobody waits for the slowest one."""
        options: TfDataServiceOptions = self.options
        assert isinstance(source, RecordSource)
        workers = options.workers or 1
        if options.dispatcher is None and workers == 1:
            return 0
        if options.dispatcher is not None or options.sharding != "dynamic":
            return max(source.records, _DRIFT_BATCHES * source.batch_size)
        files = most(options.interleave) * (OPEN_PER_TURN if options.interleave != 1 else 1)
        return workers * (files * source.reorder_window + _BUFFERED_BATCHES * source.batch_size)

    @property
    def pipeline(self) -> PipelineOptions:
        return PipelineOptions(parallel_calls=self.options.parallel_calls, interleave=self.options.interleave)
