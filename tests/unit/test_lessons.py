"""The lessons: what each must have, what it says of what was measured, and its page in docs/."""

import ast
import inspect
import textwrap
from pathlib import Path

import pytest

from pipeline_bench import lessons
from pipeline_bench.errors import UsageError
from pipeline_bench.lessons import (
    CODE_COLUMNS,
    Ask,
    Compare,
    Lesson,
    Played,
    Run,
    Show,
    Tell,
    queue_runner,
    queue_that_blocks,
)
from pipeline_bench.lessons import what_utilization_says as what_says
from pipeline_bench.report import lesson_markdown
from tests.unit import lesson_results

ALL = lessons.lessons()
NAMES = [lesson.name for lesson in ALL]
PAGES = Path(__file__).parents[2] / "docs" / "lessons"
every_lesson = pytest.mark.parametrize("lesson", ALL, ids=NAMES)


def tells(lesson: Lesson, played: Played) -> list[str]:
    return [part.text(played) for part in lesson.parts if isinstance(part, Tell)]


def test_there_are_nine_lessons_and_the_blocking_queue_is_the_first() -> None:
    assert NAMES[:2] == ["queue_that_blocks", "queue_runner"]
    assert NAMES[-1] == "what_utilization_says"
    assert len({lesson.order for lesson in ALL}) == len(ALL) == 9


@every_lesson
def test_a_lesson_is_found_by_the_name_of_its_file(lesson: Lesson) -> None:
    assert (Path(lessons.__file__).parent / f"{lesson.name}.py").is_file()
    assert lessons.find(lesson.name) is lesson
    assert lessons.find(lesson.name.replace("_", "-")) is lesson


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UsageError) as caught:
        lessons.find("queue_that_block")
    assert "Did you mean 'queue_that_blocks'?" in caught.value.hint


@every_lesson
def test_a_lesson_shows_code_asks_measures_and_then_tells(lesson: Lesson) -> None:
    kinds = [type(part) for part in lesson.parts]
    assert Ask in kinds
    measuring = [place for place, kind in enumerate(kinds) if kind in (Run, Compare)]
    assert measuring, "nothing is measured"
    assert kinds.index(Ask) < measuring[0], "a prediction comes before the measuring"
    assert all(Tell in kinds[place:] for place in measuring), "what was measured is explained"
    assert any(isinstance(part, Show) for part in lesson.parts)
    assert lesson.then


@every_lesson
def test_the_keys_of_what_is_measured_and_asked_are_each_its_own(lesson: Lesson) -> None:
    for kinds in ((Run, Compare), (Ask,)):
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
        words = entry.command.split()
        if words[1] == "lesson":
            assert words[2] in NAMES


@every_lesson
def test_the_lesson_tells_something_of_what_was_measured(lesson: Lesson) -> None:
    for text in tells(lesson, lesson_results.played(lesson)):
        assert text.strip()
        assert "None" not in text


def test_the_shown_code_is_the_code_that_runs() -> None:
    shown = [part.source for part in queue_that_blocks.LESSON.parts if isinstance(part, Show)]
    text = Path(queue_that_blocks.__file__).read_text(encoding="utf-8")
    assert all(source in text for source in shown)
    assert any("queue.enqueue_many([three_samples])" in source for source in shown)


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
    played = lesson_results.played(queue_that_blocks.LESSON)
    right = tells(queue_that_blocks.LESSON, played.with_answer("count", queue_that_blocks.CHOICES[3]))[0]
    wrong = tells(queue_that_blocks.LESSON, played.with_answer("count", queue_that_blocks.CHOICES[4]))[0]
    none = tells(queue_that_blocks.LESSON, played)[0]
    assert "as you predicted" in right
    assert "unlike you predicted" in wrong
    assert "predicted" not in none
    assert all("three of the four dequeues succeeded" in text for text in (right, wrong, none))


def test_a_dequeue_that_was_only_slow_is_not_explained_away() -> None:
    slow = lesson_results.RECORDED["fill_once_and_dequeue"] | {"outcomes": ["succeeded"] * 2 + ["blocked"] * 2}
    text = tells(queue_that_blocks.LESSON, Played({"dequeues": slow}))[0]
    assert "two of the four" in text
    assert "busy machine" in text
    assert "Three samples went in, and three came out" not in text


def test_the_runner_lesson_tells_the_counts_of_this_machine() -> None:
    said = " ".join(tells(queue_runner.LESSON, lesson_results.played(queue_runner.LESSON)))
    assert "It was: 3 times" in said
    assert "2 (in 2 of 12) or 3 (in 10 of 12)" in said
    assert "Why a rerun may show 4" in said


def test_the_runner_lesson_says_so_where_the_count_is_another() -> None:
    runs = lesson_results.RECORDED["many_runs"]
    early = runs | {"first": runs["first"] | {"settled": 2}}
    said = tells(queue_runner.LESSON, Played({"runs": early}))[0]
    assert "It was: twice" in said
    assert "should have been 3 times" in said


@pytest.mark.parametrize(
    ("small", "large", "begin"),
    [(79.0, 80.0, "Both devices were busy for about the same share"), (60.0, 80.0, "that the shares differ here")],
)
def test_utilizations_that_differ_are_not_called_the_same(small: float, large: float, begin: str) -> None:
    assert begin in what_says._meaning(small, large)


def test_a_utilization_that_was_not_measured_is_shown_as_such() -> None:
    (full,) = [part for part in what_says.LESSON.parts if isinstance(part, Compare) and part.key == "full"]
    session = lesson_results.made_session(full, percent=None)
    played = Played({"full": session}).with_answer("full", what_says.SAME)
    said = what_says._how_full(played)
    assert "could not be measured here" in said
    assert "| – |" in said


def test_a_core_that_was_shared_is_explained() -> None:
    whole = what_says._busy_core(Played({"cores": lesson_results.RECORDED["two_busy_cores"]}))
    part = {"core_percent": 42.0, "done": 10}
    shared = what_says._busy_core(Played({"cores": {"useful": part, "useless": part}}))
    assert "other programs wanted" not in whole
    assert "other programs wanted" in shared


@every_lesson
def test_the_page_in_docs_has_the_text_and_the_code_of_today(lesson: Lesson) -> None:
    """Written by ``python docs/render_lessons.py``: run it after a change of a lesson or of the code that it shows."""
    page = (PAGES / f"{lesson.name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {lesson.title}\n")
    for block in lesson_markdown.fixed_blocks(lesson):
        assert block in page


def test_the_index_in_docs_is_that_of_today() -> None:
    assert (PAGES / "README.md").read_text(encoding="utf-8") == lesson_markdown.render_index(ALL)


def test_a_page_has_what_was_measured_and_where() -> None:
    own = queue_runner.LESSON
    page = lesson_markdown.render(own, lesson_results.played(own), "2 cores (Example CPU), no GPU")
    assert "2 (in 2 of 12) or 3 (in 10 of 12)" in page
    assert "> 2. 3 times" in page
    assert "2 cores (Example CPU), no GPU" in page
    assert "- `pipeline-bench lesson feed_dict_or_queue`: " in page
