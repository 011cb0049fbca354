"""host_ceiling: the ceiling with its batch in host memory, from where every step copies it to the model's device."""

from __future__ import annotations

from pipeline_bench.backends.ceiling import Ceiling


class HostCeiling(Ceiling):
    """What the copy of a batch is measured by: the ceiling's step with the copy that a step without prefetch makes.

    Its batch is a value of the CPU device that an op of the model takes, as a batch of tf.data's iterator is.
    """

    name = "host_ceiling"
    summary = "one batch in host memory, which each step copies to the device; added where the model is on a GPU"
    listed = False

    def home(self, device: str | None) -> str:
        return "/cpu:0"
