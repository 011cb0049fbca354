"""Device utilization: how much of the time the device was busy, and neither how full it was nor why it stood still."""

from __future__ import annotations

import time
from typing import Any

from pipeline_bench.lessons import Ask, Compare, Lesson, Played, Run, Say, Show, Tell, Try, figures, prediction
from pipeline_bench.lessons.figures import paragraphs
from pipeline_bench.models.emulated import Emulated
from pipeline_bench.text import units

SMALL, LARGE = 16, 256
STEP_MS, LATENCY_MS = 4, 8
_CLOSE_POINTS = 5.0
"""How many points of percentage two utilizations may be apart to be called the same, or a prediction to be right."""
_WHOLE_CORE_PERCENT = 90.0
_BUSY_S = 1.0
_MATRIX_SIDE = 256

WAYS = ("one after the other", "queue, 1 thread", "queue, 4 threads")

SAME_DEVICE = {
    "name": "how full",
    "source": {"kind": "synthetic", "features": 16},
    "model": {"kind": "emulated", "step_ms": STEP_MS},
    "run": {"steps": 150, "repeats": 1},
    "variants": [
        {"name": f"batches of {samples}", "backend": "tf_data", "source": {"batch_size": samples}}
        for samples in (SMALL, LARGE)
    ],
}
WAITING = {
    "name": "why it waits",
    "source": {"kind": "synthetic", "batch_size": 16, "features": 16, "latency_ms": LATENCY_MS},
    "model": {"kind": "emulated", "step_ms": STEP_MS},
    "run": {"steps": 100, "repeats": 1},
    "variants": [
        {"name": WAYS[0], "backend": "feed_dict"},
        {"name": WAYS[1], "backend": "fifo_queue"},
        {"name": WAYS[2], "backend": "fifo_queue", "options": {"threads": 4}},
    ],
}


def two_busy_cores() -> dict[str, Any]:
    """Keep one core busy twice: with matrix products, and with nothing at all."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with tf.device("/cpu:0"):
        matrix = tf.ones([_MATRIX_SIDE, _MATRIX_SIDE])
        tf.matmul(matrix, matrix).numpy()  # the first one sets things up
        useful = busy(lambda: tf.matmul(matrix, matrix).numpy())
    return {"useful": useful, "useless": busy(lambda: None)}


def busy(work: Any) -> dict[str, Any]:
    """Do something again and again for a second."""
    wall_s, cpu_s, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - wall_s < _BUSY_S:
        work()
        done += 1
    took_s = time.perf_counter() - wall_s
    core_percent = 100 * (time.process_time() - cpu_s) / took_s
    return {"core_percent": core_percent, "done": done}


def _table(played: Played, key: str) -> str:
    """The variants of a comparison, its ceilings left out."""
    rows = ["| variant | step time | samples/s | input wait | device utilization |", "|---|--:|--:|--:|--:|"]
    session = played.session(key)
    for variant in session.scenario.variants:
        if not variant.is_ceiling:
            result = session.result(variant)
            rows.append(
                f"| {variant.name} | {units.milliseconds(result.step_ms.mean)} | "
                f"{units.rate(result.samples_per_second)} | {units.share(result.input_wait_share.value)} | "
                f"{units.percent(result.device_utilization.mean_percent)} |"
            )
    return "\n".join(rows)


def _utilization(played: Played, key: str, variant: str) -> float | None:
    """In percent; None where it was not measured."""
    return played.session(key).result(variant).device_utilization.mean_percent


def _how_full(played: Played) -> str:
    small, large = (_utilization(played, "full", f"batches of {samples}") for samples in (SMALL, LARGE))
    return paragraphs(
        _compared(played, small, large),
        _table(played, "full"),
        _meaning(small, large),
        figures.disturbed(played.session("full")),
    )


def _compared(played: Played, small: float | None, large: float | None) -> str:
    if small is None or large is None:
        return "The device utilization could not be measured here, so there is nothing to put beside your prediction."
    happened = f"{units.percent(small)} with {SMALL} samples a step, {units.percent(large)} with {LARGE}"
    chosen = SAME if abs(small - large) <= _CLOSE_POINTS else MORE if large > small else LESS
    return prediction(played, "full", happened, played.answer("full") == chosen)


def _meaning(small: float | None, large: float | None) -> str:
    """What the two utilizations say, given that they are of the same device."""
    if small is None or large is None or abs(small - large) <= _CLOSE_POINTS:
        begin = "Both devices were busy for about the same share of the time"
    else:
        begin = (
            f"The device is busy for {STEP_MS} ms a step in both; that the shares differ here comes from the host, "
            "which needed longer between the steps of one of them. Near enough, both were busy for the same time a "
            "step"
        )
    return (
        f"{begin}, and one got {LARGE // SMALL} times as many samples done in a step. **Device utilization is the "
        "share of time in which the device did anything at all.** A GPU's driver counts it so: the share of time in "
        "which at least one kernel ran, whether it used one of the GPU's hundred processors or all of them. 100 % "
        "says that the device never stood still. It does not say that it was full; that shows in the samples a "
        "second, when the batch grows."
    )


def _why_it_waits(played: Played) -> str:
    serial, one, four = (_utilization(played, "waits", name) for name in WAYS)
    said = played.answer("waits")
    right = isinstance(said, float) and serial is not None and abs(said - serial) <= _CLOSE_POINTS
    disturbed = figures.disturbed(played.session("waits"))
    at_best = units.percent(100 * STEP_MS / (STEP_MS + LATENCY_MS))
    return (
        f"{prediction(played, 'waits', f'{units.percent(serial)}, one after the other', right, unit=' %')}\n\n"
        f"{_table(played, 'waits')}\n\n"
        f"1. One after the other, a step is {LATENCY_MS} ms of waiting and {STEP_MS} ms of work: {at_best} at best. "
        f"Here it was {units.percent(serial)}; what is missing went to the host's own work, and to whatever else "
        "ran.\n"
        "2. A queue with one thread brings the next batch while the device works. Now the slower of the two sets the "
        f"pace: {STEP_MS} of {LATENCY_MS} ms, 50 % at best, and {units.percent(one)} here.\n"
        f"3. Four threads wait side by side, so a batch comes every {LATENCY_MS // 4} ms and none is waited for: "
        f"{units.percent(four)} here."
        "\n\n"
        "A low utilization says *that* the device stood still. The column of the input wait says *why*: the step "
        "waited for its batch. Where the utilization is low and the input wait is low too, the time goes elsewhere, "
        f"to Python or to other programs, and a faster input would change nothing.{_paragraph(disturbed)}"
    )


def _shared(*core_percents: float) -> str:
    """Why a loop that never rests did not have a whole core, where that is so."""
    if min(core_percents) >= _WHOLE_CORE_PERCENT:
        return ""
    return (
        "Neither loop ever rests, so each would have kept a core busy for all of its second; here other programs "
        "wanted the cores as well, and took the rest.\n\n"
    )


def _paragraph(text: str) -> str:
    return f"\n\n{text}" if text else ""


def _busy_core(played: Played) -> str:
    cores = played.measured("cores")
    useful, useless = cores["useful"], cores["useless"]
    return (
        f"| loop | core busy | done |\n|---|--:|--:|\n"
        f"| matrix products | {units.percent(useful['core_percent'])} | {useful['done']:,} products |\n"
        f"| nothing | {units.percent(useless['core_percent'])} | nothing, {useless['done']:,} times |\n\n"
        f"{_shared(useful['core_percent'], useless['core_percent'])}A core that is busy is not a core that helps. The "
        "operating system counts the time in which a program ran, whatever it did; a program that looks every "
        "microsecond whether a batch is there has a busy core as well. And a busy CPU says nothing of a GPU beside "
        "it: it may keep the GPU fed, or be what starves it. In the comparison above the host had next to nothing to "
        f"do, and the device starved all the same, for want of a batch that was {LATENCY_MS} ms away."
        "\n\n"
        "So read three figures together: the **step time** says how fast it is, the **input wait** what it waits for, "
        "and the **accelerator utilization**, the ceiling's step time over this one's, how far it is from what this "
        "model could do with a perfect input."
    )


MORE = f"higher with {LARGE}: there is more to do"
SAME = "about the same"
LESS = f"lower with {LARGE}: a batch takes longer to bring"

LESSON = Lesson(
    name="what_utilization_says",
    title="What utilization says",
    summary="what 90 % of device utilization does say, and the three things it does not",
    order=90,
    parts=(
        Say(
            "The first figure that everybody looks at is the device's utilization. To know what it says we need a "
            "device whose utilization is known exactly, so this lesson **emulates** one: it is busy for a given time "
            "at each step, and computes nothing. No GPU is needed."
            "\n\n"
            f"Here it is busy for {STEP_MS} ms a step, however many samples the step brings, as a real accelerator is "
            "while its batch is too small to fill it."
        ),
        Show(Emulated.build, "the emulated device"),
        Ask("full", f"{SMALL} or {LARGE} samples a step: how high is the device utilization?", (MORE, SAME, LESS)),
        Compare("full", SAME_DEVICE, "training with small and with large batches"),
        Tell(_how_full),
        Say(
            f"Now the batch takes its time to arrive: {LATENCY_MS} ms, as from a storage far away. First the program "
            f"fetches a batch and then gives the device its {STEP_MS} ms of work, one after the other."
        ),
        Ask("waits", "What is the device utilization then, in percent?", low=0, high=100, unit="%"),
        Compare("waits", WAITING, "training on a slow source, in three ways"),
        Tell(_why_it_waits),
        Say(
            "What holds for the device holds for the CPU. This function keeps a core busy for a second. It is called "
            "twice: to multiply matrices, and to do nothing."
        ),
        Show(busy, "one second of a busy core"),
        Run("cores", two_busy_cores, "keeping one core busy, twice"),
        Tell(_busy_core),
    ),
    then=(
        Try("pipeline-bench compare", "feed_dict, a queue and tf.data: utilization and the input wait side by side"),
        Try("pipeline-bench compare plan_accelerator --repeats 1", "which accelerator could this host feed?"),
    ),
)
