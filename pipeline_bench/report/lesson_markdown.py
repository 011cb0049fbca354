"""A lesson that was played, as a Markdown page with what was measured; and the page that lists them all."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_bench.errors import sentence
from pipeline_bench.lessons import Ask, Compare, Lesson, Part, Played, Run, Say, Show, Tell


def render(lesson: Lesson, played: Played, machine: str) -> str:
    """The page of a lesson.

    Args:
        lesson: its parts.
        played: what they measured.
        machine: what it was measured on, in a few words.
    """
    blocks = [f"# {lesson.title}", f"{sentence(lesson.summary)}. Play it with `pipeline-bench lesson {lesson.name}`."]
    blocks += [block for part in lesson.parts if (block := _block(part, played))]
    blocks += ["## To try next", "\n".join(f"- `{entry.command}`: {entry.why}" for entry in lesson.then)]
    blocks.append(f"Measured on: {machine}. Your figures will differ; the lesson says what they mean.")
    return "\n\n".join(blocks) + "\n"


def fixed_blocks(lesson: Lesson) -> list[str]:
    """The parts of the page that say the same on every machine: its text, its code and its questions."""
    return [_block(part, Played()) for part in lesson.parts if isinstance(part, Say | Show | Ask)]


def render_index(lessons: Sequence[Lesson]) -> str:
    """The page that lists the lessons, in their order."""
    items = [
        f"{number}. [{lesson.title}]({lesson.name}.md): {lesson.summary}."
        for number, lesson in enumerate(lessons, start=1)
    ]
    return (
        "# Lessons\n\n"
        "Short guided runs for a reader who meets these ideas for the first time. Each shows the few lines that\n"
        "matter, asks for a prediction, runs them, and explains what happened on your machine. None takes longer\n"
        "than two minutes, and none needs a GPU.\n\n"
        "    pipeline-bench lesson\n\n"
        "begins with the first and offers the next. `pipeline-bench lesson NAME` plays one, `--list` prints a name\n"
        "and a line each, and `--no-input` runs through without asking.\n\n"
        "The pages below are those lessons with the output of one machine, written by\n"
        "`python docs/render_lessons.py`.\n\n" + "\n".join(items) + "\n"
    )


def _block(part: Part, played: Played) -> str:
    match part:
        case Say():
            return part.text
        case Show():
            caption = f"{sentence(part.caption)}:\n\n" if part.caption else ""
            return f"{caption}```python\n{part.source}\n```"
        case Ask():
            choices = "".join(f"\n> {number}. {choice}" for number, choice in enumerate(part.choices, start=1))
            return f"> **{part.question}**{f'{chr(10)}>{choices}' if choices else ''}"
        case Run() | Compare():
            return ""
        case Tell():
            return part.text(played)
