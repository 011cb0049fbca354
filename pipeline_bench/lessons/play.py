"""Plays a lesson in the terminal: shows its parts, asks the reader, and measures in a child or by a comparison.

At most 80 columns wide, without colour too, and without a reader where none is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.panel import Panel
from rich.spinner import Spinner
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from pipeline_bench.analysis.goal import until_decided
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.lessons.reading import (
    Answer,
    Ask,
    Compare,
    Exercise,
    Lesson,
    LessonPart,
    Played,
    Say,
    Show,
    Tell,
    Try,
)
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial
from pipeline_bench.run.child import call
from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.system.files import ScratchFolder
from pipeline_bench.text import NAME, REASON, joined, one_line, sentence, units
from pipeline_bench.ui.console import ForegroundLive, PipedConsole, UntilUnread, can_draw

WIDTH_COLUMNS = 80
_DRAWN_PER_S = 10
_BUDGET_S = 40.0
"""For each comparison: with what a reader reads, a lesson of two takes two minutes."""
_LEAVE = {"q", "quit", "exit"}

Measure = Callable[[Exercise | Compare, Observer], Session | dict[str, Any]]
"""Carries out what a part measures, and gives its result; the observer hears how a comparison goes."""
ReadLine = Callable[[str], str]
"""Shows a prompt and gives the line that the reader typed. Raises EOFError where the input is at its end."""


class LeftError(Exception):
    """The reader has seen enough."""


def console() -> Console:
    """Return a console for lessons: as wide as the terminal, but never wider than lines read well."""
    theme = Theme({"markdown.code": "bold cyan", "markdown.code_block": "cyan"})
    made = PipedConsole(theme=theme, highlight=False)
    return made if made.width <= WIDTH_COLUMNS else PipedConsole(theme=theme, highlight=False, width=WIDTH_COLUMNS)


class Player:
    """Plays lessons on a console.

    Args:
        console: where they appear.
        measure: carries out what a part measures; an observer hears how a comparison goes.
        read_line: asks the reader; None where there is none, and nothing waits.
    """

    def __init__(self, console: Console, measure: Measure, read_line: ReadLine | None) -> None:
        self._console = console
        self._measure = measure
        self._read_line = read_line

    def play(self, lesson: Lesson) -> Played:
        """Play it from the first part to the last.

        Raises:
            LeftError: the reader left.
            PipelineBenchError: a part could not be measured.
        """
        played = Played()
        self._head(lesson)
        for place, part in enumerate(lesson.parts):
            played = self._part(part, played)
            if isinstance(part, Tell) and place + 1 < len(lesson.parts):
                self.pause("Enter goes on, q leaves: ")
        self._then(lesson.then)
        return played

    def show_list(self, lessons: Sequence[Lesson]) -> None:
        """Print every lesson with its line, the one to begin with first."""
        self._console.print("Lessons of two minutes or less: you predict, the lesson measures and explains.\n")
        for number, lesson in enumerate(lessons, start=1):
            begin = Text("   (begin here)", style="bright_black") if number == 1 else Text()
            self._console.print(Text.assemble(f"{number:>2}  ", (lesson.name, "bold"), begin))
            self._console.print(Padding(Text(lesson.summary), (0, 0, 0, 4)))
        self._console.print("\nPlay one with: pipeline-bench lesson NAME\n")

    def say(self, text: str) -> None:
        """Print a line of the program's own, outside a lesson."""
        self._console.print(Text(one_line(text)))

    def offer(self, prompt: str) -> str:
        """Return a line of the reader's, stripped; empty without a reader.

        Raises:
            LeftError: the reader left.
        """
        if self._read_line is None:
            return ""
        try:
            line = self._read_line(prompt).strip()
        except EOFError:
            self._console.print()
            raise LeftError from None
        if line.lower() in _LEAVE:
            raise LeftError
        return line

    def pause(self, prompt: str) -> None:
        """Wait until the reader goes on.

        Raises:
            LeftError: the reader left.
        """
        if self._read_line is not None:
            self.offer(prompt)
            self._console.print()

    def _part(self, part: LessonPart, played: Played) -> Played:
        match part:
            case Say():
                self._text(part.text)
            case Show():
                self._code(part)
            case Ask():
                return played.with_answer(part.key, self._ask(part))
            case Exercise() | Compare():
                with _shown_while(self._console, part.doing) as observer:
                    return played.with_result(part.key, self._measure(part, observer))
            case Tell():
                self._text(part.text(played))
        return played

    def _head(self, lesson: Lesson) -> None:
        self._console.print()
        self._console.print(
            Panel(Text(f"{sentence(lesson.summary)}."), title=Text(lesson.title, style="bold"), padding=(0, 1))
        )
        self._console.print()

    def _text(self, text: str) -> None:
        self._console.print(Markdown(text))
        self._console.print()

    def _code(self, part: Show) -> None:
        code = Syntax(part.source, "python", theme="ansi_dark", background_color="default", word_wrap=True)
        title = Text(part.caption, style="bold") if part.caption else None
        self._console.print(Panel(code, title=title, title_align="left", border_style="bright_black", padding=(0, 1)))
        self._console.print()

    def _ask(self, part: Ask) -> Answer | None:
        self._console.print(Markdown(f"**{part.question}**"))
        for letter, text in part.lettered.items():
            self._console.print(Padding(Text(f"{letter}  {text}"), (0, 0, 0, 2)))
        if self._read_line is None:
            self._console.print()
            return None
        wanted = joined(part.lettered, "or") if part.choices else _range(part)
        while True:
            line = self.offer(f"Your prediction ({wanted}; Enter skips, q leaves): ")
            answer = _prediction(part, line)
            if answer is not None or not line:
                self._console.print()
                return answer
            self._console.print(f"That is not {wanted}.")

    def _then(self, commands: Sequence[Try]) -> None:
        if not commands:
            return
        self._console.print(Text("To try next", style="bold"))
        for entry in commands:
            self._console.print(Padding(Text(entry.command, style="bold cyan"), (0, 0, 0, 2)))
            self._console.print(Padding(Text(entry.why), (0, 0, 0, 4)))
        self._console.print()


def _prediction(part: Ask, line: str) -> Answer | None:
    """Return what the reader typed as a prediction; None where it is none."""
    if part.choices:
        return part.lettered.get(line.lower()) or _meant(part, line)
    for ending in (part.unit, *(("×", "x") if part.unit == "times" else ())):
        line = line.removesuffix(ending)
    try:
        number = float(line.strip().replace(",", "."))
    except ValueError:
        return None
    return number if part.low <= number <= part.high else None


def _meant(part: Ask, words: str) -> str | None:
    """Return the choice of that number, or the only one that begins with these words; None where there is none."""
    begins = re.compile(rf"{re.escape(words)}\b", re.IGNORECASE)
    said = part.right(words) if words.isdecimal() else ""
    texts = {choice.text for choice in part.choices if choice.text == said or begins.match(choice.text)}
    return texts.pop() if words and len(texts) == 1 else None


def _range(part: Ask) -> str:
    unit = f" {part.unit}" if part.unit else ""
    return f"a number from {part.low:g} to {part.high:g}{unit}"


@contextmanager
def _shown_while(console: Console, doing: str) -> Iterator[Observer]:
    """Show that something is going on: a live line on a terminal, else a plain one."""
    if not can_draw(console):
        console.print(f"({one_line(doing, NAME)} ...)")
        console.print()
        yield UntilUnread()
        return
    spinner = Spinner("dots", Text(one_line(doing, NAME)), style="status.spinner")
    with ForegroundLive(spinner, console=console, refresh_per_second=_DRAWN_PER_S, transient=True):
        yield _TrialLine(lambda text: spinner.update(text=Text(one_line(text, NAME))), doing)


class _TrialLine(Observer):
    """Says in the live line which trial is running."""

    def __init__(self, show: Callable[[str], None], doing: str) -> None:
        self._show = show
        self._doing = doing

    def preparing(self, what: str) -> None:
        self._show(f"{self._doing}: {what}")

    def trial_started(self, trial: Trial) -> None:
        self._show(f"{self._doing}: round {trial.repeat + 1}, {trial.variant.name}")


def measure(part: Exercise | Compare, observer: Observer) -> Any:
    """Carry out what a part of a lesson measures: the mapping of its exercise, or the session of its comparison.

    Raises:
        PipelineBenchError: it failed, in one line.
        KeyboardInterrupt: the reader has seen enough; everything that it started is ended.
    """
    return exercise(part) if isinstance(part, Exercise) else compared(part, observer)


def exercise(part: Exercise) -> dict[str, Any]:
    """Execute the exercise in a child, which is ended with all that it started when it is done or its time is over.

    Raises:
        PipelineBenchError: it raised, ended without an answer, or took longer than its deadline.
        KeyboardInterrupt: the user interrupted.
    """
    function = f"{part.function.__module__}.{part.function.__qualname__}"
    answer = call(part.function, limit_s=part.deadline_s)
    if answer.timed_out:
        raise PipelineBenchError(f"{function} was ended: it took longer than {units.seconds(part.deadline_s)}.")
    if answer.failed:
        raise PipelineBenchError(f"{function} failed: {one_line(answer.failed, REASON)}")
    if answer.result is None:
        words = one_line(answer.words[-REASON:])
        without = "" if answer.exit_code < 0 else " and no answer"
        raise PipelineBenchError(f"{function} {answer.ending}{without}{f': {words}' if words else '.'}")
    result: dict[str, Any] = answer.result
    return result


def compared(part: Compare, observer: Observer) -> Session:
    """Run the comparison; its folder is removed, the session has what the lesson shows.

    Rounds are added until everything is decided, unless the lesson has a number of rounds.

    Raises:
        PipelineBenchError: the scenario is not valid here, or no trial of it went through.
        KeyboardInterrupt: it was interrupted.
    """
    scenario = resolve(part.document, where="the lesson's scenario", default_name="lesson")
    precision = None if "repeats" in part.document.get("run", {}) else until_decided(_BUDGET_S)
    with ScratchFolder() as folder:
        outcome = compare(scenario, folder.path, observer, command="pipeline-bench lesson", precision=precision)
    if outcome.interrupted:
        raise KeyboardInterrupt
    trials = outcome.session.trials
    if not any(trial.status == "ok" for trial in trials):
        reason = one_line(trials[0].reason or trials[0].status, REASON) if trials else "none was started"
        raise PipelineBenchError(f"No trial of the comparison went through: {reason}")
    return outcome.session
