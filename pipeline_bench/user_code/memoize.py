"""Calls in the user's Python that give the same for the same arguments, and what they give for a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.model.calls import Gives, MemoizableCall
from pipeline_bench.user_code import call_results, kept_results, set_anew
from pipeline_bench.user_code.function_calls import Maker, calls_in, compiled_with, functions_of, runs_through
from pipeline_bench.user_code.kept_results import Memo, writing_refused
from pipeline_bench.user_code.set_anew import is_key

_Taker = Callable[[], Callable[[], Any]]
"""Returns what makes one more batch."""

_TIMES_COMPARED = 8
"""So many results are computed twice: a function may draw from a generator of its own, as a coin is thrown."""
_EPOCHS_COMPARED = 2
"""What a call is given may stand for something else in the next epoch, as a place in a list that is shuffled."""
WORTH = 0.15
"""Of the time of a batch: what a call takes at least that is worth keeping."""
_LEAST_CALL_NS = 10_000
"""Of one call: a shorter one, as the split of a line, takes no longer than to look up what it gave."""
_LEAST_TIMED_NS = 50_000_000
"""Batches are timed for so long at least: another program may have the core for several ms of one."""
_MADE_SHARE, _MOST_MADE_BYTES = 1 / 2, 2**28
"""Of the time for an epoch, and in all: behind that, what calls gave stands for what they would give."""
_ALONE = 1.05
_MOST_TRIED = 6
"""So many calls are compared with themselves, those that take the most first."""
_NEARLY, _MOST_OTHERS, _MUCH_LESS = 0.8, 3, 2.0
"""Then, of each that gives the same, so many that it is a part of, or that are a part of it, and take nearly as much;
one of them is kept in its place if its results are so many times smaller."""


def find(
    taker: _Taker,
    lines: Sequence[tuple[str, int]],
    seconds: float,
    alive: Callable[[], None],
    again: _Taker | None = None,
) -> list[MemoizableCall]:
    """Return the calls in some lines whose results can be kept, those that take most of a batch's time first.

    None of them runs within another. Where the assignments that one is among give much less, as of a picture that is
    made smaller, they are kept instead. Those whose arguments are drawn, or may be, come last.

    Args:
        taker: returns what makes a batch in this thread, from the first one of the next epoch on.
        lines: files and lines of the user's.
        seconds: about the most time.
        alive: called after each batch, as a sign of life.
        again: returns what makes the same batch each time; None of a generator, which the taker then begins anew.
    """
    search = _Search(taker, lines, seconds, alive, again)
    kept: list[MemoizableCall] = []
    tried = 0
    for call in search.promising:
        if tried == _MOST_TRIED or (tried and search.is_over):  # one is compared however long a batch takes
            break
        if search.runs_apart(call, kept):
            tried += 1
            if search.gives_the_same(call):
                kept.append(search.smallest(call, kept))
    return [search.known[call] for call in kept]


def with_sizes(
    calls: Iterable[MemoizableCall], taker: _Taker, batches: int, seconds: float, alive: Callable[[], None]
) -> list[MemoizableCall]:
    """Return calls with the size of what they give for a batch, on average of an epoch, or of what of it was made.

    What they gave stands for what there is no time to make; they are returned as they are where the code behind them
    fails on that. What the user's objects keep of it is then wrong: nothing else can be measured in this process.

    Args:
        calls: as `find` returns them.
        taker: returns what makes a batch in this thread, from the first one of the next epoch on.
        batches: of an epoch.
        seconds: about the most time.
        alive: called after each batch, as a sign of life.
    """
    looks = {call: _Look([]) for call in calls}
    memos = {call: Memo() for call in looks}
    begun_s, made, stands_in = time.monotonic(), 0, False

    def maker(call: MemoizableCall) -> Maker:
        return lambda key, make: looks[call](key, lambda: memos[call](key, make))

    try:
        with compiled_with({call: maker(call) for call in looks}), ExitStack() as standing_in:
            take = taker()
            for _ in range(batches):
                take()
                made += 1
                alive()
                took_s = time.monotonic() - begun_s
                if took_s > seconds:
                    break
                is_large = sum(look.bytes for look in looks.values()) > _MOST_MADE_BYTES
                if not stands_in and (is_large or took_s > _MADE_SHARE * seconds):
                    stands_in = True
                    standing_in.enter_context(writing_refused())
                    for memo in memos.values():
                        memo.stand_in()
    except Exception:  # whatever it is: what is known of fewer batches holds
        return list(looks)
    sizes = {call: look.bytes / made for call, look in looks.items() if look.calls and not look.refused}
    return [call.model_copy(update={"batch_bytes": sizes.get(call, call.batch_bytes)}) for call in looks]


class _Search:
    """Times the calls in some lines beside each other, then compares some with themselves."""

    def __init__(
        self,
        taker: _Taker,
        lines: Sequence[tuple[str, int]],
        seconds: float,
        alive: Callable[[], None],
        again: _Taker | None = None,
    ) -> None:
        """Time the calls; the arguments are those of `find`."""
        self._taker, self._end_s, self._alive = taker, time.monotonic() + seconds, alive
        functions = functions_of({file for file, _ in lines})
        promising = self._timed([call for file, line in lines for call in calls_in(file, line, functions)])
        # What the calls give may be objects, which read their file when they are asked for a part, or be made smaller.
        through = [each for each in runs_through(lines, functions) if not any(_cross(each, run) for run in promising)]
        if through and not (promising and self.is_over):
            promising = self._timed([*promising, *through]) or promising
        differ = kept_results.in_the_same_batch if again else kept_results.by_later_draws
        self._drawn = differ(promising, again or taker, self._end_s, alive) if promising else {}
        self.promising = sorted(promising, key=self._seldom_again)
        self.known: dict[MemoizableCall, MemoizableCall] = {}
        """Of each call that was compared and gives the same, the same call with what is known of it."""
        self._not_the_same: set[MemoizableCall] = set()

    def _timed(self, calls: Iterable[MemoizableCall]) -> list[MemoizableCall]:
        """Time calls beside each other; return those that can be named and take much, the costliest first."""
        under_way: list[_Look] = []
        looks = {call: _Look(under_way) for call in calls}
        batch_ns = _made_with(looks, self._taker, self._end_s, self._alive) if looks else 1
        timed = {
            call: look
            for call, look in looks.items()
            if look.calls and not look.refused and look.spent_ns >= _LEAST_CALL_NS * look.calls
        }
        share = {call: look.spent_ns / batch_ns for call, look in timed.items()}
        # A call alone is the smaller change, where the assignments around it take little beside it.
        ranked = sorted(share, key=lambda call: share[call] * (1.0 if call.variable else _ALONE), reverse=True)
        found = [call for call in ranked if share[call] >= WORTH]
        if found:
            self._looks, self._share = looks, share
        return found

    def _seldom_again(self, call: MemoizableCall) -> int:
        """Return how seldom the arguments of a call may come again: of what is drawn, most seldom."""
        return (False, None, True).index(self._drawn[call])

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._end_s

    def runs_apart(self, call: MemoizableCall, others: Iterable[MemoizableCall]) -> bool:
        """Return whether a call is none of some others, ran within none of them, and none of them within it."""
        look, beside = self._looks[call], [self._looks[each] for each in others]
        return not any(each is look or look.ran_within(each) or each.ran_within(look) for each in beside)

    def gives_the_same(self, call: MemoizableCall) -> bool:
        """Return whether a call gives the same for the same arguments, as far as it was compared: once."""
        if call in self.known or call in self._not_the_same:
            return call in self.known
        look = _Look([], compares=True)
        for _ in range(_EPOCHS_COMPARED):
            if not look.refused:
                look.begin_anew()
                _made_with({call: look}, self._taker, self._end_s, self._alive)
        loses = look.gives == "opened" and call_results.asks_of_opened(call)
        if look.refused or not look.gave_any or loses or look.may_switch(call):
            self._not_the_same.add(call)
            return False
        known = {"share": min(1.0, self._share[call]), "batch_bytes": look.batch_bytes, "gives": look.gives}
        self.known[call] = call.model_copy(update={**known, "singles": look.singles, "drawn": self._drawn[call]})
        return True

    def smallest(self, call: MemoizableCall, kept: Sequence[MemoizableCall]) -> MemoizableCall:
        """Return the call, or what is around or in it and gives much less, while there is time to compare that.

        It runs apart from those that are kept already, and its arguments are not drawn if those of the call are not:
        a part that is drawn of a picture is smaller, and another one in each epoch.
        """
        nearly = _NEARLY * self._share[call]
        near = [each for each in self.promising if self._share[each] >= nearly and not self.runs_apart(each, [call])]
        as_fixed = [each for each in near if each != call and self._seldom_again(each) <= self._seldom_again(call)]
        others = [each for each in as_fixed if self.runs_apart(each, kept)]
        sizes = {call: self.known[call].batch_bytes}
        for each in others[:_MOST_OTHERS]:
            if not self.is_over and self.gives_the_same(each):
                sizes[each] = self.known[each].batch_bytes
        least = min(sizes, key=sizes.__getitem__)
        return least if _MUCH_LESS * sizes[least] <= sizes[call] else call


def _cross(one: MemoizableCall, other: MemoizableCall) -> bool:
    """Return whether both are assignments of which some are among the others, and begin in two places."""
    begins_there = (one.line, one.column) == (other.line, other.column)
    return bool(one.variable and other.variable) and not begins_there and (one.is_around(other) or other.is_around(one))


def _made_with(looks: Mapping[MemoizableCall, _Look], taker: _Taker, end_s: float, alive: Callable[[], None]) -> int:
    """Make batches until the time has come, or all looks have seen enough of them; return how long they took.

    The first is counted only if there is no time for another: it may hold what is done once, such as reading a list.
    """
    took_ns, is_first = 0, True
    try:
        with compiled_with(looks):
            take = taker()
            while True:
                start_ns = time.perf_counter_ns()
                take()
                took_ns += time.perf_counter_ns() - start_ns
                alive()
                for look in looks.values():
                    look.batches += 1
                if time.monotonic() > end_s or all(look.refused for look in looks.values()):
                    break
                if is_first:
                    took_ns, is_first = 0, False
                    for look in looks.values():
                        look.begin_anew()
                elif took_ns >= _LEAST_TIMED_NS and all(look.refused or look.saw_enough for look in looks.values()):
                    break
    except Exception:  # whatever it is: with nothing looked at, a batch can be made
        for look in looks.values():
            look.refused = True
    return max(1, took_ns)


class _Look:
    """Notes of a call how long it takes, and what speaks against keeping its results."""

    def __init__(self, under_way: list[_Look], compares: bool = False) -> None:
        """Look at a call beside others; those of them that run at the moment are in `under_way`."""
        self._under_way, self._compares = under_way, compares
        self._around: set[_Look] = set()
        self.refused, self.singles = False, compares
        self.begin_anew()
        self._digests: dict[tuple[Any, ...], Any] = {}
        self._compared: list[Any] = []
        """Results that are held, so that others get no memory of theirs."""
        self._kinds: set[Gives] = set()
        self.gave_any = False
        """Whether there was a result that is not None."""
        self._seen: dict[tuple[Any, ...], None] = {}

    def begin_anew(self) -> None:
        """Forget what was counted."""
        self.calls = self.batches = self.spent_ns = self._with_new = 0
        self.bytes = 0.0
        self._keys: set[tuple[Any, ...]] = set()

    @property
    def batch_bytes(self) -> float:
        """The size of the different results for a batch, up to the last that has a new one: more may be the same ones.

        The next epoch may have begun with them, whose length is not known.
        """
        return self.bytes / self._with_new

    def may_switch(self, call: MemoizableCall) -> bool:
        """Return whether one value of a key was seen that may be switched: with another one the call may be random.

        That is a text, or nothing, or zero, which the code sets anew; or what is true or false, from wherever.
        """
        of_owner = ["None"] if call.owner else []  # its identity
        texts = [*(each for each in call.arguments if each != call.owner), *of_owner, *call.owner_reads]
        for text, values in zip(texts, zip(*self._seen, strict=True), strict=True):
            one = values[0]
            may_be = str(one) in ("True", "False") and set_anew.sets_truths(call.file)
            may_be = may_be or ((not one or isinstance(one, str)) and set_anew.is_set_anew(text, call.file))
            if may_be and len(set(values)) == 1:
                return True
        return False

    @property
    def saw_enough(self) -> bool:
        return self.calls >= (_TIMES_COMPARED if self._compares else 1)

    @property
    def gives(self) -> Gives:
        return next(iter(self._kinds)) if len(self._kinds) == 1 else "other"

    def ran_within(self, other: _Look) -> bool:
        """Return whether the call ran while another was under way."""
        return other in self._around

    def __call__(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        before = random_states() if self._compares else None
        self._around.update(self._under_way)
        self._under_way.append(self)
        start_ns = time.perf_counter_ns()
        try:
            made = make()
            gives = call_results.gives(made)
            made = call_results.loaded(made)  # what decodes it is part of what keeping it spares
        finally:
            self.spent_ns += time.perf_counter_ns() - start_ns
            self._under_way.pop()
        self.calls += 1
        if self._compares and random_states() != before:  # it drew, though it may seldom use that
            self.refused = True
        size = call_results.memory_bytes(made)
        if self.refused or size is None or not all(map(is_key, key)):
            self.refused = True
            return made
        self.gave_any = self.gave_any or made is not None
        self._seen[key] = None
        if key not in self._keys:
            self._keys.add(key)
            self.bytes += size + sum(len(each) for each in key if isinstance(each, bytes | str))
            self._with_new = self.batches + 1
        self._kinds.add(gives)
        if self._compares and self.calls <= _TIMES_COMPARED:
            try:
                self.singles = self.singles and call_results.are_singles(made)
                digest, again = call_results.digest(made), make()
                same = digest == call_results.digest(again) == self._digests.setdefault(key, digest)
                self.refused = not same or any(call_results.share_memory(again, each) for each in self._compared)
                self._compared += (made, again)
            except Exception:  # as of a file that was read to its end
                self.refused = True
        return made


def random_states() -> tuple[Any, ...]:
    """Return the states of the random generators that all code shares: a draw changes one, and so does a seed."""
    from tensorflow.python.eager import context
    from tensorflow.python.ops import stateful_random_ops

    seeds = getattr(context.context(), "_rng", None)  # of what is drawn eagerly, once a seed was set for all
    shared = stateful_random_ops.global_generator  # None before it is asked for: asking makes it
    return (
        *user_code.python_random_states(),
        None if seeds is None else seeds.getstate(),
        None if shared is None else shared.state.numpy().tobytes(),
    )
