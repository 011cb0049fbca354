"""Which rank this process is, from the variables of what started it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

from pipeline_bench.model.hosts import Host


def name_of(rank: int) -> str:
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
        return name_of(self.number)

    def host(self, clock_offset_s: float | None = None) -> Host:
        """Return this machine as one of the hosts."""
        return Host(
            rank=self.number,
            size=self.size,
            name=socket.gethostname(),
            launcher=self.launcher,
            wall_minus_monotonic_ns=time.time_ns() - time.monotonic_ns(),
            clock_offset_s=clock_offset_s,
        )


RANK_VARIABLE, SIZE_VARIABLE = "PIPELINE_BENCH_RANK", "PIPELINE_BENCH_RANKS"
"""What a rank that Ray placed is told by; Ray's workers have no such number of their own."""

# By launcher: the variable of the rank, and those of the number of ranks, the first that is there. Ray and mpirun
# inside of a Slurm job have Slurm's as well, of their daemons; sbatch's own shell has Slurm's rank 0 without a step.
_VARIABLES = {
    "ray": (RANK_VARIABLE, (SIZE_VARIABLE,)),
    "open-mpi": ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    "pmi": ("PMI_RANK", ("PMI_SIZE",)),
    "slurm": ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")),
}


def of_training(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank of a training: also that which TensorFlow's own variable gives it.

    TF_CONFIG: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    """
    if (rank := found(environment)) is not None:
        return rank
    try:
        config = json.loads(environment.get("TF_CONFIG", ""))
        cluster, task = config["cluster"], config["task"]
        chiefs, workers = len(cluster.get("chief", ())), len(cluster.get("worker", ()))
        number = int(task["index"]) + (chiefs if task["type"] == "worker" else 0)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    size = chiefs + workers
    return Rank(number, size, "tf-config") if task["type"] in ("chief", "worker") and number < size != 1 else None


def found(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank; None of a process that is none, or the only one."""
    for launcher, (number, sizes) in _VARIABLES.items():
        size = next((environment[name] for name in sizes if name in environment), "")
        given = environment.get(number, "")
        if given.isdecimal() and size.isdecimal() and int(given) < int(size) != 1:
            return Rank(int(given), int(size), launcher)
    return None
