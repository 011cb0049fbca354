"""What a script does to the world before its training, as far as its own text says: files, downloads, processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_DOWNLOADS = frozenset(
    {"get_file", "urlretrieve", "urlopen", "load_data", "load_dataset", "download", "download_and_prepare"}
)
_WRITES = frozenset(
    {"mkdir", "makedirs", "write_text", "write_bytes", "savetxt", "savez", "to_csv", "rmtree", "unlink", "remove"}
    | {"rename", "extractall", "unpack_archive", "copytree", "TFRecordWriter"}
)
_STARTS = frozenset({"system", "Popen", "check_call", "check_output"})
_SAID = (("downloads", _DOWNLOADS), ("writes files", _WRITES), ("starts programs", _STARTS))
_MOST = 3


def said(text: str) -> str:
    """Return what calls in a script's text do, `` It downloads: get_file (line 12).``; empty where none is known."""
    found = [(does, _places(text, names)) for does, names in _SAID]
    parts = [f"{does}: {', '.join(places[:_MOST])}" for does, places in found if places]
    return f" It {'; '.join(parts)}." if parts else ""


def _places(text: str, names: frozenset[str]) -> list[str]:
    try:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [f"{name} (line {call.lineno})" for call in calls for name in _name(call) if name in names]


def _name(call: ast.Call) -> Iterator[str]:
    if isinstance(call.func, ast.Attribute):
        yield call.func.attr
    elif isinstance(call.func, ast.Name):
        yield call.func.id
