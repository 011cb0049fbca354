"""What the selftest trains on a GPU, and what the sessions of these trainings must show. Pure.

Nothing is planted in them but another process: a check has the direction that is expected, where it has no figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline_bench.model.selftest import Check, Part
from pipeline_bench.model.session import Session
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.load import load
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.selftest import cases, judge

FEED, QUEUE, CEILING = "feed_dict", "fifo_queue", "ceiling"
ALONE, BESIDE = "session", "session, beside another process"
_MIRRORED, _POWERS = "mirrored", "matpow"
_LOOPS = {ALONE: {"kind": "session"}, **cases.LOOPS_BESIDE_SESSION}
_TIME_S = 2.0
_MATPOW = {"kind": "matpow", "size": 2048, "power": 200}
"""So many products that a step is theirs by the data sheets of any GPU, and little of it the way of both powers to the
host, where they are added."""
_POWERS_BUSY_PERCENT = 50.0
STARVED_PERCENT, STARVED_WITHIN = 31.0, 5.0
"""The utilization of the tutorial's Titan X under feed_dict, and how many points from it a width may be."""
FIRST_WIDTH, _NARROWEST, _WIDEST = 1024, 16, 2**17
_MOST_WIDTHS = 7
_STRIDE = 8
_NO_TIME = "there was no time for it"


# --- every way to train ----------------------------------------------------------------------------------------------


def every_way(device: str, replicas: int) -> Scenario:
    """Return the comparison of every loop, mirrored replicas, matpow, and a training beside another process.

    Args:
        device: a runtime's.
        replicas: of `mirrored`: as many as there are GPUs, at most 2.
    """
    placed = {"device": device, "log_placement": True}
    common = {"backend": "tf_data", "ceiling": CEILING}
    # The program in C does not report where its ops are.
    runtimes = {name: {"device": device} if loop["kind"] == "native" else placed for name, loop in _LOOPS.items()}
    variants: list[dict[str, Any]] = [
        {"name": name, "loop": loop, "runtime": runtimes[name], **common} for name, loop in _LOOPS.items()
    ]
    mirrored = {**placed, "replicas": replicas, "replication": "mirrored"}
    matpow = {"source": {"kind": "memory", "batch_size": 1, "features": 16}, "model": _MATPOW}
    variants += [
        {"name": _MIRRORED, "backend": "tf_data", "runtime": mirrored},
        {"name": _POWERS, "backend": "tf_data", "runtime": placed, **matpow},
        {"name": BESIDE, "runtime": {"device": device}, **common},
        {"name": CEILING, "backend": CEILING, "loop": {"kind": "while_loop", "steps_per_call": 50}},
    ]
    found = resolve(
        {
            "name": "training on the GPU",
            "question": "Does every way to train work on this GPU?",
            "source": {"kind": "memory", "batch_size": 128, "features": 1024},
            "model": {"kind": "two_layer"},
            "runtime": {"device": device},
            "run": {"time_s": _TIME_S, "repeats": 1},
            "variants": variants,
        }
    )
    # Those of replicas and of matpow are not looked at.
    kept = tuple(variant for variant in found.variants if variant.name == CEILING or not variant.is_ceiling)
    return found.model_copy(update={"variants": kept})


def parts_of_every_way(session: Session, device: str) -> list[Part]:
    """Return the parts of that comparison."""
    known = {variant.name for variant in session.scenario.variants}
    checks = {
        cases.TRAINING: [
            check
            for name in _LOOPS
            if name in known
            for check in (*_trained(session, name, device), _au(session, name))
        ],
        cases.PLACED: [check for name in (*_LOOPS, _MIRRORED, _POWERS) for check in _placed(session, name, device)],
        cases.MIRRORED: list(_trained(session, _MIRRORED, device)),
        cases.MATPOW: [*_trained(session, _POWERS, device), _busy(session, _POWERS, _POWERS_BUSY_PERCENT)],
        cases.NEIGHBOUR: [*_trained(session, BESIDE, device), *_beside(session)],
    }
    taken = judge.taken_during(session, known)
    return [judge.part(name, found, taken) for name, found in checks.items()]


def _trained(session: Session, variant: str, device: str) -> Iterator[Check]:
    """Yield whether it trained on the device, and on the samples that it should."""
    expected = _kind(device)
    trial, result = next(iter(session.trials_of(variant)), None), session.find_result(variant)
    if trial is None or result is None:
        yield Check(what=variant, figure="device", unit="word", planted_word=expected, reason=_NO_TIME)
        return
    found = trial.device.kind if trial.status == "ok" and trial.device is not None else trial.status
    yield judge.word(variant, "device", expected, found, trial.reason)
    if trial.status == "ok" and result.work.status != "not-checked":
        yield judge.word(variant, "work", "equal", result.work.status, result.work.text)


def _au(session: Session, variant: str) -> Check:
    """Return its AU, to be shown: the ceiling is another loop's, which may be the slower one on a GPU."""
    result = session.find_result(variant)
    value = result.accelerator_utilization.value if result is not None else None
    reason = result.accelerator_utilization.reason if result is not None else _NO_TIME
    return Check(what=variant, figure="AU", unit="share", measured=value, reason=None if value is not None else reason)


def _placed(session: Session, variant: str, device: str) -> Iterator[Check]:
    """Yield the check of the device of its matrix products; nothing for a trial that failed, or did not record it."""
    trial = next(iter(session.trials_of(variant)), None)
    if trial is None or trial.status != "ok" or trial.placement is None:
        return
    replicas = session.scenario.variant(variant).runtime.replicas
    planted = ", ".join(f"{_kind(device).upper()}:{number}" for number in range(replicas))
    found = ", ".join(sorted({op.device for op in trial.placement.ops if "MatMul" in op.type}))
    reason = trial.placement.reason or f"its matrix products were on {found or 'no device'}"
    yield judge.word(variant, "matrix products", planted, found, reason)


def _beside(session: Session) -> Iterator[Check]:
    """Yield whether the other process was noticed, and what it cost."""
    alone, beside = session.find_result(ALONE), session.find_result(BESIDE)
    if beside is None or beside.status != "ok":
        return
    noticed = {each.variant for each in session.disturbances if each.kind == "gpu-contention"}
    others = ALONE in noticed
    reason = "without it, too, another process had the GPU open" if others else _why_unlisted(session)
    word = "noticed" if BESIDE in noticed else "unnoticed"
    check = judge.word("another process", "disturbance", "noticed", word, reason or "NVML listed no second process")
    # What NVML lists no processes of, as in some containers, is no fault of the program.
    unknown = others or (reason is not None and word != "noticed")
    yield check.model_copy(update={"passed": None}) if unknown else check
    slower = alone.step_ms.mean if alone is not None else None
    yield _above("step beside another process", "over alone", "ratio", 1.0, _ratio(beside.step_ms.mean, slower))


def _why_unlisted(session: Session) -> str | None:
    """Return why NVML listed no process at all beside the other process; None where it listed some."""
    trial = next(iter(session.trials_of(BESIDE)), None)
    tracks = [track for track in (trial.samples if trial is not None else ()) if track.metric == "device_processes"]
    if any(track.values is not None and track.values.unpack().max(initial=0) > 0 for track in tracks):
        return None
    return next((track.reason for track in tracks if track.reason), "NVML listed no process, not the trial's own")


# --- the tutorial ----------------------------------------------------------------------------------------------------


def tutorial(device: str, width: int, steps: int) -> Scenario:
    """Return the tutorial's comparison with one hidden layer of that width; of another one than its own, of its two."""
    if width == FIRST_WIDTH:
        return load("two_layer", [f"runtime.device={device}"], run={"steps": steps, "repeats": 1})
    overrides = [f"runtime.device={device}", f"model.hidden_widths=[{width}]"]
    return load("two_layer", overrides, backends=[FEED, QUEUE], run={"steps": steps, "repeats": 1})


def part_of_tutorial(name: str, session: Session, device: str, before: Sequence[Check] = ()) -> Part:
    """Return the part of that comparison, behind the checks of what came before it."""
    names = {variant.name for variant in session.scenario.variants}
    checks = (*before, *_checks_of_tutorial(session, device))
    return judge.part(name, checks, judge.taken_during(session, names))


def _checks_of_tutorial(session: Session, device: str) -> Iterator[Check]:
    """Yield the checks that every variant trained, and that the queue raised the GPU's utilization and the speed."""
    names = [variant.name for variant in session.scenario.variants if not variant.is_ceiling]
    for name in names:
        yield from _trained(session, name, device)
    feed = _percent(session, FEED)
    for name in names:
        yield _busy(session, name, feed if name == QUEUE else None)
    found = {name: result.speedup.value for name in names if (result := session.find_result(name)) is not None}
    for name in names[1:]:
        yield _above(name, "speed-up", "ratio", 1.0 if name == QUEUE else None, found.get(name))


def searching(device: str) -> Scenario:
    """Return the search's first training; the others are made of it by `with_width`."""
    found = load(
        "two_layer",
        [f"runtime.device={device}", f"model.hidden_widths=[{FIRST_WIDTH}]"],
        backends=[FEED],
        run={"time_s": _TIME_S, "repeats": 1},
    )
    kept = tuple(variant for variant in found.variants if not variant.is_ceiling)
    return found.model_copy(update={"variants": kept, "published": None})


def with_width(scenario: Scenario, width: int) -> Scenario:
    """Return the search with a variant of that width behind the others."""
    first = scenario.variants[0]
    model = first.model.model_copy(update={"options": {**first.model.options, "hidden_widths": [width]}})
    added = first.model_copy(update={"name": f"{FEED}, {width} units", "model": model})
    return scenario.model_copy(update={"variants": (*scenario.variants, added)})


def utilizations(session: Session) -> dict[int, float]:
    """Return the GPU's utilization by width, as searched so far; 100 % for a width that did not fit on the GPU."""
    found: dict[int, float] = {}
    for variant in session.scenario.variants:
        result = session.find_result(variant.name)
        if result is None or result.status == "pending":
            continue
        percent = result.device_utilization.mean_percent
        if percent is not None:
            found[variant.model.options["hidden_widths"][0]] = percent
        elif found and result.status != "ok":
            found[variant.model.options["hidden_widths"][0]] = 100.0
    return found


def next_width(found: Mapping[int, float]) -> int | None:
    """Return the width to try next: a wider layer keeps the GPU busier; None where one is near, or none will be."""
    if any(abs(percent - STARVED_PERCENT) <= STARVED_WITHIN / 2 for percent in found.values()):
        return None
    if len(found) >= _MOST_WIDTHS:
        return None
    below = max((width for width, percent in found.items() if percent < STARVED_PERCENT), default=None)
    above = min((width for width, percent in found.items() if percent >= STARVED_PERCENT), default=None)
    if above is None:
        wanted = _WIDEST if below is None else min(_WIDEST, below * _STRIDE)
    elif below is None or below > above:
        wanted = max(_NARROWEST, above // _STRIDE)
    else:
        wanted = _between(below, above, found)
    return None if wanted in found else wanted


def _between(below: int, above: int, found: Mapping[int, float]) -> int:
    """Return the width on the straight line between two, of logarithms; not too close to either, since it is none."""
    low, high = max(found[below], 1.0), max(found[above], STARVED_PERCENT + 1)
    part = math.log(STARVED_PERCENT / low) / math.log(high / low)
    return round(below * math.pow(above / below, min(0.8, max(0.2, part))))


def nearest_width(found: Mapping[int, float]) -> int | None:
    """Return the width whose utilization was the nearest; None where none was measured."""
    return min(found, key=lambda width: abs(found[width] - STARVED_PERCENT), default=None)


def check_of_search(session: Session, width: int | None) -> Check:
    """Return how near the search came."""
    percent = utilizations(session).get(width) if width is not None else None
    what = f"{FEED}, {width} units" if width is not None else FEED
    reasons = [result.reason or result.device_utilization.reason for result in session.results]
    reason = next(filter(None, reasons), _NO_TIME)
    return judge.judged(what, "utilization", "percent", STARVED_PERCENT, percent, STARVED_WITHIN, reason)


# --- figures ---------------------------------------------------------------------------------------------------------


def _kind(device: str) -> str:
    return "cpu" if device == "cpu" else "gpu"


def _percent(session: Session, variant: str) -> float | None:
    result = session.find_result(variant)
    return result.device_utilization.mean_percent if result is not None else None


def _busy(session: Session, variant: str, above: float | None) -> Check:
    """Return the GPU's utilization, which is to be above a line; shown where there is none."""
    result = session.find_result(variant)
    reason = result.device_utilization.reason if result is not None else None
    return _above(variant, "utilization", "percent", above, _percent(session, variant), reason)


def _above(
    what: str, figure: str, unit: Any, line: float | None, measured: float | None, reason: str | None = None
) -> Check:
    shown = {"percent": "> {:.1f} %", "ratio": "> {:.2f}×"}[unit]
    return Check(
        what=what,
        figure=figure,
        unit=unit,
        planted_word="" if line is None else shown.format(line),
        measured=measured,
        passed=None if line is None or measured is None else measured > line,
        reason=reason or (None if measured is not None else "it was not measured"),
    )


def _ratio(number: float | None, over: float | None) -> float | None:
    return number / over if number is not None and over else None
