"""The lessons: what each must have, what it says of what was measured, and its page in docs/."""

import ast
import inspect
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.errors import UsageError
from pipeline_bench.lessons import reading
from pipeline_bench.lessons.code import CODE_COLUMNS
from pipeline_bench.lessons.reading import Ask, Compare, Exercise, Lesson, Played, Say, Show, Tell, find, lessons
from tests.unit.lessons import results

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "lessons"
_BEGIN = 30
"""So many characters tell a sentence of a lesson from the others."""
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "render_lessons.py"))
ALL = lessons()
NAMES = [lesson.name for lesson in ALL]
every_lesson = pytest.mark.parametrize("lesson", ALL, ids=NAMES)


def tells(name: str, played: Played, *places: int) -> str:
    """Return what the lesson says of that, in all of its explanations or in those at these places."""
    texts = [part for part in find(name).parts if isinstance(part, Tell)]
    return "\n\n".join(texts[place].text(played) for place in places or range(len(texts)))


@every_lesson
def test_a_lesson_is_found_by_the_name_of_its_file(lesson: Lesson) -> None:
    assert (Path(reading.__file__).parent / f"{lesson.name}.md").is_file()
    assert find(lesson.name) is lesson
    assert find(lesson.name.replace("_", "-")) is lesson


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UsageError) as caught:
        find("queue_that_block")
    assert "Did you mean 'queue_that_blocks'?" in caught.value.hint


@every_lesson
def test_a_lesson_shows_code_asks_measures_and_then_tells(lesson: Lesson) -> None:
    kinds = [type(part) for part in lesson.parts]
    assert Ask in kinds
    measuring = [place for place, kind in enumerate(kinds) if kind in (Exercise, Compare)]
    assert measuring, "nothing is measured"
    assert kinds.index(Ask) < measuring[0], "a prediction comes before the measuring"
    assert all(Tell in kinds[place:] for place in measuring), "what was measured is explained"
    assert any(isinstance(part, Show) for part in lesson.parts)
    assert lesson.then


@every_lesson
def test_the_keys_of_what_is_measured_and_asked_are_each_its_own(lesson: Lesson) -> None:
    for kinds in ((Exercise, Compare), (Ask,)):
        keys = [part.key for part in lesson.parts if isinstance(part, kinds)]
        assert len(set(keys)) == len(keys)


@every_lesson
def test_the_list_has_one_plain_line_for_a_lesson(lesson: Lesson) -> None:
    assert "\n" not in lesson.summary
    assert not lesson.summary.endswith((".", "?", "!"))


@every_lesson
def test_the_commands_to_go_on_with_are_the_programs_own(lesson: Lesson) -> None:
    for entry in lesson.then:
        assert entry.command.startswith("pipeline-bench ")
        assert len(entry.command) <= 76, "a command that is broken over two lines cannot be copied"


@every_lesson
def test_the_lesson_tells_something_of_what_was_measured(lesson: Lesson) -> None:
    for part in lesson.parts:
        if isinstance(part, Tell):
            text = part.text(results.played(lesson))
            assert text
            assert "None" not in text


@every_lesson
def test_shown_code_fits_a_terminal_of_80_columns(lesson: Lesson) -> None:
    for part in lesson.parts:
        if isinstance(part, Show):
            assert max(map(len, part.source.splitlines())) <= CODE_COLUMNS, part.code


@every_lesson
def test_shown_code_is_the_same_program_as_the_code_that_runs(lesson: Lesson) -> None:
    for part in lesson.parts:
        if isinstance(part, Show):
            runs = textwrap.dedent(inspect.getsource(part.code))
            assert statements(part.source) <= statements(runs), part.code


def statements(source: str) -> set[str]:
    """Every statement as Python reads it, without docstrings and regardless of how its lines are broken."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    simple = [node for node in nodes if not hasattr(node, "body")]
    return {
        ast.dump(node) for node in simple if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    }


def test_a_right_prediction_is_called_right_and_a_wrong_one_is_not() -> None:
    played = results.played(find("queue_that_blocks"))
    (ask,) = [part for part in find("queue_that_blocks").parts if isinstance(part, Ask)]
    texts = [tells("queue_that_blocks", played.with_answer("count", each.text), 0) for each in ask.choices]
    assert ["as you predicted" in text for text in texts] == [False, True, False]
    assert ["unlike you predicted" in text for text in texts] == [True, False, True]
    texts.append(tells("queue_that_blocks", played, 0))
    assert "predicted" not in texts[-1]
    assert all("three of the four dequeues succeeded" in text for text in texts)


@pytest.mark.parametrize(("answer", "right"), [(75.0, True), (85.0, True), (74.9, False), (86.0, False)])
def test_a_share_is_right_within_five_points(answer: float, right: bool) -> None:
    played = results.played(find("what_utilization_says")).with_answer("waits", answer)
    assert ("as you predicted" in tells("what_utilization_says", played, 1)) == right


def test_what_was_not_measured_makes_no_prediction_wrong() -> None:
    (waits,) = [part for part in find("what_utilization_says").parts if isinstance(part, Compare)][1:]
    played = Played({"waits": results.made_session(waits, percent=None)}, {"waits": 33.0})
    assert "You said: 33 %. **It was: –, one after the other.**" in tells("what_utilization_says", played, 1)


def test_a_dequeue_that_was_only_slow_is_not_explained_away() -> None:
    slow = results.RECORDED["fill_once_and_dequeue"] | {"outcomes": ["succeeded"] * 2 + ["blocked"] * 2}
    (ask,) = [part for part in find("queue_that_blocks").parts if isinstance(part, Ask)]
    text = tells("queue_that_blocks", Played({"dequeues": slow}, {"count": ask.right("2")}), 0)
    assert "two of the four dequeues succeeded.**" in text  # and no prediction is called right
    assert "1. succeeded\n2. succeeded\n3. blocked\n4. blocked\n" in text
    assert "busy machine" in text
    assert "Three samples went in, and three came out" not in text


def test_an_element_that_was_left_is_not_called_the_one_that_came_later() -> None:
    left = results.RECORDED["fill_once_and_dequeue"] | {"waited": False, "got": -0.4}
    text = tells("queue_that_blocks", Played({"dequeues": left}), 1)
    assert "It returned -0.4 without waiting" in text
    assert "enqueued a single sample" not in text


def test_no_utilization_is_called_the_best_that_the_device_may_exceed() -> None:
    text = tells("what_utilization_says", results.played(find("what_utilization_says")), 1)
    assert "80 % here" in text
    assert "at best" not in text


def test_the_runner_lesson_tells_the_counts_of_this_machine() -> None:
    text = tells("queue_runner", results.played(find("queue_runner")))
    assert "It was: 3 times" in text
    assert "2 (in 2 of 12) or 3 (in 10 of 12)" in text
    assert "Why a rerun may show 4" in text


def test_the_runner_lesson_says_so_where_the_count_is_another() -> None:
    runs = results.RECORDED["many_runs"]
    (ask,) = [part for part in find("queue_runner").parts if isinstance(part, Ask)]
    played = Played({"runs": runs | {"first": runs["first"] | {"settled": 2}}}, {"evaluations": ask.right("2")})
    text = tells("queue_runner", played, 0)
    assert "It was: twice.**" in text
    assert "should have been 3 times" in text


@pytest.mark.parametrize(
    ("percents", "words"),
    [
        ((79.0, 80.0), "In both runs the device was busy for about the same share"),
        ((60.0, 80.0), "that the shares differ here"),
        ((None, None), "could not be measured here"),
    ],
)
def test_utilizations_that_differ_are_not_called_the_same(percents: tuple[float | None, ...], words: str) -> None:
    full = next(part for part in find("what_utilization_says").parts if isinstance(part, Compare))
    session = results.made_session(full)
    devices = (each.device_utilization for each in session.results)
    made = tuple(
        each.model_copy(update={"device_utilization": device.model_copy(update={"mean_percent": percent})})
        for each, device, percent in zip(session.results, devices, (*percents, *percents), strict=False)
    )
    text = tells("what_utilization_says", Played({"full": session.model_copy(update={"results": made})}), 0)
    assert words in text
    assert ("| – |\n" in text) == (percents[0] is None)


@pytest.mark.parametrize(("percent", "shared"), [(99.8, False), (42.0, True)])
def test_a_core_that_was_shared_is_explained(percent: float, shared: bool) -> None:
    busy = {"core_percent": percent, "done": 5_817_324}
    text = tells("what_utilization_says", Played({"cores": {"useful": busy, "useless": busy}}), 2)
    assert ("other programs wanted" in text) == shared
    assert "nothing, 5,817,324 times |" in text


def test_a_part_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="lesson one: there is no part 'tel'"):
        reading.read_lesson("one", '+++\ntitle = "One"\nsummary = "one"\norder = 1\n+++\nText\n\n::: tel\nmore\n')


def test_lines_of_a_paragraph_are_joined_and_those_of_lists_and_code_are_not() -> None:
    text = "a\n{% if true %}\n  b\n{% endif %}\n\n\n- c\n  d\n- e\n\n```toml\nf\n\n\ng\n```\n"
    assert Tell(text).text(Played()) == "a b\n\n- c d\n- e\n\n```toml\nf\n\n\ng\n```"


@every_lesson
def test_the_page_in_docs_has_the_text_and_the_code_of_today(lesson: Lesson) -> None:
    """Written by ``python docs/render_lessons.py``: run it after a change of a lesson or of the code that it shows."""
    page = (PAGES / f"{lesson.name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {lesson.title}\n")
    for part in lesson.parts:
        if isinstance(part, Say | Show | Ask):
            assert f"\n\n{SCRIPT['block'](part, Played())}\n\n" in page


@every_lesson
def test_the_page_in_docs_has_what_is_told_word_for_word(lesson: Lesson) -> None:
    """The words between two figures stand in a page as in the lesson, if the page has those that begin them."""
    page = " ".join((PAGES / f"{lesson.name}.md").read_text(encoding="utf-8").split())
    for part in lesson.parts:
        if isinstance(part, Tell):
            for piece in re.split(r"{%.*?%}|{{.*?}}", part.template, flags=re.DOTALL):
                words = " ".join(piece.split())
                begin = words[:_BEGIN]
                assert len(words) <= _BEGIN or begin not in page or words in page, words


def test_the_index_in_docs_is_that_of_today() -> None:
    assert (PAGES / "README.md").read_text(encoding="utf-8") == SCRIPT["index"](ALL)


def test_a_page_has_what_was_measured_and_where() -> None:
    own = find("queue_runner")
    page = SCRIPT["page"](own, results.played(own), "2 cores (Example CPU), no GPU")
    assert "2 (in 2 of 12) or 3 (in 10 of 12)" in page
    assert "> - **b** 3 times" in page
    assert "2 cores (Example CPU), no GPU" in page
    assert "- `pipeline-bench lesson feed_dict_or_queue`: " in page
