"""Settings that every test shares."""

import gc
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

# A slow machine is no failure: no deadline, and no complaint about how long the examples take to make. Every run has
# other examples, so that fewer at a time find as much in the end, and the whole stays short enough to be run.
settings.register_profile(
    "pipeline_bench", deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("campaign", settings.get_profile("pipeline_bench"), max_examples=200, database=None)
settings.load_profile("pipeline_bench")

# Most of what is imported and collected lives on, and each collection of garbage looks at it again: a quarter of the
# time until the first test.
gc.set_threshold(100_000, 20, 20)

# What the tests watch is not shown among the jobs of whoever runs them, nor does a selftest of theirs reach the tests.
_own = tempfile.TemporaryDirectory()
os.environ["XDG_RUNTIME_DIR"] = os.environ["XDG_STATE_HOME"] = _own.name

# A shell's background jobs, and much of continuous integration, ignore SIGINT and SIGQUIT, and what runs under nohup
# ignores SIGHUP, which every process started here would inherit. What the tests start is to be ended as in a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

SLOW_PARTS = {"tensorflow", "integration"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real trials and programs come first; what is left for the end, when a process has nothing to do, is quick."""
    items.sort(key=lambda item: SLOW_PARTS.isdisjoint(item.path.parts))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Say how a red run's order, and what its tests drew, is had again."""
    if exitstatus and (seed := config.getoption("randomly_seed", None)) is not None:
        terminalreporter.write_line(f"the order, again: pytest -p randomly --randomly-seed={seed}")


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of every later collection of garbage, which would look at it all."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def command_line_is_built_once() -> Iterator[None]:
    """Typer makes all commands anew for each that it runs."""
    with pytest.MonkeyPatch.context() as patch:
        plain = typer.main.get_command

        @cache
        def built(app: typer.Typer) -> Any:
            command = plain(app)
            keep_help_options(command)
            return command

        patch.setattr(typer.main, "get_command", built)
        patch.setattr(typer.testing, "_get_command", built)
        yield


def keep_help_options(command: Any, parent: Any = None) -> None:
    """Have each command make its option for help as below its parents, which say `-h`, and not as the first caller."""
    context = command.context_class(command, parent=parent, **command.context_settings)
    command.get_help_option(context)
    for child in getattr(command, "commands", {}).values():
        keep_help_options(child, context)


@pytest.fixture(scope="session", autouse=True)
def disk_is_not_waited_for() -> Iterator[None]:
    """A disk that still writes what an installation left takes seconds for each session that is saved here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def no_thread_goes_on() -> Iterator[None]:
    """A thread that samples the machine would do so in the tests that follow, among what they count and replace."""
    before = running_threads()
    yield
    assert not running_threads() - before, "a thread of the program goes on: end what the test began"


def running_threads() -> set[object]:
    sampling = sys.modules.get("pipeline_bench.monitoring.sampling")
    named = (each for each in threading.enumerate() if each.name.startswith("pipeline-bench"))
    return {*named, *(() if sampling is None else sampling.running)}
