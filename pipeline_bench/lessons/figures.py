"""What the text of a lesson may ask of a comparison: figures, and sentences that claim no more than was measured.

What has no interval is called unproven, and what is missing has its reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pipeline_bench.analysis import measured
from pipeline_bench.analysis.speedups import references, throughput_over, tie
from pipeline_bench.model.events import Placement
from pipeline_bench.model.result import Interval, Result, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.report import markdown, mean_step
from pipeline_bench.text import NAME, REASON, one_line, units

Outcome = Literal["faster", "slower", "none", "unknown"]
"""What may be said of a throughput beside another.

``none`` says that there is no difference worth having, ``unknown`` that it was not measured well enough to say.
"""

_FEW_DISTURBED = 0.05
"""Of the trials: so few move no figure of a lesson, and no machine is ever wholly quiet."""
_MULTIPLIES = "MatMul"
"""How the type of an op that multiplies matrices ends; on a CPU oneDNN puts its own in place: ``_MklMatMul``."""


@dataclass(frozen=True)
class Comparison:
    """The session of a comparison; ``comparison["tf_data"]`` are the figures of a variant."""

    session: Session

    def __getitem__(self, variant: str) -> VariantFigures:
        return VariantFigures(self.session, variant)

    @property
    def core_count(self) -> int:
        """How many cores the machine let us use."""
        return self.session.environment.cores

    @property
    def cores(self) -> str:
        """``1 core``, ``2 cores``."""
        return units.count(self.core_count, "core")

    @property
    def on_gpu(self) -> bool:
        """Whether the models were trained on a GPU."""
        return self.session.environment.accelerator_kind == "gpu"

    def measured(self, *variants: str) -> str:
        """Return a list item for each of the variants: its mean step time with its interval, or why there is none."""
        chosen = [self[name] for name in variants]
        trials = max((each.result.trials for each in chosen if each.result is not None), default=0)
        interval = ", in brackets the range that holds the true mean 95 times in 100" if trials > 1 else ""
        head = [f"Mean time of a step over {units.count(trials, 'trial')}{interval}:", ""] if trials else []
        return "\n".join([*head, *(each.measured for each in chosen)])

    def losses(self, *variants: str) -> list[str]:
        """Return the losses after the last step, of those variants that have one: ```tf_data` 0.31``."""
        found = [(self[name].label, self[name].result) for name in variants]
        return [
            f"{label} {units.loss(each.loss)}" for label, each in found if each is not None and each.loss is not None
        ]

    @property
    def utilization_table(self) -> str:
        """The variants with their device utilization beside their wait; ceilings are left out."""
        heads = ("variant", "step time", "samples/s", "input wait", "device utilization")
        results = [self.session.result(each) for each in self.session.scenario.variants if not each.is_ceiling]
        rows = [
            [
                result.variant,
                units.milliseconds(result.step_ms.mean),
                units.rate(result.samples_per_second),
                units.share(result.input_wait_share.value),
                units.percent(result.device_utilization.mean_percent),
            ]
            for result in results
        ]
        return markdown.table(heads, rows)

    @property
    def published(self) -> str:
        """The author's figures beside ours, an item a variant; empty where none were published or none were measured.

        A shorter run than the author's is scaled to as many steps, which the text says.
        """
        author = self.session.scenario.published
        both = [(each.variant, each.published) for each in self.session.results if each.published is not None]
        if author is None or not both:
            return ""
        scaled = any(figures.scaled_from_steps is not None for _, figures in both)
        head = f"Published ({author.source}), for {author.steps} steps"
        here = {"cpu": "; the device was a GPU there and is the CPU here", "emulated": "; the device here is emulated"}
        device = here.get(self.session.environment.accelerator_kind, "")
        lines = [f"{head}{', to which our shorter run is scaled' if scaled else ''}{device}:", ""]
        for variant, figures in both:
            parts = []
            if figures.seconds is not None:
                parts.append(f"{units.seconds(figures.seconds)} there, {units.seconds(figures.our_seconds)} here")
            if figures.device_utilization_percent is not None:
                ours = units.percent(figures.our_device_utilization_percent)
                parts.append(f"device busy {units.percent(figures.device_utilization_percent)} there, {ours} here")
            lines.append(f"- {self[variant].label}: {'; '.join(parts)}")
        return "\n".join(lines)

    @property
    def _touched(self) -> set[tuple[str, int]]:
        """The trials that something else disturbed, by variant and repeat."""
        return {(each.variant, each.repeat) for each in self.session.disturbances}

    @property
    def disturbed(self) -> str:
        """That something else used the machine meanwhile, in one sentence; empty where that was seen of few trials."""
        found, touched = self.session.disturbances, self._touched
        if len(touched) <= _FEW_DISTURBED * len(self.session.trials):
            return ""
        worst = max(found, key=lambda each: each.cost_share or 0.0)
        return (
            f"Something else disturbed {units.count(len(touched), 'trial')} of {len(self.session.trials)}: in a trial "
            f"of {self[worst.variant].label} {one_line(worst.text, REASON)}. Run the lesson again when the "
            "machine is quiet."
        )

    @property
    def wholly_disturbed(self) -> bool:
        """Whether a variant has no trial that nothing disturbed: then chance may decide."""
        if not (touched := self._touched):
            return False
        trials, scenario = self.session.trials, self.session.scenario
        undisturbed = {trial.variant for trial in trials if (trial.variant, trial.repeat) not in touched}
        return bool({each.name for each in scenario.variants} - references(scenario) - undisturbed)


@dataclass(frozen=True)
class VariantFigures:
    """The figures of one variant; each is None where it was not measured."""

    session: Session
    name: str

    @property
    def label(self) -> str:
        """The name as text of a page shows it."""
        return f"`{one_line(self.name, NAME)}`"

    @property
    def result(self) -> Result | None:
        """The result, if its figures may be used: some trial went well, and it did the work that it should."""
        found = self._any_result
        return None if found is None or found.step_ms.mean is None or found.work.status == "unequal" else found

    @property
    def _any_result(self) -> Result | None:
        return self.session.find_result(self.name)

    @property
    def outcome(self) -> Outcome:
        """What may be claimed of its throughput over the baseline's."""
        return _claimed(self.result.speedup) if self.result is not None else "unknown"

    @property
    def known(self) -> bool:
        """Whether something may be claimed of its throughput over the baseline's."""
        return self.outcome != "unknown"

    @property
    def times(self) -> float:
        """How many times the baseline's throughput it has; 0 where that was not measured."""
        return (self.result.speedup.value if self.result is not None else None) or 0.0

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of `times`."""
        return self.result.speedup.ci95 if self.result is not None else None

    def beside(self, other: VariantFigures) -> Outcome:
        """Return what may be claimed of its throughput over another variant's, by their ratio round by round."""
        if self.result is None or other.result is None:
            return "unknown"
        scenario = self.session.scenario
        found = measured.of(scenario, self.session.trials, self.session.environment.cores)
        return _claimed(throughput_over(scenario.variant(self.name), scenario.variant(other.name), found))

    @property
    def step_ms(self) -> float | None:
        """The mean time of a step."""
        return self.result.step_ms.mean if self.result is not None else None

    @property
    def wait_ms(self) -> float | None:
        """How long a step waits for its batch."""
        return self.result.input_wait_ms.value if self.result is not None else None

    @property
    def device_ms(self) -> float | None:
        """How long a step takes without any input."""
        return self.result.ceiling_ms.value if self.result is not None else None

    @property
    def host_slowdown_ms(self) -> float | None:
        """What the sharing of the cores costs a step; None also where that could be nothing."""
        share = self.result.host_slowdown_share if self.result is not None else None
        if self.result is None or share is None or share.ci95 is None or share.ci95[0] <= 0:
            return None
        return self.result.host_slowdown_ms.value

    @property
    def busy_percent(self) -> float | None:
        found = self._any_result
        return found.device_utilization.mean_percent if found is not None else None

    @property
    def gain(self) -> str:
        """The throughput over the baseline's, in one sentence that claims no more than the interval does."""
        found, name = self.result, self.label
        if found is None or found.speedup.value is None:
            return f"{name} could not be compared: {self._why_not}."
        over = VariantFigures(self.session, found.speedup.over or "the first").label
        if found.speedup.ci95 is None:
            times = units.ratio(found.speedup.value)
            return f"{name} came to {times} the throughput of {over} in one trial each, which may be chance."
        interval = units.with_ends(units.ratio, found.speedup.value, found.speedup.ci95)
        if found.speedup.difference in ("faster", "slower"):
            probably = "probably " if found.speedup.certainty == "probable" else ""
            return f"{name} is {probably}{found.speedup.difference}: {interval} the throughput of {over}."
        if self.outcome == "none":
            return f"No difference between {name} and {over} was found: {interval} the throughput."
        return f"It is not decided whether {name} is faster than {over}: {interval}. The trials differ too much."

    @property
    def measured(self) -> str:
        """A list item with the mean step time and its interval, that of the throughput; or why it is missing."""
        found = self.result
        if found is None:
            return f"- {self.label}: not measured ({self._why_not})"
        some = f" ({one_line(found.reason, REASON)})" if found.status == "partial" and found.reason else ""
        step = mean_step(found)
        return f"- {self.label}: {units.with_ends(units.milliseconds, step.value, step.ci95)}{some}"

    @property
    def _why_not(self) -> str:
        """Why its figures, or its speed-up, are missing."""
        found = self._any_result
        if found is None:
            return one_line(self.session.scenario.left_out.get(self.name, "it was left out"), REASON).rstrip(".")
        reason = found.work.text if found.work.status == "unequal" else found.reason or found.speedup.reason
        return one_line(reason or "no trial of it ended well", REASON).rstrip(".")

    @property
    def _placement(self) -> Placement | None:
        placements = (trial.placement for trial in self.session.trials_of(self.name))
        return next((each for each in placements if each is not None), None)

    @property
    def placed(self) -> str:
        """A list item for each device that ran its ops, or why they are not known."""
        placement = self._placement
        if placement is None or not placement.ops:
            reason = placement.reason if placement is not None and placement.reason else "no trial of it says"
            return f"- {self.name}: not known ({one_line(reason, REASON)})"
        devices = sorted({op.device for op in placement.ops})
        return "\n".join(f"- {self.name}: {_ran(placement, device)}" for device in devices)

    @property
    def multiplying(self) -> list[str]:
        """The devices that multiplied matrices for it."""
        ops = self._placement.ops if self._placement is not None else ()
        found = {op.device for op in ops if op.type.endswith(_MULTIPLIES)}
        return [f"`{one_line(device, REASON)}`" for device in sorted(found)]

    @property
    def multiplied_on_gpus(self) -> bool:
        """Whether every device that multiplied matrices for it is a GPU."""
        return all("GPU" in device for device in self.multiplying)


def _claimed(speedup: Speedup) -> Outcome:
    """Return what a speed-up proves: a difference, that the two tie, or nothing."""
    if speedup.difference in ("faster", "slower"):
        return speedup.difference
    return "none" if tie(speedup) else "unknown"


def _ran(placement: Placement, device: str) -> str:
    """Return what a device ran: ``CPU:0 ran 18 matrix products (`_MklMatMul`) and 12 other ops``."""
    types = Counter(op.type for op in placement.ops if op.device == device)
    products = {kind: times for kind, times in types.items() if kind.endswith(_MULTIPLIES)}
    others = types.total() - sum(products.values())
    parts = [f"{units.count(times, 'matrix product')} (`{one_line(kind, REASON)}`)" for kind, times in products.items()]
    parts += [units.count(others, "other op" if products else "op")] if others else []
    return f"{one_line(device, REASON)} ran {' and '.join(parts)}"
