"""Ray places one rank on each of several nodes; this process carries between them what they tell each other."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.hosts import ranks, ray_cluster, rendezvous
from pipeline_bench.model.session import SESSION_FILE, Session
from pipeline_bench.scenario import Scenario
from pipeline_bench.system import interrupts
from pipeline_bench.system.clocks import wall_minus_monotonic_ns
from pipeline_bench.system.files import ScratchFolder, write_atomically
from pipeline_bench.system.processes import module_command
from pipeline_bench.text import units

_RUNNER = "pipeline_bench.cli.placed_rank"
"""What each node runs, as a module: reads the scenario from stdin, and ends when that is closed."""
_LOOK_S = 0.02
_ENDED_WITHIN_S = 10.0


class Seen(NamedTuple):
    """What a rank has done since it was asked last."""

    beat: tuple[int, bytes] | None
    """Its file among those of the ranks, and when that was touched, in ns."""
    session: bytes | None
    stderr: str
    code: int | None
    """Its exit code; None while it runs."""
    clock_s: float
    ran_all: bool = False
    """Whether its file says that it has ended its last trial."""


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
        with suppress(BrokenPipeError):  # it has ended already: `exchange` says how, with what it wrote
            self._runner.stdin.write(scenario.encode() + b"\n")
            self._runner.stdin.flush()

    def exchange(self, files: Mapping[str, bytes]) -> Seen:
        """Take in what the other ranks sent, and return what is new here."""
        for name, content in files.items():
            write_atomically(self._board / name, content)
        with suppress(subprocess.TimeoutExpired):
            self._runner.wait(_LOOK_S)
        code = self._runner.poll()  # before the files: what it left last is then among them
        ran_all = rendezvous.ran_all(self._board, self._number)
        return Seen(self._beat(), self._session(), self._new_stderr(), code, self._wall_s(), ran_all)

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
) -> None:
    """Run a scenario on so many nodes; each one's session is in the folder of its rank below `out` as far as it came.

    Why a rank was lost lies there as well, see `rendezvous.lost`.

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

    def begin(library: Any) -> _Ranks:
        return _Ranks(library, scenario, hosts, out, notify, expose_servers)

    with ray_cluster.connected(hosts, address, notify, begin) as placed:
        placed.follow()


def _with_clock_offset(session: bytes, ahead_s: float | None) -> bytes:
    """Return a rank's session with how far its clock is ahead of this machine's, instead of its own disk's; else as is.

    One that is none as this version writes it is told of by what reads it.
    """
    try:
        whole = Session.model_validate_json(session)
    except ValueError:
        return session
    if whole.host is None:
        return session
    host = whole.host.model_copy(update={"clock_offset_s": ahead_s})
    return whole.model_copy(update={"host": host}).to_json().encode()


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
        self._group = ray_cluster.placed(library, hosts, scenario)
        self._outbox: list[dict[str, bytes]] = [{} for _ in range(hosts)]
        self._beats: dict[int, int] = {}
        self._lived_s: dict[int, float] = {}
        """By rank when a new beat of it came, or its first answer."""
        self._ending: dict[int, Any] = {}
        self._ahead_s: dict[int, float] = {}
        """By rank how far its wall clock is ahead of this machine's."""
        self._wall_s = _wall_clock()
        actor = library.remote(PlacedRank)
        self._actors = [
            actor.options(**ray_cluster.place(self._group, number), max_restarts=0).remote(
                number, hosts, scenario.model_dump_json(), expose_servers
            )
            for number in range(hosts)
        ]

    def follow(self) -> None:
        """Carry between the ranks until each has ended or is lost; whatever happens, none is left running.

        Without Ray those that go on are lost.
        """
        going = set(range(len(self._actors)))
        looked_s = awake_since_s = time.monotonic()
        try:
            asked = {self._ask(number): (number, time.monotonic()) for number in going}
            while asked:
                interrupts.check()
                # All that is there: after this program was stopped for a while, an answer that waits is in time.
                ready, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=_LOOK_S)
                for future in ready:
                    number, _ = asked.pop(future)
                    if self._take(number, future):
                        asked[self._ask(number)] = (number, time.monotonic())
                    else:
                        going.remove(number)
                now_s = time.monotonic()
                if now_s - looked_s > self._silent_s / 2:
                    awake_since_s = now_s  # this program was stopped: the ranks have had no time to be silent in
                looked_s = now_s
                for future, (number, since_s) in list(asked.items()):
                    if (why := self._why_lost(number, since_s, awake_since_s)) is not None:
                        del asked[future]
                        going.remove(number)
                        self._lose(number, why)
        except BrokenPipeError:  # nobody reads what `notify` says
            raise
        except ray_cluster.faults(self._ray) as error:
            for number in going:
                self._lose(number, ray_cluster.why(error))
        finally:
            self._end()

    def _why_lost(self, number: int, since_s: float, awake_since_s: float) -> str | None:
        """Return why a rank is given up; None of one that goes on.

        Its node may answer while its program is stopped: then it is the beat that stays the same.

        Args:
            number: of the rank.
            since_s: when it was asked what has not been answered, and had answered all before.
            awake_since_s: from when on this program has looked without a long break.
        """
        is_seen = number in self._beats
        limit_s = self._silent_s if is_seen else max(self._silent_s, ray_cluster.PLACED_WITHIN_S)
        if time.monotonic() - max(since_s, awake_since_s) > limit_s:
            return f"its node gave no answer for {units.seconds(limit_s)}"
        silent_s = since_s - max(self._lived_s.get(number, since_s), awake_since_s)
        if silent_s <= (self._silent_s if is_seen else rendezvous.START_S):
            return None
        return f"it {'gave no sign of life for' if is_seen else 'did not start within'} {units.seconds(silent_s)}"

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
            self._lose(number, ray_cluster.why(error))
            return False
        # The answer was under way for a while: the one that took least is the nearest.
        self._ahead_s[number] = max(seen.clock_s - self._wall_s(), self._ahead_s.get(number, -math.inf))
        self._lived_s.setdefault(number, time.monotonic())
        if seen.beat is not None and seen.beat[0] != self._beats.get(number):
            self._beats[number], self._lived_s[number] = seen.beat[0], time.monotonic()
            self._send(number, rendezvous.path_of(Path(), number).name, seen.beat[1])
        if seen.session is not None:
            self._keep(number, seen.session)
        for line in seen.stderr.splitlines():
            self._notify(line)
        if seen.code is not None and (seen.code < 0 or seen.code > 1):
            self._lose(number, f"its program {units.ending(seen.code)}")
        elif seen.code is not None and not seen.ran_all:  # also where it could not say so, as on a full disk
            self._lose(number, rendezvous.ENDED_EARLY)
        return seen.code is None

    def _keep(self, number: int, session: bytes) -> None:
        folder = self._out / ranks.folder_name(number)
        try:
            folder.mkdir(exist_ok=True)
            write_atomically(folder / SESSION_FILE, _with_clock_offset(session, self._ahead_s.get(number)))
        except OSError as error:
            hint = f"Free some space or choose another --out. What was fetched before: pipeline-bench merge {self._out}"
            raise SessionError(f"{folder}: a session cannot be saved: {error.strerror}.", hint) from None

    def _send(self, sender: int, name: str, content: bytes) -> None:
        for number, files in enumerate(self._outbox):
            if number != sender:
                files[name] = content

    def _lose(self, number: int, why: str) -> None:
        """Have the others go on without a rank; it is ended first, or it would disturb them if it was only stopped."""
        with suppress(OSError):  # it is said below; only a later `merge` does not know it then
            (self._out / rendezvous.FOLDER).mkdir(exist_ok=True)
            write_atomically(rendezvous.gone_path(self._out / rendezvous.FOLDER, number), why)
        with suppress(*ray_cluster.faults(self._ray)):
            self._ending[number] = self._actors[number].end.remote()
        self._notify(f"rank {number} is lost: {why}")
        self._send(number, rendezvous.gone_path(Path(), number).name, why.encode())

    def _end(self) -> None:
        with interrupts.deferred(), suppress(*ray_cluster.faults(self._ray)):
            for number, actor in enumerate(self._actors):
                if number not in self._ending:
                    self._ending[number] = actor.end.remote()
            ending = list(self._ending.values())
            self._ray.wait(ending, num_returns=len(ending), timeout=_ENDED_WITHIN_S)
        with suppress(*ray_cluster.faults(self._ray)):
            for actor in self._actors:
                self._ray.kill(actor)
            self._ray.util.remove_placement_group(self._group)
