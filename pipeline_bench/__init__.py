"""pipeline-bench: which input pipeline starves the accelerator, by how much, and why."""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline_bench.session import load

__all__ = ["__version__", "load"]

try:
    __version__ = version("pipeline-bench")
except PackageNotFoundError:  # pragma: no cover - running from a source tree that was never installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """`load` when it is first asked for: whoever imports the package for its version pays for nothing else."""
    if name == "load":
        return importlib.import_module("pipeline_bench.session").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
