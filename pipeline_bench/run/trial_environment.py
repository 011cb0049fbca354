"""The environment variables that the trials of a user's code have beside the user's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system.files import ScratchFolder

TRACKERS = {"WANDB_MODE": "disabled", "NEPTUNE_MODE": "offline", "CLEARML_OFFLINE_MODE": "1"}
"""What keeps trackers from starting a run on their servers."""
_XLA_FLAGS = "TF_XLA_FLAGS"
_XLA_CACHE = "--tf_xla_persistent_cache_directory"
_XLA_CACHED_DEVICES = "--tf_xla_persistent_cache_device_types=GPU,XLA_GPU_JIT"
_XLA_CACHE_BYTES = 2**30
"""What must be free for it: a step fails whose compiled form TensorFlow cannot write. That of a model takes some MB."""


@contextmanager
def trackers_off() -> Iterator[None]:
    """Turn experiment trackers off for what the block starts, unless the user has configured them."""
    with _variables({name: value for name, value in TRACKERS.items() if name not in os.environ}):
        yield


@contextmanager
def compiled_once() -> Iterator[None]:
    """Share XLA's compiled models: the first trial on a GPU compiles, the others load that.

    On a GPU Keras asks for XLA by itself. On an H100 the first step of a model of three layers took 7.9 s, and 0.9 s
    with what an earlier process had compiled. On a CPU nothing is kept: with a cache TensorFlow has crashed there
    (tensorflow issue 57649). A cache of the user's own stays.
    """
    given = os.environ.get(_XLA_FLAGS, "")
    try:
        folder = None if _XLA_CACHE in given else ScratchFolder(_XLA_CACHE_BYTES)
    except PipelineBenchError:  # without room each trial compiles for itself
        folder = None
    if folder is None:
        yield
        return
    with folder:
        # TensorFlow splits the flags at spaces.
        fits = not any(character.isspace() for character in str(folder.path))
        flags = f"{given} {_XLA_CACHE}={folder.path} {_XLA_CACHED_DEVICES}".strip()
        with _variables({_XLA_FLAGS: flags} if fits else {}):
            yield


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
