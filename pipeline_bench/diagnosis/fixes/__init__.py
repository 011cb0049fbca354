"""The kinds of fixes: one file each, found by listing this folder, and what of them is worth a try.

A kind looks at the stages and says which edits could help. What TensorFlow does by default is no fix. Whether one helps
is never said here: that is measured.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

from pipeline_bench.diagnosis import segments
from pipeline_bench.diagnosis.segments import NS_PER_MS, Segments
from pipeline_bench.model.diagnosis import Attempt, Bottleneck, Fix
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import one_line, units

WORTH = 0.03
"""A fix that cannot gain more than this share of the time is not tried: it could hardly be told from none."""
_NAME_CHARACTERS = 40
_VARIANT_CHARACTERS = 60
_BESIDE = 0.3
"""What the promise of a fix is worth whose stages run beside the segment that limits the pipeline."""


@dataclass(frozen=True)
class Context:
    """What the candidates depend on beside the pipeline itself."""

    cores: int
    gpu: bool = False
    model: bool = False
    allow_reordering: bool = False
    allow_threads: bool = False
    bottleneck: Bottleneck = field(default_factory=Bottleneck)
    as_written_ms: float | None = None
    free_memory_bytes: float | None = None
    """What a cache in memory may take; None where it is not known."""
    no_servers: str | None = None
    """Why no trial may start servers of TensorFlow's; None where it may."""


class FixKind(ABC):
    """A way to make a pipeline faster."""

    name: ClassVar[str]
    """The name of its file."""
    promise: ClassVar[float]
    """How much of its stages' time it usually saves, 0 to 1: only decides which fix is tried first."""

    @abstractmethod
    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        """The fixes of this kind whose edits fit the pipeline."""

    def hindrance(self, fix: Fix, inspection: Inspection, context: Context) -> str | None:
        """Why the fix cannot be tried here at all, in one sentence without its full stop; None where it can."""
        return None

    def fix(
        self,
        inspection: Inspection,
        variant: str,
        title: str,
        *edits: object,
        stages: Iterable[int] = (),
        reorders: bool = False,
        threads: bool = False,
        because: str = "",
    ) -> Fix:
        """A fix of this kind. `variant` and `title` may hold what the user wrote."""
        return Fix.model_validate(
            {
                "kind": self.name,
                "variant": one_line(variant, _VARIANT_CHARACTERS),
                "title": one_line(title),
                "edits": edits,
                "stages": tuple(stages),
                "reorders": reorders,
                "threads": threads,
                "because": because,
            }
        )


@cache
def kinds() -> tuple[FixKind, ...]:
    """One of each kind, by name."""
    found = []
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, FixKind)]
        found += [kind() for kind in classes if kind.__module__ == module.__name__]
    return tuple(found)


def attempts(inspection: Inspection, context: Context) -> tuple[Attempt, ...]:
    """Every candidate with a name of its own, the most promising first; those that are not tried say why."""
    parts = segments.of(inspection, context.cores)
    ranked: list[tuple[float, Attempt]] = []
    for kind in kinds():
        for fix in kind.candidates(inspection, context):
            reason = _not_tried(kind, fix, inspection, context, parts)
            attempt = Attempt(fix=fix, outcome="not-tried" if reason else "pending", reason=reason or "")
            ranked.append((_rank(kind, fix, parts, context), attempt))
    ranked.sort(key=lambda each: -each[0])
    return _named_apart([attempt for _, attempt in ranked], inspection)


def could_save(stages: Collection[int], parts: Segments, as_written_ms: float | None) -> float | None:
    """Which share of the time the stages take at most, 0 to 1; None where one of them was not measured."""
    period_ns = parts.period_ns if as_written_ms is None else as_written_ms * NS_PER_MS
    if not stages or period_ns <= 0 or any(stage not in parts.elapsed_ns for stage in stages):
        return None
    return min(1.0, parts.cost_ns(stages) / period_ns)


def short(stage: Stage) -> str:
    """What to call a stage in a title: its function's name, or its method's."""
    name = stage.function.name if stage.function is not None else stage.method
    return one_line(name, _NAME_CHARACTERS)


def _not_tried(kind: FixKind, fix: Fix, inspection: Inspection, context: Context, parts: Segments) -> str | None:
    if (hindrance := kind.hindrance(fix, inspection, context)) is not None:
        return f"{hindrance}."
    if (held := _held_back(fix, context)) is not None:
        return held
    share = could_save(fix.stages, parts, context.as_written_ms)
    if share is not None and share < WORTH:
        names = ", ".join(short(inspection.stage(number)) for number in fix.stages[:3])
        took = f"{names} takes" if len(fix.stages) == 1 else f"{names} take"
        return f"{took} {units.share(share)} of the time: there is next to nothing to gain."
    return None


def _held_back(fix: Fix, context: Context) -> str | None:
    """What the fix needs that the user has not allowed, and the options that allow it."""
    reorders, threads = fix.reorders and not context.allow_reordering, fix.threads and not context.allow_threads
    if reorders and threads:
        does = "may change the order of the samples, and calls a function on several threads"
        return f"{does}; --allow-reordering and --allow-threads together try it."
    if reorders:
        return "may change the order of the samples; --allow-reordering tries it."
    if threads:
        return "keeps the order of the samples, and calls a function on several threads; --allow-threads tries it."
    return None


def _rank(kind: FixKind, fix: Fix, parts: Segments, context: Context) -> float:
    share = could_save(fix.stages, parts, context.as_written_ms)
    if share is None:
        return kind.promise * 0.1
    limiting = parts.cores_limit or any(stage in parts.longest for stage in fix.stages)
    return kind.promise * share * (1.0 if limiting else _BESIDE)


def _named_apart(found: list[Attempt], inspection: Inspection) -> tuple[Attempt, ...]:
    """The attempts with names that differ: the same function in two places is told by its line, else by a number."""
    names = [attempt.fix.variant for attempt in found]
    used: set[str] = set()
    apart = []
    for attempt in found:
        name = base = attempt.fix.variant
        place = inspection.stage(attempt.fix.stages[0]).place if attempt.fix.stages else None
        if names.count(base) > 1 and place is not None:
            name = base = f"{base}, line {place.line}"
        number = 2
        while name in used:
            name, number = f"{base} #{number}", number + 1
        used.add(name)
        apart.append(attempt.model_copy(update={"fix": attempt.fix.model_copy(update={"variant": name})}))
    return tuple(apart)
