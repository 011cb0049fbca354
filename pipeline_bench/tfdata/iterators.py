"""The ends of TensorFlow's iterators of eager mode, for which nobody waits, and their new beginnings."""

from __future__ import annotations

import sys
import threading
from typing import Any

_END_S = 0.1
"""Enough for the threads of a pipeline to stop, so that they disturb nothing that is measured next."""
_LONG_PASS_S = 0.5
"""From here on a trial of some seconds has too few passes for their mean to be that of a training."""


class EagerIterator:
    """An iterator over a dataset; nobody waits for its end (`end_aside`)."""

    def __init__(self, dataset: Any) -> None:
        self.iterator = iter(dataset)

    def restart(self, lasted_s: float) -> None:
        """Begin the next pass; `lasted_s` is how long the one took that has ended."""
        restart(self.iterator, lasted_s)

    def __del__(self) -> None:
        end_aside([self.__dict__.pop("iterator", None)])


def restart(iterator: Any, lasted_s: float) -> None:
    """Restart an iterator over a dataset.

    A training waits for the end of the one before, now and then almost as long as its pass took (`end_aside`). So does
    this after short passes, of which what is measured has many; one such wait in a few seconds would be chance.

    Args:
        iterator: TensorFlow's, of eager mode.
        lasted_s: how long the pass took that has ended.
    """
    import tensorflow as tf

    if lasted_s < _LONG_PASS_S:
        tf.raw_ops.MakeIterator(dataset=iterator._dataset._variant_tensor, iterator=iterator._iterator_resource)
        return
    ended = [iterator._iterator_resource]
    iterator._iterator_resource = iter(iterator._dataset)._iterator_resource
    end_aside(ended, 0.0)


def end_aside(held: list[Any], seconds: float = _END_S) -> None:
    """Release what holds TensorFlow's iterators, and wait for their end no longer than this.

    The end of one that was read for a minute may take as long, see `monitoring.iterator_ends.time_ends`: nothing then
    is left of its pipeline but a thread that sleeps.

    Args:
        held: is empty afterwards; nothing else holds what was in it.
        seconds: how long its pipeline may take to stop what it is at.
    """
    if sys.is_finalizing():  # Python 3.11 would wait for ever for a thread that begins now
        held.clear()
        return
    thread = threading.Thread(target=held.clear, name="end of an iterator", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # there are too many threads
        held.clear()
        return
    thread.join(seconds)
