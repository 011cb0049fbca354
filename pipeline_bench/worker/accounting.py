"""What a trial sets up around its training, whichever way it runs: the account of its samples, and of its files."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import Work
from pipeline_bench.model.trial import Trial
from pipeline_bench.sources import Source
from pipeline_bench.worker import culprit, evidence, ledger, storage
from pipeline_bench.worker.channel import Channel
from pipeline_bench.worker.recorder import Recorder


class Accountable(NamedTuple):
    """What an account of the samples is opened on."""

    source: Source
    has_evidence: bool
    """Whether a step that is looked at shows anything of its samples."""
    features: Any
    """The shape of a batch's features, a `tf.TensorShape`."""
    reorder_window: int | None
    """As `Input.reorder_window`."""


def open_account(of: Accountable, channel: Channel, recorder: Recorder) -> None:
    """Have the samples that reach the model accounted for, where they can be told apart; else say why they are not."""
    source = of.source
    if not of.has_evidence:
        reason = f"the source {source.name} neither numbers its samples nor says how they are distributed"
        if source.identity is not None:
            reason = f"the backend drops the numbers that the source {source.name} gives its samples"
        channel.send(Work(batch_size=source.batch_size, reason=reason))
        return
    values = evidence.values_per_sample(of.features)
    opened = ledger.open_ledger(source, values, of.reorder_window)
    if opened is not None:
        recorder.account(opened, evidence.cost_us(source, values))


def prepare_storage(source: Source, recorder: Recorder) -> storage.PageCacheController | None:
    """Have the source's files made cold or warm; None where it reads none.

    Raises:
        PipelineBenchError: one cannot be read.
    """
    keeper = storage.open_keeper(source, lambda: recorder.steps)
    if keeper is not None:
        recorder.phase(storage.PHASE)
        try:
            keeper.prepare(recorder.heartbeat)
        except OSError as error:
            raise PipelineBenchError(f"{error.filename} cannot be read: {error.strerror}.") from error
    return keeper


def stand(trial: Trial, source: Source, reorder_window: int | None, recorder: Recorder) -> culprit.Stand:
    """Where to look for the record that the trial failed at; the watch takes that for progress."""
    recorder.phase(culprit.PHASE)
    return culprit.stand(recorder.steps, source, reorder_window, trial.variant.run.stall_timeout_s)
