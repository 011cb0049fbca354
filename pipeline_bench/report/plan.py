"""A plan on one screen of 80 columns and 24 lines: how many feed how many, by number of hosts, and what decides."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline_bench.hosts import plan_words
from pipeline_bench.model.hosts import Basis, Limit, Plan, PlanCheck, PlanRow, VariantPlan
from pipeline_bench.report.layout import fitting
from pipeline_bench.report.terminal_table import variant_name
from pipeline_bench.text import units

_OTHERS = 2
_NUMBERS, _GAP = 2, 3
"""The columns that are aligned to the right, and what lies between two."""
_LIMITS: dict[Limit, str] = {
    "accelerator": "the accelerator",
    "host": "the host's own part",
    "input": "its own input",
    "storage": "storage",
    "not-known": "not known",
}
_OF_WORKERS: dict[Limit, str] = {"input": "the workers", "storage": "what they send"}
_STYLES: dict[Basis, str] = {"measured": "", "computed": "", "extrapolated": "dim"}


def render(plan: Plan, width: int) -> RenderableType:
    """Return the plan of the first input whole, and the others in a line each."""
    first, *others = plan.variants
    shown: list[RenderableType] = [
        _title(plan, width),
        Text.assemble((f"→ {variant_name(first.variant)}: ", "bold"), first.answer),
        _table(first, width),
        Text(first.assumption, style="yellow"),
        *(Text(_check(each, first)) for each in first.checks[-1:]),
        *(Text(_other(each)) for each in others[:_OTHERS]),
    ]
    if left := others[_OTHERS:]:
        shown.append(Text(f"and {units.count(len(left), 'more variant')}: --variant NAME", style="dim"))
    shown += [Text(f"note: {note}", style="yellow") for note in plan.notes]
    shown.append(Text(f"{_way(first)} {plan_words.explained()}.", style="dim"))
    return Group(*shown)


def _title(plan: Plan, width: int) -> Text:
    rate = units.rate(1000 * plan.batch_size / plan.step_ms)
    of = f"{plan.accelerators} accelerators a host, each" if plan.accelerators > 1 else "accelerators"
    text = Text.assemble(
        (f"{of} of {units.milliseconds(plan.step_ms)} a step", "bold"),
        ", as measured" if plan.own_step else "",
        f" ({units.count(plan.batch_size, 'sample')}: {rate}/s) · {plan.scenario}",
    )
    text.truncate(width, overflow="ellipsis")
    return text


def _table(plan: VariantPlan, width: int) -> Table:
    """Return a row a number of hosts; the last columns go where there is no room."""
    heads, rows = (f"{plan.unit}s", "samples/s", "AU", "limited by", ""), [_cells(row, plan) for row in plan.rows]
    widths = {place: max(map(len, column)) + _GAP for place, column in enumerate(zip(heads, *rows, strict=True))}
    shown = len(fitting(widths, [*widths][:1:-1], width + _GAP))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, head in enumerate(heads[:shown]):
        table.add_column(head, justify="right" if place < _NUMBERS else "left", no_wrap=True)
    for row, cells in zip(plan.rows, rows, strict=True):
        table.add_row(*cells[:shown], style=_STYLES[row.basis])
    return table


def _cells(row: PlanRow, plan: VariantPlan) -> tuple[str, ...]:
    words = _LIMITS | ({"storage": plan.shares} if plan.unit == "host" else _OF_WORKERS)
    return (
        f"{row.count:,}",
        plan_words.rate(row.samples_per_second),
        plan_words.utilization(row.utilization),
        words[row.limit],
        row.basis,
    )


def _check(check: PlanCheck, plan: VariantPlan) -> str:
    """Return what a plan from fewer alone predicts, beside what was measured."""
    of = units.count(check.planned_from, plan.unit)
    ends = units.between(units.rate(check.planned.low), units.rate(check.planned.high))
    value = check.planned.value
    planned = f"{ends} samples/s" if value is None else f"{units.rate(value)} samples/s ({ends})"
    return f"Check: planned from {of} alone, {check.count} give {planned}; measured: {units.rate(check.measured)}."


def _other(plan: VariantPlan) -> str:
    alone = plan.alone.utilization
    reached = units.fraction(alone.value) if alone.value is not None else plan_words.utilization(alone)
    return f"· {variant_name(plan.variant)}: one {plan.unit} feeds {plan_words.between(plan.feeds)}; AU {reached}"


def _way(plan: VariantPlan) -> str:
    seen = " (as measured)" if plan.works_ahead_measured else ""
    if plan.works_ahead is None:
        return "Whether the next batch is made during or after the step is not known."
    return f"The next batch is made {'during' if plan.works_ahead else 'after'} the step{seen}."
