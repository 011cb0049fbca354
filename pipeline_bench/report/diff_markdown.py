"""A difference → Markdown for a pull request or a job summary: what is unfair, the table, the gates."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline_bench.model.difference import Difference, Gate, Ratio, VariantChange
from pipeline_bench.report import diff_words as words
from pipeline_bench.report.markdown import escape, table
from pipeline_bench.text import units

_HEADS = (
    "variant",
    "ms/step before",
    "after",
    "change",
    "beside the ceiling",
    "AU before",
    "after",
    "input wait before",
    "after",
    "verdict",
)
_STARS = {"passed": "", "failed": "**", "undecided": "*"}
_NOTES_LIMIT = 1200


def render(difference: Difference) -> str:
    """Everything a reviewer needs; names and texts of the sessions are escaped."""
    notes = (words.INTERVAL_NOTE, words.POINTS_NOTE, words.au_note(difference))
    blocks = [
        f"### pipeline-bench diff: {escape(words.headline(difference), words.TEXT_LIMIT)}",
        f"Before: {escape(words.side(difference.before), words.TEXT_LIMIT)}  \n"
        f"After: {escape(words.side(difference.after), words.TEXT_LIMIT)}",
        _list("**This comparison is not fair**; not the same in both sessions:", words.unfair(difference)),
        _list("Disturbances, which are not the variants':", words.noises(difference)),
        table(_HEADS, [_row(change) for change in words.variants(difference)]),
        _list("", (*_sentences(difference), *words.machine(difference), *words.alone(difference))),
        _gates(difference),
        f"<sub>{escape('; '.join(notes), _NOTES_LIMIT)}.</sub>",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _sentences(difference: Difference) -> list[str]:
    return [change.text for change in words.variants(difference) if not change.is_ceiling]


def _list(head: str, lines: Iterable[str]) -> str:
    items = "\n".join(f"- {escape(line, words.TEXT_LIMIT)}" for line in lines)
    return "\n\n".join(part for part in (head, items) if part) if items else ""


def _row(change: VariantChange) -> list[str]:
    au, wait = change.accelerator_utilization, change.input_wait_share
    same = change.verdict_before == change.verdict_after
    return [
        escape(change.variant),
        units.plain_milliseconds(change.step_ms_before),
        units.plain_milliseconds(change.step_ms_after),
        _ratio(change.step_time),
        _ratio(change.beside_ceiling),
        units.fraction(au.before),
        _after(units.fraction(au.after), words.points(au)),
        units.share(wait.before),
        _after(units.share(wait.after), words.points(wait)),
        change.verdict_after if same else f"{change.verdict_before} → {change.verdict_after}",
    ]


def _ratio(ratio: Ratio) -> str:
    between = words.between(ratio)
    return f"{units.change(ratio.value)} ({between})" if between else units.change(ratio.value)


def _after(shown: str, points: str) -> str:
    return f"{shown} ({points})" if points else shown


def _outcome(gate: Gate) -> str:
    stars = _STARS[gate.outcome]
    return f"{stars}{words.outcome(gate)}{stars}"


def _gates(difference: Difference) -> str:
    lines = [
        f"- {_outcome(gate)}, {words.demand(gate)}: {escape(gate.text, words.TEXT_LIMIT)}" for gate in difference.gates
    ]
    return "\n".join(["Gates:", "", *lines]) if lines else ""
