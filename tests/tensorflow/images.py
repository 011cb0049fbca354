"""A small folder of images, and trials over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline_bench.model.session import Session
from pipeline_bench.sources.image_folder import ImageFolder
from tests.tensorflow.conftest import RunScenario
from tests.trials import alone

RECORDS = 52
TRAINED: dict[str, Any] = {"hidden_widths": [16]}
FED: dict[str, Any] = {"kind": "emulated", "step_ms": 0.2}
"""A model that is fed and learns nothing: half the time of a trial, where only its input is looked at."""
_CLASSES = ("ash", "birch", "cedar")


def make(folder: Path, size: int | None = None) -> Path:
    """PNG images of 8 to 24 pixels, all of `size` where that is given, in a folder for each of three classes."""
    from PIL import Image

    generator = np.random.default_rng(7)
    for index in range(RECORDS):
        height, width = (size, size) if size else generator.integers(8, 25, 2)
        pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        path = folder / _CLASSES[index % len(_CLASSES)] / f"{index:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def make_plain(folder: Path, count: int) -> Path:
    """JPEG images of one colour each, the same however they are decoded, in two classes."""
    from PIL import Image

    for index in range(count):
        path = folder / "ab"[index % 2] / f"{index:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (16, 16), (index * 10,) * 3).save(path)
    return folder


def garble(path: Path) -> Path:
    """Have a file be no image at all."""
    path.write_bytes(b"<html>404</html>" * 20)
    return path


def spoil(folder: Path) -> Path:
    """Leave half of an image in the middle of the epoch, and say which."""
    path = sorted(folder.rglob("*.png"))[RECORDS // 2]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def files(folder: Path, batch_size: int = 8) -> dict[str, Any]:
    """The images as the source of a scenario."""
    return {"kind": "image_folder", "path": str(folder), "image_size": 8, "batch_size": batch_size}


def source(folder: Path, **options: Any) -> ImageFolder:
    """The source over the images, in this process."""
    return ImageFolder({"path": str(folder), "image_size": 8, **options})


def train(
    run_scenario: RunScenario,
    folder: Path,
    *variants: dict[str, Any],
    steps: int = 25,
    model: dict[str, Any] = TRAINED,
    **more: Any,
) -> Session:
    """Trials over the images; what is more is options of the source."""
    return run(run_scenario, files(folder) | more, *variants, steps=steps, model=model)


def run(
    run_scenario: RunScenario,
    source: dict[str, Any],
    *variants: dict[str, Any],
    steps: int,
    model: dict[str, Any] = TRAINED,
) -> Session:
    """Trials of one repeat over a source, no ceilings, with a stall timeout after which a hang is a failure."""
    return run_scenario(alone(*variants, source=source, model=model, run={"steps": steps, "stall_timeout_s": 20}))


def losses(session: Session) -> dict[str, Any]:
    """The losses of every variant's trial, by its name."""
    found = {}
    for record in session.trials:
        assert record.status == "ok", (record.variant, record.reason)
        assert record.steps is not None
        found[record.variant] = record.steps.loss.unpack()
    return found
