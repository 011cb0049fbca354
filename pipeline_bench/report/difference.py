"""A difference between two sessions, for a terminal and as Markdown, with the sentences that both share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline_bench.analysis.difference import change_text, only_beside, outcome_words
from pipeline_bench.analysis.gates import au_limit_text, limit_text
from pipeline_bench.analysis.thresholds import CERTAIN_CLAIM, CLAIM_CONFIDENCE, TIE
from pipeline_bench.model.difference import Condition, Difference, Gate, Outcome, Ratio, Shift, Side, VariantChange
from pipeline_bench.report import VERDICT_STYLES, facts
from pipeline_bench.report.layout import beside, fitting, group, headed, spaced
from pipeline_bench.report.markdown import document, escape, table
from pipeline_bench.report.terminal_table import variant_name
from pipeline_bench.text import NAME, TEXT, joined, one_line, units

_NOISE_LINES = 6
_NOT_COMPARABLE = "not comparable"
_COUNTED_UNDECIDED = "undecided, counted as failed"

INTERVAL_NOTE = (
    "in brackets: 95 % intervals over trials, unpaired, because trials of two sessions are not neighbours; "
    f"faster and slower are claimed at {units.confidence(CERTAIN_CLAIM)}, with probably at "
    f"{units.confidence(CLAIM_CONFIDENCE)}; tie: within {units.share(TIE - 1)}; "
    "a verdict with a question mark is probable; "
    "ms/step: geometric means of the trials' mean step times"
)
POINTS_NOTE = "changes of AU and input wait: percentage points"
_SAME_CEILINGS_NOTE = (
    "AU and the change beside the ceiling are taken against each session's own ceiling trials, so they hold on a "
    "machine that became slower or faster; the step time does not"
)
_OTHER_CEILINGS_NOTE = (
    "AU is taken against each session's own ceiling trials, which are of different jobs here: AU before and after have "
    "different references, and neither it nor the step time tells a change of the input from one of the machine"
)
_WIDE = 136
_POINTS_WIDE = 120
_SMALLEST_NAME, _GAP = 12, 2
_DROPPED = (3, 4, 5, 6)
"""The columns that go first where a terminal is too narrow for all; the step times and their change stay."""
_NAMED_CONDITIONS = 3
_OUTCOMES: dict[Outcome, str] = {"passed": "green", "failed": "bold red", "undecided": "cyan"}
_DIFFERENCES = {"faster": "green", "slower": "red", "none": ""}
_HEADS = ("variant", "ms/step", "change", "beside the ceiling", "AU", "input wait", "verdict")
_STARS = {"passed": "", "failed": "**", "undecided": "*"}


def headline(difference: Difference) -> str:
    """Return what came out, in one line: what the gates say, whether it is fair, and how many variants changed."""
    changes = [change for change in difference.variants if not change.is_ceiling]
    kinds = Counter(map(_kind, changes))
    claims = ("slower", "probably slower", "faster", "probably faster", "tie", "not decided")
    order = (*claims, "without an interval", _NOT_COMPARABLE, "not measured in both")
    found = ", ".join(f"{kinds[kind]} {kind}{_but_beside(changes, kind)}" for kind in order if kinds[kind])
    return f"{gates_line(difference)}{_not_fair(difference)}{units.count(len(changes), 'variant')}: {found}."


def _not_fair(difference: Difference) -> str:
    """Return what makes it unfair: ``Not fair (TensorFlow differs). ``; empty where nothing does."""
    names = [one_line(condition.name, NAME) for condition in difference.conditions]
    if not names:
        return ""
    more = [f"{len(names) - _NAMED_CONDITIONS} more"] if len(names) > _NAMED_CONDITIONS else []
    return f"Not fair ({', '.join([*names[:_NAMED_CONDITIONS], *more])} {'differs' if len(names) == 1 else 'differ'}). "


def _kind(change: VariantChange) -> str:
    ratio = change.step_time
    if ratio.value is None:
        return _NOT_COMPARABLE if change.measured_in_both else "not measured in both"
    return "without an interval" if ratio.difference is None else outcome_words(ratio)


def _but_beside(changes: Iterable[VariantChange], kind: str) -> str:
    """Return those of a kind that changed otherwise beside the ceiling: `` (1 faster beside the ceiling)``."""
    found = Counter(only_beside(change.step_time, change.beside_ceiling) for change in changes if _kind(change) == kind)
    said = [f"{found[word]} {word}" for word in ("slower", "faster") if found[word]]
    return f" ({', '.join(said)} beside the ceiling)" if said else ""


def gates_line(difference: Difference) -> str:
    """Return how many gates failed, or passed: ``1 of 3 gates failed, 1 undecided. ``; empty without gates.

    Those that only count as failed are among these: ``2 of 3 gates failed (1 of them undecided, counted as failed). ``
    """
    if not difference.gates:
        return ""
    found = Counter(gate.outcome for gate in difference.gates)
    word: Outcome = "failed" if difference.outcome == "failed" else "passed"
    counted = sum(gate.only_undecided for gate in difference.gates)
    of_them = "" if counted == found[word] else f"{counted} of them "
    rest = f" ({of_them}{_COUNTED_UNDECIDED})" if counted else ""
    rest += f", {found['undecided']} undecided" if found["undecided"] else ""
    return f"{found[word]} of {units.count(len(difference.gates), 'gate')} {word}{rest}. "


def outcome(gate: Gate) -> str:
    """Return what became of a gate: ``failed``, or ``undecided, counted as failed``."""
    return _COUNTED_UNDECIDED if gate.only_undecided else gate.outcome


def demand(gate: Gate) -> str:
    """Return what a gate is about: ``not slower by more than 5 %``."""
    if gate.name == "slower":
        return f"not slower by more than {limit_text(gate.limit)}"
    return f"AU not below {au_limit_text(gate.limit)}"


def side(side: Side) -> str:
    """Return a session in one line."""
    facts = (side.path, side.scenario, side.started_at, f"pipeline-bench {side.package}")
    return ", ".join(one_line(fact, NAME) for fact in facts)


def unfair(difference: Difference) -> Iterator[str]:
    """Yield what the sessions did not have in common, a line each, both values named."""
    shared = {change.variant for change in difference.variants}
    for condition in difference.conditions:
        values = f"{one_line(condition.before, TEXT)} → {one_line(condition.after, TEXT)}"
        yield f"{one_line(condition.name, NAME)}: {values}{_holds_for(condition, shared)}"


def _holds_for(condition: Condition, shared: set[str]) -> str:
    if not condition.variants or set(condition.variants) == shared:
        return ""
    return f" ({joined(one_line(name, NAME) for name in condition.variants)})"


def noises(difference: Difference) -> Iterator[str]:
    """Yield what disturbed either session, a line each, six at most; of many, the costliest of either."""
    sides = [(word, [n.disturbance for n in difference.disturbances if n.side == word]) for word in ("before", "after")]
    sides = [(word, found) for word, found in sides if found]
    for word, found in sides:
        # One line of each side is for how many were left out.
        for where, kind, text in facts.disturbances(found, _NOISE_LINES // len(sides) - 1):
            yield ": ".join(part for part in (word, where, kind, text) if part)


def alone(difference: Difference) -> Iterator[str]:
    """Yield the variants that only one session has."""
    for word, names in (("before", difference.only_before), ("after", difference.only_after)):
        if names:
            yield f"only {word}: {joined(one_line(name, NAME) for name in names)}"


def machine(difference: Difference) -> Iterator[str]:
    """Yield what the ceilings say of the machine's own drift; nothing where they are of different jobs."""
    for change in difference.machine:
        name = one_line(change.variant, NAME)
        if change.ceilings_differ_in:
            keys = one_line(", ".join(change.ceilings_differ_in), TEXT)
            yield f"the machine itself: {name} is of different jobs before and after ({keys}), so it tells nothing"
        else:
            yield f"the machine itself, by {name}: {one_line(change_text(change.step_time), TEXT)}"


def au_note(difference: Difference) -> str:
    """Return what AU and the change beside the ceiling can be relied on for."""
    if any(change.ceilings_differ_in for change in difference.variants):
        return _OTHER_CEILINGS_NOTE
    return _SAME_CEILINGS_NOTE


def points(shift: Shift) -> str:
    """Return the change of a share in percentage points with the wider side of its interval: ``-4 ±2 points``."""
    if shift.change is None:
        return ""
    value = f"{shift.change * 100:+.1f}" if abs(shift.change) < 0.0995 else f"{shift.change * 100:+.0f}"  # noqa: PLR2004
    return f"{value if float(value) else '0'} {units.change_margin(shift.change, shift.ci95)}".rstrip()


def variants(difference: Difference) -> list[VariantChange]:
    """Return the variants in the order to show them: the ceilings last."""
    return sorted(difference.variants, key=lambda change: change.is_ceiling)


def sentences(difference: Difference) -> list[str]:
    """Return what is to be said of each variant that is no ceiling."""
    return [change.text for change in variants(difference) if not change.is_ceiling]


def terminal(difference: Difference, width: int) -> RenderableType:
    """Return everything that a difference says, for a terminal of that many columns."""
    sections: list[RenderableType | None] = [
        Text(headline(difference), style="bold"),
        _heading(difference),
        _lines("This comparison is not fair; not the same in both sessions:", unfair(difference), "yellow"),
        _lines("Disturbances, which are not the variants':", noises(difference), "yellow"),
        _wide(difference) if width >= _WIDE else _stacked(difference, width),
        _lines("", (one_line(text, TEXT) for text in sentences(difference)), ""),
        _lines("", (*machine(difference), *alone(difference), *difference.hosts), ""),
        _lines("", _notes(difference, width), "dim"),
        _gates_grid(difference),
    ]
    return spaced(sections)


def _notes(difference: Difference, width: int) -> list[str]:
    """Return what the figures of the table are, of those that it has."""
    changes = difference.variants
    intervals = [INTERVAL_NOTE] * any(change.step_time.ci95 for change in changes)
    points = [POINTS_NOTE] if width >= _POINTS_WIDE else []
    beside = any(change.beside_ceiling.value or change.accelerator_utilization.before for change in changes)
    notes = "; ".join([*intervals, *points])
    return [*([f"{notes}."] if notes else []), *([f"{au_note(difference)}."] if beside else [])]


def _heading(difference: Difference) -> RenderableType:
    sides = (("before", difference.before), ("after", difference.after))
    return beside(*((Text(word, style="bold"), Text(side(each))) for word, each in sides))


def _lines(head: str, lines: Iterable[str], style: str) -> RenderableType | None:
    shown = [Text(line, style=style) for line in lines]
    if not shown or not head:
        return group(shown)
    # What does not fit its line goes on further in, so that it is not taken for another one.
    grid = Table.grid(padding=0)
    grid.add_column(width=2)
    grid.add_column(overflow="fold")
    for line in shown:
        grid.add_row("", line)
    return Group(Text(head, style=f"bold {style}".strip()), grid)


def _wide(difference: Difference) -> Table:
    """Return one line a variant, both sessions side by side."""
    table = _grid(*_HEADS)
    for change in variants(difference):
        table.add_row(*_cells(change, between=" → ", gap=" ", points=True))
    return table


def _stacked(difference: Difference, width: int) -> Table:
    """Return a table with two lines a variant, before over after, and the changes of the shares if there is room."""
    heads = ("variant", "ms/\nstep", "change", "beside\nceiling", "AU", "input\nwait", "verdict")
    points = width >= _POINTS_WIDE
    rows = [_cells(change, between="\n", gap="\n", points=points) for change in variants(difference)]
    figures = zip(heads, *([cell.plain for cell in row] for row in rows), strict=True)
    widths = {place: max(map(_cells_of, texts)) + _GAP for place, texts in enumerate(figures)}
    kept = [0, *fitting({place: widths[place] for place in widths if place}, _DROPPED, width - _SMALLEST_NAME)]
    table = _grid(*(heads[each] for each in kept))
    for row in rows:
        table.add_row(*(row[each] for each in kept))
    return table


def _cells_of(text: str) -> int:
    """Return how many cells the widest line takes."""
    return max(Text(line).cell_len for line in text.split("\n"))


def _cells(change: VariantChange, between: str, gap: str, points: bool) -> list[Text]:
    """Return a variant's row: `between` stands between before and after, `gap` before an interval."""
    au, wait = change.accelerator_utilization, change.input_wait_share
    step = (units.plain_milliseconds(change.step_ms_before), units.plain_milliseconds(change.step_ms_after))
    return [
        _name(change),
        Text(between.join(step)),
        _ratio_text(change.step_time, gap),
        _ratio_text(change.beside_ceiling, gap),
        _shift(units.fraction(au.before), units.fraction(au.after), au if points else None, between),
        _shift(units.share(wait.before), units.share(wait.after), wait if points else None, between),
        _verdict(change, between),
    ]


def _grid(*heads: str) -> Table:
    table = headed(*heads[:-1])
    table.add_column(heads[-1], overflow="fold")
    return table


def _name(change: VariantChange) -> Text:
    return Text(variant_name(change.variant), style="dim" if change.is_ceiling else "bold")


def _ratio_text(ratio: Ratio, gap: str) -> Text:
    change, interval = units.changes(ratio.value, ratio.ci95)
    text = Text(change, style=_DIFFERENCES.get(ratio.difference or "none", ""))
    if gap == "\n":  # the figure above it has the unit, and a narrow terminal room for one column more
        interval = interval.removesuffix(" %")
    return text.append(f"{gap}({interval})", style="dim") if interval else text


def _shift(before: str, after: str, shift: Shift | None, gap: str) -> Text:
    text = Text(f"{before}{gap}{after}")
    change = points(shift) if shift is not None else ""
    return text.append(f" ({change})", style="dim") if change else text


def _verdict(change: VariantChange, gap: str) -> Text:
    after = Text(change.verdict_words_after, style=VERDICT_STYLES[change.verdict_after])
    if change.verdict_words_before == change.verdict_words_after:
        return after
    return Text.assemble((change.verdict_words_before, VERDICT_STYLES[change.verdict_before]), gap, after)


def _gates_grid(difference: Difference) -> RenderableType | None:
    if not difference.gates:
        return None
    return beside(
        *(
            (Text(outcome(gate), style=_OUTCOMES[gate.outcome]), Text(f"{demand(gate)}: {one_line(gate.text, TEXT)}"))
            for gate in difference.gates
        )
    )


def markdown(difference: Difference) -> str:
    """Return everything a reviewer needs; names and texts of the sessions are escaped."""
    notes = _notes(difference, _WIDE)
    blocks = [
        f"### pipeline-bench diff: {escape(headline(difference), TEXT)}",
        f"Before: {escape(side(difference.before), TEXT)}  \nAfter: {escape(side(difference.after), TEXT)}",
        _list("**This comparison is not fair**; not the same in both sessions:", unfair(difference)),
        _list("Disturbances, which are not the variants':", noises(difference)),
        table(_HEADS, [_row(change) for change in variants(difference)]),
        _list("", (*sentences(difference), *machine(difference), *alone(difference), *difference.hosts)),
        _gate_list(difference),
        f"<sub>{escape(' '.join(notes), TEXT)}</sub>" if notes else "",
    ]
    return document(blocks)


def _list(head: str, lines: Iterable[str]) -> str:
    items = "\n".join(f"- {escape(line, TEXT)}" for line in lines)
    return "\n\n".join(part for part in (head, items) if part) if items else ""


def _row(change: VariantChange) -> list[str]:
    """Return a row of Markdown: that of a wide terminal, with the variant's whole name."""
    cells = _cells(change, between=" → ", gap=" ", points=True)
    return [escape(change.variant), *(cell.plain for cell in cells[1:])]


def _starred(gate: Gate) -> str:
    stars = _STARS[gate.outcome]
    return f"{stars}{outcome(gate)}{stars}"


def _gate_list(difference: Difference) -> str:
    lines = [f"- {_starred(gate)}, {demand(gate)}: {escape(gate.text, TEXT)}" for gate in difference.gates]
    return "\n".join(["Gates:", "", *lines]) if lines else ""
