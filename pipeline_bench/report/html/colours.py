"""The palette's colours as a page shows them: one shade each that reads on white, on near black and on paper.

Every shade has a contrast of at least 3:1 to both backgrounds, which WCAG 2.2 (1.4.11) asks of graphics, and of 4.5:1
to the near black that is written on it. Colour is never the only sign: parts of a step carry a pattern and their name,
variants their name, verdicts their word.
"""

from __future__ import annotations

from pipeline_bench.model.result import VerdictKind
from pipeline_bench.report import palette

LIGHT_BACKGROUND = "#ffffff"
DARK_BACKGROUND = "#14171b"
ON_COLOUR = "#101215"

# Vermilion, bluish green and amber: red, green and yellow moved apart for readers who confuse red and green.
_SHADES = {
    "red": "#d9552b",
    "green": "#1f9a73",
    "yellow": "#bd8a00",
    "magenta": "#a65fb8",
    "cyan": "#2a8f8f",
    "bright_black": "#808994",
    "bold red": "#d9552b",
}

INPUT_WAIT = _SHADES[palette.INPUT_WAIT]
COMPUTE = _SHADES[palette.COMPUTE]
HOST_SLOWDOWN = _SHADES[palette.HOST_SLOWDOWN]
UTILIZATION = COMPUTE
"""Of AU, which is the compute part of a step."""
DEVICE = "#3f7fd0"
NEUTRAL = _SHADES["bright_black"]

VERDICTS: dict[VerdictKind, str] = {kind: _SHADES[colour] for kind, colour in palette.VERDICTS.items()}

_VARIANTS = ("#3f7fd0", "#c2701f", "#2a8f8f", "#a65fb8", "#8a8420", "#c75a86")
_DASHES = ("solid", "dash", "dot", "dashdot")

PHASES = {"import": "#808994", "build": "#8a8420", "evaluate": "#7373d1"}
"""The phases around the training, which has its variant's colour."""


def every_shade() -> set[str]:
    """Each colour that a page draws with."""
    return {*_SHADES.values(), *_VARIANTS, *PHASES.values(), DEVICE}


def of_variant(index: int) -> tuple[str, str]:
    """Colour and dash of the variant at that place; both together repeat only after 24."""
    return _VARIANTS[index % len(_VARIANTS)], _DASHES[index // len(_VARIANTS) % len(_DASHES)]
