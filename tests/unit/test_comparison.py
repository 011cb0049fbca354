"""Where a session goes, and what is refused before anything is measured."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from pipeline_bench.comparison import make_folder
from pipeline_bench.errors import UsageError
from tests.unit.records import scenario

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
    assert make_folder(tmp_path, wanted, lambda: NOON) == tmp_path / folder


def test_two_sessions_of_one_second_do_not_share_a_folder(tmp_path: Path) -> None:
    first, second = (make_folder(tmp_path, scenario("feed_dict"), lambda: NOON) for _ in range(2))
    assert first != second
    assert second.is_dir()


def test_a_file_in_the_way_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--out"):
        make_folder(tmp_path / "file", scenario("feed_dict"), lambda: NOON)
