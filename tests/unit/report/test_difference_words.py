"""The sentences of a difference: what the ceilings tell, what is counted, and how many lines noise may take."""

from __future__ import annotations

import pytest

from pipeline_bench.model.difference import Difference, Noise, Ratio
from pipeline_bench.model.result import Disturbance
from pipeline_bench.report import difference as words
from tests.unit.report import differences


def of_different_jobs() -> Difference:
    full = differences.full()
    changes = tuple(c.model_copy(update={"ceilings_differ_in": ("source.batch_size",)}) for c in full.variants)
    return full.model_copy(update={"variants": changes})


def test_ceilings_of_different_jobs_say_nothing_of_the_machine() -> None:
    (line,) = words.machine(of_different_jobs())
    assert line == (
        "the machine itself: ceiling is of different jobs before and after (source.batch_size), so it tells nothing"
    )


def test_au_is_said_to_hold_on_a_slower_machine_only_beside_ceilings_of_the_same_job() -> None:
    assert "so they hold on a machine" in words.au_note(differences.full())
    assert "hold on a machine" not in words.au_note(of_different_jobs())
    assert "of different jobs" in words.au_note(of_different_jobs())


def test_the_count_tells_what_changed_beside_the_ceiling_alone() -> None:
    faster = Ratio(value=0.76, ci95=(0.64, 0.9), difference="faster", smallest=0.2)
    none = Ratio(value=1.0, ci95=(0.9, 1.1), difference="none", smallest=0.11)
    changes = [differences.change(name, none) for name in ("a", "b", "c")]
    changes[0] = changes[0].model_copy(update={"beside_ceiling": faster})
    difference = differences.full().model_copy(update={"variants": tuple(changes), "gates": ()})
    assert words.headline(difference) == "3 variants: 3 no difference found (1 faster beside the ceiling)."


def test_gates_that_only_count_as_failed_are_told_from_those_that_did() -> None:
    difference = differences.full()
    forced = {"outcome": "failed", "only_undecided": True}
    gates = tuple(gate.model_copy(update=forced) for gate in difference.gates)
    line = words.gates_line(difference.model_copy(update={"gates": gates}))
    assert line == "0 of 3 gates failed, 3 undecided, counted as failed. "
    assert words.gates_line(difference) == "1 of 3 gates failed, 1 undecided. "


@pytest.mark.parametrize("sides", [("before",), ("after",), ("before", "after")])
@pytest.mark.parametrize("count", [1, 6, 40])
def test_disturbances_are_six_lines_at_most_and_none_is_lost(sides: tuple[str, ...], count: int) -> None:
    noises = tuple(
        Noise.model_validate(
            {"side": side, "disturbance": Disturbance(kind="burst", variant=f"v{i}", repeat=0, text="x.")}
        )
        for side in sides
        for i in range(count)
    )
    lines = list(words.noises(differences.full().model_copy(update={"disturbances": noises})))
    assert len(lines) <= 6
    told = [line for line in lines if "besides" not in line]
    left_out = sum(int(line.split("besides: ")[1].split()[0]) for line in lines if "besides" in line)
    assert len(told) + left_out == len(noises)
