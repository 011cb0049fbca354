"""Sessions with fixed figures, for tests of whatever reads one."""

from __future__ import annotations

from typing import Any

from pipeline_bench.model import Series
from pipeline_bench.model.events import PlacedOp, Placement, QueueState, Stack
from pipeline_bench.model.result import (
    CPU_TIME,
    DeviceUtilization,
    Disturbance,
    Estimate,
    Precision,
    PublishedComparison,
    Result,
    Speedup,
    StepTime,
    Verdict,
    VerdictKind,
    WorkCheck,
)
from pipeline_bench.model.session import Environment, Session
from pipeline_bench.model.trial import AccuracyPair, TrialRecord, TrialSteps
from pipeline_bench.scenario import Component, Published, PublishedFigure, Run, Runtime, Scenario, Variant

CPU = Environment(
    accelerator_kind="cpu",
    accelerator_name="Example CPU 2.0 GHz",
    accelerator_reason="no GPU: libnvidia-ml.so.1 was not found",
    tensorflow="2.21.0",
    python="3.11.9",
    platform="Linux",
    cpu="Example CPU 2.0 GHz",
    cores=2,
    memory_bytes=8 * 2**30,
    package="0.1.0",
)
GPU = CPU.model_copy(
    update={
        "accelerator_kind": "gpu",
        "accelerator_name": "NVIDIA Example 100",
        "accelerator_reason": None,
        "driver": "570.1",
    }
)
CPU_SOURCE = CPU_TIME


def variant(
    name: str, backend: str = "feed_dict", *, ceiling: str | None = "ceiling", run: Run | None = None
) -> Variant:
    return Variant(
        name=name,
        backend=backend,
        source=Component(kind="synthetic", options={"batch_size": 128}),
        model=Component(kind="two_layer"),
        loop=Component(kind="session"),
        run=run or Run(steps=300, repeats=3),
        ceiling=ceiling,
    )


def scenario(*variants: Variant, name: str = "two_layer", published: Published | None = None) -> Scenario:
    question = "How much does a queue, or tf.data, gain over feed_dict on the tutorial's network?"
    return Scenario(name=name, question=question, variants=variants, published=published)


def estimate(value: float, half: float) -> Estimate:
    return Estimate(value=value, ci95=(value - half, value + half))


def result(
    name: str,
    *,
    step_ms: float,
    wait: float,
    utilization: float,
    speedup: float | None,
    kind: VerdictKind,
    text: str,
    percent: float = 90.0,
    source: str = CPU_SOURCE,
    published: PublishedComparison | None = None,
) -> Result:
    return Result(
        variant=name,
        backend=name,
        status="ok",
        trials=3,
        steps=840,
        warmup_steps=(20, 20, 20),
        step_ms=StepTime(median=step_ms, p05=step_ms * 0.9, p95=step_ms * 1.2, ci95=(step_ms * 0.97, step_ms * 1.03)),
        samples_per_second=128_000 / step_ms,
        input_wait_ms=estimate(step_ms * wait, 0.1),
        input_wait_share=estimate(wait, 0.02),
        host_slowdown_ms=estimate(step_ms * (1 - wait - utilization), 0.1),
        host_slowdown_share=estimate(1 - wait - utilization, 0.01),
        ceiling_ms=estimate(step_ms * utilization, 0.05),
        accelerator_utilization=estimate(utilization, 0.03),
        device_utilization=DeviceUtilization(source=source, mean_percent=percent, samples=40),
        speedup=(
            Speedup(over="feed_dict", reason="this is the variant that the others are compared with")
            if speedup is None
            else Speedup(over="feed_dict", value=speedup, ci95=(speedup - 0.05, speedup + 0.05))
        ),
        loss=0.0123,
        accuracy=AccuracyPair(before=0.51, after=0.98),
        published=published,
        verdict=Verdict(kind=kind, severe=kind == "input-bound", text=text),
    )


def ceiling_result(name: str = "ceiling", step_ms: float = 7.0) -> Result:
    return Result(
        variant=name,
        backend="ceiling",
        status="ok",
        trials=3,
        steps=840,
        step_ms=StepTime(median=step_ms, p05=step_ms, p95=step_ms, ci95=(step_ms - 0.1, step_ms + 0.1)),
        samples_per_second=128_000 / step_ms,
        input_wait_share=Estimate(reason="a ceiling has no input"),
        host_slowdown_share=Estimate(reason="a ceiling has no input"),
        accelerator_utilization=Estimate(reason="a ceiling has no input"),
        device_utilization=DeviceUtilization(source=CPU_SOURCE, mean_percent=97.0, samples=30),
        speedup=Speedup(over="feed_dict", value=1.76, ci95=(1.7, 1.8)),
        loss=0.0001,
        accuracy=AccuracyPair(before=0.5, after=1.0),
        verdict=Verdict(kind="ceiling", text="steps in 7.00 ms with no input at all: the reference."),
    )


def two_layer() -> Scenario:
    figures = (
        PublishedFigure(variant="feed_dict", seconds=18.0, device_utilization_percent=31),
        PublishedFigure(variant="fifo_queue", seconds=11.5, device_utilization_percent=43),
    )
    source = "Morgan Giraud, Metaflow blog, 2017: TensorFlow 1.0 on one GTX Titan X"
    return scenario(
        variant("feed_dict"),
        variant("fifo_queue", "fifo_queue"),
        variant("tf_data", "tf_data"),
        variant("ceiling", "ceiling", ceiling=None),
        published=Published(source=source, steps=5000, figures=figures),
    )


def normal() -> Session:
    """Three backends and their ceiling, all measured, on a machine without a GPU."""
    results = (
        result(
            "feed_dict",
            step_ms=12.3,
            wait=0.38,
            utilization=0.57,
            speedup=None,
            kind="input-bound",
            text="severely input-bound: waits 4.67 ms of its 12.3 ms step for the batch (38 %).",
            percent=71.0,
            published=PublishedComparison(
                seconds=18.0,
                our_seconds=61.5,
                seconds_ratio=3.42,
                device_utilization_percent=31,
                our_device_utilization_percent=71,
                device_utilization_ratio=2.29,
                scaled_from_steps=300,
            ),
        ),
        result(
            "fifo_queue",
            step_ms=9.8,
            wait=0.02,
            utilization=0.71,
            speedup=1.26,
            kind="host-bound",
            text="host-bound: the batch is there, but the host takes 2.65 ms of the 9.80 ms step (27 %).",
            published=PublishedComparison(
                seconds=11.5,
                our_seconds=49.0,
                seconds_ratio=4.26,
                device_utilization_percent=43,
                our_device_utilization_percent=90,
                device_utilization_ratio=2.09,
                scaled_from_steps=300,
            ),
        ),
        result(
            "tf_data",
            step_ms=7.4,
            wait=0.003,
            utilization=0.95,
            speedup=1.66,
            kind="compute-bound",
            text="compute-bound: runs at 95 % of the ceiling; a faster input would gain at most 5 %.",
        ),
        ceiling_result(),
    )
    trials = tuple(
        trial(index, name, repeat)
        for index, (repeat, name) in enumerate(
            (r, n) for r in range(3) for n in ("feed_dict", "fifo_queue", "tf_data", "ceiling")
        )
    )
    return Session(
        started_at="2024-05-01T12:00:00+00:00",
        scenario=two_layer(),
        environment=CPU,
        trials=trials,
        results=results,
    )


def trial(index: int, name: str, repeat: int, **changes: Any) -> TrialRecord:
    """A trial of 4 steps that took 2, 1, 1 and 3 ms, one of them warm-up."""
    start_ns, took_ns = [0, 3_000_000, 5_000_000, 7_000_000], [2_000_000, 1_000_000, 1_000_000, 3_000_000]
    record = TrialRecord(
        index=index,
        variant=name,
        repeat=repeat,
        status="ok",
        started_ns=index * 10**10,
        ended_ns=index * 10**10 + 4_000_000_000,
        warmup_steps=1,
        steps=TrialSteps(
            start_ns=Series.pack(start_ns),
            end_ns=Series.pack([start + took for start, took in zip(start_ns, took_ns, strict=True)]),
            wait_ns=None,
            loss=Series.pack([0.7, 0.6, 0.5, 0.4]),
        ),
    )
    return record.model_copy(update=changes)


def troubled() -> Session:
    """A variant whose trials crashed, and one whose queue stalled."""
    session = normal()
    crash: dict[str, Any] = {
        "status": "failed",
        "reason": "killed by signal 9 (SIGKILL), out of memory perhaps",
        "steps": None,
        "stderr_tail": "\x1b[31mTraceback\x1b[0m (most recent call last):\n  [bold]ValueError[/bold]: no memory\n",
        "stderr_file": "trials/01-fifo_queue.stderr",
    }
    stall: dict[str, Any] = {
        "status": "stalled",
        "reason": "no step ended for 60 s in phase train, after 3 steps",
        "steps": None,
        "queues": (QueueState(name="input", size=0, capacity=5),),
        "stacks": (Stack(thread="MainThread", frames=tuple(f"loop.py:{line} in run" for line in range(9))),),
    }
    changes: dict[int, dict[str, Any]] = {1: crash, 5: crash, 2: stall}
    trials = tuple(record.model_copy(update=changes.get(record.index, {})) for record in session.trials)
    failed = Result(
        variant="fifo_queue",
        backend="fifo_queue",
        status="failed",
        reason="2 of 3 trials failed",
        verdict=Verdict(kind="not-measured", text="was not measured: 2 of 3 trials failed."),
    )
    feed_dict, _, tf_data, ceiling = session.results
    partial = tf_data.model_copy(update={"status": "partial", "reason": "1 of 3 trials stalled", "trials": 2})
    notes = ("The machine was busy: load 3.1 on 2 cores.",)
    results = (feed_dict, failed, partial, ceiling)
    return session.model_copy(update={"trials": trials, "results": results, "notes": notes})


def judged() -> Session:
    """What is said beside the figures: work, no difference, one trial alone, disturbances, a precision, placed ops."""
    session = normal()
    feed_dict, queue, tf_data, ceiling = session.results
    proof = WorkCheck(status="equal", text="38,400 samples in 3 trials: none lost, repeated or invented")
    alone = feed_dict.step_ms.model_copy(update={"mean": 13.9, "ci95": None, "reason": "one trial has no interval"})
    none = Speedup(over="feed_dict", value=1.01, ci95=(0.98, 1.04), difference="none", smallest=0.031)
    device = queue.device_utilization.model_copy(update={"ci95": (88.0, 92.0)})
    told: tuple[tuple[Result, dict[str, Any]], ...] = (
        (feed_dict, {"work": proof, "step_ms": alone, "warmup_steps": (5, 40, 5)}),
        (queue, {"work": proof, "speedup": none, "device_utilization": device, "warmup_steps": (1, 1, 1)}),
        (tf_data, {"work": WorkCheck(status="unequal", text="128 samples came twice.")}),
        (ceiling, {"work": WorkCheck(text="the source dice says nothing of its samples")}),
    )
    types = {"matmul": "_MklMatMul", "add": "AddV2", "weights": "VarHandleOp", "to_1": "_Send"}
    ops = tuple(PlacedOp(name=name, type=kind, device=f"CPU:{len(name) % 2}") for name, kind in types.items())
    placements = (Placement(ops=ops, op_count=6000), Placement(reason="the step failed: [red]no[/red] <b>graph</b>"))
    placed = [t.model_copy(update={"placement": p}) for t, p in zip(session.trials, placements, strict=False)]
    asked = [v.model_copy(update={"runtime": Runtime(log_placement=True)}) for v in session.scenario.variants]
    text = "the budget of 60 s was spent after 7 repeats: fifo_queue's speed-up is known within ±3.4 %"
    return session.model_copy(
        update={
            "scenario": session.scenario.model_copy(update={"variants": tuple(asked)}),
            "results": tuple(result.model_copy(update=changes) for result, changes in told),
            "trials": (*placed, *session.trials[len(placed) :]),
            "disturbances": tuple(
                Disturbance(
                    kind="burst", variant=f"variant {i}", repeat=1, cost_share=i / 100 or None, text=f"slow {i}."
                )
                for i in range(11)
            ),
            "precision": Precision(goal=0.02, budget_s=60, repeats=7, ended_by="budget", text=text),
        }
    )


def pending() -> Session:
    """A session as it is saved before anything was measured."""
    session = normal()
    nothing = tuple(
        Result(
            variant=result.variant,
            backend=result.backend,
            status="pending",
            reason="no trial has ended yet",
            verdict=Verdict(kind="not-measured", text="was not measured: no trial has ended yet."),
        )
        for result in session.results
    )
    return session.model_copy(update={"trials": (), "results": nothing})


def with_result(made: Session, variant: str, /, **changes: Any) -> Session:
    """The session with another result of one variant."""
    results = tuple(r.model_copy(update=changes) if r.variant == variant else r for r in made.results)
    return made.model_copy(update={"results": results})


HOSTILE = ("[red]not red[/red]", "two\nlines\x1b[2J\x07", "x" * 300, "[/]", "名前" * 40)


def hostile() -> Session:
    """A scenario whose names are markup, control characters, very long, or of wide characters."""
    template = normal().results[0]
    variants = tuple(variant(name) for name in HOSTILE)
    results = tuple(
        template.model_copy(
            update={
                "variant": name,
                "verdict": Verdict(kind="input-bound", text="input-bound: waits for the batch."),
                "speedup": Speedup(over=HOSTILE[0], value=1.0, reason="[b]the baseline[/b]"),
            }
        )
        for name in HOSTILE
    )
    trials = tuple(
        trial(i, name, 0, status="failed", reason=f"[blink]{name}", stderr_tail="\x1b]0;title\x07 [bold]x")
        for i, name in enumerate(HOSTILE)
    )
    made = Session(
        started_at="2024-05-01T12:00:00+00:00",
        scenario=scenario(*variants, name="[bold]evil\x1b[0m"),
        environment=GPU,
        notes=("[link=http://example.org]click[/link]\x00",),
        trials=trials,
        results=results,
    )
    return Session.model_validate(made.model_dump())  # a copy is not made safe, as all that enters is
