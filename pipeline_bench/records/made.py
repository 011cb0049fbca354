"""Made data: what it consists of, and where it lies. Parent and trial find the same folder from the same options."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

Kind = Literal["tfrecord", "image_folder", "npz", "csv"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CLASSES = 10
MANIFEST = "pipeline-bench-data.json"
FOLDER_VARIABLE = "PIPELINE_BENCH_DATA"
UNFINISHED = ".part"
"""What the name of a file ends in while it is written."""


@dataclass(frozen=True)
class SyntheticDataset:
    """What made data consists of; the same values give the same data.

    `side` is the pixels of an image's side, or the features of a line; of uneven images the most that a side may have.
    """

    kind: Kind
    samples: int
    files: int
    side: int
    seed: int = 0
    uneven: bool = False

    @property
    def noun(self) -> str:
        """What one sample is called: ``images``, ``lines``."""
        return "lines" if self.kind == "csv" else "images"

    @property
    def name(self) -> str:
        """The folder's name: ``tfrecord-1024-images-96px-8-files``."""
        parts = [self.kind, str(self.samples), self.noun, f"{self.side}{'columns' if self.kind == 'csv' else 'px'}"]
        parts += ["uneven"] if self.uneven else []
        parts += [str(self.files), "files"] if self.kind != "image_folder" else []
        return "-".join([*parts, *(["seed", str(self.seed)] if self.seed else [])])

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return self.samples if self.kind == "image_folder" else min(self.files, self.samples)

    def places(self, file: int) -> range:
        """The samples of a file."""
        return range(self.samples * file // self.file_count, self.samples * (file + 1) // self.file_count)

    def path(self, file: int) -> str:
        """A file's path in the folder: ``data-00003-of-00008.tfrecord``, ``class_3/0000013.jpg``."""
        if self.kind == "image_folder":
            return f"class_{file % CLASSES}/{file:07}.jpg"
        return f"data-{file:05}-of-{self.file_count:05}.{self.kind}"


class Manifest(BaseModel):
    """The file that says what a folder of made data holds, and whether all of it is there."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    made_by: Literal["pipeline-bench"] = "pipeline-bench"
    version: Literal[1] = 1
    data: SyntheticDataset
    complete: bool = False
    size_bytes: int = 0


def datasets_root() -> Path:
    """The folder of all made data: ``$PIPELINE_BENCH_DATA``, or the user's cache."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "pipeline-bench" / "data"


def dataset_folder(data: SyntheticDataset) -> Path:
    """Where this data lies, or will."""
    return datasets_root() / data.name


def read_manifest(folder: Path) -> Manifest | None:
    """What the folder's manifest says; None where there is none, or none that can be read."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError):
        return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the folder's manifest in one step.

    Raises:
        OSError: it cannot be written.
    """
    unfinished = folder / (MANIFEST + UNFINISHED)
    unfinished.write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    unfinished.replace(folder / MANIFEST)


def present(data: SyntheticDataset, folder: Path) -> dict[int, int]:
    """The files that are there and whole: their index and their size in bytes."""
    sizes = {}
    folders = {str(Path(data.path(file)).parent) for file in range(min(data.file_count, CLASSES))}
    for below in folders:
        try:
            with os.scandir(folder / below) as entries:
                sizes.update({os.path.normpath(f"{below}/{entry.name}"): entry.stat().st_size for entry in entries})
        except OSError:
            continue
    found = ((file, sizes.get(os.path.normpath(data.path(file)), 0)) for file in range(data.file_count))
    return {file: size_bytes for file, size_bytes in found if size_bytes}


def is_complete(data: SyntheticDataset, folder: Path) -> bool:
    """Whether all of this data lies in the folder."""
    manifest = read_manifest(folder)
    return bool(
        manifest and manifest.complete and manifest.data == data and len(present(data, folder)) == data.file_count
    )


def as_json(data: SyntheticDataset) -> dict[str, Any]:
    """For a message to the process that makes it."""
    return asdict(data)
