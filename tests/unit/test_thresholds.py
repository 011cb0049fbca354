"""The numbers of the documentation are those that decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_bench.analysis import thresholds as limit
from pipeline_bench.analysis.stats import BOOTSTRAP_FROM_TRIALS, MANY_ROUNDS
from pipeline_bench.hosts import rendezvous
from pipeline_bench.model.diagnosis import DEFAULT_BUDGET_S, MOST_BUDGET_S
from pipeline_bench.report import difference, facts, html
from pipeline_bench.tfdata import subsample
from tests.unit import sessions

DOCS = Path(__file__).parents[2] / "docs"


def percent(share: float) -> str:
    return f"{share * 100:.4g} %"


METHOD = [
    f"enough for two batches and at least {subsample.LEAST_ELEMENTS} elements; {subsample.MOST_ELEMENTS:,} at most, or",
    f"input wait ≥ {percent(limit.BOUND_SHARE)} of the step",
    f"host slowdown ≥ {percent(limit.BOUND_SHARE)} of the step",
    f"its whole interval is at or above {percent(limit.SEVERE_SHARE)}",
    f"neither, and AU ≥ {limit.COMPUTE_BOUND_AU:.2f}",
    f"neither, and AU < {limit.COMPUTE_BOUND_AU:.2f}",
    f"| ≥ {percent(limit.CERTAIN)} | the verdict",
    f'| ≥ {percent(limit.PROBABLE)} | "probably',
    f"the plausible verdicts ({percent(limit.PLAUSIBLE)} and more)",
    f"fewer than {limit.NEEDED_STEPS} steps",
    f"exceed the step by more than {percent(limit.CEILING_TOLERANCE)}, the AU",
    f"more than {percent(limit.OTHER_STATE_SHARE)} of the files was resident",
    f"only if the {percent(limit.CERTAIN_CLAIM)} interval of the ratio excludes 1, and *probably* so if the "
    f"{percent(limit.PROBABLE_CLAIM)} interval does",
    f"two copies of a variant differ by {percent(limit.SAME_JOB_SCATTER)} permanently",
    f"95 % interval of their ratio is within a factor of {limit.TIE:.2f}",
    f"no difference is claimed, and the 95 % interval ends below {limit.WORTH}",
    f"{limit.SHARE_SCATTER * 100:.0f} points of a share, {percent(limit.RATIO_SCATTER)} of a ratio",
    f"({', '.join(map(percent, limit.TAKEN_LEVELS[:-1]))} of the CPU) are left out",
    f"fewer than {limit.FEWEST_STEPS} steps are left",
    f"blocks of steps ({limit.BLOCK_NS / 1e6:.0f} ms or more) lie {limit.BURST_DEVIATIONS:.0f} robust standard "
    f"deviations and {percent(limit.BURST_EXCESS)} above",
    f"and take {percent(limit.BURST_COST_SHARE)} of its time",
    f"is {percent(limit.DRIFT_CHANGE)} slower or faster than the first",
    f"test beyond {limit.DRIFT_DEVIATIONS} standard deviations",
    f"warm-up is {percent(limit.SLOW_START_SHARE)} of the steps, {limit.SLOW_START_FACTOR:.0f} times that of the other",
    f"took {percent(limit.CONTENTION_SHARE)} of the machine's CPU while {limit.SATURATED_PERCENT:.0f} % of it was busy",
    f"a hypervisor gave {percent(limit.STEAL_SHARE)} of the machine's CPU",
    f"CPU quota took {percent(limit.QUOTA_SHARE)} of the time of all CPUs",
    f"held the clock down for {percent(limit.GPU_THROTTLED_SHARE)} of the time",
    f"the SM clock was {percent(limit.GPU_CLOCK_DIFFERENCE)} below",
    f"(from {percent(limit.OVERLAPPED_SHARE)} on), overlaps in part, or is not seen to overlap (up to "
    f"{percent(1 - limit.OVERLAPPED_SHARE)})",
    f"at work (utilization {limit.GPU_BUSY_PERCENT:.0f} %)",
]
RUN = [
    f"a first epoch that waits for its input for {percent(limit.BOUND_SHARE)} of its steps' time or more",
    f"more than {limit.LONG_FIRST_BATCH_S:.0f} s for the first batch",
    f"each take {limit.SLOWER_EPOCHS} times as long",
    f"spend {percent(limit.EPOCH_START_SHARE)} of their time, and a second, waiting for their first batches",
    f"more than {percent(limit.ITERATOR_END_SHARE)} of their time",
    f"by {percent(limit.GROWTH_SHARE)} of the machine's memory an epoch",
]
DIAGNOSE = [
    f"all stages take less than {percent(1 - limit.NOT_THE_LIMIT)} of it, the input is not the limit",
    f"below {percent(limit.HINTED)} none is named",
    f"If a shuffle holds {percent(limit.FILLING)} of a pass or more, and the first batch comes so late that it takes "
    f"{percent(limit.BOUND_SHARE)} of an epoch or more",
    f"{limit.DEARER_ALONE} times as long as the step, the step waits for less than a tenth",
    f"proven at {percent(limit.PROBABLE_CLAIM)}",
]
BUDGET = [
    f"`--budget {DEFAULT_BUDGET_S:.0f}` is the default: the program measures for at most {DEFAULT_BUDGET_S:.0f} s",
    f"{MOST_BUDGET_S:,.0f} s",
]
MODEL_STEP = [
    f"if without it steps could be {limit.WORTH_REWRITING} times as fast",
    f"steps of a `fit` that take less than {limit.SHORT_STEP_MS:.0f} ms, as written or with the proposed fix, and wait "
    f"for less than {percent(limit.BOUND_SHARE)} of that",
]
JOB = [
    f"from a wait of {percent(limit.BOUND_SHARE)} of the step, *severely* from {percent(limit.SEVERE_SHARE)}",
    f"From {limit.NEEDED_STEPS} steps there is a verdict; from {limit.PROBABLE_STEPS} steps only",
]
SELFTEST = [
    f"wait and AU within {limit.SELFTEST_SHARE * 100:.0f} points of the step",
    f"ratio within {percent(limit.SELFTEST_RATIO)}",
    f"its CPU time is within {limit.SELFTEST_BESIDE_CORES} cores",
    f"within {percent(limit.SELFTEST_COST_SHARE)} of a step, or {limit.SELFTEST_COST_US:.0f} µs",
    f"Where others took {percent(limit.SELFTEST_DISTURBED)} of the CPU or more",
    f"{limit.SELFTEST_POINTS:.0f} points pass",
    f"where AU is {limit.COMPUTE_BOUND_AU:.2f} or more and less than half of the SMs were busy",
]

HOSTS = [
    f"its ceiling takes at least {limit.HOST_SLOWER} times the median",
    f"waits at least {limit.STRAGGLER_WAIT * 100:.0f} points more of its step",
    f"and most of them if at least {percent(limit.FASTER_HOSTS)} of the hosts are faster",
    f"interval is at or above {percent(limit.HOSTS_SCALE)}, and not all of it above {percent(limit.TIE)}",
    f"each host waits for at least {percent(limit.BOUND_SHARE)} of its step longer than alone",
    f"less than {1 + limit.BOUND_SHARE:.1f} times as long as the others'",
    f"above {1 + limit.BOUND_SHARE:.1f} times (a slow ceiling) or above {limit.BOUND_SHARE * 100:.0f} points",
    f"the wait is certainly at least {percent(limit.BOUND_SHARE)} of the step",
    f"reach less than {percent(limit.HOSTS_SCALE)} of their rate alone",
    f"If {percent(limit.HOSTS_CPU_BUSY)} or more was busy and they took {percent(limit.BOUND_SHARE)} or more",
    f"(the longest at least {1 + limit.BOUND_SHARE:.1f} times the shortest)",
    f"If all workers are at collectives for {percent(limit.STRAGGLER_WAIT)} of a step or longer",
    f"a rank of `run` began more than {rendezvous.START_S:.0f} s after another one had ended",
]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        *(("hosts.md", text) for text in HOSTS),
        *(("selftest.md", text) for text in SELFTEST),
        *(("method.md", text) for text in METHOD),
        *(("run.md", text) for text in RUN),
        *(("diagnose-details.md", text) for text in DIAGNOSE),
        *(("diagnose.md", text) for text in (*BUDGET, *MODEL_STEP)),
        *(("in_the_job.md", text) for text in JOB),
    ],
)
def test_a_page_gives_the_number_that_decides(page: str, text: str) -> None:
    assert text in " ".join((DOCS / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    "text",
    [
        "Those of shares, AU and speed-ups are Student's t, with the usual scatter between rounds as a prior below "
        f"{MANY_ROUNDS} rounds",
        f"the other ones are Student's t below {BOOTSTRAP_FROM_TRIALS} trials, and bootstrapped from "
        f"{BOOTSTRAP_FROM_TRIALS} on",
        f"input-bound or host-bound from {percent(limit.BOUND_SHARE)} of the step, severely from "
        f"{percent(limit.SEVERE_SHARE)}, and compute-bound from an AU of {limit.COMPUTE_BOUND_AU:.2f}",
        f"plainly from a probability of {percent(limit.CERTAIN)} on, as probable from {percent(limit.PROBABLE)} on; "
        "below, it is inconclusive",
    ],
)
def test_the_html_page_gives_the_rules_that_decide(text: str) -> None:
    assert text in " ".join(html.METHOD)


def test_the_notes_of_reports_give_the_levels_of_a_claim() -> None:
    certain, probable = percent(limit.CERTAIN_CLAIM), percent(limit.PROBABLE_CLAIM)
    once = percent(limit.CLAIM_CONFIDENCE)
    assert f"faster and slower are claimed at {certain}, with probably at {once}" in difference.INTERVAL_NOTE
    captions = "; ".join(facts.captions(sessions.normal()))
    assert f"faster or slower: if the {certain} interval excludes 1; probably: the {probable} one" in captions
