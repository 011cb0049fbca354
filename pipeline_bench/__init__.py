"""pipeline-bench: which input pipeline starves the accelerator, by how much, and why."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("pipeline-bench")
except PackageNotFoundError:  # pragma: no cover - running from a source tree that was never installed
    __version__ = "0+unknown"
