"""One trial of a user's own pipeline: inspect it, take from it, or train on it."""

from __future__ import annotations

from pipeline_bench.trial import Trial
from pipeline_bench.user_pipeline import Task
from pipeline_bench.worker.channel import Channel
from pipeline_bench.worker.recorder import Recorder


def run(trial: Trial, channel: Channel, recorder: Recorder) -> None:
    """Do what the trial's task says, and tell the parent."""
    Task.model_validate(trial.variant.source.options)
    raise NotImplementedError
