"""What keeps a figure from deciding a gate: trials that other work disturbed, or that disagree."""

from __future__ import annotations

from pipeline_bench import findings
from pipeline_bench.session import Disturbance, Result, Session


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
    """Why the AU of a result is not to be relied on: what its verdict says where it is inconclusive; None where it is.

    A verdict is also inconclusive where nothing but the width of an interval leaves the cause open. The AU is then as
    good as its own interval, and that decides.
    """
    if result.verdict.kind != "inconclusive" or result.accelerator_utilization.value is None:
        return None
    undisturbed = findings.judge(result, False, None, findings.NEEDED_STEPS)
    if undisturbed.text == result.verdict.text and not _beats_its_ceiling(result):
        return None
    return result.verdict.text.removeprefix("inconclusive: ").rstrip(".")


def _beats_its_ceiling(result: Result) -> bool:
    au, host = result.accelerator_utilization, result.host_slowdown_share
    low = au.ci95[0] if au.ci95 else au.value
    high = host.ci95[1] if host.ci95 else host.value
    margin = findings.CEILING_TOLERANCE
    return (low is not None and low > 1 + margin) or (high is not None and high < -margin)
