"""Differences with fixed figures, for tests of their renderings."""

from __future__ import annotations

from pipeline_bench.model.difference import Condition, Difference, Gate, Noise, Ratio, Shift, Side, VariantChange
from pipeline_bench.model.result import Disturbance


def side(path: str) -> Side:
    return Side(path=path, scenario="two_layer", started_at="2024-05-01T12:00:00+00:00", command="", package="0.1.0")


def change(name: str, ratio: Ratio, *, is_ceiling: bool = False) -> VariantChange:
    if ratio.value is None:
        missing = Shift(before=0.62, reason=ratio.reason)
        return VariantChange(
            variant=name,
            is_ceiling=is_ceiling,
            step_ms_before=12.3,
            step_time=ratio,
            beside_ceiling=Ratio(reason=ratio.reason),
            accelerator_utilization=missing,
            input_wait_share=missing,
            verdict_before="input-bound",
            verdict_after="not-measured",
            verdict_words_before="input-bound",
            verdict_words_after="not-measured",
            text=f"{name}: no change to give, {ratio.reason}; was input-bound, is not-measured.",
        )
    return VariantChange(
        variant=name,
        is_ceiling=is_ceiling,
        step_ms_before=12.3,
        step_ms_after=12.3 * ratio.value,
        step_time=ratio,
        beside_ceiling=Ratio(reason="this is the ceiling itself") if is_ceiling else ratio,
        accelerator_utilization=Shift(before=0.62, after=0.58, change=-0.04, ci95=(-0.06, -0.02)),
        input_wait_share=Shift(before=0.38, after=0.375, change=-0.005, ci95=(-0.02, 0.01)),
        verdict_before="input-bound",
        verdict_after="host-bound",
        verdict_words_before="input-bound",
        verdict_words_after="host-bound",
        text=f"{name}: was input-bound, is host-bound.",
    )


def full() -> Difference:
    """Every kind of change, every kind of outcome, and conditions that are not fair."""
    slower = Ratio(value=1.12, ci95=(1.08, 1.16), difference="slower", smallest=0.04)
    return Difference(
        before=side("main"),
        after=side("branch"),
        conditions=(
            Condition(name="TensorFlow", before="2.20.0", after="2.21.0"),
            Condition(name="source.batch_size", before="128", after="64", variants=("tf_data",)),
        ),
        disturbances=tuple(
            Noise(
                side="after",
                disturbance=Disturbance(kind="burst", variant=f"v{i}", repeat=i, text=f"burst number {i}."),
            )
            for i in range(6)
        ),
        only_before=("old",),
        only_after=("new",),
        variants=(
            change("ceiling", Ratio(value=1.01, ci95=(0.99, 1.03), difference="none", smallest=0.02), is_ceiling=True),
            change("feed_dict", slower),
            change("fifo_queue", Ratio(value=0.9, ci95=(0.85, 0.95), difference="faster", smallest=0.06)),
            change("tf_data", Ratio(value=1.0, ci95=(0.9, 1.1), difference="none", smallest=0.11)),
            change("one trial", Ratio(value=1.07, reason="an interval needs at least 2 trials in each session")),
            change("broken", Ratio(reason="it was not measured after: killed by signal 9")),
        ),
        gates=(
            Gate(name="slower", limit=0.05, variant="feed_dict", outcome="failed", text="feed_dict: more than +5 %."),
            Gate(name="slower", limit=0.05, variant="fifo_queue", outcome="passed", text="fifo_queue: not more."),
            Gate(name="au-below", limit=0.9, variant="tf_data", outcome="undecided", text="tf_data: 0.90 lies within."),
        ),
    )


def hostile(name: str) -> Difference:
    """The name wherever a session's own text is shown."""
    ratio = Ratio(value=1.12, ci95=(1.08, 1.16), difference="slower", smallest=0.04)
    return Difference(
        before=side(name),
        after=side(name).model_copy(update={"scenario": name, "package": name}),
        conditions=(Condition(name=name, before=name, after=name, variants=(name,)),),
        disturbances=(Noise(side="after", disturbance=Disturbance(kind="burst", variant=name, repeat=0, text=name)),),
        only_before=(name,),
        only_after=(name,),
        variants=(change(name, ratio), change("other", ratio)),
        gates=(Gate(name="slower", limit=0.05, variant=name, outcome="failed", text=name),),
    )
