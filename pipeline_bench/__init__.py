"""pipeline-bench: which input pipeline starves the accelerator, by how much, and why."""

# As `typing` has it: until `__main__.main` runs, Ctrl-C shows a traceback of what is imported here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pipeline_bench.library import compare, diagnose
    from pipeline_bench.model.session import load
    from pipeline_bench.monitoring.monitor import monitor

    __version__: str

__all__ = ["__version__", "compare", "diagnose", "load", "monitor"]

_MODULES = {
    "compare": "pipeline_bench.library",
    "diagnose": "pipeline_bench.library",
    "load": "pipeline_bench.model.session",
    "monitor": "pipeline_bench.monitoring.monitor",
}


def __getattr__(name: str) -> "Any":
    """Return what the package offers, made when it is first asked for: importing the package alone imports nothing."""
    if name == "__version__":
        return _version()
    if name in _MODULES:
        from importlib import import_module  # noqa: PLC0415 - see `TYPE_CHECKING`

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - it takes half as long as Python's start

    try:
        return version("pipeline-bench")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    """Return the names of what the package offers."""
    return sorted(__all__)
