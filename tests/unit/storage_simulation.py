"""Hosts that share a storage, event by event: what a plan is held against, and none of its formulas."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

STEPS = 240
WARM_UP = 80


@dataclass(frozen=True)
class Machine:
    """Times in ms of a batch.

    Attributes:
        step_ms: of the accelerator.
        own_ms: that a host's reader takes by itself, its own latency.
        turn_ms: that the storage takes; one batch after the other, in the order in which they are asked for.
        ahead: how many batches wait between reader and accelerator; 0: read, then step.
        jitter: a step or a read is longer or shorter by up to that share.
    """

    step_ms: float
    own_ms: float
    turn_ms: float
    ahead: int = 2
    jitter: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Of all hosts, after the warm-up."""

    batches_per_s: float
    utilization: float
    wait_share: float
    ends_ms: list[list[float]]
    """When each step of each host ended."""


@lru_cache(maxsize=64)
def simulate(machine: Machine, hosts: int, seed: int = 0) -> Outcome:
    random = np.random.default_rng(seed)

    def jittered(ms: float) -> float:
        return float(ms * (1 + machine.jitter * random.uniform(-1, 1))) if machine.jitter else ms

    free_ms = 0.0  # of the storage
    taken = [[float(random.uniform(0, machine.step_ms))] for _ in range(hosts)]
    ended, ready = [times[0] for times in taken], [times[0] for times in taken]
    busy, waits = [[0.0] for _ in range(hosts)], [[0.0] for _ in range(hosts)]
    asks = [(ready[host] + jittered(machine.own_ms), host) for host in range(hosts)]
    heapq.heapify(asks)
    while asks:
        at_ms, host = heapq.heappop(asks)
        free_ms = max(free_ms, at_ms) + machine.turn_ms
        ready[host] = free_ms if machine.turn_ms else at_ms
        begin_ms = max(ready[host], ended[host])
        step_ms = jittered(machine.step_ms)
        # What is not made ahead is begun when the step before has ended: all of its time is a wait.
        waits[host].append(begin_ms - ended[host])
        taken[host].append(begin_ms)
        busy[host].append(step_ms)
        ended[host] = begin_ms + step_ms
        if len(taken[host]) > STEPS:
            continue
        start_ms = ended[host]
        if machine.ahead:
            start_ms = max(ready[host], taken[host][max(0, len(taken[host]) - machine.ahead)])
        heapq.heappush(asks, (start_ms + jittered(machine.own_ms), host))
    spans = [times[-1] - times[WARM_UP] for times in taken]
    done = [sum(each[WARM_UP:-1]) for each in busy]
    waited = [sum(each[WARM_UP + 1 :]) for each in waits]
    return Outcome(
        batches_per_s=sum(1000 * (STEPS - WARM_UP) / span for span in spans),
        utilization=float(np.mean([each / span for each, span in zip(done, spans, strict=True)])),
        wait_share=float(np.mean([each / span for each, span in zip(waited, spans, strict=True)])),
        ends_ms=[[at + long for at, long in zip(*each, strict=True)] for each in zip(taken, busy, strict=True)],
    )
