"""What keeps a figure from deciding a gate: trials that other work disturbed, or that disagree."""

from __future__ import annotations

from pipeline_bench.model.result import Disturbance, Result
from pipeline_bench.model.session import Session


def cost(session: Session, variant: str) -> tuple[float, Disturbance | None]:
    """The share of its time that disturbances cost a variant, in the mean over its trials, and the costliest of them.

    Of several in one trial the largest counts: a burst and the processes that caused it cost their time once.
    """
    repeats = {t.repeat for t in session.trials if t.variant == variant and t.status == "ok"}
    own = [each for each in session.disturbances if each.variant == variant and each.cost_share]
    own = [each for each in own if each.repeat in repeats]
    if not own:
        return 0.0, None
    own.sort(key=lambda each: each.cost_share or 0.0)
    largest = {each.repeat: each.cost_share or 0.0 for each in own}
    return sum(largest.values()) / len(repeats), own[-1]


def about(result: Result) -> str | None:
    """Return why the AU of a result is not to be relied on: what its verdict says where it refuses one; else None.

    Where nothing but the width of an interval leaves the limit open, the AU is as good as that interval, which decides.
    """
    verdict, au = result.verdict, result.accelerator_utilization
    if au.impossible:
        return au.reason
    if verdict.kind != "inconclusive" or verdict.doubt is not None or au.value is None:
        return None
    return verdict.text.removeprefix("inconclusive: ").rstrip(".")
