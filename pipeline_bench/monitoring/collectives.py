"""How long a worker of a synchronous training is at collectives, from having its own part ready to having the result.

There is one account in a process: a collective belongs to no loop, but its time lies in some step of one.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline_bench.monitoring import strategies
from pipeline_bench.monitoring.steps import StepLog, StepRows
from pipeline_bench.system.forks import ForkedLock

if TYPE_CHECKING:
    from pipeline_bench.monitoring.ring import RingRows

_PATCHED = "_pipeline_bench_patched"
_RECENT = 10_000
"""Of so many of the last collectives of graphs' steps it is kept when each ended: those between two reads, and more."""
_EVER_NS = np.iinfo(np.int64).max
_Kind = Literal["eager", "step", "ask"]
"""Where a collective ran: in eager code, in a graph's step, or where a graph asks whether the others have a batch."""


class Account:
    """When this process was at collectives, in bounded memory: time in which several run at once counts once."""

    def __init__(self) -> None:
        self._log = StepLog()
        self._ended_ns = np.empty(0, np.int64)
        """When the last ones of graphs' steps ended, ascending."""
        self._until_ns: dict[_Kind, int] = {"eager": 0, "step": 0, "ask": 0}
        self._lock = ForkedLock()

    def add(self, spans_ns: npt.NDArray[np.int64], kind: _Kind) -> None:
        """Take in collectives.

        Args:
            spans_ns: when each began and ended, shape [n, 2].
            kind: where they ran: not all kinds are known at one time, and none of them runs beside another.
        """
        with self._lock:
            spans_ns = spans_ns[np.argsort(spans_ns[:, 0])]
            ends = np.maximum.accumulate(np.concatenate([[self._until_ns[kind]], spans_ns[:, 1]]))
            begins = np.maximum(spans_ns[:, 0], ends[:-1])
            new = ends[1:] > begins
            self._log.extend(begins[new], ends[1:][new], 0)
            self._until_ns[kind] = int(ends[-1])
            if kind == "step":
                self._ended_ns = np.concatenate([self._ended_ns, ends[1:][new]])[-_RECENT:]

    def blocked_ns(self, rows: RingRows) -> npt.NDArray[np.int64]:
        """Return how long a graph's loop that asks for its next batch during its step was blocked for each, in ns.

        A step takes its last collective when its own work has ended, but for what it makes of the result. What is left
        of the wait then it did not hide, and nothing where that comes later, before the loop asks again. The wait stays
        as it is where the step has no collective.

        Args:
            rows: of its batches, taken in after the collectives so far.
        """
        with self._lock:
            ended_ns = self._ended_ns
        arrived_ns = rows.at_ns + np.maximum(rows.wait_ns, 0)
        before, later = (
            np.searchsorted(ended_ns, at, side="right") for at in (arrived_ns, np.append(rows.at_ns[1:], _EVER_NS))
        )
        left_ns = arrived_ns - np.concatenate([[0], ended_ns])[before]
        unhidden_ns = np.where(later > before, 0, np.minimum(left_ns, rows.wait_ns))
        return np.where(rows.wait_ns < 0, rows.wait_ns, unhidden_ns)

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
        begun_ns, took_ns = taken.start_ns, (taken.end_ns - taken.start_ns) * taken.count
        step = np.searchsorted(start_ns, begun_ns, side="right") - 1
        within = (step >= 0) & (begun_ns < end_ns[step])
        return float(took_ns[within].sum()) / float(count.sum()) / 1e6 if within.any() else None


class Ahead:
    """A graph's loop that asks for its next batch during its step: how long it was blocked for each."""

    def __init__(self) -> None:
        self._held = [np.empty(0, np.int64)] * 2
        """The last row, until it is known when the loop asked again."""

    def blocked(self, rows: RingRows, account: Account | None, settled: bool) -> RingRows:
        """Return the rows, late by one, with what the step left of each wait; `settled` where no more will come.

        Args:
            rows: that are new.
            account: which has taken in the collectives up to them; None where there was none.
            settled: whether these are the last ones.
        """
        at_ns, wait_ns = (np.concatenate(each) for each in zip(self._held, rows[:2], strict=True))
        known = rows._replace(at_ns=at_ns, wait_ns=wait_ns, iterators=None)  # of a `for`, which has one
        if account is not None:
            known = known._replace(wait_ns=account.blocked_ns(known))
        complete = len(at_ns) if settled else max(0, len(at_ns) - 1)
        self._held = [at_ns[complete:], wait_ns[complete:]]
        return known._replace(at_ns=known.at_ns[:complete], wait_ns=known.wait_ns[:complete])


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
            self._rings: dict[_Kind, Ring] = {"step": Ring(lasting=True), "ask": Ring(lasting=True)}
        self._eager: deque[tuple[int, int]] = deque()
        self._reading = ForkedLock()

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
        ring = self._rings["ask" if strategies.is_taking() else "step"]
        with tf.control_dependencies([tensor, *_before(launcher)]):
            return stamped(lambda: reduce(tensor), lambda _, at_s, wait_s: ring.write(at_s, wait_s))

    def read(self, settled: bool) -> None:
        """Take in what was measured since the last call; `settled` where no graph is running any more.

        The threads that sample different loops call it, and what ends one: the rows of each kind stay in order.
        """
        with self._reading:
            eager = np.array([self._eager.popleft() for _ in range(len(self._eager))], np.int64).reshape(-1, 2)
            self.account.add(eager, "eager")
            for kind, ring in self._rings.items():
                rows = ring.read(settled)
                self.account.add(np.stack([rows.at_ns, rows.at_ns + rows.wait_ns], axis=1), kind)


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


def account() -> Account | None:
    """Return the account of this process; None where there was no collective."""
    return None if _of_process is None else _of_process.account
