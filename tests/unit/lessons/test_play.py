"""The player of lessons: what it shows at 80 columns, what it asks, and how a reader leaves."""

import io
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from rich.console import Console

from pipeline_bench.cli.running import interruptible
from pipeline_bench.lessons.play import LeftError, Player, _shown_while, console
from pipeline_bench.lessons.reading import Ask, Compare, Exercise, Lesson, Tell, find, lessons
from pipeline_bench.model.trial import plan
from pipeline_bench.run.observer import Observer, Progress
from tests.unit import sessions
from tests.unit.lessons import results

ALL = lessons()
QUEUE = find("queue_that_blocks")


def on_paper(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, highlight=False, force_terminal=False)


def text_of(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def typed(lines: Iterable[str]) -> Callable[[str], str]:
    """A reader who types these lines, and then is gone."""
    waiting = iter(lines)

    def read_line(prompt: str) -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    return read_line


@pytest.mark.parametrize("lesson", ALL, ids=[lesson.name for lesson in ALL])
def test_every_lesson_runs_through_without_a_reader_within_80_columns(lesson: Lesson) -> None:
    screen = on_paper()
    Player(screen, results.measured, None).play(lesson)
    shown = text_of(screen)
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown
    assert lesson.title in shown
    for part in lesson.parts:
        if isinstance(part, Ask):
            assert " ".join(part.question.replace("`", "").split()[:4]) in " ".join(shown.split())
    for entry in lesson.then:
        assert entry.command in shown


def test_a_wide_terminal_shows_lessons_no_wider_than_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert console().width == 80
    monkeypatch.setenv("COLUMNS", "60")
    assert console().width == 60


def test_a_prediction_is_taken_by_its_letter_and_asked_again_where_it_is_none() -> None:
    screen = on_paper()
    played = Player(screen, results.measured, typed(["7", "many", "b", "", ""])).play(QUEUE)
    assert played.answers["count"] == "three, and the fourth does not return"
    assert text_of(screen).count("That is not a, b or c.") == 2
    assert "  b  three, and" in text_of(screen)
    assert ", as you predicted" in text_of(screen)


@pytest.mark.parametrize(
    ("name", "line", "answer"),
    [
        ("queue_that_blocks", "3", "three, and the fourth does not return"),
        ("queue_that_blocks", "Three", "three, and the fourth does not return"),
        ("queue_that_blocks", "C", "four: the fourth gets a sample again"),
        ("queue_runner", "3", "3 times"),
        ("queue_runner", "10", "10 times, once for each dequeue"),
        ("feed_dict_or_queue", "the queue is faster", None),
    ],
)
def test_what_is_typed_is_the_choice_that_says_it_and_never_one_of_that_place(
    name: str, line: str, answer: str | None
) -> None:
    (ask,) = [part for part in find(name).parts if isinstance(part, Ask)]
    played = Player(on_paper(), results.measured, typed([line, ""])).play(Lesson("one", "One", "one", 1, (ask,)))
    assert played.answers.get(ask.key) == answer


@pytest.mark.parametrize(
    ("line", "answer"), [("33", 33.0), ("33,5 %", 33.5), ("33%", 33.0), ("", None)], ids=["plain", "comma", "%", "none"]
)
def test_a_number_is_taken_as_people_write_it(line: str, answer: float | None) -> None:
    ask = Ask("share", "How much?", low=0, high=100, unit="%")
    lesson = Lesson("one", "One", "one question", 1, (ask,))
    assert Player(on_paper(), results.measured, typed([line])).play(lesson).answers.get("share") == answer


@pytest.mark.parametrize(
    ("line", "unit"), [("7 ms", "ms"), ("7 times", "times"), ("7x", "times"), ("7×", "times"), ("7 ×", "times")]
)
def test_a_number_may_be_followed_by_its_unit(line: str, unit: str) -> None:
    lesson = Lesson("one", "One", "one question", 1, (Ask("step", "How long?", low=0, high=100, unit=unit),))
    assert Player(on_paper(), results.measured, typed([line])).play(lesson).answers["step"] == 7.0


@pytest.mark.parametrize("line", ["nan", "inf", "-1", "101", "thirty"])
def test_what_is_no_number_of_the_range_is_asked_again(line: str) -> None:
    ask = Ask("share", "How much?", low=0, high=100, unit="%")
    screen = on_paper()
    played = Player(screen, results.measured, typed([line, "5"])).play(Lesson("one", "One", "one", 1, (ask,)))
    assert played.answers["share"] == 5.0
    assert "That is not a number from 0 to 100 %." in text_of(screen)


@pytest.mark.parametrize("lines", [["q"], [" Quit "], [], ["b", "q"]], ids=["q", "quit", "end of input", "later"])
def test_a_reader_can_leave_at_every_prompt(lines: list[str]) -> None:
    with pytest.raises(LeftError):
        Player(on_paper(), results.measured, typed(lines)).play(QUEUE)


def test_what_is_measured_after_a_prediction_does_not_depend_on_it() -> None:
    """The exercise runs for a reader who skips the question as for one who answers."""
    asked: list[str] = []

    def measure(part: Exercise | Compare, observer: Observer) -> Any:
        asked.append(part.key)
        return results.measured(part)

    for line in ("", "a"):
        Player(on_paper(), measure, typed([line, "", ""])).play(QUEUE)
    assert asked == ["dequeues", "dequeues"]


def test_text_of_foreign_origin_is_no_markup_of_the_terminal() -> None:
    lesson = Lesson("one", "[red]One[/red]", "[bold]one[/bold]", 1, (Tell("[blue]plain[/blue]"),))
    screen = on_paper()
    Player(screen, results.measured, None).play(lesson)
    for text in ("[red]One[/red]", "[bold]one[/bold]", "[blue]plain[/blue]"):
        assert text.lower() in text_of(screen).lower()


def test_the_list_says_where_to_begin() -> None:
    screen = on_paper()
    Player(screen, results.measured, None).show_list(ALL)
    shown = text_of(screen)
    assert " 1  queue_that_blocks   (begin here)" in shown
    assert all(lesson.name in shown for lesson in ALL)
    assert max(map(len, shown.splitlines())) <= 80


def test_the_live_line_names_the_trial_that_is_running() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    screen = Console(file=stream, width=80, force_terminal=True, _environ={"TERM": "xterm"})
    with _shown_while(screen, "training [two] variants") as observer:
        observer.trial_started(plan(sessions.two_layer())[1])
    assert "training [two] variants: round 1, fifo_queue" in text_of(screen)


def test_a_pipe_gets_no_live_line_whatever_its_colours() -> None:
    screen = Console(file=io.StringIO(), width=80, highlight=False, _environ={"FORCE_COLOR": "1", "TERM": "xterm"})
    with _shown_while(screen, "training two variants") as observer:
        observer.trial_started(plan(sessions.two_layer())[1])
    assert text_of(screen) == "(training two variants ...)\n\n"


def test_a_comparison_of_a_lesson_ends_once_its_reader_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        with interruptible(), _shown_while(console(), "training") as observer:
            os.close(reader)
            with pytest.raises(KeyboardInterrupt):
                observer.progress(plan(sessions.two_layer())[0], Progress("train", 40, elapsed_s=25, training_s=20))
