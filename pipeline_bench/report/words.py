"""The sentences that every report of a session shares, so that they say the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pipeline_bench.analysis import validity
from pipeline_bench.analysis.speedups import smallest
from pipeline_bench.model.result import BUSY_TIME, Result
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import one_line, units

_OVERRUN = 1.05
"""A median busy time of so many times what was asked for is worth a word; waits come out right within 2 %."""


def no_difference(result: Result) -> str:
    """That a speed-up is none that this run could tell, and what it could have told; on one line."""
    over = one_line(result.speedup.over or "the baseline", 48)
    return f"No difference from {over} found ({smallest(result.speedup)})."


def machine(session: Session) -> str:
    """The accelerator and the machine around it; an emulated accelerator is called that, and the host is named."""
    around = session.environment
    emulated = around.accelerator_kind == "emulated"
    facts = [around.cpu if emulated else around.accelerator_name, units.count(around.cores, "core")]
    facts += [f"driver {around.driver}"] if around.driver and not emulated else []
    facts += [f"TensorFlow {around.tensorflow}"] if around.tensorflow else []
    told = ", ".join([*facts, f"Python {around.python}"])
    if emulated:
        return f"{around.accelerator_name}; the host is this machine: {told}"
    return f"{around.accelerator_kind.upper()}: {told}"


def busy_time(session: Session) -> str | None:
    """How the utilization of emulated devices was had, and of which variants it is; None where there is none."""
    emulated = [result for result in session.results if result.device_utilization.source == BUSY_TIME]
    if not emulated:
        return None
    who = "" if len(emulated) == len(session.results) else " of " + _names(emulated)
    told = f"emul. util.{who}: how long the emulated device was busy ÷ wall time; no device was measured"
    late = [f"{name}'s {took}" for name, took in _overrun(session)]
    return f"{told}; busy longer than it was to be, on a host that did not keep up: {', '.join(late)}" if late else told


def _overrun(session: Session) -> Iterator[tuple[str, str]]:
    """The variants whose device was busy longer than asked for, each with how long it was, and was to be."""
    for variant in session.scenario.variants:
        step_ms = variant.model.options.get("step_ms")
        columns = [trial.steps.busy_ns for trial in session.trials if trial.variant == variant.name and trial.steps]
        busy_ms = [column.unpack() / 1e6 for column in columns if column is not None and column.count]
        if step_ms and busy_ms and (median := float(np.median(np.concatenate(busy_ms)))) > _OVERRUN * step_ms:
            yield one_line(variant.name, 48), f"{units.milliseconds(median)} a step, not {step_ms:g} ms"


def other_device(session: Session) -> str | None:
    """Whose our utilization is where it is of another kind than an author's, which is a GPU's; None where it is not."""
    kinds: dict[str, str | None] = {"cpu": "the CPU's", "emulated": "an emulated device's", "gpu": None}
    return kinds[session.environment.accelerator_kind]


def storage(session: Session) -> list[tuple[str, str]]:
    """What was in the page cache where files were read: a line for those variants that asked for the same."""
    asked: dict[str, list[TrialRecord]] = {}
    for trial in session.trials:
        if trial.storage is not None and trial.measured:
            asked.setdefault(trial.storage.asked, []).append(trial)
    heads = {"as-is": "files as they were found", "cold": "cold asked", "warm": "warm asked"}
    lines = []
    for state, trials in asked.items():
        names = dict.fromkeys(one_line(trial.variant, 48) for trial in trials)
        who = f" of {_listed(names)}" if len(asked) > 1 else ""
        lines.append((f"{heads[state]}{who}", validity.describe_cache(trials) or ""))
    return lines


def left_out(session: Session) -> list[tuple[str, str]]:
    """The records that were skipped, how many and the first by name; a line for variants that skipped the same."""
    skipped: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for trial in session.trials:
        if trial.work is not None and trial.work.skipped_records:
            names = skipped.setdefault((trial.work.skipped, trial.work.skipped_records), [])
            names += [trial.variant] if trial.variant not in names else []
    everyone = len({trial.variant for trial in session.trials if trial.work is not None})
    lines = []
    for (count, records), names in skipped.items():
        who = "every variant" if len(names) == everyone else _listed([one_line(name, 48) for name in names])
        first = "; ".join(record.rstrip(".") for record in records)
        lines.append(
            (who, f"{units.count(count, 'record')}, the first of them: {first}" if count > len(records) else first)
        )
    return lines


def _names(results: Sequence[Result]) -> str:
    return _listed([one_line(result.variant, 48) for result in results])


def _listed(names: Iterable[str]) -> str:
    """``a, b``; ``a, 1; a, 2`` where names have commas of their own."""
    told = tuple(names)
    return ("; " if any("," in name for name in told) else ", ").join(told)
