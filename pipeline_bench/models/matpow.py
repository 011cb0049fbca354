"""matpow: A^n + B^n by repeated matmul, on one device or one power on each of two; it trains nothing."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.errors import UsageError
from pipeline_bench.models import Model, TrainingGraph
from pipeline_bench.scenario import Runtime
from pipeline_bench.sources import Batch

_SEEDS = {"A": 300, "B": 301}


class MatpowOptions(plugins.Options):
    """How large the matrices are, which power of them is taken, and on how many devices."""

    size: Annotated[int, Field(ge=1, le=32768, description="rows and columns of A and B")] = 512
    power: Annotated[int, Field(ge=1, le=1000, description="n of A^n + B^n")] = 10
    devices: Annotated[
        Literal[1, 2], Field(description="1: both powers on one device; 2: one power on each of two")
    ] = 1


class Matpow(Model):
    """A and B are random and stay on their devices; each step multiplies anew, and adds the two powers on the CPU.

    The devices are two GPUs where there are two, else CPU devices, for one as for two.
    """

    name = "matpow"
    summary = "A^n + B^n by repeated matmul, on one device or one power on each of two; it trains nothing"
    Options = MatpowOptions
    least_gpus = 2
    trains = False

    def check(self, runtime: Runtime) -> None:
        if self.options.devices == 1:
            return
        if runtime.device.startswith("gpu"):
            raise UsageError(
                f"matpow was given devices = 2, and runtime.device is {runtime.device!r}, which is one.",
                'Set runtime.device = "auto", which takes two GPUs where there are two, or "cpu".',
            )
        if runtime.cpu_devices == 1:
            raise UsageError(
                "matpow was given devices = 2, and runtime.cpu_devices is 1.",
                "Set runtime.cpu_devices = 2; where there are two GPUs, these are used.",
            )

    def build(self, batch: Batch, evaluation: Batch) -> TrainingGraph:
        """Build it for any batch, which is only waited for; the loss is NaN, the variable ``matpow_sum`` keeps the sum.

        An op whose result nobody takes would be pruned, and every matmul with it: hence the variable.
        """
        import tensorflow as tf

        v1 = tf.compat.v1
        size = self.options.size
        first, second = self.devices[0], self.devices[self.options.devices - 1]
        with tf.control_dependencies(batch.tensors):
            powers = [self._power("A", first), self._power("B", second)]
        with tf.device("/cpu:0"):
            kept = v1.get_variable("matpow_sum", [size, size], initializer=v1.zeros_initializer(), use_resource=True)
            done = kept.assign(powers[0] + powers[1], read_value=False)
            with tf.control_dependencies([done]):
                return TrainingGraph(done, tf.identity(tf.constant(math.nan)))

    def _power(self, name: str, device: str) -> Any:
        """Return the matrix to the power n, float32 [size, size], by n - 1 multiplications on the device.

        Entries of variance 1 / size hold back the powers' growth: the eigenvalues of a large random matrix lie in the
        unit circle, or hardly outside (Ginibre, "Statistical ensembles of complex, quaternion, and real matrices",
        1965). A small one to the power of hundreds may still overflow, which takes no other time.
        """
        import tensorflow as tf

        v1 = tf.compat.v1
        size = self.options.size
        seed = _SEEDS[name]
        normal = v1.random_normal_initializer(stddev=size**-0.5, seed=seed)
        with tf.device(device):
            matrix = v1.get_variable(
                f"matpow_{name}",
                [size, size],
                initializer=normal,
                use_resource=True,
            ).read_value()
            product = matrix
            for _ in range(self.options.power - 1):
                product = tf.matmul(matrix, product)
            return product
