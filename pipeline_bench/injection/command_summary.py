"""The lines printed of a command that has ended: one a training, or why there is none, and how to diagnose one."""

from __future__ import annotations

import os
import re
import shlex
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pipeline_bench import environment
from pipeline_bench.analysis import wall_time
from pipeline_bench.analysis.thresholds import BOUND_SHARE, NEEDED_STEPS
from pipeline_bench.hosts import ranks
from pipeline_bench.injection import OUT_VARIABLE, PACKAGE_VARIABLE, process_records
from pipeline_bench.injection.command_result import EndedCommand, ProcessRecord, TimeBetweenFits, WatchedTraining
from pipeline_bench.injection.hooks import KEPT_TRAININGS
from pipeline_bench.injection.watched_loops import STEPS_OF_A_BATCH, WATCHED_LOOPS
from pipeline_bench.model.session import PAGE, load
from pipeline_bench.system.files import is_python, write_atomically
from pipeline_bench.system.user_folders import RUN_VARIABLE
from pipeline_bench.text import units

_SHOWN_PROBLEMS, _SHOWN_SHORT, _SHOWN_LOOPS = 3, 2, 4
_LONG_AFTER_S, _LONG_AFTER = 2.0, 0.1
"""What comes behind the last training is mentioned if it takes longer than that, and than this part of the command."""
_LONG_BETWEEN_S = 1.0
"""What comes between the calls of `fit` is mentioned if it takes longer than that, and as much of both as a wait."""
_LONG_ADAPT_S, _MANY_ELEMENTS = 1.0, 5_000
"""An `adapt` is mentioned if it takes longer; with more elements than that they may be no batches."""
_BATCHED = "with dataset.batch(1024) before adapt it takes 1,024 at once"
_BUSY_PERCENT = 70.0
"""Of the usable cores: from there on, what the input computes is likely to take them from the model."""
_REPLACES_PATH = re.compile(r"PYTHONPATH=(?!\S*\$\{?PYTHONPATH)")
"""In a part of the command; a script's text may set it and keep what was there."""
_SHOWN_VARIABLES = 8
_OF_RUN = (RUN_VARIABLE, OUT_VARIABLE, PACKAGE_VARIABLE, "PYTHONPATH")
_OF_ANY_START = (
    "LC_CTYPE",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "MAKEFLAGS",
    "MAKELEVEL",
    "MFLAGS",
    "MAKE_TERMOUT",
    "MAKE_TERMERR",
)
"""Variables that Python, a shell or make sets for what it starts."""
_TRACED_CALLS, _LONG_TRACING_S, _TRACED_SHARE = 3, 1.0, 0.05
"""A function that is traced anew is mentioned if so many calls did so, for so long, and for that part of the steps."""
_OF_SHARED_CORES = (
    "without a GPU, what the input computes may take cores from the model, which no wait shows; diagnose measures the "
    "model alone"
)
_PYTHON = re.compile(r"python[\d.]*")
_OPTIONS = re.compile(r"-([^-cmWX]*)([cmWX]?)(.*)", re.DOTALL)
"""Python's options in one part of a command: flags, and at its end one that takes a value, here or in the next part."""


def lines(ended: EndedCommand, command: Sequence[str]) -> list[str]:
    """Return the lines to print at the end: one for each training, then the device and the host."""
    trained = [record for record in ended.records if record.trainings]
    said = [line for record in trained for line in _of_process(record, ended.running, several=len(trained) > 1)]
    said += [line for record in ended.records for line in _adapted(record, several=len(trained) > 1)]
    said += ended.unrecorded
    more = sum(record.more for record in ended.records)
    if more:
        calls = f"{units.count(more, 'more call')} of fit {'was' if more == 1 else 'were'}"
        said.append(f"{calls} not measured: at most {KEPT_TRAININGS} per process are.")
    unwatched = list(dict.fromkeys(where for record in ended.records for where in record.unwatched_loops))
    if unwatched:
        named = [*unwatched[:_SHOWN_LOOPS], *(["…"] if len(unwatched) > _SHOWN_LOOPS else [])]
        loops = units.count(len(unwatched), "more loop was", "more loops were")
        said.append(f"{loops} not measured ({', '.join(named)}): at most {WATCHED_LOOPS} per process are.")
    reasons = [*ended.problems, *(record.problem for record in ended.records if record.problem)]
    said += [f"not watched: {reason}" for reason in reasons[:_SHOWN_PROBLEMS]]
    if not ended.unrecorded and not trained:
        said.append(f"no training was found: {_why_none(ended, command)}")
    shared = [_OF_SHARED_CORES] * (not _starved(ended) and bool(_on_shared_cores(ended)))
    return [*said, _machine(ended), *shared, *_not_selected(ended), *_not_set_here(ended)]


def next_command(ended: EndedCommand) -> str | None:
    """Return the command that diagnoses what waited longest for its input; None where none can.

    It is made of what started the process that waited, which may be one of many that a job starts. Where nothing
    waited, it is that of a training whose input computes on the model's cores.
    """
    chosen = _chosen(ended)
    if chosen is None:
        return None
    record, training, script = chosen
    given = shlex.join(record.command[script.stop :])
    only_fits = all(each.number is not None for each in record.trainings) and not record.more
    is_first = training.number == 1 if only_fits else training.number is None and len(record.trainings) == 1
    which = "" if is_first else f" --training {training.selector}"
    away = record.folder is not None and str(record.folder) != process_records.folder()
    there = f"cd {shlex.quote(str(record.folder))} && " if away else ""
    return f"{there}pipeline-bench diagnose {shlex.join(record.command[script])}{which}{given and ' -- '}{given}"


def _chosen(ended: EndedCommand) -> tuple[ProcessRecord, WatchedTraining, slice] | None:
    """Return the training that the next command is for, as `_startable` yields it; None where there is none."""
    return next((each for each in _startable(ended) if not each[1].is_of_later_data), None)


def _not_set_here(ended: EndedCommand) -> Iterator[str]:
    """Yield which variables the process of the next command was started with that this one was not."""
    chosen = _chosen(ended)
    names = () if chosen is None else chosen[0].variables
    if added := [each for each in names if each not in {*os.environ, *_OF_RUN, *_OF_ANY_START}]:
        shown = [*added[:_SHOWN_VARIABLES], *(["…"] if len(added) > _SHOWN_VARIABLES else [])]
        yield (
            f"what the next command names was started with variables that are not set here: {', '.join(shown)}; set "
            "those that it reads"
        )


def _startable(ended: EndedCommand) -> Iterator[tuple[ProcessRecord, WatchedTraining, slice]]:
    """Yield the trainings that are worth a diagnosis and can be started again, with what names their script."""
    # A process of its own is no worker of a training of several: it would wait for the others.
    if ranks.of_training(os.environ) is not None:
        return
    for record, training in _starved(ended) or _on_shared_cores(ended):
        if (script := _script_in(record)) is not None:
            yield record, training, script


def _not_selected(ended: EndedCommand) -> Iterator[str]:
    """Yield why the training that is worth a diagnosis most has no command for one."""
    record, training, _ = next(_startable(ended), (None, None, None))
    if record is not None and training is not None and training.is_of_later_data:
        yield (
            f"no next command for {_name(training, record)}: diagnose --training {training.selector} measures the "
            "first dataset of that line; to measure this one, add --dataset with the name of its variable"
        )


def _starved(ended: EndedCommand) -> list[tuple[ProcessRecord, WatchedTraining]]:
    """Return the trainings that waited for their input, a `fit` before any loop, then by how long they waited.

    What waits for a small part of what its process trained, as a loop over the test's data, is left alone.
    """
    starved = [
        (record, each)
        for record in ended.records
        for each in record.trainings
        if each.verdict == "input-bound" and each.diagnosable and each.trains
        if each.waited_s >= BOUND_SHARE * sum(other.seconds for other in record.trainings)
    ]
    return sorted(starved, key=lambda each: (each[1].number is None, -each[1].waited_s))  # a loop may only look


def _on_shared_cores(ended: EndedCommand) -> list[tuple[ProcessRecord, WatchedTraining]]:
    """Return the trainings that did not wait, the longest first, where all cores were busy and no GPU was there.

    Either counts: the CPU time of the whole command, of which imports and its end may be most, or that of the
    training, which lacks the processes of its workers.
    """
    found = [
        (record, each)
        for record in ended.records
        for each in record.trainings
        if ended.gpu_percent[0] is None and max(each.device_percent or 0.0, ended.cpu_percent or 0.0) >= _BUSY_PERCENT
        if each.cause in ("only-not-input", "at-threshold") and each.diagnosable and each.trains
    ]
    return sorted(found, key=lambda each: -each[1].seconds)


def _script_in(record: ProcessRecord) -> slice | None:
    """Return which parts of what started a process name its script, ``train.py`` or ``-m package.train``.

    The name of the file that trained distinguishes it from a launcher's own module, and from what a launcher is given.
    It may also be a command that a package installed, whose file is Python. None where no part names it.
    """
    command, program = record.command, record.program
    for index, part in enumerate(command[1:], 1):
        if Path(part).name == program and is_python(str(Path(record.folder or "") / part)):
            return slice(index, index + 1)
        module = command[index + 1].rpartition(".")[2] if part == "-m" and index + 1 < len(command) else None
        if module is not None and program in (module, f"{module}.py"):  # a package's, or a module's
            return slice(index, index + 2)
    return None


def _of_process(record: ProcessRecord, running: Collection[int], several: bool) -> Iterator[str]:
    """Yield a line a training, where its time went, and what of that is unusual.

    Args:
        record: of the process.
        running: the processes that still train.
        several: whether others have trained too, from which its number distinguishes its trainings.
    """
    where = f", process {record.pid}" if several else ""
    short = [each for each in record.trainings if each.number is not None and each.steps < NEEDED_STEPS]
    hidden = short[1:] if len(short) > _SHOWN_SHORT else []
    for training in record.trainings:
        if training in hidden:
            continue
        yield f"{_name(training, record)}{where}: {_figures(training)}{_kept(training)}"
        remarks = list(training.remarks)
        if training.time is not None:
            yield f"  {': '.join(wall_time.summary(training.time))}"
            remarks += wall_time.remarks(training.time, environment.usable_memory_bytes())
        yield from (f"  {remark}" for remark in remarks)
    if hidden:
        yield from _of_short(hidden, record.more)
    if record.between_fits is not None and all(each.number is not None for each in record.trainings if each.trains):
        yield from _between_fits(record.between_fits, where)
    yield from _traced_anew(record)
    if record.pid in running:
        yield f"process {record.pid} still trains: that is what it had measured when the command ended"
    elif not record.ended:
        at = time.strftime("%H:%M:%S", time.localtime(record.saved_s))
        yield f"process {record.pid} was killed, or ended by os._exit: what came after its last save, {at}, is missing"


def _figures(training: WatchedTraining) -> str:
    """Return the figures of a training; of a loop that only reads, which waits by nature, how long that took."""
    if training.trains:
        return training.line
    took = units.seconds(training.seconds)
    return f"{units.count(training.steps, 'batch', 'batches')} in {took}; nothing was seen to train on them"


def _name(training: WatchedTraining, record: ProcessRecord) -> str:
    """Return a training's name, with its number where its process has called `fit` several times."""
    if training.number is None:
        return f"loop of {training.of}{f', data {training.data_number}' if training.is_of_later_data else ''}"
    fits = [each.number for each in record.trainings if each.number is not None]
    is_only = max(fits) == 1 and not record.more
    return f"fit of {training.of}" if is_only else f"fit {training.number} of {training.of}"


def _of_short(fits: Sequence[WatchedTraining], more: int) -> Iterator[str]:
    """Yield what short calls of `fit` come to, most of which have no verdict, and what shows more of such a loop."""
    most = max(each.steps for each in fits)
    bound = sum(each.verdict == "input-bound" for each in fits)
    come_to = f"{bound} of them are input-bound too" if bound else "too few for a verdict"
    yield f"{units.count(len(fits), 'more call')} of fit took {units.count(most, 'step')} at most: {come_to}"
    if most <= STEPS_OF_A_BATCH and more:
        yield (
            "  a loop that calls fit for each batch makes its next batch between two calls, which no figure counts as "
            "input wait; use train_on_batch instead: a call costs less, and run measures such a loop"
        )


def _between_fits(between: TimeBetweenFits, where: str) -> Iterator[str]:
    """Yield how long a program did something else between its calls of `fit`, where that is a good part of both.

    Args:
        between: that.
        where: the end of what names it.
    """
    share = between.seconds / (between.seconds + between.fits_s)
    if share < BOUND_SHARE or between.seconds < _LONG_BETWEEN_S:
        return
    most = f"; {units.share(between.line_share)} of it in {between.line}" if between.line is not None else ""
    yield (
        f"between the calls of fit{where}: {units.seconds(between.seconds)}, {units.share(share)} of the time from the "
        f"first call to the last, evaluate and predict not counted{most}"
    )
    yield (
        "  no figure counts that as input wait; if the next part of the data is loaded there, one fit over all data, "
        "by tf.data or a PyDataset with workers, loads it during the steps"
    )


def _traced_anew(record: ProcessRecord) -> Iterator[str]:
    """Yield which functions a process traced again and again, where that took a good part of what trained."""
    trained_s = sum(each.seconds for each in record.trainings if each.trains)
    for each in record.traced_anew:
        if each.calls >= _TRACED_CALLS and each.seconds >= max(_LONG_TRACING_S, _TRACED_SHARE * trained_s):
            at = f", {each.line}," if each.line else ""
            yield (
                f"  {each.function}{at} was traced anew in {units.count(each.calls, 'call')}, which took "
                f"{units.seconds(each.seconds)}: each new shape of a tensor, and each new Python number, among its "
                "arguments has it traced. Give it batches of one shape and numbers as tensors, or make it with "
                "tf.function(reduce_retracing=True)"
            )


def _adapted(record: ProcessRecord, several: bool) -> Iterator[str]:
    """Yield how long layers took to adapt to data, and what has them take less; `several` as for `_of_process`."""
    for each in record.adapted:
        if each.seconds < _LONG_ADAPT_S:
            continue
        calls = f", {each.calls:,} calls" if each.calls > 1 else ""
        elements = f"{each.elements:,} element{'s' * (each.elements > 1)} in " if each.elements else ""
        where = f", process {record.pid}" if several else ""
        yield f"adapt of {each.layer}, {each.line}{calls}{where}: {elements}{units.seconds(each.seconds)}"
        if not each.may_batch:
            continue
        if each.single_values:
            yield f"  each element is a single value, and the layer takes them one by one; {_BATCHED}"
        elif each.elements > _MANY_ELEMENTS * each.calls:
            yield f"  if each element is a single sample, the layer takes them one by one; {_BATCHED}"


def _kept(training: WatchedTraining) -> str:
    """Make a training's page and return where it is, as the end of a line; where its session is if that fails."""
    if training.folder is None:
        return "" if training.unsaved is None else f"; no session: {training.unsaved.rstrip('.')}"
    from pipeline_bench.report import html

    page = training.folder / PAGE
    try:
        write_atomically(page, html.render(load(training.folder)))
    except Exception:  # the command has ended well or not, whatever becomes of its page
        return f"; session in {_near(training.folder)}"
    return f"; page {page.as_uri()}"


def _near(folder: Path) -> Path:
    """Return a folder's path from here, where it lies below."""
    with suppress(OSError, ValueError):  # the working directory was removed, or the folder lies elsewhere
        return folder.relative_to(Path.cwd())
    return folder


def _why_none(ended: EndedCommand, command: Sequence[str]) -> str:
    ended_by = _signal_of(ended.code)
    if ended_by is not None:
        when = "it may have been importing, or in its first steps"
        return f"{ended_by} ended the command before a training was recorded: {when}"
    if ended.code and ended.records and not ended.problems:
        return f"the command failed with exit code {ended.code}, before a training was recorded"
    if ended.problems or any(record.problem for record in ended.records):
        return "see above"
    if ended.records:
        return (
            "Keras' fit was not called or made no step, and no loop took four batches from a tf.data.Dataset, a "
            "DataLoader or grain, or trained by Session.run, train_on_batch, a tf.function or a GradientTape (what "
            "evaluate and predict wait for is not measured)"
        )
    return _why_unseen(ended, command)


def _why_unseen(ended: EndedCommand, command: Sequence[str]) -> str:
    """Return why no process of the command left a record, as far as the command itself says."""
    isolated = isolated_by(command)
    if isolated:
        return f"Python was started with {isolated}, which disables sitecustomize, so its trainings are not watched"
    if any(map(_REPLACES_PATH.search, command)):
        return "the command sets PYTHONPATH, which disables the watching: set it for pipeline-bench run, which keeps it"
    failed = f"the command failed with exit code {ended.code}; " if ended.code else ""
    return (
        f"{failed}no Python process was seen to import TensorFlow, Keras, PyTorch or grain; not seen is what ends by "
        "os._exit, or is started with a PYTHONPATH of its own, by sudo, in a container or on another machine"
    )


def isolated_by(command: Sequence[str]) -> str:
    """Return the option, ``-E``, by which a Python of the command runs no sitecustomize of ours; empty without one."""
    python = next((index for index, part in enumerate(command) if _PYTHON.fullmatch(Path(part).name)), len(command))
    options = iter(command[python + 1 :])
    while (option := _OPTIONS.fullmatch(next(options, ""))) is not None:
        flags, last, value = option.groups()
        found = next((flag for flag in flags if flag in "IES"), None)
        if found is not None:
            return f"-{found}"
        if last in ("c", "m"):
            break
        if last and not value:
            next(options, None)
    return ""


def _signal_of(code: int) -> str | None:
    """Return the name of the signal that an exit code stands for; None where it stands for none."""
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return None


def _machine(ended: EndedCommand) -> str:
    percent, source = ended.gpu_percent
    gpu = f"GPU {percent:.0f} % ({source}), " if percent is not None else ""
    cpu = "CPU not measured" if ended.cpu_percent is None else f"CPU {ended.cpu_percent:.0f} % of the usable cores"
    after = f", {units.seconds(ended.after_s)} of it after its last training" if _is_long(ended) else ""
    return f"whole command: {ended.seconds:.1f} s{after}, {gpu}{cpu}"


def _is_long(ended: EndedCommand) -> bool:
    """Return whether what came behind the last training is worth a word."""
    return ended.after_s > max(_LONG_AFTER_S, _LONG_AFTER * ended.seconds)
