"""Options of tf_data_service, what it refuses before anything runs, and whether a server answers."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from pipeline_bench import plugins
from pipeline_bench.errors import PipelineBenchError, ScenarioError, UsageError
from pipeline_bench.run import machine
from pipeline_bench.run.comparison import prepare_data
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.system import children
from pipeline_bench.system.children import Process
from pipeline_bench.tfdata import service, service_cluster
from pipeline_bench.tfdata.service import answers


def scenario(source: dict[str, Any] | None = None, runtime: dict[str, Any] | None = None, **options: Any) -> Scenario:
    variant = {"name": "a", "backend": "tf_data_service", "options": options, "runtime": runtime or {}}
    return resolve({"name": "x", "source": source or {"kind": "tfrecord"}, "variants": [variant]})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 2, "dispatcher": "grpc://h:1"}, "give one of them"),
        ({"dispatcher": "h:1"}, "'h:1' is no address of a tf.data service. Write grpc://HOST:PORT, an IPv6 host in"),
        ({"dispatcher": ""}, "'' is no address"),
        ({"sharding": "hint"}, "Allowed: auto, data, dynamic, file, off"),
        ({"cut": "files"}, "allowed: batches, records, samples"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(**options)
    assert said in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("given", "is_one"),
    [
        ("grpc://store:5000", True),
        ("grpc://[::1]:65535", True),
        ("grpc://::1:5000", False),
        ("grpc://h:1:2", False),
        ("grpc://h:0", False),
        ("grpc://h:65536", False),
        ("grpc://h:110587", False),
        ("grpc://h:99999999999999999999999999", False),
    ],
)
def test_an_address_has_brackets_about_colons_and_a_port_that_there_is(given: str, is_one: bool) -> None:
    if is_one:
        assert scenario(dispatcher=given).variants[0].options["dispatcher"] == service_cluster.address(given) == given
        return
    with pytest.raises(UsageError, match="is no address") as refused:
        service_cluster.address(given)
    with pytest.raises(ScenarioError) as caught:
        scenario(dispatcher=given)
    assert refused.value.message in caught.value.message


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"kind": "memory"}, "cannot carry the source memory"),
        ({"kind": "tfrecord", "on_error": "skip"}, "cannot say which records"),
        ({"kind": "npz"}, "Python loads the files"),
        ({"kind": "slow_storage", "total_mb_s": 10.0, "shared": "turns"}, "Python takes turns by source.shared"),
    ],
)
def test_a_source_that_cannot_cross_is_refused(source: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        prepare_data(scenario(source), Observer())


def test_workers_of_between_graph_start_no_service() -> None:
    runtime = {"replicas": 2, "replication": "between_graph"}
    wanted = scenario({"kind": "tfrecord", "batch_size": 8}, runtime)
    with pytest.raises(UsageError, match="has processes of its own"):
        prepare_data(wanted, Observer())


@pytest.mark.parametrize(
    ("options", "own"), [({}, True), ({"workers": 3}, True), ({"dispatcher": "grpc://h:1"}, False)]
)
def test_only_workers_of_its_own_need_a_network_of_their_own(options: dict[str, Any], own: bool) -> None:
    """In one, the dispatcher of another cluster could not be reached."""
    assert machine.starts_servers(scenario(**options).variants[0]) is own


def test_nothing_is_sent_to_a_process_that_was_not_started() -> None:
    backend: Any = plugins.find("backends", "tf_data_service")({"workers": 2})
    assert backend.why_dead(1.0) is None
    backend.end_processes()


def test_a_dispatcher_that_is_stopped_before_it_serves_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers look for it: one of them seemed not to have started, after a minute."""
    monkeypatch.setattr(service, "_STOPPED_S", 0.1)
    started = children.start

    def start(job: str, *arguments: Any) -> Process:
        process = started(job, *arguments)
        if job == "dispatcher":
            os.kill(process.pid, signal.SIGSTOP)
        return process

    monkeypatch.setattr(children, "start", start)
    with pytest.raises(PipelineBenchError) as refused:
        service.ServiceProcesses(1, can_fork=False)
    assert refused.value.message == "the dispatcher of the tf.data service has been stopped for 0.1 s"


def test_a_worker_that_is_stopped_when_the_trial_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stall timeout has not passed, and the other worker went on to the end."""
    monkeypatch.setattr(service.ServiceProcesses, "start_servers", lambda _: None)
    processes = service.ServiceProcesses(1, can_fork=False)
    try:
        assert processes.was_silent() == []
        (pid,) = processes.pids[1:]
        os.kill(pid, signal.SIGSTOP)
        while not processes.was_silent():
            assert processes.why_silent(60.0) is None
        assert processes.was_silent() == ["tf.data service worker 0 was stopped"]
    finally:
        processes.end()


@pytest.fixture
def served() -> Iterator[tuple[Any, int]]:
    """A gRPC server that knows no method, and its port."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield server, port
    server.stop(None).wait()


def test_a_grpc_server_of_another_kind_is_no_dispatcher(served: tuple[Any, int]) -> None:
    server, port = served
    address = f"grpc://127.0.0.1:{port}"
    assert answers(address)
    assert not service_cluster.is_dispatcher(address)
    server.stop(None).wait()
    assert not service_cluster.is_dispatcher(address)


def test_a_dispatcher_of_a_cluster_that_ends_is_told_while_its_workers_may_go_on(served: tuple[Any, int]) -> None:
    server, port = served
    address = f"grpc://127.0.0.1:{port}"
    watch = service_cluster.Watch(address)
    watch._thread = threading.main_thread()  # this one asks
    watch._ask()
    assert watch.why_silent(0.0) is None
    assert watch.was_silent() == []
    server.stop(None).wait()
    watch._ask()
    assert watch.was_silent() == [f"the dispatcher {address} did not answer for a while"]
    assert watch.why_silent(60.0) is None
    assert watch.why_silent(0.0) == f"the dispatcher {address} has not answered for 0 s"


@pytest.mark.parametrize(("reply", "alive"), [(b"\0\0\0\4\0\0\0\0\0", True), (b"HTTP/1.1 400", False), (b"", False)])
def test_a_server_answers_in_its_own_protocol_or_not_at_all(reply: bytes, alive: bool) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(64)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        assert answers(f"grpc://127.0.0.1:{listening.getsockname()[1]}") is alive
        thread.join()
    assert not answers("grpc://127.0.0.1:1")


@pytest.mark.parametrize("beyond", [65536, 65536 * 10**30])
def test_a_port_that_there_is_not_is_none_that_answers(beyond: int, served: tuple[Any, int]) -> None:
    """A larger number is cut to one that may answer, or is too large for C."""
    _, port = served
    assert answers(f"grpc://127.0.0.1:{port}")
    assert not answers(f"grpc://127.0.0.1:{port + beyond}")
