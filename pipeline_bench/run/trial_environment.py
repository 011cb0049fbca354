"""The environment variables that the trials of a user's code have beside the user's own."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system.files import ScratchFolder
from pipeline_bench.user_code import own_modules

TRACKERS = {"WANDB_MODE": "disabled", "NEPTUNE_MODE": "offline", "CLEARML_OFFLINE_MODE": "1"}
"""What keeps trackers from starting a run on their servers."""
_NO_WINDOWS = {"MPLBACKEND": "Agg"}
"""What keeps Matplotlib from opening one, for which a script waits until it is closed."""
_READ_AT_IMPORT = ("CUDA_", "JAX_", "KERAS_", "TF_", "XLA_")
_READING = re.compile(r"\b(tensorflow|keras|tf_keras|jax)\b")
"""What the names of variables begin with that TensorFlow, Keras and JAX read as they are imported; such an import."""
_XLA_FLAGS = "TF_XLA_FLAGS"
_XLA_CACHE = "--tf_xla_persistent_cache_directory"
_XLA_CACHED_DEVICES = "--tf_xla_persistent_cache_device_types=GPU,XLA_GPU_JIT"
_XLA_CACHE_BYTES = 2**30
"""What must be free for it: a step fails whose compiled form TensorFlow cannot write. That of a model takes some MB."""


@contextmanager
def of_trials(script: str = "") -> Iterator[None]:
    """Have what the block starts turn trackers and windows off, unless the user has configured them.

    And have it begin with what a script's text sets itself: trials import TensorFlow before they run the script.
    """
    off = {name: value for name, value in (TRACKERS | _NO_WINDOWS).items() if name not in os.environ}
    with _variables(off | _set_by(script)):
        yield


def _set_by(script: str) -> dict[str, str]:
    """Return the variables that a script sets to a text before it imports what reads them."""
    found: dict[str, str] = {}
    for statement in own_modules.readable(script).body:
        match statement:
            case ast.Assign(targets=[ast.Subscript(value=owner, slice=ast.Constant(value=str(name)))], value=value):
                is_default = False
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=owner, attr="setdefault"), args=[ast.Constant(value=str(name)), value]
                )
            ):
                is_default = name in os.environ or name in found
            case ast.Import() | ast.ImportFrom() if _READING.search(ast.unparse(statement)):
                break
            case _:
                continue
        is_known = ast.unparse(owner) in ("os.environ", "environ") and name.startswith(_READ_AT_IMPORT)
        if is_known and not is_default and isinstance(value, ast.Constant) and isinstance(value.value, str):
            found[name] = value.value
    return found


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
