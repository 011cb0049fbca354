"""Which op runs on which device, and what a second device gains when it is one."""

from __future__ import annotations

import tomllib
from collections import Counter
from typing import TYPE_CHECKING

from pipeline_bench.lessons import Ask, Compare, Lesson, Played, Say, Show, Tell, Try, figures, prediction
from pipeline_bench.lessons.figures import paragraphs
from pipeline_bench.models.matpow import Matpow
from pipeline_bench.text import one_line
from pipeline_bench.text.units import count, ratio

if TYPE_CHECKING:
    from pipeline_bench.model.events import Placement
    from pipeline_bench.model.session import Session

_SCENARIO = """\
[source]                    # asked for, and not used
kind = "synthetic"
batch_size = 1
features = 16

[model]
kind = "matpow"             # A^10 + B^10
size = 384
power = 10

[runtime]
cpu_devices = 2
log_placement = true        # ask TensorFlow what ran where

[run]
steps = 60
repeats = 3

[[variants]]
name = "one device"
backend = "ceiling"         # no input
model.devices = 1

[[variants]]
name = "two devices"
backend = "ceiling"
model.devices = 2
"""
_ONE, _TWO = "one device", "two devices"
_TWICE, _SAME, _SLOWER = "nearly twice as fast", "as fast as one", "slower than one"
_NEARLY_TWICE = 1.5
_MULTIPLIES = "MatMul"
"""How the type of an op that multiplies matrices ends; on a CPU oneDNN puts its own in place: ``_MklMatMul``."""
_LINE_LIMIT = 100


def _tell_placement(played: Played) -> str:
    session = played.session("placement")
    lines = [line for variant in (_ONE, _TWO) for line in _where(session, variant)]
    return paragraphs(
        "What TensorFlow says of the step that it ran:",
        "\n".join(lines),
        "A^10 takes nine products: A·A, A·A·A and so on, so there are 18 in all. The other ops are small: they read a "
        "matrix, add the powers, keep the sum, or carry a result from one device to the other.",
    )


def _where(session: Session, variant: str) -> list[str]:
    """A list item for each device that ran ops of a variant, or why it is not known."""
    placement = _placement(session, variant)
    if placement is None or not placement.ops:
        reason = placement.reason if placement is not None and placement.reason else "no trial of it told"
        return [f"- {variant}: not known ({one_line(reason, _LINE_LIMIT)})"]
    devices = sorted({op.device for op in placement.ops})
    return [f"- {variant}: {_on(placement, device)}" for device in devices]


def _on(placement: Placement, device: str) -> str:
    """``CPU:0 ran 18 matrix products (_MklMatMul) and 12 other ops``."""
    types = Counter(op.type for op in placement.ops if op.device == device)
    products = {kind: times for kind, times in types.items() if kind.endswith(_MULTIPLIES)}
    others = types.total() - sum(products.values())
    parts = [f"{count(times, 'matrix product')} (`{one_line(kind, _LINE_LIMIT)}`)" for kind, times in products.items()]
    parts += [count(others, "other op" if products else "op")] if others else []
    return f"{one_line(device, _LINE_LIMIT)} ran {' and '.join(parts)}"


def _placement(session: Session, variant: str) -> Placement | None:
    told = (trial.placement for trial in session.trials if trial.variant == variant)
    return next((each for each in told if each is not None), None)


def _tell_gain(played: Played) -> str:
    session = played.session("placement")
    outcome = figures.outcome(session, _TWO)
    found = figures.result(session, _TWO)
    times = found.speedup.value if found is not None and found.speedup.value is not None else 0.0
    said = {"faster": _TWICE if times >= _NEARLY_TWICE else "", "none": _SAME, "slower": _SLOWER}.get(outcome)
    happened = {"faster": f"{ratio(times)} as fast", "none": "no difference that can be told", "slower": _SLOWER}.get(
        outcome, "not measured well enough to say"
    )
    return paragraphs(
        prediction(played, "gain", happened, None if said is None else played.answer("gain") == said),
        figures.measured(session, (_ONE, _TWO)),
        figures.gain(session, _TWO),
        _why(session),
        figures.disturbed(session),
    )


def _why(session: Session) -> str:
    """What the two devices are, and what follows for the gain; nothing where it is not known what they were."""
    outcome, devices = figures.outcome(session, _TWO), _multiplying(session, _TWO)
    if not devices:
        return ""
    if all("GPU" in device for device in devices) and len(devices) > 1:
        return _of_gpus(outcome)
    names = " and ".join(f"`{one_line(device, _LINE_LIMIT)}`" for device in devices)
    same = (
        f"{names} are two names for the same {figures.cores(session)}: TensorFlow makes as many CPU devices as it is "
        "told, and no core comes with them. The two powers do not need each other either, so TensorFlow computes them "
        "side by side on one device as well."
        if len(devices) > 1
        else f"All of the products ran on {names}, so nothing was spread."
    )
    ends = {
        "none": " So there is nothing to gain, and nothing was.",
        "faster": " So the gain is no more computing power: it is how the work happened to be divided among the "
        "threads. Do not count on it.",
        "slower": " So there is nothing to gain; and a result that crosses from one device to the other is one more "
        "thing to hand over.",
    }
    return same + ends.get(outcome, "")


def _of_gpus(outcome: str) -> str:
    ends = {
        "faster": "Each has cores and memory of its own, so the two powers really were computed at the same time. The "
        "sum is made on the CPU, to which both results had to be copied.",
        "none": "Each has cores and memory of its own. But these matrices are so small that starting an op takes "
        "longer than multiplying: try 10000 × 10000, as the book does.",
        "slower": "Each has cores and memory of its own. But these matrices are so small that the copies to the CPU "
        "cost more than the second GPU saves: try 10000 × 10000, as the book does.",
    }
    return f"The two devices are two GPUs. {ends.get(outcome, 'Each has cores and memory of its own.')}"


def _multiplying(session: Session, variant: str) -> list[str]:
    """The devices that multiplied matrices for a variant."""
    placement = _placement(session, variant)
    return sorted({op.device for op in placement.ops if op.type.endswith(_MULTIPLIES)}) if placement is not None else []


LESSON = Lesson(
    name="placement",
    title="Which op runs where",
    summary="how ops get onto devices, how to see it, and when a second device is worth it",
    order=70,
    parts=(
        Say(
            'TensorFlow names its **devices** `"/cpu:0"`, `"/gpu:0"`, `"/gpu:1"` and so on. Each op runs on one of '
            "them. Left alone, TensorFlow takes the first GPU for every op that has code for one, and the CPU for the "
            "rest. `tf.device` decides otherwise.\n\n"
            "Jordi Torres' book on TensorFlow shows it with two random matrices: A^10 + B^10. In one program both "
            "powers are on one "
            "device. In the other each has a device of its own, and the sum is made on the CPU. This is one power:"
        ),
        Show(Matpow._power, caption="Everything under tf.device(device) is pinned there, its matrix too"),
        Say(
            "With two GPUs in the machine, these are the devices. Otherwise two CPU devices stand in, as the "
            f"scenario asks for:\n\n```toml\n{_SCENARIO}```"
        ),
        Ask(
            "gain",
            "On this machine, compared with one device, two are",
            choices=(_TWICE, _SAME, _SLOWER),
        ),
        Compare(
            "placement",
            {"name": "placement", **tomllib.loads(_SCENARIO)},
            "multiplying matrices on one device and on two",
        ),
        Tell(_tell_placement),
        Tell(_tell_gain),
        Say(
            "Two questions decide about a second device. Does it have cores and memory of its own? And is what it "
            "computes worth more time than carrying the result?"
        ),
    ),
    then=(
        Try("pipeline-bench compare matpow", "the same with every figure"),
        Try("pipeline-bench compare two_layer --log-placement", "which op of the tutorial's network runs where"),
        Try("pipeline-bench lesson replication", "copies of a network on several devices"),
    ),
)
