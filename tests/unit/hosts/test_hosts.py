"""Ranks, their common plan, what they come to together, and whom the verdict names: without a process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from pipeline_bench.hosts import efficiency, ranks
from pipeline_bench.hosts.efficiency import HostFigures, Span
from pipeline_bench.hosts.ranks import Rank
from pipeline_bench.hosts.shared import Common, UsedCpu
from pipeline_bench.hosts.synchronous import WorkerFigures, training
from pipeline_bench.model.hosts import HostsKind
from pipeline_bench.model.trial import plan
from tests.unit.sessions import scenario, variant


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, Rank(3, 8, "slurm")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, Rank(1, 2, "open-mpi")),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, Rank(1, 4, "pmi")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({"PMI_RANK": "4", "PMI_SIZE": "4"}, None),
        ({"PMI_RANK": "one", "PMI_SIZE": "4"}, None),
        ({"SLURM_PROCID": "1"}, None),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
        ({"PMI_RANK": "0", "PMI_SIZE": "1", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, None),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "4",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "1",
            },
            Rank(2, 4, "open-mpi"),
        ),
        ({"PMI_RANK": "one", "PMI_SIZE": "4", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, Rank(1, 2, "slurm")),
    ],
)
def test_a_rank_is_known_by_the_variables_of_what_started_it(environment: dict[str, str], rank: Rank | None) -> None:
    assert ranks.find_rank(environment) == rank


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PMI_RANK": "4", "PMI_SIZE": "4"}, "PMI_RANK is 4, and PMI_SIZE 4"),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "8"}, "SLURM_STEP_NUM_TASKS 2"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({"SLURM_PROCID": "5"}, None),
        ({"PMI_SIZE": "4"}, None),
        ({"PMI_RANK": "one", "PMI_SIZE": "4"}, "PMI_RANK is one, and PMI_SIZE 4"),
        ({"PMI_RANK": "0", "PMI_SIZE": "1", "SLURM_PROCID": "5", "SLURM_NTASKS": "2"}, None),
    ],
)
def test_a_number_that_is_none_of_so_many_ranks_is_told_with_its_variables(
    environment: dict[str, str], words: str | None
) -> None:
    found = ranks.contradiction(environment)
    assert found is None if words is None else words in (found or "")


@pytest.mark.parametrize(
    ("variables", "is_shell"),
    [
        ({"SLURM_JOB_ID": "7"}, True),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}, False),
        ({}, False),
    ],
)
def test_the_shell_of_sbatch_is_known_by_its_lack_of_a_step(variables: dict[str, str], is_shell: bool) -> None:
    environment = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", **variables}
    rank = ranks.find_rank(environment)
    assert rank is not None
    assert ranks.is_batch_shell(rank, environment) is is_shell


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 9])
def test_every_rank_runs_its_part_of_the_common_plan_in_its_order(size: int) -> None:
    wanted = scenario(variant("a"), variant("b"), variant("ceiling", "ceiling", ceiling=None))
    slots = ranks.slots(wanted, size)
    for rank in range(size):
        own = [(slot.variant, slot.repeat) for slot in slots if rank in slot.ranks]
        assert own == [(t.variant.name, t.repeat) for t in plan(ranks.of_rank(wanted, size, rank))]
    of_a = [slot.ranks for slot in slots if slot.repeat == 0 and slot.variant.startswith("a, ")]
    assert of_a[:size] == [(rank,) for rank in range(size)]
    assert of_a[-1] == tuple(range(size))


def tf_config(cluster: dict[str, list[str]], kind: str, index: int) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        (tf_config({"worker": ["a:1", "b:1"]}, "worker", 1), Rank(1, 2, "tf-config")),
        (tf_config({"chief": ["c:1"], "worker": ["a:1"]}, "worker", 0), Rank(1, 2, "tf-config")),
        (tf_config({"worker": ["a:1", "b:1"]}, "worker", -1), None),
        (tf_config({"chief": ["c:1"], "worker": ["a:1"]}, "chief", 0), Rank(0, 2, "tf-config")),
        (tf_config({"worker": ["a:1"], "ps": ["p:1"]}, "ps", 0), None),
        (tf_config({"worker": ["a:1"]}, "worker", 0), None),
        ({"TF_CONFIG": "{"}, None),
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),  # the shell of sbatch
        ({"TF_CONFIG": "[]"}, None),
        ({**tf_config({"worker": ["a:1", "b:1"]}, "worker", 1), "PMI_RANK": "0", "PMI_SIZE": "2"}, Rank(0, 2, "pmi")),
    ],
)
def test_a_training_is_known_by_tensorflows_own_variable_too(environment: dict[str, str], rank: Rank | None) -> None:
    assert ranks.of_training(environment) == rank


def test_what_tensorflows_own_variable_says_is_known_beside_that_of_a_launcher() -> None:
    environment = tf_config({"worker": ["a:1", "b:1"]}, "worker", 1)
    assert ranks.of_tf_config({**environment, "PMI_RANK": "0", "PMI_SIZE": "2"}) == Rank(1, 2, "tf-config")


def worker(rank: int, wait_ms: float | None, collective_ms: float | None) -> WorkerFigures:
    return WorkerFigures(rank, f"rank {rank}", 50.0, wait_ms, collective_ms)


@pytest.mark.parametrize(
    ("waits_ms", "collectives_ms", "expected", "words"),
    [
        ((1, 31, 1), (35, 5, 34), ("slow-input", 1), "rank waits 31.0 ms, 62 % of a step, the others 1.0 ms; at the"),
        ((1, 1, 1), (35, 5, 34), ("slow-model", 1), "not by its input wait (1.0 ms)"),
        ((1, 9, 1), (35, 5, 34), ("slow-model", 1), "the others wait 29.5 ms for it, 59 % of their step"),
        (
            (1, 31, 1, 31),
            (35, 5, 35, 6),
            ("slow-input", 1, 3),
            "the inputs of rank 1 and rank 3 delay all workers: those ranks wait 31.0 ms, 62 % of a step, the others "
            "1.0 ms; at the collective the others wait 30.0 ms for them",
        ),
        (
            (1, 1, 1),
            (6, 5, 35),
            ("slow-model", 1, 0),
            "rank 1 and rank 0 delay all workers, but not by their input wait (1.0 ms): their own part",
        ),
        (
            (1, None, 1),
            (35, 5, 34),
            ("straggler", 1),
            "rank 1 delays all workers, by its input or its own part of the step: an input wait was not measured; at",
        ),
        ((None, 40), (35, 5), ("slow-input", 1), "that rank waits 40.0 ms, 80 % of a step; at the collective"),
        ((None, 20), (35, 5), ("straggler", 1), "an input wait was not measured"),  # so may rank 0, for 15 ms
        ((None, 1, None), (35, 5, 35), ("slow-model", 1), "not by its input wait (1.0 ms)"),
        (
            (1, None, 1, 31),
            (35, 5, 35, 6),
            ("straggler", 1, 3),
            "a step, the others 1.0 ms; rank 1 delays all workers, by its input or its own part",
        ),
    ],
)
def test_whom_the_workers_wait_for_is_told_by_the_collective_and_why_by_the_input(
    waits_ms: tuple[float | None, ...], collectives_ms: tuple[float, ...], expected: tuple[HostsKind, ...], words: str
) -> None:
    parts = [worker(rank, *each) for rank, each in enumerate(zip(waits_ms, collectives_ms, strict=True))]
    found = training(parts)
    assert found is not None
    assert (found.kind, *found.named) == expected
    assert words in found.text


@pytest.mark.parametrize(("late", "size"), [(3, 4), (5, 8), (6, 8)])
@pytest.mark.parametrize(("wait_ms", "kind"), [(31.0, "slow-input"), (1.0, "slow-model")])
def test_most_workers_are_named_where_most_are_late(late: int, size: int, wait_ms: float, kind: str) -> None:
    parts = [worker(rank, wait_ms, 5.0 + 0.1 * rank) for rank in range(late)]
    found = training([*parts, *(worker(rank, 1.0, 35.0) for rank in range(late, size))])
    assert found is not None
    assert (found.kind, found.named) == (kind, tuple(range(late)))
    assert "at the collective the others wait 30.0 ms for them, 60 % of their step" in found.text


def test_one_of_many_workers_that_comes_early_is_what_differs() -> None:
    assert training([worker(0, 1.0, 35.0), *(worker(rank, 31.0, 5.0) for rank in range(1, 8))]) is None


def test_nobody_is_named_where_all_come_together_or_a_part_is_not_known() -> None:
    alike = [worker(0, 20.0, 6.0), worker(1, 21.0, 5.0)]
    assert training(alike) is None
    assert training([*alike[:1], worker(1, 40.0, None)]) is None
    assert training(alike[:1]) is None


def span(step_ms: float, start_ms: float = 0.0, steps: int = 200, batch: int = 10) -> Span:
    return Span(np.asarray((start_ms + step_ms * np.arange(1, steps + 1)) * 1e6, dtype=np.int64), batch)


def test_rates_are_of_the_time_in_which_all_hosts_train() -> None:
    """The second host begins half a second late: what the first did before that is not of both."""
    assert efficiency.rate_together([span(10), span(20, start_ms=500)]) == pytest.approx(1500, rel=0.02)
    assert efficiency.rate_together([span(10), span(10, start_ms=1500)]) is None
    assert efficiency.rate_apart([span(10), span(20)]) == pytest.approx(1500)


def test_a_host_with_too_few_steps_for_a_rate_does_not_count_as_one_that_gives_nothing() -> None:
    """A step of 1.2 s ends once while the others train; alone it would make the others' efficiency too high."""
    assert efficiency.rate_together([span(10), span(1200, steps=3)]) is None
    assert efficiency.rate_apart([span(10), span(1200, steps=1)]) is None


def rounds(truth: float, scatter: Iterable[float]) -> dict[int, tuple[float, float]]:
    return {number: (truth * (1 + error) * 1000, 1000.0) for number, error in enumerate(scatter)}


def figures(*waits: tuple[float, float], ceilings: Sequence[float] = ()) -> list[HostFigures]:
    """Hosts whose figures are the same in each of four rounds, by their waits alone and together."""
    return [
        HostFigures(rank, f"rank {rank}", *(dict.fromkeys(range(4), each) for each in (*of, ceiling_ms)))
        for rank, (of, ceiling_ms) in enumerate(zip(waits, ceilings or [10.0] * len(waits), strict=True))
    ]


QUIET = (0.01, -0.01, 0.005, 0.0)


@pytest.mark.parametrize(
    ("truth", "each", "kind", "host", "words"),
    [
        (0.98, figures((0.04, 0.05), (0.04, 0.05)), "scales", None, "2 hosts reach 98 %"),
        (
            0.40,
            figures(*[(0.04, 0.61)] * 4),
            "shared-storage",
            None,
            "storage is shared: at 4 hosts each waits 61 %, alone 4 %",
        ),
        (
            1.40,
            figures((0.4, 0.05), (0.4, 0.05)),
            "inconclusive",
            None,
            "of what they reach alone, more than is possible",
        ),
        (0.40, figures((0.04, 0.05), (0.04, 0.05)), "inconclusive", None, "does not explain it"),
        (0.90, figures((0.04, 0.05), (0.04, 0.05)), "inconclusive", None, "the threshold is 90 %"),
        (
            0.80,
            figures((0.04, 0.05), (0.04, 0.05), (0.04, 0.05), ceilings=(10, 14, 10)),
            "slow-host",
            1,
            "rank 1 is slow: its ceiling is 1.4× the others'",
        ),
        (
            0.98,
            figures((0.58, 0.60), (0.04, 0.05), (0.04, 0.05)),
            "slow-input",
            0,
            "the input of rank 0 is slow: alone, it waits 58 %, the others 4 %",
        ),
        (
            0.80,
            figures((0.04, 0.05), (0.04, 0.61), (0.04, 0.04)),
            "straggler",
            1,
            "one straggler: rank 1 waits 61 %, the others 4 %",
        ),
        (
            0.98,
            figures((0.50, 0.52), (0.04, 0.05), (0.51, 0.52), (0.04, 0.04)),
            "slow-input",
            2,
            "the inputs of rank 2 and rank 0 are slow: alone, they wait 51 % and 50 %, the others 4 %",
        ),
        (
            0.70,
            figures((0.04, 0.05), (0.04, 0.61), (0.04, 0.04), (0.04, 0.60)),
            "straggler",
            1,
            "2 stragglers: rank 1 and rank 3 wait 61 % and 60 %, the others 4 %",
        ),
        (
            0.50,
            figures((0.04, 0.40), (0.04, 0.41), (0.04, 0.42), ceilings=(10, 14, 10)),
            "slow-host",
            1,
            "1.4× the others'; storage is shared: at 3 hosts each of the others waits 41 %, alone 4 %; 3 hosts",
        ),
        (
            0.50,
            figures((0.04, 0.65), (0.04, 0.40)),
            "straggler",
            0,
            "waits 65 %, the others 40 %; storage is shared: at 2 hosts each of the others waits 40 %, alone 4 %",
        ),
    ],
)
def test_the_verdict_names_what_was_planted(
    truth: float, each: list[HostFigures], kind: HostsKind, host: int | None, words: str
) -> None:
    found = efficiency.result("a", len(each), rounds(truth, QUIET), each)
    assert (found.kind, found.host) == (kind, host)
    assert words in found.text
    assert found.efficiency.value == pytest.approx(truth, abs=0.01)


def unequal(ceilings_ms: Sequence[float], alone_ms: Sequence[float], together_ms: float) -> list[HostFigures]:
    """Hosts whose accelerators take so long, and that wait for their input for the rest of their steps."""
    found = []
    for rank, (ceiling_ms, own_ms) in enumerate(zip(ceilings_ms, alone_ms, strict=True)):
        waits = [(each - ceiling_ms) / each for each in (own_ms, together_ms)]
        rounds = (dict.fromkeys(range(4), each) for each in (*waits, ceiling_ms, own_ms, together_ms))
        found.append(HostFigures(rank, f"rank {rank}", *rounds))
    return found


@pytest.mark.parametrize(
    ("each", "kind", "named"),
    [
        (unequal([50, 50, 50, 50, 25], [60] * 5, 60), "scales", ()),
        (unequal([50, 50, 50, 50, 25], [60] * 5, 120), "shared-storage", ()),
        (unequal([50, 25], [60, 60], 60), "slow-host", (0,)),
        (unequal([50, 50, 50, 50, 25], [60, 60, 60, 60, 90], 90), "slow-input", (4,)),
    ],
)
def test_a_host_that_waits_because_its_accelerator_is_faster_has_no_slow_input(
    each: list[HostFigures], kind: HostsKind, named: tuple[int, ...]
) -> None:
    """All get a batch in 60 ms, but the last one of the last case."""
    alone = sum(1 / host.alone_ms[0] for host in each)
    truth = sum(1 / host.together_ms[0] for host in each) / alone
    found = efficiency.result("a", len(each), rounds(truth, QUIET), each)
    assert (found.kind, found.named) == (kind, named)


@pytest.mark.parametrize(
    ("each", "kind", "named", "words"),
    [
        (
            figures((0.04, 0.05), (0.40, 0.41), (0.40, 0.41)),
            "slow-input",
            (1, 2),
            "alone, they wait 40 % and 40 %, the others 4 %",
        ),
        (
            figures((0.04, 0.05), (0.60, 0.61), (0.60, 0.61), (0.60, 0.61)),
            "slow-input",
            (1, 2, 3),
            "60 %, the others 4 %",
        ),
        (
            figures(*[(0.04, 0.05)] * 2, *[(0.04, 0.41)] * 2, *[(0.04, 0.35)] * 4),
            "straggler",
            (2, 3, 4, 5, 6, 7),
            "6 stragglers:",
        ),
        (
            figures(*[(0.04, 0.05)] * 3, ceilings=(10, 14, 14)),
            "slow-host",
            (1, 2),
            "their ceilings are 1.4× and 1.4× the others'",
        ),
        (figures(*[(0.04, 0.05)] * 3, ceilings=(20, 10, 20)), "slow-host", (0, 2), "2.0× and 2.0× the others'"),
    ],
)
def test_hosts_that_are_slow_are_named_beside_others_that_are_even_if_most_are(
    each: list[HostFigures], kind: HostsKind, named: tuple[int, ...], words: str
) -> None:
    found = efficiency.result("a", len(each), rounds(0.98, QUIET), each)
    assert (found.kind, found.named) == (kind, named)
    assert words in found.text


@pytest.mark.parametrize(
    ("alone", "words"),
    [
        (0.70, "rank 3 is slow: its ceiling is 1.2× the others'; the input of rank 3 is slow: alone, it waits 70 %"),
        (0.04, "rank 3 is slow: its ceiling is 1.2× the others'; one straggler: rank 3 waits 71 %, the others 5 %"),
    ],
)
def test_a_host_whose_ceiling_is_slow_may_wait_for_its_input_as_well(alone: float, words: str) -> None:
    """Its input is told once: what is slow alone is no straggler beside others."""
    each = figures(*[(0.04, 0.05)] * 3, (alone, 0.71), ceilings=(50, 50, 50, 61))
    found = efficiency.result("a", 4, rounds(0.98, QUIET), each)
    assert (found.kind, found.named) == ("slow-host", (3,))
    assert found.text.startswith(words)
    assert found.text.count("rank 3") == 2


@pytest.mark.parametrize("fast", [1, 2, 3])
def test_where_few_of_many_hosts_wait_less_nobody_is_slow(fast: int) -> None:
    """Of 16 hosts, fewer than 4: they are what differs."""
    each = figures(*[(0.04, 0.05)] * fast, *[(0.60, 0.61)] * (16 - fast))
    found = efficiency.result("a", 16, rounds(0.98, QUIET), each)
    assert (found.kind, found.named) == ("scales", ())


def test_storage_that_is_shared_is_told_of_hosts_that_wait_for_most_of_their_step_already() -> None:
    """Alone 85 of 100 ms, together 185 of 200: no share of 85 % could grow by much."""
    each = unequal([15, 15], [100, 100], 200)
    found = efficiency.result("a", 2, rounds(0.5, QUIET), each)
    assert (found.kind, found.shared) == ("shared-storage", True)
    assert "at 2 hosts each waits 92 %, alone 85 %" in found.text


def test_that_hosts_share_a_storage_is_kept_beside_the_one_that_is_named() -> None:
    each = figures((0.04, 0.40), (0.04, 0.41), (0.04, 0.42), ceilings=(10, 14, 10))
    assert efficiency.result("a", 3, rounds(0.5, QUIET), each).shared
    late = figures((0.04, 0.05), (0.04, 0.61), (0.04, 0.04))
    assert not efficiency.result("a", 3, rounds(0.8, QUIET), late).shared


ONE_MACHINE = ((0, 1),)
CORES = "ranks 0 and 1 ran on one machine, 97 % of its CPU busy, 60 % by them"


@pytest.mark.parametrize(
    ("common", "kind", "words"),
    [
        (Common(None), "inconclusive", "of what they reach alone; the input reads no storage"),
        (Common(None, ONE_MACHINE, (UsedCpu(0.97, 0.6),)), "inconclusive", f"; the input reads no storage; {CORES}"),
        (Common("the tf.data service"), "shared-storage", "the tf.data service is shared: at 2 hosts each waits 61 %"),
        (
            Common("storage", ONE_MACHINE, (UsedCpu(0.3, 0.2),)),
            "shared-storage",
            "30 % of its CPU busy, 20 % by them: there, storage is shared in any case",
        ),
        (
            Common("storage", ONE_MACHINE, (UsedCpu(0.97, 0.05),)),
            "shared-storage",
            "97 % of its CPU busy, 5 % by them: there",
        ),
        (Common("storage", ONE_MACHINE), "inconclusive", "ran on one machine: they may have waited for its cores"),
        (
            Common("storage", ONE_MACHINE, (UsedCpu(0.97, 0.6),)),
            "inconclusive",
            f"{CORES}: they may have waited for its cores",
        ),
        (
            Common("storage", ((0, 1), (2, 3)), (UsedCpu(0.97, 0.6),)),
            "inconclusive",
            "2 machines ran several ranks each, 97 % of their CPU busy, 60 % by them: they may have waited for their",
        ),
    ],
)
def test_of_what_hosts_share_their_storage_is_named_only_where_it_can_be_told_from_cores(
    common: Common, kind: HostsKind, words: str
) -> None:
    found = efficiency.result("a", 2, rounds(0.4, QUIET), figures((0.04, 0.61), (0.04, 0.61)), common=common)
    assert found.kind == kind
    assert "each waits 61 %, alone 4 %" in found.text
    assert words in found.text


def test_who_is_named_may_have_waited_for_a_core_of_a_busy_machine() -> None:
    late = figures((0.04, 0.05), (0.04, 0.61), (0.04, 0.04))
    busy, free = (
        efficiency.result("a", 3, rounds(0.8, QUIET), late, common=Common("storage", ONE_MACHINE, (cpu,)))
        for cpu in (UsedCpu(0.97, 0.6), UsedCpu(0.3, 0.2))
    )
    assert (busy.kind, free.kind) == ("straggler", "straggler")
    assert busy.text.endswith(f"the others 4 %; {CORES}: rank 1 may have waited for a core")
    assert "machine" not in free.text


def test_of_several_who_are_named_those_of_a_busy_machine_may_have_waited_for_a_core() -> None:
    late = figures((0.04, 0.05), (0.04, 0.61), (0.04, 0.61), (0.04, 0.61), (0.04, 0.04), (0.04, 0.05), (0.04, 0.05))
    common = Common("storage", ((2, 3),), (UsedCpu(0.97, 0.6),))
    found = efficiency.result("a", 7, rounds(0.8, QUIET), late, common=common)
    assert found.named == (1, 2, 3)
    assert found.text.endswith("60 % by them: ranks 2 and 3 may have waited for a core")


def test_hosts_that_are_late_by_turns_are_no_stragglers() -> None:
    """On average rank 0 waits 24 points more; in one round of four it waits 45 points less."""
    uneven = [HostFigures(rank, f"rank {rank}", dict.fromkeys(range(4), 0.04)) for rank in range(2)]
    late = (dict(enumerate((0.7, 0.7, 0.25, 0.7))), dict(enumerate((0.2, 0.3, 0.7, 0.2))))
    found = efficiency.result(
        "a", 2, rounds(0.5, QUIET), [host._replace(together=wait) for host, wait in zip(uneven, late, strict=True)]
    )
    assert found.wait_together[0] - found.wait_together[1] > 0.2  # type: ignore[operator]
    assert (found.kind, found.named) == ("shared-storage", ())


def test_a_single_round_decides_nothing() -> None:
    found = efficiency.result("a", 2, rounds(0.4, [0.0]), figures((0.04, 0.61), (0.04, 0.61)))
    assert found.kind == "inconclusive"
    assert efficiency.result("a", 2, {}, figures((0.04, 0.6), (0.04, 0.6))).kind == "not-measured"


def test_the_straggler_is_named_in_95_of_100_and_nobody_where_there_is_none() -> None:
    """Shares scatter by 5 points between hosts; four of them, one of which waits 35 points longer."""
    noise = np.random.default_rng(0)
    named = innocent = 0
    for _ in range(100):
        calm = np.clip(noise.normal(0.05, 0.05, (4, 2)), 0, 1)
        late = calm.copy()
        late[2, 1] += 0.35
        efficiencies = rounds(0.85, noise.normal(0, 0.03, 5))
        named += efficiency.result("a", 4, efficiencies, figures(*late.tolist())).host == 2
        innocent += efficiency.result("a", 4, efficiencies, figures(*calm.tolist())).host is None
    assert named >= 95
    assert innocent >= 95


@pytest.mark.parametrize("others", [3, 4])
def test_of_several_that_are_late_each_is_late_by_its_own_part(others: int) -> None:
    """Rank 1 by its input, the others from rank 3 on by their models, whatever most of them are."""
    late = [worker(rank, 1.0, 6.0) for rank in range(3, others + 1)]
    found = training([worker(0, 1.0, 35.0), worker(1, 31.0, 5.0), worker(2, 1.0, 35.0), *late])
    assert found is not None
    assert (found.kind, found.named) == ("slow-input", (1, *range(3, others + 1)))
    assert "the input of rank 1 delays all workers: that rank waits 31.0 ms" in found.text
    assert "rank 3" in found.text.partition("; ")[2]
    assert "own part of the step takes longer" in found.text


@pytest.mark.parametrize(
    ("waits", "kind"),
    [
        ([(0.02, 0.20)] * 4, "shared-storage"),
        ([(0.02, 0.20)] * 3 + [(0.02, 0.02)], "inconclusive"),
        ([(0.0, 0.0), (0.0, 0.15), (0.15, 0.15)], "inconclusive"),
    ],
)
def test_storage_is_shared_only_where_each_host_waits_longer_than_alone(
    waits: list[tuple[float, float]], kind: HostsKind
) -> None:
    found = efficiency.result("a", len(waits), rounds(0.84, QUIET), figures(*waits))
    assert found.kind == kind
    assert ("hosts wait longer than alone" in found.text) is (kind == "inconclusive")
