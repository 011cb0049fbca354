"""A trial's devices: the runtime settings put into TensorFlow, and which device each op of a step then ran on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.loops import EagerTraining, Training
from pipeline_bench.model.events import Device, PlacedOp, Placement
from pipeline_bench.model.trial import Trial
from pipeline_bench.models import Model
from pipeline_bench.planted import cuda
from pipeline_bench.scenario import Runtime
from pipeline_bench.text import line_of


def session_config(runtime: Runtime) -> Any:
    """Return the ConfigProto of the trial's session."""
    import tensorflow as tf

    v1 = tf.compat.v1
    return v1.ConfigProto(
        intra_op_parallelism_threads=runtime.intra_op_threads,
        inter_op_parallelism_threads=runtime.inter_op_threads,
        allow_soft_placement=True,
        device_count={"CPU": cpu_devices(runtime)} | ({"GPU": 0} if runtime.device == "cpu" else {}),
        gpu_options=v1.GPUOptions(allow_growth=runtime.memory_growth),
    )


def set_up(runtime: Runtime, device: str | None) -> None:
    """Apply the threads and the GPUs to the whole process; before anything is built.

    A session's configuration is not enough. TensorFlow has one pool of intra-op threads a process, which the first that
    makes a device sizes. Tracing a function, of tf.data for one, starts the runtime of eager execution also in a graph,
    and that would make the device before the session does, with as many threads as there are cores, and take all of a
    GPU's memory.

    Args:
        runtime: of the trial.
        device: the accelerator, as `accelerator` has it.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(runtime.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(runtime.inter_op_threads)
    if device is None:
        tf.config.set_visible_devices([], "GPU")
    elif runtime.memory_growth:
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


def cpu_devices(runtime: Runtime) -> int:
    """Return how many CPU devices the trial needs: those that were asked for, and one for each replica."""
    return max(runtime.cpu_devices, runtime.replicas)


def model_devices(runtime: Runtime, device: str | None) -> tuple[str, ...]:
    """Return what a model may spread its work over: every visible GPU where it may choose, or every CPU device.

    Args:
        runtime: of the trial.
        device: the accelerator, as `accelerator` has it.
    """
    import tensorflow as tf

    if device is None:
        return tuple(f"/cpu:{number}" for number in range(cpu_devices(runtime)))
    if runtime.device == "auto":
        return tuple(f"/gpu:{number}" for number in range(len(tf.config.get_visible_devices("GPU"))))
    return (device,)


def of_model(model: Model, runtime: Runtime) -> Runtime:
    """Return the settings of a trial, as its model needs them.

    Raises:
        PipelineBenchError: the runtime asks for a GPU, and the model emulates its device.
    """
    import tensorflow as tf

    if model.emulated_device:
        return host_only(runtime)
    if runtime.device == "auto" and len(tf.config.list_physical_devices("GPU")) < model.least_gpus:
        return runtime.model_copy(update={"device": "cpu"})
    return runtime


def host_only(runtime: Runtime) -> Runtime:
    """Return the settings of a trial whose model emulates its device, and leaves a real one alone.

    Raises:
        PipelineBenchError: the runtime asks for a GPU.
    """
    if runtime.device.startswith("gpu"):
        raise PipelineBenchError(
            f"runtime.device is {runtime.device!r}, but an emulated device runs on no GPU.",
            'Use runtime.device="auto" or "cpu" with the model emulated.',
        )
    return runtime.model_copy(update={"device": "cpu"})


def accelerator(runtime: Runtime) -> str | None:
    """Return the device that the model goes on, as `tf.device` takes it (``/gpu:0``); None for the CPU.

    Replicas have a GPU each, from the first one on, or run on the CPU all of them.

    Raises:
        PipelineBenchError: the runtime asks for a GPU that TensorFlow does not have, or for fewer than it has replicas.
    """
    import tensorflow as tf

    if runtime.device == "cpu":
        return None
    gpus = len(tf.config.list_physical_devices("GPU"))
    wanted = int(runtime.device.partition(":")[2] or 0)
    if runtime.replicas > 1 and runtime.device != "auto" and (wanted or gpus < runtime.replicas):
        raise PipelineBenchError(
            f"runtime.device is {runtime.device!r}, and {runtime.replicas} replicas need a GPU each; "
            f"TensorFlow sees {gpus} here.",
            'Use runtime.device = "auto" or "cpu" with replicas.',
        )
    if wanted < gpus and runtime.replicas <= max(1, gpus):
        return f"/gpu:{wanted}"
    if runtime.device == "auto":
        return None
    raise PipelineBenchError(
        f"runtime.device is {runtime.device!r}, but TensorFlow sees {gpus} GPUs here.",
        'Use runtime.device="auto" or "cpu"; `pipeline-bench doctor` says why the GPU is not seen.',
    )


def describe(device: str | None, config: Any) -> Device:
    """Return the device's name and, for a GPU, its PCI address, by which NVML finds the same one."""
    if device is None:
        return Device(kind="cpu", name="CPU:0")
    from tensorflow.python.client import device_lib

    name = device.strip("/").upper()
    for local in device_lib.list_local_devices(session_config=config):
        if local.name.endswith(f"device:{name}"):
            details = dict(part.split(": ", 1) for part in local.physical_device_desc.split(", ") if ": " in part)
            return Device(kind="gpu", name=details.get("name", name), pci_bus_id=details.get("pci bus id"))
    return Device(kind="gpu", name=name)


def set_up_eagerly(runtime: Runtime) -> Device:
    """Apply the settings to eager TensorFlow, before anything else is run; the device that a model will run on.

    Raises:
        PipelineBenchError: the runtime asks for a GPU that TensorFlow does not have.
    """
    import tensorflow as tf

    device = accelerator(runtime)
    set_up(runtime, device)
    if (cpus := cpu_devices(runtime)) > 1:
        parts = [tf.config.LogicalDeviceConfiguration()] * cpus
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    if device is None:
        return Device(kind="cpu", name="CPU:0")
    number = int(device.rpartition(":")[2])
    chosen = tf.config.list_physical_devices("GPU")[number]
    tf.config.set_visible_devices([chosen], "GPU")
    name = tf.config.experimental.get_device_details(chosen).get("device_name", "GPU:0")
    return Device(kind="gpu", name=str(name), pci_bus_id=cuda.pci_bus_id(number))


MOST_OPS = 5000
"""More ops than these are only counted: all are kept in the session's file."""

_TIMEOUT_MS = 20_000
_DEVICE = re.compile(r"(?P<process>/job:[^/]+(?:/replica:\d+)?/task:\d+)/device:(?P<device>\w+:\d+)")


def wants_placement(trial: Trial) -> bool:
    """Return whether the trial is to report it: the first repeat of a variant that asks for it."""
    return trial.variant.runtime.log_placement and trial.repeat == 0


def placement(run: Callable[..., Iterable[Any]], *given: Any) -> Placement:
    """Return the placement of one more step, whose graphs `run` gives of what it is given; of a failure, the reason."""
    try:
        return placement_of_graphs(run(*given))
    except Exception as error:
        return Placement(reason=f"the step that was to tell it failed: {line_of(error)}")


def graphs_of_session(session: Any, training: Training) -> Iterable[Any]:
    """Run one more step of the training graph, and return the graphs that ran."""
    import tensorflow as tf

    v1 = tf.compat.v1
    graph, feeding = training.graph, training.feeding
    feed = feeding.fetch(session) if feeding.wait == "fetch" else None
    options = v1.RunOptions(output_partition_graphs=True, timeout_in_ms=_TIMEOUT_MS)
    metadata = v1.RunMetadata()
    session.run([graph.train, graph.loss], feed, options=options, run_metadata=metadata)
    graphs: Iterable[Any] = metadata.partition_graphs
    return graphs


def graphs_of_function(training: EagerTraining) -> Iterable[Any]:
    """Run one more step in a ``tf.function``, and return the graphs that ran; its dataset must not have ended."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    running = context.context()
    running.enable_graph_collection()  # a function's graph is collected when it is set up, at its first call
    try:
        tf.function(lambda: training.train_on(training.take()[0]), autograph=False)()
        metadata = running.export_run_metadata()
    finally:
        running.disable_graph_collection()
    return [part for function in metadata.function_graphs for part in function.partition_graphs]


def placement_of_graphs(graphs: Iterable[Any]) -> Placement:
    """Return the placement that GraphDefs hold: each node with its device, by device and name; at most `MOST_OPS`."""
    nodes = sorted((str(node.device), str(node.name), str(node.op)) for graph in graphs for node in graph.node)
    if not nodes:
        return Placement(reason="TensorFlow reported no graph that it ran")
    found = [_DEVICE.search(device) for device, _, _ in nodes]
    alone = len({match["process"] for match in found if match}) <= 1
    ops = [
        PlacedOp(name=name, type=kind, device=_short(device, match, alone))
        for (device, name, kind), match in zip(nodes[:MOST_OPS], found, strict=False)
    ]
    return Placement(ops=tuple(ops), op_count=len(nodes))


def _short(device: str, match: re.Match[str] | None, alone: bool) -> str:
    """``CPU:0``, or ``/job:worker/task:1/CPU:0`` where there are several processes."""
    if match is None:
        return device or "no device"
    if alone:
        return match["device"]
    process = re.sub(r"/replica:\d+", "", match["process"])
    return f"{process}/{match['device']}"
