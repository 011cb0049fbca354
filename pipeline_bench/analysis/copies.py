"""What the copy of a batch to the device costs a step, and how much of it overlaps with the steps. Pure.

Beside a ceiling, whose batch is on the device, trains its host ceiling, whose batch lies in host memory: each step has
to copy it before it computes. The difference of the two step times is what a copy costs that overlaps with nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from pipeline_bench import plugins
from pipeline_bench.analysis import measured, stats
from pipeline_bench.analysis.measured import ByVariant, DeviceKind
from pipeline_bench.analysis.speedups import estimate_of, throughput_over, within
from pipeline_bench.analysis.stats import Floats
from pipeline_bench.analysis.thresholds import SHARE_SCATTER
from pipeline_bench.backends.ceiling import HostCeiling
from pipeline_bench.model.edits import PrefetchToDevice
from pipeline_bench.model.result import DeviceCopy, Estimate, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.model.task import KIND, Task
from pipeline_bench.model.trial import round_of
from pipeline_bench.scenario import Scenario, Variant

HOST_CEILING = HostCeiling.name
AHEAD_OPTION = "device_prefetch"
"""The option of a backend that has the batch copied ahead of the step."""

_NOT_COPIED: dict[DeviceKind, str] = {
    "cpu": "the model is on the CPU: its batch is not copied",
    "emulated": "the device is emulated: no batch is copied to it",
}


class _Steps(NamedTuple):
    """The mean steps in ms of the rounds that have all three trials, and what other work may have moved shares by."""

    own: Floats
    ceiling: Floats
    host_ceiling: Floats
    error: float


def with_host_ceilings(session: Session) -> Session:
    """Return the session with a host ceiling for each ceiling whose model is on a GPU, after its first trials.

    Where a model trains only TensorFlow knows, and the trials have said it by then; without a GPU nothing is added.
    """
    scenario = session.scenario
    if len(session.trials) != len(round_of(scenario, 0, 0)):
        return session
    found = _with_host_ceilings(scenario, {trial.variant for trial in session.trials if trial.on_gpu})
    return session if found is scenario else session.model_copy(update={"scenario": found})


def with_host_ceilings_asked_for(scenario: Scenario) -> Scenario:
    """Return the scenario with a host ceiling for each ceiling whose model it wants on a GPU.

    For several hosts, whose plan all of them know before a trial says where its model is.
    """
    wanted = {variant.name for variant in scenario.variants if variant.runtime.device.startswith("gpu")}
    return _with_host_ceilings(scenario, wanted)


def _with_host_ceilings(scenario: Scenario, on_gpu: Collection[str]) -> Scenario:
    """Return the scenario with a host ceiling for each ceiling among these variants; itself if it needs none."""
    referred = {variant.ceiling for variant in scenario.variants}.intersection(on_gpu)
    names = {variant.name for variant in scenario.variants}
    added = [
        variant.model_copy(update={"name": name, "backend": HOST_CEILING})
        for variant in scenario.variants
        if variant.name in referred and variant.runtime.replicas == 1
        if (name := _name(variant.name)) not in names
    ]
    return scenario.model_copy(update={"variants": (*scenario.variants, *added)}) if added else scenario


def of(scenario: Scenario, variant: Variant, found: ByVariant) -> DeviceCopy:
    """Return what the copy of its batch costs a variant's step, or how much of it overlaps; else why it is not known.

    Args:
        scenario: as resolved, with the host ceilings.
        variant: which has measured trials.
        found: the measured trials of every variant.
    """
    if variant.is_ceiling:
        return DeviceCopy.without("this is a ceiling: by its step the copies of the others are measured")
    kind = next(iter(found[variant.name].values())).device_kind
    if kind != "gpu":
        return DeviceCopy.without(_NOT_COPIED[kind])
    if variant.runtime.replicas > 1:
        return DeviceCopy.without("each replica copies a part of the batch, which is not measured")
    steps = _steps(variant, found)
    if steps is None:
        return DeviceCopy.without("its ceiling with the batch in host memory was not measured beside it")
    shares = 1 - steps.ceiling / steps.host_ceiling  # that the copy has of the host ceiling's step
    length = stats.believe(shares.tolist(), SHARE_SCATTER).widened(steps.error)
    ms = within(estimate_of(length.times(float(steps.host_ceiling.mean()))), math.inf, math.inf)
    if not _copies_ahead(variant):
        return _in_the_step(variant, steps, length, ms)
    return DeviceCopy(
        ms=ms,
        share=Estimate(reason="it copies its batches ahead of the step"),
        overlapped_share=_overlapped(steps, length),
        gain=_gain(scenario, variant, found),
    )


def _name(ceiling: str) -> str:
    return f"{ceiling}, copied"


def _copies_ahead(variant: Variant) -> bool:
    """Return whether its backend, or an edit of a user's pipeline, copies ahead of the step.

    A backend that is not installed here is taken not to. Of a pipeline that does so as written no copy is measured.
    """
    if variant.source.kind == KIND:
        return any(isinstance(edit, PrefetchToDevice) for edit in Task.model_validate(variant.source.options).edits)
    backend = plugins.make_if_known("backends", variant.backend, variant.options)
    return backend is not None and bool(backend.copies_ahead)


def _steps(variant: Variant, found: ByVariant) -> _Steps | None:
    """Return the steps of the rounds in which the variant, its ceiling and its host ceiling were measured.

    The trial of a user's model on one batch has measured the copy itself.
    """
    ceiling = variant.ceiling or ""
    own, tops, hosts = found[variant.name], found.get(ceiling, {}), found.get(_name(ceiling), {})
    host_ms = {repeat: trial.mean_ms for repeat, trial in hosts.items()} or {
        repeat: trial.mean_ms + trial.record.copied.ms
        for repeat, trial in tops.items()
        if trial.record.copied is not None
    }
    shared = sorted(own.keys() & tops.keys() & host_ms.keys())
    if not shared:
        return None
    own_ms, top_ms = (np.array([each[repeat].mean_ms for repeat in shared]) for each in (own, tops))
    taken = measured.taken_of([(own[repeat], (hosts or tops)[repeat]) for repeat in shared])
    on_host_ms = np.array([host_ms[repeat] for repeat in shared])
    return _Steps(own_ms, top_ms, on_host_ms, measured.systematic_error("host", "gpu", taken))


def _in_the_step(variant: Variant, steps: _Steps, length: stats.Belief, ms: Estimate) -> DeviceCopy:
    if variant.source.kind != KIND and not _has_room(steps, length):  # of a user's pipeline its own batches are copied
        return DeviceCopy.without(
            "its step leaves no time for a copy from pageable memory: its batch lies where the GPU reads it directly"
        )
    none = "its step copies the batch"
    share = length.times(float(steps.host_ceiling.mean() / steps.own.mean()))
    nothing = Estimate(reason=none)
    return DeviceCopy(ms=ms, share=within(estimate_of(share)), overlapped_share=nothing, gain=Speedup(reason=none))


def _has_room(steps: _Steps, length: stats.Belief) -> bool:
    """Return whether a step is so much longer than the ceiling's that the copy can be a part of it.

    TensorFlow fuses a map and the batch behind it into one op, whose memory is pinned: the copy is then the quicker.
    """
    shortest_ms = length.interval()[0] * float(steps.host_ceiling.mean())
    return float((steps.own - steps.ceiling).mean()) >= shortest_ms


def _overlapped(steps: _Steps, length: stats.Belief) -> Estimate:
    """Return how far a step is from the host ceiling's towards the ceiling's: so much of the copy costs it nothing.

    It is the least: whatever else keeps the step from its ceiling, an input wait too, counts as a copy that is left.
    """
    if length.interval()[0] <= 0:
        return Estimate(reason="the copy is too short to be told from none")
    saved = 1 - steps.own / steps.host_ceiling
    known = stats.believe(saved.tolist(), SHARE_SCATTER).widened(steps.error).times(1 / length.value)
    return within(estimate_of(known.widened(known.value * length.scale / length.value)))


def _gain(scenario: Scenario, variant: Variant, found: ByVariant) -> Speedup:
    """Return the speed-up over the variant that differs in nothing but that its step copies."""
    if variant.source.kind == KIND:
        return Speedup(reason="its speed-up is over the pipeline as written")
    for other in scenario.variants:
        if _but_for_copy(other) == _but_for_copy(variant) and not _copies_ahead(other):
            return throughput_over(variant, other, found)
    return Speedup(reason="no variant differs from it in the copy alone")


def _but_for_copy(variant: Variant) -> Variant:
    options = {name: value for name, value in variant.options.items() if name != AHEAD_OPTION}
    on_hosts = variant.on_hosts and variant.on_hosts.model_copy(update={"variant": "-"})
    return variant.model_copy(update={"name": "-", "options": options, "on_hosts": on_hosts})
