"""Sessions of files that are older than a field: what they say in a name or in a sentence alone, as that field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pipeline_bench.scenario import OnHosts

if TYPE_CHECKING:
    from pipeline_bench.model.session import Session

_ON_HOSTS = re.compile(r"(?P<variant>.+?), (?:alone|(?P<hosts>[1-9]\d{0,8}) hosts)(?: · rank \d+)?", re.ASCII)
"""The name of a variant in a session of one of several hosts, see `hosts.ranks.variant_name`, and in a merged one."""


def brought_up(session: Session) -> Session:
    """Return the session with what its file says without a field for it: whose each variant is, and on which host."""
    changes: dict[str, Any] = {}
    if (session.host or session.hosts) and not any(each.on_hosts for each in session.scenario.variants):
        variants = tuple(
            each.model_copy(update={"on_hosts": None if each.is_ceiling else _on_hosts(each.name)})
            for each in session.scenario.variants
        )
        changes["scenario"] = session.scenario.model_copy(update={"variants": variants})
    if session.hosts is not None and all(trial.rank is None for trial in session.trials):
        ranks = {host.label: host.rank for host in session.hosts.hosts}
        changes["trials"] = tuple(
            trial.model_copy(update={"rank": ranks.get(trial.variant.rpartition(" · ")[2])}) for trial in session.trials
        )
    found = session.diagnosis
    if found is not None and found.bottleneck is not None and "says_bottleneck" not in found.model_fields_set:
        changes["diagnosis"] = found.model_copy(update={"says_bottleneck": found.bottleneck.text in found.text})
    return session.model_copy(update=changes)


def _on_hosts(name: str) -> OnHosts | None:
    match = _ON_HOSTS.fullmatch(name)
    return None if match is None else OnHosts(variant=match["variant"], hosts=int(match["hosts"] or 1))
