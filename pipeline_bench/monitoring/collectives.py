"""How long a worker of a synchronous training is at collectives, from having its own part ready to having the result.

There is one account in a process: a collective belongs to no loop, but its time lies in some step of one.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.monitoring.steps import StepLog, StepRows
from pipeline_bench.system.forks import ForkedLock

_PATCHED = "_pipeline_bench_patched"


class Account:
    """When this process was at collectives, in bounded memory: time in which several run at once counts once."""

    def __init__(self) -> None:
        self._log = StepLog()
        self._until_ns = {True: 0, False: 0}
        self._lock = ForkedLock()

    def add(self, spans_ns: npt.NDArray[np.int64], *, eager: bool) -> None:
        """Take in collectives.

        Args:
            spans_ns: when each began and ended, shape [n, 2].
            eager: where they ran: those of a graph are known later, and none of the two runs beside the other.
        """
        with self._lock:
            spans_ns = spans_ns[np.argsort(spans_ns[:, 0])]
            ends = np.maximum.accumulate(np.concatenate([[self._until_ns[eager]], spans_ns[:, 1]]))
            begins = np.maximum(spans_ns[:, 0], ends[:-1])
            new = ends[1:] > begins
            self._log.extend(begins[new], ends[1:][new], 0)
            self._until_ns[eager] = int(ends[-1])

    def step_ms(self, steps: StepRows, warmup: int) -> float | None:
        """Return how long a step was at collectives, in ms; None where there were none.

        Args:
            steps: of one loop or `fit`; what lies between two of them is of none.
            warmup: how many of the first rows are left out.
        """
        with self._lock:
            taken = self._log.rows()
        start_ns, count = steps.start_ns[warmup:], steps.count[warmup:]
        if not start_ns.size or not taken.start_ns.size:
            return None
        end_ns = start_ns + (steps.end_ns[warmup:] - start_ns) * count
        order = np.argsort(taken.start_ns)
        begun_ns, took_ns = taken.start_ns[order], ((taken.end_ns - taken.start_ns) * taken.count)[order]
        step = np.searchsorted(start_ns, begun_ns, side="right") - 1
        within = (step >= 0) & (begun_ns < end_ns[step])
        return float(took_ns[within].sum()) / float(count.sum()) / 1e6 if within.any() else None


class Collectives:
    """Those of this process, timed.

    Attributes:
        account: of them.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        from pipeline_bench.monitoring.ring import Ring

        self.account = Account()
        with tf.init_scope():  # the first one may be traced
            self._ring = Ring(lasting=True)
        self._eager: deque[tuple[int, int]] = deque()

    def timed(self, launcher: Any, reduce: Callable[[Any], Any], tensor: Any) -> Any:
        """Return what a collective makes of this worker's tensor.

        Args:
            launcher: TensorFlow's, of the collective.
            reduce: builds it, or runs it.
            tensor: what it is given.
        """
        import tensorflow as tf

        from pipeline_bench.monitoring.probe import stamped

        if tf.executing_eagerly():
            start_ns = time.monotonic_ns()
            reduced = reduce(tensor)
            self._eager.append((start_ns, time.monotonic_ns()))
            return reduced
        with tf.control_dependencies([tensor, *_before(launcher)]):
            return stamped(lambda: reduce(tensor), lambda _, at_s, wait_s: self._ring.write(at_s, wait_s))

    def read(self, settled: bool) -> None:
        """Take in what was measured since the last call; `settled` where no graph is running any more."""
        rows = self._ring.read(settled)
        eager = np.array([self._eager.popleft() for _ in range(len(self._eager))], np.int64).reshape(-1, 2)
        self.account.add(eager, eager=True)
        self.account.add(np.stack([rows.at_ns, rows.at_ns + rows.wait_ns], axis=1), eager=False)


def _before(launcher: Any) -> list[Any]:
    """Return what is there when the collectives before this one have ended; nothing where they have no order.

    Their order is that of what they do to a variable that they share. A loop in a graph asks the other workers whether
    they have a batch while its step goes on: that is not yet the time in which it waits for them.
    """
    import tensorflow as tf

    token = launcher._get_ordering_token()
    if token is None:
        return []
    with tf.device(launcher._device):
        return [tf.raw_ops.ReadVariableOp(resource=token, dtype=tf.float32)]


_of_process: Collectives | None = None


def patch(module: Any) -> None:
    """Time the collectives of this process' workers, from now on; once.

    Args:
        module: TensorFlow's `cross_device_utils`.
    """
    launcher = module.CollectiveReplicaLauncher
    if hasattr(launcher, _PATCHED):
        return
    setattr(launcher, _PATCHED, True)
    for name in ("all_reduce", "_all_gather"):
        setattr(launcher, name, _timed(getattr(launcher, name)))


def _timed(plain: Any) -> Any:
    @functools.wraps(plain)
    def collective(self: Any, input_tensor: Any, *given: Any, **named: Any) -> Any:
        if not _is_first_of_a_worker(self):
            return plain(self, input_tensor, *given, **named)
        return _begun().timed(self, lambda tensor: plain(self, tensor, *given, **named), input_tensor)

    return collective


_first_devices: dict[tuple[int, int], str] = {}


def _is_first_of_a_worker(launcher: Any) -> bool:
    """Return whether collectives with other processes are begun for the first device that this one has among them.

    Those of one device only: TensorFlow runs what writes to one ring in the order in which it was traced, in which all
    collectives of a device come before those of the next one, and each waits for the other devices' part in it.
    """
    if "/job:localhost" in launcher._device:
        return False
    group = (id(launcher._collective_keys), launcher._group_key)
    return bool(_first_devices.setdefault(group, launcher._device) == launcher._device)


def _begun() -> Collectives:
    global _of_process  # noqa: PLW0603 - the class that is patched is global as well
    if _of_process is None:
        _of_process = Collectives()
    return _of_process


def read(settled: bool) -> None:
    """Take in what graphs have measured since the last call, if anything; see `Collectives.read`."""
    if _of_process is not None:
        _of_process.read(settled)


def step_ms(steps: StepRows, warmup: int) -> float | None:
    """Return how long a step was at collectives with other workers; see `Account.step_ms`."""
    return None if _of_process is None else _of_process.account.step_ms(steps, warmup)
