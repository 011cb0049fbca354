"""A session with a diagnosis in every form: what a reader must find, and that foreign text stays text."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from rich.cells import cell_len

from pipeline_bench.analysis import speedups, verdicts
from pipeline_bench.diagnosis import conclusion
from pipeline_bench.model import Series
from pipeline_bench.model.diagnosis import AS_WRITTEN, Attempt, CodeChange
from pipeline_bench.model.pipeline import Inspection, ScriptTraining
from pipeline_bench.model.result import Estimate, InconclusiveCause, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.report import attempts, diagnosis, html, markdown, terminal
from tests.unit import diagnoses
from tests.unit.console import printed
from tests.unit.report.pages import Page
from tests.unit.sessions import with_result

WIDTHS = (60, 120)
FOLDER = Path("reports/x")


def shown(session: Session, width: int = 100) -> str:
    return printed(terminal.render(session, FOLDER, width), width)


def on_paper(session: Session) -> str:
    return shown(session, 160)


@pytest.fixture(params=diagnoses.EVERY)
def session(request: pytest.FixtureRequest) -> Session:
    return diagnoses.EVERY[request.param]()


@pytest.mark.parametrize(("steps", "told"), [(5, " (a mean of 5 steps, median 4.71 ms)"), (40, "")])
def test_a_mean_of_few_steps_is_told_as_one_with_their_median(steps: int, told: str) -> None:
    """One step of eight times its length, beside other work, was "a training step" of a public script."""
    whole = diagnoses.session()
    assert whole.diagnosis is not None
    found = whole.find_result(AS_WRITTEN)
    assert found is not None
    step_ms = found.step_ms.model_copy(update={"median": 4.71})
    line = diagnosis.pace(with_result(whole, AS_WRITTEN, steps=steps, step_ms=step_ms), whole.diagnosis)
    assert line.partition(";")[0].endswith(f" ms{told}")


def test_a_step_that_is_a_part_of_the_training_s_is_named_and_its_wait_a_bound() -> None:
    whole = diagnoses.with_model()
    assert whole.diagnosis is not None
    training = ScriptTraining(line="train.py:9", model=True, step="train_d", part="train_d")
    for known, begins, wait in ((None, "A training step", "input wait"), (training, "A call of train_d", "at most")):
        looked = diagnoses.inspection(training=known)
        found = whole.diagnosis.model_copy(update={"inspection": looked})
        result = whole.find_result(AS_WRITTEN)
        assert result is not None
        state = with_result(whole, AS_WRITTEN, input_wait_share=Estimate(value=0.11))
        state = state.model_copy(update={"diagnosis": found})
        first, *others = diagnosis.speed_lines(state, found)
        assert first.startswith(f"{begins} takes ")
        assert diagnosis.pace(state, found).startswith(f"{begins} takes ")
        assert f"{wait} 11 %, " in diagnosis.pace(state, found)
        assert any(f"{wait} 11 %, ".capitalize() in each or f"{wait} 11 %, " in each for each in others)
        assert (result.verdict.text.casefold() in " ".join(others).casefold()) == (known is None)


@pytest.mark.parametrize(
    ("value", "ci95", "lead"),
    [
        (1.09, None, "not proven 1.09×"),  # a single trial excludes nothing
        (0.97, None, "not proven 0.97×"),
        (1.04, (0.95, 1.14), "not proven 1.04× (0.95 to 1.14×)"),
        (0.98, (0.88, 1.12), "not decided 0.98× (0.88 to 1.12×)"),
        (1.02, (0.95, 1.09), "no gain 1.02× (0.95 to 1.09×)"),
    ],
)
def test_what_the_trials_do_not_exclude_is_not_called_no_gain(
    value: float, ci95: tuple[float, float] | None, lead: str
) -> None:
    """A public script's prefetch had "no gain 1.09×", beside "a proposal needs 3: use a larger --budget"."""
    whole = diagnoses.session()
    assert whole.diagnosis is not None
    gain = Speedup(over="as written", value=value, ci95=ci95, difference="none" if ci95 else None)
    tries = attempts.tried(with_result(whole, "prefetch", speedup=gain), whole.diagnosis)
    assert [each.lead for each in tries if each.variant == "prefetch"] == [lead]


@pytest.mark.parametrize(
    ("name", "value", "difference", "trials", "lead"),
    [
        ("prefetch", 1.58, "none", 3, "not proven at 99 %, 1.58× (1.48 to 1.68×)"),
        ("prefetch", 1.58, "faster", 3, "samples not compared, 1.58× (1.48 to 1.68×)"),
        ("prefetch", 1.02, "faster", 3, "hardly faster, 1.02× (1.01 to 1.03×)"),
        ("prefetch", 1.58, "faster", 2, "too few trials, 1.58× (1.48 to 1.68×)"),
        (
            "parallel map(decode) + prefetch",
            2.96,
            "faster",
            3,
            "hardly more than a part alone, 2.96× (2.86 to 3.06×)",
        ),
    ],
)
def test_a_proven_gain_that_is_not_proposed_lacks_something_else_than_proof(
    name: str, value: float, difference: Literal["none", "faster"], trials: int, lead: str
) -> None:
    whole = diagnoses.session()
    assert whole.diagnosis is not None
    half = 0.1 if value > 1.1 else 0.01
    gain = Speedup(over="as written", value=value, ci95=(value - half, value + half), difference=difference)
    changed = tuple(
        a.model_copy(update={"outcome": "no-gain"}) if a.fix.variant == name else a for a in whole.diagnosis.attempts
    )
    kept = tuple(trial for trial in whole.trials if trial.variant != name or trial.repeat < trials)
    found = whole.diagnosis.model_copy(update={"attempts": changed})
    tries = attempts.tried(with_result(whole, name, speedup=gain).model_copy(update={"trials": kept}), found)
    assert [each.lead for each in tries if each.attempt.fix.variant == name] == [lead]


@pytest.mark.parametrize("cause", ["no-ceiling", None])
def test_why_a_share_is_missing_is_said_once(cause: InconclusiveCause | None) -> None:
    """By the verdict, of which a file of before version 14 has no cause, or for itself."""
    whole, why = diagnoses.with_model(), "trials of the ceiling contradict each other"
    missing = {part: Estimate(reason=f"{why}.") for part in ("accelerator_utilization", "host_slowdown_share")}
    judged = {**missing, "verdict": verdicts.inconclusive(why, cause)}
    for changes, said in ((judged, "Inconclusive"), (missing, "Not known")):
        text = markdown.render(with_result(whole, AS_WRITTEN, **changes))
        assert text.count(why) == 1
        assert f"{said}: {why}." in text


def not_tried(variant: str, reason: str) -> Attempt:
    return Attempt(fix=diagnoses.fix(variant, f"Do {variant}"), outcome="not-tried", reason=reason)


def test_a_diagnosis_that_was_interrupted_between_two_trials_says_so() -> None:
    left = not_tried("cache", "It was interrupted before it was its turn.").model_copy(update={"cause": "interrupted"})
    whole = diagnoses.session(diagnoses.diagnosis(attempts=(*diagnoses.attempts(), left)))
    assert not any(trial.status == "interrupted" for trial in whole.trials)
    assert diagnosis.headline(whole).startswith("Interrupted; until then: map(decode) starves the pipeline")
    assert diagnosis.headline(diagnoses.session()).startswith("map(decode) starves the pipeline")
    assert "It was interrupted; fixes that were not tried are listed as such." in html.render(whole)


def test_a_fix_that_does_not_apply_is_no_failure() -> None:
    reason = "decode takes one element, and no batch."
    attempt = Attempt(fix=diagnoses.fix("cache", "Keep decoded elements"), outcome="not-applicable", reason=reason)
    whole = diagnoses.session(diagnoses.diagnosis(attempts=(attempt,)))
    trials = [trial.model_copy(update={"status": "failed", "reason": "AttributeError"}) for trial in whole.trials[:1]]
    whole = whole.model_copy(update={"trials": (trials[0].model_copy(update={"variant": "cache"}),)})
    for text in (on_paper(whole), markdown.render(whole), html.render(whole)):
        assert "does not apply" in text
        assert "takes one element, and no batch" in text
    assert "AttributeError" not in on_paper(whole)
    assert "AttributeError" not in markdown.render(whole)


def test_the_places_of_the_same_calls_stand_beside_the_code() -> None:
    attempt = diagnoses.diagnosis().attempts[0]
    code = CodeChange(diff=diagnoses.DIFF, alike=("train.py:31", "train.py:40"))
    whole = diagnoses.session(diagnoses.diagnosis(attempts=(attempt.model_copy(update={"code": code}),)))
    for text in (on_paper(whole), markdown.render(whole), html.render(whole)):
        assert "The same calls make another pipeline at train.py:31, train.py:40, which was not measured: " in text
        assert "the same edit may help there" in text


def test_what_was_not_tried_is_listed_by_its_reason() -> None:
    late = "the budget was spent before it was its turn"
    attempts = (
        not_tried("any order", late),
        not_tried("cache", "shuffle takes 0 % of it"),
        not_tried("pool", late),
        not_tried("parallel map(decode)", "decode, batch take 1 % of it"),
    )
    text = on_paper(diagnoses.session(diagnoses.diagnosis(attempts=attempts)))
    assert "The budget was spent before it was its turn: any order, pool" in text
    assert "shuffle takes 0 % of it: cache" in text  # a stage's name is code, and keeps its small letter
    assert "decode, batch take 1 % of it: parallel map(decode)" in text  # and so is a function's
    assert "proven to make it faster" not in text


def test_an_interval_that_tells_nothing_is_called_so() -> None:
    whole = diagnoses.session()
    wide = Speedup(over="as written", value=0.6, ci95=(0.001, 520.57), difference="none", smallest=519.0)
    text = on_paper(with_result(whole, "prefetch", speedup=wide))
    assert "interval too wide" in text
    start = text.index("What to do") if "What to do" in text else text.index("interval too wide")
    assert "520" not in text[start : text.index("How far it can go") if "How far it can go" in text else None]


def test_a_bursty_input_may_gain_what_its_waits_are_on_average() -> None:
    """Its median hides them."""
    whole = diagnoses.with_model()
    bursty = whole.results[0].step_ms.model_copy(update={"median": 5.0, "mean": 15.0})
    session = with_result(whole, AS_WRITTEN, step_ms=bursty)
    assert not speedups.beyond_ceiling(Speedup(over="as written", value=2.4), session)
    beyond = speedups.beyond_ceiling(Speedup(over="as written", value=4.0), session)
    assert beyond.startswith("4.00× is more than the 3.33× that no input at all would give: ")


@pytest.mark.parametrize(("ratio", "possible"), [(1.3, True), (40.0, False)])
def test_what_gained_more_than_a_model_leaves_any_input_is_a_dash_with_the_reason(ratio: float, possible: bool) -> None:
    whole = diagnoses.with_model()
    assert whole.diagnosis is not None
    attempts = tuple(each.model_copy(update={"outcome": "no-gain"}) for each in whole.diagnosis.attempts)
    once = Speedup(over="as written", value=ratio, reason="an interval needs at least 2 trials")
    found = whole.diagnosis.model_copy(update={"attempts": attempts})
    text = markdown.render(with_result(whole, "prefetch", speedup=once).model_copy(update={"diagnosis": found}))
    assert ("40.0× is more than the " in text) != possible


def test_a_combination_goes_by_its_name_alone() -> None:
    whole = diagnoses.diagnosis()
    combined = next(each for each in whole.attempts if each.fix.combines)
    long = combined.model_copy(update={"fix": combined.fix.model_copy(update={"title": "Do this; " * 40})})
    attempts = tuple(long if each is combined else each for each in whole.attempts)
    text = on_paper(diagnoses.session(whole.model_copy(update={"attempts": attempts})))
    assert combined.fix.variant in text
    assert "Do this" not in text


def test_what_autotune_never_changed_is_no_plot() -> None:
    whole = diagnoses.diagnosis()
    assert whole.inspection is not None
    flat = tuple(
        each.model_copy(update={"values": Series.pack(np.full(each.values.unpack().size, 2.0))})
        for each in whole.inspection.tuned
    )
    still = whole.model_copy(update={"inspection": whole.inspection.model_copy(update={"tuned": flat})})
    assert html._plots(diagnoses.session(still))["autotune"] is None


def test_what_the_headline_says_of_a_failure_is_not_said_again() -> None:
    reason = "make_dataset wants an argument: size. Give it a number by --batch-arg N"
    whole = diagnoses.failed()
    assert whole.diagnosis is not None
    told = whole.diagnosis.model_copy(update={"text": reason, "failure": reason, "traceback": ""})
    record = whole.trials[0].model_copy(update={"traceback": "", "reason": reason})
    text = on_paper(whole.model_copy(update={"diagnosis": told, "trials": (record,)}))
    assert text.count("wants an argument") == 1
    assert f"{reason}." in text
    log = "E0000 00:00:1795335705.538455 14706 cuda_platform.cc:52] failed call to cuInit\n"
    log += "1/1 ━━━━━━━━━━━━━━━━━━━━ 0s 702ms/step\n3/Unknown [====>....] - ETA: 2s\n"
    logged = whole.model_copy(update={"diagnosis": told, "trials": (record.model_copy(update={"stderr_tail": log}),)})
    assert shown(logged).count("wants an argument") == 1
    noisy = record.model_copy(update={"stderr_tail": f"{log}disk is full"})
    text = on_paper(whole.model_copy(update={"diagnosis": told, "trials": (noisy,)}))
    assert "disk is full" in text
    assert "cuInit" not in text  # TensorFlow's own log, beside words of the script
    assert text.count("wants an argument") == 1


def test_how_a_fix_was_measured_is_said_beside_it() -> None:
    whole, note = (
        diagnoses.session(),
        "A pass over the cache did not end within 3 s: measured on its first 171 elements.",
    )
    trials = tuple(
        each.model_copy(update={"inspection": Inspection(notes=(note,))}) if each.variant == "prefetch" else each
        for each in whole.trials
    )
    assert "easured on its first 171 elements" not in on_paper(whole)
    told = " ".join(on_paper(whole.model_copy(update={"trials": trials})).split())
    assert told.count("easured on its first 171 elements") == 1


def test_the_best_comes_first_whatever_the_order_in_the_file() -> None:
    turned = diagnoses.session(diagnoses.diagnosis(attempts=diagnoses.attempts()[::-1]))
    text = on_paper(turned)
    assert text.index("3.04 to 3.20×") < text.index("2.85 to 3.05×") < text.index("2.30 to 2.50×")
    assert text.index("2.30 to 2.50×") < text.index("12 of 640 differ") < text.index("was spent")


def test_what_the_headline_says_of_the_bottleneck_is_not_said_again() -> None:
    whole = diagnoses.diagnosis()
    assert whole.bottleneck is not None
    said = {"text": f"{whole.bottleneck.text} It can be 3.12×.", "says_bottleneck": True}
    for found in (whole, whole.model_copy(update=said)):
        assert on_paper(diagnoses.session(found)).count(whole.bottleneck.text) == 1


def test_an_interrupted_one_says_what_it_did_not_come_to() -> None:
    whole = diagnoses.session(diagnoses.diagnosis(text=""))
    stopped = whole.trials[-1].model_copy(update={"status": "interrupted", "reason": "interrupted by the user"})
    text = on_paper(whole.model_copy(update={"trials": (*whole.trials[:-1], stopped)}))
    assert "Interrupted before there was a result." in text


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width: int, session: Session) -> None:
    assert max(cell_len(line) for line in shown(session, width).splitlines()) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_is_cut(width: int) -> None:
    text = shown(diagnoses.session(), width)
    assert "…" not in text
    for figure in ("11.2", "87 %", "auto (1→4)", "32 × 147 KiB", "0.25 of 4", "train.py:17", "map(decode) ◀"):
        assert figure in text, figure


def test_hostile_texts_are_no_markup() -> None:
    page = Page(html.render(diagnoses.hostile()))
    assert set(page.scripts) == set(Page(html.render(diagnoses.session())).scripts)
    assert page.open == []
    assert diagnoses.HOSTILE[:30] in page.text
    fragment = Page(html.fragment(diagnoses.hostile()))
    assert not fragment.tags.keys() & {"script", "style", "img", "a", "link"}


def test_markdown_keeps_a_fence_that_code_cannot_close() -> None:
    first = diagnoses.attempts()[0]
    assert first.code is not None
    code = first.code.model_copy(update={"diff": "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+````\n"})
    found = diagnoses.diagnosis(attempts=(first.model_copy(update={"code": code}),))
    text = markdown.render(diagnoses.session(found))
    assert "\n`````diff\n" in text
    assert "\n+````\n`````\n" in text


def test_of_the_unproven_fixes_the_list_begins_with_the_one_that_the_conclusion_names() -> None:
    """A screen has one line of them: it showed a gain of one trial, and the sentence another fix of three trials."""
    names = ("prefetch", "larger reads")
    tries = (each for each in diagnoses.attempts() if each.fix.variant in names)
    found = diagnoses.diagnosis(attempts=tuple(each.model_copy(update={"outcome": "no-gain"}) for each in tries))
    state = diagnoses.session(found)
    for name, gain in zip(names, (1.5, 1.3), strict=True):
        state = with_result(state, name, speedup=Speedup(over=AS_WRITTEN, value=gain))
    kept = tuple(trial for trial in state.trials if trial.variant != "prefetch" or trial.repeat == 0)
    state = state.model_copy(update={"trials": kept})
    assert [each.variant for each in attempts.tried(state, found)] == ["larger reads", "prefetch"]
    assert "The most promising is larger reads, 1.30× in 3 trials" in conclusion._promising(state, found)
