"""Which line of the program's own code takes a batch: it identifies a loop, and names it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.injection.loop_locations import Line

_PACKAGE = str(Path(__file__).parents[1])
_OF_PIPELINES = "/tensorflow/python/data/ops/structured_function.py"
"""Traces the functions of a pipeline."""
_BETWEEN = (
    "/tensorflow/python/autograph/",
    "/tensorflow/python/data/ops/dataset_ops.py",
    "/tensorflow/python/util/deprecation.py",
    "/tensorflow_datasets/core/dataset_utils.py",
    "/accelerate/data_loader.py",
    "/tqdm/",
    "/rich/progress.py",
)
"""Stands between a loop and what that takes: AutoGraph's conversion, arrays in place of tensors, the warning that a
method is TensorFlow 1's (`make_one_shot_iterator`), a loader around another, a progress bar."""
_LOADERS = ("/torch/utils/data/", "/grain/")
_MAKES_BATCHES = (
    "/tensorflow/python/ops/script_ops.py",
    "/keras/src/trainers/data_adapters/",
    "/tf_keras/src/utils/data_utils.py",
    *_LOADERS,
)
"""Calls what makes the samples of a batch: a function or a generator of a pipeline, a data set of a loader's."""


def of_loop(through_tensorflow: bool = False, in_fit: Callable[[], None] | None = None) -> Line | None:
    """Return the line of the user's own code that iterates over a dataset, itself or by a library for it.

    None where there is no code of the user's, as in a worker of a loader's own, and where it makes a batch.

    Args:
        through_tensorflow: whether it counts also where TensorFlow or Keras iterates for it.
        in_fit: called where a `fit` of Keras does, which then does not count.
    """
    library = ""
    for frame in user_code.outward(sys._getframe(1)):
        file = frame.f_code.co_filename
        if _is_no_program(file) or _stands_between(file):
            continue
        whose = user_code.origin(file)
        if whose == "user":
            return None if _makes_batches(frame) else Line(_name(file), frame.f_lineno, library)
        if whose == "tensorflow" and not through_tensorflow:
            return None
        if whose == "tensorflow" and in_fit is not None and frame.f_code.co_name == "fit":
            in_fit()
            return None
        if whose == "library" and not library:
            library = _by(frame)
    return None


of_user = functools.partial(of_loop, through_tensorflow=True)
"""As `of_loop`, of loaders and of calls that train: TensorFlow, or Keras, may come between the user's code and them."""


def of_traced(by_itself: bool = False) -> Line | None:
    """Return the line, before AutoGraph's conversion, of the loop that is traced, or that calls what takes.

    None where a function of a pipeline is traced: what that iterates over is no training's input.

    Args:
        by_itself: whether only code that takes the iterator itself counts, and not what TensorFlow does for it.
    """
    if by_itself and of_loop() is None:
        return None
    if any(frame.f_code.co_filename.endswith(_OF_PIPELINES) for frame in user_code.outward(sys._getframe(1))):
        return None
    place = user_code.location()
    return None if place is None else Line(_name(place.file), place.line)


def path() -> int:
    """Return a number of the calls that lead to here, of the user's code and of libraries.

    They distinguish a training from a validation which iterate in the same function, of the program or of a library.
    """
    frames = user_code.outward(sys._getframe(1))
    theirs = [(frame.f_code, frame.f_lineno) for frame in frames if _is_on_path(frame.f_code.co_filename)]
    return hash(tuple(theirs))


@functools.lru_cache(maxsize=4096)
def _is_on_path(file: str) -> bool:
    return not _is_no_program(file) and user_code.origin(file) in ("user", "library")


def _by(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _makes_batches(frame: FrameType) -> bool:
    """Return whether the user's code in a frame was called to make a batch: what that iterates over is no training."""
    return any(_is_maker(outer.f_code.co_filename) for outer in user_code.outward(frame.f_back))


@functools.lru_cache(maxsize=4096)
def _is_maker(file: str) -> bool:
    return any(part in file for part in _MAKES_BATCHES) and user_code.origin(file) != "user"


def _is_no_program(file: str) -> bool:
    """Return whether code is this package's, or of a string that is not the program, but run by a line of that."""
    if not file.startswith("<"):
        return file.startswith(_PACKAGE)
    return not (file == "<stdin>" or file.startswith("<ipython-") or (file == "<string>" and _is_given_by_option()))


def _is_given_by_option() -> bool:
    """Return whether the program is a string, by `python -c`, and no worker of multiprocessing, which begins so."""
    has_file = getattr(sys.modules.get("__main__"), "__file__", None) is not None
    return not (has_file or any(part.startswith("from multiprocessing.") for part in sys.orig_argv))


def _name(file: str) -> str:
    """Return a file's name; of a notebook's cell, which IPython compiles under a name of no meaning, ``In[3]``."""
    if "IPython" not in sys.modules:
        return file.rpartition("/")[2]  # of each step: a Path takes as long as the rest
    shell: Any = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
    try:
        cell = shell.compile.format_code_name(file)
    except AttributeError:  # there is no notebook, or another version of it
        cell = None
    return file.rpartition("/")[2] if cell is None else str(cell[1])


@functools.lru_cache(maxsize=4096)
def _stands_between(file: str) -> bool:
    """Return whether a file of a library's has a loader, or what stands between a loop and that."""
    return user_code.origin(file) != "user" and any(part in file for part in (*_BETWEEN, *_LOADERS))
