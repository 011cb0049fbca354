"""Sessions that diagnosed a user's pipeline, with fixed figures, for tests of whatever reads one."""

from __future__ import annotations

from typing import Any

from pipeline_bench.model import Series
from pipeline_bench.model.diagnosis import (
    AS_WRITTEN,
    CEILING,
    Attempt,
    Bottleneck,
    CodeChange,
    Diagnosis,
    Equality,
    Fix,
    Limit,
    Outcome,
)
from pipeline_bench.model.edits import InsertAfter, Remove, SetArgument
from pipeline_bench.model.element import Element
from pipeline_bench.model.pipeline import Inspection, Location, Stage, StageCost, Target, Tuned
from pipeline_bench.model.result import Estimate, Result, Speedup, StepTime, Verdict
from pipeline_bench.model.session import Session
from pipeline_bench.model.task import KIND, Task
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.scenario import Component, Run, Scenario, Variant
from tests.unit import sessions

FILE = "/home/user/project/train.py"
TARGET = Target(file="train.py", name="make_dataset")
MODEL = Target(file="train.py", name="make_model")

DIFF = """\
--- train.py
+++ train.py
@@ -12,7 +12,8 @@
 def make_dataset():
     files = tf.data.Dataset.list_files("data/*.tfrecord")
     ds = tf.data.TFRecordDataset(files)
-    ds = ds.map(decode)
+    ds = ds.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
     ds = ds.shuffle(1024)
     ds = ds.batch(32)
-    return ds
+    return ds.prefetch(tf.data.AUTOTUNE)
"""


def place(line: int, text: str = "") -> Location:
    return Location(file=FILE, line=line, function="make_dataset", text=text)


def stage(number: int, method: str, *inputs: int, line: int = 12, **changes: Any) -> Stage:
    return Stage(id=number, method=method, inputs=inputs, place=place(line + number)).model_copy(update=changes)


def tensor(dtype: str, *shape: int | None) -> Element:
    return Element(kind="tensor", dtype=dtype, shape=shape)


def row(*parts: Element) -> Element:
    return Element(kind="tuple", parts=parts)


def decode(name: str = "decode") -> UserFunction:
    return UserFunction(name=name, file=FILE, line=4)


def cost(number: int, elapsed_ms: float, cpu_ms: float | None = None, **changes: Any) -> StageCost:
    return StageCost(
        stage=number,
        elapsed_ns=elapsed_ms * 1e6,
        cpu_ns=(elapsed_ms if cpu_ms is None else cpu_ms) * 1e6,
        queued_ns=0.0,
        elements=32.0 if number < 4 else 1.0,
        element_bytes=150_528.0 if number < 4 else 32 * 150_528.0,
    ).model_copy(update=changes)


def inspection(**changes: Any) -> Inspection:
    """Files, records, decoding, shuffling, batching: a plain chain of six."""
    stages = (
        stage(0, "list_files", element=tensor("string")),
        stage(1, "TFRecordDataset", 0, element=tensor("string")),
        stage(2, "map", 1, function=decode(), element=row(tensor("float32", 224, 224, 3), tensor("int64"))),
        stage(3, "shuffle", 2, arguments={"buffer_size": 1024}),
        stage(4, "batch", 3, arguments={"batch_size": 32}),
        stage(5, "prefetch", 4, arguments={"buffer_size": -1}),
    )
    costs = (
        StageCost(stage=0, reason="its elements are too few to measure"),
        cost(1, 0.41),
        cost(2, 11.2),
        cost(3, 0.35),
        cost(4, 0.9, 1.4),
        cost(5, 0.02),
    )
    second = 1_000_000_000
    tuned = (
        tuned_stage(2, "ParallelMapV2", "parallelism", [1, 2, 2, 4], second),
        tuned_stage(5, "Prefetch", "buffer_size", [2, 3, 4, 4], second),
        tuned_stage(5, "Prefetch", "buffered_elements", [0, 1, 0, 0], second),
        tuned_stage(None, "Model", "parallelism", [1, 1, 1, 1], second),
    )
    whole = Inspection(
        stages=stages,
        sink=5,
        element=row(tensor("float32", 32, 224, 224, 3), tensor("int64", 32)),
        batch_size=32,
        cardinality=400,
        element_bytes=4_816_896.0,
        first_ns=2.1e9,
        make_ns=3e8,
        costs=costs,
        tuned=tuned,
        read_bytes=3_500_000.0,
        disk_bytes_per_s=1.2e9,
        notes=("The dataset's own cache file was not used; each trial made one of its own.",),
    )
    return whole.model_copy(update=changes)


def tuned_stage(number: int | None, node: str, parameter: str, values: list[int], apart_ns: int) -> Tuned:
    at_ns = [apart_ns * index for index in range(1, len(values) + 1)]
    return Tuned(
        stage=number,
        node=node,
        parameter=parameter,
        at_ns=Series.pack(at_ns),
        values=Series.pack([*map(float, values)]),
    )


def two_inputs() -> Inspection:
    """Images and captions, zipped, the records read by an interleave whose function builds a reader."""
    reader = Stage(id=90, method="TFRecordDataset", place=place(40))
    stages = (
        stage(0, "from_tensor_slices"),
        stage(1, "interleave", 0, function=decode("open_shard"), arguments={"cycle_length": 4}, inner=(reader,)),
        stage(2, "map", 1, function=decode(), arguments={"num_parallel_calls": 2}),
        stage(3, "TextLineDataset"),
        stage(4, "map", 3, function=decode("tokenize_with_a_vocabulary_lookup_of_a_very_long_name_indeed")),
        stage(5, "zip", 2, 4),
        stage(6, "map", 5, function=decode("größe_名前")),
        stage(7, "batch", 6, arguments={"batch_size": 16}),
    )
    costs = tuple(cost(number, 1.0 + number) for number in range(8))
    return inspection(stages=stages, sink=7, costs=costs, tuned=(), batch_size=16)


def long_chain() -> Inspection:
    """Thirty stages, one behind the other."""
    stages = (
        stage(0, "TFRecordDataset"),
        *(stage(n, "map", n - 1, function=decode(f"step_{n:02}")) for n in range(1, 30)),
    )
    costs = tuple(cost(number, 0.1 * number) for number in range(30))
    return inspection(stages=stages, sink=29, costs=costs, tuned=())


def fix(variant: str, title: str, **changes: Any) -> Fix:
    edits = (SetArgument(stage=2, argument="num_parallel_calls", value=-1),)
    return Fix(kind="parallel_map", variant=variant, title=title, edits=edits, stages=(2,)).model_copy(update=changes)


IDENTICAL = Equality(status="identical", text="the same batches in the same order, 640 samples compared")
REORDERED = Equality(status="reordered", text="the same samples in another order, 640 samples compared")


def attempts() -> tuple[Attempt, ...]:
    """One of each outcome, a combination proposed."""
    parallel = fix("parallel map(decode)", "Run decode on several cores")
    prefetch = fix(
        "prefetch", "Prepare batches ahead of time", edits=(InsertAfter(stage=4, method="prefetch"),), stages=(4,)
    )
    both = fix(
        "parallel map(decode) + prefetch",
        "Run decode on several cores, and prepare batches ahead of time",
        edits=(*parallel.edits, *prefetch.edits),
        combines=("parallel map(decode)", "prefetch"),
    )
    cache = fix("cache", "Keep decoded elements in memory", because="takes about 2.1 GB of memory")
    unordered = fix("unordered map", "Let decode finish in any order", reorders=True, threads=True)

    def tried(which: Fix, outcome: Outcome, reason: str = "", equality: Equality | None = IDENTICAL) -> Attempt:
        return Attempt(fix=which, outcome=outcome, reason=reason, equality=equality)

    return (
        tried(both, "proposed").model_copy(
            update={"code": CodeChange(diff=DIFF, text="Give `list_files` (train.py:12) the argument `shuffle=False`.")}
        ),
        tried(parallel, "faster").model_copy(update={"code": CodeChange(diff=DIFF)}),
        tried(unordered, "faster", equality=REORDERED),
        tried(prefetch, "no-gain"),
        tried(fix("larger reads", "Read 8 MiB at a time"), "slower"),
        tried(
            fix("no shuffle", "Leave the shuffle out", edits=(Remove(stage=3),)),
            "refused",
            "it changes which samples arrive: 12 of 640 differ",
            Equality(status="unequal", text="12 of 640 samples differ"),
        ),
        tried(cache, "failed", "its process was killed by signal 9 (SIGKILL), out of memory perhaps", None),
        tried(fix("service", "Offload to two service workers"), "not-tried", "the budget of 120 s was spent", None),
    )


_SPEEDUPS = {
    "parallel map(decode) + prefetch": (3.12, 0.08, "faster"),
    "parallel map(decode)": (2.95, 0.1, "faster"),
    "unordered map": (2.4, 0.1, "faster"),
    "prefetch": (1.01, 0.03, "none"),
    "larger reads": (0.93, 0.02, "slower"),
    "no shuffle": (1.02, 0.03, "none"),
}


def variant(name: str, activity: str, ceiling: str | None = None) -> Variant:
    task = Task(target=TARGET, activity=activity, batch_size=32)
    return Variant(
        name=name,
        backend="tf_data",
        source=Component(kind=KIND, options=task.model_dump()),
        model=Component(kind="your_model"),
        loop=Component(kind="your_loop"),
        run=Run(time_s=3.0, repeats=3),
        ceiling=ceiling,
    )


def result(name: str, step_ms: float, speedup: Speedup, trained: bool = False, text: str = "") -> Result:
    """Of a pipeline that was drained: all of a step is wait; of one that was trained on, a part."""
    waited = Estimate(value=0.62, ci95=(0.6, 0.64)) if trained else Estimate(reason="there is no model")
    part = Estimate(value=0.35, ci95=(0.34, 0.36)) if trained else Estimate(reason="there is no model")
    host = Estimate(value=0.03, ci95=(0.02, 0.04)) if trained else Estimate(reason="there is no model")
    return Result(
        variant=name,
        backend="tf_data",
        status="ok",
        trials=3,
        steps=600,
        warmup_steps=(4, 4, 4),
        step_ms=StepTime(
            median=step_ms, mean=step_ms, p05=step_ms, p95=step_ms * 1.1, ci95=(step_ms - 0.2, step_ms + 0.2)
        ),
        samples_per_second=32_000 / step_ms,
        samples_per_second_ci95=(31_000 / step_ms, 33_000 / step_ms),
        input_wait_share=waited,
        accelerator_utilization=part,
        host_slowdown_share=host,
        ceiling_ms=Estimate(value=4.5, ci95=(4.4, 4.6)) if trained else Estimate(reason="there is no model"),
        speedup=speedup,
        missing={"loss": "nothing was trained", "accuracy": "nothing was trained"},
        verdict=Verdict(kind="input-bound", severe=True, text=text or "input-bound: waits for each batch."),
    )


def diagnosis(**changes: Any) -> Diagnosis:
    whole = Diagnosis(
        target=TARGET,
        budget_s=120,
        inspection=inspection(),
        bottleneck=Bottleneck(
            stage=2,
            share=0.87,
            cause="cpu",
            text="map(decode) takes 87 % of the time between two batches: it computes, one call at a time.",
        ),
        says_bottleneck=False,
        attempts=attempts(),
        proposal="parallel map(decode) + prefetch",
        limits=(
            Limit(name="all cores busy", ms=3.4, text="2 cores share the 6.8 ms of CPU time that a batch takes"),
            Limit(name="the disk", ms=2.9, text="3.34 MiB a batch at 1.12 GiB/s"),
            Limit(name="the model", text="no model was given"),
        ),
        reached_ms=12.9,
        text="map(decode) starves the pipeline; running it on several cores and prefetching makes it 3.12× as fast.",
    )
    return whole.model_copy(update=changes)


def session(found: Diagnosis | None = None, **changes: Any) -> Session:
    """The drained pipeline with everything that can become of an attempt."""
    found = found or diagnosis()
    trained = found.model is not None
    activity = "train" if trained else "drain"
    names = [AS_WRITTEN, *(attempt.fix.variant for attempt in found.attempts if attempt.fix.variant in _SPEEDUPS)]
    ceiling = CEILING if trained else None
    variants = [variant(name, activity, ceiling) for name in names]
    variants += [variant(CEILING, "ceiling")] if trained else []
    base = Speedup(over=AS_WRITTEN, reason="this is the variant that the others are compared with")
    results = [result(AS_WRITTEN, 12.9, base, trained)]
    for name in names[1:]:
        value, half, difference = _SPEEDUPS[name]
        gained = Speedup(over=AS_WRITTEN, value=value, ci95=(value - half, value + half), smallest=0.021)
        gained = gained.model_copy(update={"difference": difference})
        results.append(result(name, 12.9 / value, gained, trained))
    if trained:
        top = sessions.ceiling_result(CEILING, 4.5)
        mean = top.step_ms.model_copy(update={"mean": 4.5})
        results.append(top.model_copy(update={"speedup": Speedup(reason="none"), "step_ms": mean}))
    whole = Session(
        started_at="2024-05-01T12:00:00+00:00",
        command="pipeline-bench diagnose train.py:make_dataset",
        scenario=Scenario(name=found.target.text, variants=tuple(variants)),
        environment=sessions.CPU,
        trials=tuple(_trials(names, found)),
        results=tuple(results),
        diagnosis=found,
    )
    return whole.model_copy(update=changes)


def _trials(names: list[str], found: Diagnosis) -> list[TrialRecord]:
    """The inspection, which is no variant of the scenario, then three rounds."""
    looked = sessions.trial(0, "inspection", 0, steps=None, inspection=found.inspection)
    rounds = [(repeat, name) for repeat in range(3) for name in names]
    return [looked, *(sessions.trial(index, name, repeat) for index, (repeat, name) in enumerate(rounds, 1))]


def with_model() -> Session:
    """The user's model trained on it, beside its ceiling."""
    limits = (
        Limit(name="the model", ms=4.5, text="its step on a batch that stays on the device"),
        *diagnosis().limits[:2],
    )
    return session(diagnosis(model=MODEL, limits=limits))


def nothing_to_gain() -> Session:
    """No stage to blame, and nothing helps."""
    dull = tuple(
        attempt.model_copy(update={"outcome": "no-gain"}) for attempt in attempts() if attempt.fix.variant == "prefetch"
    )
    return session(
        diagnosis(
            bottleneck=Bottleneck(text="No stage stands out: the largest takes 18 % of the time between two batches."),
            attempts=dull,
            proposal=None,
            text="Nothing was found that makes this pipeline faster.",
        )
    )


TRACEBACK = """\
Traceback (most recent call last):
  File "/home/user/project/train.py", line 14, in make_dataset
    ds = tf.data.TFRecordDataset(undefined_name)
                                 ^^^^^^^^^^^^^^
NameError: name 'undefined_name' is not defined
"""


def failed() -> Session:
    """The user's own function raised."""
    nothing = Diagnosis(
        target=TARGET,
        budget_s=120,
        failure="make_dataset raised NameError: name 'undefined_name' is not defined",
        traceback=TRACEBACK,
        text="make_dataset raised NameError: name 'undefined_name' is not defined.",
    )
    record = sessions.trial(
        0, "inspection", 0, status="failed", steps=None, traceback=TRACEBACK, reason=nothing.failure
    )
    pending = Result(
        variant=AS_WRITTEN,
        backend="tf_data",
        status="pending",
        reason="no trial has ended yet",
        verdict=Verdict(kind="not-measured", text="was not measured: no trial has ended yet."),
    )
    return session(nothing, trials=(record,), results=(pending,))


def begun() -> Session:
    """Before anything was found out."""
    return failed().model_copy(update={"trials": (), "diagnosis": Diagnosis(target=TARGET, budget_s=120)})


def branched() -> Session:
    """Two inputs, an interleave with a reader of its own, a long name and wide characters."""
    return session(diagnosis(inspection=two_inputs(), bottleneck=Bottleneck(stage=6, share=0.4, text="It is slow.")))


def thirty() -> Session:
    """A chain of thirty stages."""
    return session(diagnosis(inspection=long_chain(), bottleneck=Bottleneck(stage=29, share=0.3, text="The last.")))


HOSTILE = "</pre><script>alert(1)</script>[bold]x[/bold]|`*_\x1b[2J\u202e名前" + "y" * 200


def hostile() -> Session:
    """Every text that a user's code can bring holds something that must stay text."""
    whole = inspection()
    bad = stage(2, "map", 1, function=UserFunction(name=HOSTILE), place=Location(file=HOSTILE, line=3, text=HOSTILE))
    stages = tuple(bad if each.id == 2 else each for each in whole.stages)
    noted = inspection(stages=stages, notes=(HOSTILE,))
    first = attempts()[0]
    poisoned = first.model_copy(
        update={
            "code": CodeChange(diff=DIFF.replace("decode", HOSTILE), text=f"```\n{HOSTILE}"),
            "reason": HOSTILE,
            "equality": Equality(status="identical", text=HOSTILE),
        }
    )
    made = session(
        diagnosis(
            target=Target(file=HOSTILE, name="f"),
            inspection=noted,
            bottleneck=Bottleneck(stage=2, share=0.5, text=HOSTILE),
            attempts=(poisoned,),
            limits=(Limit(name=HOSTILE, ms=1.0, text=HOSTILE),),
            text=HOSTILE,
        )
    )
    return Session.model_validate(made.model_dump())  # a copy is not made safe, as all that enters is


EVERY = {
    "drained": session,
    "with_model": with_model,
    "nothing_to_gain": nothing_to_gain,
    "failed": failed,
    "begun": begun,
    "branched": branched,
    "thirty": thirty,
    "hostile": hostile,
}
