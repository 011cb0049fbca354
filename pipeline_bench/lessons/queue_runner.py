"""A QueueRunner fills a small queue, six samples at a time; how often it does so for ten dequeues is counted."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pipeline_bench.graph_ops import call_counter, shared_variable
from pipeline_bench.lessons import Ask, Lesson, Played, Run, Say, Show, Tell, Try, prediction

CAPACITY = 3
SAMPLES = 6
DEQUEUES = 10
RERUNS = 12
_SETTLED_S = 0.2
"""How long the count of evaluations must stand still before the runner is taken to be waiting."""
_LOOK_EVERY_S = 0.01
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Built:
    """The ops of the exercise's graph, and the runner of its queue."""

    runner: Any
    sample: Any
    evaluations: Any
    size: Any
    close: Any


def build(threads: int) -> Built:
    """The data op, the queue, and the threads that fill it."""
    import tensorflow as tf

    v1 = tf.compat.v1
    calls = call_counter("evaluations")  # 0, 1, 2 … at its runs
    data = calls * SAMPLES + tf.range(SAMPLES, dtype=tf.int64)
    queue = v1.FIFOQueue(CAPACITY, dtypes=[tf.int64], shapes=[[]])
    enqueue = queue.enqueue_many([data])
    counter = shared_variable("evaluations", [], tf.int64)
    return Built(
        runner=v1.train.QueueRunner(queue, [enqueue] * threads),
        sample=queue.dequeue(),
        evaluations=counter.read_value(),
        size=queue.size(),
        close=queue.close(cancel_pending_enqueues=True),
    )


def dequeue_ten_times(threads: int = 1, more: int = 0) -> dict[str, Any]:
    """In a fresh graph and session; `more` dequeues after the ten."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        built = build(threads)
        initialize = v1.global_variables_initializer()
        with v1.Session() as session:
            session.run(initialize)
            return counted(session, built, more)


def counted(session: Any, built: Built, more: int) -> dict[str, Any]:
    """Start the runner, dequeue ten times, and read the counter."""
    import tensorflow as tf

    def dequeue(times: int) -> list[int]:
        return [int(session.run(built.sample)) for _ in range(times)]

    coordinator = tf.compat.v1.train.Coordinator()
    threads = built.runner.create_threads(session, coordinator, start=True)
    samples = dequeue(DEQUEUES)
    at_once = int(session.run(built.evaluations))
    settled = standing_still(session, built)
    samples += dequeue(more)
    in_all = standing_still(session, built)
    coordinator.request_stop()
    session.run(built.close)
    coordinator.join(threads)
    return {
        "samples": samples,
        "at_once": at_once,
        "settled": settled,
        "in_all": in_all,
    }


def standing_still(session: Any, built: Built) -> int:
    """How often the data op was evaluated, once the queue is full and that count stands still."""
    began_s = since_s = time.monotonic()
    count = -1
    while (looked_s := time.monotonic()) - since_s < _SETTLED_S and looked_s - began_s < _PATIENCE_S:
        evaluations, size = session.run([built.evaluations, built.size])
        if evaluations != count or size < CAPACITY:
            count, since_s = int(evaluations), time.monotonic()
        time.sleep(_LOOK_EVERY_S)
    return count


def many_runs() -> dict[str, Any]:
    """The ten dequeues a dozen times over, once with ten more in the same queue, and once with two threads."""
    runs = [dequeue_ten_times() for _ in range(RERUNS)]
    return {
        "first": runs[0],
        "at_once": [run["at_once"] for run in runs],
        "settled": [run["settled"] for run in runs],
        "rerun": dequeue_ten_times(more=DEQUEUES),
        "two_threads": dequeue_ten_times(threads=2),
    }


def _count(played: Played) -> str:
    first = played.measured("runs")["first"]
    count = first["settled"]
    samples = ", ".join(map(str, first["samples"]))
    right = played.answer("evaluations") == CHOICES.get(count)
    return (
        f"{prediction(played, 'evaluations', _times(count), right)}\n\n"
        f"The ten dequeues all succeeded, and gave the samples {samples}. The data op numbers its samples, so the "
        f"list shows more than the count: nothing is missing, nothing came twice.\n\n{_why(count)}"
    )


def _why(count: int) -> str:
    if count != CERTAIN:
        return (
            f"By the arithmetic below it should have been {_times(CERTAIN)}, once the runner had the time to go on. "
            "The machine may have been so busy that the runner's thread did not get there while we looked."
        )
    return (
        "1. The first evaluation made samples 0 to 5. Three fitted. The runner waited with the other three in its "
        "hand; elements that do not fit wait, they are not dropped.\n"
        "2. Each dequeue made room for one more. When sample 5 was in, the runner evaluated the data op again: 6 to "
        "11.\n"
        "3. After ten dequeues samples 10 and 11 are in the queue, and there is room for one. So the runner has "
        "evaluated a third time, put 12 in, and now waits with 13 to 17.\n\n"
        "Ten samples need two evaluations. The third is the runner working ahead: that is what it is for."
    )


def _reruns(played: Played) -> str:
    measured = played.measured("runs")
    at_once, settled = measured["at_once"], measured["settled"]
    rerun, two_threads = measured["rerun"]["in_all"], measured["two_threads"]["settled"]
    return (
        f"We ran the ten dequeues in {len(at_once)} fresh sessions. Right after the tenth dequeue the count was "
        f"{_spread(at_once)}; a moment later, when the runner stood still, {_spread(settled)}.\n\n"
        "**Why a rerun may show 2.** The runner is a thread of its own. The tenth dequeue may return before it has "
        "begun its third evaluation. Who looks at once may see 2; who waits a moment sees 3.\n\n"
        "**Why a rerun may show 4.** Either more has been taken out, or there are more hands. Ten *more* dequeues in "
        f"the same session, as when a notebook's cell runs again: {_expected(rerun)} in all, and not 6. By then 20 "
        "samples came out and 3 more fit; three evaluations are 18 of these 23, and a fourth is in progress. With a "
        f"second thread in the QueueRunner: {_expected(two_threads)}, because each thread waits with a batch of its "
        "own in its hand.\n\n"
        "**What is certain.** At most 10 + 3 samples have left the runner's hand after ten dequeues. Two evaluations "
        "are 12 samples and three are 18, so with one thread the third cannot be finished, and a fourth cannot begin. "
        "The tutorial of 2017 that asks this question printed 3."
    )


def _expected(count: int) -> str:
    """The count of a rerun beside what the arithmetic says of it."""
    return (
        str(count)
        if count == CERTAIN + 1
        else f"{count} here, {CERTAIN + 1} where the runner has the time to get there"
    )


def _spread(counts: list[int]) -> str:
    """``2 (in 1 of 12) or 3 (in 11 of 12)``."""
    found = sorted(Counter(counts).items())
    if len(found) == 1:
        return f"{found[0][0]} in all of them"
    return " or ".join(f"{count} (in {runs} of {len(counts)})" for count, runs in found)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


CERTAIN = 3
CHOICES = {2: "twice", 3: "3 times", 4: "4 times", 10: "10 times, once for each dequeue"}

LESSON = Lesson(
    name="queue_runner",
    title="The queue runner",
    summary="who fills a queue while the model trains, how far ahead it works, and why",
    order=20,
    parts=(
        Say(
            "A queue that is filled once runs dry. TensorFlow 1's answer is the **QueueRunner**: threads that run the "
            "enqueue again and again, and wait while the queue is full. A *Coordinator* tells them when to stop."
            "\n\n"
            "This queue has room for three. The **data op**, which stands in for reading a file, makes six samples "
            "each time it is evaluated, and numbers them. One thread enqueues them. The program dequeues ten times, "
            "and a counter in the graph counts the evaluations."
        ),
        Show(build, "the queue and its runner"),
        Show(counted, "ten dequeues"),
        Ask("evaluations", "How often is the data op evaluated for ten dequeues?", tuple(CHOICES.values())),
        Run("runs", many_runs, "dequeuing ten times, a dozen times over"),
        Tell(_count),
        Tell(_reruns),
    ),
    then=(
        Try(
            "pipeline-bench compare slow_source --steps 60 --repeats 1",
            "runners with 1, 2 and 8 threads on a source that takes 10 ms a batch",
        ),
        Try("pipeline-bench lesson feed_dict_or_queue", "what such a queue is worth to a training"),
    ),
)
