"""The scenarios that come with the package, and how a scenario's file is found and read."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from pipeline_bench import reading
from pipeline_bench.errors import ScenarioError, did_you_mean, sentence

DEFAULT_SCENARIO = "two_layer"
_LARGEST_BYTES = 1 << 20
"""A scenario is written by hand, and has a few thousand bytes."""


def shipped() -> dict[str, Path]:
    """Name to file of the scenarios that come with the package."""
    folder = Path(str(files("pipeline_bench"))) / "scenarios"
    if not folder.is_dir():  # an editable install: the wheel puts scenarios/ inside the package, a checkout beside it
        folder = folder.parent.parent / "scenarios"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def default_document() -> dict[str, Any]:
    """The default scenario's file, as its TOML says it."""
    return read(shipped()[DEFAULT_SCENARIO])


def locate(name_or_path: str) -> Path:
    """The file of a shipped scenario's name, or of a path to a TOML file.

    Raises:
        ScenarioError: neither exists.
    """
    known = shipped()
    if name_or_path in known:
        return known[name_or_path]
    path = Path(name_or_path)
    try:
        if path.exists() and not path.is_dir():  # a pipe, as of <(...), will do
            return path
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise ScenarioError(
            f"The scenario file {name_or_path} cannot be read: {error}.", "Give another path."
        ) from None
    if path.suffix == ".toml" or "/" in name_or_path:
        reason = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise ScenarioError(f"The scenario file {name_or_path} {reason}.", "Give the path to a TOML file.")
    raise ScenarioError(f"There is no scenario {name_or_path!r}.", sentence(did_you_mean(name_or_path, known)))


def read(path: Path) -> dict[str, Any]:
    """The mapping that a TOML file holds.

    Raises:
        ScenarioError: it cannot be read, or is no TOML.
    """
    try:
        text = reading.at_most(path, _LARGEST_BYTES)
    except (OSError, ValueError) as error:
        reason = reading.why(error)
        raise ScenarioError(f"{path} cannot be read: {reason}.", "A scenario is a UTF-8 text file.") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # beside TOMLDecodeError: a number too long, a nesting too deep
        raise ScenarioError(
            f"{path} is not valid TOML: {error}.", "Mend the line named; see docs/scenarios.md."
        ) from error
