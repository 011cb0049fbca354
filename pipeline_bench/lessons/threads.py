"""Two kinds of threads inside TensorFlow: those that share one op, and those that run ops side by side."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from pipeline_bench.lessons import Ask, Compare, Lesson, Played, Say, Show, Tell, Try, figures, prediction
from pipeline_bench.lessons.figures import paragraphs
from pipeline_bench.models.mnist_cnn import _logits
from pipeline_bench.text.units import milliseconds, ratio

if TYPE_CHECKING:
    from pipeline_bench.model.session import Session

_SCENARIO = """\
[source]
kind = "synthetic"
batch_size = 32
features = 784                    # 28 x 28

[model]
kind = "mnist_cnn"

[runtime]
device = "cpu"
intra_op_threads = 1              # unless a variant says otherwise
inter_op_threads = 1

[run]
steps = 80
repeats = 3

[[variants]]
name = "1 thread"
backend = "ceiling"               # no input: the threads alone count

[[variants]]
name = "intra 2"
backend = "ceiling"
runtime.intra_op_threads = 2

[[variants]]
name = "inter 2"
backend = "ceiling"
runtime.inter_op_threads = 2

[[variants]]
name = "intra 8"
backend = "ceiling"
runtime.intra_op_threads = 8
"""
_ONE, _INTRA, _INTER, _MORE = "1 thread", "intra 2", "inter 2", "intra 8"
_MORE_THREADS = 8
_CLOSE = 1.1
"""A prediction within a tenth of the ratio counts as right."""
_DOUBLE = 2.0


def _tell(played: Played) -> str:
    session = played.session("threads")
    return paragraphs(
        _judged(played),
        figures.measured(session, (_ONE, _INTRA, _INTER, _MORE)),
        figures.gain(session, _INTRA),
        _intra(session),
        figures.gain(session, _INTER),
        _inter(session),
        figures.gain(session, _MORE),
        _more(session),
        _beside_the_author(session),
        figures.disturbed(session),
    )


def _judged(played: Played) -> str:
    session = played.session("threads")
    found, answer = figures.result(session, _INTRA), played.answer("times")
    unknown = figures.outcome(session, _INTRA) == "unknown"
    if unknown or found is None or found.speedup.value is None or found.speedup.ci95 is None:
        return prediction(played, "times", "not measured well enough to say", unit="×")
    value, (low, high) = found.speedup.value, found.speedup.ci95
    right = isinstance(answer, float) and (low <= answer <= high or 1 / _CLOSE <= answer / value <= _CLOSE)
    return prediction(played, "times", ratio(value), right, unit="×")


def _intra(session: Session) -> str:
    """Why two threads in an op bring what they bring here."""
    found, outcome, cores = figures.result(session, _INTRA), figures.outcome(session, _INTRA), session.environment.cores
    if outcome == "unknown" or found is None or found.speedup.ci95 is None:
        if cores == 1:
            return ""
        return (
            "What to expect of it: two cores work on one convolution together, and less than twice the speed comes of "
            "it, because an op is cut into pieces, handed out, and waited for, and small ops are not worth cutting."
        )
    if cores == 1:
        return (
            "This machine lets us use one core. Two threads take turns at it, and turns do not make it faster; what "
            "the figures show beyond that is how the turns fell."
        )
    if outcome == "faster":
        part = (
            "Not twice as fast: an op is cut into pieces, handed out, and waited for; small ops are not worth cutting; "
            "and the rest of a step runs on one thread whatever the setting says."
            if found.speedup.ci95[1] < _DOUBLE
            else "That is as much as two threads can do."
        )
        return f"Two cores worked on one convolution together. {part}"
    costs = "more than" if outcome == "slower" else "about as much as"
    busy = " Something else used the cores as well in this run, see below." if session.disturbances else ""
    return (
        f"There are {figures.cores(session)}, so two threads could work at the same time.{busy} What can explain it: "
        f"the batch is small, and an op so short that handing out its pieces costs {costs} they save. Some machines "
        "also count the two halves of one core as two."
    )


def _inter(session: Session) -> str:
    """Why independent ops side by side bring what they bring here."""
    outcome = figures.outcome(session, _INTER)
    if outcome == "faster":
        return (
            "In the forward pass each layer waits for the one before. In the backward pass two things follow from "
            "each layer: the gradient of its weights, and that of its input. They need not wait for each other, and "
            "here that was enough to gain."
        )
    return (
        "In this network each layer waits for the one before, so there are few ops that could run side by side. Only "
        "the backward pass has some: the gradient of a layer's weights and that of its input."
    )


def _more(session: Session) -> str:
    """What threads beyond the cores do here, held against two threads; or that there are cores enough for them."""
    two, many = figures.result(session, _INTRA), figures.result(session, _MORE)
    unknown = "unknown" in (figures.outcome(session, _INTRA), figures.outcome(session, _MORE))
    if unknown or two is None or many is None or two.speedup.ci95 is None or many.speedup.ci95 is None:
        cores = session.environment.cores
        few = (
            f"`{_MORE}` asks for more threads than there are cores: only {cores} can compute at a time, the rest wait."
        )
        return few if cores < _MORE_THREADS else ""
    more, less = many.speedup.ci95[0] > two.speedup.ci95[1], many.speedup.ci95[1] < two.speedup.ci95[0]
    found = "faster" if more else "slower" if less else "no difference that this run could tell"
    return (
        f"`{_MORE}` took {milliseconds(many.step_ms.mean)} a step, `{_INTRA}` {milliseconds(two.step_ms.mean)}: "
        f"{found}. {_against_the_cores(session, more, less)}"
    )


def _against_the_cores(session: Session, more: bool, less: bool) -> str:
    """Why so many threads gain, or lose, on as many cores as there are."""
    cores = session.environment.cores
    if cores >= _MORE_THREADS:
        return f"This machine has {cores} cores, so {_MORE_THREADS} threads all have one of their own."
    asked = f"{_MORE_THREADS} threads were asked for, and there are {figures.cores(session)}"
    if more and cores > 2:  # noqa: PLR2004 - as many as the variant beside it uses
        return f"{asked}: the gain comes from the cores that two threads leave idle, not from the threads."
    if more:
        return (
            f"{asked}. More threads cannot compute more there; where one is kept waiting by another program, though, "
            "a further one can take its place."
        )
    if less:
        return f"{asked}: they take turns, and every turn costs a little time and the core's warm cache."
    return f"{asked}: the others wait for their turn. They neither help nor, here, do harm."


def _beside_the_author(session: Session) -> str:
    """The published times of this network under 1, 2 and 4 threads an op, with our gain beside theirs."""
    found = figures.result(session, _INTRA)
    known = found is not None and figures.outcome(session, _INTRA) != "unknown"
    ours = f" Here: {ratio(found.speedup.value)}." if known and found is not None else ""
    return (
        "Published for this network, with 64 images a batch, on a machine of 2016 (deepnlp): 610 ms a step with "
        f"1 thread an op, 380 ms with 2, 230 ms with 4. So 2 threads were {ratio(610 / 380)} as fast there.{ours}"
    )


LESSON = Lesson(
    name="threads",
    title="Threads inside TensorFlow",
    summary="what intra-op and inter-op threads do, and why more of them than cores is no gain",
    order=60,
    parts=(
        Say(
            "A step is made of **ops**: a convolution, an addition, a matrix product. On a CPU TensorFlow has two "
            "settings for how many threads work on them.\n\n"
            "`intra_op_parallelism_threads`: how many threads work on **one op** together. A large matrix product is "
            "cut into pieces, and each thread takes some.\n\n"
            "`inter_op_parallelism_threads`: how many ops may run **side by side**. That needs ops that do not wait "
            "for each other.\n\n"
            "This is the network that we train, for images of handwritten digits. Look which line needs the result of "
            "which. `_on` can put a layer on a device of its own, and does nothing here:"
        ),
        Show(_logits, caption="The forward pass; TensorFlow derives the backward pass from it"),
        Say(
            "The batch is in memory already, so that no input thread uses the cores beside the training:\n\n"
            f"```toml\n{_SCENARIO}```"
        ),
        Ask(
            "times",
            "With 2 threads an op (intra 2) in place of 1, the training is how many times as fast?",
            low=0.1,
            high=20,
            unit="times",
        ),
        Compare("threads", {"name": "threads", **tomllib.loads(_SCENARIO)}, "training under four settings of threads"),
        Tell(_tell),
        Say(
            "Left alone, TensorFlow takes one thread a core for both settings, which is a good start. Fewer can be "
            "better where the input needs the cores as well, or where several programs share the machine."
        ),
    ),
    then=(
        Try("pipeline-bench compare cpu_threads", "more settings, with 64 images a batch"),
        Try("pipeline-bench compare graph_partition", "the layers spread over several CPU devices"),
        Try("pipeline-bench lesson placement", "which op runs on which device"),
    ),
)
