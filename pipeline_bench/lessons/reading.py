r"""A lesson, read from the text file of its name: a short guided run for a reader who meets an idea here first.

The file begins with TOML between two lines ``+++``: `title`, `summary`, `order`, the `slots` of its text, and in `then`
the commands to go on with. Markdown follows, in parts that a line of the form ``::: KIND ARGUMENTS`` begins:

``::: say``
    A few paragraphs; the first part needs no such line.
``::: show OBJECT [first=BEGINNING last=BEGINNING]``
    The source of ``module:name``, or of a name in the Python file beside the lesson; the body is its caption.
``::: ask KEY [low=0 high=100 unit=% near=1.2 within=5]``
    A question, and its choices, each of the form ``- CONDITION, CONDITION from 1.25 to 2: text``; without choices the
    answer is a number.
``::: run KEY FUNCTION``
    An exercise that a child executes; the body says what it does, for the line that is shown meanwhile.
``::: compare KEY [published=SCENARIO]``
    A comparison of the scenario in the body's block of TOML, else in the last block before it.
``::: tell``
    What happened and why: a template of Jinja that sees what was measured by its key, see `Tell`.

Every part is a template that sees the slots. Lines of a paragraph are joined, so a template's lines may end anywhere.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import jinja2

from pipeline_bench.errors import UsageError
from pipeline_bench.lessons.code import between, briefly_described
from pipeline_bench.lessons.figures import Comparison, VariantFigures
from pipeline_bench.model.session import Session
from pipeline_bench.scenario.files import read, shipped
from pipeline_bench.text import did_you_mean, sentence, units

Answer = str | float
"""A prediction: the choice as it was offered, or a number."""

_NOT_KNOWN = "not measured well enough to say"
_TEMPLATES = jinja2.Environment(  # noqa: S701 - it makes Markdown; what is foreign in it is shown as text by who shows it
    trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
)
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SOFT_BREAK = re.compile(r"(?<=\S)[ \t]*\n[ \t]*(?=\S)(?!- |\d+\. |\|)")
_PART = re.compile(r"^::: (\w+)(.*)\n", re.MULTILINE)
_CHOICE = re.compile(r"^- ([^:]+): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"(\w+)(?: from ([\d.]+))?(?: to ([\d.]+))?")


@dataclass(frozen=True)
class Played:
    """What was measured and predicted so far in a lesson, each by the key of its part."""

    results: Mapping[str, Session | Mapping[str, Any]] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)

    def with_result(self, key: str, result: Session | Mapping[str, Any]) -> Played:
        """Return a copy with one more result: the session of a `Compare`, or the mapping that a `Exercise` returned."""
        return replace(self, results={**self.results, key: result})

    def with_answer(self, key: str, answer: Answer | None) -> Played:
        """Return a copy with one more prediction; itself where there is none."""
        return self if answer is None else replace(self, answers={**self.answers, key: answer})


@dataclass(frozen=True)
class Say:
    """A few plain paragraphs, as Markdown without headings."""

    text: str


@dataclass(frozen=True)
class Show:
    """The lines that matter, taken from what really runs: a function, a method or a class."""

    code: Callable[..., Any]
    caption: str
    """What it is, in a few words, without a full stop."""
    first: str = ""
    """How the first line that matters begins, where the rest would lead astray."""
    last: str = ""

    @property
    def source(self) -> str:
        """The source as it stands in its file, without the indentation around it and its docstring in brief.

        Raises:
            ValueError: it has no such lines.
        """
        source = inspect.cleandoc("\n" + inspect.getsource(self.code))
        return briefly_described(between(source, self.first, self.last) if self.first else source)


@dataclass(frozen=True)
class Choice:
    """An answer that is offered, and when it is right: at this outcome, and a ratio from `low` to below `high`."""

    text: str
    condition: str
    low: float = 0.0
    high: float = float("inf")


@dataclass(frozen=True)
class Ask:
    """A question that the reader answers with a prediction: one of `choices`, or a number where there are none."""

    key: str
    question: str
    choices: tuple[Choice, ...] = ()
    """One for each condition: several may have one text, which is offered once."""
    low: float = 0.0
    high: float = 1e6
    """The least and the largest number that is taken, both included."""
    unit: str = ""
    near: float = 1.0
    """A number is right up to this factor above or below what was measured."""
    within: float = 0.0
    """A number is right within this distance from what was measured."""

    @property
    def lettered(self) -> dict[str, str]:
        """The texts of the choices, each by the letter that offers it: a number could be taken for the answer."""
        return dict(zip(ascii_lowercase, dict.fromkeys(choice.text for choice in self.choices), strict=False))

    def right(self, condition: str, ratio: float = 1.0) -> str:
        """Return the choice that is right under a condition; empty where none is."""
        held = (each for each in self.choices if each.condition == condition and each.low <= ratio < each.high)
        return next((each.text for each in held), "")

    def agrees(self, answer: Answer, value: float, interval: tuple[float, float] | None) -> bool:
        """Return whether a number that was predicted counts as right."""
        if not isinstance(answer, float):
            return False
        low, high = interval or (value, value)
        return low <= answer <= high or near(answer, value, self.near) or abs(answer - value) <= self.within


@dataclass(frozen=True)
class Exercise:
    """A function of the lesson that is executed in a child process; it returns a mapping that JSON can carry."""

    key: str
    function: Callable[..., dict[str, Any]]
    doing: str
    """What it does, for the line that is shown meanwhile: ``dequeuing four times``."""
    deadline_s: float = 120.0
    """How long the child may take, its import of TensorFlow included; then it is ended."""


@dataclass(frozen=True)
class Compare:
    """A comparison of a small scenario, as ``pipeline-bench compare`` runs it; the result is its session."""

    key: str
    document: Mapping[str, Any]
    """The scenario as a TOML file says it."""
    doing: str


@dataclass(frozen=True)
class Tell:
    """What happened and why, as Markdown without headings: a template of what was measured and predicted.

    It sees the result of each `Exercise` and the `Comparison` of each `Compare` under its key, the slots of the lesson,
    the functions of `_FUNCTIONS`, and those that put what happened beside a prediction: `judged` and its kin.
    """

    template: str
    asks: Mapping[str, Ask] = field(default_factory=dict)
    slots: Mapping[str, Any] = field(default_factory=dict)

    def text(self, played: Played) -> str:
        """Return what there is to say of what was measured and predicted."""
        results = {
            key: Comparison(result) if isinstance(result, Session) else result for key, result in played.results.items()
        }
        disturbed = any(isinstance(each, Comparison) and each.wholly_disturbed for each in results.values())
        judging = _Judging(self.asks, played.answers, disturbed)
        return _rendered(self.template, {**self.slots, **results, **_FUNCTIONS, **judging.functions()})


LessonPart = Say | Show | Ask | Exercise | Compare | Tell


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
    parts: tuple[LessonPart, ...]
    then: tuple[Try, ...] = ()


@dataclass(frozen=True)
class _Judging:
    """Puts what happened beside what the reader predicted, in a line."""

    asks: Mapping[str, Ask]
    answers: Mapping[str, Answer]
    leave_open: bool
    """Whether no prediction is called right or wrong, because other programs may have decided what was measured."""

    def functions(self) -> dict[str, Callable[..., str]]:
        return {"judged": self.judged, "judged_gain": self.judged_gain, "judged_outcome": self.judged_outcome}

    def judged(
        self,
        key: str,
        happened: str = _NOT_KNOWN,
        measured: str | float | None = None,
        interval: tuple[float, float] | None = None,
    ) -> str:
        """Return the line for the question `key`.

        Args:
            key: of the `Ask`.
            happened: in a few words, as the reader would have said it: ``three``, ``about 40 %``.
            measured: the number that is right, or the condition of the choice; None leaves that to the reader.
            interval: every number within it is right as well.
        """
        ask, answer = self.asks[key], self.answers.get(key)
        if answer is None or measured is None or self.leave_open:
            return self._line(key, happened, None)
        if ask.choices:
            return self._line(key, happened, self._chosen(key, str(measured)))
        return self._line(key, happened, ask.agrees(answer, float(measured), interval))

    def judged_gain(self, key: str, variant: VariantFigures) -> str:
        """Return the line of a question how many times as fast a variant is."""
        if not variant.known:
            return self.judged(key)
        answer, times = self.answers.get(key), variant.times
        right = None
        if answer is not None and not self.leave_open:
            right = self.asks[key].agrees(answer, times, variant.interval)
        return self._line(key, units.ratio(times), right)

    def judged_outcome(self, key: str, variant: VariantFigures, **happened: str) -> str:
        """Return the line of a question whose choices depend on the outcome, by which `happened` has the words."""
        if not variant.known:
            return self.judged(key)
        right = self._chosen(key, variant.outcome, variant.times)
        low, high = variant.interval or (variant.times, variant.times)
        same = [each for each in self.asks[key].choices if each.condition == variant.outcome]
        plausible = [each.text for each in same if each.low <= high and each.high > low]
        if self.leave_open or (not right and self.answers.get(key) in plausible):
            right = None
        return self._line(key, happened[variant.outcome], right)

    def _chosen(self, key: str, condition: str, ratio: float = 1.0) -> bool | None:
        """Return whether the choice that is right was made; None where none is."""
        right = self.asks[key].right(condition, ratio)
        return self.answers.get(key) == right if right else None

    def _line(self, key: str, happened: str, right: bool | None) -> str:
        answer, unit = self.answers.get(key), self.asks[key].unit
        if answer is None:
            return f"**It was: {happened}.**"
        after = "×" if unit == "times" else f" {unit}"
        predicted = f"{answer:g}{after}" if isinstance(answer, float) else answer
        verdict = "" if right is None else f", {'as' if right else 'unlike'} you predicted"
        return f"You said: {predicted}. **It was: {happened}{verdict}.**"


def near(one: float, other: float, factor: float) -> bool:
    """Return whether the larger of two positive numbers is at most `factor` times the smaller."""
    return max(one, other) <= factor * min(one, other)


def spread(counts: Sequence[int]) -> str:
    """Return how often each count came: ``2 (in 1 of 12) or 3 (in 11 of 12)``."""
    found = sorted(Counter(counts).items())
    if len(found) == 1:
        return f"{found[0][0]} in all of them"
    return " or ".join(f"{count} (in {runs} of {len(counts)})" for count, runs in found)


_FUNCTIONS: dict[str, Any] = {
    "ms": units.milliseconds,
    "ratio": units.ratio,
    "percent": units.percent,
    "near": near,
    "spread": spread,
}


def _rendered(template: str, values: Mapping[str, Any]) -> str:
    """Return the Markdown of a template, a paragraph or an item of a list a line; blocks of code stay as they are."""
    pieces = _FENCE.split(_TEMPLATES.from_string(template).render(values))
    for index in range(0, len(pieces), 2):
        pieces[index] = re.sub(r"\n\s*\n", "\n\n", _SOFT_BREAK.sub(" ", pieces[index]))
    return "".join(pieces).strip()


@cache
def lessons() -> tuple[Lesson, ...]:
    """Return every lesson, the one to begin with first."""
    found = [read_lesson(path.stem, path.read_text(encoding="utf-8")) for path in Path(__file__).parent.glob("*.md")]
    return tuple(sorted(found, key=lambda lesson: (lesson.order, lesson.name)))


def find(name: str) -> Lesson:
    """Return the lesson of that name, in which ``-`` may stand for ``_``, or of that number in the list.

    Raises:
        UsageError: there is none.
    """
    known = {lesson.name: lesson for lesson in lessons()}
    numbered = {str(number): lesson for number, lesson in enumerate(lessons(), start=1)}
    found = known.get(name.replace("-", "_")) or numbered.get(name)
    if found is None:
        raise UsageError(f"There is no lesson {name!r}.", sentence(did_you_mean(name, known)))
    return found


def read_lesson(name: str, text: str) -> Lesson:
    """Return the lesson of that name from the text of its file."""
    _, head, body = text.split("+++\n", 2)
    about = tomllib.loads(head)
    then = tuple(Try(command, why) for command, why in about.get("then", {}).items())
    parts = tuple(_parts(name, body, about.get("slots", {})))
    return Lesson(name, about["title"], about["summary"], about["order"], parts, then)


def _parts(lesson: str, body: str, slots: Mapping[str, Any]) -> Iterator[LessonPart]:
    asks: dict[str, Ask] = {}
    scenario = ""
    pieces = _PART.split(f"::: say\n{body}")[1:]
    for kind, given, template in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        words = shlex.split(given)
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        text = "" if kind == "tell" else _rendered(template, slots)
        scenario = (_TOML.findall(text) or [scenario])[-1]
        match kind:
            case "say":
                yield Say(text)
            case "show":
                yield Show(_object(lesson, names[0]), text, **options)
            case "ask":
                asks[names[0]] = _ask(names[0], text, options)
                yield asks[names[0]]
            case "run":
                yield Exercise(names[0], _object(lesson, names[1]), text)
            case "compare":
                document = {"name": lesson, **tomllib.loads(scenario)}
                if "published" in options:
                    document["published"] = read(shipped()[options["published"]])["published"]
                yield Compare(names[0], document, _TOML.sub("", text).strip())
            case "tell":
                yield Tell(template, asks, slots)
            case _:
                raise ValueError(f"lesson {lesson}: there is no part {kind!r}")


def _ask(key: str, text: str, options: dict[str, str]) -> Ask:
    choices = tuple(
        Choice(answer, condition, float(low or 0), float(high or "inf"))
        for conditions, answer in _CHOICE.findall(text)
        for condition, low, high in _CONDITION.findall(conditions)
    )
    unit = options.pop("unit", "")
    numbers: dict[str, Any] = {name: float(value) for name, value in options.items()}
    return replace(Ask(key, text.partition("\n")[0], choices, unit=unit), **numbers)


def _object(lesson: str, name: str) -> Any:
    """Return what ``module:name`` names, or a name of the lesson's own module."""
    module, _, inner = name.rpartition(":")
    return attrgetter(inner)(importlib.import_module(module or f"{__package__}.{lesson}"))
