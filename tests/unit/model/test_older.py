"""What files of older versions say in names and sentences is read as the fields that these became."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.hosts import merge
from pipeline_bench.hosts.inputs import inputs_of
from pipeline_bench.model.diagnosis import Bottleneck
from pipeline_bench.model.session import Session, load
from pipeline_bench.report import diagnosis as report
from pipeline_bench.report import machines
from tests.unit import diagnoses
from tests.unit.hosts.test_merge import session as of_rank


def reread(session: Session, folder: Path) -> Session:
    """The session as it is read from a file of before the fields."""
    whole: dict[str, Any] = json.loads(session.to_json())
    for variant in whole["scenario"]["variants"]:
        del variant["on_hosts"]
    for trial in whole["trials"]:
        del trial["rank"]
    if whole["diagnosis"] is not None:
        del whole["diagnosis"]["says_bottleneck"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "session.json").write_text(json.dumps({**whole, "schema_version": 13}), encoding="utf-8")
    return load(folder)


@pytest.mark.parametrize("size", [2, 3])
def test_sessions_of_hosts_come_to_what_they_came_to(size: int, tmp_path: Path) -> None:
    new = [of_rank(rank, size) for rank in range(size)]
    old = [reread(session, tmp_path / f"rank-{session.host and session.host.rank:03}") for session in new]
    assert merge.merge(old) == merge.merge(new)


def test_a_merged_session_is_of_the_same_hosts_and_rates(tmp_path: Path) -> None:
    new = merge.merge([of_rank(rank) for rank in range(2)])
    old = reread(new, tmp_path)
    assert old == new
    assert [each.name for each in inputs_of(old)] == [each.name for each in inputs_of(new)] == ["a"]
    assert machines.together(old) == machines.together(new)


@pytest.mark.parametrize("named", [True, False])
def test_a_bottleneck_that_the_conclusion_does_not_name_has_its_own_line(named: bool, tmp_path: Path) -> None:
    limit = "No stage can be named: none was measured."
    text = f"{limit} No fix was tried." if named else "The steps of fit wait for the arrays."
    whole = reread(diagnoses.session(diagnoses.diagnosis(bottleneck=Bottleneck(text=limit), text=text)), tmp_path)
    found = whole.diagnosis
    assert found is not None
    (stages,) = [part for part in report.sections(whole, found) if part.title == "Which stage"]
    assert found.says_bottleneck is named
    assert list(stages.lines) == ([] if named else [limit])
