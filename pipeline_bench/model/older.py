"""Sessions of files that are older than a field: what they say in a name or in a sentence alone, as that field.

History of `schema_version`; every version up to this one can be read:
    1   the first
    2   adds, each with a default: a trial's `work` and `queue_depths`; a result's `work` and `samples_per_second_ci95`;
        a device utilization's `ci95`; a speed-up's `difference` and `smallest`; a session's `disturbances` and
        `precision`; the verdict `unequal-work`
    3   adds, each with a default: what reads real files and what emulates a device leaves
    4   adds, each with a default: the `diagnosis` of a user's own pipeline; a trial's `inspection`, `fingerprint` and
        `traceback`; `watched` for a session that was kept by a job itself
    5   adds, each with a default: a trial's `placement`; of a scenario's runtime `cpu_devices`, `replicas`,
        `replication`, `synchronous` and `log_placement`
    6   adds, each with a default: a verdict's `certainty` and `doubt`; a speed-up's `certainty`; a result's
        `against_fastest`; an estimate's `impossible`; a `precision` may have no goal: until everything is decided
    7   adds, each with a default: which `dataset` of a script a target means; an inspection's `training`, `api` and
        `cold`; of a stage's cost `late`, `first_epoch_ns` and `first_epoch_cpu_ns`; of a diagnosis `beyond`; the
        `selftest` of the program itself; `checked`, the last one of the machine; a device utilization's `activity`;
        which `host` among several a session is of, and the `hosts` of a merged one; the `wall_time` of a
        watched training
    8   adds, each with a default: the pipeline's `fingerprint` `as_written` in the same run as one with a fix;
        a host's `collective_ms`
    9   adds, each with a default: the `data_service` that a diagnosis may use, and an edit for it
    10  adds, each with a default: a verdict's `reason`; of a user's function `fixed_statements` and `undivided`, and an
        edit that divides it
    11  adds, with a default: of a user's function `parses_examples`; edits that parse a batch and that gather windows
    12  adds, with a default: of a user's function `on_batches`; an edit that vectorizes a map
    13  adds, with a default: of a watched training's epoch `iterator_end_ns`
    14  adds, each with a default: a result's `device_copy`; of a track `from_ns`; of a selftest's copy `call_ms`, and a
        part may be `shown`, and of its windows `figure_points`; of a device utilization `window_ms` and `coverage`; of
        `checked` the `gpu` and `windows_at`; of a host its `boot` and `pid`, and of a merged session's `accelerator`,
        `cpu` and `cores`; of what hosts come to `named` and `shared`; of a stage's cost the `calls`; of a script's
        training `behind`, `eager`, `epochs`, `generator_uses`, `handed_on_by`, `in_loop`, `later_fits`,
        `leaves_passes`, `never_reads_again`, `one_batch`, `part`, `pass_steps`, `step`, `steps` and `steps_a_call`, of
        its data `pass_elements`,
        `ahead_elements`, `source_bytes` and `warnings`, of a trial's cache `cached_elements`, of its step `traced_anew`
        and `traced_anew_s`, of a PyDataset's `beside_model_ns`; which `training` of a script a target means, and which
        dataset `of_loop`; of a verdict `cause`, and of its doubt `likeliest`; of a bottleneck the `doubt`, and whether
        it `limits`; whether a stage's call is `shared`, and how, and it is
        `left_early` or `serial`, its `element` as data, the files of an argument as a number, and its `input_shares`,
        and of a PyDataset's whether it has `epoch_hooks`, and its workers are set `by_attributes`, and of its function
        `also_memoizable`, `changes_seeds`, `changes_state`, `costliest`, `costliest_run_ns`, `costliest_runs`,
        `costliest_share`, `crops_decoded`, `decoding_share`, `doubles`, `draws_alike`, `draws_by_seed`,
        `draws_in_python`, `eager_ops`, `eager_share`, `endless`,
        `fixed_bytes`, `fixed_reads`, `fixed_share`, `fixed_smaller`, `fixed_up_to`, `fixed_within`, `loops_over_rows`,
        `memoizable`, `reads_files`, `resizes_decoded` and `row_copies`, and of an edit that divides it `up_to` and
        `within`; of a call in it whether its arguments are `drawn`, its `owner` and `owner_reads`, that it `gives` what
        is `opened`, or `singles`; edits that keep its batches, and what a call in it, in a generator or in a map gives,
        and an edit that keeps the samples of batches; of a watched training `initial_epoch`, `queue_of_keras_2` and
        `steps_a_call`, and how many `steps` each of its epochs has, and each of its rows is the mean of; of the code to
        write `alike`; of an untried
        attempt the `cause`; of a scenario the variants `left_out`; of a variant `on_hosts`, of a merged trial `rank`;
        of a diagnosis `says_bottleneck`; of published figures `why`; of a verdict the cause `at-threshold`; of a trial
        `allowed_cpus`, `copied`, `in_graph`, `kept_memory` and `known_shapes`, and of its `work` `silent`
"""

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
