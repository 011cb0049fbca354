"""The device as NVIDIA's driver reports it: the utilization of one GPU, and the gauges beside it.

Calls NVML in the process it runs in, which NVML may stop or end: see `nvml_process`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from pipeline_bench.samplers import Reading, Sampler
from pipeline_bench.samplers.nvml_devices import NO_GPU, NvmlDevice, describe, first_visible, normalise_pci_bus_id
from pipeline_bench.samplers.nvml_errors import LOST, NOTHING_NEW, Code, code_of, explain
from pipeline_bench.samplers.nvml_gauges import GAUGES, SHARE_OF_TIME, Gauge

UTILIZATION = "device_utilization_percent"
METRICS = (UTILIZATION, *(gauge.metric for gauge in GAUGES))
SAMPLES_SOURCE = "NVML samples"
RATES_SOURCE = "NVML utilization rates"

_RATES_WINDOW_NS = 1_000_000_000 // 6
"""The shortest window nvmlDeviceGetUtilizationRates averages over, 1/6 s to 1 s by product (nvml.h, nvmlUtilization_t):
the same figure read again sooner is the same measurement, not a second one."""

_SILENCE_NS = 2_000_000_000
"""Without a buffered sample for this long (twice the longest window) the driver is not filling its buffer."""

_STAMP_AHEAD_NS = 500_000_000
_STAMP_BEHIND_NS = 60_000_000_000
"""How far a buffered sample's stamp may lie from now before it is taken for another clock's; the driver keeps some
ten seconds of samples, and a wall clock that was set makes an error of any size."""

_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of nvmlValue_t that holds the value, by nvmlValueType_t (nvml.h)."""


class NvmlReader(Sampler):
    """Reads one GPU through NVML.

    Attributes:
        reason: why no GPU can be read, in one plain line; None where one can.
        driver: the driver's version, where it could be asked.
        devices: the GPUs that could be described.
        selected: the GPU that `poll` reads.
    """

    def __init__(
        self, clock_ns: Callable[[], int] = time.monotonic_ns, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.reason: str | None = None
        self.driver: str | None = None
        self.devices: tuple[NvmlDevice, ...] = ()
        self.selected: NvmlDevice | None = None
        self._clock_ns = clock_ns
        self._wall_ns = wall_ns
        self._nvml: Any = None
        self._handle: Any = None
        self._not_selected: str | None = "no GPU was selected"
        self._absence: str | None = self._not_selected
        self._explained: set[str] = set()
        self._buffered = False
        self._last_seen_us = 0
        self._heard_ns = 0
        self._last_rate: tuple[int, float] | None = None

    @classmethod
    def open(
        cls, clock_ns: Callable[[], int] = time.monotonic_ns, wall_ns: Callable[[], int] = time.time_ns
    ) -> NvmlReader:
        """Load NVML, list the GPUs and select the first visible; whatever fails is `reason`, never an exception.

        Args:
            clock_ns: the clock that readings are stamped with, in nanoseconds (``time.monotonic_ns``).
            wall_ns: the clock that the driver stamps its samples with, in nanoseconds since 1970.
        """
        reader = cls(clock_ns, wall_ns)
        try:
            reader._attach()
        except Exception as error:  # a broken install or driver raises more than NVMLError: AttributeError, OSError …
            reader.reason = explain(error)
            reader.close()
        reader.select(None)
        return reader

    @property
    def available(self) -> bool:
        """Whether there is a GPU that NVML can read."""
        return self.reason is None

    def select(self, pci_bus_id: str | None) -> NvmlDevice | None:
        """Choose the GPU to sample and begin.

        Args:
            pci_bus_id: as TensorFlow or NVML writes it; None for the first visible (see `first_visible`).

        Returns:
            The GPU, or None where there is no such one; `poll` then gives the reason once for each metric.
        """
        self.selected, self._not_selected = self._find(pci_bus_id)
        if self.selected is not None:
            try:
                self._handle = self._nvml.nvmlDeviceGetHandleByIndex(self.selected.index)
            except Exception as error:
                self.selected, self._not_selected = None, explain(error)
        self.begin()
        return self.selected

    def begin(self) -> None:
        """Start a trial: drop what the driver buffered before now, and let absent metrics be explained anew.

        The instrument of the trial's device utilization is chosen here: the driver's buffered samples if it has any.
        """
        self._absence = self._not_selected
        self._explained.clear()
        self._last_rate = None
        self._last_seen_us = 0
        self._heard_ns = self._clock_ns()
        if self._absence is None:
            self._buffered = True
            self._buffered = bool(self._new_samples())

    def poll(self) -> list[Reading]:
        """Every value that is new since the last call; a metric that cannot be read gives its reason once a trial."""
        now_ns = self._clock_ns()
        readings: list[Reading] = []
        if self._absence is None:
            readings += self._poll_utilization(now_ns)
        for gauge in GAUGES:
            if self._absence is None:
                readings += self._poll_gauge(gauge, now_ns)
        if self._absence is not None:
            source = SAMPLES_SOURCE if self._buffered else RATES_SOURCE
            readings += explain_all(self._absence, source, self._explained, now_ns)
        return readings

    def close(self) -> None:
        """Shut NVML down; safe to call twice. `poll` returns nothing afterwards."""
        nvml, self._nvml = self._nvml, None
        self._absence = self._not_selected = self.reason or "the sampler was closed"
        self._explained.update(METRICS)
        self._handle = self.selected = None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except Exception:  # the driver is gone already: nothing is left to give back
                return

    def _attach(self) -> None:
        import pynvml  # noqa: PLC0415 - a broken install is a reason, not a crash at start-up

        pynvml.nvmlInit()
        self._nvml = pynvml  # from here on close() has something to shut down
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())
        found: list[NvmlDevice] = []
        refused: str | None = None
        for index in range(int(pynvml.nvmlDeviceGetCount())):
            try:
                found.append(describe(pynvml, index))
            except Exception as error:  # one GPU that is lost or not ours hides no other
                refused = explain(error)
        self.devices = tuple(found)
        if not found:
            self.reason = refused or NO_GPU

    def _find(self, pci_bus_id: str | None) -> tuple[NvmlDevice | None, str | None]:
        if self.reason is not None or self._nvml is None:
            return None, self.reason or "the sampler was closed"
        if pci_bus_id is None:
            return first_visible(self.devices, os.environ)
        wanted = normalise_pci_bus_id(pci_bus_id)
        for device in self.devices:
            if device.pci_bus_id == wanted:
                return device, None
        return None, f"NVML lists no GPU at PCI address {pci_bus_id}"

    def _poll_utilization(self, now_ns: int) -> list[Reading]:
        readings: list[Reading] = []
        if self._buffered:
            offset_ns = self._wall_ns() - now_ns
            readings = [
                Reading(UTILIZATION, SAMPLES_SOURCE, _on_our_clock(stamp_us, offset_ns, now_ns), value)
                for stamp_us, value in self._new_samples()
            ]
            if readings:
                self._heard_ns = now_ns
            elif now_ns - self._heard_ns > _SILENCE_NS:
                self._buffered = False
        if self._absence is None and not self._buffered:
            readings = self._poll_rates(now_ns)
        return readings

    def _new_samples(self) -> list[tuple[int, float]]:
        """The driver's new samples (microseconds since 1970, percent); a failure turns `_buffered` off."""
        nvml = self._nvml
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(
                self._handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._last_seen_us
            )
            field = _VALUE_FIELDS[kind]
            pairs = [(int(sample.timeStamp), float(getattr(sample.sampleValue, field))) for sample in samples]
        except Exception as error:
            code = code_of(error)
            if code in LOST:
                self._absence = explain(error)
            elif code not in NOTHING_NEW:
                self._buffered = False
            return []
        # Slots that were never filled have stamp 0, and what is no share of time is no utilization.
        fresh = sorted(
            pair for pair in pairs if pair[0] > self._last_seen_us and SHARE_OF_TIME.why_not(pair[1]) is None
        )
        if fresh:
            self._last_seen_us = fresh[-1][0]
        return fresh

    def _poll_rates(self, now_ns: int) -> list[Reading]:
        try:
            given = self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu
            if (reason := SHARE_OF_TIME.why_not(given)) is not None:
                return self._explain(UTILIZATION, RATES_SOURCE, reason, now_ns)
            value = float(given)
        except Exception as error:
            return self._failed(UTILIZATION, RATES_SOURCE, error, now_ns)
        if self._last_rate is not None:
            last_ns, last_value = self._last_rate
            if value == last_value and now_ns - last_ns < _RATES_WINDOW_NS:
                return []
        self._last_rate = (now_ns, value)
        return [Reading(UTILIZATION, RATES_SOURCE, now_ns, value)]

    def _poll_gauge(self, gauge: Gauge, now_ns: int) -> list[Reading]:
        try:
            given = gauge.read(self._nvml, self._handle)
            if (reason := gauge.plausible.why_not(given)) is not None:
                return self._explain(gauge.metric, gauge.source, reason, now_ns)
            return [Reading(gauge.metric, gauge.source, now_ns, float(given))]
        except Exception as error:
            return self._failed(gauge.metric, gauge.source, error, now_ns)

    def _failed(self, metric: str, source: str, error: Exception, now_ns: int) -> list[Reading]:
        code = code_of(error)
        if code in LOST:
            self._absence = explain(error)
            return []
        if code in NOTHING_NEW:
            return []
        under_mig = code == Code.NOT_SUPPORTED and self.selected is not None and self.selected.mig_enabled
        reason = "NVML does not report it while MIG is enabled on this GPU" if under_mig else explain(error)
        return self._explain(metric, source, reason, now_ns)

    def _explain(self, metric: str, source: str, reason: str, now_ns: int) -> list[Reading]:
        """The reason, once; the metric is asked for again all the same, since NVML refuses now and then."""
        if metric in self._explained:
            return []
        self._explained.add(metric)
        return [Reading(metric, source, now_ns, reason=reason)]


def explain_all(reason: str, utilization_source: str, explained: set[str], now_ns: int) -> list[Reading]:
    """Give the reason for each metric that is not yet in `explained`, and enter it there."""
    every = [(UTILIZATION, utilization_source), *((gauge.metric, gauge.source) for gauge in GAUGES)]
    left = [pair for pair in every if pair[0] not in explained]
    explained.update(metric for metric, _ in left)
    return [Reading(metric, source, now_ns, reason=reason) for metric, source in left]


def _on_our_clock(stamp_us: int, offset_ns: int, now_ns: int) -> int:
    """Bring a wall-clock stamp to the clock of `now_ns`; an implausible one becomes now."""
    at_ns = stamp_us * 1000 - offset_ns
    return at_ns if now_ns - _STAMP_BEHIND_NS <= at_ns <= now_ns + _STAMP_AHEAD_NS else now_ns
