"""pipeline-bench: which input pipeline starves the accelerator, by how much, and why."""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline_bench.library import compare, diagnose
    from pipeline_bench.model.session import load
    from pipeline_bench.monitoring.loop import monitor

__all__ = ["__version__", "compare", "diagnose", "load", "monitor"]

_MODULES = {
    "compare": "pipeline_bench.library",
    "diagnose": "pipeline_bench.library",
    "load": "pipeline_bench.model.session",
    "monitor": "pipeline_bench.monitoring.loop",
}

try:
    __version__ = version("pipeline-bench")
except PackageNotFoundError:  # pragma: no cover - running from a source tree that was never installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """What the package offers, when it is first asked for: whoever imports it for its version pays for nothing else."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What the package offers."""
    return sorted(__all__)
