"""The nouns of a lesson: a short guided run for a reader who meets an idea of this program for the first time.

A lesson is data: a file of this folder, a constant `LESSON`, made of parts that are played one after the other. What
a part measures and what the reader predicted is kept in `Played`, and the parts that explain are functions of that, so
they say what happened on the reader's machine. Playing is elsewhere: the terminal in ``ui/lesson.py``, the pages of
docs/ in ``report/lesson_markdown.py``, the measuring in ``run/lesson.py``, in a child.

The functions that a lesson runs are executed in a child process, so a lesson's file is imported there as well: it
imports TensorFlow in those functions only, and nothing that a child must not load.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pipeline_bench.errors import UsageError, did_you_mean, sentence
from pipeline_bench.lessons.code import between, fitted

if TYPE_CHECKING:
    from pipeline_bench.model.session import Session
    from pipeline_bench.run.observer import Observer

Answer = str | float
"""A prediction: the choice as it was offered, or a number."""
Document = Mapping[str, Any]
"""A scenario as its TOML file says it."""
CODE_COLUMNS = 76
"""How wide shown code may be: a terminal of 80 columns, less the frame around it."""


@dataclass(frozen=True)
class Played:
    """What was measured and predicted so far in a lesson, each by the key of its part."""

    results: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)

    def measured(self, key: str) -> dict[str, Any]:
        """What the exercise of the `Run` of that key returned.

        Raises:
            KeyError: no such part was played.
        """
        result: dict[str, Any] = self.results[key]
        return result

    def session(self, key: str) -> Session:
        """The session of the `Compare` of that key.

        Raises:
            KeyError: no such part was played.
        """
        session: Session = self.results[key]
        return session

    def answer(self, key: str) -> Answer | None:
        """What the reader predicted; None where the lesson ran through without a reader."""
        return self.answers.get(key)

    def with_result(self, key: str, result: Any) -> Played:
        """The same with one more result."""
        return replace(self, results={**self.results, key: result})

    def with_answer(self, key: str, answer: Answer | None) -> Played:
        """The same with one more prediction; the same where there is none."""
        return self if answer is None else replace(self, answers={**self.answers, key: answer})


@dataclass(frozen=True)
class Say:
    """A few plain paragraphs, as Markdown without headings."""

    text: str


@dataclass(frozen=True)
class Show:
    """The lines that matter, taken from what really runs: a function, a method or a class."""

    code: Callable[..., Any]
    caption: str = ""
    """What it is, in a few words, without a full stop."""
    lines: tuple[str, str] | None = None
    """How the first and the last line that matter begin, where the rest would lead astray; None shows all."""

    @property
    def source(self) -> str:
        """The source as it stands in its file, without the indentation around it, its long lines broken.

        Raises:
            ValueError: it has no such lines.
        """
        source = textwrap.dedent(inspect.getsource(self.code)).rstrip()
        return fitted(source if self.lines is None else between(source, *self.lines), CODE_COLUMNS)


@dataclass(frozen=True)
class Ask:
    """A question that the reader answers with a prediction: one of `choices`, or a number where there are none."""

    key: str
    question: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1e6
    """The least and the largest number that is taken, both included."""
    unit: str = ""


@dataclass(frozen=True)
class Run:
    """A function of the lesson that is executed in a child process; it returns a mapping that JSON can carry."""

    key: str
    exercise: Callable[..., dict[str, Any]]
    """A function at the top of a lesson's file, or anywhere else in this package; called with `arguments`."""
    doing: str
    """What it does, for the line that is shown meanwhile: ``dequeuing four times``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What JSON can carry."""
    deadline_s: float = 120.0
    """How long the child may take, its import of TensorFlow included; then it is ended."""


@dataclass(frozen=True)
class Compare:
    """A comparison of a small scenario, as ``pipeline-bench compare`` runs it; the result is its session."""

    key: str
    document: Document | Callable[[], Document]
    """The scenario, or a function of no arguments that makes it, where it depends on the machine."""
    doing: str
    """What it does, for the line that is shown meanwhile: ``training four variants``."""


@dataclass(frozen=True)
class Tell:
    """What happened and why, as Markdown without headings: a function of what was measured and predicted."""

    text: Callable[[Played], str]


Part = Say | Show | Ask | Run | Compare | Tell
Measure = Callable[[Run | Compare, "Observer"], Any]
"""Carries out what a part measures, and gives its result; the observer hears how a comparison goes."""


@dataclass(frozen=True)
class Try:
    """A command to go on with, and what it shows."""

    command: str
    why: str


@dataclass(frozen=True)
class Lesson:
    """A lesson whole. `order`, 10, 20, 30 and so on, says where it stands among the others."""

    name: str
    title: str
    summary: str
    """One line, without a full stop: what a reader knows afterwards."""
    order: int
    parts: tuple[Part, ...]
    then: tuple[Try, ...] = ()


def prediction(played: Played, key: str, happened: str, right: bool | None = None, unit: str = "") -> str:
    """A line that puts what happened beside what the reader predicted.

    Args:
        played: what was predicted.
        key: of the `Ask`.
        happened: in a few words, as the reader would have said it: ``three``, ``about 40 %``.
        right: whether the prediction was right; None leaves that to the reader.
        unit: what follows a number that was predicted, with its space where it has one: `` ms``, ``×``.
    """
    answer = played.answer(key)
    if any(_wholly_disturbed(measured) for measured in played.results.values()):
        right = None
    if answer is None:
        return f"**It was: {happened}.**"
    said = f"{answer:g}{unit}" if isinstance(answer, float) else answer
    judged = "" if right is None else ", as you predicted" if right else ", unlike you predicted"
    return f"You said: {said}. **It was: {happened}{judged}.**"


def _wholly_disturbed(measured: Any) -> bool:
    """Whether it is a comparison of whose variants one has no trial that nothing disturbed: then chance may decide."""
    disturbed = {(each.variant, each.repeat) for each in getattr(measured, "disturbances", ())}
    if not disturbed:
        return False
    variants = measured.scenario.variants
    # Of a lesson without any input every variant is a ceiling, and these are then what it compares.
    compared = {each.name for each in variants if not each.is_ceiling} or {each.name for each in variants}
    undisturbed = {trial.variant for trial in measured.trials if (trial.variant, trial.repeat) not in disturbed}
    return bool(compared - undisturbed)


@cache
def lessons() -> tuple[Lesson, ...]:
    """Every lesson, the one to begin with first."""
    found = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    made: list[Lesson] = [module.LESSON for module in found if hasattr(module, "LESSON")]
    return tuple(sorted(made, key=lambda lesson: (lesson.order, lesson.name)))


def find(name: str) -> Lesson:
    """The lesson of that name; ``-`` may stand for ``_``.

    Raises:
        UsageError: there is none.
    """
    known = {lesson.name: lesson for lesson in lessons()}
    found = known.get(name.replace("-", "_"))
    if found is None:
        raise UsageError(f"There is no lesson {name!r}.", sentence(did_you_mean(name, known)))
    return found
