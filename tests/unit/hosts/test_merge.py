"""Sessions of ranks become one; what cannot be compared is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.analysis.conclusion import conclude
from pipeline_bench.analysis.difference import between
from pipeline_bench.cli import run
from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.hosts import merge, planning, ranks
from pipeline_bench.hosts.planning import PlanRequest
from pipeline_bench.hosts.ranks import Rank
from pipeline_bench.hosts.rendezvous import ENDED_EARLY, FOLDER, gone_path
from pipeline_bench.model import Series
from pipeline_bench.model.events import NumberedSamples, Storage, StorageEpoch, Work
from pipeline_bench.model.hosts import HostsResult
from pipeline_bench.model.job import Epoch, WallTime
from pipeline_bench.model.result import Estimate, StepTime, WorkCheck
from pipeline_bench.model.session import Session, load, save
from pipeline_bench.model.trial import PhaseMark, Track, TrialRecord, plan
from pipeline_bench.report import html, machines, markdown, screen, terminal
from pipeline_bench.report.difference import markdown as markdown_difference
from pipeline_bench.report.terminal_table import figures_table
from pipeline_bench.samplers.nvml_metrics import ACTIVITY
from tests.unit import records
from tests.unit.console import printed, unread
from tests.unit.sessions import CPU, scenario, variant
from tests.unit.storage_simulation import Machine, simulate

S = 1_000_000_000
FILES = variant("a").source.model_copy(update={"kind": "tfrecord"})
BASE = scenario(
    variant("a").model_copy(update={"source": FILES}),
    variant("ceiling", "ceiling", ceiling=None).model_copy(update={"source": FILES}),
)


@cache
def session(
    rank: int,
    size: int = 2,
    together_ms: float = 25.0,
    booted_ns: int = 0,
    late_ns: int = 0,
    busy_ms: float = 9.6,
    **host: Any,
) -> Session:
    """A rank's session whose steps take 10 ms alone; its clock counts from when it was booted."""
    wanted = ranks.of_rank(BASE, size, rank)
    slots = ranks.slots(BASE, size)
    at = [number for number, slot in enumerate(slots) if rank in slot.ranks]
    trials = []
    for trial in plan(wanted):
        step_ms = together_ms if "hosts" in trial.variant.name else 10.0
        start_ns = at[trial.index] * 100 * S - booted_ns + (late_ns if "hosts" in trial.variant.name else 0)
        phases = {"started_ns": start_ns - S, "phases": (PhaseMark(name="train", at_ns=start_ns),)}
        wait_ms = None if trial.variant.is_ceiling else step_ms - busy_ms
        timed: Any = {"steps": 300, "noise": 0.0, "start_ns": start_ns, "index": trial.index, **phases}
        trials.append(records.record(trial.variant.name, trial.repeat, step_ms, wait_ms, **timed))
    described = Rank(rank, size, "pmi").host(0.0)
    return records.session(
        wanted, trials, host=described.model_copy(update={"wall_minus_monotonic_ns": booted_ns, **host})
    )


def with_trials(whole: Session, changed: Callable[[TrialRecord], TrialRecord]) -> Session:
    return whole.model_copy(update={"trials": tuple(map(changed, whole.trials))})


def busy(whole: Session, percent: float, own_percent: float) -> Session:
    """The session with a machine whose CPU was so busy during each trial, so much of it by the trial itself."""

    def seen(trial: TrialRecord) -> TrialRecord:
        assert trial.steps is not None
        at = trial.steps.end_ns.unpack()
        shares = {"machine_cpu_percent": percent, "other_cpu_percent": percent - own_percent}
        return trial.model_copy(update={"samples": tuple(records.track(name, at, of) for name, of in shares.items())})

    return with_trials(whole, seen)


def kept(folder: Path, *sessions: Session) -> None:
    """Save the sessions of ranks where each rank does."""
    for whole in sessions:
        assert whole.host is not None
        own = folder / f"rank-{whole.host.rank:03}"
        own.mkdir()
        save(whole, own)


def only(merged: Session) -> HostsResult:
    """What was found of the hosts; where there are several numbers of them, of most."""
    assert merged.hosts is not None
    return merged.hosts.results[-1]


@pytest.mark.parametrize(
    ("machines", "percent", "kind", "words"),
    [
        (("a", "b"), (97.0, 30.0), "shared-storage", "storage is shared: at 2 hosts each waits"),
        (("a", "a"), (40.0, 15.0), "shared-storage", "ran on one machine, 40 % of its CPU busy, 30 % by them: there"),
        (("a", "a"), (97.0, 3.0), "shared-storage", "97 % of its CPU busy, 6 % by them: there, storage"),
        (("a", "a"), (97.0, 30.0), "inconclusive", "97 % of its CPU busy, 60 % by them: they may have waited for its"),
    ],
)
def test_ranks_that_waited_on_one_busy_machine_are_not_said_to_share_a_storage(
    machines: tuple[str, str], percent: tuple[float, float], kind: str, words: str
) -> None:
    found = only(merge.merge([busy(on(name, session(rank)), *percent) for rank, name in enumerate(machines)]))
    assert found.kind == kind
    assert words in found.text


def sampled(whole: Session, **metrics: float) -> Session:
    """The session with samples of these metrics at the end of each step; of CPU seconds so many a second."""

    def seen(trial: TrialRecord) -> TrialRecord:
        assert trial.steps is not None
        at = trial.steps.end_ns.unpack()
        cpu_s = (at - at[0]) / S
        values = {name: (cpu_s if name == "cpu_seconds" else 1.0) * value for name, value in metrics.items()}
        tracks = tuple(records.track(name, at, column) for name, column in values.items())
        return trial.model_copy(update={"samples": (*trial.samples, *tracks), "allowed_cpus": 2})

    return with_trials(whole, seen)


@pytest.mark.parametrize(
    ("cpu_s", "kind", "words"),
    [
        (1.0, "inconclusive", "100 % of the CPUs that they may use busy, 100 % by them: they may have waited"),
        (0.5, "shared-storage", "3 % of its CPU busy, 3 % by them: there, storage is shared"),
        (1.4, "shared-storage", "3 % of its CPU busy"),
        (1.9, "inconclusive", "95 % of the CPUs that they may use busy"),
    ],
)
def test_ranks_that_are_confined_to_some_cpus_may_have_waited_for_those(cpu_s: float, kind: str, words: str) -> None:
    """On a machine of 64 of which two may be theirs: more than these together, and each has CPUs of its own."""
    found = only(
        merge.merge([sampled(busy(on("a", session(rank)), 3.1, 1.55), cpu_seconds=cpu_s) for rank in range(2)])
    )
    assert found.kind == kind
    assert words in found.text


def test_containers_of_one_machine_share_it_whatever_they_are_called() -> None:
    pods = [busy(session(rank, name=f"pod-{rank}"), 97.0, 48.0) for rank in range(2)]
    found = only(merge.merge(pods))
    assert found.kind == "inconclusive"
    assert "ran on one machine, 97 % of its CPU busy, 96 % by them: they may have waited" in found.text


def test_where_the_cpu_of_a_shared_machine_is_not_known_its_cores_may_be_the_reason() -> None:
    assert only(merge.merge([on("a", session(rank)) for rank in range(2)])).kind == "inconclusive"
    assert only(merge.merge([on("ab"[rank], session(rank)) for rank in range(2)])).kind == "shared-storage"


def test_of_several_machines_the_one_whose_ranks_may_lack_cores_counts_and_not_the_busiest() -> None:
    ranks_of_two = [
        busy(on("a" if rank < 2 else "b", session(rank, 4)), *((95.0, 2.0) if rank < 2 else (94.0, 45.0)))
        for rank in range(4)
    ]
    found = only(merge.merge(ranks_of_two))
    assert found.kind == "inconclusive"
    assert "94 % of their CPU busy, 90 % by them" in found.text


def test_what_the_hypervisor_took_is_no_ranks_own() -> None:
    for stolen, own in ((50.0, "20 %"), (4.0, "112 %")):
        stolen_from = [
            sampled(on("a", session(rank)), machine_cpu_percent=85.0, other_cpu_percent=25.0, steal_percent=stolen)
            for rank in range(2)
        ]
        assert f"85 % of its CPU busy, {own} by them" in only(merge.merge(stolen_from)).text


def test_unequal_work_has_no_efficiency_and_no_verdict() -> None:
    bad = WorkCheck(status="unequal", text="it repeated 2,672 of 3,840 samples")
    spoilt = [
        whole.model_copy(
            update={
                "results": tuple(
                    each if "ceiling" in each.variant else each.model_copy(update={"work": bad})
                    for each in whole.results
                )
            }
        )
        for whole in (session(0, together_ms=10.0), session(1, together_ms=10.0))
    ]
    found = only(merge.merge(spoilt))
    assert (found.kind, found.efficiency.value, found.rounds, found.named) == ("not-measured", None, 0, ())
    words = "rank 0 and rank 1 did not do equal work: it repeated 2,672 of 3,840 samples; there is no rate to compare"
    assert found.text == f"2 hosts: {words}"


@pytest.mark.parametrize(
    ("epochs", "told"),
    [
        ((1000, 1000, 1000), None),
        ((1000, 100, 1000), "the others 1,000"),
        ((1000, 100, None), "rank 0 (a) 1,000"),
        ((None, None, None), None),
    ],
)
def test_ranks_that_read_other_data_are_not_compared(epochs: tuple[int | None, ...], told: str | None) -> None:
    """Each has read all of its own, as of a folder on its own disk."""
    read = []
    for rank, size in enumerate(epochs):
        numbered = size and NumberedSamples(epoch_samples=size, repeated=0, invented=0, lost=0, in_flight=0)
        work = Work(checked_steps=300, steps=300, numbered=numbered or None)
        whole = on("abc"[rank], session(rank, 3, together_ms=10.0))
        trials = [
            trial if trial.variant == "ceiling" else trial.model_copy(update={"work": work}) for trial in whole.trials
        ]
        read.append(whole.model_copy(update={"trials": tuple(trials)}))
    merged = merge.merge(read)
    unequal = {each.variant: each.work.text for each in merged.results if each.work.status == "unequal"}
    if told is None:
        assert not unequal
        assert only(merged).kind == "scales"
        return
    assert set(unequal) == {f"a, {on_hosts} · rank 1" for on_hosts in ("alone", "2 hosts", "3 hosts")}
    assert unequal["a, alone · rank 1"] == f"it read 100 samples an epoch, {told}"
    assert only(merged).efficiency.value is None
    words = f"rank 1 (b) did not do equal work: it read 100 samples an epoch, {told}; there is no rate to compare"
    assert only(merged).text.endswith(words)
    shown = " ".join(printed(terminal.render(merged, None, 80)).split())
    assert "a, alone · rank 1: not comparable, its work was not equal: it read 100 samples an epoch" in shown


def test_waits_are_of_the_time_in_which_all_train() -> None:
    """Rank 1 waits for 76 % of steps of 40 ms beside rank 0, and for 4 % of steps of 10 ms when that has ended."""

    def late(trial: TrialRecord) -> TrialRecord:
        if "hosts" not in trial.variant or trial.steps is None:
            return trial
        took_ms = np.array([40.0] * 75 + [10.0] * 225)
        steps = records.steps_of(took_ms, 0.0, int(trial.steps.start_ns.unpack()[0]))
        waits = Series.pack(((took_ms - 9.6) * 1e6).astype(np.int64))
        return trial.model_copy(update={"steps": steps.model_copy(update={"wait_ns": waits}), "warmup_steps": 1})

    found = only(merge.merge([session(0, together_ms=10.0), with_trials(session(1), late)]))
    assert found.wait_together[1] == pytest.approx(0.76, abs=0.01)
    assert (found.kind, found.named) == ("straggler", (1,))


def test_clocks_that_are_known_to_differ_are_set_right() -> None:
    """One that is ahead by 0.9 s, of trials of a second and a half."""
    short = [session(rank, together_ms=5.0, busy_ms=4.6) for rank in range(2)]
    assert only(merge.merge(short)).rounds == 3
    host = short[1].host
    assert host is not None
    ahead = host.model_copy(
        update={"wall_minus_monotonic_ns": host.wall_minus_monotonic_ns + 9 * S // 10, "clock_offset_s": 0.9}
    )
    set_right = merge.merge([short[0], short[1].model_copy(update={"host": ahead})])
    assert only(set_right).rounds == 3
    unknown = ahead.model_copy(update={"clock_offset_s": None})
    assert only(merge.merge([short[0], short[1].model_copy(update={"host": unknown})])).rounds == 0


@pytest.mark.parametrize(("turn_ms", "hosts"), [(31.4, 2), (23.1, 3), (23.1, 4), (14.0, 4)])
def test_the_efficiency_is_that_of_hosts_whose_steps_were_simulated(turn_ms: float, hosts: int) -> None:
    """Steps of 60 ms and a storage that gives a batch every `turn_ms`, one to a host after the other."""
    wanted, machine = 60.0, Machine(60.0, 1.0, turn_ms, 2, 0.2)
    whole = [session(rank, hosts, together_ms=60.0, busy_ms=9.0) for rank in range(hosts)]
    ends_ms = {count: simulate(machine, count, seed=count).ends_ms for count in (1, hosts)}
    for rank, own in enumerate(whole):
        trials = []
        for trial in own.trials:
            count = hosts if trial.variant == f"a, {hosts} hosts" else 1
            at_ns = trial.started_ns + np.asarray(ends_ms[count][rank if count > 1 else 0]) * 1e6
            steps = records.steps_of(np.diff(at_ns) / 1e6, 1.0, int(at_ns[0]))
            trials.append(trial.model_copy(update={"steps": steps, "warmup_steps": 10}))
        whole[rank] = own.model_copy(update={"trials": tuple(trials)})
    efficiency = only(merge.merge(whole)).efficiency
    assert efficiency.value == pytest.approx(min(1.0, wanted / turn_ms / hosts), abs=0.02)


def test_two_hosts_become_one_session_with_their_sum_and_the_verdict(tmp_path: Path) -> None:
    """Each takes 10 ms a step alone and 25 beside the other: 40 %. They were booted at other times."""
    kept(tmp_path, *(session(rank, booted_ns=rank * 5000 * S, boot=str(rank)) for rank in range(2)))
    merged = merge.merge(merge.read(tmp_path))
    assert merged.hosts is not None
    (found,) = merged.hosts.results
    assert found.efficiency.value == pytest.approx(0.4, abs=0.01)
    assert found.samples_per_second == pytest.approx(2 * 128 / 0.025, rel=0.01)
    assert found.kind == "shared-storage"
    assert "at 2 hosts each waits 62 %, alone 4 %" in found.text
    assert "machine" not in found.text
    assert {result.variant for result in merged.results} >= {"a, alone · rank 0", "a, 2 hosts · rank 1"}
    together = [record for record in merged.trials if record.variant.startswith("a, 2 hosts")][:2]
    assert together[0].started_ns == together[1].started_ns
    save(merged, tmp_path)
    assert load(tmp_path).hosts == merged.hosts


def test_the_time_that_a_sample_covers_is_moved_to_the_common_clock_with_its_stamp() -> None:
    covered = Track(
        metric=ACTIVITY[0],
        source="GPM",
        at_ns=Series.pack([2 * S]),
        from_ns=Series.pack([S]),
        values=Series.pack([50.0]),
    )
    with_sample = partial(TrialRecord.model_copy, update={"samples": (covered,)})
    merged = merge.merge([session(0), with_trials(session(1, booted_ns=5000 * S), with_sample)])
    (found,) = next(trial.samples for trial in merged.trials if trial.samples)
    assert found.from_ns is not None
    assert found.from_ns.unpack().tolist() == [5001 * S]


def on(machine: str, whole: Session, **environment: Any) -> Session:
    """The session as one that ran on another machine."""
    assert whole.host is not None
    host = whole.host.model_copy(update={"name": machine, "boot": machine})
    return whole.model_copy(update={"host": host, "environment": CPU.model_copy(update=environment)})


def told(merged: Session) -> list[str]:
    """What the reports say of the hosts."""
    return [f"{name}: {text}" for name, text in machines.hosts(merged)]


def test_reports_show_each_host_with_its_machine_and_its_own_page_cache() -> None:
    cached = [
        on(f"node-{rank}", session(rank), cores=64 * (1 - rank) + 2, cpu=f"CPU {rank}", accelerator_name=f"CPU {rank}")
        for rank in range(2)
    ]
    files = [Storage(asked="as-is", size_bytes=10**6, resident_share=share) for share in (0.25, 1.0)]
    cached = [
        with_trials(each, partial(TrialRecord.model_copy, update={"storage": seen}))
        for each, seen in zip(cached, files, strict=True)
    ]
    merged = merge.merge(cached)
    page, marked = html.render(merged), markdown.render(merged).replace("\\", "")
    text = " ".join(printed(terminal.render(merged, None, 80)).split())
    for line in told(merged):
        assert line in page
        assert line in text
        assert line.partition(": ")[2] in marked
    first, second, remark = told(merged)
    assert first.startswith("rank 0: node-0; CPU 0, 66 cores; files as found: 25 % in the page cache before training")
    assert second.startswith("rank 1: node-1; CPU 1, 2 cores; files as found: 100 % in the page cache before training")
    assert remark == "remark: machines differ: the heading shows that of rank 0; unlike it: rank 1"
    assert machines.storage(merged) == []


def test_a_round_in_which_a_host_fell_out_does_not_count_for_the_others() -> None:
    """In round 1 rank 1 fails midway, and rank 0 goes on with the storage for itself: it waits for nothing."""
    first, second = session(0), session(1)

    def changed(whole: Session, **update: Any) -> Session:
        updates = {("a, 2 hosts", 1): update}
        return with_trials(whole, lambda t: t.model_copy(update=updates.get((t.variant, t.repeat))))

    (fed,) = [trial for trial in first.trials if (trial.variant, trial.repeat) == ("a, alone", 1)]
    found = only(merge.merge([changed(first, steps=fed.steps), changed(second, status="failed", reason="planted")]))
    assert found.rounds == 2
    assert found.wait_together == pytest.approx((0.616, 0.616))


def test_rounds_in_which_a_host_came_late_have_no_efficiency_and_no_straggler() -> None:
    """Rank 1 begins 2 s into the 3 of rank 0: what it waits after these is not what both wait together."""
    found = only(merge.merge([session(0, together_ms=10.0), session(1, together_ms=25.0, late_ns=2 * S)]))
    assert (found.kind, found.rounds, found.wait_together) == ("not-measured", 0, (None, None))
    assert found.text.endswith(
        "all at once for at least half of a trial; they began to train 2.03 s apart: make trials longer, --time 10"
    )


def test_a_host_that_is_busy_for_less_of_an_equally_long_step_has_no_slow_input() -> None:
    """Rank 1 waits 80 % of its steps alone, and rank 0 4 %; both get a batch in 10 ms."""
    found = only(merge.merge([session(0, together_ms=10.0), session(1, together_ms=10.0, busy_ms=2.0)]))
    assert found.wait_alone == pytest.approx((0.04, 0.8), abs=0.01)
    assert (found.kind, found.named) == ("scales", ())


def test_ranks_whose_input_is_made_in_memory_share_no_storage() -> None:
    whole = [session(rank).model_dump_json().replace('"kind":"tfrecord"', '"kind":"synthetic"') for rank in range(2)]
    found = only(merge.merge([Session.model_validate_json(each) for each in whole]))
    assert found.kind == "inconclusive"
    assert "each waits 62 %, alone 4 %" in found.text


def with_files(whole: Session, resident: float | None, read: float, source: str = "tfrecord") -> Session:
    """The session of files of which so much was in the page cache, and so much was read from storage."""
    epoch = StorageEpoch(index=0, size_bytes=10**9, read_bytes=round(read * 10**9), resident_share=resident)
    seen = Storage(asked="as-is", size_bytes=10**9, resident_share=resident, epoch_count=1, epochs=(epoch,))
    variants = tuple(
        each.model_copy(update={"source": each.source.model_copy(update={"kind": source})})
        for each in whole.scenario.variants
    )
    scenario = whole.scenario.model_copy(update={"variants": variants})
    changed = partial(TrialRecord.model_copy, update={"storage": seen})
    return with_trials(whole.model_copy(update={"scenario": scenario}), changed)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((1.0, 0.0), True),
        ((0.2, 1.1), False),
        ((0.2, 0.0), False),  # a network's file system that counts nothing
        ((None, 0.0), False),
        ((1.0, 0.0, "slow_storage"), False),
    ],
    ids=["cached", "read", "read uncounted", "not known", "emulated"],
)
def test_hosts_that_scale_on_files_of_their_page_caches_say_nothing_of_a_storage(files: Any, said: bool) -> None:
    merged = merge.merge([with_files(session(rank, together_ms=10.0), *files) for rank in range(2)])
    found = only(merged)
    assert found.kind == "scales"
    assert ("from their page caches, which says nothing of a shared storage" in found.text) is said
    assert (
        any("from the page cache" in note for note in planning.plan(merged, PlanRequest(None, (1, 8)), "").notes)
        is said
    )


def test_ranks_on_one_machine_are_said_to_share_it() -> None:
    merged = merge.merge([on("node-a", session(rank, 3)) for rank in (0, 1)] + [on("node-b", session(2, 3))])
    remark = told(merged)[-1]
    assert remark.startswith("remark: ranks 0, 1 ran on one machine, node-a, and shared its cores")
    assert remark.endswith("; there they also measured their ceilings at once, so that AU may be too high")
    trained = merge.merge([on("node-a", watched(rank, 1.0, None)) for rank in (0, 1)])
    assert told(trained)[-1].endswith("memory bandwidth and page cache")


def test_machines_that_are_called_alike_but_were_booted_at_other_times_are_several() -> None:
    booted_ns = (0, 1000 * S, S // 2)
    older = [session(rank, 3, booted_ns=booted_ns[rank], name="trainer", boot=None) for rank in range(3)]
    of_one_image = [session(rank, 3, name="trainer", boot=("a", "b", "a")[rank]) for rank in range(3)]
    for made in (older, of_one_image):
        assert told(merge.merge(made))[-1].startswith("remark: ranks 0, 2 ran on one machine, trainer,")


def test_reports_show_the_efficiency_also_where_a_host_is_named() -> None:
    """Rank 1 waits 62 % of its step beside rank 0, which goes on as alone: one straggler."""
    merged = merge.merge([session(0, together_ms=10.0), session(1, together_ms=25.0)])
    assert (only(merged).kind, only(merged).host) == ("straggler", 1)
    assert "70 %" not in conclude(merged)
    ((name, figures),) = machines.together(merged)
    assert figures == ["2", "17.9k", "70 % (66 to 74 %)", "3"]
    row = f"| {name} | {' | '.join(figures)} |"
    assert row in markdown.render(merged)
    shown = " ".join(printed(terminal.render(merged, None, 80)).split())
    assert f"{name} {' '.join(figures)}" in shown
    assert f"{name} {' '.join(figures)}" in " ".join(screen.as_text(merged).split())
    for cell in figures:
        assert f"<span>{cell}</span>" in html.render(merged)
    assert machines.together(session(0)) == []


def test_a_verdict_names_the_machine_where_there_are_several() -> None:
    calm, slow = watched(0, 1.0, None), watched(1, 31.0, None)
    for name, expected in (("node-b", "rank 1 (node-b) waits 62 %"), ("node-a", "rank 1 waits 62 %")):
        assert expected in only(merge.merge([on("node-a", calm), on(name, slow)])).text
    assert told(merge.merge([on("node-a", calm), on("node-b", slow)])) == [
        "rank 0: node-a; Example CPU 2.0 GHz, 2 cores",
        "rank 1: node-b; Example CPU 2.0 GHz, 2 cores",
    ]


def test_a_difference_of_two_merged_sessions_tells_their_efficiencies() -> None:
    before, after = (
        merge.merge([on("ab"[rank], session(rank, together_ms=ms)) for rank in range(2)]) for ms in (25.0, 10.0)
    )
    (told,) = between(before, after).hosts
    assert told.startswith("a on 2 hosts: efficiency 40 %")
    assert "→ 100 %" in told
    assert "shared-storage → " in told
    assert told in markdown_difference(between(before, after)).replace("\\", "")
    assert between(session(0), session(0)).hosts == ()


def test_a_machine_of_a_later_rank_that_differs_is_a_condition() -> None:
    before, after = (
        merge.merge([on("a", session(0)), on("b", session(1), cpu=cpu, cores=cores)])
        for cpu, cores in (("X", 2), ("Y", 64))
    )
    found = {each.name: (each.before, each.after) for each in between(before, after).conditions}
    assert found == {"CPU of rank 1": ("X", "Y"), "cores of rank 1": ("2", "64")}


def test_the_names_of_merged_sessions_are_whole_in_80_columns() -> None:
    """What does not fit its column goes on in the next line, so that no two rows have the same name."""
    merged = merge.merge([session(0), session(1)])
    named = Session.model_validate_json(merged.model_dump_json().replace('"a, 2 hosts', '"reader_queue, 2 hosts'))
    table = figures_table(named, 80, margins=True, references=True, limit=None, most=None)
    names = "".join(line[:24].strip() + " " for line in printed(table).splitlines())
    for rank in (0, 1):
        assert f"reader_queue, 2 hosts · rank {rank}" in " ".join(names.split())


def test_a_rank_that_is_missing_is_named() -> None:
    merged = merge.merge([session(0, 3), session(2, 3)])
    assert merged.hosts is not None
    assert merged.hosts.missing == (1,)
    assert "1 rank of 3 left no session: 1" in merged.notes
    alone = conclude(merge.merge([session(0)]))
    assert alone.startswith("No hosts ran a trial at the same time: 1 rank of 2 is missing.")


def test_a_rank_that_was_refused_before_its_first_trial_is_missing_and_the_others_are_merged() -> None:
    """It has another TensorFlow, or lacks a library: it has other trials than rank 0."""
    why = "rank 1 has other trials than rank 0"
    other = session(1, 3)
    failed = partial(TrialRecord.model_copy, update={"status": "failed", "reason": why, "phases": (), "steps": None})
    refused = with_trials(on("b", other, tensorflow="2.1").model_copy(update={"results": ()}), failed)
    merged = merge.merge([session(0, 3), refused, session(2, 3)])
    assert merged.hosts is not None
    assert merged.hosts.missing == (1,)
    assert merged.notes == (f"rank 1 ran no trial: {why}",)
    assert {trial.rank for trial in merged.trials} == {0, 2}
    with pytest.raises(SessionError, match="cannot be compared"):
        merge.merge([session(0, 3), refused.model_copy(update={"trials": other.trials}), session(2, 3)])
    assert merge.merge([refused]).trials


def test_a_rank_that_was_killed_between_its_trials_is_said_to_have_ended_early() -> None:
    """Its last trials, the ceilings', need no other rank, of whose trials none fails."""
    killed = session(1)
    merged = merge.merge([session(0), killed.model_copy(update={"trials": killed.trials[:-1]})])
    (note,) = merged.notes
    assert note == "rank 1 ended early, or still runs: 8 of 9 trials; the next was ceiling, repeat 3"
    assert merge.merge([session(0), session(1)]).notes == ()


@pytest.mark.parametrize(("whose", "words"), [(0, "is of rank 0, and lies in rank-001"), (None, "is of no rank")])
def test_a_session_in_the_folder_of_another_rank_is_refused(tmp_path: Path, whose: int | None, words: str) -> None:
    """A copy of one rank's would count as a second training of it."""
    other = session(0).model_copy(update={} if whose == 0 else {"host": None})
    kept(tmp_path, session(0), session(1))
    save(other, tmp_path / "rank-001")
    with pytest.raises(SessionError) as refused:
        merge.read(tmp_path)
    assert words in refused.value.message


@pytest.mark.parametrize("host", [{"rank": 2}, {"rank": -1}, {"size": 0}, {"size": 10**9}])
def test_a_rank_that_is_none_of_so_many_is_a_damaged_session(tmp_path: Path, host: dict[str, int]) -> None:
    whole = session(1)
    assert whole.host is not None
    kept(tmp_path, whole)
    save(whole.model_copy(update={"host": whole.host.model_copy(update=host)}), tmp_path / "rank-001")
    with pytest.raises(SessionError, match=r"damaged one: host") as refused:
        merge.read(tmp_path)
    assert refused.value.hint == "Remove rank-001 to merge the other ranks without it."


def test_of_very_many_missing_ranks_the_first_are_listed() -> None:
    (note,) = merge.merge([session(0, 100)]).notes
    assert note == "99 ranks of 100 left no session: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 …"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda s: s.model_copy(update={"environment": CPU.model_copy(update={"package": "9"})}), "package is 0.1.0"),
        (lambda s: later(s, 10 * 86400), "did not run at the same time"),
        (lambda s: s.model_copy(update={"scenario": s.scenario.model_copy(update={"name": "x"})}), "their scenarios"),
        (lambda s: s.model_copy(update={"host": s.host.model_copy(update={"size": 3})}), "different numbers of ranks"),
        (lambda s: s.model_copy(update={"host": s.host.model_copy(update={"clock_offset_s": 3.0})}), "ahead of that"),
    ],
)
def test_what_cannot_be_compared_is_refused(other: Any, words: str) -> None:
    with pytest.raises(SessionError) as refused:
        merge.merge([session(0), other(session(1))])
    assert words in refused.value.message
    assert "rank-000 or rank-001" in refused.value.hint
    assert "To merge the others, remove" in refused.value.hint


def later(whole: Session, seconds: float) -> Session:
    """The session as one that ran so much later."""
    assert whole.host is not None
    since_ns = whole.host.wall_minus_monotonic_ns + round(seconds * S)
    return whole.model_copy(update={"host": whole.host.model_copy(update={"wall_minus_monotonic_ns": since_ns})})


def test_ranks_of_two_runs_are_refused() -> None:
    """Rank 2's trials at once are of ten days later; a rank that only ran alone met nobody, and need not have."""
    first, second, third = (session(rank, 3) for rank in range(3))
    with pytest.raises(SessionError) as refused:
        merge.merge([first, second, later(third, 10 * 86400)])
    assert refused.value.message == (
        "Rank 0 and rank 2 did not run at the same time: the first ran until 1970-01-01 00:06:47 UTC, the second from "
        "1970-01-11 00:06:39 UTC on."
    )
    alone = third.model_copy(update={"trials": third.trials[:1]})
    merge.merge([first, second, later(alone, 500)])


@pytest.mark.parametrize(
    ("seconds", "collective_ms", "before_s", "is_refused"),
    [
        (10 * 86400, (None, None), None, True),
        (100, (None, None), None, False),  # they do not wait for each other
        (100, (35.0, 5.0), None, True),
        (3, (35.0, 5.0), None, False),
        (500, (None, None), 450.0, False),  # it was there before it trained
    ],
)
def test_trainings_of_two_runs_are_refused(
    seconds: float, collective_ms: tuple[float | None, ...], before_s: float | None, is_refused: bool
) -> None:
    """Of 5 s each."""
    first, second = (watched(rank, 1.0, each) for rank, each in enumerate(collective_ms))
    if before_s is not None:
        second = second.model_copy(update={"wall_time": WallTime(before_s=before_s, begin_ns=0, end_ns=5 * S)})
    both = [first, later(second, seconds)]
    if not is_refused:
        assert merge.trainings(both) == [both]
        return
    with pytest.raises(SessionError, match="Rank 0 and rank 1 did not run at the same time"):
        merge.trainings(both)


def test_a_rank_that_trains_several_times_at_its_own_pace_meets_the_others() -> None:
    """Its last training begins long after that of the faster rank has ended."""
    fast, slow = watched(0, 1.0, None), watched(1, 1.0, None)
    several = [fast, later(fast, 300), slow, later(slow, 250), later(slow, 500)]
    assert len(merge.trainings(several)) == 3


def test_variants_that_differ_are_refused() -> None:
    changed = session(1)
    variants = [v.model_copy(update={"options": {"threads": 2}}) for v in changed.scenario.variants]
    changed = changed.model_copy(update={"scenario": changed.scenario.model_copy(update={"variants": tuple(variants)})})
    with pytest.raises(SessionError, match="variants 'a, alone' differ"):
        merge.merge([session(0), changed])
    first = session(1).scenario
    fewer = session(1).model_copy(update={"scenario": first.model_copy(update={"variants": first.variants[:2]})})
    with pytest.raises(SessionError, match="variants 'ceiling' differ"):
        merge.merge([session(0), fewer])
    merge.merge([session(0, 3), session(2, 3)])  # rank 2 is not among 2 hosts


def watched(rank: int, wait_ms: float, collective_ms: float | None, size: int = 2, step_ms: float = 50.0) -> Session:
    """A rank's session of a training that it watched itself."""
    whole = session(0)
    (result,) = [each for each in whole.results if each.variant == "ceiling"]
    host = {"wall_minus_monotonic_ns": 0, "collective_ms": collective_ms}
    result = result.model_copy(
        update={
            "variant": "job",
            "step_ms": StepTime(median=step_ms, mean=step_ms),
            "input_wait_ms": Estimate(value=wait_ms),
            "input_wait_share": Estimate(value=wait_ms / step_ms),
        }
    )
    job = variant("job", ceiling=None)
    job = job.model_copy(update={"run": job.run.model_copy(update={"repeats": 1})})
    return whole.model_copy(
        update={
            "watched": True,
            "scenario": scenario(job),
            "trials": (records.record("job", 0, step_ms, wait_ms, noise=0.0),),
            "results": (result,),
            "host": Rank(rank, size, "pmi").host(0.0).model_copy(update=host),
        }
    )


@pytest.mark.parametrize(
    ("first", "second", "kind", "host", "words"),
    [
        ((1.0, 35.0), (31.0, 5.0), "slow-input", 1, "the input of rank 1 delays all workers"),
        ((1.0, 35.0), (1.0, 5.0), "slow-model", 1, "rank 1 delays all workers, but not by its input"),
        ((1.0, None), (31.0, None), "straggler", 1, "rank 1 waits 62 %, the others 2 %"),
        ((1.0, None), (1.0, None), "watched", None, "rank 0 waits 2 %; rank 1 waits 2 %"),
    ],
)
def test_the_sessions_that_run_left_of_one_training_are_merged(
    first: tuple[float, float | None], second: tuple[float, float | None], kind: str, host: int | None, words: str
) -> None:
    """Of each rank, how many ms it waits for its input and for the others."""
    merged = merge.merge([watched(0, *first), watched(1, *second)])
    assert (only(merged).kind, only(merged).host) == (kind, host)
    assert words in only(merged).text
    assert [result.variant for result in merged.results] == ["job · rank 0", "job · rank 1"]


def test_what_one_rank_says_of_itself_is_not_said_of_all() -> None:
    """Rank 1 alone waited 40 s for its first batch; its wall time is not that of rank 0, nor of all."""

    def told_by(rank: int, first_wait_ns: int, *notes: str) -> Session:
        epoch = Epoch(begin_ns=0, end_ns=100 * S, steps_ns=90 * S, wait_ns=first_wait_ns, first_wait_ns=first_wait_ns)
        time = WallTime(begin_ns=0, end_ns=100 * S, epochs=(epoch,))
        return watched(rank, 1.0, None, size=3).model_copy(update={"wall_time": time, "notes": ("all", *notes)})

    merged = merge.merge([told_by(0, 0), told_by(1, 40 * S), told_by(2, 0, "only here")])
    assert merged.wall_time is None
    assert merged.notes == (
        "all",
        "rank 1: the first batch was waited for 40 s: does a shuffle buffer fill, or do workers start?",
        "rank 2: only here",
    )
    assert merge.merge([told_by(0, 0), told_by(2, 0)]).notes[:2] == ("all", "1 rank of 3 left no session: 1")
    assert merge.merge([told_by(1, 0, "x")]).notes[:2] == ("rank 1: all", "rank 1: x")
    several = merge.merge([told_by(0, 0, "x"), told_by(1, 0, "x"), told_by(2, 0)])
    assert several.notes == ("all", "rank 0 and rank 1: x")


def test_of_very_many_ranks_without_a_verdict_the_first_are_listed() -> None:
    merged = merge.merge([watched(rank, 1.0, None, size=40) for rank in range(40)])
    assert "rank 15 waits 2 % … for its input" in conclude(merged)
    assert "rank 16" not in conclude(merged)


@pytest.mark.parametrize(("first", "second"), [((5.0, 6.0), (30.0, 5.0)), ((5.0, 1.0), (25.0, 9.0))])
def test_who_waits_for_its_input_and_delays_nobody_is_no_straggler(
    first: tuple[float, float], second: tuple[float, float]
) -> None:
    found = only(merge.merge([watched(0, *first), watched(1, *second)]))
    assert (found.kind, found.named) == ("watched", ())
    assert "rank 0 waits" in found.text


def test_what_is_compared_of_workers_is_of_the_same_steps() -> None:
    """Rank 1 waits 100 ms in every other step, beside other work that only its own machine has and its report omits."""
    workers = []
    for rank, collective_ms in enumerate((51.0, 1.0)):
        whole = watched(rank, 0.3, collective_ms)
        took_ms = np.array([10.0, 110.0] * 50)
        waits_ms = np.where(took_ms > 100, 100.3, 0.3) if rank else np.full(100, 0.3)
        (trial,) = whole.trials
        steps = records.steps_of(took_ms).model_copy(update={"wait_ns": Series.pack((waits_ms * 1e6).astype(np.int64))})
        update: dict[str, Any] = {"trials": (trial.model_copy(update={"steps": steps, "warmup_steps": 0}),)}
        if rank:
            (result,) = whole.results
            quiet = {"steps": 50, "step_ms": StepTime(median=10.0, mean=10.0)}
            update["results"] = (result.model_copy(update=quiet),)
        workers.append(whole.model_copy(update=update))
    found = only(merge.merge(workers))
    assert (found.kind, found.named) == ("slow-input", (1,))
    assert "waits 50.3 ms, 84 % of a step" in found.text
    assert "wait 50.0 ms for it, 83 % of their step; this is of all steps, also of those that had" in found.text
    assert "all steps" not in only(merge.merge([watched(0, 1.0, 35.0), watched(1, 31.0, 5.0)])).text


@pytest.mark.parametrize(
    ("waits_ms", "collectives_ms", "kind", "is_said"),
    [
        # Rank 0 is late with its input and rank 1 with its gradients, by 40 and 30 ms; and by 40 and 40.
        ((50.0, 0.4), (30.0, 40.0), "watched", True),
        ((40.0, 0.4), (40.0, 40.0), "watched", True),
        ((60.0, 0.4), (20.0, 60.0), "slow-input", True),
        ((60.0, 0.4), (2.0, 60.0), "slow-input", False),
        ((50.0, 0.4), (None, None), "straggler", False),
    ],
)
def test_where_all_are_long_at_collectives_more_than_one_may_delay_the_others(
    waits_ms: tuple[float, ...], collectives_ms: tuple[float | None, ...], kind: str, is_said: bool
) -> None:
    each = enumerate(zip(waits_ms, collectives_ms, strict=True))
    found = only(merge.merge([watched(rank, *parts, step_ms=90.0) for rank, parts in each]))
    assert found.kind == kind
    assert found.text.endswith("or more than one rank delays the others") is is_said


@pytest.mark.parametrize(
    ("step_ms", "kind"),
    [
        (25.0, "watched"),  # a faster accelerator
        (50.0, "straggler"),  # all may step alike because they wait for it
        (80.0, "straggler"),
    ],
)
def test_without_collectives_the_rank_that_steps_fastest_is_no_straggler(step_ms: float, kind: str) -> None:
    found = only(merge.merge([watched(0, 5.0, None), watched(1, 0.4 * step_ms, None, step_ms=step_ms)]))
    assert (found.kind, found.named) == (kind, () if kind == "watched" else (1,))


@pytest.mark.parametrize("collective_ms", [(35.0, 5.0), (None, None)])
def test_where_a_rank_is_missing_the_slow_one_keeps_its_number(collective_ms: tuple[float | None, ...]) -> None:
    found = only(merge.merge([watched(0, 1.0, collective_ms[0], size=3), watched(2, 31.0, collective_ms[1], size=3)]))
    assert found.host == 2
    assert "rank 2" in found.text
    assert "rank 1" not in found.text
    assert found.wait_together == (0.02, None, 0.62)


def test_trainings_of_other_programs_are_refused() -> None:
    first, second = (
        watched(rank, 1.0, None).model_copy(update={"command": command})
        for rank, command in enumerate(("train.py --rank 0", "other.py --rank 1"))
    )
    with pytest.raises(SessionError, match=r"one ran train\.py, the other other\.py"):
        merge.merge([first, second])
    merge.merge([first, second.model_copy(update={"command": "train.py --rank 1"})])


def test_the_trainings_of_a_script_with_two_are_merged_each_by_itself(tmp_path: Path) -> None:
    """Both ranks train twice, and the first one evaluates between: it is known by its name, and is of one rank."""
    for rank in range(2):
        ran = [("fit", 1.0), *([] if rank else [("evaluate", 1.0)]), ("fit", 31.0 * rank)]
        for number, (name, wait_ms) in enumerate(ran):
            folder = tmp_path / f"rank-{rank:03}" / f"{9 - number}"
            folder.mkdir(parents=True)
            whole = watched(rank, wait_ms, None)
            (trial, *_) = session(rank).trials
            update = {
                "scenario": whole.scenario.model_copy(update={"name": name}),
                "trials": (merge.shifted(trial, number * 10 * S).model_copy(update={"variant": "job"}),),
            }
            save(whole.model_copy(update=update), folder)
    assert run(["merge", str(tmp_path), "--json", "-"]) == 2
    assert run(["merge", str(tmp_path)]) == 0  # that no rank 1 evaluated is no failure
    merged = [load(path) for path in sorted(tmp_path.glob("training-*/session.json"))]
    told = [(each.scenario.name, each.hosts.results[0].host, each.hosts.missing) for each in merged if each.hosts]
    assert told == [("fit", None, ()), ("evaluate", None, ()), ("fit", 1, ())]
    assert [each.notes for each in merged] == [(), ("only rank 0 ran this training",), ()]
    for number in range(3):
        shutil.rmtree(tmp_path / "rank-001" / f"{9 - number}", ignore_errors=True)
    assert run(["merge", str(tmp_path)]) == 1
    assert load(tmp_path / "training-2").notes == ("1 rank of 2 left no session: 1",)


@pytest.mark.parametrize(
    ("pids", "second_from_s", "longest_ms", "told"),
    [
        ((7, 8), 0.02, 50.0, True),  # which take their batches in the same order, and never wait at once
        ((7, 8), 20.0, 50.0, False),  # one after the other
        ((7, 8), 3.0, 9000.0, False),  # one that the other one starts between two epochs, as to evaluate
        ((7, 7), 0.02, 50.0, False),  # one process that takes a batch of each of two data, or validates
        ((None, None), 0.02, 50.0, False),  # of an older version
    ],
)
def test_processes_of_one_rank_that_trained_at_once_are_told(
    pids: tuple[int | None, int | None], second_from_s: float, longest_ms: float, told: bool
) -> None:
    """As torchrun starts them on each node under srun, which knows one rank there."""
    ran = []
    for pid, from_s, most_ms in zip(pids, (0.0, second_from_s), (longest_ms, 50.0), strict=True):
        whole = watched(0, 1.0, None)
        assert whole.host is not None
        steps = records.steps_of(np.array([50.0] * 49 + [most_ms] + [50.0] * 50), 10.0, round(from_s * S))
        trial = whole.trials[0].model_copy(update={"steps": steps})
        host = whole.host.model_copy(update={"pid": pid})
        ran.append(whole.model_copy(update={"trials": (trial,), "host": host}))
    merged = [merge.merge([ran[0], watched(1, 1.0, None)], None, [ran[1]]), merge.merge(ran[1:], None, ran[:1])]
    for each in merged:
        assert any("several processes of rank 0 trained at once" in note for note in each.notes) is told


def test_every_training_is_merged_also_where_nobody_reads_the_first(tmp_path: Path) -> None:
    for number in range(2):
        folder = tmp_path / "rank-000" / f"{number}"
        folder.mkdir(parents=True)
        save(session(0), folder)
    with suppress(BrokenPipeError), unread() as stdout, redirect_stdout(stdout):
        run(["merge", str(tmp_path)])
    assert [path.parent.name for path in sorted(tmp_path.glob("training-*/report.html"))] == [
        "training-1",
        "training-2",
    ]


def test_a_file_in_the_place_of_a_trainings_folder_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        folder = tmp_path / "rank-000" / f"{number}"
        folder.mkdir(parents=True)
        save(session(0), folder)
    (tmp_path / "training-1").touch()
    assert run(["merge", str(tmp_path)]) == 2
    assert "training-1 cannot be made: File exists." in capsys.readouterr().err


def test_who_was_lost_is_a_note_also_of_a_second_merge(tmp_path: Path) -> None:
    """It lies in the folder, beside the word of a rank that ended early, whose session says as much itself."""
    kept(tmp_path, on("a", session(0)), on("b", session(1)))
    (tmp_path / FOLDER).mkdir()
    gone_path(tmp_path / FOLDER, 0).write_text(ENDED_EARLY)
    gone_path(tmp_path / FOLDER, 1).write_text("its node died")
    for _ in range(2):
        assert run(["merge", str(tmp_path)]) == 1
        assert load(tmp_path).notes == ("rank 1 (b) was lost: its node died",)


def test_interrupted_ranks_are_said_to_be_and_no_success(tmp_path: Path) -> None:
    for rank in range(2):
        whole = on("ab"[rank], session(rank))
        cut = whole.trials[-1].model_copy(update={"status": "interrupted", "reason": "Ctrl-C"})
        kept(tmp_path, whole.model_copy(update={"trials": (*whole.trials[:-1], cut)}))
    assert run(["merge", str(tmp_path)]) == 1
    assert conclude(load(tmp_path)).startswith("Interrupted; until then: Storage is shared")


def test_a_merge_that_cannot_be_saved_is_one_message_and_leaves_the_ranks_sessions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in the way stands for a full or read-only disk."""
    kept(tmp_path, session(0), session(1))
    (tmp_path / "session.json").symlink_to("session.json")
    assert run(["merge", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "session.json cannot be written: Too many levels of symbolic links" in said
    assert "merge a copy of the folder; the ranks' sessions are as they were" in said
    assert len(merge.read(tmp_path)) == 2


def test_a_folder_without_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no sessions of ranks"):
        merge.read(tmp_path)
