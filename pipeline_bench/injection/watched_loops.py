"""The loops of a process that are watched, by their lines: which of them train, and which only look at a batch."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from pipeline_bench import user_code
from pipeline_bench.injection.loop_locations import Line, Loop, Places

WATCHED_LOOPS = 4
"""Loops that are watched in a process, identified by the line of the `for`, and by what they iterate over."""
STEPS_OF_A_BATCH = 2
"""A `fit` of no more is given a batch or two: it is a step of a loop."""
_CALLS_A_BATCH = 50
"""Calls that train on what one batch of a dataset holds: as a critic's, or parts of the batch. After more that come
without another batch, something else makes what they train on."""
_CALLS_BEHIND = 2
"""The same where all data have ended: a loop may ask for its next batch before it trains on the last one."""
_UNFED_CALLS = 100
"""Calls of PyTorch's `backward` on what no loop gives, from which on a loop that none followed only reads: a CUDA graph
is captured by a dozen."""
_TAKES_ALSO = "each step also takes a batch in {where}, for which it waits too: that is part of the input wait"


class WatchedLoops:
    """Those of one process."""

    def __init__(self) -> None:
        self._by_line: dict[Loop, Any] = {}
        self._places = Places()
        self._by_function: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
        """Those that were traced with a `tf.function`."""
        self._looks: set[Loop] = set()
        """Lines that looked at a batch, and made room for a loop."""
        self._unwatched: dict[Loop, None] = {}
        """Lines for which there was no room, as they came."""
        self._batch, self._calls, self._may_feed = 0, 0, _CALLS_A_BATCH
        """The number of the last batch of any loop at the last call that trains; such calls since that batch, and from
        how many on it feeds them no more."""
        self._trains_on: Any = None
        """The loop that took it, where a call trained on it."""
        self._fits_are_long = False
        self._calls_train = self._fits_train = False
        """Whether a call of the program's own was seen to train, so that another one would be; whether a `fit` was."""
        self._trains_in: set[int] = set()
        """The threads in which a call was."""
        self._hears = False
        """Whether any call, or function, was seen to train: of JAX and others none ever is."""
        self._hears_backward = False
        """Whether PyTorch's `backward` was called, and so is seen wherever it is."""
        self.unfed_backward = 0
        """How many of its calls trained on what no loop over batches gives."""

    def of(self, line: Line, begin: Callable[[str], Any], function: Any = None, data: Any = None, path: int = 0) -> Any:
        """Return what watches the loop of a line over these data; None where it is to be left alone.

        Args:
            line: its own.
            begin: begins to watch it, under the name that it is given.
            function: the `tf.function` that it is in.
            data: what it iterates over, where that is known.
            path: from where it is called, by any number.
        """
        where = self._places.loop(line, path, data, self._last_taken)
        if where in self._looks:
            return None
        if where not in self._by_line:
            if len(self._by_line) >= WATCHED_LOOPS and not self._leaves_a_look():
                self._unwatched[where] = None
                return None
            self._unwatched.pop(where, None)
            loop = self._by_line[where] = begin(str(where))
            loop.trains_in = None if loop.by_calls else self._trains_in
        else:
            self._by_line[where].begin_pass()
        if function is not None:
            self._by_function.setdefault(function, []).append(self._by_line[where])
        return self._by_line[where]

    def _last_taken(self, where: Loop) -> int:
        loop = self._by_line.get(where)
        if loop is None:
            return -1
        loop.read(settled=False)  # what graphs have taken is known once it is read
        return int(loop.last_taken)

    @property
    def unwatched(self) -> list[str]:
        """The lines of loops that are not watched, since as many as are watched at most came before them."""
        return list(map(str, self._unwatched))

    @property
    def have_trained(self) -> bool:
        """Whether one of the loops was seen to train for some steps."""
        train = [loop for loop in self._by_line.values() if loop.by_calls or loop.in_training or loop.saw_training]
        return any(loop.is_training for loop in train)

    def train_in(self, function: Any) -> None:
        """Take in that a `tf.function` which is traced trains: so do its loops, however short their epochs are."""
        self._hears = True
        for loop in self._by_function.get(function, ()):
            loop.in_training = True

    def see_call(self, trains: bool | None) -> None:
        """Take in a call of a `tf.function` that was not known to train before; `trains` as of `Functions.train`."""
        for loop in list(self._by_line.values()):
            loop.see_call(trains)

    def feed_a_call(self, eager: bool = False, begins: bool = True) -> bool:
        """Take in a call that trains; return whether a loop over batches gives it what it trains on.

        Args:
            eager: whether it is no call, but a step of eager code.
            begins: whether a step begins with it.
        """
        self._calls_train = True
        self._see_training(begins)
        loops = [loop for loop in list(self._by_line.values()) if not (loop.by_calls or loop.is_beside)]
        self._calls += 1
        if self._calls == _CALLS_A_BATCH:  # what graphs have taken is known once it is read
            for loop in loops:
                loop.read(settled=False)
        latest = max(loops, key=lambda loop: loop.last_taken, default=None)
        if latest is not None and latest.last_taken != self._batch:
            self._batch, self._calls = latest.last_taken, 0
            self._may_feed = _CALLS_A_BATCH if _are_under_way(loops) else _CALLS_BEHIND
            # What graphs take is known too late to say which batch was the last.
            self._trains_on = None if any(loop.takes_in_graphs for loop in loops) else latest
            self._count_trained(1)
            if eager or user_code.functions_run_eagerly():
                latest.see_eager_step(in_function=not eager)
        elif self._calls == self._may_feed:
            self._count_trained(-1)
            self._trains_on = None
        feeds = self._calls < _CALLS_BEHIND or (self._calls < self._may_feed and _are_under_way(loops))
        return bool(loops) and feeds

    def _count_trained(self, batches: int) -> None:
        if self._trains_on is not None:
            self._trains_on.trained_on += batches

    def see_backward(self) -> None:
        """Take in a call of PyTorch's `backward`, which trains; one within another is a part of that."""
        self._hears_backward = True
        if not (_is_in_backward() or self.feed_a_call(begins=False)):
            self.unfed_backward += 1
            for loop in list(self._by_line.values()):
                loop.see_other_training()

    def see_gradient(self) -> None:
        """Take in a call of PyTorch's `grad`: by it a program trains, or looks at a model, as an attack does."""
        self.see_call(None)

    def pass_fit(self, monitor: Any) -> None:
        """Take in that a `fit` has ended: after one of many steps the next batch of a loop is not in a row with others.

        Args:
            monitor: measured it; None: it is taken to be as the last one that was measured.
        """
        self._fits_train = True
        self._see_training(begins=False)
        if monitor is not None and monitor.kept is not None:
            self._fits_are_long = monitor.kept.figures.steps > STEPS_OF_A_BATCH
        if self._fits_are_long:
            for loop in list(self._by_line.values()):
                loop.interrupt()

    def see_evaluation(self) -> None:
        """Take in that a model evaluates, or predicts, in this thread."""
        if self._by_line:
            from pipeline_bench.monitoring.steps import LoopSteps  # which the first loop has imported

            LoopSteps.see_others(threading.get_ident(), time.monotonic_ns())

    def _see_training(self, begins: bool) -> None:
        """Take in that something trains, with which a step `begins`: perhaps on what the loops under way take."""
        self._hears = True
        self._trains_in.add(threading.get_ident())
        loops = list(self._by_line.values())
        if any(loop.has_new_batch for loop in loops):
            for loop in loops:
                if begins:
                    loop.begins_step()
                loop.see_training()
        if self._by_line:
            from pipeline_bench.monitoring.steps import LoopSteps  # which the first loop has imported

            LoopSteps.see_training(threading.get_ident())

    def only_reads(self, loop: Any) -> bool:
        """Return whether nothing trained while a loop went on, in a process in which a call trains.

        A count of the samples does so, the adapting of a layer, or an evaluation with PyTorch. What graphs take is
        known too late to tell. A call of JAX is never seen, and one of a function that was not traced here may train. A
        `fit` does not show that a function which the loop calls would be seen to. PyTorch may train without a call of
        `backward`, as by a CUDA graph: beside its loops, another one, or much that no loop gives, must have been seen
        to be trained on.
        """
        known = self._calls_train or (self._fits_train and not loop.called)
        if not (known and (loop.on_tf_data or self._is_beside_backward(loop))) or self._may_train_unseen:
            return False
        in_graphs = any(each.takes_in_graphs for each in self._by_line.values())
        return not (loop.saw_training or loop.in_training or in_graphs or loop.called - {False})

    def _is_beside_backward(self, loop: Any) -> bool:
        """Return whether a loop over a DataLoader, or grain, is beside what was seen to train by `backward`."""
        trains = self.unfed_backward >= _UNFED_CALLS or any(each.saw_training for each in self._by_line.values())
        return self._hears_backward and trains and not loop.by_calls

    @property
    def _may_train_unseen(self) -> bool:
        """Whether the program uses a framework of whose calls none was seen to train."""
        seen = {"torch"} if self._hears_backward else set[str]()
        return user_code.names(tuple(name for name in user_code.UNSEEN if name not in seen))

    def shown(self, fits: bool) -> Iterator[tuple[Loop, Any]]:
        """Yield the loops with their lines, one of those of a training, without those that only look beside one.

        Args:
            fits: whether a `fit` trains.
        """
        loops = list(self._by_line.items())
        looks = {id(loop) for _, loop in loops if self._only_looks(loop, fits)}
        loops = [(where, loop) for where, loop in loops if self._tells_itself(loop)]
        trains = fits or any(loop.record.kept is not None and id(loop) not in looks for _, loop in loops)
        loops = [(where, loop) for where, loop in loops if not (trains and id(loop) in looks)]
        yield from ((where, loop) for where, loop in loops if self._tells_itself(loop))

    def _partners(self, loop: Any) -> list[tuple[Loop, Any]]:
        """Return the loops that take a batch in each step of this one, with their lines: they are one training."""
        found = [(where, each) for where, each in list(self._by_line.items()) if loop.is_partner(each)]
        return [(where, each) for where, each in found if not self._hears or (loop.saw_training and each.saw_training)]

    def _tells_itself(self, loop: Any) -> bool:
        """Return whether no other loop tells of its waits: of partners the first does that has most of the wait."""
        partners = {id(each) for _, each in self._partners(loop)}
        together = [each for each in list(self._by_line.values()) if each is loop or id(each) in partners]
        longest_ns = max(each.own_wait_ns for each in (loop, *together))
        return next((each for each in together if 2 * each.own_wait_ns >= longest_ns), loop) is loop

    def _only_looks(self, loop: Any, fits: bool = False) -> bool:
        """Return whether a loop never took three batches in a row, and nothing says that it trains.

        Where no call can be seen to train, a loop that takes all of its data may train on a batch or two an epoch.
        """
        return bool(loop.only_looks and (self._hears or fits or not loop.takes_all))

    def end(self, fits: bool, guarded: Callable[[Callable[[], Any]], Any]) -> None:
        """End what is watched; nothing is left of what only looks where something else trains.

        Args:
            fits: as for `shown`.
            guarded: calls what it is given, and keeps its error from the program.
        """
        for loop in sorted(self._by_line.values(), key=lambda loop: self._only_looks(loop, fits)):
            guarded(functools.partial(self._end, loop, fits))

    def _end(self, loop: Any, fits: bool) -> None:
        if any(loop is each for _, each in self.shown(fits)):
            loop.record.remarks += [_TAKES_ALSO.format(where=where) for where, _ in self._partners(loop)]
            loop.end()
        else:
            loop.drop()

    def _leaves_a_look(self) -> bool:
        """Stop watching the first line that only looks at batches; return whether there was one.

        Where there is none, the one that took the fewest, as who shows some examples: no verdict comes of so few.
        """
        loops = list(self._by_line.items())
        untrained = [(where, loop) for where, loop in loops if not (loop.in_training or loop.trained_on)]
        looks = [where for where, loop in untrained if not loop.is_training or self._only_looks(loop)]
        few = sorted((loop.summary.steps, where) for where, loop in loops if loop.took_few)
        left = [*looks, *(where for _, where in few)][:1]
        for where in left:
            self._looks.add(where)
            self._by_line.pop(where).drop()
        return bool(left)


def _are_under_way(loops: list[Any]) -> bool:
    """Return whether data that any of the loops takes have not ended, as far as that is known."""
    return any(loop.takes_in_graphs or not loop.is_over for loop in loops)


def _is_in_backward() -> bool:
    """Return whether this thread is within PyTorch's `backward`, as that of each block of a reentrant checkpoint is."""
    number = getattr(getattr(sys.modules.get("torch"), "_C", None), "_current_graph_task_id", None)
    return number is not None and number() != -1
