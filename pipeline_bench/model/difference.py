"""What changed between two sessions of one scenario: the nouns. `between` makes them, reports render them.

`Difference` is also the form of ``pipeline-bench diff -f json`` and as such a contract: fields are added, but not
renamed or given another meaning without a new `schema_version`.
"""

from __future__ import annotations

from typing import Literal

from pipeline_bench.model import Record
from pipeline_bench.model.result import Disturbance, Interval, VerdictKind
from pipeline_bench.text import Line, Text

Outcome = Literal["passed", "failed", "undecided"]


class Side(Record):
    """One of the two sessions: where it was read from, and what it says of itself."""

    path: Text
    scenario: Line
    started_at: Line
    command: Text
    package: Line


class Condition(Record):
    """Something that is not the same in both sessions and makes the comparison unfair.

    `variants` are those it holds for; none for the machine and the versions, which hold for all.
    """

    name: Line
    before: Line
    after: Line
    variants: tuple[Line, ...] = ()


class Noise(Record):
    """A disturbance that one of the sessions recorded."""

    side: Literal["before", "after"]
    disturbance: Disturbance


class Ratio(Record):
    """A time after ÷ before: 1.05 is 5 % slower; or the reason why there is none.

    `difference` is what may be claimed, at `thresholds.CLAIM_CONFIDENCE`, and `certainty` how sure that is: certain
    from `thresholds.CERTAIN_CLAIM` on; None where nothing is claimed. `smallest` is the least relative change that
    these runs could have found. `difference` and `smallest` are None where there is no interval, and `reason` says why
    there is none. `ci95` is the interval to show.
    """

    value: float | None = None
    ci95: Interval | None = None
    difference: Literal["faster", "slower", "none"] | None = None
    certainty: Literal["certain", "probable"] | None = None
    smallest: float | None = None
    reason: Line | None = None


class Shift(Record):
    """A share in both sessions, 0 to 1, and its change with a 95 % interval; or the reason why there is none."""

    before: float | None = None
    after: float | None = None
    change: float | None = None
    ci95: Interval | None = None
    reason: Line | None = None


class VariantChange(Record):
    """One variant of both sessions.

    `step_ms_before` and `step_ms_after` are geometric means over the trials of their mean step times, warm-up left
    out, so that their quotient is `step_time`. `beside_ceiling` is the same ratio with every trial's step time in units
    of the ceiling trial beside it: what is left of the change when that of the machine is taken out. It has no value
    where the two ceilings did different jobs.
    """

    variant: Line
    is_ceiling: bool
    ceilings_differ_in: tuple[Line, ...] = ()
    """What is not the same in the jobs of its ceilings, by the keys of a scenario file; of a ceiling, in its own."""
    step_ms_before: float | None = None
    step_ms_after: float | None = None
    step_time: Ratio = Ratio()
    beside_ceiling: Ratio = Ratio()
    accelerator_utilization: Shift = Shift()
    input_wait_share: Shift = Shift()
    verdict_before: VerdictKind
    verdict_after: VerdictKind
    verdict_words_before: Line
    """The verdict in brief: ``input-bound``, with a ``?`` where it is only probable."""
    verdict_words_after: Line
    text: Line
    """All of it in one plain sentence."""

    @property
    def measured_in_both(self) -> bool:
        """Whether both sessions have its step time; where it is of other devices, there is no ratio all the same."""
        return self.step_ms_before is not None and self.step_ms_after is not None


class Gate(Record):
    """A demand on a variant, and what became of it.

    `only_undecided` is true where it failed for no other reason than that undecided gates were to fail.
    """

    name: Literal["slower", "au-below"]
    limit: float
    """As a share: 0.05 for 5 %."""
    variant: Line
    outcome: Outcome
    only_undecided: bool = False
    text: Line


class Difference(Record):
    """Everything that two sessions say when held against each other."""

    schema_version: Literal[1] = 1
    before: Side
    after: Side
    conditions: tuple[Condition, ...] = ()
    disturbances: tuple[Noise, ...] = ()
    only_before: tuple[Line, ...] = ()
    only_after: tuple[Line, ...] = ()
    variants: tuple[VariantChange, ...] = ()
    hosts: tuple[Line, ...] = ()
    """Of two merged sessions: by variant and number of hosts, what became of the efficiency and of the verdict."""
    gates: tuple[Gate, ...] = ()

    @property
    def machine(self) -> tuple[VariantChange, ...]:
        """The ceilings: where they did the same job in both sessions, their change is the machine's own."""
        return tuple(change for change in self.variants if change.is_ceiling)

    @property
    def outcome(self) -> Outcome | None:
        """The gates together: failed if one failed, else undecided if one is; None where there are none."""
        outcomes = {gate.outcome for gate in self.gates}
        if not outcomes:
            return None
        return "failed" if "failed" in outcomes else "undecided" if "undecided" in outcomes else "passed"
