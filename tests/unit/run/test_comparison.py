"""Where a session goes, and what is refused before anything is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench import plugins
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.model.result import Precision
from pipeline_bench.model.session import load, make_folder, save
from pipeline_bench.model.trial import round_of
from pipeline_bench.run import comparison
from pipeline_bench.run.comparison import OtherWork, new_session
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.samplers.nvml import STOPPED, NvmlSampler, Timeouts
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.sources.memory import Memory
from tests.stubs.nvml import nvml_stub, use
from tests.unit import sessions
from tests.unit.made_here import made_here
from tests.unit.records import record, scenario

__all__ = ["made_here", "nvml_stub"]

NOON = datetime(2026, 1, 2, 12, 0, 0)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("two_layer", "20260102-120000-two_layer"),
        ("../../etc/passwd", "20260102-120000-etc-passwd"),
        ("名前", "20260102-120000-scenario"),
        ("x" * 500, "20260102-120000-" + "x" * 60),
    ],
)
def test_a_session_has_a_folder_of_its_own_whatever_its_scenario_is_called(
    tmp_path: Path, name: str, folder: str
) -> None:
    wanted = scenario("feed_dict").model_copy(update={"name": name})
    assert make_folder(tmp_path, wanted.name, lambda: NOON) == tmp_path / folder


def test_two_sessions_of_one_second_do_not_share_a_folder(tmp_path: Path) -> None:
    first, second = (make_folder(tmp_path, scenario("feed_dict").name, lambda: NOON) for _ in range(2))
    assert first != second
    assert second.is_dir()


def test_a_file_in_the_way_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--out"):
        make_folder(tmp_path / "file", scenario("feed_dict").name, lambda: NOON)


def test_a_long_wait_for_the_driver_is_shown_and_ends(nvml_stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Listener(Observer):
        def preparing(self, what: str) -> None:
            shown.append(what)

    use(monkeypatch, nvml_stub, NVML_STUB_MODE="hang_in_init")
    monkeypatch.setattr(comparison, "_OPENS_WITHIN_S", 0.05)
    with closing(NvmlSampler.open(Timeouts(opening_s=0.3, end_s=0.2))) as gpu:
        session = new_session(scenario("feed_dict"), gpu, observer=Listener())
    assert shown == ["waiting for the NVIDIA driver to list the GPUs"]
    assert session.environment.accelerator_reason == STOPPED


@pytest.mark.parametrize("out", ["link", "link/inside"])
def test_a_link_that_leads_nowhere_is_named(out: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"--out .*: .*/link is a broken link to nowhere") as caught:
        make_folder(tmp_path / out, scenario("feed_dict").name, lambda: NOON)
    assert "Correct or remove the link" in caught.value.hint


def test_a_link_to_a_folder_is_as_good_as_the_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert make_folder(tmp_path / "link", scenario("feed_dict").name, lambda: NOON).is_dir()


def test_a_command_line_with_bytes_that_are_no_text_is_kept_as_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/bin/pipeline-bench", "compare", "--out", os.fsdecode(b"caf\xe9"), "\ud800"])
    session = new_session(scenario("feed_dict"), NvmlSampler())
    assert session.command == "pipeline-bench compare --out 'caf\\xe9' '\ufffd'"
    save(session, tmp_path)
    assert load(tmp_path) == session


def test_data_that_cannot_be_made_leaves_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise PipelineBenchError("the process that makes the data ended with exit code 1")

    monkeypatch.setattr(comparison, "prepare_data", lost)
    folder = make_folder(tmp_path, "decode_jpeg", lambda: NOON)
    with pytest.raises(PipelineBenchError, match="exit code 1"):
        comparison.compare(scenario("feed_dict"), folder, Observer())
    assert list(tmp_path.iterdir()) == []


def outcome(rounds: int, precision: Precision | None, failing: int | None = None) -> Outcome:
    """A session of so many rounds of a scenario that asks for three, of which trial `failing` did not go through."""
    what = scenario("feed_dict", repeats=3)
    trials = tuple(
        record(trial.variant.name, repeat, 1.0, status="failed" if failing == 2 * repeat + trial.index else "ok")
        for repeat in range(rounds)
        for trial in round_of(what, repeat, 0)
    )
    session = sessions.pending().model_copy(update={"scenario": what, "trials": trials, "precision": precision})
    return Outcome(session, Path(), interrupted=False)


def test_all_is_ok_when_every_trial_of_the_plan_went_through() -> None:
    assert outcome(3, None).all_ok
    assert not outcome(2, None).all_ok
    assert not outcome(3, None, failing=4).all_ok


def test_a_diagnosis_that_a_full_disk_cut_off_is_not_all_of_it_though_it_is_saved_now() -> None:
    session = load(Path(__file__).parents[3] / "docs" / "walkthrough")
    assert Outcome(session, Path(), interrupted=False).all_ok
    assert not Outcome(session, Path(), interrupted=False, cut_off=True).all_ok


def test_with_a_goal_of_precision_all_is_ok_when_its_end_was_reached() -> None:
    goal = Precision(goal=0.02, budget_s=60)
    assert not outcome(5, goal).all_ok, "it could not go on"
    assert outcome(9, goal.model_copy(update={"ended_by": "precision"})).all_ok
    assert outcome(2, goal.model_copy(update={"ended_by": "budget"})).all_ok
    assert not outcome(9, goal.model_copy(update={"ended_by": "precision"}), failing=4).all_ok
    assert not outcome(2, goal.model_copy(update={"ended_by": "interrupted"})).all_ok


_BUSY = """
import time
while time.process_time() < 0.5:
    pass
print("done", flush=True)
input()
"""


def _started(code: str) -> subprocess.Popen[bytes]:
    """A process that has run the code up to its end, and waits."""
    started = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stdout.readline() == b"done\n"
    return started


def test_what_others_take_is_seen_while_the_import_lasts_and_the_import_itself_is_none_of_it() -> None:
    """Two look at once: to one of them the busy process is the server, to the other a stranger beside an idle one."""
    seen_by_its_own, seen_by_others = OtherWork(), OtherWork()
    with _started(_BUSY) as busy, _started("print('done', flush=True); input()") as idle:
        assert seen_by_its_own.share(busy.pid) < seen_by_others.share(idle.pid)
        busy.communicate(b"\n")
        idle.communicate(b"\n")


@pytest.mark.usefixtures("made_here")
@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        ("npz", {"backend": "py_dataset"}),
        ("npz", {"backend": "tf_data", "options": {"batch_before_map": True}}),
        ("npz", {"backend": "feed_dict"}),
        ("csv", {"backend": "tf_data", "options": {"batch_before_map": True}}),
    ],
)
def test_checks_read_no_file_that_is_still_to_be_made(
    kind: str, variant: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_BENCH_DATA", str(tmp_path))
    source = {"kind": kind, "samples": 64, **({"image_size": 8} if kind == "npz" else {})}
    comparison.prepare_data(resolve({"name": "x", "source": source, "variants": [variant]}), Observer())
    assert list(tmp_path.rglob(f"*.{kind}"))


class _Missing(Memory):
    """A source of whole batches whose data is not there."""

    def check(self) -> None:
        raise UsageError("the data is not there")


def test_a_source_of_whole_batches_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plugins.find
    monkeypatch.setattr(plugins, "find", lambda group, name: _Missing if name == "memory" else found(group, name))
    with pytest.raises(UsageError, match="the data is not there"):
        comparison.prepare_data(
            resolve({"name": "x", "source": {"kind": "memory"}, "variants": [{"backend": "feed_dict"}]}), Observer()
        )


def test_workers_of_between_graph_that_keep_no_files_cold_are_refused_before_the_first_trial() -> None:
    variant = {"backend": "tf_data", "runtime": {"replicas": 2, "replication": "between_graph"}}
    source = {"kind": "tfrecord", "page_cache": "cold"}
    with pytest.raises(UsageError, match="do not keep files cold"):
        comparison.prepare_data(resolve({"name": "x", "source": source, "variants": [variant]}), Observer())
