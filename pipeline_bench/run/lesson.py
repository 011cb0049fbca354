"""What the parts of a lesson measure: an exercise in a child with a deadline, a comparison in a temporary folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.lessons import Compare, Run
from pipeline_bench.model.session import Session
from pipeline_bench.run.child import AnsweringProcess
from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.system.processes import module_command
from pipeline_bench.system.scratch import ScratchFolder
from pipeline_bench.text import one_line, units

_WORDS_KEPT = 300


def measure(part: Run | Compare, observer: Observer) -> Any:
    """Carry out what a part of a lesson measures: the mapping of its exercise, or the session of its comparison.

    Raises:
        PipelineBenchError: it failed, in one line.
        KeyboardInterrupt: the reader has seen enough; everything that it started is ended.
    """
    return exercise(part) if isinstance(part, Run) else compared(part, observer)


def exercise(part: Run, command: Sequence[str] | None = None) -> dict[str, Any]:
    """Execute the exercise in a child, which is ended with all that it started when it is done or its time is over.

    Args:
        part: what to execute.
        command: starts the child, by default `worker.exercise`; see `AnsweringProcess`.

    Raises:
        PipelineBenchError: it raised, ended without an answer, or took longer than its deadline.
        KeyboardInterrupt: the user interrupted.
    """
    request = {
        "module": part.exercise.__module__,
        "function": part.exercise.__qualname__,
        "arguments": dict(part.arguments),
    }
    function = f"{part.exercise.__module__}.{part.exercise.__qualname__}"
    chosen = module_command("pipeline_bench.worker.exercise") if command is None else command
    try:
        with AnsweringProcess(chosen, json.dumps(request)) as child:
            line = next(child.lines(part.deadline_s), b"")
    except TimeoutError:
        limit = units.seconds(part.deadline_s)
        raise PipelineBenchError(f"{function} was ended: it took longer than {limit}.") from None
    answer = _answer(line)
    if "failed" in answer:
        raise PipelineBenchError(f"{function} failed: {one_line(str(answer['failed']), _WORDS_KEPT)}")
    if "result" not in answer:
        words = one_line(child.words[-_WORDS_KEPT:])
        without = "" if child.exit_code < 0 else " and no answer"
        raise PipelineBenchError(f"{function} {child.ending}{without}{f': {words}' if words else '.'}")
    result: dict[str, Any] = answer["result"]
    return result


def _answer(line: bytes) -> dict[str, Any]:
    """Return the child's message; empty where it ended before it had written one whole."""
    try:
        answer: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return answer


def compared(part: Compare, observer: Observer) -> Session:
    """Run the comparison; its folder is removed, the session has what the lesson tells.

    Raises:
        PipelineBenchError: the scenario is not valid here, or no trial of it went through.
        KeyboardInterrupt: it was interrupted.
    """
    document = part.document() if callable(part.document) else part.document
    scenario = resolve(document, where="the lesson's scenario", default_name="lesson")
    with ScratchFolder() as folder:
        outcome = compare(scenario, folder.path, observer, command="pipeline-bench lesson")
    if outcome.interrupted:
        raise KeyboardInterrupt
    trials = outcome.session.trials
    if not any(trial.status == "ok" for trial in trials):
        reason = one_line(trials[0].reason or trials[0].status, _WORDS_KEPT) if trials else "none was started"
        raise PipelineBenchError(f"No trial of the comparison went through: {reason}")
    return outcome.session
