"""The end of a run on one screen: what it says, and that it fits."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from rich.text import Text

from pipeline_bench.analysis import watched
from pipeline_bench.model import session as sessions_file
from pipeline_bench.model.diagnosis import Attempt, CodeChange, Equality
from pipeline_bench.model.edits import InsertAfter
from pipeline_bench.model.pipeline import ScriptTraining
from pipeline_bench.model.result import Doubt, Precision, WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import PhaseMark
from pipeline_bench.report import markdown, screen, terminal
from pipeline_bench.report.html import content
from tests.golden import BUILT, ROOT, SESSIONS
from tests.unit import diagnoses, records, sessions
from tests.unit.console import printed
from tests.unit.monitoring.test_record import finished

PAGE_LINES = 2
load = cache(sessions_file.load)  # of the committed ones, which several tests look at
OTHERS = [f"{folder}/session.json" for folder in ("docs/walkthrough", "reports/h100-diagnose", "reports/h100-selftest")]
"""Committed sessions that are no comparisons."""
_WHOLE_NAME = 15
"""Characters of a variant's name that are never cut from its row of figures."""


def shown(session: Session, width: int = 80) -> list[str]:
    return printed(screen.render(session, width), width).splitlines()


def fits(lines: list[str]) -> bool:
    """Whether there is room for the page, the command and the prompt."""
    return len(lines) + PAGE_LINES <= 22 and max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", [*OTHERS, *BUILT])
def test_it_fits_a_screen(name: str) -> None:
    assert fits(shown(BUILT[name]() if name in BUILT else load(ROOT / name)))


@pytest.mark.parametrize("name", sorted({*SESSIONS} - {*OTHERS}))
def test_a_comparison_fits_with_the_figures_of_each_variant_and_its_limit_once(name: str) -> None:
    session = load(ROOT / name)
    lines = shown(session)
    assert fits(lines)
    marked = [line for line in lines if re.search("[●■] ", line)]
    variants = [result for result in session.results if result.variant not in session.scenario.ceilings]
    assert len(marked) == len(variants)
    for result in variants:
        assert any(result.variant in line and result.verdict.kind in line for line in marked)
        assert any(line.startswith(result.variant[:_WHOLE_NAME]) for line in lines)
    assert not any(line.endswith("…") for line in marked)
    baseline = session.scenario.baseline.name
    verdict = session.result(baseline).verdict.kind
    assert not re.search(f"{baseline} is (severely |probably )*{verdict}", " ".join(" ".join(lines).split()))
    rows = [line for line in lines if re.match(rf"([●■] )?{re.escape(baseline)}  ", line)]
    assert sum(verdict in line for line in rows) == 1


def test_of_ceilings_alone_each_has_its_row_with_margins_and_none_has_a_limit() -> None:
    of_ms = {"1 thread": (10.0, None), "2 threads": (6.0, None)}
    session = records.session(records.of_ceilings(*of_ms), records.rounds(of_ms))
    text = "\n".join(shown(session))
    assert re.search(r"^2 threads .*1\.67×\n.*±", text, re.MULTILINE)
    assert "●" not in text
    details = printed(terminal.render(session, None, 80), 80)
    assert "work not checked" not in details
    assert "Work:" not in markdown.render(session)


@pytest.mark.parametrize("parts", [0, 1])
def test_a_selftest_that_has_just_begun_has_its_screen(parts: int) -> None:
    session = load(ROOT / "reports" / "h100-selftest")
    assert session.selftest is not None
    begun = session.selftest.model_copy(update={"parts": session.selftest.parts[:parts]})
    text = " ".join(shown(session.model_copy(update={"selftest": begun})))
    assert "NVIDIA H100" in text
    assert all(part.name in text for part in begun.parts)


@pytest.mark.parametrize("width", [40, 80])
def test_a_selftest_names_each_figure_whole_on_a_narrow_terminal(width: int) -> None:
    session = load(ROOT / "reports" / "h100-selftest")
    details = printed(terminal.render(session, None, width), width)
    assert "-3.3 points" in " ".join(details.split())
    assert re.search(r"wait for storage:?( planted)? 67\.2 %", " ".join(" ".join(shown(session, width)).split()))


def test_a_tall_terminal_has_all_stages_and_attempts_on_it_and_more_lines_below_leave_fewer_for_it() -> None:
    session = diagnoses.thirty()
    low, tall = (printed(screen.render(session, 80, 5, lines), 80) for lines in (24, 80))
    assert "shorter stages" in low
    assert "more attempt" in low
    assert len(low.splitlines()) + 5 <= 22
    assert "shorter stages" not in tall
    assert "more attempt" not in tall
    assert len(tall.splitlines()) > 24


def test_an_emulated_accelerator_is_named_in_one_line() -> None:
    lines = shown(load(ROOT / "reports/example/session.json"))
    assert [line for line in lines if "emulated" in line] == [
        "emulated accelerator, busy 1.1 ms a step; host: AMD EPYC, 2 cores"
    ]


def test_a_device_that_was_busy_for_longer_than_set_is_one_clause() -> None:
    session = load(ROOT / "reports/example/session.json")
    assert not any("device was busy" in line for line in shown(session))
    variants = [
        variant.model_copy(
            update={"model": variant.model.model_copy(update={"options": {**variant.model.options, "step_ms": 0.8}})}
        )
        if variant.name == "fifo_queue"
        else variant
        for variant in session.scenario.variants
    ]
    scenario = session.scenario.model_copy(update={"variants": tuple(variants)})
    said = [line for line in shown(session.model_copy(update={"scenario": scenario})) if "device was busy" in line]
    assert len(said) == 1
    assert said == ["fifo_queue's device was busy 1.05 ms a step, not 0.8 ms: the host was too slow"]


def test_many_variants_are_counted_where_they_do_not_fit() -> None:
    session = sessions.normal()
    some = session.results[0]
    variants = tuple(session.scenario.variant("feed_dict").model_copy(update={"name": f"v{i}"}) for i in range(30))
    results = tuple(some.model_copy(update={"variant": variant.name}) for variant in variants)
    scenario = session.scenario.model_copy(update={"variants": (*variants, session.scenario.variant("ceiling"))})
    many = session.model_copy(update={"scenario": scenario, "results": (*results, session.result("ceiling"))})
    lines = shown(many)
    assert len(lines) + PAGE_LINES <= 22
    listed = sum(line.startswith("v") and "input-bound" in line for line in lines)
    assert f"  and {30 - listed} more variants (--details of report)" in lines
    assert not any("…" in line for line in lines if line.startswith(("v", "  "))), "no head and no figure is cut"


def test_a_limit_has_the_whole_name_of_wide_characters_that_fits() -> None:
    name = "前処理を並列に読む"
    lines = shown(sessions.with_result(sessions.normal(), "feed_dict", variant=name))
    assert any(re.match(f"■ {name}  severely input-bound", line) for line in lines)


def test_the_costliest_stages_of_many_are_shown_the_bottleneck_among_them() -> None:
    lines = shown(diagnoses.thirty())
    assert any("map(step_29) ◀ bottleneck" in line for line in lines)
    assert not any("map(step_01)" in line for line in lines)
    stages = sum("map(step" in line for line in lines)
    assert f"  and {30 - stages} shorter stages (--details of report)" in lines


def limited(width: int = 80, **changes: object) -> list[str]:
    """The screen of a comparison with another verdict of its baseline."""
    session = sessions.normal()
    verdict = session.result("feed_dict").verdict.model_copy(update=changes)
    return shown(sessions.with_result(session, "feed_dict", verdict=verdict), width)


def test_a_limit_without_room_for_its_figure_keeps_its_doubt() -> None:
    doubt = Doubt(figure="host slowdown", low=0.1, high=0.8, instead=("host-bound", "compute-bound"), rounds=5)
    lines = limited(certainty="probable", doubt=doubt)
    assert "■ feed_dict   probably severely input-bound, or host-bound or compute-bound" in lines


def test_a_probable_limit_says_what_else_it_may_be() -> None:
    doubt = Doubt(figure="input wait", low=0.08, high=0.2, line=0.1, instead=("mixed",), rounds=5)
    lines = limited(certainty="probable", severe=False, doubt=doubt)
    assert any("probably input-bound" in line and "or mixed" in line for line in lines)


@pytest.mark.parametrize(
    ("taken", "busy", "ended_by", "advice"),
    [
        (0.0, 99.0, "budget", "a larger --budget may do it"),
        (60.0, 99.0, "budget", "a quieter machine"),
        (60.0, 70.0, "budget", "a larger --budget may do it"),  # the others took what nobody else asked for
        (0.0, 99.0, "precision", "a smaller --precision may do it"),
        (60.0, 99.0, "precision", "a quieter machine"),
        (0.0, 99.0, "interrupted", None),
    ],
)
def test_what_is_not_decided_is_shown_with_what_may_decide_it(
    taken: float, busy: float, ended_by: Any, advice: str | None
) -> None:
    session = load(ROOT / "reports/example/session.json")
    tracks = tuple(
        records.track(metric, [1, 2], percent, "psutil")
        for metric, percent in (("other_cpu_percent", taken), ("machine_cpu_percent", busy))
    )
    trials = tuple(trial.model_copy(update={"samples": tracks}) for trial in session.trials)
    doubt = Doubt(figure="input wait", low=0.08, high=0.2, line=0.1, instead=("mixed",), rounds=5)
    open_verdict = session.results[2].verdict.model_copy(update={"kind": "inconclusive", "doubt": doubt})
    last = session.results[2].model_copy(update={"verdict": open_verdict})
    precision = Precision(goal=0.02, budget_s=60, ended_by=ended_by)
    changes = {"trials": trials, "results": (*session.results[:2], last), "precision": precision}
    session = session.model_copy(update=changes)
    said = [line for line in shown(session) if "not everything is decided" in line]
    assert len(said) == (advice is not None)
    assert all(advice in line for line in said if advice is not None)


def test_equal_work_is_two_words_and_unequal_work_is_not_called_equal() -> None:
    session = sessions.normal()
    equal = [r.model_copy(update={"work": WorkCheck(status="equal", text="the same")}) for r in session.results]
    assert any("equal work ✓" in line for line in shown(session.model_copy(update={"results": tuple(equal)})))
    other = equal[0].model_copy(update={"work": WorkCheck(status="unequal", text="it lost 3")})
    unequal = session.model_copy(update={"results": (other, *equal[1:])})
    assert not any("equal work ✓" in line for line in shown(unequal))


@pytest.mark.parametrize(("session", "command"), [(sessions.normal(), "compare"), (diagnoses.session(), "diagnose")])
def test_the_picture_names_the_command_and_is_the_same_file_each_time(session: Session, command: str) -> None:
    svg = screen.export_svg(session)
    assert svg.startswith("<svg")
    assert f"pipeline-bench {command}" in svg.replace("&#160;", " ")
    assert svg == screen.export_svg(session)
    assert 'url("http' not in svg, "a picture loads nothing from elsewhere"


def test_a_fix_that_failed_has_one_line_and_its_evidence_is_left_to_the_details() -> None:
    session, found = diagnoses.session(), diagnoses.diagnosis()
    broken = next(each for each in found.attempts if each.outcome == "failed")
    trial = sessions.trial(99, broken.fix.variant, 0, status="failed", steps=None, reason="it raised ValueError")
    first = found.model_copy(update={"attempts": (broken,)})
    lines = shown(session.model_copy(update={"trials": (*session.trials, trial), "diagnosis": first}))
    assert f"· {broken.fix.variant}: failed (--details of report shows why)" in [line.rstrip() for line in lines]
    assert not any("ValueError" in line for line in lines)


def test_a_fix_that_is_refused_has_the_reason_behind_its_gain() -> None:
    found = diagnoses.diagnosis()
    refused = found.attempts[0].model_copy(
        update={"outcome": "refused", "equality": Equality(status="unequal"), "reason": "It changes which arrive."}
    )
    lines = "\n".join(shown(diagnoses.session(found.model_copy(update={"attempts": (refused,)}))))
    assert "(other samples)" in lines


def test_a_fix_of_the_bottleneck_that_an_option_allows_is_named_with_the_option() -> None:
    found = diagnoses.diagnosis()
    fix = diagnoses.fix("parallel map(decode)", "Run decode on several cores", threads=True)
    left = Attempt(fix=fix, outcome="not-tried", reason="it calls a function on several threads")
    session = diagnoses.session(found.model_copy(update={"attempts": (left,)}))
    assert "· not tried: parallel map(decode) (--allow-threads)" in shown(session)
    allowed = found.model_copy(update={"attempts": (left,), "allow_threads": True})
    assert not any("not tried" in line for line in shown(diagnoses.session(allowed)))


def test_a_line_of_code_is_cut_within_where_it_fits_and_a_sentence_between_its_words() -> None:
    code = screen._cut(Text("Of a call, 80 % is in line 39: return img_to_array(load_img(path,target_size=size))"), 60)
    assert code.plain == "Of a call, 80 % is in line 39: return img_to_array(load_img…"
    words = screen._cut(Text("The disk gave less than the pipeline asked for in most of its trials here"), 60)
    assert words.plain == "The disk gave less than the pipeline asked for in most of…"


def test_a_cache_that_one_pass_does_not_read_is_named_with_that_reason() -> None:
    keep = diagnoses.fix("cache", "Keep what decode gives", edits=(InsertAfter(stage=2, method="cache"),))
    left = Attempt(fix=keep, outcome="not-tried", reason="the fit passes over its data once")
    for epochs, expected in ((1, True), (2, False)):
        training = ScriptTraining(line="train.py:30", epochs=epochs)
        inspection = diagnoses.inspection(training=training, cardinality=400, pass_elements=400)
        session = diagnoses.session(diagnoses.diagnosis(attempts=(left,), inspection=inspection))
        assert ("· not tried, as the fit passes over its data once: cache" in shown(session)) is expected


@pytest.mark.parametrize(
    ("update", "said"),
    [
        (
            {
                "doubt": Doubt(
                    figure="input wait", likeliest="mixed", low=0, high=0.2, instead=("host-bound",), rounds=5
                )
            },
            "mixed or host-bound; input wait is 0 to 20 %",
        ),
        ({"cause": "too-few-steps"}, "fewer than 30 steps"),
        ({}, "(--details of report)"),
    ],
)
def test_why_there_is_no_verdict_is_said_in_few_words_where_a_sentence_has_no_room(
    update: dict[str, object], said: str
) -> None:
    lines = limited(120, **{"kind": "inconclusive", "severe": False, "reason": "too many words " * 9, **update})
    assert any("inconclusive" in line and said in line for line in lines)


@pytest.mark.parametrize(
    ("gpu_percent", "said", "why"),
    [
        (None, "not input-bound", "what takes the rest is not known"),
        (20.0, "not input-bound, but the GPU idles", "it waits for the host"),
    ],
)
def test_a_watched_job_that_hardly_waits_has_one_verdict(gpu_percent: float | None, said: str, why: str) -> None:
    session = finished(wait_ms=0.1)
    verdict = watched.judge(4.0, 0.1, 0.025, 100, None, device_waits=True, gpu_percent=gpu_percent)
    session = sessions.with_result(session, "job", verdict=verdict)
    lines = shown(session)
    assert f"● job  {said}: {why}" in lines
    for report in ("\n".join(lines), printed(terminal.render(session, None, 200), 200), markdown.render(session)):
        assert "job is not input-bound" in report
        assert "inconclusive" not in report
    assert f"**job**: {said}: waits 100 µs" in markdown.render(session)
    assert [each["word"] for each in content.verdicts(session)] == [said]


def test_names_that_begin_alike_are_told_apart_on_a_narrow_terminal() -> None:
    lines = shown(load(ROOT / "docs/systems/python_overhead/session.json"), 60)
    rows = [line for line in lines if line.startswith("function, ") and "×" in line]
    assert len({row.split("  ")[0] for row in rows}) == 2


def test_what_to_write_is_said_of_a_fix_that_has_no_diff() -> None:
    found = diagnoses.diagnosis()
    assert not any("To write" in line for line in shown(diagnoses.session(found)))
    words = CodeChange(text="Write `.cache()` behind `map(decode)` (train.py:14).")
    without = tuple(each.model_copy(update={"code": each.code and words}) for each in found.attempts)
    lines = shown(diagnoses.session(found.model_copy(update={"attempts": without})))
    assert f"To write: {words.text}" in lines


@pytest.mark.parametrize(("start_s", "is_said"), [(0.2, False), (30.0, True)])
def test_what_the_budget_does_not_count_is_said_where_it_is_much(start_s: float, is_said: bool) -> None:
    session = diagnoses.session()
    began_ns = 1_000_000_000_000
    trials = []
    for trial in session.trials:
        build_ns, ended_ns = began_ns + int(start_s * 1e9), began_ns + int((start_s + 2) * 1e9)
        phases = (PhaseMark(name="build", at_ns=build_ns), PhaseMark(name="train", at_ns=build_ns))
        changes = {"started_ns": began_ns, "ended_ns": ended_ns, "phases": phases}
        trials.append(trial.model_copy(update=changes))
        began_ns = ended_ns
    lines = shown(session.model_copy(update={"trials": tuple(trials)}))
    assert any(line.startswith("the trials' starts and first steps took ") for line in lines) == is_said


def test_notes_that_are_not_shown_are_counted() -> None:
    session = sessions.normal().model_copy(update={"notes": tuple(f"note {number}" for number in range(40))})
    assert "and 38 more notes (--details of report)" in shown(session)


def test_a_diagnosis_with_much_to_say_gives_its_stages_and_notes_up_first() -> None:
    whole = diagnoses.session()
    assert whole.diagnosis is not None
    assert whole.diagnosis.inspection is not None
    training = ScriptTraining(line="train.py:31")
    looked = whole.diagnosis.inspection.model_copy(update={"training": training, "notes": ("of the script",) * 3})
    long = whole.diagnosis.model_copy(update={"text": "It is so. " * 80, "inspection": looked})
    lines = shown(whole.model_copy(update={"diagnosis": long}))
    assert sum("It is so." in line for line in lines) > 10
    assert len(lines) + screen._PAGE_LINES <= 22
