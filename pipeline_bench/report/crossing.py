"""What reports say of a tf.data service: how much longer a step is than with the same input and no worker."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline_bench import plugins
from pipeline_bench.analysis.thresholds import BOUND_SHARE
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import mean_step
from pipeline_bench.scenario import Variant
from pipeline_bench.text import NAME, one_line, units

_SERVICE, _WITHOUT = "tf_data_service", "tf_data"


def facts(session: Session) -> list[tuple[str, str]]:
    """Return a line for each variant with one worker that has its like without any; none where the model hides it.

    What crosses costs a step only as far as the step waits for its input, with the worker and without.
    """
    lines = []
    for variant in session.scenario.variants:
        options = variant.options
        if variant.backend != _SERVICE or options.get("dispatcher") or (options.get("workers") or 1) > 1:
            continue  # a running cluster may have any number of workers
        for other in _without_worker(session, variant):
            found, over = (session.find_result(each.name) for each in (variant, other))
            if found is not None and over is not None and _waits(found) and _waits(over):
                lines.append((one_line(variant.name, NAME), _text(found, over)))
    return lines


def _without_worker(session: Session, variant: Variant) -> Iterator[Variant]:
    """Yield the variant whose own process does what the worker does, if there is one."""
    default = plugins.make("backends", _WITHOUT, {}).options.model_dump()
    wanted = default | {name: value for name, value in variant.options.items() if name in default}
    alike = variant.model_copy(update={"backend": _WITHOUT, "options": wanted})
    yield from (each for each in session.scenario.variants if each.model_copy(update={"name": variant.name}) == alike)


def _waits(result: Result) -> bool:
    return (result.input_wait_share.value or 0.0) >= BOUND_SHARE


def _text(found: Result, over: Result) -> str:
    with_worker, without = mean_step(found), mean_step(over)
    like = f"{one_line(over.variant, NAME)}, whose own process makes the same batches"
    if with_worker.value is None or without.value is None:
        return f"it is not known how much longer a step is than that of {like}"
    more_ms, interval = with_worker.value - without.value, None
    if with_worker.ci95 is not None and without.ci95 is not None:
        below = math.hypot(with_worker.value - with_worker.ci95[0], without.ci95[1] - without.value)
        above = math.hypot(with_worker.ci95[1] - with_worker.value, without.value - without.ci95[0])
        interval = more_ms - below, more_ms + above
    differs = "longer" if more_ms >= 0 else "shorter"
    undecided = interval is not None and interval[0] <= 0 <= interval[1]
    doubt = "; that anything crosses at a cost is not shown" if undecided else ""
    if more_ms < 0 and interval is not None:
        interval = -interval[1], -interval[0]
    size = units.with_ends(units.milliseconds, abs(more_ms), interval)
    return f"a step takes {size} {differs} than that of {like}{doubt}"
