"""Stands before a watched program in its Python: has a framework patched once the program has imported it.

Python imports this module at its start, because `pipeline-bench run` puts its folder on PYTHONPATH. It imports nothing
that Python has not imported by then, hands on to the environment's own sitecustomize, and never lets an error of its
own reach the program. An older Python than this package needs, from 3.6 on, can run it too: a command may start one.
"""

import os
import sys

TYPE_CHECKING = False  # as typing has it, which may not be imported yet
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

_WATCHED = (
    "keras",
    "tf_keras",
    "tf_keras.src.engine.training_v1",
    "tensorflow.python.data.ops.dataset_ops",
    "tensorflow.python.data.ops.dataset_autograph",
    "tensorflow.python.distribute.input_lib",
    "tensorflow.python.distribute.cross_device_utils",
    "tensorflow.python.distribute.mirrored_run",
    "tensorflow.python.client.session",
    "tensorflow.python.eager.backprop",
    "tensorflow.python.ops.resource_variable_ops",
    "tensorflow.python.eager.polymorphic_function.concrete_function",
    "tensorflow.python.eager.polymorphic_function.polymorphic_function",
    "torch.autograd",
    "torch.utils.data.dataloader",
    "grain._src.python.dataset.dataset",
)
_FOLDER = os.environ.get("PIPELINE_BENCH_RUN")
"""Where word is left; a program may clear its environment."""


def _working_folder() -> "str | None":
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # it was removed
        return None


_STARTED = os.getpid(), _working_folder()
"""Which process Python was started as, and where: a fork of it has another number, and a program may change both."""


def _chain(own_folder: str) -> None:
    """Import the module that this one stands in the way of, if there is one."""
    sys.path[:] = [folder for folder in sys.path if folder != own_folder]
    own = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")  # another one than this
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


class _Finder:
    """Finds nothing itself: has the modules in `_WATCHED` patched after they are imported."""

    def find_spec(self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None) -> "Any":
        """Return the spec that the other finders have, with a loader that patches; None for any other module."""
        if name not in _WATCHED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _PatchingLoader(spec.loader)
                return spec
        return None


class _PatchingLoader:
    """Loads a module by its own loader, which it then has back, and patches it."""

    def __init__(self, loader: "Any") -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> "Any":
        if name == "_loader":  # of a copy, which has no attributes yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: "Any") -> "Any":
        """Return what its own loader makes."""
        return self._loader.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        """Execute the module, then patch it."""
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _patch(module)

    def load_module(self, name: str) -> "Any":
        """Do the same for a finder of the program's own that knows this old method alone, such as mlflow's."""
        module = self._loader.load_module(name)
        _patch(module)
        return module


def _patch(module: "Any") -> None:
    try:
        _hooks().imported(module, _STARTED)
    except Exception as error:
        _note(f"{type(error).__name__}: {error}")


def _hooks() -> "Any":
    """Return the module that patches.

    It is imported from where `pipeline-bench` itself was, if this is that Python environment.
    """
    import importlib

    name = "pipeline_bench.injection.hooks"
    prefix, _, folder = os.environ["PIPELINE_BENCH_RUN_PACKAGE"].partition(os.pathsep)
    if prefix != sys.prefix or folder in sys.path:  # there, to be taken off again would change its place
        return importlib.import_module(name)
    sys.path.append(folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def _note(problem: str) -> None:
    """Leave word why nothing is measured in this process."""
    try:
        path = os.path.join(str(_FOLDER), f"{os.getpid()}.problem")  # noqa: PTH118
        with open(path, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            file.write(f"{sys.executable}: {problem}")
    except OSError:
        pass


if _FOLDER:
    sys.meta_path.insert(0, _Finder())
_chain(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib may not be imported yet
