"""What the selftest plants in its comparison: a variant each, the part that it belongs to, and what it must come to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_bench import plugins
from pipeline_bench.planted import generator
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.selftest.truth import (
    FEED,
    LOADERS,
    SERIAL,
    SERVICE,
    Pipeline,
    Truth,
    fifo,
    readers,
    tf_data,
    workers,
)

SHORT_MS, LONG_MS = 12.0, 160.0
"""What the emulated devices take a step. To read a batch of files takes 1 to 6 ms that nothing plants (6 on a host with
16 cores, by a DataLoader's worker): 2 points beside the long one, 3.5 beside one of 80 ms."""
_BATCH, _IMAGES_A_BATCH = 16, 2
_STEPS, _LONG_STEPS = 40, 20
_LATE_MS = 240.0
"""What a batch takes from slow storage or from slow Python; half as much under feed_dict, whose step waits for all."""
_LOOP_MS, _LOOP_READ_MS, _LOOP_STEPS = 24.0, 36.0, 50
"""Of the loops, whose calls cost up to a millisecond by themselves: now more, now less, and Keras' most of all. With a
device of 12 ms that was up to 4 points of a step, where 3 pass; what it is, is half as much of a step twice as long."""
_FILES, _IMAGES = 24, 64
_ROUNDS = 3
"""Of the variants whose difference is planted."""
SLOWER = 1.10
"""How many times the step time of the baseline the slower variant has."""

SOURCE, DECODE, STORAGE = "wait in the source", "wait in decoding", "wait for storage"
PYTHON, HOST, LOOPS = "wait for Python", "host slowdown", "loops"
CEILING, DIFFERENCE, WORK = "ceiling", "difference", "equal work"
COST, BESIDE = "cost of measuring", "the program beside a trial"
UTILIZATION, ACTIVITY, COPY = "GPU utilization", "GPU activity", "copy to the device"
TRAINING, PLACED, MIRRORED = "training on the GPU", "placement on the GPU", "mirrored replicas on the GPU"
MATPOW, NEIGHBOUR = "matrix powers on the GPU", "another process on the GPU"
TUTORIAL, STARVED = "the tutorial on the GPU", "a starved GPU"

MEANING = {
    SOURCE: "input waits of in-graph sources are off by more than reports say",
    DECODE: "decoding time is counted in the wrong part of the step",
    STORAGE: "waits for files are off: scenarios on slow storage are wrong here",
    PYTHON: "waits for Python generators are off here",
    HOST: "host slowdown, and AU with it, is off: 'host-bound' may be wrong here",
    LOOPS: "steps of that loop are not split correctly: compare loops by step time only",
    CEILING: "the ceiling differs from a bare step: AU and host slowdown are off for every variant",
    DIFFERENCE: "'faster' and 'tie' cannot be relied on here",
    WORK: "a backend that does less work could be called the fastest",
    COST: "measuring slows short steps: figures of steps below a millisecond are too long here",
    BESIDE: "the program itself takes CPU from the trials on this machine",
    UTILIZATION: "what the driver calls utilization is off by more than reports say: trust AU, not this column",
    ACTIVITY: "how many SMs were busy, and their tensor cores, cannot be relied on here",
    COPY: "how long copies take here is not known",
    TRAINING: "that loop does not train on this GPU, or not on the right samples",
    PLACED: "where the placement log says that ops ran cannot be relied on, or they do not run on the GPU",
    MIRRORED: "MirroredStrategy cannot be compared on this GPU",
    MATPOW: "the scenario matpow does not show what this GPU can do",
    NEIGHBOUR: "other programs on the GPU go unnoticed here: look at nvidia-smi before a comparison",
    TUTORIAL: "a queue does not gain here what the tutorial says, or the figures do not show it",
    STARVED: "where feed_dict starves the GPU, a queue does not feed it better, or the figures do not show it",
}


@dataclass(frozen=True)
class PlantedVariant:
    """A variant, and what it must come to, given what a bare step takes here."""

    part: str
    variant: dict[str, Any]
    truth: Callable[[float], Truth] | None
    device_ms: float | None = SHORT_MS
    """Of the emulated device; None: what a bare step takes was not timed, and the measured ceiling stands for it."""
    cheats: bool = False

    @property
    def name(self) -> str:
        return str(self.variant["name"])


def all_of(quick: bool, folder: Path) -> list[PlantedVariant]:
    """Return what is planted, the baseline of the differences first.

    Args:
        quick: only what takes half a minute.
        folder: where `write_files` has written.
    """
    if quick:
        return _quick()
    return [*_differing(_ROUNDS), *_in_source()[1:], *_in_step(), _cheat(), *_loops(), *_read(folder)]


def scenario(planted: Sequence[PlantedVariant], quick: bool) -> Scenario:
    """Return the comparison of them all."""
    found = resolve(
        {
            "name": "selftest",
            "question": "Are the figures right on this machine?",
            "usual_duration_s": 30 if quick else 120,
            "source": {"kind": "planted", "batch_size": _BATCH},
            "model": {"kind": "emulated", "step_ms": SHORT_MS},
            "run": {"steps": _STEPS, "repeats": 1},
            "variants": [json.loads(json.dumps(each.variant)) for each in planted],
        }
    )
    return _with_short_names(found)


def _with_short_names(found: Scenario) -> Scenario:
    """Number the ceilings: their names would list all in which so many of them differ."""
    short = {
        name: f"ceiling {number + 1}" for number, name in enumerate(v.name for v in found.variants if v.is_ceiling)
    }
    renamed = [
        variant.model_copy(
            update={"name": short.get(variant.name, variant.name), "ceiling": short.get(variant.ceiling or "")}
        )
        for variant in found.variants
    ]
    return found.model_copy(update={"variants": tuple(renamed)})


def write_files(folder: Path) -> None:
    """Write files of one batch each, and images, one a file: what the storage's latency is paid for."""
    from PIL import Image  # noqa: PLC0415 - of no use to who asks for --help

    rng = np.random.default_rng(0)
    arrays = folder / "arrays"
    arrays.mkdir(parents=True)
    for number in range(_IMAGES):
        image = folder / "images" / f"class{number % 2}" / f"{number:05}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(image)
    for number in range(_FILES):
        x = rng.standard_normal((_BATCH, 8), dtype=np.float32)
        np.savez(arrays / f"part-{number:05}.npz", x=x, y=(x.sum(axis=1) > 0).astype(np.int64))


# --- the parts -------------------------------------------------------------------------------------------------------


def _quick() -> list[PlantedVariant]:
    decoding, *_, host = _in_step()
    kept = [each for each in _in_source() if each.name in ("source, fifo_queue, 1", "source, tf_data, 1")]
    return [*_differing(2)[:2], *kept, decoding, host, _cheat()]


def _in_source() -> list[PlantedVariant]:
    """Return variants with a slow source: synchronous backends wait for it, others for what the device leaves."""
    waits = ((FEED, 8.0), (SERIAL, 8.0), (fifo(1), 18.0), (fifo(2), 34.0), (tf_data(1), 18.0), (tf_data(2), 34.0))
    return [_planted(SOURCE, "source", pipeline, {"read_ms": [ms]}, ms, 0.0) for pipeline, ms in waits]


def _differing(rounds: int) -> list[PlantedVariant]:
    """Return a baseline, its twin, and one whose step is longer by a known share."""
    alike, slower_ms = 8.0, (8.0 + SHORT_MS) * SLOWER - SHORT_MS
    made = []
    for name, read_ms in (("source, feed_dict", alike), ("its twin", alike), ("a slower one", slower_ms)):
        one = _planted(SOURCE, "source", FEED, {"read_ms": [read_ms]}, read_ms, 0.0, name=name)
        made.append(PlantedVariant(one.part, {**one.variant, "run": {"repeats": rounds}}, one.truth))
    return made


def _in_step() -> list[PlantedVariant]:
    """Decoding counts where the backend finishes its batches; a copy and Python's own time count for the host."""
    queue, ahead = fifo(1), tf_data(1)
    return [
        _planted(DECODE, "decoding", ahead, {"read_ms": [2.0], "decode_ms": 16.0}, 18.0, 0.0),
        _planted(DECODE, "decoding", queue, {"read_ms": [2.0], "decode_ms": 5.0}, 2.0, 5.0),
        _planted(HOST, "copy", ahead, {"read_ms": [4.0], "copy_ms": 5.0}, 4.0, 5.0, around="planted_copy"),
        _planted(HOST, "Python in the step", queue, {"read_ms": [4.0]}, 4.0, 5.0, host_ms=5.0),
    ]


def _cheat() -> PlantedVariant:
    one = _planted(WORK, "a backend that cheats", tf_data(1), {"read_ms": [4.0]}, 4.0, 0.0, around="planted_cheat")
    return PlantedVariant(WORK, {**one.variant, "name": "a backend that cheats"}, None, cheats=True)


LOOPS_BESIDE_SESSION: Mapping[str, dict[str, Any]] = {
    "callable": {"kind": "callable"},
    "while_loop": {"kind": "while_loop", "steps_per_call": 10},
    "function": {"kind": "function"},
    "function of 10": {"kind": "function", "steps_per_call": 10},
    "keras_fit": {"kind": "keras_fit"},
    "native": {"kind": "native"},
}


def _loops() -> list[PlantedVariant]:
    """Return the loops that build the step into the graph, or run eagerly, with a model of which they can."""
    model = {"kind": "planted_device", "step_ms": _LOOP_MS}
    pipeline = tf_data(1)
    made = []
    for name, loop in LOOPS_BESIDE_SESSION.items():
        read = {"read_ms": [_LOOP_READ_MS]}
        one = _planted(LOOPS, "loop", pipeline, read, _LOOP_READ_MS, 0.0, name=f"loop {name}")
        variant = {**one.variant, "model": model, "loop": loop, "run": {"steps": _LOOP_STEPS}}
        made.append(PlantedVariant(LOOPS, variant, one.truth, device_ms=None))
    return made


def _read(folder: Path) -> list[PlantedVariant]:
    """Files on a storage whose first byte takes its time, and a generator that does."""
    arrays = {"kind": "npz", "path": str(folder / "arrays"), "batch_size": _BATCH}
    images = {"kind": "image_folder", "path": str(folder / "images"), "image_size": 8, "batch_size": _IMAGES_A_BATCH}
    made = [_late(pipeline, ms, arrays, ms) for pipeline, ms in ((FEED, _LATE_MS / 2), (tf_data(1), _LATE_MS))]
    of_images = (readers(1, _IMAGES_A_BATCH), workers(1), SERVICE, *(each for each in LOADERS if _is_here(each)))
    made += [_late(pipeline, _LATE_MS, images, _LATE_MS / _IMAGES_A_BATCH) for pipeline in of_images]
    for pipeline, ms in ((FEED, _LATE_MS / 2), (tf_data(1), _LATE_MS)):
        source = {
            "kind": "generator",
            "batch_size": 4,
            "callable": f"{generator.__file__}:make",
            "arguments": {"batch_size": 4, "read_ms": [ms]},
        }
        made.append(_long(PYTHON, f"generator, {pipeline.name}", pipeline, source, ms))
    return made


def _is_here(pipeline: Pipeline) -> bool:
    """Return whether a backend that is an extra is installed; who has not asked for it need not hear of it."""
    return plugins.make("backends", pipeline.backend, pipeline.options).unavailable() is None


def _late(pipeline: Pipeline, produce_ms: float, files: dict[str, Any], latency_ms: float) -> PlantedVariant:
    source = {"kind": "slow_storage", "latency_ms": latency_ms, "files": files}
    return _long(STORAGE, f"storage, {pipeline.name}", pipeline, source, produce_ms)


def _long(part: str, name: str, pipeline: Pipeline, source: dict[str, Any], produce_ms: float) -> PlantedVariant:
    variant = {
        "name": name,
        "backend": pipeline.backend,
        "options": pipeline.options,
        "source": source,
        "model": {"kind": "emulated", "step_ms": LONG_MS},
        "run": {"steps": _LONG_STEPS},
    }
    return PlantedVariant(part, variant, lambda bare_ms: pipeline.work_out((produce_ms,), 0.0, bare_ms), LONG_MS)


def _planted(
    part: str,
    what: str,
    pipeline: Pipeline,
    source: dict[str, Any],
    produce_ms: float,
    in_step_ms: float,
    *,
    name: str = "",
    around: str = "",
    host_ms: float = 0.0,
) -> PlantedVariant:
    """Return a variant of the planted source on the short device.

    Args:
        part: that it belongs to.
        what: its name begins with.
        pipeline: that carries its batches.
        source: its options.
        produce_ms: what a batch takes to make.
        in_step_ms: what lies between the batch and the device.
        name: in place of what and the pipeline's.
        around: a backend around the pipeline's.
        host_ms: slept in Python in each step.
    """
    inner = {"inner": pipeline.backend, "inner_options": pipeline.options}
    variant: dict[str, Any] = {
        "name": name or f"{what}, {pipeline.name}",
        "backend": around or pipeline.backend,
        "options": inner if around else pipeline.options,
        "source": source,
    }
    if pipeline.producers > 1:  # every second step waits, which hides the first ones, for which the queue was full
        variant["run"] = {"steps": 2 * _STEPS}
    if host_ms:
        variant["loop"] = {"kind": "planted_host", "host_ms": host_ms}

    def truth(bare_ms: float) -> Truth:
        # A session.run takes some time beyond the delay in it; feed_dict has another one, for its batch.
        run_ms = bare_ms - SHORT_MS if pipeline is FEED else 0.0
        return pipeline.work_out((produce_ms + run_ms,), in_step_ms, bare_ms)

    return PlantedVariant(part, variant, truth)
