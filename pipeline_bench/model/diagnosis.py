"""What a diagnosis says of a user's pipeline: the part of a session's file that a comparison does not have.

`pipeline_bench.diagnosis` decides it, the reports render it. The figures of each attempt are those of the session's
result of the same variant.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_bench.model import Record
from pipeline_bench.model.edits import Edit
from pipeline_bench.model.pipeline import Inspection, Target
from pipeline_bench.text import Line, Text

AS_WRITTEN = "as written"
"""The variant of the pipeline as the user wrote it: the one that the others are compared with."""
CEILING = "ceiling"
"""The variant of the user's model on one batch that stays on the device."""

DEFAULT_BUDGET_S = 120.0
"""Seconds that a diagnosis takes at most, by default."""
LEAST_BUDGET_S = 20.0
"""The inspection and one round of trials take some 15 s."""
MOST_BUDGET_S = 86_400.0
"""Beyond a day a budget is a mistake in the unit."""

Cause = Literal["python", "cpu", "reading", "waiting", "filling", "handing-over"]
Outcome = Literal[
    "proposed", "faster", "no-gain", "slower", "refused", "not-applicable", "failed", "not-tried", "pending"
]
NotTried = Literal["budget", "not-needed", "interrupted", "at-limit"]
PROVEN: frozenset[Outcome] = frozenset({"proposed", "faster"})
"""What is faster than the pipeline as written."""
RULED_OUT: frozenset[Outcome] = frozenset({"refused", "not-applicable", "failed"})
"""What a trial has shown not to be possible, or not allowed."""


class Bottleneck(Record):
    """The stage that limits the pipeline, and by how much."""

    stage: int | None = None
    """None where no stage can be named, with the reason in `text`."""
    share: float | None = None
    """How much of the time between two elements it accounts for, 0 to 1; without a stage, what the costliest does."""
    certainty: Literal["certain", "probable"] = "certain"
    """``probable`` where all stages were measured alone and explain less than half of the time."""
    doubt: Literal["stages", "steps"] | None = None
    """What another measurement may show otherwise: the stages' costs, which do not go with the time of the whole
    pipeline or are not all known; or that time, of which only few steps were measured."""
    cause: Cause | None = None
    """``python``: it runs Python, one call at a time. ``cpu``: computing. ``reading``: it waits for files.
    ``waiting``: neither computes nor reads: latency. ``filling``: it fills a buffer.
    ``handing-over``: many small elements, or the batches of a pool of workers."""
    limits: bool = True
    """Whether steps wait for it; else it can only take cores from the model."""
    text: Line = ""
    """What it does to the pipeline, in one plain sentence."""


class Fix(Record):
    """A change to a pipeline that may make it faster: what to try."""

    kind: Line
    """The function in `diagnosis/fixes` that found it: ``parallel_map``."""
    variant: Line
    """The name of the variant that tries it, short and unique: ``parallel map(decode)``."""
    title: Line
    """What it does, in the imperative: ``Run decode on several cores``."""
    edits: tuple[Edit, ...]
    stages: tuple[int, ...] = ()
    """The stages that it touches."""
    reorders: bool = False
    """Whether samples may come in another order."""
    threads: bool = False
    """Whether a function of the user's must be safe to run on several threads at once."""
    because: Line = ""
    """Why it is worth a try, or its price, in one sentence: ``takes about 2.1 GB of memory``."""
    combines: tuple[Line, ...] = ()
    """The variants of the fixes that it consists of, of a combination."""

    @property
    def keeps(self) -> bool:
        """Whether later epochs have from memory or files what only the first one computes."""
        return any(edit.keeps for edit in self.edits)

    @property
    def kept_stages(self) -> list[int]:
        """The stages whose elements its edits keep, so that only the first epoch computes them."""
        return [edit.kept_stage for edit in self.edits if edit.kept_stage is not None]


EqualityStatus = Literal["identical", "reordered", "random", "unequal", "not-told"]


class Equality(Record):
    """Whether a fix left the samples as they were."""

    status: EqualityStatus = "not-told"
    """``identical``: the same batches in the same order. ``reordered``: the same samples in another order. ``random``:
    the same as far as samples with random content can show. ``unequal``: other samples: the fix is refused."""
    text: Line = ""


class CodeChange(Record):
    """The code to write for a fix."""

    diff: str | None = None
    """A unified diff against the user's file; None where there can be none."""
    root: Text | None = None
    """The folder that the diff's names start from; None where its files have none in common."""
    text: Text = ""
    """What to write, in words and code, where there is no diff, or what to add to it."""
    alike: tuple[Line, ...] = ()
    """The statements with the same calls that the measured pipeline is not made of, as ``train.py:31``."""


class Attempt(Record):
    """A fix and what became of it. Its gain is the speed-up of the session's result of that variant."""

    fix: Fix
    outcome: Outcome = "pending"
    reason: Line = ""
    """Why it was refused, failed or was not tried, in one sentence."""
    cause: NotTried | None = None
    """Why it was not tried, where it could have been. ``budget``: no time was left. ``at-limit``: of the input."""
    equality: Equality | None = None
    code: CodeChange | None = None


class Limit(Record):
    """How fast the pipeline could be if only one thing limited it."""

    name: Line
    """``the model``, ``all cores busy``, ``the disk``."""
    ms: float | None = None
    """Milliseconds an element of the sink; None where it was not measured, with the reason in `text`."""
    text: Line = ""


class Diagnosis(Record):
    """What was found out about a user's pipeline."""

    target: Target
    model: Target | None = None
    allow_reordering: bool = False
    allow_threads: bool = False
    data_service: Line | None = None
    """``grpc://HOST:PORT`` of a tf.data service that fixes may use; None where there is none."""
    budget_s: Annotated[float, Field(gt=0)]
    inspection: Inspection | None = None
    """None until the pipeline was inspected; see `failure` where that did not succeed."""
    bottleneck: Bottleneck | None = None
    attempts: tuple[Attempt, ...] = ()
    """Best first once the search has ended."""
    proposal: Line | None = None
    """The variant of the attempt that is proposed; None where nothing was found to help."""
    limits: tuple[Limit, ...] = ()
    reached_ms: float | None = None
    """Milliseconds an element of the pipeline as written, on average."""
    beyond: tuple[Line, ...] = ()
    """What no edit of the calls does and a change of the user's functions would, with the most that it can gain."""
    text: Line = ""
    """The conclusion, in one or two plain sentences."""
    says_bottleneck: bool = True
    """Whether what limits the pipeline is among them."""
    failure: Line | None = None
    """Why there is no diagnosis, where there is none; the user's own traceback is in `traceback`."""
    traceback: Text = ""

    def options_for(self, fix: Fix) -> tuple[str, ...]:
        """Return the options that the fix needs and that were not given; empty where it may be tried as it is."""
        threads, reorders = fix.threads and not self.allow_threads, fix.reorders and not self.allow_reordering
        return ("--allow-threads",) * threads + ("--allow-reordering",) * reorders

    def attempt(self, variant: str) -> Attempt:
        """Return the attempt of that variant.

        Raises:
            KeyError: there is none.
        """
        for attempt in self.attempts:
            if attempt.fix.variant == variant:
                return attempt
        raise KeyError(variant)
