"""Two sessions -> a `Difference`. Pure: the same sessions and limits give the same difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pipeline_bench.analysis.difference.conditions import conditions, only_in, shared_variants
from pipeline_bench.analysis.difference.gates import Limits, gates
from pipeline_bench.analysis.difference.variants import change
from pipeline_bench.errors import UsageError
from pipeline_bench.model.difference import Difference, Noise, Side
from pipeline_bench.model.session import Session

_NAMES_LIMIT = 8


def between(
    before: Session,
    after: Session,
    limits: Limits | None = None,
    *,
    strict: bool = False,
    paths: tuple[str, str] = ("before", "after"),
) -> Difference:
    """Hold two sessions against each other, variant by variant.

    Args:
        before: the session to compare with.
        after: the session that is judged.
        limits: the gates; none where it is None.
        strict: whether a gate that cannot be decided fails.
        paths: where the two were read from.

    Raises:
        UsageError: the sessions have no variant in common besides ceilings, or measured none in common.
        SessionError: a packed column of a session is damaged.
    """
    limits = limits or Limits()
    shared = [name for name in shared_variants(before, after) if _has_result(before, name) and _has_result(after, name)]
    if all(after.scenario.variant(name).is_ceiling for name in shared):
        besides = " besides ceilings" if shared else ""
        raise UsageError(
            f"{paths[0]} and {paths[1]} have no variant in common{besides}: {_names(before)} and {_names(after)}.",
            "Compare two sessions of one scenario, or of scenarios whose variants have the same names.",
        )
    changes = tuple(change(before, after, name) for name in shared)
    if not any(found.measured_in_both for found in changes):
        raise UsageError(
            f"{paths[0]} and {paths[1]} have nothing in common that was measured: {changes[0].step_time.reason}.",
            "Compare sessions that ended well; `pipeline-bench report` shows what each has.",
        )
    return Difference(
        before=_side(before, paths[0]),
        after=_side(after, paths[1]),
        conditions=conditions(before, after),
        disturbances=(*_noise(before, "before"), *_noise(after, "after")),
        only_before=only_in(before, shared),
        only_after=only_in(after, shared),
        variants=changes,
        gates=gates(before, after, changes, limits, strict),
    )


def _has_result(session: Session, name: str) -> bool:
    return any(result.variant == name for result in session.results)


def _names(session: Session) -> str:
    names = [repr(variant.name) for variant in session.scenario.variants]
    return ", ".join(names[:_NAMES_LIMIT] + ["…"] * (len(names) > _NAMES_LIMIT))


def _side(session: Session, path: str) -> Side:
    return Side(
        path=path,
        scenario=session.scenario.name,
        started_at=session.started_at,
        command=session.command,
        package=session.environment.package,
    )


def _noise(session: Session, side: Literal["before", "after"]) -> Iterator[Noise]:
    for disturbance in session.disturbances:
        yield Noise(side=side, disturbance=disturbance)
