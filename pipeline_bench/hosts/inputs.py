"""What a session says of each of its inputs: what one, two, … hosts or workers of it gave, beside which step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import geometric_mean, mean, median

from pipeline_bench import plugins
from pipeline_bench.analysis import capacity, measured, stats, thresholds, validity
from pipeline_bench.analysis.capacity import Point
from pipeline_bench.analysis.measured import ByVariant
from pipeline_bench.analysis.speedups import batch_size
from pipeline_bench.hosts import efficiency
from pipeline_bench.hosts.efficiency import Span
from pipeline_bench.model import task
from pipeline_bench.model.diagnosis import PROVEN
from pipeline_bench.model.hosts import HostsResult, Range, Unit
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import OnHosts, Variant
from pipeline_bench.text import grouped

_SERVICE = "tf_data_service"
_STORAGE = "storage"


@dataclass(frozen=True)
class MeasuredInput:
    """One input pipeline, as it was measured.

    Attributes:
        name: the variant's, of several numbers of workers that of the first.
        members: its name, and those of the variants that it was measured by.
        unit: what its numbers count.
        variant: the first of those.
        points: what it gave, by count.
        busy_ms: how long a step took beside its wait.
        own_step_ms: the ceiling's; None where there is no model.
        host_ms: the host's own part of a step.
        shares: what hosts may share of it, see `shared_by_hosts`.
        cached: whether what it read came from the page cache, see `read_from_cache`.
    """

    name: str
    members: tuple[str, ...]
    unit: Unit
    variant: Variant
    points: tuple[Point, ...]
    busy_ms: float
    own_step_ms: float | None
    host_ms: Range
    shares: str | None
    cached: bool

    @property
    def samples(self) -> int:
        """Of a step."""
        return batch_size(self.variant)


def computed_on_cpu(session: Session) -> bool:
    """Return whether one of its models took cores that the input needs."""
    return any(run.device_kind == "cpu" for own in _found(session).values() for run in own.values())


def _found(session: Session) -> ByVariant:
    return measured.of(session.scenario, session.trials, session.environment.cores)


def inputs_of(session: Session) -> list[MeasuredInput]:
    """Return every input that was measured and did equal work; those that differ in their workers only are one.

    Of a diagnosis the pipeline as written, and with the fixes that are proven to be faster.
    """
    left_out = {result.variant for result in session.results if result.work.status == "unequal"}
    if session.diagnosis is not None:
        left_out |= {each.fix.variant for each in session.diagnosis.attempts if each.outcome not in PROVEN}
    found = {name: {} if name in left_out else own for name, own in _found(session).items()}
    if session.hosts is not None:
        bases = dict.fromkeys(each.on_hosts.variant for each in session.scenario.variants if each.on_hosts)
        made = [_of_hosts(session, found, base) for base in bases]
        return [each for each in made if each is not None]
    wanted = [each for each in session.scenario.variants if not each.is_ceiling and found[each.name]]
    groups = grouped((_group(variant), variant) for variant in wanted)
    return [_of_variants(session, found, group) for group in groups.values()]


def _group(variant: Variant) -> str:
    """Return a key that is equal for variants that differ in their number of workers only; for others, their name."""
    if not _counts_workers(variant):
        return variant.name
    options = {**variant.options, "workers": None}
    alike = {"name": "", "options": options, "ceiling": None}
    return variant.model_copy(update=alike).model_dump_json()


def _counts_workers(variant: Variant) -> bool:
    return variant.backend == _SERVICE and variant.options.get("dispatcher") is None


def _of_variants(session: Session, found: ByVariant, variants: Sequence[Variant]) -> MeasuredInput:
    unit: Unit = "input worker" if _counts_workers(variants[0]) else "host"

    def count(variant: Variant) -> int:
        return int(variant.options.get("workers") or 1) if unit == "input worker" else 1

    ordered = sorted(variants, key=count)
    # Those of one number are one input that was measured several times.
    alike = {number: list(members) for number, members in groupby(ordered, count)}
    points = [
        Point(number, _rates(found, members), _lowest_wait(session, [each.name for each in members]))
        for number, members in alike.items()
    ]
    return _input(found, variants[0].name, unit, ordered, points)


def _rates(found: ByVariant, variants: Sequence[Variant]) -> dict[int, float]:
    """Return the samples a second of an input by round, the mean of its variants'."""
    rounds = sorted({repeat for each in variants for repeat in found[each.name]})
    return {
        repeat: geometric_mean(
            [
                1000 * batch_size(each) / found[each.name][repeat].mean_ms
                for each in variants
                if repeat in found[each.name]
            ]
        )
        for repeat in rounds
    }


def _of_hosts(session: Session, found: ByVariant, base: str) -> MeasuredInput | None:
    """Return the input of a merged session's variant, measured on every host alone and on 2, 3, … of them at once."""
    assert session.hosts is not None
    results = {result.hosts: result for result in session.hosts.results if result.variant == base}
    by_name = {variant.name: variant for variant in session.scenario.variants}

    def names(hosts: int) -> list[str]:
        wanted = OnHosts(variant=base, hosts=hosts)
        return [name for name, variant in by_name.items() if variant.on_hosts == wanted and found[name]]

    if not (alone := names(1)):
        return None
    batch = batch_size(by_name[alone[0]])
    spans = [(each, span) for each in session.trials if (span := Span.of(each, 0, batch)) is not None]
    by_itself = [(each.rank, each.repeat, span) for each, span in spans if each.variant in alone]
    points = []
    for hosts in (1, *sorted(results)):
        of = [(each.repeat, span) for each, span in spans if each.variant in names(hosts)]
        rates = efficiency.by_round(of, hosts, efficiency.rate_together if hosts > 1 else _alone)
        if rates and hosts == 1:
            points.append(Point(1, rates, _lowest_wait(session, alone)))
        elif rates:
            same = [(repeat, span) for rank, repeat, span in by_itself if rank is not None and rank < hosts]
            together = (_more_wait(results[hosts]), _doubt(results[hosts]), efficiency.by_round(same, hosts, _alone))
            points.append(Point(hosts, rates, _lowest_wait(session, names(hosts)), *together))
    return _input(found, base, "host", [by_name[name] for name in alone], points) if points else None


def _alone(spans: Sequence[Span]) -> float | None:
    """Return the mean rate of the hosts that ran alone in a round."""
    whole = efficiency.rate_apart(spans)
    return whole and whole / len(spans)


def _more_wait(result: HostsResult) -> float:
    """Return how much more the median host waits than it does alone, as a share of its step."""
    together = [wait for wait in result.wait_together if wait is not None]
    alone = [wait for wait in result.wait_alone if wait is not None]
    return median(together) - median(alone) if together and alone else 0.0


def _doubt(result: HostsResult) -> str | None:
    """Return what else than something shared may have held up hosts, as their verdict says; None: nothing."""
    is_shared = result.shared or result.kind == "shared-storage"  # the latter in a session of an older version
    return None if is_shared else result.text


def _lowest_wait(session: Session, names: Sequence[str]) -> float:
    """Return the lower ends of their intervals of the input wait, on average, as a share; 0 if none was measured."""
    results = [found for name in names if (found := session.find_result(name)) is not None]
    shares = [each.input_wait_share for each in results]
    ends = [each.ci95[0] if each.ci95 else each.value or 0.0 for each in shares]
    return mean(ends) if ends else 0.0


def _input(found: ByVariant, name: str, unit: Unit, of: Sequence[Variant], points: Sequence[Point]) -> MeasuredInput:
    runs = [run for each in of for run in found[each.name].values()]
    pairs = [pair for each in of for pair in measured.pairs(found, each)]
    busy = [run.mean_ms - (run.mean_wait_ms or 0.0) for run in runs]
    top = mean(ceiling.mean_ms for _, ceiling in pairs) if pairs else max(0.0, mean(busy))
    members = tuple(each.name for each in of)
    host_ms = _host_ms([(run.mean_ms, run.mean_wait_ms, ceiling.mean_ms) for run, ceiling in pairs])
    drained = of[0].loop.kind == "drain"
    return MeasuredInput(
        name=name,
        members=(name, *members),
        unit=unit,
        variant=of[0],
        points=tuple(points),
        busy_ms=0.0 if drained else max(0.0, mean(busy)),
        own_step_ms=None if drained or not top else top,
        host_ms=host_ms,
        shares=shared_by_hosts(of[0]),
        cached=read_from_cache(of[0], [run.record for run in runs]),
    )


def shared_by_hosts(variant: Variant) -> str | None:
    """Return what hosts with such an input may share, as a sentence calls it; None: nothing.

    A source that is not installed, and a user's own pipeline, may read storage.
    """
    if variant.backend == _SERVICE and not _counts_workers(variant):
        return "the tf.data service"
    source = plugins.find_if_known("sources", variant.source.kind)
    return _STORAGE if getattr(source, "reads_storage", True) else None


def read_from_cache(variant: Variant, trials: Sequence[TrialRecord]) -> bool:
    """Return whether trials of a variant are known to have read files from the page cache, and not from storage.

    Those of a running cluster are read elsewhere, and an emulated storage is as slow wherever they lie.
    """
    source = plugins.find_if_known("sources", variant.source.kind)
    here = shared_by_hosts(variant) == _STORAGE and not getattr(source, "emulates_storage", False)
    return here and validity.from_page_cache(trials) is True


def _host_ms(steps: Sequence[tuple[float, float | None, float]]) -> Range:
    """Return the ms of a step beside wait and ceiling; if the wait is unknown, from 0 to all but the ceiling."""
    if not steps:
        return Range(value=0.0, low=0.0, high=0.0)
    whole = mean(step for step, _, _ in steps)
    parts = [step - (wait or 0.0) - top for step, wait, top in steps]
    belief = stats.believe(parts, thresholds.SHARE_SCATTER * whole)
    low, high = (max(0.0, end) for end in belief.interval())
    if any(wait is None for _, wait, _ in steps):
        return Range(value=0.0, low=0.0, high=high)
    return Range(value=max(0.0, belief.value), low=low, high=high)


# --- whether the input works ahead -----------------------------------------------------------------------------------


def works_ahead(session: Session, own: MeasuredInput, inputs: Sequence[MeasuredInput]) -> tuple[bool | None, bool]:
    """Return whether the next batch is made during the step (None: not known), and whether that was measured here.

    It is seen where the session has the same input beside models of several lengths, and they wait for it.
    """
    alike = same_input(own, inputs)
    waited = [each for each in alike if each.unit == "host" and all(point.starved for point in each.points[:1])]
    steps = [(each.samples * 1000 / each.points[0].rate - each.busy_ms, each.busy_ms) for each in waited]
    if (seen := capacity.works_ahead(steps)) is not None:
        return seen, True
    return _works_ahead(session, own.variant), False


def same_input(own: MeasuredInput, inputs: Sequence[MeasuredInput]) -> list[MeasuredInput]:
    """Return this one and those that differ from it in the model only."""
    parts = ("backend", "options", "source", "loop", "runtime")

    def alike(other: MeasuredInput) -> bool:
        return all(getattr(own.variant, part) == getattr(other.variant, part) for part in parts)

    return [each for each in inputs if alike(each)]


def _works_ahead(session: Session, variant: Variant) -> bool | None:
    """Return whether an input makes batches while the model trains; None if that is not known."""
    if variant.source.kind == task.KIND:
        inspection = session.diagnosis.inspection if session.diagnosis is not None else None
        ahead = inspection is not None and inspection.api == "tf.data" and inspection.default_parallelised
        return True if ahead else None
    backend = plugins.make_if_known("backends", variant.backend, variant.options)
    works_ahead: bool | None = None if backend is None else backend.works_ahead
    return works_ahead
