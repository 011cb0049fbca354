"""The device that a watched job works on, and the samplers that a thread of its process polls, in bounded memory."""

from __future__ import annotations

import _thread
import os
import sys
import threading
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import compress
from statistics import fmean
from time import monotonic_ns, process_time_ns

import numpy as np

from pipeline_bench.analysis.utilization import during_steps
from pipeline_bench.model.events import STOPPED_NS, Device
from pipeline_bench.model.result import CPU_TIME
from pipeline_bench.monitoring.steps import StepRows
from pipeline_bench.planted import cuda
from pipeline_bench.run.trial_log import used_percent
from pipeline_bench.samplers import Reading, Sampler
from pipeline_bench.samplers.nvml_metrics import UTILIZATION
from pipeline_bench.system.forks import ForkedLock

PERIOD_S = 0.2
_LATEST = 6
"""Readings of a second and a bit."""
_IDLE, _AT_WORK = 0.02, 0.5
"""CPU time over wall time: of a process that is stopped or as good as that, and at the least of one that computes."""
MAX_READINGS = 20_000
"""Of one metric; when there are more, every second one is dropped, and from then on every second one is not kept."""


class Readings:
    """The samplers' readings, in bounded memory.

    Attributes:
        stops: from when to when the process of the `SamplerThread` was stopped, in ns.
    """

    def __init__(self, max_readings: int = MAX_READINGS) -> None:
        self._max = max_readings
        self.stops: list[tuple[int, int]] = []
        self._latest: dict[str, deque[Reading]] = {}
        self._kept: dict[tuple[str, str], list[Reading]] = {}
        self._every: dict[tuple[str, str], int] = {}
        self._seen: dict[tuple[str, str], int] = {}

    def add(self, readings: Sequence[Reading]) -> None:
        """Take in the readings of one poll."""
        for reading in readings:
            key = (reading.metric, reading.source)
            self._latest.setdefault(reading.metric, deque(maxlen=_LATEST)).append(reading)
            kept = self._kept.setdefault(key, [])
            every = self._every.setdefault(key, 1)
            seen = self._seen[key] = self._seen.get(key, -1) + 1
            if seen % every and reading.reason is None:
                continue
            kept.append(reading)
            if len(kept) > self._max:
                del kept[1::2]
                self._every[key] = 2 * every

    def latest(self, metric: str) -> list[Reading]:
        """Return the newest readings of a metric, oldest first: every one of them, however long the job is."""
        return list(self._latest.get(metric, ()))

    def all(self) -> list[Reading]:
        """Return everything that was kept, metric by metric, each in the order of its time."""
        return [reading for kept in list(self._kept.values()) for reading in list(kept)]

    def utilization(
        self, since_ns: int, cores: int, gpu: bool, steps: StepRows | None = None
    ) -> tuple[float | None, str | None]:
        """Return the device's utilization in percent since then, and its source; the CPU's where the job has no GPU.

        The CPU's is the process's CPU time over wall time and `cores`. A GPU's is of `steps` alone, if given.
        """
        if gpu:
            known = {
                source: [each.value for each in self._said((metric, source), since_ns, steps) if each.value is not None]
                for metric, source in list(self._kept)
                if metric == UTILIZATION
            }
            source, values = max(known.items(), key=lambda each: len(each[1]), default=("", []))
            return (fmean(values), source) if values else (None, None)
        key = next((key for key in list(self._kept) if key[0] == "cpu_seconds"), ("", ""))
        used = used_percent(self._since(key, since_ns), cores)
        return used, None if used is None else CPU_TIME

    def _said(self, key: tuple[str, str], since_ns: int, steps: StepRows | None) -> Iterable[Reading]:
        """Return the readings of an instrument since then, only those that speak of the steps where they are given."""
        said = self._since(key, since_ns)
        if steps is None:
            return said
        at_ns = np.array([each.at_ns for each in said], dtype=np.int64)
        return compress(said, during_steps(at_ns, key[1], steps.start_ns, steps.end_ns, steps.count))

    def _since(self, key: tuple[str, str], since_ns: int) -> list[Reading]:
        kept = list(self._kept.get(key, ()))
        return kept[bisect_left(kept, since_ns, key=lambda each: each.at_ns) :]


def was_stopped(took_ns: int, used_ns: int, usual_ns: int) -> bool:
    """Return whether a process was stopped while a period took so long.

    Until the stop it went on as before, for a period at most. Where rather something held Python's lock for so long,
    that has computed, or other threads have.

    Args:
        took_ns: the period.
        used_ns: the CPU time of the process in it.
        usual_ns: the same, of the period before.
    """
    return took_ns > STOPPED_NS and used_ns < min(_IDLE * took_ns + 2 * usual_ns, _AT_WORK * took_ns)


running: weakref.WeakSet[SamplerThread] = weakref.WeakSet()
"""Those that were not closed, for the tests: `threading` does not list these threads."""


class SamplerThread:
    """Polls samplers every `PERIOD_S` in a thread that never keeps the job's process from ending.

    It is none of Python's `threading`: a job that joins all its threads, as with TensorFlow 1's queues, would wait for
    it for ever.

    Attributes:
        problem: what a poll, or what is done after it, raised last; the thread goes on.
    """

    def __init__(
        self, samplers: Sequence[Sampler], readings: Readings, after_poll: Callable[[], None] | None = None
    ) -> None:
        self._samplers = tuple(samplers)
        self._readings = readings
        self._after_poll = after_poll
        self.problem: Exception | None = None
        self._usual_ns = 0
        """CPU time of the process in the last period."""
        self._stop = threading.Event()
        self._lock = ForkedLock()
        self._ended = threading.Event()
        self._owner: tuple[int, int | None] = os.getpid(), None
        running.add(self)
        try:
            self._owner = os.getpid(), _thread.start_new_thread(self._run, ())
        except RuntimeError as error:  # the system allows no more threads; the job's own calls still poll
            self.problem = error

    def poll(self) -> None:
        """Poll now, in the caller's thread; after `close` it does nothing."""
        with self._lock:
            if not self._stop.is_set():
                self._take(lambda sampler: sampler.poll())

    def close(self) -> None:
        """Poll a last time, end the thread and close the samplers; safe to call twice."""
        with self._lock:
            if self._stop.is_set():
                return
            self._stop.set()
            self._take(lambda sampler: sampler.poll())
            self._take(lambda sampler: sampler.end())
        process, thread = self._owner
        if process == os.getpid() and thread not in (None, threading.get_ident()):
            self._ended.wait(timeout=2.0)
        running.discard(self)
        for sampler in self._samplers:
            sampler.close()

    def _run(self) -> None:
        try:
            while not self._waited():
                try:
                    self.poll()
                    if self._after_poll is not None:
                        self._after_poll()
                except Exception as error:
                    self.problem = error
                # What asks for the current thread, as a logger does, has Python list this one.
                getattr(threading, "_active", {}).pop(threading.get_ident(), None)
        finally:
            self._ended.set()

    def _waited(self) -> bool:
        """Wait for the time of the next poll, and note where the process was stopped meanwhile."""
        from_ns, cpu_ns = monotonic_ns(), process_time_ns()
        ended = self._stop.wait(PERIOD_S)
        took_ns, used_ns = monotonic_ns() - from_ns, process_time_ns() - cpu_ns
        if was_stopped(took_ns, used_ns, self._usual_ns):
            self._readings.stops.append((from_ns, from_ns + took_ns))
        else:
            self._usual_ns = used_ns
        return ended

    def _take(self, ask: Callable[[Sampler], Sequence[Reading]]) -> None:
        """Ask each sampler; what one raises is no reason to end a job, in whose thread this may be."""
        for sampler in self._samplers:
            try:
                self._readings.add(ask(sampler))
            except Exception as error:
                self.problem = error


_CPU = Device(kind="cpu", name="CPU")


def device_of(framework: str) -> Device:
    """Return the device on which a framework puts its work by default: a GPU only where it has one in use.

    That is TensorFlow's first visible one, PyTorch's current one in this thread, and JAX's first one of this process.

    Args:
        framework: ``tensorflow``, ``jax`` or ``torch``, of which the job has loaded the module.
    """
    return {"jax": _of_jax, "torch": _of_torch}.get(framework, _of_tensorflow)()


def device_of_tf_data() -> Device:
    """Return the device of a loop over tf.data: JAX's or PyTorch's GPU where TensorFlow only makes the batches."""
    found = (device_of(each) for each in ("tensorflow", "jax", "torch"))
    return next((device for device in found if device.kind == "gpu"), _CPU)


def jax_is_at_work() -> bool:
    """Return whether the job has opened a device with JAX, which hands work over and does not wait for it."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def _of_tensorflow() -> Device:
    import tensorflow as tf

    return gpu_of_tensorflow() if tf.config.list_logical_devices("GPU") else _CPU


def gpu_of_tensorflow() -> Device:
    """Return the first GPU that TensorFlow uses; each rank may have set its own."""
    import tensorflow as tf

    visible = tf.config.get_visible_devices("GPU")  # in the order of the logical ones
    if not visible:
        return _gpu("GPU", None)
    name = tf.config.experimental.get_device_details(visible[0]).get("device_name", "GPU")
    return _gpu(name, visible[0].name.rpartition(":")[2])


def _of_torch() -> Device:
    torch = sys.modules.get("torch")
    # Not whether there is a GPU: to ask opens the driver, after which a fork of the job could not use it.
    if torch is None or not torch.cuda.is_initialized():
        return _CPU
    return _gpu(torch.cuda.get_device_name(), torch.cuda.current_device())


def _of_jax() -> Device:
    jax = sys.modules.get("jax")
    # To ask for the devices would open them, before the job has set what it wants of them.
    if jax is None or not jax_is_at_work():
        return _CPU
    first = jax.local_devices()[0]
    return _gpu(first.device_kind, getattr(first, "local_hardware_id", None)) if first.platform == "gpu" else _CPU


def _gpu(name: object, number: object) -> Device:
    """Return a GPU that the job has in use, by the number that CUDA gives it in this process.

    Where it has no PCI address by that, NVML samples the first visible one.
    """
    address = None
    with suppress(Exception):
        address = cuda.pci_bus_id(int(str(number)))
    return Device(kind="gpu", name=str(name), pci_bus_id=address)
