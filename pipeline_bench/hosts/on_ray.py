"""Ray places one rank on each of several nodes; this process carries between them what they tell each other."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.hosts import ranks, rendezvous
from pipeline_bench.model.session import SESSION_FILE
from pipeline_bench.scenario import Scenario
from pipeline_bench.system import interrupts
from pipeline_bench.system.clocks import wall_minus_monotonic_ns
from pipeline_bench.system.files import ScratchFolder, write_atomically
from pipeline_bench.system.processes import module_command
from pipeline_bench.text import line_of, units
from pipeline_bench.tfdata.service import answers

_RUNNER = "pipeline_bench.cli.placed_rank"
"""What each node runs, as a module: reads the scenario from stdin, and ends when that is closed."""
_LOOK_S = 0.02
_PLACED_WITHIN_S = 60.0
_REACHED_WITHIN_S = 5.0
_ENDED_WITHIN_S = 10.0
_LOCAL_STORE_BYTES = 80 * 2**20
"""Of a node that is started here: the least that Ray takes is 75 MB, and nothing large is sent."""


class Seen(NamedTuple):
    """What a rank has done since it was asked last."""

    beat: tuple[int, bytes] | None
    """Its file among those of the ranks, and when that was touched, in ns."""
    session: bytes | None
    stderr: str
    code: int | None
    """Its exit code; None while it runs."""
    clock_s: float
    ended_early: bool = False
    """Whether it ended by itself before its last trial."""


class Ended(NamedTuple):
    """What is known of the ranks beside their sessions.

    Attributes:
        lost: by rank why it did not end by itself.
        ahead_s: by rank how far its wall clock is ahead of this machine's.
    """

    lost: dict[int, str]
    ahead_s: dict[int, float]


class PlacedRank:
    """A rank on its node, as Ray's actor: the runner's process, and the files that tell of it."""

    def __init__(self, number: int, size: int, scenario: str, expose_servers: bool) -> None:
        self._number = number
        self._scratch = ScratchFolder()
        self._out = self._scratch.path
        self._board = self._out / rendezvous.FOLDER
        self._board.mkdir()
        self._stderr = (self._out / "stderr").open("w+b")
        self._read, self._saved_ns = 0, 0
        self._wall_s = _wall_clock()
        self._runner = subprocess.Popen(
            module_command(_RUNNER, self._out, int(expose_servers)),
            env=_environment(os.environ, number, size),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,
        )
        assert self._runner.stdin is not None
        self._runner.stdin.write(scenario.encode() + b"\n")
        self._runner.stdin.flush()

    def exchange(self, files: Mapping[str, bytes]) -> Seen:
        """Take in what the other ranks sent, and return what is new here."""
        for name, content in files.items():
            write_atomically(self._board / name, content)
        with suppress(subprocess.TimeoutExpired):
            self._runner.wait(_LOOK_S)
        code = self._runner.poll()  # before the files: what it left last is then among them
        ended_early = rendezvous.gone_path(self._board, self._number).exists()
        return Seen(self._beat(), self._session(), self._new_stderr(), code, self._wall_s(), ended_early)

    def end(self) -> None:
        """End the runner with all that it has started, and leave nothing."""
        assert self._runner.stdin is not None
        with suppress(OSError):
            self._runner.stdin.close()
        try:
            self._runner.wait(_ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._runner.kill()
            self._runner.wait()
        self._stderr.close()
        self._scratch.remove()

    def _beat(self) -> tuple[int, bytes] | None:
        path = rendezvous.path_of(self._board, self._number)
        try:
            return path.stat().st_mtime_ns, path.read_bytes()
        except OSError:
            return None

    def _session(self) -> bytes | None:
        path = self._out / ranks.folder_name(self._number) / SESSION_FILE
        try:
            saved_ns = path.stat().st_mtime_ns
            if saved_ns == self._saved_ns:
                return None
            content = path.read_bytes()
        except OSError:
            return None
        self._saved_ns = saved_ns
        return content

    def _new_stderr(self) -> str:
        text = os.pread(self._stderr.fileno(), 1 << 20, self._read)
        self._read += len(text)
        return text.decode(errors="replace")


def _wall_clock() -> Callable[[], float]:
    """Return a clock that is the wall clock as it is set now: `Rank.host` records it for its trials, too."""
    offset_s = wall_minus_monotonic_ns() / 1e9
    return lambda: offset_s + time.monotonic()


def _environment(own: Mapping[str, str], number: int, size: int) -> dict[str, str]:
    """Return the rank's variables, and the threads that it has without Ray, which allows an actor one."""
    kept = {name: value for name, value in own.items() if (name, value) != ("OMP_NUM_THREADS", "1")}
    return {**kept, ranks.RANK_VARIABLE: str(number), ranks.SIZE_VARIABLE: str(size)}


def run(
    scenario: Scenario,
    hosts: int,
    address: str | None,
    out: Path,
    notify: Callable[[str], None],
    *,
    expose_servers: bool,
) -> Ended:
    """Run a scenario on so many nodes; each one's session is in the folder of its rank below `out` as far as it came.

    Args:
        scenario: as resolved.
        hosts: how many nodes.
        address: ``ray://HOST:PORT``; None: that of ``RAY_ADDRESS`` or of a cluster that runs on this machine, and
            where there is none, one of `hosts` nodes that is started for it on this machine's loopback.
        out: exists.
        notify: takes a line for the user.
        expose_servers: see `run.comparison.compare`.

    Raises:
        UsageError: Ray is not installed, is not reached, or has too few nodes.
        SessionError: what was measured cannot be saved.
        KeyboardInterrupt: the user interrupted; what was measured is in the folders.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--on ray: Ray is not installed.", 'python -m pip install ".[ray]" in the checkout')
    with _cluster(hosts, address, notify) as library:
        return _Ranks(library, scenario, hosts, out, notify, expose_servers).follow()


class _Ranks:
    """The ranks of one run, as this process sees them."""

    def __init__(
        self,
        library: Any,
        scenario: Scenario,
        hosts: int,
        out: Path,
        notify: Callable[[str], None],
        expose_servers: bool,
    ) -> None:
        self._ray, self._out, self._notify = library, out, notify
        self._silent_s = rendezvous.gone_s(scenario)
        self._group = _placed(library, hosts, scenario)
        self._outbox: list[dict[str, bytes]] = [{} for _ in range(hosts)]
        self._beats: dict[int, int] = {}
        self._lost: dict[int, str] = {}
        self._ahead_s: dict[int, float] = {}
        self._wall_s = _wall_clock()
        actor = library.remote(PlacedRank)
        self._actors = [
            actor.options(**_place(self._group, number), max_restarts=0).remote(
                number, hosts, scenario.model_dump_json(), expose_servers
            )
            for number in range(hosts)
        ]

    def follow(self) -> Ended:
        """Carry between the ranks until each has ended or is lost; whatever happens, none is left running."""
        try:
            asked = {self._ask(number): (number, time.monotonic()) for number in range(len(self._actors))}
            while asked:
                interrupts.check()
                # All that is there: after this program was stopped for a while, an answer that waits is in time.
                ready, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=_LOOK_S)
                for future in ready:
                    number, _ = asked.pop(future)
                    if self._take(number, future):
                        asked[self._ask(number)] = (number, time.monotonic())
                for future, (number, since_s) in list(asked.items()):
                    if time.monotonic() - since_s > self._limit_s(number):
                        del asked[future]
                        self._lose(number, f"its node gave no answer for {units.seconds(self._limit_s(number))}")
            return Ended(self._lost, self._ahead_s)
        finally:
            self._end()

    def _limit_s(self, number: int) -> float:
        return self._silent_s if number in self._beats else max(self._silent_s, _PLACED_WITHIN_S)

    def _ask(self, number: int) -> Any:
        files, self._outbox[number] = self._outbox[number], {}
        return self._actors[number].exchange.remote(files)

    def _take(self, number: int, future: Any) -> bool:
        """Take in an answer; return whether the rank goes on.

        Raises:
            SessionError: its session cannot be saved here.
        """
        try:
            seen: Seen = self._ray.get(future)
        except (self._ray.exceptions.RayError, ImportError) as error:
            self._lose(number, line_of(error))
            return False
        # The answer was under way for a while: the one that took least is the nearest.
        self._ahead_s[number] = max(seen.clock_s - self._wall_s(), self._ahead_s.get(number, -math.inf))
        if seen.beat is not None and seen.beat[0] != self._beats.get(number):
            self._beats[number] = seen.beat[0]
            self._send(number, rendezvous.path_of(Path(), number).name, seen.beat[1])
        if seen.session is not None:
            self._keep(number, seen.session)
        for line in seen.stderr.splitlines():
            self._notify(line)
        if seen.code is not None and (seen.code < 0 or seen.code > 1):
            self._lose(number, f"its program {units.ending(seen.code)}")
        elif seen.code is not None and seen.ended_early:
            self._lose(number, rendezvous.ENDED_EARLY)
        return seen.code is None

    def _keep(self, number: int, session: bytes) -> None:
        folder = self._out / ranks.folder_name(number)
        try:
            folder.mkdir(exist_ok=True)
            write_atomically(folder / SESSION_FILE, session)
        except OSError as error:
            hint = f"Free some space or choose another --out. What was fetched before: pipeline-bench merge {self._out}"
            raise SessionError(f"{folder}: a session cannot be saved: {error.strerror}.", hint) from None

    def _send(self, sender: int, name: str, content: bytes) -> None:
        for number, files in enumerate(self._outbox):
            if number != sender:
                files[name] = content

    def _lose(self, number: int, why: str) -> None:
        self._lost[number] = why
        self._notify(f"rank {number} is lost: {why}")
        self._send(number, rendezvous.gone_path(Path(), number).name, why.encode())

    def _end(self) -> None:
        ending = [actor.end.remote() for actor in self._actors]
        with interrupts.deferred(), suppress(self._ray.exceptions.RayError):
            self._ray.wait(ending, num_returns=len(ending), timeout=_ENDED_WITHIN_S)
        for actor in self._actors:
            self._ray.kill(actor)
        self._ray.util.remove_placement_group(self._group)


def _placed(library: Any, hosts: int, scenario: Scenario) -> Any:
    """Return the places of the ranks, each on a node of its own, with the GPUs that the scenario uses where all have.

    Raises:
        UsageError: there are too few nodes, or other work holds them.
    """
    nodes = [node for node in library.nodes() if node["Alive"]]
    if len(nodes) < hosts:
        raise UsageError(
            f"--hosts asks for {hosts}, and Ray has {units.count(len(nodes), 'node')}.",
            "Give fewer --hosts, or start Ray on more machines: ray start --address=HOST:PORT",
        )
    bundle = {"CPU": 1.0}
    having = [node for node in nodes if node["Resources"].get("GPU", 0) >= 1]
    if len(having) >= hosts and any(variant.runtime.device != "cpu" for variant in scenario.variants):
        bundle["GPU"] = float(max(variant.runtime.replicas for variant in scenario.variants))
    group = library.util.placement_group([bundle] * hosts, strategy="STRICT_SPREAD")
    if not group.wait(_PLACED_WITHIN_S):
        library.util.remove_placement_group(group)
        needed = " and ".join(f"{units.count(int(number), name)}" for name, number in bundle.items())
        raise UsageError(
            f"Ray found no {hosts} nodes with {needed} free within {_PLACED_WITHIN_S:.0f} s.",
            "`ray status` shows what holds them.",
        )
    return group


def _place(group: Any, number: int) -> dict[str, Any]:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
    bundle = group.bundle_specs[number]
    return {"scheduling_strategy": where, "num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0)}


@contextmanager
def _cluster(hosts: int, address: str | None, notify: Callable[[str], None]) -> Iterator[Any]:
    """Connect to Ray for the block; end what was started for it here.

    Raises:
        UsageError: there is no Ray at the address.
    """
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address not in (None, "local", "auto"):
        _see_that_it_answers(str(address))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    started = None
    if address == "local" or (address is None and not _runs_here()):
        # Ray takes loopback for a machine's name and asks for its address, unless it may not be a cluster of several.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        notify(f"no Ray cluster was named: {hosts} nodes are started on this machine and share its cores")
        started = _started(hosts)
        address = started.address
    import ray

    try:
        ray.init(address=address or "auto", log_to_driver=False, configure_logging=False)
        yield ray
    except (ConnectionError, ray.exceptions.RayError) as error:
        raise UsageError(f"Ray at {address or 'auto'}: {line_of(error)}", "Look at `ray status`.") from None
    finally:
        with interrupts.deferred():
            ray.shutdown()
            if started is not None:
                started.shutdown()


def _runs_here() -> bool:
    from ray._private.services import find_gcs_addresses

    return bool(find_gcs_addresses())


def _started(hosts: int) -> Any:
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


def _see_that_it_answers(address: str) -> None:
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
