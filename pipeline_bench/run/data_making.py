"""Has data made, in a process of its own, where it is not there yet and there is room; says what went wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.run.child import call
from pipeline_bench.sources import synthetic_dataset
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset
from pipeline_bench.text import one_line, units

# Left free, so that making data never fills a disk to its last byte.
_RESERVE_BYTES = 64 << 20
_WORDS_KEPT = 400


@dataclass(frozen=True)
class Kept:
    """The folder of a synthetic dataset in the user's cache."""

    folder: Path
    data: SyntheticDataset
    complete: bool
    size_bytes: int


def wanted(sources: Iterable[Any]) -> list[SyntheticDataset]:
    """Return the data that these sources read and that is not there, or not all of it; each once."""
    found: dict[SyntheticDataset, None] = {}
    for source in sources:
        data = getattr(source, "synthetic_dataset", None)
        if data is not None and not synthetic_dataset.is_complete(data, synthetic_dataset.dataset_folder(data)):
            found[data] = None
    return list(found)


def make(
    data: SyntheticDataset,
    folder: Path,
    report: Callable[[int], None],
    waiting: Callable[[], None] = lambda: None,
    elsewhere: str = f"set {synthetic_dataset.FOLDER_VARIABLE} to a folder on another disk",
) -> None:
    """Make what is not there of the data, in a child process; what was made stays when this is interrupted.

    Args:
        data: what to make.
        folder: where.
        report: takes how many samples are there, a few times a second.
        waiting: called when another process is making the same data.
        elsewhere: how the user chooses another folder, for a message.

    Raises:
        UsageError: there is no room, or the folder cannot be written.
        PipelineBenchError: the child ended without a word.
    """
    _check_room(data, folder, elsewhere)

    def progress(message: dict[str, Any]) -> None:
        if "made" in message:
            report(int(message["made"]))
        else:
            waiting()

    arguments = {"data": asdict(data), "folder": str(folder.absolute())}
    answer = call(synthetic_dataset.make_once, arguments, progress=progress)
    if answer.failed:
        raise UsageError(f"{folder}: the data cannot be made: {answer.failed}.", f"Make room there, or {elsewhere}.")
    if answer.result is None:
        words = one_line(answer.words[-_WORDS_KEPT:])
        raise PipelineBenchError(f"{folder}: the process that makes the data {answer.ending}: {words}")


def kept() -> list[Kept]:
    """Return the synthetic datasets in the user's cache, by name."""
    found = []
    root = synthetic_dataset.datasets_root()
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        manifest = synthetic_dataset.read_manifest(folder)
        if manifest is not None:
            sizes = synthetic_dataset.present(manifest.data, folder)
            complete = manifest.complete and len(sizes) == manifest.data.file_count
            found.append(Kept(folder, manifest.data, complete, sum(sizes.values())))
    return found


def _check_room(data: SyntheticDataset, folder: Path, elsewhere: str) -> None:
    """See that the folder can be made, and that what is to come fits on its disk.

    Raises:
        UsageError: it cannot, or does not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        raise UsageError(
            f"{folder}: the folder for the data cannot be made: {error.strerror}.", f"Make it writable, or {elsewhere}."
        ) from None
    has_data = synthetic_dataset.read_manifest(folder) is not None
    there_bytes = sum(synthetic_dataset.present(data, folder).values()) if has_data else 0
    needed_bytes = synthetic_dataset.estimated_bytes(data) - there_bytes + _RESERVE_BYTES
    if needed_bytes > free_bytes:
        raise UsageError(
            f"{folder}: {data.samples:,} {data.noun} take about {units.size(needed_bytes)}, "
            f"and {units.size(free_bytes)} are free.",
            f"Make room there, ask for less, or {elsewhere}.",
        )
