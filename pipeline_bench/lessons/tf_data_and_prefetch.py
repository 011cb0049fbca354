"""tf.data and its prefetch: the queue of today, what it hides, and what takes several batches at a time."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from pipeline_bench.backends.tf_data import _tuned
from pipeline_bench.lessons import Ask, Compare, Lesson, Played, Say, Show, Tell, Try, figures, prediction
from pipeline_bench.lessons.figures import paragraphs
from pipeline_bench.text.units import milliseconds

if TYPE_CHECKING:
    from pipeline_bench.model.session import Session

_LATENCY_MS = 4
_STEP_MS = 3
_SCENARIO = f"""\
[source]
kind = "synthetic"
features = 64
latency_ms = {_LATENCY_MS}          # a wait per batch

[model]
kind = "emulated"
step_ms = {_STEP_MS}             # busy with each batch

[run]
steps = 200
repeats = 3

[[variants]]
name = "no prefetch"
backend = "tf_data"
options = {{ prefetch = 0 }}

[[variants]]
name = "prefetch"
backend = "tf_data"
options = {{ prefetch = 2 }}

[[variants]]
name = "2 at a time"
backend = "tf_data"
options = {{ prefetch = 2, parallel_calls = 2 }}

[[variants]]
name = "AUTOTUNE"
backend = "tf_data"
options = {{ prefetch = "auto", parallel_calls = "auto" }}
"""
_NONE, _AHEAD, _TWO, _AUTO = "no prefetch", "prefetch", "2 at a time", "AUTOTUNE"
_NEAR = 1.2
"""Within a fifth of the figure a prediction counts as right, and the figure as following a rule."""


def _tell(played: Played) -> str:
    session = played.session("prefetch")
    return paragraphs(
        _judged(played),
        figures.measured(session, (_NONE, _AHEAD, _TWO, _AUTO)),
        figures.gain(session, _AHEAD),
        _rule(session),
        figures.gain(session, _TWO),
        _several(session),
        figures.gain(session, _AUTO),
        _autotune(session),
        figures.disturbed(session),
    )


def _judged(played: Played) -> str:
    session, answer = played.session("prefetch"), played.answer("step")
    found = figures.result(session, _AHEAD)
    if found is None or found.step_ms.mean is None or figures.outcome(session, _AHEAD) == "unknown":
        return prediction(played, "step", "not measured well enough to say", unit=" ms")
    right = isinstance(answer, float) and _near(answer, found.step_ms.mean)
    return prediction(played, "step", milliseconds(found.step_ms.mean), right, unit=" ms")


def _near(one: float, other: float) -> bool:
    return max(one, other) <= _NEAR * min(one, other)


def _rule(session: Session) -> str:
    """The sum and the longer of the two, with what was measured beside each."""
    slow, ahead = figures.result(session, _NONE), figures.result(session, _AHEAD)
    sum_ms, longer_ms = _LATENCY_MS + _STEP_MS, max(_LATENCY_MS, _STEP_MS)
    planted = (
        f"Without prefetch a batch is asked for when it is needed, so a step is the **sum**, {sum_ms} ms, and a little "
        "for the way. With prefetch a thread of tf.data makes the next batch meanwhile, and a step is the **longer of "
        f"the two**, {longer_ms} ms."
    )
    off = [
        f"`{name}` took {milliseconds(found.step_ms.mean)}"
        for name, found, rule_ms in ((_NONE, slow, sum_ms), (_AHEAD, ahead, longer_ms))
        if found is not None and found.step_ms.mean is not None and not _near(found.step_ms.mean, rule_ms)
    ]
    if off:
        return (
            f"{planted} Here {' and '.join(off)}: the wait and the device are planted and cannot be shorter, so the "
            "rest is this machine's: threads that wake late, or cores that were taken."
        )
    if slow is None or ahead is None:
        return planted
    return f"{planted} Both are what was measured here, within a fifth."


def _several(session: Session) -> str:
    """What two batches at a time do, as far as it was measured."""
    outcome, found, ahead = (
        figures.outcome(session, _TWO),
        figures.result(session, _TWO),
        figures.result(session, _AHEAD),
    )
    if found is None or ahead is None or found.speedup.ci95 is None or ahead.speedup.ci95 is None:
        return ""
    half = f"Two waits side by side bring a batch every {milliseconds(_LATENCY_MS / 2)}"
    if outcome == "faster" and found.speedup.ci95[0] > ahead.speedup.ci95[1]:
        return (
            f"{half}: now the device, with {_STEP_MS} ms, is the longer of the two, and prefetch alone is beaten. "
            "This works because a wait takes no core. Decoding images two at a time takes two cores."
        )
    return (
        f"{half}, which should leave the device, with {_STEP_MS} ms, as the longer of the two; a gain over prefetch "
        "alone could not be told in this run."
    )


def _autotune(session: Session) -> str:
    """How the settings that tf.data found by itself did beside those written by hand."""
    auto, hand = figures.result(session, _AUTO), figures.result(session, _TWO)
    about = (
        "`AUTOTUNE` leaves both numbers to tf.data, which begins small and tries while it runs; so its first steps "
        "are slower, and a short run shows less of it."
    )
    if auto is None or hand is None or auto.speedup.ci95 is None or hand.speedup.ci95 is None:
        return about
    if auto.speedup.ci95[1] < hand.speedup.ci95[0]:
        return f"{about} Here it stayed behind the numbers written by hand."
    if auto.speedup.ci95[0] > hand.speedup.ci95[1]:
        return f"{about} Here it found better numbers than those written by hand."
    return f"{about} Here it cannot be told from the numbers written by hand."


LESSON = Lesson(
    name="tf_data_and_prefetch",
    title="tf.data and prefetch",
    summary="what one line of prefetch hides, what it cannot hide, and what AUTOTUNE does",
    order=50,
    parts=(
        Say(
            "Nobody writes queues by hand any more. `tf.data` describes the input as a chain of calls: read, decode, "
            "batch. TensorFlow runs the chain, without Python.\n\n"
            "By itself a chain is lazy: it makes a batch when one is asked for, while the model waits. "
            "`prefetch(n)` at its end changes that. It is a queue of `n` batches with a thread that fills it. This is "
            "where our pipelines get it:"
        ),
        Show(_tuned, caption="The last call of every tf.data pipeline here"),
        Say(
            f"We plant two times that every machine can keep. The source **waits** {_LATENCY_MS} ms for each batch, as "
            f"for a disk far away. The device is *emulated*: it is busy {_STEP_MS} ms with each batch and computes "
            "nothing. `parallel_calls = 2` makes two batches at a time.\n\n"
            f"```toml\n{_SCENARIO}```"
        ),
        Ask(
            "step",
            f"A batch takes {_LATENCY_MS} ms, the device {_STEP_MS} ms. How long is a step with prefetch?",
            low=0.1,
            high=100,
            unit="ms",
        ),
        Compare(
            "prefetch",
            {"name": "tf_data_and_prefetch", **tomllib.loads(_SCENARIO)},
            "training with and without prefetch",
        ),
        Tell(_tell),
        Say(
            "Prefetch hides the shorter of two times, and never more. Where the input is the longer one, it has to "
            "become faster itself: more batches at a time, less work for each, or the work done once and kept."
        ),
    ),
    then=(
        Try("pipeline-bench compare slow_source", "a batch that takes 10 ms, under queues and tf.data"),
        Try("pipeline-bench compare cold_storage", "real files on a storage that answers late"),
        Try("pipeline-bench lesson threads", "what more cores do for the model itself"),
    ),
)
