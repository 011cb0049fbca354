"""The trials' server with children that train on the stub's GPU, by their own account; no TensorFlow.

A trial says what it is asked to: it is on the GPU, its matrix products are there, and its steps take longer where
another process has the GPU. Its kernels go into the timeline of which NVML's stub takes its figures: under feed_dict
they fill a share of the time that grows with the hidden layer, 31 % at `STARVED_WIDTH` units, and more with any other
backend. Variables of the environment, each a variant's name: ``SCRIPTED_GPU_RAISES``, ``SCRIPTED_GPU_HANGS``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from pipeline_bench.model import Series
from pipeline_bench.model.events import Device, Done, Failed, Hello, Phase, PlacedOp, Placement, Steps
from pipeline_bench.model.trial import Trial
from pipeline_bench.scenario import Variant
from pipeline_bench.system.processes import leave
from pipeline_bench.worker.recorder import Channel
from tests.integration.scripted_child import serve

STARVED_WIDTH = 6000
_STEP_NS, _STEPS = 10_000_000, 80
_OTHERS = 1.5


def busy_share(variant: Variant) -> float:
    """Return how much of its time the variant keeps the GPU busy."""
    width: int = variant.model.options.get("hidden_widths", [STARVED_WIDTH * 2])[0]
    feed = 0.31 * width / STARVED_WIDTH
    return min(1.0, feed if variant.backend == "feed_dict" else _OTHERS * feed)


def run(trial: Trial, channel: Channel) -> None:
    """Train by its own account."""
    variant = trial.variant
    channel.send(Hello(pid=os.getpid(), at_ns=time.monotonic_ns()))
    channel.send(Phase(name="train", at_ns=time.monotonic_ns()))
    channel.send(Device(kind="gpu", name="NVIDIA Stub", pci_bus_id="0000:01:00.0"))
    if variant.name == os.environ.get("SCRIPTED_GPU_RAISES"):
        channel.send(Failed(error="InternalError: planted"))
        leave(False)
    if variant.name == os.environ.get("SCRIPTED_GPU_HANGS"):
        time.sleep(1000)
    first_ns = time.monotonic_ns()
    timeline, busy_ns = Path(os.environ["NVML_STUB_TIMELINE"]), round(busy_share(variant) * _STEP_NS)
    starts = first_ns + np.arange(_STEPS) * _STEP_NS
    with timeline.open("a") as file:
        file.writelines(f"{start} {start + busy_ns} 1 0\n" for start in starts.tolist())
    takes_ns = _STEP_NS * (2 if "beside" in variant.name else 1) - (1_000_000 if variant.backend == "fifo_queue" else 0)
    if variant.backend != "tf_data" or takes_ns > _STEP_NS or variant.model.kind == "matpow":
        time.sleep(_STEPS * takes_ns / 1e9)  # of the others nothing that is sampled is judged
    start_ns = first_ns + np.arange(_STEPS, dtype=np.int64) * takes_ns
    ends, none = start_ns + takes_ns, np.zeros(_STEPS)
    channel.send(
        Steps(
            first=0,
            start_ns=Series.pack(start_ns),
            end_ns=Series.pack(ends),
            wait_ns=Series.pack(none.astype(np.int64)),
            loss=Series.pack(none),
        )
    )
    if variant.runtime.log_placement:
        names = [f"GPU:{number}" for number in range(variant.runtime.replicas)]
        ops = tuple(PlacedOp(name=f"MatMul_{name}", type="_FusedMatMul", device=name) for name in names)
        channel.send(Placement(ops=ops, op_count=len(ops)))
    channel.send(Done(at_ns=time.monotonic_ns()))


if __name__ == "__main__":
    serve(lambda trial, events: run(trial, Channel(events)))
