"""Which of several hosts this process is, and which of them run which trial at once: alone in turn, and together."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pipeline_bench.system.clocks import boot, wall_minus_monotonic_ns
from pipeline_bench.text import NAME, one_line

if TYPE_CHECKING:
    from pipeline_bench.model.hosts import Host
    from pipeline_bench.scenario import Scenario, Variant


def folder_name(rank: int) -> str:
    """Return what a rank's files and folder are called: ``rank-000``."""
    return f"rank-{rank:03}"


class Rank(NamedTuple):
    """One of several processes that were started together."""

    number: int
    size: int
    launcher: str

    @property
    def folder(self) -> str:
        """The name of its folder in ``--out``."""
        return folder_name(self.number)

    def host(self, clock_offset_s: float | None = None) -> Host:
        """Return this machine as one of the hosts."""
        from pipeline_bench.model.hosts import Host

        return Host(
            rank=self.number,
            size=self.size,
            name=socket.gethostname(),
            launcher=self.launcher,
            boot=boot(),
            wall_minus_monotonic_ns=wall_minus_monotonic_ns(),
            clock_offset_s=clock_offset_s,
        )


RANK_VARIABLE, SIZE_VARIABLE = "PIPELINE_BENCH_RANK", "PIPELINE_BENCH_RANKS"
"""The variables that give a rank that Ray placed its number; Ray's workers have no such number of their own."""

# By launcher: the variable of the rank, and those of the number of ranks, the first that is there. The first launcher
# whose numbers are valid decides, since an inner one inherits those of the outer. Ray and mpirun inside of a Slurm job
# have Slurm's as well, of their daemons, of which there may be one. The shell of sbatch has Slurm's rank 0 without a
# step; that of salloc has no rank, or is one of a step of 1.
_VARIABLES = {
    "ray": (RANK_VARIABLE, (SIZE_VARIABLE,)),
    "open-mpi": ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    "pmi": ("PMI_RANK", ("PMI_SIZE",)),
    "slurm": ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")),
}


def of_training(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank of a training: also that which TensorFlow's own variable gives it, and none in a batch shell."""
    if (rank := find_rank(environment)) is not None and not is_batch_shell(rank, environment):
        return rank
    return of_tf_config(environment)


def of_tf_config(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank that TensorFlow's own variable gives; None where it is not set, or names no other worker.

    TF_CONFIG: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    """
    try:
        config = json.loads(environment.get("TF_CONFIG", ""))
        cluster, task = config["cluster"], config["task"]
        chiefs, workers = len(cluster.get("chief", ())), len(cluster.get("worker", ()))
        number = int(task["index"]) + (chiefs if task["type"] == "worker" else 0)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    size = chiefs + workers
    is_one = task["type"] in ("chief", "worker") and 0 <= number < size != 1
    return Rank(number, size, "tf-config") if is_one else None


def find_rank(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank; None of a process that is none, or the only one."""
    for launcher, (number, sizes) in _VARIABLES.items():
        given, size = environment.get(number, ""), environment.get(_size_variable(environment, sizes), "")
        if _is_one_of(given, size):
            return Rank(int(given), int(size), launcher) if int(size) > 1 else None
    return None


def restarts(environment: Mapping[str, str]) -> int:
    """Return how often Slurm has started this job anew, the same for all of its ranks."""
    given = environment.get("SLURM_RESTART_COUNT", "")
    return int(given) if given.isdecimal() else 0


def _size_variable(environment: Mapping[str, str], names: Sequence[str]) -> str:
    """Return which of some variables has the number of ranks; an empty name if none is there."""
    return next((name for name in names if name in environment), "")


def _is_one_of(given: str, size: str) -> bool:
    """Return whether a rank is one of so many."""
    return given.isdecimal() and size.isdecimal() and int(given) < int(size)


def contradiction(environment: Mapping[str, str]) -> str | None:
    """Return the variables that make this process no rank because its number is none of so many; None where none do."""
    for number, sizes in _VARIABLES.values():
        name = _size_variable(environment, sizes)
        given, size = environment.get(number, ""), environment.get(name, "")
        if _is_one_of(given, size):
            return None
        if given and size.isdecimal():
            return f"{number} is {one_line(given, NAME)}, and {name} {one_line(size, NAME)}"
    return None


def fingerprint(scenario: Scenario, size: int, versions: Sequence[str | None]) -> str:
    """Return what is the same in all ranks that run the same trials with the same versions."""
    text = "\n".join([*map(str, versions), str(size), *(variant.model_dump_json() for variant in scenario.variants)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_batch_shell(rank: Rank, environment: Mapping[str, str]) -> bool:
    """Return whether this seems to be the script of a Slurm job, which has a rank, but no step with other ranks.

    Output environment variables of srun and sbatch: https://slurm.schedmd.com/srun.html
    """
    in_step = any(name in environment for name in ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"))
    return rank.launcher == "slurm" and "SLURM_JOB_ID" in environment and not in_step


_ALL_WIDTHS_UP_TO = 4
"""Hosts of which every number is tried; of more 2, 4, 8 … and all."""


class Slot(NamedTuple):
    """A trial of the hosts' common plan."""

    variant: str
    """As the ranks name it, see `variant_name`."""
    repeat: int
    ranks: tuple[int, ...]
    together: bool = True
    """Whether it means something only where all of them run it."""


def variant_name(name: str, hosts: int) -> str:
    """Return a variant's name where so many hosts run it at once."""
    return name + (", alone" if hosts == 1 else f", {hosts} hosts")


def widths(size: int) -> list[int]:
    """Return how many hosts run at once, from 2 on."""
    if size <= _ALL_WIDTHS_UP_TO:
        return list(range(2, size + 1))
    powers = [2**power for power in range(1, size.bit_length()) if 2**power < size]
    return [*powers, size]


def slots(scenario: Scenario, size: int) -> list[Slot]:
    """Return every trial of all ranks in its order, which is that of rank 0: it is among any number of hosts."""
    from pipeline_bench.model.trial import plan

    return [slot for trial in plan(of_rank(scenario, size, 0)) for slot in _of(trial.variant, trial.repeat, size)]


def _of(variant: Variant, repeat: int, size: int) -> Iterator[Slot]:
    every = tuple(range(size))
    if variant.on_hosts is None:  # a ceiling has no input that the hosts could share
        yield Slot(variant.name, repeat, every, together=False)
    elif variant.on_hosts.hosts == 1:
        yield from (Slot(variant.name, repeat, (rank,)) for rank in every)
    else:
        yield Slot(variant.name, repeat, every[: variant.on_hosts.hosts])


def of_rank(scenario: Scenario, size: int, rank: int) -> Scenario:
    """Return the scenario of one rank: each variant once for every number of hosts among which it is."""
    from pipeline_bench.scenario import OnHosts

    made: list[Variant] = []
    for variant in scenario.variants:
        if variant.is_ceiling:
            made.append(variant)
            continue
        for hosts in (1, *(hosts for hosts in widths(size) if rank < hosts)):
            on_hosts = OnHosts(variant=variant.name, hosts=hosts)
            name = variant_name(variant.name, hosts)
            made.append(variant.model_copy(update={"name": name, "on_hosts": on_hosts}))
    return scenario.model_copy(update={"variants": tuple(made), "published": None})


def before(slots: Sequence[Slot], slot: int, rank: int) -> int | None:
    """Return the last slot before this one that the rank takes part in; None where there is none."""
    return next((number for number in range(slot - 1, -1, -1) if rank in slots[number].ranks), None)
