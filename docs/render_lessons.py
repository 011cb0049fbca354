"""Plays every lesson and writes its page, with what was measured: ``python docs/render_lessons.py [NAME …]``.

The index lists all of them in any case. tests/unit/test_lessons.py sees that the pages have the text and the code of
today; what was measured is of the machine that the pages were last written on.
"""

import sys
from contextlib import closing
from pathlib import Path

from pipeline_bench import environment
from pipeline_bench.lessons import Compare, Lesson, Played, Run, find, lessons
from pipeline_bench.report.lesson_markdown import render, render_index
from pipeline_bench.run.lesson import measure
from pipeline_bench.run.observer import Observer
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.text import units

FOLDER = Path(__file__).parent / "lessons"


def played(lesson: Lesson) -> Played:
    """The lesson without a reader."""
    so_far = Played()
    for part in lesson.parts:
        if isinstance(part, Run | Compare):
            so_far = so_far.with_result(part.key, measure(part, Observer()))
    return so_far


def machine() -> str:
    """What the lessons are played on, in a few words."""
    with closing(NvmlSampler.open()) as gpu:
        here = environment.describe(gpu.accelerator)
    accelerator = here.accelerator_name if here.accelerator_kind == "gpu" else "no GPU"
    return f"{units.count(here.cores, 'core')} ({here.cpu}), {accelerator}, TensorFlow {here.tensorflow}"


def main(names: list[str]) -> None:
    """Write the pages of the lessons named, or of all."""
    FOLDER.mkdir(exist_ok=True)
    for lesson in [find(name) for name in names] or lessons():
        text = render(lesson, played(lesson), machine())
        (FOLDER / f"{lesson.name}.md").write_text(text, encoding="utf-8")
    (FOLDER / "README.md").write_text(render_index(lessons()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
