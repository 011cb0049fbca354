"""One diagnosis from a user's function to a saved session: the folder, the search for fixes, the code to write."""

from __future__ import annotations

import dataclasses
import os
from contextlib import closing
from datetime import datetime
from pathlib import Path

import psutil

from pipeline_bench import user_code
from pipeline_bench.diagnosis import search
from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.hosts.ranks import of_tf_config
from pipeline_bench.model.diagnosis import DEFAULT_BUDGET_S, LEAST_BUDGET_S, MOST_BUDGET_S, PROVEN, Diagnosis
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.session import save
from pipeline_bench.run import machine
from pipeline_bench.run.comparison import new_session, run
from pipeline_bench.run.observer import Guarded, Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.run.side_effects import side_effects
from pipeline_bench.run.trial_environment import compiled_once, of_trials
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario
from pipeline_bench.system import interrupts
from pipeline_bench.system.processes import allowed_cpus
from pipeline_bench.user_code import targets


def run_diagnosis(
    asked: Diagnosis,
    scenario: Scenario,
    folder: Path,
    observer: Observer,
    *,
    command: str = "",
    expose_servers: bool = False,
) -> Outcome:
    """Diagnose a user's pipeline into a folder that exists, telling `observer` how it goes.

    Args:
        asked: whose pipeline, with which model, for how long, and what a fix may change.
        scenario: what it begins with, `variants.scenario(asked)`.
        folder: where the session and what its trials write to stderr are kept.
        observer: hears of every trial; called in this thread.
        command: the command line, for the record; by default this process's own.
        expose_servers: let servers of TensorFlow's be reached from other machines where that cannot be prevented.

    Raises:
        SessionError: the folder cannot be written.
    """
    observer = Guarded(observer)
    script = ""
    if asked.target.is_script:
        file = targets.script_file(asked.target)
        script = file.read_text(encoding="utf-8", errors="replace")
        observer.note(
            f"{asked.target.text} runs several times up to {_which(asked.target.training)}, with "
            f"everything that it does before; nothing after that runs.{side_effects(script, (file.parent, Path.cwd()))}"
        )
    with interrupts.deferred(), of_trials(script), compiled_once(), closing(NvmlSampler.open()) as gpu:
        refusal = None if expose_servers else machine.refuse_servers()
        planner = search.Search(float(psutil.virtual_memory().available), refusal, allowed_cpus())
        session = new_session(scenario, gpu, command, observer).model_copy(update={"diagnosis": asked})
        if expose_servers:
            observer.note(machine.EXPOSED_FIXES)
            session = session.model_copy(update={"notes": (*session.notes, machine.EXPOSED_FIXES)})
        outcome = run(session, folder, observer, gpu, planner, expose_servers=expose_servers)
        return _with_code(outcome, observer)


def check_budget(budget_s: float, option: str) -> None:
    """See that a diagnosis may take so long.

    Args:
        budget_s: the seconds that were asked for.
        option: as they were given: ``--budget``.

    Raises:
        UsageError: it may not.
    """
    if not LEAST_BUDGET_S <= budget_s <= MOST_BUDGET_S:
        raise UsageError(
            f"{option} {budget_s:g}: it is from {LEAST_BUDGET_S:g} to {MOST_BUDGET_S:g} seconds.",
            f"The default of {DEFAULT_BUDGET_S:g} tries most fixes; a slow pipeline or a large model needs more.",
        )


def refuse_one_of_several_workers(unset: str) -> None:
    """Refuse a script where TF_CONFIG makes this process one of several workers: a trial would wait for the others.

    Args:
        unset: what unsets it where the diagnosis was asked for.

    Raises:
        UsageError: it does.
    """
    if (worker := of_tf_config(os.environ)) is not None:
        raise UsageError(
            f"TF_CONFIG names {worker.size} workers. A trial runs the script as one of them, alone: a script that "
            "reads it waits for the others.",
            f"Unset it to measure the input of one worker: {unset}",
        )


def _which(training: str | None) -> str:
    return "its training" if training is None else f"the training of --training {training} (earlier ones in full)"


def _with_code(outcome: Outcome, observer: Observer) -> Outcome:
    """Return the outcome with the code to write for every fix that helps, in its saved session too."""
    from pipeline_bench.diagnosis.patching.patch import change  # noqa: PLC0415 - loads LibCST, which only its end needs

    session, diagnosis = outcome.session, outcome.session.diagnosis
    if diagnosis is None or diagnosis.inspection is None:
        return outcome
    texts = source_texts(diagnosis.inspection, datetime.fromisoformat(session.started_at))
    names = {file: patched_from(file, Path.cwd()) for file in texts}
    attempts = tuple(
        attempt.model_copy(update={"code": change(texts, diagnosis.inspection, attempt.fix, names)})
        if attempt.outcome in PROVEN
        else attempt
        for attempt in diagnosis.attempts
    )
    session = session.model_copy(update={"diagnosis": diagnosis.model_copy(update={"attempts": attempts})})
    outcome = dataclasses.replace(outcome, session=session)
    if outcome.unsaved is not None:  # it ended the diagnosis, also if there is room now
        return outcome
    try:
        save(session, outcome.folder)
    except SessionError as error:
        observer.note(error.message)
        return dataclasses.replace(outcome, unsaved=error.message)
    return outcome


def source_texts(inspection: Inspection, began: datetime) -> dict[str, str]:
    """Return what the files hold that the pipeline's stages and functions stand in, and the calls that can be kept.

    One that cannot be read, or that was written since then, has no code to change: it is not what was measured. Nor
    has the file of a library's function.
    """
    texts = {}
    functions = [stage.function for stage in inspection.stages if stage.function is not None]
    files = {stage.place.file for stage in inspection.stages if stage.place is not None}
    files |= {each.file for each in functions if each.file is not None and user_code.origin(each.file) == "user"}
    for file in files | {call.file for each in functions for call in each.memoizable_calls}:
        try:
            if int(Path(file).stat().st_mtime) <= int(began.timestamp()):
                texts[file] = Path(file).read_bytes().decode("utf-8")  # as it is: line ends belong to the diff
        except (OSError, UnicodeDecodeError):
            continue
    return texts


def patched_from(file: str, here: Path) -> tuple[str, str]:
    """Return the folder that a file is patched from, and the file's path from there, both without links.

    It is the file's repository, as ``git apply`` wants it.

    Args:
        file: the user's, which exists.
        here: the working folder, which is where the patch starts from for a file below it without a repository.
    """
    path = Path(file).resolve()
    folder = next((above for above in path.parents if (above / ".git").exists()), None)
    if folder is None:
        folder = here.resolve() if path.is_relative_to(here.resolve()) else path.parent
    return str(folder), path.relative_to(folder).as_posix()
