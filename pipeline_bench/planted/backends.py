"""Backends that do something to the batches of another one: what it costs, or how they cheat, is planted."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.backends import Backend, Input
from pipeline_bench.planted.sources import Planted, held
from pipeline_bench.plugins import Options
from pipeline_bench.sources import Batch, Source


class InnerOptions(Options):
    """What carries the batches."""

    inner: Annotated[str, Field(description="a backend")] = "feed_dict"
    inner_options: Annotated[dict[str, Any], Field(default_factory=dict, description="its options")]


class _Around(Backend):
    """Another backend, and what is done to its batches."""

    Options = InnerOptions
    listed = False

    def connect(self, source: Source, device: str | None) -> Input:
        backend = plugins.make("backends", self.options.inner, self.options.inner_options)
        inner: Input = backend.connect(source, device)
        assert isinstance(source, Planted)
        inner.batch = self.changed(inner.batch, source)
        return inner

    def changed(self, batch: Batch, source: Planted) -> Batch:
        """Build the batch that the model gets."""
        raise NotImplementedError


class PlantedCopy(_Around):
    """Another backend, and then the source's `copy_ms`: the batch has arrived, but the model does not have it yet."""

    name = "planted_copy"
    summary = "a backend whose batches take a while to get to the device"

    def changed(self, batch: Batch, source: Planted) -> Batch:
        return Batch(*held(batch.tensors, source.copy_us, "planted_copy"))


class PlantedCheat(_Around):
    """Another backend, of whose batches every second one is left out, and the one before it trained on again."""

    name = "planted_cheat"
    summary = "a backend that trains on each batch twice"

    def changed(self, batch: Batch, source: Planted) -> Batch:
        size = source.batch_size
        return source.batch_of(batch.numbers // (2 * size) * size + batch.numbers % size)
