"""A step of the selftest: the parts that it measures, and how; whatever it raises, the steps behind it are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pipeline_bench.errors import PipelineBenchError, SessionError
from pipeline_bench.model.selftest import Selftest
from pipeline_bench.model.session import load
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.selftest import judge
from pipeline_bench.text import line_of


@dataclass(frozen=True)
class SelftestStep:
    """What is measured at a time, between two saves of the session."""

    names: Sequence[str]
    """Of the parts that it measures."""
    do: Callable[[Outcome], Outcome]


def changing(name: str, change: Callable[[Selftest], Selftest]) -> SelftestStep:
    """Return the step of one part that changes nothing but the session's selftest."""
    return SelftestStep((name,), lambda outcome: changed(outcome, change))


def changed(outcome: Outcome, change: Callable[[Selftest], Selftest]) -> Outcome:
    """Return the outcome with another selftest."""
    selftest = outcome.session.selftest
    assert selftest is not None
    return replace(outcome, session=outcome.session.model_copy(update={"selftest": change(selftest)}))


def attempt(step: SelftestStep, outcome: Outcome) -> Outcome:
    """Return what a step came to; the parts of one that raised have the reason.

    Raises:
        SessionError: the session cannot be saved or read.
    """
    try:
        return step.do(outcome)
    except SessionError:
        raise
    except PipelineBenchError as error:
        reason, expected = error.message, True
    except Exception as error:  # a fault of this program's in one part must not cost the others
        reason, expected = line_of(error), False
    # A comparison has saved the trials that it ran until then.
    outcome = replace(outcome, session=load(outcome.folder))
    return changed(outcome, lambda selftest: _with_reason(selftest, step.names, reason, expected=expected))


def _with_reason(selftest: Selftest, names: Sequence[str], reason: str, *, expected: bool) -> Selftest:
    """Return the selftest with the reason in these parts; what could not be begun, for a known reason, did not fail."""
    known, failed = {part.name: part for part in selftest.parts}, {"status": "failed", "reason": reason}
    ended = [
        judge.not_run(name, reason).model_copy(update={} if expected else failed)
        if name not in known
        else known[name].model_copy(update=failed)
        for name in names
    ]
    return judge.with_parts(selftest, ended)
