"""Real trials: a fork server that is shared, and a way to run a scenario without the command line."""

from __future__ import annotations

import ast
import builtins
import gc
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench import plugins
from pipeline_bench.model.session import Session
from pipeline_bench.run import child, comparison, machine
from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario
from pipeline_bench.system.processes import module_command
from tests import faults, own_network, trials

ROOT = Path(__file__).parents[2]

RunScenario = Callable[[Scenario], Session]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.tensorflow)


@pytest.fixture(autouse=True)
def garbage_is_collected() -> Iterator[None]:
    """What a test leaves is collected at once, and what lives on is left out of later collections.

    One test in ten would wait for the end of an iterator of another one's, for as long as that has lived, up to a
    minute: see `pipeline_bench.monitoring.iterator_ends.time_ends`.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def files_are_opened_again() -> Iterator[None]:
    """A trial whose results stand in for others refuses to have files written until its process ends."""
    plain = builtins.open, io.open
    yield
    builtins.open, io.open = plain


@pytest.fixture(scope="session", autouse=True)
def files_of_lambdas_are_parsed_once() -> Iterator[None]:
    """AutoGraph parses the whole file of each lambda that it converts, which takes longer than all the rest of it.

    Here that is done once a file, and of its statements AutoGraph gets those that the lambda can be in.
    """
    from tensorflow.python.autograph.pyct import parser

    parse_lambda, parse, line = parser._parse_lambda, parser.parse, threading.local()

    @cache
    def statements(source: str) -> list[ast.stmt]:
        return ast.parse(source).body

    def is_around(each: Any, number: int) -> bool:
        begin: int = min(part.lineno for part in (each, *getattr(each, "decorator_list", ())))
        end: int = each.end_lineno or number
        return begin <= number <= end

    def found(of: Any) -> Any:
        line.number = of.__code__.co_firstlineno
        try:
            return parse_lambda(of)
        finally:
            line.number = None

    def parsed(source: str, *arguments: Any, **named: Any) -> Any:
        if (number := getattr(line, "number", None)) is None:
            return parse(source, *arguments, **named)
        around = [each for each in statements(source) if is_around(each, number)]
        return parser.gast.ast_to_gast(ast.Module(around, [])).body

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "_parse_lambda", found)
        patch.setattr(parser, "parse", parsed)
        yield


@pytest.fixture
def tf() -> Iterator[Any]:
    """TensorFlow, with a graph of the test's own."""
    import tensorflow

    with tensorflow.Graph().as_default():
        yield tensorflow


@pytest.fixture(scope="session")
def faults_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ``PYTHONPATH`` with this package and the faulty backend on it."""
    folders = faults.install(tmp_path_factory.mktemp("site"))
    return os.pathsep.join([str(folder) for folder in folders] + [path for path in sys.path if path])


@pytest.fixture(scope="module")
def faulty_backends(faults_path: str) -> Iterator[None]:
    """The backends of `tests.faults` are known in this process too, as they are to the trials."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in faults_path.split(os.pathsep)[:2]:
            patch.syspath_prepend(folder)
        plugins._classes.cache_clear()
        plugins._entry_points.cache_clear()
        yield
    plugins._entry_points.cache_clear()
    plugins._classes.cache_clear()  # the tests behind this module's know them no more


@pytest.fixture(scope="session", autouse=True)
def made_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Made data and programs go into folders of their own: what lies in the user's cache neither helps nor hinders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIPELINE_BENCH_DATA", str(tmp_path_factory.mktemp("data")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", autouse=True)
def nvml_is_left_alone() -> Iterator[None]:
    """Sessions that are watched in this process start no process to read NVML, which takes as long as they do.

    Of a module, so that the tests of NVML itself, which may come later in this process, have it as it is.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NvmlSampler, "open", NvmlSampler)
        yield


@pytest.fixture(scope="session")
def fork_server(
    tmp_path_factory: pytest.TempPathFactory, faults_path: str, made_data_folder: None
) -> Iterator[TrialServer]:
    """The server of all trials; in a network with loopback only, where the system gives it one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", faults_path)
        if machine.refuse_servers() is None:
            patch.setattr(child, "module_command", lambda *words: own_network.command(*module_command(*words)))
        server = TrialServer(tmp_path_factory.mktemp("server") / "import.stderr")
    with closing(server):
        if reason := server.wait_until_ready():
            pytest.fail(f"the fork server refused: {reason}")
        yield server


@pytest.fixture
def run_scenario(fork_server: TrialServer, tmp_path: Path) -> RunScenario:
    """Run a resolved scenario on the shared fork server."""
    return lambda scenario: trials.run(fork_server, scenario, tmp_path)


@pytest.fixture(scope="module")
def run_scenario_once(fork_server: TrialServer, tmp_path_factory: pytest.TempPathFactory) -> RunScenario:
    """The same for a fixture whose session several tests look at."""
    return lambda scenario: trials.run(fork_server, scenario, tmp_path_factory.mktemp("session"))


@pytest.fixture
def commands_share_server(fork_server: TrialServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command starts in this process has its trials on the shared server, and imports no TensorFlow again."""
    monkeypatch.setattr(fork_server, "close", lambda: None)
    monkeypatch.setattr(comparison, "best_launcher", lambda *_: (fork_server, None))
