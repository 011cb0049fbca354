"""Plays every lesson and writes its page, with what was measured: ``python docs/render_lessons.py [NAME …]``.

The index lists all of them in any case. tests/unit/lessons/test_texts.py sees that the pages have the text and the
code of today; what was measured is of the machine that the pages were last written on.
"""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pipeline_bench import environment
from pipeline_bench.lessons.play import measure
from pipeline_bench.lessons.reading import (
    Ask,
    Compare,
    Exercise,
    Lesson,
    LessonPart,
    Played,
    Say,
    Show,
    Tell,
    find,
    lessons,
)
from pipeline_bench.run.observer import Observer
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.text import sentence, units

FOLDER = Path(__file__).parent / "lessons"
INDEX = """\
# Lessons

Short guided runs for a reader who meets these ideas for the first time. Each shows the few lines that
matter, asks for a prediction, runs them, and explains what happened on your machine. None takes longer
than two minutes, and none needs a GPU.

    pipeline-bench lesson

begins with the first and offers the next. `pipeline-bench lesson NAME` plays one, `--list` prints a name
and a line each, and `--no-input` runs through without asking.

The pages below are those lessons with the output of one machine, written by
`python docs/render_lessons.py`.

"""


def page(lesson: Lesson, played: Played, machine: str) -> str:
    """Return the page of a lesson.

    Args:
        lesson: its parts.
        played: what they measured.
        machine: what it was measured on, in a few words.
    """
    blocks = [f"# {lesson.title}", f"{sentence(lesson.summary)}. Play it with `pipeline-bench lesson {lesson.name}`."]
    blocks += [text for part in lesson.parts if (text := block(part, played))]
    blocks += ["## To try next", "\n".join(f"- `{entry.command}`: {entry.why}" for entry in lesson.then)]
    blocks.append(f"Measured on: {machine}. Your figures will differ; the lesson says what they mean.")
    return "\n\n".join(blocks) + "\n"


def block(part: LessonPart, played: Played) -> str:
    """Return a part as Markdown; empty for one that measures."""
    match part:
        case Say():
            return part.text
        case Show():
            return f"{sentence(part.caption)}:\n\n```python\n{part.source}\n```"
        case Ask():
            choices = [f"> - **{letter}** {text}" for letter, text in part.lettered.items()]
            return "\n".join([f"> **{part.question}**", *([">", *choices] if choices else [])])
        case Tell():
            return part.text(played)
    return ""


def index(all_lessons: Sequence[Lesson]) -> str:
    """Return the page that lists the lessons, in their order."""
    items = [f"{n}. [{each.title}]({each.name}.md): {each.summary}." for n, each in enumerate(all_lessons, start=1)]
    return INDEX + "\n".join(items) + "\n"


def played_through(lesson: Lesson) -> Played:
    """Return what the lesson measures, without a reader."""
    so_far = Played()
    for part in lesson.parts:
        if isinstance(part, Exercise | Compare):
            so_far = so_far.with_result(part.key, measure(part, Observer()))
    return so_far


def machine() -> str:
    """Return what the lessons are played on, in a few words."""
    with closing(NvmlSampler.open()) as gpu:
        here = environment.describe(gpu.accelerator)
    accelerator = here.accelerator_name if here.accelerator_kind == "gpu" else "no GPU"
    return f"{units.count(here.cores, 'core')} ({here.cpu}), {accelerator}, TensorFlow {here.tensorflow}"


def main(names: list[str]) -> None:
    """Write the pages of the lessons named, or of all."""
    FOLDER.mkdir(exist_ok=True)
    for lesson in [find(name) for name in names] or lessons():
        text = page(lesson, played_through(lesson), machine())
        (FOLDER / f"{lesson.name}.md").write_text(text, encoding="utf-8")
    (FOLDER / "README.md").write_text(index(lessons()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
