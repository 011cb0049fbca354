"""A queue of three elements, filled once: three dequeues succeed, and the fourth waits until somebody enqueues."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from pipeline_bench.lessons import Ask, Lesson, Played, Run, Say, Show, Tell, Try, prediction

CAPACITY = 3
ATTEMPTS = 4
PATIENCE_MS = 2000
LOOK_AFTER_S = 1.0
_COUNTS = ("none", "one", "two", "three", "four")


@dataclass(frozen=True)
class Built:
    """The ops of the exercise's graph."""

    fill: Any
    one_more: Any
    sample: Any


def build() -> Built:
    """A queue with room for three, and the ops that use it."""
    import tensorflow as tf

    v1 = tf.compat.v1
    queue = v1.FIFOQueue(CAPACITY, dtypes=[tf.float32], shapes=[[]])
    three_samples = tf.random.normal([CAPACITY])
    return Built(
        fill=queue.enqueue_many([three_samples]),
        one_more=queue.enqueue([tf.constant(7.0)]),
        sample=queue.dequeue(),
    )


def fill_once_and_dequeue() -> dict[str, Any]:
    """Fill the queue once, and dequeue four times."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.device("/cpu:0"):
        built = build()
        with tf.compat.v1.Session() as session:
            session.run(built.fill)
            outcomes = [dequeue(session, built) for _ in range(ATTEMPTS)]
            return {"outcomes": outcomes, **rescued(session, built)}


def dequeue(session: Any, built: Built) -> str:
    """TensorFlow would wait for ever; we give it two seconds."""
    import tensorflow as tf

    patience = tf.compat.v1.RunOptions(timeout_in_ms=PATIENCE_MS)
    try:
        session.run(built.sample, options=patience)
    except tf.errors.DeadlineExceededError:
        return "blocked"
    return "succeeded"


def rescued(session: Any, built: Built) -> dict[str, Any]:
    """Let a dequeue wait, and enqueue a sample meanwhile."""
    got: list[float] = []

    def wait_for_a_sample() -> None:
        got.append(float(session.run(built.sample)))

    waiting = threading.Thread(target=wait_for_a_sample, daemon=True)
    waiting.start()
    waiting.join(LOOK_AFTER_S)
    waited = waiting.is_alive()
    session.run(built.one_more)
    waiting.join()
    return {"waited": waited, "got": got[0]}


def _what_happened(played: Played) -> str:
    outcomes = played.measured("dequeues")["outcomes"]
    count = outcomes.count("succeeded")
    right = played.answer("count") == CHOICES.get(count)
    listing = "\n".join(f"{number}. {outcome}" for number, outcome in enumerate(outcomes, start=1))
    happened = f"{_COUNTS[count]} of the {_COUNTS[ATTEMPTS]} dequeues succeeded"
    return f"{prediction(played, 'count', happened, right)}\n\n{listing}\n\n{_why(count)}"


def _why(count: int) -> str:
    if count == CAPACITY:
        return (
            "A FIFOQueue hands each element out once. Three samples went in, and three came out. The fourth dequeue "
            "found the queue empty, and to TensorFlow that is no error. It waits, as long as it takes, because "
            "somebody may still enqueue. Here nobody would have: the enqueue ran once. Without our timeout of two "
            "seconds this process would hang, with no message and no core at work. That is what a starved training "
            "looks like from outside."
        )
    return (
        "By TensorFlow's rules exactly three dequeues succeed: an element is handed out once, and three went in. "
        "Where fewer succeed, a dequeue took longer than the two seconds that we gave it, which happens on a very "
        "busy machine. Run the lesson again when the machine is idle."
    )


def _rescue(played: Played) -> str:
    got = f"{played.measured('dequeues')['got']:g}"
    return (
        "The same run did one thing more. It started a fifth dequeue in a thread of its own, this time without a "
        f"timeout; after a second it was still waiting. Then it enqueued a single sample, {got}, and the dequeue "
        f"returned with {got}.\n\n"
        "So a queue that blocks is not broken. It is how the two sides keep in step: who is faster waits. What is "
        "needed is somebody who goes on enqueueing. That is the job of a QueueRunner, which is the next lesson."
    )


CHOICES = {
    2: "two: the last element stays in the queue",
    3: "three, and the fourth does not return",
    4: "four: the fourth gets a sample again",
}

LESSON = Lesson(
    name="queue_that_blocks",
    title="The queue that blocks",
    summary="what a queue does when it is empty: it waits, and says nothing",
    order=10,
    parts=(
        Say(
            "Training takes one batch of samples after the other. Something has to bring them, and it should work "
            "ahead, so that the model does not wait. Between the two stands a **queue**: one side puts elements in "
            "(*enqueue*), the other takes them out (*dequeue*), in the same order. Its *capacity* is how many it "
            "holds."
            "\n\n"
            "Here is one with room for three. It is filled once, with three samples, and then it is asked for a "
            "sample four times."
        ),
        Show(build, "the queue"),
        Show(fill_once_and_dequeue, "filled once, asked four times"),
        Show(dequeue, "one dequeue, with our own patience"),
        Ask("count", "How many of the four dequeues succeed?", tuple(CHOICES.values())),
        Run("dequeues", fill_once_and_dequeue, "filling the queue once and dequeuing four times"),
        Tell(_what_happened),
        Show(rescued, "somebody enqueues after all"),
        Tell(_rescue),
    ),
    then=(
        Try("pipeline-bench lesson queue_runner", "the thread that goes on enqueueing, and how often it works"),
        Try(
            "pipeline-bench compare slow_source --steps 60 --repeats 1",
            "a training that waits for its input, and how long: the column of the input wait",
        ),
    ),
)
