"""What one element of a queue is decides whether the queue helps: tensorflow issue 837 in small."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from pipeline_bench.backends.fifo_queue import _RunQueue
from pipeline_bench.lessons import Ask, Compare, Document, Lesson, Played, Say, Show, Tell, Try, figures, prediction
from pipeline_bench.lessons.figures import paragraphs
from pipeline_bench.text.units import milliseconds

if TYPE_CHECKING:
    from pipeline_bench.model.session import Session

_BATCH_SIZE = 128
_SCENARIO = f"""\
[source]
kind = "synthetic"
batch_size = {_BATCH_SIZE}
features = 784                  # 28 x 28

[model]
kind = "two_layer"
hidden_widths = [512, 512]

[run]
steps = 100
repeats = 3

[[variants]]
name = "feed_dict"
backend = "feed_dict"

[[variants]]
name = "batch queue"            # an element is a whole batch
backend = "fifo_queue"

[[variants]]
name = "sample queue, 2 threads"
backend = "fifo_queue"
options = {{ element = "sample", threads = 2 }}

[[variants]]
name = "sample queue, 16 threads"
backend = "fifo_queue"
options = {{ element = "sample", threads = 16 }}
"""
_BATCHES, _FEW, _MANY = "batch queue", "sample queue, 2 threads", "sample queue, 16 threads"
_FASTER, _NONE, _SLOWER = "faster than feed_dict", "as fast as feed_dict", "slower than feed_dict"


def _document() -> Document:
    published = figures.published_with("queue_elements")
    return {"name": "elements_of_a_queue", **tomllib.loads(_SCENARIO), "published": published}


def _tell(played: Played) -> str:
    session = played.session("elements")
    outcome = figures.outcome(session, _FEW)
    happened = {"faster": _FASTER, "none": f"{_NONE}, as far as can be told", "slower": _SLOWER}.get(
        outcome, "not measured well enough to say"
    )
    said = {"faster": _FASTER, "none": _NONE, "slower": _SLOWER}.get(outcome)
    return paragraphs(
        prediction(played, "sample", happened, None if said is None else played.answer("sample") == said),
        figures.measured(session, ("feed_dict", _BATCHES, _FEW, _MANY)),
        figures.gain(session, _BATCHES),
        figures.gain(session, _FEW),
        figures.gain(session, _MANY),
        _price(session),
        _threads(session),
        figures.published(session),
        figures.disturbed(session),
    )


def _price(session: Session) -> str:
    """What an element costs here, from the step of the variant that waits for them; and whether it loses by that."""
    found = figures.result(session, _FEW)
    if found is None or found.step_ms.mean is None:
        return ""
    each = milliseconds(found.step_ms.mean / _BATCH_SIZE)
    bill = (
        f"Every element has a price: the runner's thread runs the graph once for it, takes the queue's lock, and "
        f"copies. A whole batch pays it once a step, single samples {_BATCH_SIZE} times."
    )
    outcome = figures.outcome(session, _FEW)
    if outcome == "slower" and found.verdict.kind == "input-bound":
        return (
            f"{bill} Here a sample came every {each} on average, and the model waited "
            f"{milliseconds(found.input_wait_ms.value)} of each step for them. The work on the sample itself is tiny; "
            "the price of the element is what you see."
        )
    if outcome == "slower":
        return (
            f"{bill} Here the model hardly waited for them: what the threads took of the cores is missing in the "
            "training instead."
        )
    if outcome == "faster":
        return (
            f"{bill} Here that was still cheaper than feed_dict: one sample every {each}, made while the model "
            "trained. On a model that trains faster the same queue would hold it up."
        )
    return f"{bill} Whether it is too much for this model cannot be told from this run." if outcome == "none" else bill


def _threads(session: Session) -> str:
    """Whether 16 threads do better than 2: from their intervals over the same baseline, apart or not."""
    few, many = figures.result(session, _FEW), figures.result(session, _MANY)
    if "unknown" in (figures.outcome(session, _FEW), figures.outcome(session, _MANY)):
        return ""
    if few is None or many is None or few.speedup.ci95 is None or many.speedup.ci95 is None:
        return ""
    cores = figures.cores(session)
    if many.speedup.ci95[0] > few.speedup.ci95[1]:
        return f"16 threads did better than 2 on {cores}: while one waits for the lock another one makes its sample."
    if many.speedup.ci95[1] < few.speedup.ci95[0]:
        return f"16 threads did worse than 2 on {cores}: they take turns at one lock and at the same cores."
    return f"16 threads could not be told from 2 on {cores}: more threads pay the same price for each element."


LESSON = Lesson(
    name="elements_of_a_queue",
    title="What one element of a queue is",
    summary="why the same queue helps with whole batches and hurts with single samples",
    order=40,
    parts=(
        Say(
            "A queue holds **elements**. What one of them is, you decide: a whole batch, or one sample of it. Many "
            "programs of 2016 chose the sample, because a file gives one sample after the other; the model then takes "
            f"{_BATCH_SIZE} of them with `dequeue_many`.\n\n"
            "One of their authors found that his queue, meant to speed up training, made it ten times slower than "
            "`feed_dict`, and opened issue 837 of TensorFlow. His model was small: images of 28 × 28, two layers of "
            "512 units.\n\n"
            "This is the queue, for both kinds of element. `whole` says which:"
        ),
        Show(
            _RunQueue.__init__,
            caption="made is what the thread enqueues: a whole batch, or one sample",
            lines=('with tf.device("/cpu:0")', "self._runner ="),
        ),
        Say(f"Four ways to bring the same batches:\n\n```toml\n{_SCENARIO}```"),
        Ask(
            "sample",
            "Two threads put single samples into the queue while the model trains. Compared with feed_dict, which "
            "does everything one after the other, this is",
            choices=(_FASTER, _NONE, _SLOWER),
        ),
        Compare(
            "elements",
            _document,
            "training with whole batches and with single samples",
        ),
        Tell(_tell),
        Say(
            "The rule that remains: make the pieces that you hand over as large as they are used. `tf.data` has the "
            "same choice, `batch` before `map` or after it. And before you believe that a queue helps, measure."
        ),
    ),
    then=(
        Try("pipeline-bench compare queue_elements", "the same with more steps, and what limits each variant"),
        Try("pipeline-bench lesson tf_data_and_prefetch", "what took the place of the queue"),
    ),
)
