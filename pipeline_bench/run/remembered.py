"""The last selftest of this machine, as `doctor` and every later session cite it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pipeline_bench.model.selftest import Checked
from pipeline_bench.system.files import write_atomically
from pipeline_bench.text import read_text, to_json

_LARGEST_BYTES = 1 << 20


def file() -> Path:
    """Return where it is kept: in the user's state, not among the sessions, which come and go with a project."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return state / "pipeline-bench" / "selftest.json"


def keep(checked: Checked) -> None:
    """Remember a selftest that has come to its end; where the user's state cannot be written, it is not remembered."""
    with suppress(OSError):
        path = file()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, to_json(checked, indent=1) + "\n")


def last(driver: str | None, cpu: str) -> Checked:
    """Return the last one of this machine, or that there was none.

    Args:
        driver: NVIDIA's, as it is now; None where there is none.
        cpu: this machine's; a home folder may be shared by several machines.
    """
    try:
        found = Checked.model_validate_json(read_text(file(), _LARGEST_BYTES, regular=True))
    except (OSError, ValueError):
        return Checked()
    if found.cpu != cpu:
        return Checked()
    return found.model_copy(update={"other_driver": found.driver != driver})
