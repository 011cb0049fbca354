"""What a thread of a script has set for itself alone, for the trial, which goes on in another thread."""

from __future__ import annotations

import contextvars
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

_KERAS = "keras.src.backend.common.global_state"

_devices: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Of a model that a script trains within a `tf.device`."""


class ThreadState:
    """Of the thread that makes one: context variables, how NumPy treats errors, Keras' state, the device.

    The scope of a strategy is none of it: a model knows its own, and enters it for a step. Nor is the default writer of
    summaries, which would write into the script's logs.
    """

    def __init__(self) -> None:
        """Copy the state of the calling thread."""
        self._variables = contextvars.copy_context()
        self._of_numpy = np.geterr()  # a context variable from NumPy 2 on
        self._of_keras = dict(_of_keras())
        context = sys.modules.get("tensorflow.python.eager.context")
        self._device = "" if context is None else str(context.context().device_name or "")

    def take_over(self, model: Any) -> None:
        """Set it for this thread; the device is kept for the steps of `model` alone, None if there is no model."""
        for variable, value in self._variables.items():
            variable.set(value)
        np.seterr(**self._of_numpy)
        _of_keras().update(self._of_keras)
        _end_imports()
        if model is not None and self._device:
            _devices[model] = self._device


def on_device_of(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a model's step as it runs within the `tf.device` that the script trains the model in."""
    device = _devices.get(model)
    if device is None:
        return step

    def step_on_device(batch: Any) -> Any:
        import tensorflow as tf

        with tf.device(device):
            return step(batch)

    return step_on_device


def _end_imports() -> None:
    """Let no import wait for a module that is being imported: a script that trains on import never ends that.

    What imports from such a module then finds what it has so far, as in the thread that imports it.
    """
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False):
            spec._initializing = False  # type: ignore[union-attr] # it has that, where it is set


def _of_keras() -> dict[str, Any]:
    """Return Keras' state of this thread: the dtype policy, the distribution, the seeds."""
    module = sys.modules.get(_KERAS)
    return {} if module is None else vars(module.GLOBAL_STATE_TRACKER)
