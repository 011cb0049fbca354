"""The commands as functions, for a notebook or a script; `pipeline_bench` itself offers them by name.

They return the `Session` that the command would write. Where the command prints an error, they raise it
(`errors.UsageError` or another `PipelineBenchError`). They install no signal handlers and need no main thread. Ctrl-C
ends the trial's processes and raises KeyboardInterrupt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_bench.analysis.goal import length_keys, until_decided
from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.model.diagnosis import DEFAULT_BUDGET_S, MOST_BUDGET_S, Diagnosis
from pipeline_bench.model.pipeline import Target
from pipeline_bench.model.session import Session, make_folder
from pipeline_bench.run import machine
from pipeline_bench.run.comparison import compare as run_comparison
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.check import quoted
from pipeline_bench.scenario.load import load as load_scenario
from pipeline_bench.system.files import ScratchFolder
from pipeline_bench.tfdata import service_cluster
from pipeline_bench.ui.plain import PlainView
from pipeline_bench.user_code import targets


def compare(
    scenario_or_path: str | Path | None = None,
    *,
    settings: Sequence[str] | Mapping[str, Any] = (),
    backends: Sequence[str] | None = None,
    steps: int | None = None,
    time_s: float | None = None,
    repeats: int | None = None,
    budget_s: float | None = None,
    out: Path | str | None = None,
    quiet: bool = True,
    expose_servers: bool = False,
) -> Session:
    """Train one model under every variant of a scenario, as ``pipeline-bench compare`` does.

    Args:
        scenario_or_path: a shipped scenario's name, or the path of a TOML file. None runs the main job:
            ``two_layer`` if TensorFlow uses a GPU, else ``tutorial`` on an emulated accelerator. The session has a
            note of it.
        settings: values for ``--set``: ``["source.batch_size=32"]`` or ``{"source.batch_size": 32}``.
        backends: only the variants of these backends; a backend that the scenario lacks is added.
        steps: training steps of a trial.
        time_s: seconds of training of a trial from the end of its first step, instead of `steps`.
        repeats: trials of each variant, interleaved.
        budget_s: without `steps`, `time_s` and `repeats`, rounds are added until every verdict and the fastest variant
            are decided, but for at most this many seconds; 60 by default.
        out: the folder in which the session's folder is made; None keeps no file.
        quiet: do not write progress lines to stderr.
        expose_servers: run TensorFlow's servers in the machine's own network, where other machines reach them without
            a password. By default they get a private network.

    Returns:
        The session with the results of every variant.

    Raises:
        UsageError: the scenario, a setting or the folder is invalid; nothing was measured.
        SessionError: the session can no longer be saved, as on a full disk; its `session` has what was measured.
        KeyboardInterrupt: Ctrl-C; with `out`, the folder has the trials that ended before.
    """
    if steps is not None and time_s is not None:
        raise UsageError("steps and time_s were both given.", "A trial ends after one or the other: give only one.")
    if isinstance(settings, str) or isinstance(backends, str):
        raise UsageError(
            "settings and backends take several values, and were given one string.",
            "Write settings=['source.batch_size=32'], backends=['feed_dict', 'tf_data'].",
        )
    written = list(_written(settings) if isinstance(settings, Mapping) else settings)
    given: dict[str, Any] = {"steps": steps, "time_s": time_s, "repeats": repeats}
    run = {key: _plain(value) for key, value in given.items() if value is not None}
    if budget_s is not None:
        _check_time(budget_s)
    goal = until_decided(budget_s, length_keys(run, written))
    job = machine.choose() if scenario_or_path is None else machine.MainJob(str(scenario_or_path))
    scenario = job.noted(load_scenario(job.scenario, written, list(backends or ()), run=run))
    with _folder(out, scenario) as folder:
        outcome = run_comparison(
            scenario,
            folder,
            _observer(quiet, folder),
            command="pipeline_bench.compare",
            precision=goal,
            expose_servers=expose_servers,
        )
    return _finished(outcome)


def diagnose(
    make_dataset: str | Callable[..., Any],
    *,
    model: str | Callable[..., Any] | None = None,
    argument: int | None = None,
    arguments: Sequence[object] = (),
    dataset: str | int | None = None,
    training: str | int | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    allow_reordering: bool = False,
    allow_threads: bool = False,
    data_service: str | None = None,
    out: Path | str | None = None,
    quiet: bool = True,
    expose_servers: bool = False,
) -> Session:
    """Find the stage of a pipeline that slows the training, and measure fixes, as ``pipeline-bench diagnose`` does.

    Args:
        make_dataset: the function that returns the `tf.data.Dataset`, or its location: ``"train.py:make_dataset"``.
            Or a whole script, ``"train.py"``. A function of a notebook is sent to the child processes by value.
        model: the function that returns the compiled Keras model; None measures the pipeline alone.
        argument: the only argument of `make_dataset`, if it takes one.
        arguments: the arguments of a whole script.
        dataset: the script's dataset to measure, by name, line or number; None: the one it trains on.
        training: the script's training to measure, by the number of its `fit` or by its line; None: the first.
        budget_s: the maximum time to measure, in seconds; 20 at least.
        allow_reordering: try fixes that may change the order of the samples.
        allow_threads: try fixes that run a function on several threads at once; the samples keep their order.
        data_service: the dispatcher of a running tf.data service, ``"grpc://HOST:PORT"``; fixes may use its workers.
        out: the folder in which the session's folder is made; None keeps no file.
        quiet: do not write progress lines to stderr.
        expose_servers: run TensorFlow's servers in the machine's own network, where other machines reach them without
            a password. By default they get a private network.

    Returns:
        The session; its `diagnosis` has the stages, the bottleneck, the attempts and the conclusion. If the user's own
        code failed, `diagnosis.failure` and `diagnosis.traceback` have the error.

    Raises:
        UsageError: a target is invalid, or the folder cannot be made; nothing was measured.
        SessionError: the session can no longer be saved, as on a full disk; its `session` has what was measured.
        KeyboardInterrupt: Ctrl-C; with `out`, the folder has the trials that ended before.
    """
    from pipeline_bench.diagnosis import variants  # noqa: PLC0415
    from pipeline_bench.run import diagnosis  # noqa: PLC0415 - compare() needs none of this

    diagnosis.check_budget(budget_s, "budget_s")
    if isinstance(arguments, str):
        raise UsageError("arguments takes several values, and was given one string.", "Write ['--epochs', '3'].")
    if isinstance(make_dataset, str) and targets.is_script(make_dataset):
        diagnosis.refuse_one_of_several_workers('del os.environ["TF_CONFIG"]')
        which = (None if each is None else str(each) for each in (dataset, training))
        given = [str(each) for each in arguments]
        target, trained = targets.parse_script(make_dataset, given, model, argument, *which), None
    else:
        for name, value in (("arguments", arguments or None), ("dataset", dataset), ("training", training)):
            if value is not None:
                raise UsageError(f"{name}={value!r} goes with a whole script.", "Write 'train.py' without a function.")
        target = _target(make_dataset, argument, "dataset")
        trained = None if model is None else _target(model, None, "model")
    asked = Diagnosis(
        target=target,
        model=trained,
        allow_reordering=allow_reordering,
        allow_threads=allow_threads,
        data_service=None if data_service is None else service_cluster.address(data_service),
        budget_s=budget_s,
    )
    scenario, command = variants.scenario(asked), "pipeline_bench.diagnose"
    with _folder(out, scenario) as folder:
        observer = _observer(quiet, folder)
        outcome = diagnosis.run_diagnosis(
            asked, scenario, folder, observer, expose_servers=expose_servers, command=command
        )
    return _finished(outcome)


def _finished(outcome: Outcome) -> Session:
    """Return the session of a run that went to its end.

    Raises:
        KeyboardInterrupt: the user interrupted it.
        SessionError: it could not be saved; `session` has what was measured.
    """
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.unsaved is not None:
        error = SessionError(outcome.unsaved)
        error.session = outcome.session
        raise error
    return outcome.session


def _check_time(budget_s: float) -> None:
    if not 0 < budget_s <= MOST_BUDGET_S:
        raise UsageError(
            f"budget_s is {budget_s}, no positive number of seconds, {MOST_BUDGET_S:g} at most.",
            "Leave it out for the default.",
        )


def _target(given: str | Callable[..., Any], argument: int | None, what: str) -> Target:
    if isinstance(given, str):
        return targets.parse(given, argument, what)
    if not callable(given):
        raise UsageError(
            f"The {what} was given as a {type(given).__name__}.",
            f"Give the function that makes the {what}, or where it is: 'train.py:make_{what}'.",
        )
    return targets.from_callable(given, argument)


def _written(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings as ``--set`` takes them; of a mapping in them each of its keys.

    Raises:
        UsageError: a value is none that a scenario can hold.
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _written({f"{key}.{quoted(str(inner))}": each for inner, each in value.items()})
            continue
        try:
            yield f"{key}={_toml(value)}"
        except (TypeError, ValueError):
            raise UsageError(
                f"settings: {key} is a {type(value).__name__}, which no scenario holds.",
                "Give a text, a number, a list or a dict of them, or leave the key out.",
            ) from None


def _toml(value: Any) -> str:
    """Return a Python value as ``--set`` reads it: JSON's lists, numbers, booleans and quoted texts are TOML's too.

    Raises:
        TypeError: it is None.
        ValueError: it is none of them.
    """
    if value is None:
        raise TypeError
    return value if isinstance(value, str) else json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a path as a text, what NumPy holds as Python's own numbers, and all else as it is."""
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


@contextmanager
def _folder(out: Path | str | None, scenario: Scenario) -> Iterator[Path]:
    """Give the session's own folder under `out`; without `out` a temporary one, removed at the end."""
    if out is not None:
        made = make_folder(Path(out), scenario.name)
        try:
            yield made
        finally:
            with suppress(OSError):
                made.rmdir()  # an empty folder says nothing
        return
    with ScratchFolder() as folder:
        yield folder.path


def _observer(quiet: bool, folder: Path) -> Observer:
    return Observer() if quiet else PlainView(sys.stderr, folder)
