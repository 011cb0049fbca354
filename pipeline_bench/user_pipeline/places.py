"""Where in the user's source a call stands, read from the frames of the interpreter while it is made."""

from __future__ import annotations

import functools
import linecache
import sys
import sysconfig
from collections.abc import Container, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

from pipeline_bench.user_pipeline import Place

_OURS = str(Path(__file__).parents[1]) + "/"
_GENERATED = "__autograph_generated_file"
"""The name of the files that AutoGraph converts functions into, in the folder for temporary files."""

Origin = Literal["user", "library", "tensorflow", "other"]
"""Whose code a frame runs. ``other`` is the standard library, this program, and what has no file."""


@functools.lru_cache(maxsize=4096)
def origin(file: str) -> Origin:
    """Whose code a file holds, by where it is."""
    if file.startswith(_OURS) or (file.startswith("<frozen") and file.endswith(">")):
        return "other"
    parts = Path(file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            package = parts[parts.index(folder) + 1 : parts.index(folder) + 2]
            return "tensorflow" if package and package[0] in ("tensorflow", "keras", "tf_keras") else "library"
    return "other" if file.startswith(_standard_library()) else "user"


@functools.cache
def _standard_library() -> tuple[str, ...]:
    return tuple({sysconfig.get_path("stdlib") + "/", sysconfig.get_path("platstdlib") + "/"})


def is_machinery(file: str) -> bool:
    """Whether a frame is one of this program's or of the import system: never of interest to the user."""
    return file.startswith((_OURS, "<frozen importlib"))


def is_converted(file: str) -> bool:
    """Whether a file is what AutoGraph made of a function, for the time of the process."""
    return _GENERATED in file


def of_call(depth: int = 1) -> Place | None:
    """The place of the nearest call in the user's own code; else in another library's, TensorFlow and Keras apart.

    `depth` counts the frames to leave out, the caller's own being 0.
    """
    nearest: FrameType | None = None
    for frame in _outward(sys._getframe(depth + 1)):
        whose = origin(frame.f_code.co_filename)
        if whose == "user":
            return _of_frame(frame)
        if whose == "library" and nearest is None:
            nearest = frame
    return _of_frame(nearest) if nearest else None


def from_other_code(depth: int, until: Container[CodeType]) -> bool:
    """Whether code that is not TensorFlow's runs between here and the nearest frame that runs one of `until`."""
    for frame in _outward(sys._getframe(depth + 1)):
        if frame.f_code in until:
            return False
        if origin(frame.f_code.co_filename) in ("user", "library"):
            return True
    return False


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _of_frame(frame: FrameType) -> Place | None:
    code = frame.f_code
    if _GENERATED in code.co_filename:
        return _of_converted(frame)
    line, end_line, column, end_column = _positions(code, frame.f_lasti)
    line = line or frame.f_lineno
    return Place(
        file=code.co_filename,
        line=line,
        end_line=end_line,
        column=column,
        end_column=end_column,
        function=None if code.co_name == "<module>" else code.co_name,
        text=linecache.getline(code.co_filename, line).strip(),
    )


def _positions(code: CodeType, instruction: int) -> tuple[int | None, int | None, int | None, int | None]:
    for index, position in enumerate(code.co_positions()):
        if index == instruction // 2:
            return position
    return None, None, None, None


def _of_converted(frame: FrameType) -> Place | None:
    """The place that a line of a converted function came from: AutoGraph keeps a map of lines beside the function."""
    for outer in _outward(frame.f_back):
        converted: Any = outer.f_locals.get("converted_f") if outer.f_code.co_name == "converted_call" else None
        for location, source in getattr(converted, "ag_source_map", {}).items():
            if (location.filename, location.lineno) == (frame.f_code.co_filename, frame.f_lineno):
                text = (source.source_code_line or "").strip()
                return Place(file=source.loc.filename, line=source.loc.lineno, function=source.function_name, text=text)
    return None
