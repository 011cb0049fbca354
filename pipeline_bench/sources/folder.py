"""What the sources of files have in common: a folder or a file of the user's own, or a synthetic dataset."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from pipeline_bench.errors import UsageError
from pipeline_bench.sources.records import FileOptions, RecordFile, RecordSource, reading
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset, dataset_folder

# Whether a file may be read is asked of so many of them at most, so that a million images delay no comparison.
_ASKED = 1000


def _identity(folder: Path) -> tuple[int, int]:
    """Return what distinguishes a folder from all others, whatever it is called: its device and inode."""
    status = folder.stat()
    return status.st_dev, status.st_ino


class FolderOptions(FileOptions):
    """What every source has that a dataset can be made for."""

    samples: Annotated[int, Field(ge=1, le=2**26, description="of synthetic data: samples")] = 1024


class FolderSource(RecordSource):
    """Records in the files of a folder and those below it, or in one file; in the order of their paths."""

    file_names: ClassVar[re.Pattern[str]]
    """Which files of a folder hold records, by their names."""
    wanted: ClassVar[str]
    """The same in words, for a message: ``*.csv``."""
    synthetic_options: ClassVar[frozenset[str]] = frozenset({"samples"})
    """Options that say what is made where `path` is unset, and nothing of files of the user's own."""

    def dataset(self) -> SyntheticDataset:
        """Return what the options ask for where there are no files of the user's own."""
        raise NotImplementedError

    def open_index(self, path: str) -> int:
        """Read what must be known of a file before its records can be found; return how many it has.

        Raises:
            RecordError: it cannot be used.
            OSError: it cannot be read.
        """
        raise NotImplementedError

    @cached_property
    def files(self) -> Sequence[RecordFile]:
        found, first = [], 0
        for path in map(str, self.paths):
            with reading(path):
                if records := self.open_index(path):
                    found.append(RecordFile(path, first, records, Path(path).stat().st_size))
                    first += records
        if not found:
            raise self.trouble("its files hold no whole record", "Give files with records.")
        return found

    @property
    def synthetic_dataset(self) -> SyntheticDataset | None:
        """What is made where the option `path` is unset; None where it is set."""
        return None if self.options.path is not None else self.dataset()

    @cached_property
    def root(self) -> Path:
        """The folder or file in which the records lie, or will."""
        data = self.synthetic_dataset
        try:
            return dataset_folder(data) if data else Path(self.options.path).expanduser()
        except RuntimeError:
            raise self.trouble("there is no such user, or they have no home", "Write the path in full.") from None

    def check(self) -> None:
        super().check()
        found = list(islice(self.walk(), _ASKED))
        if not found:
            raise self.trouble(f"no file in it is called {self.wanted}", "Give the folder that holds the files.")
        for path in found:
            if not os.access(path, os.R_OK):
                raise UsageError(
                    f"The source {self.name} may not read {path}.", "Make it readable to this user, or give another."
                )

    def prepare(self, config: Any) -> None:
        self.check()
        _ = self.files  # what is wrong with a file is said before the graph is built

    @cached_property
    def paths(self) -> list[Path]:
        """The files in which the records lie, in their order.

        Raises:
            UsageError: there is none.
        """
        found = sorted(self.walk())
        if not found:
            self.check()
        return found

    def walk(self) -> Iterator[Path]:
        """Yield the files in the order of the file system; the file itself where `path` is one.

        Raises:
            UsageError: there is no such file or folder, or it may not be read.
        """
        if self.options.path == "":
            raise self.trouble("it is empty", "Name the folder, or leave the option out for data that is made.")
        if self.root.is_file():
            yield self.root
            return
        if not self.root.is_dir():
            raise self.trouble(
                "there is no such file or folder", f"Give a folder with {self.wanted}, or one such file."
            )
        yield from self._files_below(self.root, frozenset(), set())

    def _files_below(
        self, folder: Path, above: frozenset[tuple[int, int]], followed: set[tuple[int, int]]
    ) -> Iterator[Path]:
        """Yield the files that may hold records in a folder and below it; hidden files and folders are left out.

        A link to a folder is followed: directly below the root each of them, since a class may be one. Further down it
        is followed out of the root, once to each folder; what it leads to within the root is read there.

        Args:
            folder: where to look.
            above: the folders that it lies in, by device and inode; a link to one of them leads nowhere new.
            followed: what links have led to so far, likewise.
        """
        try:
            here = _identity(folder)
            entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
        except OSError as error:
            raise self.trouble(f"{folder} cannot be read: {error.strerror}", "Make it readable to this user.") from None
        if here in above:
            return
        links, folders, files = [], [], []
        for entry in entries:
            # Only of a link is the disk asked: over a network, for each of a million images, that takes long.
            # `Path`: of a link that leads to itself `DirEntry.is_dir` raises.
            if entry.is_symlink() and Path(entry.path).is_dir():
                links.append(Path(entry.path))
            elif entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            elif self.file_names.search(entry.name):
                files.append(Path(entry.path))
        if folder == self.root:
            followed.update(map(_identity, links))
        else:
            links = [link for link in links if self._leads_on(link, followed)]
        for each in sorted([*folders, *links]):  # which of two links to one folder is followed is no chance
            yield from self._files_below(each, above | {here}, followed)
        yield from files

    def _leads_on(self, link: Path, followed: set[tuple[int, int]]) -> bool:
        """Return whether a link leads out of the root, to a folder to which none has led; note that it does."""
        target, root, identity = link.resolve(), self.root.resolve(), _identity(link)
        if identity in followed or target.is_relative_to(root) or root.is_relative_to(target):
            return False
        followed.add(identity)
        return True

    def trouble(self, problem: str, hint: str) -> UsageError:
        """Return an error about where the records should be."""
        if self.options.path is None:
            return UsageError(
                f"The data made for the source {self.name}, {self.root}: {problem}.",
                "Remove the folder, and `pipeline-bench compare` makes it again.",
            )
        return UsageError(f"path {self.options.path} of the source {self.name}: {problem}.", hint)
