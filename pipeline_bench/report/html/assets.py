"""The parts of a page that are the same in every one: styles, script, plotly, and the policy that admits only these."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files

from plotly.offline import get_plotlyjs


@cache
def text(name: str) -> str:
    """A file of this folder."""
    return (files(__package__) / name).read_text(encoding="utf-8")


@cache
def plotly() -> str:
    """plotly.js as base64 of gzip, 2 MB in place of 5; the same text at every call."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode("ascii")


@cache
def policy() -> str:
    """The Content-Security-Policy: no request at all, and no script but ours and the plotly that it unpacks.

    plotly writes styles into its elements, which is why those are allowed inline.
    """
    scripts = " ".join(_hash(script) for script in (text("page.js"), get_plotlyjs()))
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode('ascii')}'"
