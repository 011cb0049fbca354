"""Reaches a cluster of Ray, starts one on this machine where none is named, and finds nodes for the ranks."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pipeline_bench import plugins
from pipeline_bench.errors import UsageError
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.system import interrupts
from pipeline_bench.text import REASON, line_of, message_of, one_line, units
from pipeline_bench.tfdata.service import answers

PLACED_WITHIN_S = 60.0
_REACHED_WITHIN_S = 5.0
_LOCAL_STORE_BYTES = 80 * 2**20
"""Of a node that is started here: the least that Ray takes is 75 MB, and nothing large is sent."""
_Begun = TypeVar("_Begun")


def faults(library: Any) -> tuple[type[Exception], ...]:
    """Return what Ray raises when it cannot be reached, or cannot do what it is asked."""
    return ConnectionError, library.exceptions.RayError


def why(error: BaseException) -> str:
    """Return an exception of Ray's in one line; its text has the cause last, after a traceback or the actor's ids."""
    last = message_of(error).strip().rpartition("\n")[2].strip()
    return one_line(f"{type(error).__name__}: {last}", REASON)


@contextmanager
def connected(
    hosts: int, address: str | None, notify: Callable[[str], None], begin: Callable[[Any], _Begun]
) -> Iterator[_Begun]:
    """Connect to Ray for the block, and give what `begin` makes of its library; end what was started for it here.

    Raises:
        UsageError: there is no Ray at the address, or it does not do what `begin` asks.
    """
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address not in (None, "local", "auto"):
        check_answers(str(address))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    started = None
    if address == "local" or (address is None and not _runs_here()):
        # Ray takes loopback for a machine's name and asks for its address, unless it may not be a cluster of several.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        notify(f"no Ray cluster was named: {hosts} nodes are started on this machine and share its cores")
        started = start_here(hosts)
        address = started.address
    import ray

    try:
        try:
            _init(ray, address or "auto")
            begun = begin(ray)
        except faults(ray) as error:
            raise _no_use(address, error) from None
        yield begun
    finally:
        with interrupts.deferred():
            ray.shutdown()
            if started is not None:
                started.shutdown()


def _init(library: Any, address: str) -> None:
    try:
        library.init(address=address, log_to_driver=False, configure_logging=False)
    except RuntimeError as error:  # of another Ray or Python at the head, for which it has no class
        raise _no_use(address, error) from None


def _no_use(address: str | None, error: Exception) -> UsageError:
    return UsageError(f"Ray at {address or 'auto'}: {line_of(error)}", "Look at `ray status`.")


def placed(library: Any, hosts: int, scenario: Scenario) -> Any:
    """Return the places of the ranks, each on a node of its own, with the GPUs that the scenario uses where all have.

    Raises:
        UsageError: there are too few nodes, or other work holds them.
    """
    nodes = [node["Resources"] for node in library.nodes() if node["Alive"]]
    if len(nodes) < hosts:
        raise UsageError(
            f"--hosts asks for {hosts}, and Ray has {units.count(len(nodes), 'node')}.",
            "Give fewer --hosts, or start Ray on more machines: ray start --address=HOST:PORT",
        )
    used = {_gpus_of(variant) for variant in scenario.variants}
    gpus = max((each for each in used if sum(node.get("GPU", 0) >= each for node in nodes) >= hosts), default=0)
    bundle = {"CPU": 1.0, "GPU": float(gpus)} if gpus else {"CPU": 1.0}
    group = library.util.placement_group([bundle] * hosts, strategy="STRICT_SPREAD")
    if not group.wait(PLACED_WITHIN_S):
        library.util.remove_placement_group(group)
        needed = " and ".join(f"{units.count(int(number), name)}" for name, number in bundle.items())
        raise UsageError(
            f"Ray found no {hosts} nodes with {needed} free within {PLACED_WITHIN_S:.0f} s.",
            "`ray status` shows what holds them.",
        )
    return group


def _gpus_of(variant: Variant) -> int:
    """Return how many GPUs a variant uses where a node has them: none on the CPU, or with an emulated device."""
    runtime, model, least = variant.runtime, variant.model, 1
    if runtime.device == "cpu" or variant.emulated_device is not None:
        return 0
    if runtime.device == "auto" and plugins.has("models", model.kind):
        least = plugins.make("models", model.kind, model.options).least_gpus
    return max(runtime.replicas, least, int(runtime.device.partition(":")[2] or 0) + 1)


def place(group: Any, number: int) -> dict[str, Any]:
    """Return the options of an actor that is to be at a rank's place."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
    bundle = group.bundle_specs[number]
    return {"scheduling_strategy": where, "num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0)}


def _runs_here() -> bool:
    from ray._private.services import find_gcs_addresses

    return bool(find_gcs_addresses())


def start_here(hosts: int) -> Any:
    """Return a cluster of so many nodes; Ray itself ends what has started where it does not come up.

    Raises:
        UsageError: it did not come up.
    """
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": _LOCAL_STORE_BYTES}
    try:
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        for _ in range(hosts - 1):
            cluster.add_node(**node)
    except Exception as error:  # Ray raises this class
        raise UsageError(
            f"Ray did not start {units.count(hosts, 'node')} on this machine: {line_of(error)}",
            "A machine that is busy may be too slow for it; give fewer --hosts, or the cluster's address: --on ray://…",
        ) from None
    return cluster


def check_answers(address: str) -> None:
    """Ray itself asks an address where nobody is for many minutes.

    Raises:
        UsageError: nobody is there.
    """
    try:
        where = urlsplit(address if "://" in address else f"ray://{address}")
        host, port = where.hostname or "", where.port or 10001
        socket.create_connection((host, port), _REACHED_WITHIN_S).close()
        if os.environ.get("RAY_USE_TLS", "0") == "0" and not answers(f"{host}:{port}"):  # both its ports are gRPC's
            raise OSError("what listens there does not answer as Ray does")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--on {address}: no Ray answers there: {line_of(error)}",
            "Give ray://HOST:PORT of its head node, whose client port is 10001 by default.",
        ) from None
