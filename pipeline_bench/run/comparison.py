"""One comparison from a resolved scenario to a saved session: the folder, the machine, the launcher, the run."""

from __future__ import annotations

import os
import time
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from pipeline_bench import environment, plugins, replication
from pipeline_bench.analysis import advice
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.loops import Job
from pipeline_bench.model.hosts import Host
from pipeline_bench.model.result import Precision
from pipeline_bench.model.selftest import last_selftest
from pipeline_bench.model.session import Session, save
from pipeline_bench.run import data_making, machine
from pipeline_bench.run.launcher import best_launcher, fresh_launcher
from pipeline_bench.run.observer import Guarded, Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.run.runner import TRIALS_FOLDER, Planner, Runner, TrialGate
from pipeline_bench.samplers.host import OTHER_CPU, STEAL, MachineCpu
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.scenario.files import COMPONENTS
from pipeline_bench.sources.records import RecordSource
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset, dataset_folder
from pipeline_bench.system import interrupts
from pipeline_bench.system.files import in_use
from pipeline_bench.text import units

_LOOK_S = 0.2
"""The shortest look, where nothing is imported meanwhile."""
_TICK_S = 0.01
_BUSY_SHARE = 0.2
"""Of two cores, less than half of one: an idle machine's own services take a tenth of that."""
_OPENS_WITHIN_S = 1.0
"""An NVML that takes longer to list the GPUs is worth a word: some take many seconds."""


def prepare_data(scenario: Scenario, observer: Observer) -> None:
    """See that what the scenario's sources read is there, and make what is missing of synthetic datasets.

    Raises:
        UsageError: a source cannot read what it is to read, or its data cannot be made.
    """
    sources = checked_sources(scenario)
    missing = data_making.wanted(sources)
    incomplete = [source for source in sources if getattr(source, "synthetic_dataset", None) in missing]
    for source in sources:  # before the time is spent on making data
        if source not in incomplete:
            source.check()
    for data in missing:
        data_making.make(
            data,
            dataset_folder(data),
            report=partial(_report_made, observer, data),
            waiting=partial(observer.preparing, "another process makes the same data: waiting for it"),
        )
    for source in incomplete:
        source.check()


def checked_sources(scenario: Scenario) -> list[Any]:
    """Return the sources of a scenario, each once, of which each variant's backend and loop can have what it needs.

    Raises:
        UsageError: a variant's source, backend, model, loop and runtime do not go together.
    """
    components = {variant.source.model_dump_json(): variant.source for variant in scenario.variants}
    found = {key: plugins.make("sources", part.kind, part.options) for key, part in components.items()}
    for variant in scenario.variants:
        _check_carries(variant, found[variant.source.model_dump_json()])
    return list(found.values())


def _check_carries(variant: Variant, source: Any) -> None:
    """Refuse a variant whose backend cannot carry its source, or whose loop cannot drive it.

    Raises:
        UsageError: naming the variant.
    """
    backend = plugins.make("backends", variant.backend, variant.options)
    model = plugins.make("models", variant.model.kind, variant.model.options)
    loop = plugins.make("loops", variant.loop.kind, variant.loop.options)
    try:
        backend.check(source)
        model.check(variant.runtime)
        replication.check(model, variant.runtime, source.batch_size, variant.loop.kind)
        if backend.has_processes and replication.in_processes(variant.runtime):
            raise UsageError(
                f"{backend.name} has processes of its own, which the workers of between_graph do not start.",
                'Set runtime.replication = "in_graph", or another backend, tf_data for one.',
            )
        if (
            replication.in_processes(variant.runtime)
            and isinstance(source, RecordSource)
            and source.page_cache != "as-is"
        ):
            raise UsageError(
                f"The workers of between_graph do not keep files {source.page_cache}.",
                'Set source.page_cache = "as-is", or runtime.replication = "in_graph".',
            )
        loop.check(Job(source, backend, model, variant.runtime, variant.run))
    except UsageError as error:
        raise UsageError(
            f"The variant {variant.name!r} cannot run: {error.message}",
            f"{error.hint} compare --backends NAME,NAME leaves out the others.",
        ) from None


def without_unavailable(scenario: Scenario, *, expose_servers: bool = False) -> Scenario:
    """Return the scenario without the variants that this machine cannot run, and a note for each of them.

    Args:
        scenario: as resolved.
        expose_servers: run variants that start servers also where other machines cannot be kept from these.

    Raises:
        UsageError: it can run none of them.
    """
    found = ((variant.name, _unavailable(variant, expose_servers)) for variant in scenario.variants)
    reasons = {name: reason for name, reason in found if reason is not None}
    if not reasons:
        return scenario
    kept = [variant for variant in scenario.variants if variant.name not in reasons]
    if all(variant.is_ceiling for variant in kept):
        raise UsageError("This machine can run none of the scenario's variants: " + "; ".join(set(reasons.values())))
    left_out = {
        name: f"The variant {name!r} was left out: {reason}"
        for name, reason in reasons.items()
        if name not in scenario.ceilings
    }
    notes = (*scenario.notes, *left_out.values())
    return scenario.model_copy(update={"variants": tuple(kept), "notes": notes, "left_out": left_out})


def _unavailable(variant: Variant, expose_servers: bool) -> str | None:
    used: list[tuple[plugins.Group, str, Any]] = [("backends", variant.backend, variant.options)]
    for part, group in COMPONENTS.items():
        component = getattr(variant, part)
        used.append((group, component.kind, component.options))
    made = (plugins.make(group, kind, options) for group, kind, options in used)
    reason = next((why for plugin in made if (why := plugin.unavailable()) is not None), None)
    if reason is None and not expose_servers and machine.starts_servers(variant):
        return machine.refuse_servers()
    return reason


def _report_made(observer: Observer, data: SyntheticDataset, made: int) -> None:
    observer.making(f"{data.noun} for {data.kind}", made, data.samples)


def compare(
    scenario: Scenario,
    folder: Path,
    observer: Observer,
    command: str = "",
    precision: Precision | None = None,
    *,
    expose_servers: bool = False,
    host: Host | None = None,
    gate: TrialGate | None = None,
) -> Outcome:
    """Run a scenario into a folder that exists, telling `observer` how it goes.

    Args:
        scenario: as resolved.
        folder: where the session and what its trials write to stderr are kept.
        observer: hears of every trial; called in this thread.
        command: the command line, for the record; by default this process's own.
        precision: add rounds of repeats until the speed-ups are known this well; see `goal.parse_goal`.
        expose_servers: let servers of TensorFlow's be reached from other machines where that cannot be prevented.
        host: which of several hosts this is.
        gate: lets each trial begin.

    Raises:
        SessionError: the folder cannot be written.
        PipelineBenchError: every variant asks for a GPU and there is none, or what a source reads is not there and
            cannot be made; nothing was measured.
    """
    observer = Guarded(observer)
    with interrupts.deferred(), closing(NvmlSampler.open()) as gpu:
        scenario = without_unavailable(scenario, expose_servers=expose_servers)
        session = new_session(scenario, gpu, command, observer).model_copy(
            update={"precision": precision, "host": host}
        )
        try:
            machine.check_gpu(scenario, observer)
            prepare_data(scenario, observer)
        except KeyboardInterrupt:
            return Outcome(session, folder, interrupted=True)
        except (PipelineBenchError, OSError):
            with suppress(OSError):
                folder.rmdir()  # an empty folder says nothing
            raise
        warnings = [advice.thread_warning(scenario, session.environment.cores)]
        warnings += [machine.exposed_note(scenario)] if expose_servers else []
        for warning in filter(None, warnings):
            observer.note(warning)
            session = session.model_copy(update={"notes": (*session.notes, warning)})
        return run(session, folder, observer, gpu, expose_servers=expose_servers, gate=gate)


def run(
    session: Session,
    folder: Path,
    observer: Observer,
    gpu: NvmlSampler,
    planner: Planner | None = None,
    *,
    expose_servers: bool = False,
    gate: TrialGate | None = None,
) -> Outcome:
    """Run a session's trials into its folder.

    Args:
        session: nothing of it was measured yet.
        folder: exists.
        observer: hears of every trial.
        gpu: the accelerator's sampler, open.
        planner: decides which trials; by default the scenario's plan.
        expose_servers: see `compare`.
        gate: see `compare`.

    Raises:
        SessionError: the folder cannot be written.
    """
    logs = folder / TRIALS_FOLDER
    logs.mkdir(exist_ok=True)
    try:
        save(session, folder)
    except PipelineBenchError:
        with suppress(OSError):
            logs.rmdir()
            folder.rmdir()
        raise
    with interrupts.deferred(), in_use(folder):
        observer.preparing("importing TensorFlow, once for all trials")
        others = OtherWork()
        try:
            chosen, reason = best_launcher(logs / "import.stderr")
        except KeyboardInterrupt:
            return Outcome(session, folder, interrupted=True)
        with closing(chosen):
            if (busy := load_note(others.share(chosen.pid))) is not None:
                observer.note(busy)
            if reason:
                observer.note(reason)
                session = session.model_copy(update={"notes": (*session.notes, reason)})
            fresh = partial(fresh_launcher, logs / "server.stderr")
            runner = Runner(
                folder,
                chosen,
                gpu,
                observer,
                planner=planner,
                replacement=fresh,
                expose_servers=expose_servers,
                gate=gate,
            )
            return runner.run(session)


class OtherWork:
    """What others take of the machine's CPU from now on.

    The import of TensorFlow takes seconds: a load that comes and goes is seen while it lasts, and not in a short look.
    """

    def __init__(self) -> None:
        """Begin to look."""
        self._machine = MachineCpu(_own_cpu_s)
        self._until_s = time.monotonic() + _LOOK_S
        # A tick of the kernel's counter has to pass; in a sandbox that counts nothing, none ever does.
        while not self._machine.poll(0.0) and time.monotonic() < self._until_s:
            time.sleep(_TICK_S)

    def share(self, server: int) -> float:
        """Return their share, 0 to 1, without this process and the server that it has started since.

        Args:
            server: its process id.
        """
        time.sleep(max(0.0, self._until_s - time.monotonic()))
        with suppress(psutil.Error):
            times = psutil.Process(server).cpu_times()
            taken = self._machine.poll(times.user + times.system)
            return sum(value for key in (OTHER_CPU, STEAL) if isinstance(value := taken.get(key), float)) / 100
        return 0.0  # it has ended, which the first trial will find


def _own_cpu_s() -> float:
    """Return the CPU seconds of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def load_note(busy_share: float) -> str | None:
    """Return what a busy machine means for what is measured on it; None of one that is not.

    Args:
        busy_share: what others take of the machine's CPU, 0 to 1, before the first trial.
    """
    if busy_share < _BUSY_SHARE:
        return None
    return (
        f"Other work takes {units.share(busy_share)} of this machine's CPU. Steps that it slows are left out where "
        "enough others remain; verdicts may take longer, or stay probable."
    )


def new_session(scenario: Scenario, gpu: NvmlSampler, command: str = "", observer: Observer | None = None) -> Session:
    """Return a session of which nothing was measured yet, with the machine and the command line described.

    Args:
        scenario: what is to be measured.
        gpu: the accelerator's sampler, open; waits until it knows the GPUs.
        command: the command line; by default this process's own.
        observer: hears of the wait where it is a long one.
    """
    if observer is not None and not gpu.wait_until_open(_OPENS_WITHIN_S):
        observer.preparing("waiting for the NVIDIA driver to list the GPUs")
    described = environment.describe(gpu.accelerator)
    return Session(
        started_at=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=command or environment.command_line(),
        scenario=scenario,
        environment=described,
        notes=scenario.notes,
        checked=last_selftest(described.driver, described.cpu, described.gpu),
    )
