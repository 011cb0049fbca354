"""A pipeline's stages as a chain: who comes before and after whom, which candidates are made from."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.tfdata import ratios

READERS = frozenset(
    {"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset", "CsvDataset", "SqlDataset", "load"}
)
"""The methods and classes that read files."""
RANDOM = frozenset({"shuffle", "sample_from_datasets", "rejection_resample", "random"})


def consumers(inspection: Inspection, stage: Stage) -> list[Stage]:
    """The stages that take their elements from this one."""
    return [other for other in inspection.stages if stage.id in other.inputs]


def after(inspection: Inspection, stage: Stage) -> Stage | None:
    """The one stage behind this one; None behind the sink, and where several take from it."""
    found = consumers(inspection, stage)
    return found[0] if len(found) == 1 and stage.id != inspection.sink else None


def before(inspection: Inspection, stage: Stage) -> Stage | None:
    """The one stage in front of this one; None of a source, and of a stage with several inputs."""
    return _known(inspection, stage.inputs[0]) if len(stage.inputs) == 1 else None


def maps_before(inspection: Inspection, stage: Stage) -> list[Stage]:
    """The unbroken run of maps right in front of a stage, upstream first."""
    run: list[Stage] = []
    found = before(inspection, stage)
    while found is not None and found.method == "map" and len(consumers(inspection, found)) == 1:
        run.insert(0, found)
        found = before(inspection, found)
    return run


def maps_after(inspection: Inspection, stage: Stage) -> list[Stage]:
    """The unbroken run of maps right behind a stage, upstream first."""
    run: list[Stage] = []
    found = after(inspection, stage)
    while found is not None and found.method == "map":
        run.append(found)
        found = after(inspection, found)
    return run


def any_order(inspection: Inspection, stage: Stage) -> bool:
    """Whether a stage that runs in parallel gives what is ready first, because the user asked for it."""
    options = [one.arguments.get("deterministic") for one in inspection.stages if one.method == "with_options"]
    return stage.arguments.get("deterministic", options[-1] if options else None) is False


def upstream(inspection: Inspection, stage: Stage) -> tuple[int, ...]:
    """The ids of a stage and of all that it depends on."""
    found: list[int] = []
    waiting = [stage.id]
    while waiting:
        number = waiting.pop()
        known = _known(inspection, number)
        if known is not None and number not in found:
            found.append(number)
            waiting += known.inputs
    return tuple(sorted(found))


def trunk(inspection: Inspection) -> list[Stage]:
    """From the sink up to the first stage with several inputs, or none: what all elements pass, sink first."""
    found = _known(inspection, inspection.sink)
    run: list[Stage] = []
    while found is not None and found not in run:
        run.append(found)
        found = before(inspection, found)
    return run


def endless(inspection: Inspection, stage: Stage) -> bool:
    """Whether the stage's elements never end by what is known of the stages: a repeat without a count, a counter."""
    return ratios.endless(inspection.stages, stage.id)


def reads_files(stage: Stage) -> bool:
    """Whether the stage reads files itself, or what it opens for each element does."""
    return stage.method in READERS or any(reads_files(inner) for inner in stage.inner)


def random(stage: Stage) -> bool:
    """Whether what the stage gives, or its order, may differ from epoch to epoch, by what its graph and method tell."""
    if stage.function is not None and stage.function.random:
        return True
    if stage.method == "list_files":
        return stage.arguments.get("shuffle") is not False
    return stage.method in RANDOM or any(random(inner) for inner in stage.inner)


def pairs(inspection: Inspection, first: str, second: str) -> Iterator[tuple[Stage, Stage]]:
    """Each stage of the one method with one of the other right behind it."""
    for stage in inspection.stages:
        behind = after(inspection, stage)
        if stage.method == first and behind is not None and behind.method == second:
            yield stage, behind


def _known(inspection: Inspection, number: int) -> Stage | None:
    return next((stage for stage in inspection.stages if stage.id == number), None)
