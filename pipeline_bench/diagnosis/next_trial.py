"""What a diagnosis does next in one state of its session: another round, attempt or combination, or nothing. Pure.

A round begins with the pipeline as written (and the ceiling, with a model) and holds a few attempts. Every candidate is
tried once; those that gained go on until they are known well enough, and the best is tried together with others for as
long as that makes it faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from pipeline_bench.diagnosis import attempt_statistics, conclusion, segments, stage_graph, step_times, variants
from pipeline_bench.diagnosis.attempt_statistics import CONFIRMED_TRIALS, AttemptStatistics
from pipeline_bench.model.calls import WHOLE
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING, Attempt, Diagnosis, Fix
from pipeline_bench.model.edits import Edit, InsertAfter, MoveBefore
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial
from pipeline_bench.text import free_name
from pipeline_bench.text.units import NS_PER_MS

KIND = "combination"
"""The kind of a fix that consists of several."""
_MOST_CHARACTERS = 70
_ROUND_ATTEMPTS = 4
"""Attempts in a round: more would lie too far from the pipeline as written, which drifts with the machine."""
_WELL_KNOWN_TRIALS = 5
"""Trials of the best, where the budget allows: the interval of its gain is then much narrower than of three."""
_MOST_TRIALS = 8
"""Of the best, where the interval of its gain still reaches 1."""
_SCREENED_BY = 0.6
"""Screening ends at this part of the budget where something has gained by then."""
_COMBINED_BY = 0.8
"""No new combination is made after this part of the budget: what is left confirms the best."""
_COMBINATIONS_A_STEP = 3
"""With the best so far, at a time: they share a round with it."""
_MOST_PARTS = 4
"""Fixes in a combination: more would be a pipeline that nobody recognises as theirs."""
_WORTH_BESIDE = 0.15
"""A stage with this share of what is left of the time is worth a fix beside the best, whatever it gained alone."""
_LOST = 0.9
"""A fix that alone left less than this of the speed is no part of a combination."""
_FEW_STEPS, _BY_CHANCE = 16, 0.8
"""A trial of fewer steps may be so much slower by chance: a virtual machine drifts by more within a minute."""
_CLEARLY = 1.4
"""Two fixes that each gained so much in their first trial are tried together at once: a short budget ends before one of
them has been confirmed and both together as well."""
_LEADS = 1.2
"""What gained less is no better than what was not tried at all: it may be chance."""
_ABOUT_AS_MUCH = 1.25
"""A fix that is confirmed sooner is worth this much less of gain, when the budget ends."""
_SOME_OTHER = ""
"""Of `_has_time_for`: an attempt that was not tried yet."""
_NEAR = 0.97
"""Less than 3 % apart is near: trials of the same pipeline differ by as much (`thresholds.GAINED`)."""
_FAR = 2.0
"""From so many times the best so far on, how high the ceiling lies decides nothing."""
_CEILINGS = 2
"""Trials of a ceiling that is far away: of fewer, no interval can be had."""
_MOST_BASELINE_FAILURES = 3
"""Of the pipeline as written: without it, nothing can be compared any more."""


class NextTrial:
    """What to do next in one state of the session."""

    def __init__(self, session: Session, diagnosis: Diagnosis) -> None:
        self._session = session
        self._diagnosis = diagnosis
        self._found = attempt_statistics.of(session, diagnosis)
        self._timed = [trial for trial in session.trials if trial.variant != variants.INSPECTION]
        self._round = max((trial.repeat for trial in self._timed), default=0)
        self._in_round = {trial.variant for trial in session.trials if trial.repeat == self._round}
        self._ceilings = sum(trial.variant == CEILING and trial.measured for trial in self._timed)
        # What can no longer be confirmed gets no more of the budget: something that gained less still can be.
        in_reach = (each for each in self._found if each.contends and self._can_be_confirmed(each))
        least = _LEADS if self._untried else 1.0
        gained = (each for each in in_reach if max(each.gain or 0.0, self._over_an_epoch(each)) >= least)
        self._leaders = sorted(gained, key=self._as_leader)
        self._base = self._base_of_a_round()

    def next(self) -> tuple[Session, Trial | None]:
        """Return the trial, and the session with its variant and with the combinations that are new."""
        nothing = conclusion.nothing_to_gain(self._session)
        for name in self._base:  # of the first round, always: without them nothing can be said
            if self._round == 0 and name not in self._in_round:
                if nothing and not self._has_time_for([name]):  # a large model: it is known without its ceiling
                    return self._session, None
                return self._session, self._trial(name, 0)
        written = self._session.trials_of(AS_WRITTEN)
        if sum(not trial.measured for trial in written) >= _MOST_BASELINE_FAILURES:
            return self._session, None
        if nothing or not any(each.possible for each in self._found):
            return self._only_the_base()
        return self._attempt()

    def _base_of_a_round(self) -> list[str]:
        """Return what attempts are compared with: of a ceiling that is far away two trials are enough."""
        base = list(variants.base_of(self._diagnosis))
        room = conclusion.headroom(self._session)
        best = max((each.gain or 1.0 for each in self._leaders), default=1.0)
        far = room is not None and room >= _FAR * best
        return [
            name
            for name in base
            if name != CEILING or not far or self._ceilings < _CEILINGS or CEILING in self._in_round
        ]

    @property
    def spent(self) -> bool:
        """Whether no further trial fits into the budget."""
        return not self._has_time_for([*self._base, _SOME_OTHER])

    def _only_the_base(self) -> tuple[Session, Trial | None]:
        """Return a second round of the pipeline as written and its ceiling, to be sure where no fix is tried."""
        for name in self._base:
            if self._round == 0 or (self._round == 1 and name not in self._in_round):
                return (self._session, self._trial(name, 1)) if self._has_time_for([name]) else (self._session, None)
        return self._session, None

    def _attempt(self) -> tuple[Session, Trial | None]:
        session, diagnosis = self._session, self._diagnosis
        last = self._last_wanted()
        wanted = list(self._wanted()) if last is None else [last.name]
        if not wanted:
            added = self._combinations
            if not added:
                return session, None
            diagnosis = diagnosis.model_copy(update={"attempts": (*diagnosis.attempts, *added)})
            session = session.model_copy(update={"diagnosis": diagnosis})
            wanted = [attempt.fix.variant for attempt in added]
        # The rest of the budget goes to a proposal rather than to a ceiling that is known by one trial.
        base = [name for name in self._base if name != CEILING or last is None or not self._ceilings]
        due = [name for name in base if name not in self._in_round]
        here = [name for name in wanted if name not in self._in_round]
        full = len(self._in_round - {*self._base, variants.INSPECTION}) >= _ROUND_ATTEMPTS
        number = self._round
        if not here or (not due and (full or self._base_failed())):
            number, due, here = number + 1, base, wanted
        if not self._has_time_for([*due, here[0]]):
            return self._session, None
        if due:
            return session, self._trial(due[0], number)
        left_s = diagnosis.budget_s - self._charged_s
        session = variants.with_fix(session, diagnosis, diagnosis.attempt(here[0]).fix, left_s)
        asks = attempt_statistics.samples_to_report(session, here[0])
        return session, variants.trial(session, here[0], number, asks)

    def _wanted(self) -> Iterator[str]:
        """Yield the variants that should have another trial, the most urgent first."""
        fresh, leaders = self._untried, self._leaders
        now = [each.name for each in fresh if self._screening or each.attempt.fix.combines]
        if not now and self._combinations:
            return
        # In every round, so that it is known by the time that others could be built upon it.
        yield from (each.name for each in leaders[:1] if each.trials < CONFIRMED_TRIALS)
        # One more attempt is to leave the time to try the best one often enough to propose it.
        rounds = self._rounds_to_confirm(leaders[0].name, leaders[0].trials) if leaders else []
        if self._has_time_for([_SOME_OTHER, *rounds]):
            yield from now
        if fresh and not leaders:
            return
        if not self._combinations:
            yield from self._unsure(leaders)

    @cached_property
    def _untried(self) -> list[AttemptStatistics]:
        return [each for each in self._found if each.possible and each.ended == 0]

    @property
    def _screening(self) -> bool:
        """Whether attempts are tried that were not tried yet."""
        return not self._leaders or self._charged_s < _SCREENED_BY * self._diagnosis.budget_s

    def _last_wanted(self) -> AttemptStatistics | None:
        """Return the attempt that needs the rest of the budget to be confirmed; None while there is more time.

        Of those that gained about as much as the best, the one that needs the fewest trials for it. After the screening
        also the best that has all of these, and is still not known to gain: on a noisy machine other attempts in its
        rounds would take most of the time.
        """
        for best in self._leaders[:1]:
            if not self._screening and not best.faster and CONFIRMED_TRIALS <= best.trials < _MOST_TRIALS:
                return best
        most = max(map(self._over_an_epoch, self._leaders), default=0.0)
        alike = [each for each in self._leaders if self._over_an_epoch(each) * _ABOUT_AS_MUCH >= most]
        last = min(alike, key=lambda each: (-each.trials, -self._over_an_epoch(each)), default=None)
        if last is None or last.trials >= CONFIRMED_TRIALS:
            return None
        rounds = self._rounds_to_confirm(last.name, last.trials)
        return None if self._has_time_for([*rounds, _SOME_OTHER]) else last

    def _unsure(self, leaders: list[AttemptStatistics]) -> Iterator[str]:
        """Yield what more trials may decide: of those that gained, the unconfirmed; of the rest, the disturbed."""
        for each in leaders[1:]:
            is_near = (each.in_all or 0.0) >= _NEAR * (leaders[0].in_all or 1.0)  # more trials may turn the two
            beaten = each.attempt.fix.combines and not is_near
            if each.trials < CONFIRMED_TRIALS and not beaten:
                yield each.name
        known = next((each for each in leaders if each.trials < _WELL_KNOWN_TRIALS), None)
        if leaders and known is leaders[0]:
            yield known.name
        for each in leaders[:1]:
            if not each.faster and each.trials < _MOST_TRIALS:
                yield each.name
        yield from (each.name for each in self._found if self._deserves_another(each))

    def _deserves_another(self, each: AttemptStatistics) -> bool:
        """Return whether the only trial of an attempt may mislead.

        Other programs disturbed it, or the one it is held against; or it had few steps, and nothing else has gained.
        """
        if not each.possible or each.contends or each.trials != 1 or each.attempt.fix.combines:
            return False
        own = next(trial for trial in self._timed if trial.variant == each.name and trial.measured)
        if not self._leaders and len(own.step_ns) < _FEW_STEPS and (each.gain or 0.0) >= _BY_CHANCE:
            return True
        beside = {(each.name, own.repeat), (AS_WRITTEN, own.repeat)}
        return any((found.variant, found.repeat) in beside for found in self._session.disturbances)

    @cached_property
    def _combinations(self) -> list[Attempt]:
        """The best so far with one more fix each, where that has not been tried and could be worth it."""
        best = next(iter(self._leaders), None)
        late = self._charged_s > _COMBINED_BY * self._diagnosis.budget_s
        if best is None or late or self._at_the_ceiling(best):
            return []
        # Nothing new is begun that cannot be confirmed.
        if not self._has_time_for([_SOME_OTHER, *self._rounds_to_confirm(best.name, 1)]):
            return []
        singles = {each.name: each for each in self._found if not each.attempt.fix.combines}
        names = best.attempt.fix.combines or (best.name,)
        parts = [singles[name] for name in names]
        if len(parts) >= _MOST_PARTS:
            return []
        tried = {frozenset(each.attempt.fix.combines) for each in self._found}
        partners = self._partners(parts, best.gain or 1.0)[:_COMBINATIONS_A_STEP]
        if best.trials < CONFIRMED_TRIALS:  # else nothing is built upon what is not confirmed
            partners = [each for each in partners if min(each.gain or 0.0, best.gain or 0.0) >= _CLEARLY]
        taken, inspection = {each.name for each in self._found}, self._diagnosis.inspection
        assert inspection is not None
        added = []
        for partner in partners:
            if frozenset({*names, partner.name}) not in tried:
                together = [*(part.attempt.fix for part in parts), partner.attempt.fix]
                added.append(Attempt(fix=combine(together, inspection, taken)))
                taken.add(added[-1].fix.variant)
        return added

    def _as_leader(self, each: AttemptStatistics) -> tuple[bool, float]:
        """Return a key that sorts by gain; a combination that gains hardly more than a part of it comes last."""
        return conclusion.beaten(each, conclusion.best_part(each, self._found)), -self._over_an_epoch(each)

    def _over_an_epoch(self, each: AttemptStatistics) -> float:
        inspection = self._diagnosis.inspection
        assert inspection is not None
        return attempt_statistics.over_an_epoch(each, inspection, self._times)

    @cached_property
    def _times(self) -> step_times.StepTimes:
        return step_times.of(self._session)

    def _can_be_confirmed(self, each: AttemptStatistics) -> bool:
        """Return whether an attempt has as many trials as a proposal needs, or the budget still allows them."""
        needed = [AS_WRITTEN, each.name] * (CONFIRMED_TRIALS - each.trials)
        if AS_WRITTEN in self._in_round and each.name not in self._in_round:
            needed = needed[1:]
        return not needed or self._has_time_for(needed)

    def _at_the_ceiling(self, best: AttemptStatistics) -> bool:
        """Return whether the model takes all of the step that is left."""
        room = conclusion.headroom(self._session)
        return room is not None and (best.gain or 0.0) >= _NEAR * room

    def _partners(self, parts: list[AttemptStatistics], gain: float) -> list[AttemptStatistics]:
        """Return the single fixes that fit to these, sorted by what they gained, then by what they may gain."""
        inspection = self._diagnosis.inspection
        assert inspection is not None
        costs = segments.of(inspection, self._session.environment.cores)
        left_ns = (step_times.mean_ms(self._session, AS_WRITTEN) or 0.0) * NS_PER_MS / gain
        touched = {stage for part in parts for stage in part.attempt.fix.stages}
        ranked = []
        for each in self._found:
            fix = each.attempt.fix
            fits = all(compatible(part.attempt.fix, fix, inspection) for part in parts)
            if fix.combines or not each.possible or not fits or (each.gain is not None and each.gain < _LOST):
                continue
            share = costs.cost_ns(set(fix.stages) - touched) / left_ns if left_ns else 0.0
            if each.contends or share >= _WORTH_BESIDE:
                ranked.append((each.gain if each.contends and each.gain else 0.0, share, each))
        ranked.sort(key=lambda one: (-one[0], -one[1]))
        return [each for _, _, each in ranked]

    def _has_time_for(self, names: Sequence[str]) -> bool:
        """Return whether a trial of each of these fits into what is left; one never tried may take as the longest."""
        longest_s = max(self._own_s.values(), default=variants.expected_s(self._diagnosis))
        tell = [name for name in set(names) - {CEILING} if attempt_statistics.wants_fingerprint(self._session, name)]
        needed_s = sum(self._own_s.get(name, longest_s) for name in names) + self._telling_s * len(tell)
        return self._charged_s + needed_s <= self._diagnosis.budget_s

    @cached_property
    def _telling_s(self) -> float:
        """What telling its samples, which a variant does in its first trial alone, took at most."""
        return max((trial.phase_s("fingerprint") for trial in self._timed), default=0.0)

    @cached_property
    def _own_s(self) -> dict[str, float]:
        return attempt_statistics.seconds_a_trial(self._session, self._diagnosis)

    @cached_property
    def _charged_s(self) -> float:
        return self._session.charged_s

    def _rounds_to_confirm(self, name: str, trials: int) -> list[str]:
        """Return the variants of the rounds that a variant with so many trials needs until it is confirmed."""
        return [*self._base, name] * (CONFIRMED_TRIALS - trials)

    def _base_failed(self) -> bool:
        written = self._session.trials_of(AS_WRITTEN)
        return any(trial.repeat == self._round and not trial.measured for trial in written)

    def _trial(self, name: str, number: int) -> Trial:
        is_known = name != AS_WRITTEN or not attempt_statistics.wants_fingerprint(self._session, name)
        return variants.trial(self._session, name, number, "none" if is_known else "own")


def compatible(one: Fix, other: Fix, inspection: Inspection) -> bool:
    """Return whether the edits of two fixes can be made together: no two of them want the same thing otherwise."""
    if one.variant == other.variant or (one.kind == other.kind and one.stages == other.stages):
        return False
    left, right = _claims(one), _claims(other)
    whole = {stage for stage, what in left | right if what == WHOLE}
    shared = {stage for stage, _ in left} & {stage for stage, _ in right}
    is_free = not (left & right) and not (whole & shared)
    return is_free and not (_moves_before_cache(one, other, inspection) or _moves_before_cache(other, one, inspection))


def _moves_before_cache(moving: Fix, caching: Fix, inspection: Inspection) -> bool:
    """Return whether a fix moves a stage in front of what another caches.

    The cache would keep a shuffle's order of the first epoch for ever, and never be full behind a repeat.
    """
    cached = map(inspection.stage, caching.kept_stages)
    before = {each.id for stage in cached for each in stage_graph.upstream(inspection, stage)}
    return any(isinstance(edit, MoveBefore) and edit.other in before for edit in moving.edits)


def combine(parts: Sequence[Fix], inspection: Inspection, taken: set[str]) -> Fix:
    """Return the fix that consists of these.

    Args:
        parts: single fixes that are compatible, the one that gained most first.
        inspection: the pipeline as it is written.
        taken: the names of other variants.
    """
    edits = sorted((edit for part in parts for edit in part.edits), key=lambda edit: edit.order)
    edits = _ending(edits, inspection)
    names = [part.variant for part in parts]
    name = " + ".join(names)
    if len(name) > _MOST_CHARACTERS:
        name = f"{names[0]} + {len(names) - 1} more"
    return Fix(
        kind=KIND,
        variant=free_name(name, taken, " #"),
        title="; ".join([parts[0].title, *(f"{part.title[:1].lower()}{part.title[1:]}" for part in parts[1:])]),
        edits=tuple(edits),
        stages=tuple(dict.fromkeys(stage for part in parts for stage in part.stages)),
        reorders=any(part.reorders for part in parts),
        threads=any(part.threads for part in parts),
        because="; ".join(part.because for part in parts if part.because),
        combines=tuple(names),
    )


def _ending(edits: Sequence[Edit], inspection: Inspection) -> list[Edit]:
    """Return the edits with a prefetch at the end behind what then ends the pipeline: others may move its sink."""
    order = [stage.id for stage in reversed(stage_graph.trunk(inspection))]
    for edit in edits:
        if isinstance(edit, MoveBefore) and {edit.stage, edit.other} <= set(order):
            order.remove(edit.stage)
            order.insert(order.index(edit.other), edit.stage)
    return [
        edit.model_copy(update={"stage": order[-1]})
        if isinstance(edit, InsertAfter) and edit.method == "prefetch" and edit.stage == inspection.sink
        else edit
        for edit in edits
    ]


def _claims(fix: Fix) -> set[tuple[int | str, str]]:
    return {claim for edit in fix.edits for claim in edit.claims()}
