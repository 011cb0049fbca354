"""Ray, made up: an address where it is not, what is asked of it, and what is left when it goes away."""

from __future__ import annotations

import io
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, repeat
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.cli import placed_rank
from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.hosts import merge, on_ray, ray_cluster, rendezvous
from pipeline_bench.model.session import SESSION_FILE
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from tests.unit.hosts.test_merge import session


def test_an_address_where_something_else_listens_is_told_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection and says nothing, as a proxy does in front of a head node that is gone."""
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    monkeypatch.setattr("pipeline_bench.tfdata.service._ANSWER_S", 0.1)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"ray://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(UsageError, match=r"no Ray answers there: .*does not answer as Ray does"):
            ray_cluster.check_answers(address)


def ranks_of(
    out: Path,
    library: Any = None,
    actors: Sequence[Any] = (),
    silent_s: float = 20.0,
    notify: Callable[[str], None] = lambda _: None,
) -> on_ray._Ranks:
    """The ranks of a run that has placed these actors; without a library, what one is asked for is its answer."""
    run = on_ray._Ranks.__new__(on_ray._Ranks)
    run._ray = library or SimpleNamespace(get=lambda seen: seen, exceptions=SimpleNamespace(RayError=ConnectionError))
    run._out, run._group, run._silent_s, run._notify, run._actors = out, None, silent_s, notify, list(actors)
    run._outbox, run._wall_s = [{} for _ in actors], on_ray._wall_clock()
    run._beats, run._ahead_s, run._lived_s, run._ending = {}, {}, {}, {}
    return run


def test_a_session_that_cannot_be_saved_here_is_one_message(tmp_path: Path) -> None:
    """What is in the way stands for a full disk."""
    (tmp_path / "rank-001").write_text("in the way")
    with pytest.raises(SessionError, match="rank-001: a session cannot be saved: File exists") as refused:
        ranks_of(tmp_path)._keep(1, b"{}")
    assert f"pipeline-bench merge {tmp_path}" in refused.value.hint


@pytest.mark.parametrize(
    ("code", "ran_all", "why"),
    [
        (-9, False, "its program was killed by SIGKILL"),
        (1, False, "it ended before its last trial"),
        (0, False, "it ended before its last trial"),
        (1, True, None),
        (0, True, None),
    ],
)
def test_a_rank_that_ends_without_all_of_its_trials_is_lost_and_all_others_hear_why(
    code: int, ran_all: bool, why: str | None, tmp_path: Path
) -> None:
    """Also where it has left no word, as with a full disk: the others would wait for it for ever."""
    told: list[str] = []
    run = ranks_of(tmp_path, actors=[actor(object()) for _ in range(3)], notify=told.append)
    assert not run._take(1, on_ray.Seen(None, None, "", code, 0.0, ran_all))
    gone = {} if why is None else {"rank-001.gone": why.encode()}
    assert told == ([] if why is None else [f"rank 1 is lost: {why}"])
    assert run._outbox == [gone, {}, gone]
    assert rendezvous.lost(tmp_path) == ({} if why is None else {1: why})


def test_a_fetched_session_has_the_offset_of_its_nodes_clock_also_for_a_later_merge(tmp_path: Path) -> None:
    """Its own is that of its disk, which has the node's own clock."""
    run = ranks_of(tmp_path)
    run._ahead_s = {0: 0.0, 1: 0.4}
    for rank in range(2):
        run._keep(rank, session(rank).to_json().encode())
    fetched = merge.read(tmp_path)
    assert [each.host.clock_offset_s for each in fetched if each.host] == [0.0, 0.4]
    assert fetched[1].trials == session(1).trials
    assert (tmp_path / "rank-001" / SESSION_FILE).read_text().startswith('{\n "schema_version"')


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "The actor died, ray::PlacedRank.__init__() (pid=7)\n  File x\n    y\nOSError: disk full\n",
            "OSError: disk full",
        ),
        ("The actor died unexpectedly.\n\tclass_name: PlacedRank\nIts node has died.", "Its node has died."),
        ("the client was disconnected", "the client was disconnected"),
    ],
)
def test_of_an_error_of_rays_the_cause_is_told_which_it_has_last(text: str, told: str) -> None:
    assert ray_cluster.why(RayError(text)) == f"RayError: {told}"


def test_a_clock_that_is_set_back_leaves_no_rank_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ranks_of(tmp_path)
    seen = on_ray.Seen(None, None, "", None, run._wall_s())
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert run._take(1, seen)
    assert run._ahead_s[1] <= 0


def test_a_node_whose_version_does_not_know_the_scenario_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one of another checkout."""
    given = AUTO.model_dump_json().replace('"name"', '"called"', 1)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{given}\n".encode())))
    monkeypatch.setattr(placed_rank, "_end_when_closed", lambda: None)
    monkeypatch.setenv("PIPELINE_BENCH_RANK", "1")
    monkeypatch.setenv("PIPELINE_BENCH_RANKS", "2")
    assert placed_rank._run(tmp_path, expose_servers=False) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("rank 1: pipeline-bench ")
    assert "does not know this scenario: name: Field required" in said


def test_what_a_program_wrote_that_ended_at_once_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing of what it is given, as where a library is missing on its node."""
    monkeypatch.setattr(on_ray, "_RUNNER", "pipeline_bench.nowhere")
    rank = on_ray.PlacedRank(1, 2, "x" * 2**20, expose_servers=False)
    said, code = "", None
    while code is None:
        seen = rank.exchange({})
        said, code = said + seen.stderr, seen.code
    rank.end()
    assert code == 1
    assert not seen.ran_all
    assert "No module named pipeline_bench.nowhere" in said


def test_a_cluster_that_does_not_start_here_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Ray gives up after 30 s, with an exception of no class of its own."""

    def time_out(**_: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.cluster_utils", SimpleNamespace(Cluster=time_out))
    with pytest.raises(UsageError, match="did not start 4 nodes on this machine: Exception: The current node timed"):
        ray_cluster.start_here(4)


@pytest.mark.parametrize(
    "address", ["ray://127.0.0.1:1", "127.0.0.1:1", "ray://127.0.0.1:port", "ray://[::1", "ray://"]
)
def test_an_address_where_nobody_is_or_that_is_none_is_told(address: str) -> None:
    with pytest.raises(UsageError, match="no Ray answers there"):
        ray_cluster.check_answers(address)


def scenario(*variants: dict[str, Any]) -> Scenario:
    named = [{"name": f"variant {place}", "backend": "tf_data", **each} for place, each in enumerate(variants)]
    return resolve({"name": "x", "variants": named})


AUTO = scenario({})
EMULATED = {"model": {"kind": "emulated", "step_ms": 2}}


@pytest.mark.parametrize(
    ("wanted", "gpus_of_nodes", "asked"),
    [
        (AUTO, [1, 1], 1),
        (AUTO, [8, 0], 0),
        (scenario({"runtime": {"device": "cpu"}}), [1, 1], 0),
        (scenario(EMULATED), [1, 1], 0),
        (scenario(EMULATED, {}), [1, 1], 1),
        (scenario({"runtime": {"replicas": 4}}), [1, 1], 0),
        (scenario({"runtime": {"replicas": 4}}), [4, 8, 1], 4),
        (scenario({"runtime": {"replicas": 4}}, {}), [1, 1], 1),
        (scenario(EMULATED | {"runtime": {"replicas": 1}}, {"runtime": {"device": "gpu:2"}}), [4, 4], 3),
        (scenario({"model": {"kind": "matpow"}}), [1, 2], 0),
        (scenario({"model": {"kind": "matpow"}}), [2, 2], 2),
    ],
)
def test_a_place_has_the_gpus_that_the_scenario_uses_and_nodes_have(
    wanted: Scenario, gpus_of_nodes: list[int], asked: int
) -> None:
    """More would wait for GPUs that are busy elsewhere, or that no node has, until the placement is refused."""
    bundles: list[dict[str, float]] = []

    def placement_group(given: list[dict[str, float]], strategy: str) -> SimpleNamespace:
        bundles.extend(given)
        return SimpleNamespace(wait=lambda _: True)

    nodes = [{"Alive": True, "Resources": {"CPU": 8.0, **({"GPU": float(n)} if n else {})}} for n in gpus_of_nodes]
    library = SimpleNamespace(nodes=lambda: nodes, util=SimpleNamespace(placement_group=placement_group))
    ray_cluster.placed(library, 2, wanted)
    assert [bundle.get("GPU", 0) for bundle in bundles] == [asked, asked]


class RayError(Exception):
    """As Ray has one."""


class GoesAway:
    """A library of two actors, whose head node is gone at the second look."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, error: Exception) -> None:
        self._error, self._looks = error, 0

    def wait(self, futures: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        self._looks += 1
        if self._looks > 1:
            raise self._error
        return futures, []

    def kill(self, _: object) -> None:
        raise ConnectionError

    def get(self, future: Any) -> on_ray.Seen:
        ended = future is self.ended
        return on_ray.Seen(None, None, "", 0 if ended else None, time.time() + 100, ended)

    ended = object()


@pytest.mark.parametrize("error", [ConnectionError("the client was disconnected"), RayError("no answer")])
def test_what_was_known_of_the_ranks_is_there_when_ray_goes_away(error: Exception, tmp_path: Path) -> None:
    told: list[str] = []
    run = ranks_of(tmp_path, GoesAway(error), [actor(GoesAway.ended), actor(object())], notify=told.append)
    run.follow()
    assert rendezvous.lost(tmp_path) == {1: f"{type(error).__name__}: {error}"}
    assert {rank: round(ahead_s) for rank, ahead_s in run._ahead_s.items()} == {0: 100, 1: 100}
    assert told == [f"rank 1 is lost: {type(error).__name__}: {error}"]


def actor(answer: object) -> Any:
    """An actor, of a connection that is gone when it is to end."""

    def end() -> None:
        raise ConnectionError

    remote = SimpleNamespace
    return SimpleNamespace(exchange=remote(remote=lambda _: answer), end=remote(remote=end))


class Node:
    """A rank's node that answers at once; the rank ends with its beats, and when it hears that another is gone."""

    def __init__(self, number: int, beats: Iterator[int], others: dict[int, Node]) -> None:
        self._number, self._beats, self._others = number, beats, others
        self.is_running, self.gone, self.ran_beside = True, False, False
        self.exchange, self.end = SimpleNamespace(remote=self._exchange), SimpleNamespace(remote=self._end)
        others[number] = self

    def _exchange(self, files: dict[str, bytes]) -> on_ray.Seen:
        if self.gone or any(name.endswith(".gone") for name in files):
            self.gone, self.is_running = True, False
            self.ran_beside = any(node.is_running for node in self._others.values())
        beat = next(self._beats, None)
        self.is_running &= beat is not None
        seen = (beat, b"") if beat else None
        ended = not self.is_running
        return on_ray.Seen(seen, None, "", 0 if ended else None, float(self._number), ended)

    def _end(self) -> None:
        self.is_running = False


class Answers:
    """A library that has every answer at once, but is slow at one of its looks; time passes only in these."""

    exceptions = SimpleNamespace(RayError=RayError)
    util = SimpleNamespace(remove_placement_group=lambda _: None)

    def __init__(self, stops_at: int = -1, stops_s: float = 0.0) -> None:
        self._look, self._stops_at, self._stops_s, self.now_s = 0, stops_at, stops_s, 0.0

    def wait(self, futures: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        self._look += 1
        self.now_s += self._stops_s if self._look == self._stops_at else 0.01
        return futures, []

    def get(self, future: Any) -> Any:
        return future

    def kill(self, _: object) -> None:
        """Nothing is left to end."""


def following(
    out: Path, monkeypatch: pytest.MonkeyPatch, library: Answers, *beats: Iterator[int]
) -> tuple[on_ray._Ranks, dict[int, Node]]:
    """The ranks of a run whose programs beat so, and their nodes."""
    monkeypatch.setattr(on_ray, "time", SimpleNamespace(monotonic=lambda: library.now_s))
    nodes: dict[int, Node] = {}
    actors = [Node(number, each, nodes) for number, each in enumerate(beats)]
    return ranks_of(out, library, actors, silent_s=0.5), nodes


@pytest.mark.parametrize(
    ("beats", "why"), [(repeat(1), "it gave no sign of life for"), (repeat(0), "it did not start within")]
)
def test_a_rank_that_is_stopped_on_a_node_that_answers_is_lost_and_ended_before_the_others_go_on(
    beats: Iterator[int], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, nodes = following(tmp_path, monkeypatch, Answers(), count(1), beats)
    run.follow()
    lost = rendezvous.lost(tmp_path)
    assert list(lost) == [1]
    assert lost[1].startswith(why)
    assert nodes[0].gone
    assert not nodes[0].ran_beside


def test_no_rank_is_lost_because_this_program_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers that wait then are of the time before, and so are their beats."""
    beats = [1, 1, 1, *range(2, 12)]
    run, _ = following(tmp_path, monkeypatch, Answers(stops_at=3, stops_s=1.0), iter(beats), iter(beats))
    run.follow()
    assert rendezvous.lost(tmp_path) == {}


def test_another_version_of_ray_at_the_head_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray has no class of its own for it."""

    def init(**_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1")

    made = ModuleType("ray")
    vars(made).update(exceptions=SimpleNamespace(RayError=RayError), init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setattr(ray_cluster, "_runs_here", lambda: True)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with (
        pytest.raises(UsageError, match=r"Ray at auto: RuntimeError: Version mismatch: .* Python: 3\.9\.1"),
        ray_cluster.connected(2, None, print, lambda _: 0),
    ):
        pass


def test_an_error_beside_a_run_is_not_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As stderr that nobody reads."""
    made = ModuleType("ray")
    vars(made).update(exceptions=SimpleNamespace(RayError=RayError), init=lambda **_: None, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setattr(ray_cluster, "_runs_here", lambda: True)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(BrokenPipeError), ray_cluster.connected(2, None, print, lambda _: 0):
        raise BrokenPipeError

    def refuse(_: object) -> None:
        raise RayError("no nodes")

    with (
        pytest.raises(UsageError, match="Ray at auto: RayError: no nodes"),
        ray_cluster.connected(2, None, print, refuse),
    ):
        pass
