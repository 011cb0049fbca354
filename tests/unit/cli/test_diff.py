"""The command `diff`: each form, the gates' exit codes, and what it says of what cannot be compared."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pipeline_bench.cli import run
from pipeline_bench.model import session as saved
from pipeline_bench.model.difference import Difference
from pipeline_bench.model.session import Session
from tests.unit import sessions
from tests.unit.analysis import pairs

STEADY = (4.0, 4.02, 3.98)


@pytest.fixture
def before(tmp_path: Path) -> str:
    return written(tmp_path / "before", pairs.session({"feed_dict": STEADY}))


@pytest.fixture
def slower(tmp_path: Path) -> str:
    return written(tmp_path / "slower", pairs.session({"feed_dict": [1.2 * ms for ms in STEADY]}))


def written(folder: Path, session: Session) -> str:
    folder.mkdir()
    saved.save(session, folder)
    return str(folder)


def test_a_gate_that_fails_is_exit_1_after_the_whole_output(
    before: str, slower: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", before, slower, "--fail-if-slower", "5%"]) == 1
    captured = capsys.readouterr()
    assert "1 of 1 gate failed" in captured.out
    assert captured.err == ""
    assert run(["diff", slower, before, "--fail-if-slower", "5%"]) == 0
    assert run(["diff", before, slower, "--fail-if-slower", "30 %"]) == 0


def test_the_gate_on_au_is_on_the_second_session(before: str, slower: str) -> None:
    assert run(["diff", before, slower, "--fail-if-au-below", "0.45"]) == 1
    assert run(["diff", slower, before, "--fail-if-au-below", "45%"]) == 0


def test_an_undecided_gate_fails_only_when_it_is_asked_to(before: str, tmp_path: Path) -> None:
    noisy = written(tmp_path / "noisy", pairs.session({"feed_dict": (3.0, 4.0, 5.0)}))
    assert run(["diff", before, noisy, "--fail-if-slower", "5%"]) == 0
    assert run(["diff", before, noisy, "--fail-if-slower", "5%", "--fail-if-undecided"]) == 1


def test_without_a_gate_there_is_nothing_to_decide(before: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", before, before, "--fail-if-undecided"]) == 2
    assert "without a gate" in capsys.readouterr().err


def test_json_is_the_difference_with_every_gate(before: str, slower: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["diff", before, f"{slower}/session.json", "--fail-if-slower", "5%", "-f", "json"])
    difference = Difference.model_validate_json(capsys.readouterr().out)
    assert [gate.outcome for gate in difference.gates] == ["failed"]
    assert (difference.before.path, difference.after.path) == (before, f"{slower}/session.json")


def test_a_file_gets_what_stdout_would_and_the_exit_code_stays(
    before: str, slower: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("markdown", "json", "terminal"):
        run(["diff", before, slower, "-f", form])
        out = capsys.readouterr().out
        plain, packed = tmp_path / f"{form}.txt", tmp_path / f"{form}.gz"
        for path in (plain, packed):
            assert run(["diff", before, slower, "--fail-if-slower", "5%", "-f", form, "-o", str(path)]) == 1
        assert capsys.readouterr().out == ""
        assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
        assert out.splitlines()[0] in plain.read_text() or form == "markdown"


@pytest.mark.parametrize("option", ["--fail-if-slower", "--fail-if-au-below"])
@pytest.mark.parametrize("text", ["five", "5"])
def test_a_limit_that_is_none_is_exit_2_and_says_what_is(
    option: str, text: str, before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", before, before, f"{option}={text}"]) == 2
    err = capsys.readouterr().err
    assert option in err
    assert text in err
    assert "%" in err
    assert "Traceback" not in err


def test_what_cannot_be_read_or_compared_is_exit_2(
    before: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text('{"schema_version": 99}')
    pending = written(tmp_path / "pending", sessions.pending())
    others = sessions.normal().scenario.variants[:1]
    others = tuple(variant.model_copy(update={"name": "another"}) for variant in others)
    renamed = sessions.normal().results[0].model_copy(update={"variant": "another"})
    scenario = sessions.normal().scenario.model_copy(update={"variants": others})
    alone = sessions.normal().model_copy(update={"scenario": scenario, "results": (renamed,), "trials": ()})
    for other in (str(tmp_path / "no-such"), str(tmp_path / "broken.json"), pending, written(tmp_path / "o", alone)):
        for pair in ((before, other), (other, before)):
            assert run(["diff", *pair]) == 2, pair
            err = capsys.readouterr().err
            assert err.startswith("Error: ")
            assert "Traceback" not in err
