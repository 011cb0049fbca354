"""Several copies of a network that share each batch: in one graph, and as processes around a parameter server."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from pipeline_bench.lessons import Ask, Compare, Lesson, Played, Say, Show, Tell, Try, figures, prediction
from pipeline_bench.lessons.figures import paragraphs
from pipeline_bench.replication import in_graph
from pipeline_bench.text.units import loss, ratio

if TYPE_CHECKING:
    from pipeline_bench.model.session import Session

_SCENARIO = """\
[source]
kind = "synthetic"
batch_size = 128
features = 1024

[model]
kind = "two_layer"

[runtime]
device = "cpu"
intra_op_threads = 1              # one thread for each op

[run]
steps = 100
repeats = 3

[[variants]]
name = "one replica"
backend = "ceiling"               # no input: the copies alone count

[[variants]]
name = "in_graph, 2"
backend = "ceiling"
runtime = { replicas = 2, replication = "in_graph" }

[[variants]]
name = "between_graph, 2"
backend = "ceiling"
runtime = { replicas = 2, replication = "between_graph" }
"""
_ONE, _TOWERS, _PROCESSES = "one replica", "in_graph, 2", "between_graph, 2"
_REPLICAS = 2
_CLOSE = 1.1
"""A prediction within a tenth of the ratio counts as right."""


def _tell(played: Played) -> str:
    session = played.session("replication")
    return paragraphs(
        _judged(played),
        figures.measured(session, (_ONE, _TOWERS, _PROCESSES)),
        figures.gain(session, _TOWERS),
        _towers(session),
        figures.gain(session, _PROCESSES),
        _processes(session),
        _losses(session),
        figures.disturbed(session),
    )


def _judged(played: Played) -> str:
    session, answer = played.session("replication"), played.answer("times")
    found, unknown = figures.result(session, _TOWERS), figures.outcome(session, _TOWERS) == "unknown"
    if unknown or found is None or found.speedup.value is None or found.speedup.ci95 is None:
        return prediction(played, "times", "not measured well enough to say", unit="×")
    value, (low, high) = found.speedup.value, found.speedup.ci95
    right = isinstance(answer, float) and (low <= answer <= high or 1 / _CLOSE <= answer / value <= _CLOSE)
    return prediction(played, "times", ratio(value), right, unit="×")


def _towers(session: Session) -> str:
    """What two towers in one graph bring here."""
    outcome, found = figures.outcome(session, _TOWERS), figures.result(session, _TOWERS)
    if outcome == "unknown" or found is None or found.speedup.ci95 is None:
        return ""
    cores = figures.cores(session)
    if session.environment.cores < _REPLICAS:
        return f"There is {cores} here, so the two towers took turns at it. Splitting and averaging come on top."
    if outcome == "faster":
        whole = found.speedup.ci95[1] >= _REPLICAS
        missing = (
            ""
            if whole
            else " What is missing to twice as fast is what is done once for both: splitting the batch, averaging the "
            "gradients, applying them; and the slower tower decides."
        )
        return f"Each tower had half of the batch and a thread of its own, and there are {cores}.{missing}"
    end = "lost" if outcome == "slower" else "did not gain"
    return (
        f"There are {cores}, and still two towers {end}. One copy runs ops side by side as well: with one thread an op "
        "it can use two cores where two ops do not need each other, as the two halves of a gradient. And half a "
        "batch does not halve a tower's time: the gradients are as large as before, there are two sets of "
        "them, and averaging is added."
    )


def _processes(session: Session) -> str:
    """What two worker processes and a parameter server bring here."""
    outcome = figures.outcome(session, _PROCESSES)
    if outcome == "unknown":
        return ""
    way = (
        "Before each step a worker fetches every variable from the parameter server, and sends every gradient back: "
        "4 MB each way for this network, from process to process through gRPC, packed and unpacked by the same cores "
        "that train."
    )
    ends = {
        "faster": "Here the second worker was worth more than that.",
        "none": "Here that eats what the second worker brings.",
        "slower": "Here that costs more than the second worker brings. On one machine this is a way to learn how it "
        "works, not a way to be fast.",
    }
    return f"{way} {ends[outcome]} It is meant for several machines, each with cores and a GPU of its own."


def _losses(session: Session) -> str:
    """The losses after the last step, where there are some to hold beside each other."""
    found = [(name, figures.result(session, name)) for name in (_ONE, _TOWERS, _PROCESSES)]
    told = [f"`{name}` {loss(each.loss)}" for name, each in found if each is not None and each.loss is not None]
    if len(told) < _REPLICAS:
        return ""
    return (
        f"The loss after the last step, on the one batch that each trains on again and again: {', '.join(told)}. The "
        "mean of the halves' gradients is the gradient of the whole batch, so the copies in one graph learn what one "
        "would, but for rounding. Each worker has a batch of its own, so its loss is another one."
    )


LESSON = Lesson(
    name="replication",
    title="Replication: several copies of a network",
    summary="two ways in which copies of a network share the work, and what each costs",
    order=80,
    parts=(
        Say(
            "Training can be spread over devices by **copies**. Each copy, a **replica**, has the same network and "
            "takes a part of the batch. Their gradients, the directions in which each would change the network, are "
            "averaged, and every copy goes on from the same new state.\n\n"
            "*In-graph*: one program, one graph. The graph holds the network twice, a **tower** on each device. It is "
            "simple, and the graph grows with the devices.\n\n"
            "*Between-graph*: a process for each copy, a **worker**, with a graph of its own. The variables are in one "
            "more process, the **parameter server** (ps), which all workers read from and send their gradients to. "
            "The processes may be on different machines.\n\n"
            "This builds the towers:"
        ),
        Show(in_graph.train_on, caption="In-graph: split the batch, a tower each, average the gradients, apply once"),
        Say(
            "A step trains on one batch of 128 samples, however many copies there are. Two CPU devices stand in for "
            "two machines or two GPUs; one thread for each op makes a copy a little like a device of its own:\n\n"
            f"```toml\n{_SCENARIO}```"
        ),
        Ask(
            "times",
            "Two towers in one graph train how many times as fast as one copy?",
            low=0.1,
            high=10,
            unit="times",
        ),
        Compare(
            "replication", {"name": "replication", **tomllib.loads(_SCENARIO)}, "training with one copy and with two"
        ),
        Tell(_tell),
        Say(
            "Copies pay for themselves where a step computes for long and the network is small to send, and where "
            "each copy has hardware of its own. Then the input has to keep up as well: twice as many samples a second."
        ),
    ),
    then=(
        Try("pipeline-bench compare replication", "more ways and more copies, with throughput and loss"),
        Try("pipeline-bench lesson what_utilization_says", "what a busy device does and does not tell"),
    ),
)
