"""The placement of a session's ops as Markdown: a table of the devices, and the ops by name folded away below."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pipeline_bench.model.session import Session
from pipeline_bench.report import placement

_MOST_OPS = 100
_NAME_LIMIT = 120
_TEXT_LIMIT = 600


def blocks(session: Session, escape: Callable[[str, int], str], table: Callable[..., str]) -> Iterator[str]:
    """The blocks, none where nothing was asked for.

    Args:
        session: any.
        escape: makes a text of so many characters harmless, as `markdown.escape`.
        table: of heads, rows and the heads of words, as `markdown.table`.
    """
    found = placement.found(session)
    if not found:
        return
    rows = [
        [escape(placed.name, _TEXT_LIMIT), str(device.ops), escape(f"{device.device}: {device.text}", _TEXT_LIMIT)]
        for placed in found
        for device in placed.devices
    ]
    unknown = [
        f"- **{escape(placed.name, _TEXT_LIMIT)}**: not known, {escape(placed.reason, _TEXT_LIMIT)}"
        for placed in found
        if placed.reason is not None
    ]
    yield f"Placement: which device ran the ops of a step. {placement.METHOD}"
    if rows:
        yield table(("variant", "ops", "device and types"), rows, words=("device and types",))
    if unknown:
        yield "\n".join(unknown)
    if rows:
        yield "<details><summary>The ops by name</summary>"  # HTML, where nothing can be escaped: no foreign text
        for placed in found:
            if placed.ops:
                yield from _ops(placed, escape, table)
        yield "</details>"


def _ops(placed: placement.Placed, escape: Callable[[str, int], str], table: Callable[..., str]) -> Iterator[str]:
    shown = placed.ops[:_MOST_OPS]
    yield f"**{escape(placed.name, _TEXT_LIMIT)}**"
    rows = [[escape(part, _NAME_LIMIT) for part in (op.name, op.type, op.device)] for op in shown]
    yield table(("op", "type", "device"), rows, words=("type", "device"))
    if left_out := len(placed.ops) - len(shown):
        yield f"and {left_out:,} more, in session.json"
    if placed.not_kept:
        yield placed.not_kept
