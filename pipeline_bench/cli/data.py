"""``pipeline-bench data``: make datasets of a chosen size, and see or remove those that `compare` made."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_bench.cli.options import INTERRUPTED, show_help
from pipeline_bench.errors import UsageError
from pipeline_bench.text import did_you_mean, one_line, safe, sentence, units

if TYPE_CHECKING:
    from pipeline_bench.sources.synthetic_dataset import SyntheticDataset

_FILE_BYTES = 128 << 20
"""What a file of many samples holds at most, where nothing else is asked for."""
_FEWEST_FILES = 8
"""Several readers need several files."""
_DEFAULT_SIDE = 96
_DEFAULT_COLUMNS = 64
_FEW_SAMPLES = 64
_LINES = 10
_EXAMPLE = {"csv": "two_layer", "npz": "decode_jpeg --backends feed_dict,fifo_queue,tf_data"}

data = typer.Typer(name="data")


@data.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """Make synthetic datasets; list or remove them."""
    show_help(context)


@data.command()
def make(
    kind: Annotated[str, typer.Argument(help="tfrecord, image_folder, npz or csv.")],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder to make: new, empty, or begun by the same command.")
    ],
    size: Annotated[str, typer.Option(metavar="2GB", help="Approximate size: 500MB, 2GB, 1GiB.")],
    image_size: Annotated[
        int | None, typer.Option(min=8, max=4096, help="Pixels of an image's side; 96 by default.")
    ] = None,
    columns: Annotated[
        int | None, typer.Option(min=1, max=65536, help="Features of a line, for csv; 64 by default.")
    ] = None,
    files: Annotated[
        int | None,
        typer.Option(min=1, max=65536, help="Number of files; by default 8, or as many as give 128 MiB each."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Another seed makes other data.")] = 0,
) -> None:
    """Make a dataset of about this size. After an interruption, the same command continues."""
    from pipeline_bench.run import data_making
    from pipeline_bench.sources import synthetic_dataset

    asked = _requested_dataset(kind, size, {"--image-size": image_size, "--columns": columns, "--files": files}, seed)
    _check_folder(out, asked)
    if not synthetic_dataset.is_complete(asked, out):
        from pipeline_bench.cli.running import interruptible

        try:
            with interruptible(), _progress(asked) as report:
                waiting = partial(typer.echo, "another process makes data in the same folder: waiting for it", err=True)
                data_making.make(asked, out, report, waiting, elsewhere="choose another --out")
        except KeyboardInterrupt:
            with suppress(OSError):  # the terminal is gone
                typer.echo(
                    "Interrupted; the same command keeps the files that are whole and makes the others.", err=True
                )
            raise typer.Exit(INTERRUPTED) from None
    manifest = synthetic_dataset.read_manifest(out)
    assert manifest is not None
    count = f"{asked.samples:,} {asked.noun} in {asked.file_count:,} file{'s' if asked.file_count > 1 else ''}"
    typer.echo(f"{safe(str(out))}: {count}, {units.size(manifest.size_bytes)}")
    scenario = _EXAMPLE.get(kind, "decode_jpeg")
    place = os.path.join(os.curdir, out)  # noqa: PTH118 - Path drops the ./, without which 2024 is a number to --set
    settings = f"--set source.kind={kind} --set source.path={safe(shlex.quote(place))}"
    if kind in ("tfrecord", "image_folder"):  # the scenario has a size of its own
        settings += f" --set source.image_size={asked.side}"
    typer.echo(f"Use it: pipeline-bench compare {scenario} {settings}")


@data.command(name="list")
def list_made() -> None:
    """List the datasets that `compare` made, with their sizes."""
    from pipeline_bench.run import data_making
    from pipeline_bench.sources.synthetic_dataset import datasets_root

    found = data_making.kept()
    for kept in found:
        whole = "" if kept.complete else "  (not complete)"
        typer.echo(f"{units.size(kept.size_bytes):>9}  {one_line(kept.folder.name)}{whole}")
    total = units.size(sum(kept.size_bytes for kept in found))
    typer.echo(f"{units.count(len(found), 'dataset')} in {safe(str(datasets_root()))}, {total}")


@data.command()
def remove(
    names: Annotated[list[str] | None, typer.Argument(help="Names, as `pipeline-bench data list` shows them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all of them.")] = False,
) -> None:
    """Remove datasets that `compare` made. It makes them again when it needs them."""
    from pipeline_bench.run import data_making

    found = {kept.folder.name: kept for kept in data_making.kept()}
    if bool(names) == everything:
        raise UsageError("Give the names of what to remove, or --all.", "`pipeline-bench data list` shows them.")
    for name in names or ():
        if name not in found:
            hint = sentence(f"{did_you_mean(name, found)}.") if found else "`compare` has made none yet."
            raise UsageError(f"There is no synthetic dataset {name!r}.", hint)
    for name in names or found:
        try:
            shutil.rmtree(found[name].folder)
        except OSError as error:  # of a link to a folder it has no number
            raise UsageError(f"{found[name].folder} cannot be removed: {error.strerror or error}.") from None
        typer.echo(f"removed {one_line(name)}, {units.size(found[name].size_bytes)}")


def _requested_dataset(kind: str, size: str, given: dict[str, int | None], seed: int) -> SyntheticDataset:
    """Return what the options ask for: as many samples as come to the size, going by a few of them.

    Raises:
        UsageError: the kind or the size is none, or an option does not belong to the kind.
    """
    from pipeline_bench.sources.synthetic_dataset import KINDS, SyntheticDataset, estimated_bytes

    if (known := next((known for known in KINDS if known == kind), None)) is None:
        raise UsageError(f"There is no kind of data {kind!r}.", sentence(f"{did_you_mean(kind, KINDS)}."))
    foreign = {"csv": ["--image-size"], "image_folder": ["--columns", "--files"]}.get(known, ["--columns"])
    for option in foreign:
        if given[option] is not None:
            raise UsageError(f"{option} means nothing for {known}.", "Leave it out.")
    size_bytes = parse_size(size)
    side = given["--columns"] or _DEFAULT_COLUMNS if known == "csv" else given["--image-size"] or _DEFAULT_SIDE
    few = SyntheticDataset(known, _FEW_SAMPLES, 1, side, seed)
    samples = max(1, round(size_bytes / (estimated_bytes(few) / few.samples)))
    files = (
        samples if known == "image_folder" else given["--files"] or max(_FEWEST_FILES, round(size_bytes / _FILE_BYTES))
    )
    return SyntheticDataset(known, samples, min(files, samples), side, seed)


def parse_size(text: str) -> int:
    """Return the bytes of ``500MB``, ``2 GB`` or ``1GiB``.

    Raises:
        UsageError: it is no size, or less than 1 kB.
    """
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        size_bytes = int(TypeAdapter(ByteSize).validate_python(text.strip()))
    except (ValidationError, OverflowError):
        size_bytes = 0
    if size_bytes < 1000:  # noqa: PLR2004 - less than any sample
        raise UsageError(f"--size {text!r} is no size of 1 kB or more.", "Write for example 500MB, 2GB or 1GiB.")
    return size_bytes


def _check_folder(out: Path, asked: SyntheticDataset) -> None:
    """See that the folder is new or empty, or holds a part of the same data.

    Raises:
        UsageError: it is a file, or holds something else.
    """
    from pipeline_bench.sources.synthetic_dataset import read_manifest

    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file.", "Choose a folder, or a path that does not exist.")
    manifest = read_manifest(out)
    try:
        if manifest is None and out.is_dir() and any(entry.name != ".lock" for entry in out.iterdir()):
            raise UsageError(
                f"--out {out} holds files that `pipeline-bench data make` did not make.",
                "Choose an empty folder, or a path that does not exist.",
            )
    except OSError as error:
        raise UsageError(f"--out {out} cannot be read: {error.strerror}.", "Choose another folder.") from None
    if manifest is not None and manifest.data != asked:
        raise UsageError(
            f"--out {out} holds another synthetic dataset: {manifest.data.name}, not {asked.name}.",
            "Repeat the command that began it, or choose another folder.",
        )


@contextmanager
def _progress(asked: SyntheticDataset) -> Iterator[Callable[[int], None]]:
    """Show progress: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from pipeline_bench.ui.console import ForegroundLive, can_draw

    console = Console(stderr=True)
    if can_draw(console):
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        bar = Progress(*columns, console=console)
        task = bar.add_task(f"making {asked.noun}", total=asked.samples)
        with ForegroundLive(console=console, transient=True, get_renderable=bar.get_renderable):
            yield lambda made: bar.update(task, completed=made)
        return
    reached = -1

    def report(made: int) -> None:
        nonlocal reached
        if _LINES * made // asked.samples != reached:
            reached = _LINES * made // asked.samples
            typer.echo(f"making data: {made:,} of {asked.samples:,} {asked.noun}", err=True)

    yield report
