"""What the program shows of every committed session, of sessions built to hold every case, and every --help.

`digests.json` beside this file has the SHA-256 of each. A change that is meant is entered by
``python -m tests.golden --accept``; ``python -m tests.golden FOLDER`` writes the texts, to be compared with another
checkout's.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import typer
from typer.testing import CliRunner

from pipeline_bench import cli
from pipeline_bench.model import session as sessions_of_files
from pipeline_bench.model.session import Session
from tests.unit import diagnoses, sessions

ROOT = Path(__file__).parents[2]
DIGESTS = Path(__file__).with_name("digests.json")
SESSIONS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("docs/**/session.json", "reports/**/session.json", "tests/unit/data/session-v*.json")
    for path in ROOT.glob(pattern)
)
BUILT: dict[str, Callable[[], Session]] = {
    **{
        f"built-{each.__name__}": each
        for each in (sessions.normal, sessions.judged, sessions.troubled, sessions.pending)
    },
    **{f"built-diagnosis-{name}": build for name, build in diagnoses.EVERY.items() if name != "hostile"},
}
"""Sessions with every kind of result and outcome, of which the committed ones have some."""
WIDTHS = (80, 160)
KEPT_AS = {"markdown": "report.md", "html": "report.html", "csv": "report.csv", "trace": "trace.json.gz"}
"""Files beside the sessions in `reports`, which tests/unit/test_example.py holds in place of digests."""
AS_JSON = ("docs/walkthrough/session.json", "reports/example/session.json", "tests/unit/data/session-v1.json")
"""Of two older versions and of today's, of which the others are their own files."""


def commands() -> dict[str, list[str]]:
    """Return the command line behind each text, by the text's name."""
    found: dict[str, list[str]] = {}
    for session in (*SESSIONS, *BUILT):
        name = session.removesuffix(".json").replace("/", "-")
        kept = {form for form, file in KEPT_AS.items() if (ROOT / session).with_name(file).is_file()}
        left_out = kept if session.startswith("reports/") else set()
        for form in (*(each for each in KEPT_AS if each not in left_out), *(("json",) if session in AS_JSON else ())):
            found[f"{name}.{form}"] = ["report", session, "-f", form]
        for width in WIDTHS:
            found[f"{name}.screen{width}"] = ["report", session]
            found[f"{name}.terminal{width}"] = ["report", session, "--details"]
    ways: dict[str, list[str]] = {"terminal80": [], "markdown": ["-f", "markdown"], "json": ["-f", "json"]}
    pairs = [(SESSIONS[0], SESSIONS[0]), *itertools.pairwise(SESSIONS)]
    for index, ((before, after), (form, options)) in enumerate(zip(pairs, itertools.cycle(ways.items()), strict=False)):
        found[f"diff{index}.{form}"] = ["diff", before, after, *options]
    limits = ["--fail-if-slower", "5%", "--fail-if-au-below", "60%"]
    for after in ("judged", "troubled"):
        asked = ["diff", "built-normal", f"built-{after}", *limits]
        found[f"gates-{after}.markdown"] = [*asked, "-f", "markdown"]
        found |= {f"gates-{after}.terminal{width}": asked for width in WIDTHS}
    for name in ("", *_commands()):
        found[f"help{name and '-'}{name}"] = [*name.split(), "--help"]
    for name in ("backends", "scenarios", "lesson"):
        found[f"list-{name}.terminal80"] = [name]
    return found


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each command's output, whatever machine it runs on."""
    for name, arguments in commands().items():
        yield name, text(name, arguments)


def text(name: str, arguments: list[str]) -> str:
    """Return what a command prints in the checkout, less what machines and versions of other packages differ in."""
    width = re.search(r"(\d+)$", name)
    columns = width.group() if width and int(width.group()) in WIDTHS else "80"
    lines = "50" if columns == "160" else "24"
    plain = {"TERM": "dumb", "NO_COLOR": "1", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}
    with contextlib.chdir(_built_folder() if arguments[1:2] and arguments[1] in BUILT else ROOT):
        result = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": columns, "LINES": lines, **plain})
    page = without_plotly(result.output).replace(ROOT.as_uri(), "file://")
    if name.startswith("help"):
        page = re.sub(r"\W+", " ", page)  # how typer draws its boxes and breaks its lines is typer's
    return f"{page}\n[{result.exit_code} {result.exception!r}]"


def without_plotly(page: str) -> str:
    """Return a page but for the library in it and the library's hash, which are another version's each month."""
    page = re.sub(r'(<script type="application/gzip" id="plotly">)[^<]*', r"\1", page)
    return re.sub(r"sha256-[A-Za-z0-9+/=]+", "sha256-", page)


def digest(shown: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(shown.encode()).hexdigest()


def accepted() -> dict[str, str]:
    """Return the digests that were accepted, by name."""
    found: dict[str, str] = json.loads(DIGESTS.read_text(encoding="utf-8"))
    return found


@cache
def _built_folder() -> Path:
    """Save the sessions that are built, once a process."""
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, build in BUILT.items():
        (folder / name).mkdir()
        sessions_of_files.save(build(), folder / name)
    return folder


def _commands() -> list[str]:
    """Return the commands, those of groups behind their group's name."""
    root = typer.main.get_command(cli.app)

    def walk(command: object, prefix: str) -> Iterator[str]:
        for name, child in getattr(command, "commands", {}).items():
            yield f"{prefix}{name}"
            yield from walk(child, f"{prefix}{name} ")

    return sorted(walk(root, ""))
