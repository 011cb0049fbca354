"""What a diagnosis is worth: whether it named the right stage, and how its proposal compares with the expert. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.diagnose.planted import Planted
from pipeline_bench.model.diagnosis import AS_WRITTEN, Diagnosis
from pipeline_bench.model.edits import Edit
from pipeline_bench.model.session import Session
from pipeline_bench.model.task import Task
from pipeline_bench.scenario import Component, Scenario, Variant

PROPOSAL = "proposal"
EXPERT = "expert"
EXPERT_FUNCTION = "expert"

GOAL_RIGHT = 0.95
GOAL_REACHED = 0.90
"""Of the expert's throughput, in `GOAL_SHARE` of the pipelines."""
GOAL_SHARE = 0.80
SLOWER = 0.97
"""A proposal with less than this share of the throughput as written is slower: two drains of the same pipeline lie
within 3 % of each other."""

LEAST_FAULT = 1.3
"""A fault that costs less than this on the machine at hand, by the expert's speed-up, is none there: which stage is at
fault is then no question. Such a pipeline is told, and counts only among those that were made slower."""

TURN_S = 1.5
WARM_S = 3.0
"""Before each drain: long enough for every pipeline here to fill a cache of its own."""


@dataclass(frozen=True)
class Score:
    """What became of one pipeline. Speed-ups are over the pipeline as written, measured beside it after the search."""

    name: str
    expected: tuple[str, ...]
    named: str | None
    """The label of the stage that was named."""
    right: bool
    proposal: str | None
    """The variant that was proposed."""
    speedup: float | None
    """Of the proposal; 1 where nothing was proposed."""
    expert_speedup: float | None
    diagnose_s: float
    """Wall time of the command."""
    failure: str | None = None

    @property
    def reached(self) -> float | None:
        """The proposal's throughput over the expert's; None where one of them was not measured."""
        if self.speedup is None or not self.expert_speedup:
            return None
        return self.speedup / self.expert_speedup

    @property
    def counts(self) -> bool:
        """Whether the planted fault is one on this machine; where the expert was not measured, that is our failure."""
        return self.expert_speedup is None or self.expert_speedup >= LEAST_FAULT

    @property
    def slower(self) -> bool:
        """Whether what was proposed is slower than the pipeline as written."""
        return self.proposal is not None and self.speedup is not None and self.speedup < SLOWER


def score(planted: Planted, diagnosed: Session | None, measured: Session | None, diagnose_s: float) -> Score:
    """Judge a diagnosis.

    Args:
        planted: what is wrong with the pipeline.
        diagnosed: the session of the diagnosis; None where there is none.
        measured: the session of `scenario`; None where it could not be run.
        diagnose_s: how long the diagnosis took.
    """
    diagnosis = diagnosed.diagnosis if diagnosed is not None else None
    named = named_stage(diagnosis)
    return Score(
        name=planted.name,
        expected=tuple(sorted(planted.labels)),
        named=named,
        right=named in planted.labels,
        proposal=diagnosis.proposal if diagnosis is not None else None,
        speedup=_speedup(measured, PROPOSAL) if diagnosis is not None and diagnosis.proposal else 1.0,
        expert_speedup=_speedup(measured, EXPERT),
        diagnose_s=diagnose_s,
        failure="there is no diagnosis" if diagnosis is None else diagnosis.failure,
    )


def named_stage(diagnosis: Diagnosis | None) -> str | None:
    """The label of the stage that is said to limit the pipeline, where one is."""
    if diagnosis is None or diagnosis.inspection is None or diagnosis.bottleneck is None:
        return None
    stage = diagnosis.bottleneck.stage
    return None if stage is None else diagnosis.inspection.stage(stage).label


def scenario(session: Session, repeats: int) -> Scenario:
    """The three to measure side by side, by the program's own trials: as written, the proposal's edits, the expert's.

    Raises:
        ValueError: the session holds no diagnosis.
    """
    diagnosis = session.diagnosis
    if diagnosis is None:
        raise ValueError("the session holds no diagnosis")
    variants = [_variant(session, AS_WRITTEN, "", (), repeats)]
    if diagnosis.proposal is not None:
        edits = diagnosis.attempt(diagnosis.proposal).fix.edits
        variants.append(_variant(session, PROPOSAL, "", edits, repeats))
    variants.append(_variant(session, EXPERT, EXPERT_FUNCTION, (), repeats))
    return Scenario(name="diagnose", variants=tuple(variants))


def _variant(session: Session, name: str, function: str, edits: tuple[Edit, ...], repeats: int) -> Variant:
    """The session's variant as written with another task: what a trial does is the same for all three."""
    base = session.scenario.variant(AS_WRITTEN)
    task = Task.model_validate(base.source.options)
    target = task.target.model_copy(update={"name": function}) if function else task.target
    task = task.model_copy(
        update={"activity": "drain", "target": target, "edits": edits, "warmup_s": WARM_S, "fingerprint": False}
    )
    source = Component(kind=base.source.kind, options=task.model_dump(mode="json"))
    run = base.run.model_copy(update={"steps": None, "time_s": TURN_S, "repeats": repeats})
    return base.model_copy(update={"name": name, "source": source, "run": run, "ceiling": None})


def _speedup(session: Session | None, variant: str) -> float | None:
    if session is None:
        return None
    try:
        return session.result(variant).speedup.value
    except KeyError:
        return None


HEAD = (
    f"{'pipeline':<28} {'stage named':<28} {'right':<5} {'proposal':>9} {'expert':>9} {'of expert':>9} {'time':>6}"
    "  what is proposed"
)


def row(score: Score) -> str:
    """A line of the table."""
    right = "yes" if score.right else "NO"
    slower = "  SLOWER" if score.slower else ""
    reached = "–" if score.reached is None else f"{score.reached:.0%}"
    return (
        f"{score.name:<28} {score.named or '–':<28.28} {right:<5} {_times(score.speedup):>9}"
        f" {_times(score.expert_speedup):>9} {reached:>9} {score.diagnose_s:>4.0f} s"
        f"  {score.failure or score.proposal or 'nothing'}{slower}"
    )


def _times(speedup: float | None) -> str:
    return "–" if speedup is None else f"{speedup:.2f} ×"


def summary(scores: Sequence[Score]) -> str:
    """The three rates beside their goals. What was not measured counts against a rate."""
    if not scores:
        return "no pipeline was diagnosed"
    counted = [score for score in scores if score.counts]
    count = max(1, len(counted))
    right = sum(score.right for score in counted)
    reached = sum((score.reached or 0.0) >= GOAL_REACHED for score in counted)
    slower = [score.name for score in scores if score.slower]
    unknown = [score.name for score in scores if score.proposal is not None and score.speedup is None]
    lines = [
        f"right stage named: {right} of {count}, {right / count:.0%} (goal: {GOAL_RIGHT:.0%})",
        f"at least {GOAL_REACHED:.0%} of the expert's throughput: {reached} of {count}, {reached / count:.0%}"
        f" (goal: {GOAL_SHARE:.0%})",
        f"proposals slower than the pipeline as written: {len(slower)}{_names(slower)} (goal: none)",
    ]
    small = [score.name for score in scores if not score.counts]
    if small:
        lines.append(f"faults that cost less than {LEAST_FAULT:.1f} × here, not counted: {len(small)}{_names(small)}")
    if unknown:
        lines.append(f"proposals that could not be measured again: {len(unknown)}{_names(unknown)}")
    lines.append(f"wall time of the diagnoses: {sum(score.diagnose_s for score in scores) / 60:.0f} minutes")
    return "\n".join(lines)


def _names(names: Sequence[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def append(score: Score, file: Path) -> None:
    """Add a line to the file."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(score)) + "\n")


def load(file: Path) -> list[Score]:
    """The scores in the file, none where there is no such file; of a pipeline that is in it twice, the later one.

    Raises:
        ValueError: a line is not one of `append`.
    """
    if not file.exists():
        return []
    found: dict[str, Score] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        values: Any = json.loads(line)
        if not isinstance(values, dict) or values.keys() != {field.name for field in fields(Score)}:
            raise ValueError(f"{file}, line {number} is no score of this benchmark")
        values["expected"] = tuple(values["expected"])
        found[values["name"]] = Score(**values)
    return list(found.values())
