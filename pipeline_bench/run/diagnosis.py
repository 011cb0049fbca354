"""One diagnosis from a user's function to a saved session: the folder, the search for fixes, the code to write."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

import psutil

from pipeline_bench.diagnosis import search
from pipeline_bench.errors import SessionError
from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.session import save
from pipeline_bench.run import launcher, machine
from pipeline_bench.run.comparison import Outcome, new_session, run
from pipeline_bench.run.observer import Guarded, Observer
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario
from pipeline_bench.system import interrupts
from pipeline_bench.tfdata import targets

_DOWNLOADS = frozenset(
    {"get_file", "urlretrieve", "urlopen", "load_data", "load_dataset", "download", "download_and_prepare"}
)
_WRITES = frozenset(
    {"mkdir", "makedirs", "write_text", "write_bytes", "savetxt", "savez", "to_csv", "rmtree", "unlink", "remove"}
    | {"rename", "extractall", "unpack_archive", "copytree", "TFRecordWriter"}
)
_STARTS = frozenset({"system", "Popen", "check_call", "check_output"})
_SAID = (("downloads", _DOWNLOADS), ("writes files", _WRITES), ("starts programs", _STARTS))
_MOST = 3


def run_diagnosis(
    asked: Diagnosis,
    scenario: Scenario,
    folder: Path,
    observer: Observer,
    *,
    command: str = "",
    launcher: launcher.LauncherName = "forkserver",
    expose_servers: bool = False,
) -> Outcome:
    """Diagnose a user's pipeline into a folder that exists, telling `observer` how it goes.

    Args:
        asked: whose pipeline, with which model, for how long, and what a fix may change.
        scenario: what it begins with, `variants.scenario(asked)`.
        folder: where the session and what its trials write to stderr are kept.
        observer: hears of every trial; called in this thread.
        command: the command line, for the record; by default this process's own.
        launcher: ``fresh`` starts an interpreter for each trial where the fork server is not wanted.
        expose_servers: let servers of TensorFlow's be reached from other machines where that cannot be prevented.

    Raises:
        SessionError: the folder cannot be written.
    """
    observer = Guarded(observer)
    if asked.target.is_script:
        script = targets.script_file(asked.target).read_text(encoding="utf-8", errors="replace")
        observer.note(
            f"{asked.target.text} runs in every trial up to its training{_which(asked.target.training)}, with "
            f"everything that it does before; nothing after that runs.{side_effects(script)}"
        )
    with interrupts.deferred(), closing(NvmlSampler.open()) as gpu:
        refusal = None if expose_servers else machine.refuse_servers()
        planner = search.Search(float(psutil.virtual_memory().available), refusal)
        session = new_session(scenario, gpu, command, observer).model_copy(update={"diagnosis": asked})
        outcome = run(session, folder, observer, gpu, launcher, planner, expose_servers=expose_servers)
        return _with_code(outcome, observer)


def _which(training: str | None) -> str:
    return "" if training is None else f" {training} (those before it are run whole)"


def _with_code(outcome: Outcome, observer: Observer) -> Outcome:
    """Return the outcome with the code to write for every fix that helps, in its saved session too."""
    from pipeline_bench.diagnosis.patch import change  # noqa: PLC0415 - loads LibCST, which only its end needs

    session, diagnosis = outcome.session, outcome.session.diagnosis
    if diagnosis is None or diagnosis.inspection is None:
        return outcome
    texts = _source_texts(diagnosis)
    names = {file: patched_from(file, Path.cwd()) for file in texts}
    attempts = tuple(
        attempt.model_copy(update={"code": change(texts, diagnosis.inspection, attempt.fix, names)})
        if attempt.outcome in ("proposed", "faster")
        else attempt
        for attempt in diagnosis.attempts
    )
    session = session.model_copy(update={"diagnosis": diagnosis.model_copy(update={"attempts": attempts})})
    unsaved = None
    try:
        save(session, outcome.folder)
    except SessionError as error:
        unsaved = error.message
        observer.note(unsaved)
    return dataclasses.replace(outcome, session=session, unsaved=unsaved)


def _source_texts(diagnosis: Diagnosis) -> dict[str, str]:
    """Return what the files hold that the pipeline's stages stand in; one that cannot be read has no code to change."""
    assert diagnosis.inspection is not None
    texts = {}
    for file in {stage.place.file for stage in diagnosis.inspection.stages if stage.place is not None}:
        try:
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


def side_effects(text: str) -> str:
    """Return what calls in a script's text do, `` It downloads: get_file (line 12).``; empty where none is known."""
    found = [(does, _places(text, names)) for does, names in _SAID]
    parts = [f"{does}: {', '.join(places[:_MOST])}" for does, places in found if places]
    return f" It {'; '.join(parts)}." if parts else ""


def _places(text: str, names: frozenset[str]) -> list[str]:
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}  # a `load_data` of theirs is not Keras'
    return [f"{name} (line {call.lineno})" for call in calls for name in _name(call, own) if name in names]


def _name(call: ast.Call, own: Collection[str]) -> Iterator[str]:
    if isinstance(call.func, ast.Attribute):
        yield call.func.attr
    elif isinstance(call.func, ast.Name) and call.func.id not in own:
        yield call.func.id
