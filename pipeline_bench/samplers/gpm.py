"""GPM, what of a GPU was busy, on Hopper and newer: a figure is of two samples, and speaks of the time between them.

It may be had under MIG as well, of one GPU instance, which was not seen yet. Its figures are late, see `GPM_LAG_NS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from pipeline_bench.samplers import Reading
from pipeline_bench.samplers.nvml_metrics import (
    ACTIVITY,
    NOT_SUPPORTED,
    NOTHING_NEW,
    code_of,
    explain,
    mig_instances,
)

SOURCE = "NVML GPM"
_METRICS: Mapping[int, str] = dict(zip((2, 3, 5, 10, 20, 21), ACTIVITY, strict=True))
"""By nvmlGpmMetricId_t (nvml.h): SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL, DRAM_BW_UTIL, PCIE_TX_PER_SEC,
PCIE_RX_PER_SEC. They are asked for together: SM activity was seen to fail when sampled alone (DCGM, issue 244)."""
_MOST_PERCENT = 100.5
"""What is above by rounding is taken for 100."""
_LEAST_APART_NS = 90_000_000
"""nvml.h asks for 100 ms between two samples; ours are taken five times a second, and now and then a little early."""
_NONE_HERE = "NVML gives no GPM on this GPU; GPUs from Hopper on have it"
_OLD_PYNVML = "the imported pynvml does not know GPM: an old one, or not nvidia-ml-py's"


class Gpm:
    """The counters of one GPU or of one of its MIG instances; whatever fails is a reason, once a trial."""

    def __init__(self, nvml: Any, handle: Any, mig: bool, clock_ns: Callable[[], int]) -> None:
        """Ask whether there is GPM.

        Args:
            nvml: the module pynvml, initialised.
            handle: the GPU's.
            mig: whether MIG is enabled on it.
            clock_ns: the clock that readings are stamped with.
        """
        self._nvml, self._handle, self._clock_ns = nvml, handle, clock_ns
        self._instance: int | None = None
        self._samples: list[Any] = []
        self._taken_ns: int | None = None
        self._explained: set[str] = set()
        self._reason: str | None = None
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self._reason = _NONE_HERE
            elif mig:
                self._instance, self._reason = _visible_instance(nvml, handle)
        except Exception as error:  # an older driver, or pynvml, lacks the functions
            self._reason = _NONE_HERE if code_of(error) == NOT_SUPPORTED else _refusal(error)

    def begin(self) -> None:
        """Start a trial: the first figure speaks of no time before now."""
        self._explained.clear()
        self._taken_ns = None

    def poll(self) -> list[Reading]:
        """Return a value for each metric over the time since the last sample, or its reason once."""
        now_ns = self._clock_ns()
        if self._reason is None and (self._taken_ns is None or now_ns - self._taken_ns >= _LEAST_APART_NS):
            try:
                return self._poll()
            except Exception as error:
                if code_of(error) in NOTHING_NEW:  # no figure now; the next one reaches back to the last good sample
                    return []
                self._reason = _refusal(error)
        if self._reason is None:
            return []
        not_explained = [metric for metric in _METRICS.values() if metric not in self._explained]
        return [self._absent(metric, now_ns, self._reason) for metric in not_explained]

    def close(self) -> None:
        samples, self._samples = self._samples, []
        for sample in samples:
            self._nvml.nvmlGpmSampleFree(sample)

    def _poll(self) -> list[Reading]:
        while len(self._samples) < 2:  # noqa: PLR2004 - the last one, behind room for the next
            self._samples.insert(0, self._nvml.nvmlGpmSampleAlloc())
        at_ns = self._clock_ns()  # close to the sample: the other metrics of the poll have taken their time
        if self._instance is None:
            self._nvml.nvmlGpmSampleGet(self._handle, self._samples[0])
        else:
            self._nvml.nvmlGpmMigSampleGet(self._handle, self._instance, self._samples[0])
        self._samples.reverse()
        from_ns, self._taken_ns = self._taken_ns, at_ns
        return [] if from_ns is None else self._between(from_ns, at_ns)

    def _between(self, from_ns: int, at_ns: int) -> list[Reading]:
        asked = self._nvml.c_nvmlGpmMetricsGet_t()
        asked.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(_METRICS)
        asked.sample1, asked.sample2 = self._samples
        for place, number in enumerate(_METRICS):
            asked.metrics[place].metricId = number
        self._nvml.nvmlGpmMetricsGet(asked)
        readings = []
        for place, metric in enumerate(_METRICS.values()):
            got = asked.metrics[place]
            value, code = float(got.value), int(got.nvmlReturn)
            percent = metric.endswith("percent")
            if code == 0 and 0 <= value <= (_MOST_PERCENT if percent else 1e9):  # false of NaN
                readings.append(
                    Reading(metric, SOURCE, at_ns, min(value, 100.0) if percent else value, from_ns=from_ns)
                )
            elif metric not in self._explained:
                why = f"NVML gave {value}, which cannot be" if code == 0 else explain(self._nvml.NVMLError(code))
                readings.append(self._absent(metric, at_ns, why))
        return readings

    def _absent(self, metric: str, now_ns: int, reason: str) -> Reading:
        self._explained.add(metric)
        return Reading(metric, SOURCE, now_ns, reason=reason)


def _refusal(error: Exception) -> str:
    """Return why GPM cannot be read; a driver that is too old and a pynvml that is say nothing about the GPU."""
    return _OLD_PYNVML if isinstance(error, AttributeError) else explain(error)


def _visible_instance(nvml: Any, handle: Any) -> tuple[int | None, str | None]:
    """Return the GPU instance that CUDA numbers 0, or the reason why it is not known; raises what pynvml raises.

    It is the one that `CUDA_VISIBLE_DEVICES` begins with, by its UUID or as older drivers wrote it,
    ``MIG-GPU-…/INSTANCE/…``; the first where none is named.
    """
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    found = mig_instances(nvml, handle)
    if not found:
        return None, "MIG is enabled on this GPU, and NVML lists no MIG device"
    if not wanted.startswith("MIG-"):
        return found[0][1], None
    number = wanted.split("/")[1] if wanted.startswith("MIG-GPU-") and "/" in wanted else None
    for uuid, instance in found:
        if uuid.startswith(wanted) or number == str(instance):
            return instance, None
    return None, f"CUDA_VISIBLE_DEVICES begins with {wanted}, which is no MIG device that NVML lists on this GPU"
