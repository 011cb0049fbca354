"""The screen and the lines of a running diagnosis: what is tried, what was gained, how much time is left."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING
from pipeline_bench.model.result import Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import PhaseMark, Trial, plan
from pipeline_bench.run.observer import Progress
from pipeline_bench.ui import diagnosing
from tests.unit import diagnoses
from tests.unit.sessions import with_result
from tests.unit.ui.screens import Clock, Terminal, plain


def trial(name: str, index: int = 0) -> Trial:
    return Trial(index=index, repeat=0, variant=diagnoses.variant(name, "drain"))


def at(phase: str, training_s: float = 1.5) -> Progress:
    return Progress(phase=phase, steps=10, elapsed_s=3.0, training_s=training_s, step_ms=4.1)


class Screen(Terminal):
    """A live view of a diagnosis, with what it shows as plain lines."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        super().__init__(width, height)
        begun = diagnoses.begun()
        self.view.session_started(begun, plan(begun.scenario))

    @property
    def text(self) -> str:
        return "\n".join(self.lines())

    def finish(self, name: str, session: Session, index: int = 0) -> None:
        done = trial(name, index)
        self.view.trial_started(done)
        self.view.trial_finished(done, session.trials[0], session)


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), pytest.param(160, 60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["failed", "hostile", "thirty"])
def test_nothing_jumps(width: int, height: int, name: str) -> None:
    screen, session = Screen(width, height), diagnoses.EVERY[name]()
    heights = {len(screen.lines())}
    for index, variant in enumerate(("inspection", AS_WRITTEN, "parallel map(decode)", diagnoses.HOSTILE)):
        screen.view.trial_started(trial(variant, index))
        for phase in ("import", "inspect", "train", "fingerprint", "elsewhere"):
            screen.view.progress(trial(variant, index), at(phase))
            lines = screen.lines()
            heights.add(len(lines))
            assert max(map(cell_len, lines)) <= width
        screen.view.trial_finished(trial(variant, index), session.trials[0], session)
        heights.add(len(screen.lines()))
    screen.view.note(diagnoses.HOSTILE)
    heights.add(len(screen.lines()))
    assert len(heights) == 1
    assert heights.pop() < height


def test_it_says_what_is_tried_and_how_far_that_is() -> None:
    screen = Screen()
    assert "preparing" in screen.text
    screen.view.trial_started(trial("inspection"))
    assert "inspecting the pipeline: starting" in screen.text
    screen.view.progress(trial("inspection"), at("inspect"))
    assert "inspecting the pipeline: measuring each stage alone" in screen.text
    screen.finish("inspection", diagnoses.session())
    assert "deciding what to try next" in screen.text
    screen.view.trial_started(trial("prefetch", 1))
    screen.clock.now = 1.0
    screen.view.progress(trial("prefetch", 1), at("train"))
    assert "trying prefetch: 50 %, 4.10 ms each" in screen.text


def test_the_gains_so_far_are_there_the_best_first() -> None:
    screen = Screen()
    assert "3.12×" not in screen.text
    assert "searching for the stage" in screen.text
    screen.finish("inspection", diagnoses.session())
    lines = screen.lines()
    assert "→ map(decode) takes 87 %" in lines[1]
    first = next(index for index, line in enumerate(lines) if line.startswith("as written"))
    assert "12.9" in lines[first]
    assert lines[first + 1].split()[-5:] == ["3.12×", "3.04", "to", "3.20×", "proposed"]
    assert "2.95×" in lines[first + 2]
    assert any(line.split()[:2] == ["no", "shuffle"] and line.rstrip().endswith("refused") for line in lines)


def test_a_long_finding_takes_two_lines_and_no_more() -> None:
    heights = set()
    for text in (
        "map(f) is slow.",
        "map(f) takes 87 % of the time between two batches: it runs Python. " * 2,
        "x" * 900,
    ):
        whole = diagnoses.diagnosis()
        assert whole.bottleneck is not None
        found = whole.model_copy(update={"bottleneck": whole.bottleneck.model_copy(update={"text": text})})
        screen = Screen()
        screen.finish("inspection", diagnoses.session(found))
        heights.add(len(screen.lines()))
        assert text.split()[0][:40] in screen.lines()[1]
        if text.startswith("map(f) takes"):
            assert "it runs Python." in " ".join(line.strip() for line in screen.lines()[1:3])
    assert len(heights) == 1


@pytest.mark.parametrize(("height", "whole"), [(21, False), (24, True), (50, True)])
def test_a_note_is_whole_where_rows_are_free(height: int, whole: bool) -> None:
    screen = Screen(80, height)
    screen.view.note("A warning of more than one line, " * 4 + "and its end.")
    assert ("and its end." in screen.text) is whole


def test_the_time_left_is_that_of_the_budget() -> None:
    screen = Screen()
    assert "2:00 of 2:00 left" in screen.text
    screen.clock.now = 75.0
    assert "0:45 of 2:00 left" in screen.text
    screen.clock.now = 500.0
    assert "0:00 of 2:00 left" in screen.text


def test_the_ceiling_is_no_attempt() -> None:
    screen = Screen()
    screen.finish("ceiling", diagnoses.with_model())
    assert not [line for line in screen.lines() if line.startswith("ceiling")]
    screen.view.trial_started(trial("ceiling", 1))
    assert "the model alone, its ceiling" in screen.text


@pytest.mark.parametrize(
    ("value", "ci95", "said"),
    [(4.4, None, "unproven"), (0.82, (0.47, 1.44), "unproven"), (0.98, (0.9, 1.06), "no gain")],
)
def test_what_may_gain_is_not_called_no_gain(value: float, ci95: tuple[float, float] | None, said: str) -> None:
    session = diagnoses.session()
    result = session.result("prefetch").model_copy(update={"speedup": Speedup(over=AS_WRITTEN, value=value, ci95=ci95)})
    assert diagnosing.outcome(session, result) == said


def test_the_ceilings_trial_shows_no_gain() -> None:
    whole, (view, stream) = diagnoses.with_model(), plain(diagnoses.begun())
    faster = Speedup(over="as written", value=2.9, reason="one trial")
    view.trial_finished(trial("ceiling", 1), whole.trials[1], with_result(whole, "ceiling", speedup=faster))
    assert "its ceiling: " in stream.getvalue()
    assert "2.90×" not in stream.getvalue()


def test_line_by_line() -> None:
    """Times are means, as the gains beside them are of means: the median of these steps is 1.00 ms."""
    session, clock = diagnoses.session(), Clock()
    view, stream = plain(diagnoses.begun(), clock=clock)
    clock.now = 10.0
    view.trial_finished(trial("inspection"), session.trials[0], session)
    clock.now = 30.0
    view.trial_finished(trial("parallel map(decode)", 1), session.trials[1], session)
    failed = session.trials[1].model_copy(update={"status": "failed", "reason": "out of memory.", "steps": None})
    view.trial_finished(trial("cache", 2), failed, session)
    assert stream.getvalue().splitlines() == [
        "train.py:make_dataset: up to 120 s of measuring, beside the starts of its trials",
        "[1] inspecting the pipeline: ok; 1:50 left",
        "found: map(decode) takes 87 % of the time between two batches: it computes, one call at a time.",
        "[2] trying parallel map(decode): 1.67 ms, 2.95× (2.85 to 3.05×) so far, faster; 1:30 left",
        "[3] trying cache: failed: out of memory; 1:30 left",
    ]


def test_a_fix_that_could_not_but_fail_says_why_in_place_of_what_tensorflow_says() -> None:
    session, (view, stream) = diagnoses.session(), plain(diagnoses.begun())
    assert session.diagnosis is not None
    why = {"outcome": "not-applicable", "reason": "filter(keep) looks at what map(decode) gives."}
    attempts = (session.diagnosis.attempts[0].model_copy(update=why), *session.diagnosis.attempts[1:])
    ruled = session.model_copy(update={"diagnosis": session.diagnosis.model_copy(update={"attempts": attempts})})
    failed = session.trials[1].model_copy(update={"status": "failed", "reason": "TypeError: Only integers, slices"})
    view.trial_finished(trial(attempts[0].fix.variant, 1), failed, ruled)
    assert ": does not apply: filter(keep) looks at what map(decode) gives; " in stream.getvalue()
    assert "TypeError" not in stream.getvalue()


def test_a_gain_beyond_the_ceiling_is_none_on_any_screen() -> None:
    session = diagnoses.with_model()
    beyond = session.result("parallel map(decode)").speedup.model_copy(update={"value": 99.0})
    session = with_result(session, "parallel map(decode)", speedup=beyond)
    view, stream = plain(diagnoses.begun())
    for number in (1, 2):
        view.trial_finished(trial("parallel map(decode)", number), session.trials[1], session)
    _, first, note, second = (line for line in stream.getvalue().splitlines() if not line.startswith("found"))
    assert all("trying parallel map(decode): 1.67 ms;" in line for line in (first, second))
    assert note.startswith("note: This machine's speed changes so much between trials that a fix came faster than the")
    impossible = session.result("parallel map(decode)")
    assert [each.plain for each in diagnosing._cells(impossible, "", possible=False)[1:3]] == ["–", "–"]


def test_what_is_left_says_how_long_that_takes_where_the_starts_of_trials_do() -> None:
    session = diagnoses.session()
    assert diagnosing.left(session, 30.0) == "1:30 left"
    started = {"started_ns": 0, "ended_ns": 60 * 10**9, "phases": (PhaseMark(name="build", at_ns=30 * 10**9),)}
    slow = session.model_copy(update={"trials": (session.trials[0].model_copy(update=started),)})
    assert diagnosing.left(slow, 60.0) == "1:30 left, about 3:00 with the trials' starts"
    assert diagnosing.left(slow, 95.0) == "0:55 left"
    assert diagnosing.left(slow, 30.1) == "2:00 left", "a tenth of a second tells nothing"
    assert diagnosing.left(slow, 200.0) == "0:00 left"


@pytest.mark.parametrize(("width", "told"), [(60, False), (64, True), (80, True)])
def test_the_screen_says_so_where_it_has_the_width(width: int, told: bool) -> None:
    started = {"started_ns": 0, "ended_ns": 60 * 10**9, "phases": (PhaseMark(name="build", at_ns=30 * 10**9),)}
    session = diagnoses.session()
    screen = Screen(width)
    screen.finish("inspection", session.model_copy(update={"trials": (session.trials[0].model_copy(update=started),)}))
    screen.clock.now = 60.0
    assert "1:30 of 2:00 left" in screen.text
    assert ("left, about 3:00 with starts\n" in screen.text) is told


def test_with_a_model_nothing_is_found_before_its_ceiling_was_measured() -> None:
    whole, screen, (view, stream) = diagnoses.with_model(), Screen(), plain(diagnoses.begun())
    first, second, third = whole.trials[:3]
    trials = (first, second, second.model_copy(update={"variant": CEILING}), third)
    for count, record in enumerate(trials, 1):
        so_far = whole.model_copy(update={"trials": trials[:count]})
        view.trial_finished(trial(record.variant, record.index), record, so_far)
        screen.finish(record.variant, so_far, record.index)
        is_known = any(each.variant == CEILING for each in so_far.trials)
        assert ("\nfound: " in stream.getvalue()) == is_known
        assert ("searching for the stage" in screen.text) != is_known
    assert stream.getvalue().count("\nfound: ") == 1


def test_a_long_trial_says_line_by_line_what_it_does() -> None:
    view, stream = plain(diagnoses.begun())
    inspection = trial("inspection")
    view.trial_started(inspection)
    for elapsed_s in range(0, 50, 10):
        view.progress(inspection, Progress("inspect", steps=0, elapsed_s=elapsed_s, training_s=0.0))
    assert stream.getvalue().splitlines()[1:] == [
        "[1] inspecting the pipeline: measuring each stage alone, 0:20 so far",
        "[1] inspecting the pipeline: measuring each stage alone, 0:40 so far",
    ]


def test_a_variant_that_the_session_did_not_begin_with_is_no_error() -> None:
    session, (view, stream) = diagnoses.hostile(), plain(diagnoses.begun())
    view.trial_finished(trial(diagnoses.HOSTILE, 7), session.trials[0], session)
    assert all(line.isprintable() for line in stream.getvalue().splitlines())


@pytest.mark.parametrize("interval", [(0.0, 25628.0), (-0.5, 2.0), (0.1, 3.0)])
def test_an_interval_that_tells_nothing_is_a_dash(interval: tuple[float, float]) -> None:
    screen, session = Screen(160), diagnoses.session()
    wide = [
        result.model_copy(update={"speedup": result.speedup.model_copy(update={"ci95": interval})})
        if result.speedup.ci95
        else result
        for result in session.results
    ]
    screen.finish("prefetch", session.model_copy(update={"results": tuple(wide)}))
    assert "×  –" in " ".join(screen.text.split()).replace("× –", "×  –")
    assert " to " not in screen.text.split("95 % interval")[1].split("left")[0]


def test_the_lines_leave_the_reason_of_a_failure_to_the_report() -> None:
    session, (view, stream) = diagnoses.failed(), plain(diagnoses.begun())
    assert session.diagnosis is not None
    assert session.diagnosis.failure is not None
    view.trial_finished(trial("inspection"), session.trials[0], session)
    assert "inspecting the pipeline: failed" in stream.getvalue()
    assert (session.trials[0].reason or "no reason") not in stream.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_refused_fix_is_called_so_at_every_width(width: int) -> None:
    screen = Screen(width)
    screen.finish(AS_WRITTEN, diagnoses.EVERY["drained"]())
    (row,) = [line for line in screen.lines() if line.startswith("no shuffle")]
    assert row.split()[-1] == "refused"


def test_what_was_found_is_told_again_only_as_another_stage_or_cause() -> None:
    whole, (view, stream) = diagnoses.session(), plain(diagnoses.begun())
    assert whole.diagnosis is not None
    assert whole.diagnosis.bottleneck is not None
    first = whole.trials[0]
    limits = [
        whole.diagnosis.bottleneck.model_copy(update=change)
        for change in ({}, {"share": 0.5, "text": "it takes 50 %."}, {"cause": "waiting", "text": "it waits."}, {})
    ]
    none = [limits[0].model_copy(update={"stage": None, "text": text}) for text in ("none.", "none.", "none yet.")]
    for limit in (*limits, *none):
        found = whole.diagnosis.model_copy(update={"bottleneck": limit})
        view.trial_finished(trial(first.variant, first.index), first, whole.model_copy(update={"diagnosis": found}))
    told = [line.removeprefix("found: ") for line in stream.getvalue().splitlines() if line.startswith("found: ")]
    assert told == [limits[0].text, "it waits.", "none.", "none yet."]
