"""The graph of one between_graph worker: its own input, the shared variables, and how gradients reach them.

Synchronous training is that of TensorFlow 1's `SyncReplicasOptimizer`, without its queue runner: each worker adds its
gradients to accumulators on the parameter server and waits for a token; worker 0 takes the means of all workers'
gradients, applies them, and gives a token to each of the others. Each has a token queue of its own, so that none can
take two steps while another takes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pipeline_bench import plugins, replication
from pipeline_bench.backends import Input
from pipeline_bench.model.events import Device
from pipeline_bench.models import GradientModel, TrainingGraph
from pipeline_bench.scenario import Variant
from pipeline_bench.worker import runtime, sample_audit
from pipeline_bench.worker.training_engines import digest_of

_PS = "/job:ps/task:0"
# No gradient is ever too old: an accumulator drops one whose step is below its own.
_NEVER_STALE = 2**62


class WorkerSettings(NamedTuple):
    """The ConfigProto of a worker's server and session, the device of its model, and what to call that."""

    config: Any
    device: str | None
    described: Device


class WorkerGraph(NamedTuple):
    """What a worker runs."""

    graph: TrainingGraph
    feeding: Input
    init: Any
    device: Device
    digest_cost_us: float | None
    """About what a step takes longer when it is sampled; None where it cannot be."""
    ends_by_closing: Any
    """The op by which worker 0 ends the other workers' steps; None of asynchronous ones."""


def settings(variant: Variant, index: int) -> WorkerSettings:
    """Return how a worker sees the machine: GPUs are given out one to each, where there are enough."""
    import tensorflow as tf

    model = plugins.make("models", variant.model.kind, variant.model.options)
    found = runtime.of_model(model, variant.runtime)
    device = runtime.accelerator(found)
    runtime.set_up(found, device)
    config = runtime.session_config(found.model_copy(update={"replicas": 1}))
    config.device_filters.extend(["/job:ps", f"/job:worker/task:{index}"])
    if device is None:
        config.device_count["GPU"] = 0
    else:
        # The runtime of eager execution starts as well, when a function is traced, and refuses GPUs of other numbers.
        tf.config.set_visible_devices([tf.config.list_physical_devices("GPU")[index]], "GPU")
        config.gpu_options.visible_device_list = str(index)
    return WorkerSettings(config, device and "/gpu:0", runtime.describe(device and "/gpu:0", config))


def build(variant: Variant, index: int, cluster: Any, found: WorkerSettings) -> WorkerGraph:
    """Build a worker's graph into the default one.

    Args:
        variant: of the trial, whole.
        index: of the worker; its seed, and so its random samples, are its own.
        cluster: the ClusterSpec.
        found: as `settings` gives it.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    home = f"/job:worker/task:{index}"
    model = plugins.make("models", variant.model.kind, variant.model.options)
    source = _source(replication.part_of(variant), found.config)
    v1.set_random_seed(replication.seed_of(variant.run.seed, index))
    backend = plugins.make("backends", variant.backend, variant.options)
    with v1.device(home):
        feeding = backend.connect(source, found.device)
        with tf.device("/cpu:0"):
            evaluation = _source(variant, found.config).sample_batch("evaluation") if index == 0 else None
        feeding.digest = digest_of(variant, source, feeding)
    setter = v1.train.replica_device_setter(cluster=cluster, worker_device=home + (found.device or "/cpu:0"))
    own = v1.global_variables()
    with v1.device(setter):
        loss = model.loss(feeding.batch)
        train, closes = _train(model, loss, variant, index)
        graph = TrainingGraph(train, loss, None if evaluation is None else model.accuracy_of_same(evaluation))
    init = v1.variables_initializer(v1.global_variables() if index == 0 else own)
    values = sample_audit.values_per_sample(feeding.batch.features.shape)
    cost_us = None if feeding.digest is None else sample_audit.cost_us(source, values)
    return WorkerGraph(graph, feeding, init, found.described, cost_us, closes)


def _source(variant: Variant, config: Any) -> Any:
    source = plugins.make("sources", variant.source.kind, variant.source.options)
    source.prepare(config)
    return source


def _train(model: GradientModel, loss: Any, variant: Variant, index: int) -> tuple[Any, Any]:
    """Return the op that trains; and, of synchronous workers, the one that ends the waiting of all but worker 0."""
    optimizer = model.optimizer()
    if not variant.runtime.synchronous:
        return optimizer.minimize(loss), None
    pairs = [(gradient, variable) for gradient, variable in optimizer.compute_gradients(loss) if gradient is not None]
    return _synchronous(optimizer, pairs, variant.runtime.replicas, index)


def _synchronous(optimizer: Any, pairs: Sequence[tuple[Any, Any]], workers: int, index: int) -> tuple[Any, Any]:
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.device(_PS):
        accumulators = [
            v1.ConditionalAccumulator(variable.dtype.base_dtype, variable.shape, shared_name=f"gradient_{number}")
            for number, (_, variable) in enumerate(pairs)
        ]
        tokens = [v1.FIFOQueue(1, [tf.bool], [[]], shared_name=f"token_{worker}") for worker in range(1, workers)]
        added = [
            accumulator.apply_grad(tf.convert_to_tensor(gradient), local_step=_NEVER_STALE)
            for accumulator, (gradient, _) in zip(accumulators, pairs, strict=True)
        ]
        closes = tf.group(*[queue.close() for queue in tokens])
        with tf.control_dependencies(added):
            if index:
                return tf.group(tokens[index - 1].dequeue()), closes
            means = [accumulator.take_grad(workers) for accumulator in accumulators]
    applied = optimizer.apply_gradients([(mean, variable) for mean, (_, variable) in zip(means, pairs, strict=True)])
    with tf.control_dependencies([applied]), v1.device(_PS):
        return tf.group(*[queue.enqueue(True) for queue in tokens]), closes
