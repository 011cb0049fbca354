"""A session: everything of one run, the JSON file that every view is rendered from, and the folders that hold one each.

The file is a contract (docs/session.md, its history in `model.older`). What was not measured is None with a reason,
never 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json, to_json

from pipeline_bench import plugins
from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.model import Record, Series, older
from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.hosts import Host, Hosts
from pipeline_bench.model.job import WallTime
from pipeline_bench.model.result import EMULATED_LABEL, Disturbance, Precision, Result
from pipeline_bench.model.selftest import Checked, Selftest
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.system.files import is_in_use, matching, read_text, unreadable, write_atomically
from pipeline_bench.text import Line, Text, units

SCHEMA_VERSION = 14
_LARGEST_BYTES = 1 << 30
"""Of a session's file. An hour of steps of 1 ms takes less than a tenth of it."""
_UNPACKED_BYTES = 1 << 30
_UNPACKED_TIMES = 16
"""What a session's columns may unpack to: so much, or as many times its file's size. Times of steps are noise, which
zlib halves at best; a column of one value repeated shrinks a thousandfold."""


class Environment(Record):
    """The machine and the versions that the figures were measured with."""

    accelerator_kind: Literal["gpu", "cpu", "emulated"]
    """``emulated`` where every variant's model emulates its device."""
    accelerator_name: Line
    accelerator_reason: Line | None = None
    """Why there is no GPU, or none that can be read, in one line."""
    driver: Line | None = None
    tensorflow: Line | None = None
    python: Line
    platform: Line
    cpu: Line
    cores: Annotated[int, Field(ge=1, le=2**20)]
    memory_bytes: int
    package: Line

    @property
    def gpu(self) -> str | None:
        """The GPU's name; None where the accelerator is none."""
        return self.accelerator_name if self.accelerator_kind == "gpu" else None


class Session(Record):
    """One run of a scenario."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    started_at: Line
    """ISO 8601 with the zone."""
    command: Text = ""
    scenario: Scenario
    environment: Environment
    notes: tuple[Line, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    results: tuple[Result, ...] = ()
    disturbances: tuple[Disturbance, ...] = ()
    precision: Precision | None = None
    diagnosis: Diagnosis | None = None
    """Of a session that diagnosed a user's own pipeline."""
    watched: bool = False
    """Whether a training job kept this session of itself: one trial, no ceiling beside it."""
    selftest: Selftest | None = None
    """Of a session in which the program checked itself."""
    checked: Checked | None = None
    """The last selftest of this machine when the session was begun; None where nobody looked for one."""
    host: Host | None = None
    """Of a session that is one host's among several."""
    hosts: Hosts | None = None
    """Of a session that was merged from those of several hosts."""
    wall_time: WallTime | None = None
    """Where a watched training's wall time went; None where it was no training of epochs, or that of several ranks."""

    def __repr__(self) -> str:
        """Return the session in one line, for a Python prompt; `to_json` has all of it."""
        trials, variants = units.count(len(self.trials), "trial"), units.count(len(self.results), "variant")
        return f"<Session {self.scenario.name!r}: {trials} of {variants}>"

    def __str__(self) -> str:
        """Return the table and all else that the terminal shows, without colours."""
        return plugins.renderer("screen", "as_text")(self)  # see `_repr_html_`

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start of the first trial to the end of the last one: what a budget is spent on."""
        return (self.trials[-1].ended_ns - self.trials[0].started_ns) / 1e9 if self.trials else 0.0

    @property
    def charged_s(self) -> float:
        """Seconds of a diagnosis' budget that are used: those that elapsed, but for `uncharged_s`."""
        return self.elapsed_s - self.uncharged_s

    @property
    def uncharged_s(self) -> float:
        """Seconds that a diagnosis does not charge: its trials' start, a script until it trains, the first steps."""
        if self.diagnosis is None:
            return 0.0
        return sum(trial.start_s(self.diagnosis.target.is_script) for trial in self.trials)

    def result(self, variant: str | Variant) -> Result:
        """Return the result of a variant.

        Raises:
            KeyError: the session has none.
        """
        name = variant if isinstance(variant, str) else variant.name
        return {result.variant: result for result in self.results}[name]

    def find_result(self, variant: str) -> Result | None:
        """Return the result of a variant; None where the session has none."""
        return next((result for result in self.results if result.variant == variant), None)

    def trials_of(self, variant: str) -> list[TrialRecord]:
        """Return the trials of a variant that have ended, in their order."""
        return [trial for trial in self.trials if trial.variant == variant]

    @property
    def device_label(self) -> str:
        """The device at the head of a column: ``CPU``, ``GPU``, ``emul.``; ``mixed`` where some emulate it only."""
        kind = self.environment.accelerator_kind
        if kind == "emulated":
            return EMULATED_LABEL
        return "mixed" if any(result.emulated for result in self.results) else kind.upper()

    def _repr_html_(self) -> str:
        """Return the session as a notebook shows it: the conclusion, the verdicts, and the figures as a table."""
        # A notebook knows nothing but this method, and reports stand above the session: it is found when it is needed.
        return plugins.renderer("html", "fragment")(self)


def save(session: Session, folder: Path) -> Path:
    """Write ``session.json`` atomically: a reader sees the old file or the new one, whole.

    Raises:
        SessionError: the folder cannot be written.
    """
    path = folder / SESSION_FILE
    try:
        write_atomically(path, session.to_json())
    except OSError as error:
        reason = error.strerror or str(error)
        raise SessionError(
            f"{path} cannot be written: {reason}.", "Free some space there, or choose another folder."
        ) from error
    return path


def load(path: Path | str, *, series: bool = True) -> Session:
    """Read a session from its file, from the folder that holds it, or by ``last``, ``last~1`` (see `find`).

    Without `series` its trials have no steps, samples and queue depths, which are most of a file: what they hold is not
    looked at, so it may be damaged.

    Raises:
        SessionError: there is no such file, it or a column in it is damaged, or a newer version of this program wrote
            it.
    """
    file = find(path)
    try:
        if file.is_dir():
            file /= SESSION_FILE
        text = read_text(file, _LARGEST_BYTES, regular=True)
    except (OSError, ValueError) as error:
        raise SessionError(
            f"{file} cannot be read: {unreadable(error)}.",
            "Give a session.json, the folder that holds it, or last; `pipeline-bench sessions` lists them.",
        ) from error
    try:
        session = Session.model_validate_json(text if series else _without_series(text))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        if place == "schema_version" and isinstance(problem.get("input"), int) and problem["input"] > SCHEMA_VERSION:
            raise SessionError(
                f"{file} has schema version {problem['input']}; this program reads up to {SCHEMA_VERSION}.",
                "Upgrade pipeline-bench.",
            ) from None
        if problem["type"] == "extra_forbidden":
            raise SessionError(
                f"{file} has a field that this version does not know, {place}: another version wrote it.",
                "Upgrade pipeline-bench, or read it with the version that its environment names.",
            ) from None
        raise SessionError(
            f"{file} is no session, or a damaged one: {place or 'the file'}: {problem['msg']}.",
            "Give an undamaged session.json.",
        ) from None
    _verify(session, file, max(_UNPACKED_BYTES, _UNPACKED_TIMES * len(text)))
    return older.brought_up(session).model_copy(update={"schema_version": SCHEMA_VERSION})


def _without_series(text: str) -> str | bytes:
    """Return a session's JSON without the columns of its trials; what is no such JSON as it is, to be refused."""
    try:
        document = from_json(text)
        for trial in document["trials"]:
            for column in ("steps", "samples", "queue_depths"):
                trial.pop(column, None)
        return to_json(document, inf_nan_mode="constants")
    except (ValueError, TypeError, KeyError, AttributeError):
        return text


def _verify(session: Session, file: Path, most_bytes: int) -> None:
    """See that every packed column can be unpacked, beside others of its length, and that all are no more than that.

    What reads a session need not ask again.

    Raises:
        SessionError: one cannot or is not, or they are more.
    """
    # Each trial by itself: two may have the same name, as two inspections of a pipeline have.
    parts = [(f"{trial.label}: ", tuple(_columns(trial))) for trial in session.trials]
    parts.append(("", tuple(_columns(session.model_copy(update={"trials": ()})))))
    unpacked_bytes = sum(column.unpacked_bytes for _, columns in parts for _, column in columns)
    if unpacked_bytes > most_bytes:
        raise SessionError(
            f"{file} is damaged: its columns would unpack to {units.size(unpacked_bytes)}, "
            f"and those of a session of its size to {units.size(most_bytes)} at most.",
            "Give an undamaged session.json.",
        )
    for label, columns in parts:
        counts: dict[str, int] = {}
        for place, column in columns:
            try:
                column.unpack()
                if (beside := counts.setdefault(place.rpartition(".")[0], column.count)) != column.count:
                    raise ValueError(f"it holds {column.count} values, and the column beside it {beside}")
                if place.endswith("_ns") and not column.dtype.endswith("i8"):
                    raise ValueError(f"times are whole nanoseconds, and not {column.dtype}")
            except ValueError as error:
                raise SessionError(
                    f"{file} is damaged: {label}{place}: {error}.", "Give an undamaged session.json."
                ) from None


def _columns(value: object, *place: str | int) -> Iterator[tuple[str, Series]]:
    """Yield every packed column within a value, with its path: ``steps.end_ns``."""
    if isinstance(value, Series):
        yield ".".join(map(str, place)), value
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _columns(getattr(value, field), *place, field)
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from _columns(each, *place, index)


REPORTS = Path("reports")
"""Where commands keep their sessions by default, each in a folder of its own."""
SESSION_FILE, PAGE = "session.json", "report.html"
"""In a session's folder; the page is there where it was made."""
_LAST = re.compile(r"last(?:~(\d{1,6}))?")
_HEAD_BYTES = 4096
_BEGAN = re.compile(rb'"started_at": "([^"]{1,64})"')


@dataclass(frozen=True)
class SessionFolder:
    """A session's folder, and when it was begun as its file says it."""

    folder: Path
    began: datetime

    @property
    def measuring(self) -> bool:
        """Whether a command measures into it now."""
        return is_in_use(self.folder)


def kept_sessions(folder: Path = REPORTS) -> list[SessionFolder]:
    """Return the sessions of a folder, the newest first; what does not say when it began is none.

    Only the head of each file is read.
    """
    found = [
        SessionFolder(file.parent, began) for file in matching(folder, f"*/{SESSION_FILE}") if (began := _began(file))
    ]
    return sorted(found, key=lambda each: (each.began, each.folder.name), reverse=True)


def find(path: Path | str) -> Path:
    """Return the path itself, or the folder that ``last`` or ``last~N`` stands for where no file has that name.

    What is still measured is passed over.

    Raises:
        SessionError: fewer were kept.
    """
    word = _LAST.fullmatch(str(path))
    if word is None or Path(path).exists():
        return Path(path)
    kept = kept_sessions()
    number, found = int(word[1] or 0), [each for each in kept if not each.measuring]
    if number < len(found):
        return found[number].folder
    measured = len(kept) - len(found)
    beside = f" and {measured} that {'is' if measured == 1 else 'are'} still measured" if measured else ""
    raise SessionError(
        f"There is no session {path}: the folder {REPORTS} here holds {len(found) or 'none'}{beside}.",
        "`pipeline-bench sessions` lists them; give the path of one that was kept elsewhere.",
    )


def _began(file: Path) -> datetime | None:
    try:
        if not file.is_file():  # reading a pipe may never end
            return None
        with file.open("rb") as opened:
            said = _BEGAN.search(opened.read(_HEAD_BYTES))
        return datetime.fromisoformat(said[1].decode()).astimezone() if said else None
    except (OSError, ValueError, OverflowError):
        return None


def make_folder(out: Path, name: str, now: Callable[[], datetime] = datetime.now) -> Path:
    """Make the session's own folder, ``<out>/<time>-<name>``.

    Raises:
        UsageError: it cannot be made there.
    """
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60] or "scenario"
    stem = f"{now():%Y%m%d-%H%M%S}-{slug}"
    for number in range(100):
        folder = out / (stem if number == 0 else f"{stem}-{number + 1}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.is_dir():
                continue
            raise _obstacle(out) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"--out {out}: the session's folder cannot be made: {reason}.", "Choose another --out."
            ) from None
        return folder
    raise UsageError(f"--out {out} holds a hundred sessions of this second.", "Choose another --out.")


def _obstacle(out: Path) -> UsageError:
    for path in (out, *out.parents):
        if path.is_symlink() and not path.exists():
            return UsageError(
                f"--out {out}: {path} is a broken link to {path.readlink()}.",
                "Correct or remove the link, or choose another --out.",
            )
    return UsageError(f"--out {out}: a file is in the way.", "Choose a folder, or a path that does not exist.")
