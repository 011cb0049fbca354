"""Watching a command's trainings without an edit: what is put into its Python processes, and what runs the command."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OUT_VARIABLE = "PIPELINE_BENCH_RUN_OUT"
"""The one that names the folder for sessions."""
PACKAGE_VARIABLE = "PIPELINE_BENCH_RUN_PACKAGE"
"""The one that says where this package is found, and by which Python environment: `<sys.prefix>:<folder>`."""


@contextmanager
def no_collection() -> Iterator[None]:
    """Import without collecting garbage meanwhile: in a process that holds TensorFlow that takes as long again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
