"""NVIDIA's driver, read in a process of its own, so that an NVML that hangs or crashes takes nothing else along.

``python -m pipeline_bench.samplers.nvml_reader SOCKET_FD PARENT_PID``. The socket carries one JSON object a line. To
the parent: the state of `NvmlReader` once it is open, then one answer for each request, in their order. From the
parent: ``{"ask": "select", "pci_bus_id": …}``, ``{"ask": "begin", "both": …}``, ``{"ask": "poll"}``; the end of its
requests asks the process to end. `nvml.NvmlSampler` is the other side.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from pipeline_bench.samplers import Reading, Sampler
from pipeline_bench.samplers.gpm import Gpm
from pipeline_bench.samplers.nvml_metrics import (
    GAUGES,
    LOST,
    METRICS,
    NO_GPU,
    NOT_SUPPORTED,
    NOTHING_NEW,
    RATES,
    SAMPLES_SOURCE,
    UTILIZATION,
    Gauge,
    NvmlDevice,
    code_of,
    explain,
    explain_all,
    first_visible,
    normalise_pci_bus_id,
)
from pipeline_bench.system.processes import leave

_CLOSED = "the sampler was closed"

_RATES_WINDOW_NS = 1_000_000_000 // 6
"""The shortest window nvmlDeviceGetUtilizationRates averages over, 1/6 s to 1 s by product (nvml.h, nvmlUtilization_t):
the same figure read again sooner is the same measurement, not a second one."""
_SILENCE_NS = 2_000_000_000
"""Without a buffered sample for this long (twice the longest window) the driver is not filling its buffer."""
_STAMP_AHEAD_NS = 500_000_000
_STAMP_BEHIND_NS = 60_000_000_000
"""How far a buffered sample's stamp may lie from now before it is taken for another clock's; the driver keeps some
ten seconds of samples, and a wall clock that was set makes an error of any size."""
_CHECK_PARENT_MS = 1000

_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of nvmlValue_t that holds the value, by nvmlValueType_t (nvml.h)."""


class NvmlReader(Sampler):
    """Reads one GPU through NVML, whose calls may hang or end the process that makes them.

    Attributes:
        reason: why no GPU can be read, in one plain line; None where one can.
        driver: the driver's version, where it could be asked.
        devices: the GPUs that could be described.
        selected: the GPU that `poll` reads.
    """

    def __init__(
        self, clock_ns: Callable[[], int] = time.monotonic_ns, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """Load NVML, list the GPUs and select the first visible; whatever fails is `reason`, never an exception.

        Args:
            clock_ns: the clock that readings are stamped with, in nanoseconds (``time.monotonic_ns``).
            wall_ns: the clock that the driver stamps its samples with, in nanoseconds since 1970.
        """
        self.reason: str | None = None
        self.driver: str | None = None
        self.devices: tuple[NvmlDevice, ...] = ()
        self.selected: NvmlDevice | None = None
        self._clock_ns = clock_ns
        self._wall_ns = wall_ns
        self._nvml: Any = None
        self._handle: Any = None
        self._not_selected: str | None = None
        self._absence: str | None = None
        self._explained: set[str] = set()
        self._buffered = False
        self._last_seen_us = 0
        self._heard_ns = 0
        self._last_rate: tuple[int, float] | None = None
        self._gpm: Gpm | None = None
        self._both = False
        try:
            self._attach()
        except Exception as error:  # a broken install or driver raises more than NVMLError: AttributeError, OSError …
            self.reason = explain(error)
            self.close()
        self.select(None)

    def select(self, pci_bus_id: str | None) -> None:
        """Choose the GPU to sample and begin; `poll` gives the reason once for each metric where there is no such one.

        Args:
            pci_bus_id: as TensorFlow or NVML writes it; None for the first visible (see `first_visible`).
        """
        self.selected, self._not_selected = self._find(pci_bus_id)
        self._close_gpm()
        if self.selected is not None:
            try:
                self._handle = self._nvml.nvmlDeviceGetHandleByIndex(self.selected.index)
                self._gpm = Gpm(self._nvml, self._handle, self.selected.mig_enabled, self._clock_ns)
            except Exception as error:
                self.selected, self._not_selected = None, explain(error)
        self.begin()

    def begin(self, both: bool = False) -> None:
        """Start a trial: drop what the driver buffered before now, and let absent metrics be explained anew.

        The instrument of the trial's device utilization is chosen here: the driver's buffered samples if it has any.

        Args:
            both: read the utilization by both instruments, to hold the one against the other.
        """
        self._both = both
        if self._gpm is not None:
            self._gpm.begin()
        self._absence = self._not_selected
        self._explained.clear()
        self._last_rate = None
        self._last_seen_us = 0
        self._heard_ns = self._clock_ns()
        if self._absence is None:
            self._buffered = True
            self._buffered = bool(self._new_samples())

    def poll(self) -> list[Reading]:
        """Return every value that is new; a metric that cannot be read gives its reason once a trial."""
        now_ns = self._clock_ns()
        readings: list[Reading] = []
        if self._absence is None:
            readings += self._poll_samples(now_ns)
        for gauge in (*(() if self._buffered and not self._both else (RATES,)), *GAUGES):
            if self._absence is None:
                readings += self._poll_gauge(gauge, now_ns)
        if self._absence is None and self._gpm is not None:
            readings += self._gpm.poll()
        if self._absence is not None:
            source = SAMPLES_SOURCE if self._buffered else RATES.source
            readings += explain_all(self._absence, source, self._explained, now_ns)
        return readings

    def close(self) -> None:
        """Shut NVML down; safe to call twice. `poll` returns nothing afterwards."""
        self._close_gpm()
        nvml, self._nvml = self._nvml, None
        self._absence = self._not_selected = self.reason or _CLOSED
        self._explained.update(METRICS)
        self._handle = self.selected = None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except Exception:  # the driver is gone already: nothing is left to give back
                return

    def _close_gpm(self) -> None:
        gpm, self._gpm = self._gpm, None
        if gpm is not None:
            with contextlib.suppress(Exception):  # the driver is gone already
                gpm.close()

    def _attach(self) -> None:
        import pynvml  # noqa: PLC0415 - a broken install is a reason, not a crash at start-up

        pynvml.nvmlInit()
        self._nvml = pynvml  # from here on close() has something to shut down
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())
        devices: list[NvmlDevice] = []
        refused: str | None = None
        for index in range(int(pynvml.nvmlDeviceGetCount())):
            try:
                devices.append(NvmlDevice.at(pynvml, index))
            except Exception as error:  # one GPU that is lost or not ours hides no other
                refused = explain(error)
        self.devices = tuple(devices)
        if not devices:
            self.reason = refused or NO_GPU

    def _find(self, pci_bus_id: str | None) -> tuple[NvmlDevice | None, str | None]:
        if self.reason is not None or self._nvml is None:
            return None, self.reason or _CLOSED
        if pci_bus_id is None:
            return first_visible(self.devices, os.environ)
        wanted = normalise_pci_bus_id(pci_bus_id)
        device = next((device for device in self.devices if device.pci_bus_id == wanted), None)
        return device, None if device else f"NVML lists no GPU at PCI address {pci_bus_id}"

    def _poll_samples(self, now_ns: int) -> list[Reading]:
        """Return the driver's buffered samples of the utilization; a buffer that falls silent is given up."""
        if not self._buffered:
            return []
        offset_ns = self._wall_ns() - now_ns
        readings = []
        for stamp_us, value in self._new_samples():
            at_ns = stamp_us * 1000 - offset_ns
            plausible = now_ns - _STAMP_BEHIND_NS <= at_ns <= now_ns + _STAMP_AHEAD_NS
            readings.append(Reading(UTILIZATION, SAMPLES_SOURCE, at_ns if plausible else now_ns, value))
        if readings:
            self._heard_ns = now_ns
        elif now_ns - self._heard_ns > _SILENCE_NS:
            self._buffered = False
        return readings

    def _new_samples(self) -> list[tuple[int, float]]:
        """Return the driver's new samples (microseconds since 1970, percent); a failure turns `_buffered` off."""
        nvml = self._nvml
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(
                self._handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._last_seen_us
            )
            field = _VALUE_FIELDS[kind]
            pairs = [(int(sample.timeStamp), float(getattr(sample.sampleValue, field))) for sample in samples]
        except Exception as error:
            if code_of(error) in LOST:
                self._absence = explain(error)
            elif code_of(error) not in NOTHING_NEW:
                self._buffered = False
            return []
        # Slots that were never filled have stamp 0, and what is no share of time is no utilization.
        fresh = sorted(pair for pair in pairs if pair[0] > self._last_seen_us and RATES.implausible(pair[1]) is None)
        if fresh:
            self._last_seen_us = fresh[-1][0]
        return fresh

    def _poll_gauge(self, gauge: Gauge, now_ns: int) -> list[Reading]:
        reason: str | None
        mig_enabled = self.selected is not None and self.selected.mig_enabled
        try:
            value = gauge.read(self._nvml, self._handle)
            of_others = "while MIG is enabled on this GPU, NVML counts all of its instances"
            reason = of_others if gauge.of_whole_gpu and mig_enabled else gauge.implausible(value)
        except Exception as error:
            if code_of(error) in LOST:
                self._absence = explain(error)
                return []
            if code_of(error) in NOTHING_NEW:
                return []
            under_mig = code_of(error) == NOT_SUPPORTED and mig_enabled
            reason = "NVML does not report it while MIG is enabled on this GPU" if under_mig else explain(error)
        if reason is None:
            return (
                []
                if gauge is RATES and self._is_same_rate(now_ns, value)
                else [Reading(gauge.metric, gauge.source, now_ns, float(value))]
            )
        # The reason, once; the metric is asked for again all the same, since NVML refuses now and then.
        if gauge.metric in self._explained:
            return []
        self._explained.add(gauge.metric)
        return [Reading(gauge.metric, gauge.source, now_ns, reason=reason)]

    def _is_same_rate(self, now_ns: int, value: float) -> bool:
        """Return whether this is the figure of the last poll, read again within the window it averages over."""
        if self._last_rate is not None:
            last_ns, last_value = self._last_rate
            if value == last_value and now_ns - last_ns < _RATES_WINDOW_NS:
                return True
        self._last_rate = (now_ns, value)
        return False


# --- the process -----------------------------------------------------------------------------------------------------


def _answer(reader: NvmlReader, request: dict[str, Any]) -> dict[str, Any]:
    """Do what a request asks for, and return the answer to it."""
    match request["ask"]:
        case "select":
            reader.select(request["pci_bus_id"])
            return _state(reader)
        case "begin":
            reader.begin(request.get("both", False))
            return {}
        case "poll":
            return {"readings": [vars(reading) for reading in reader.poll()]}
        case other:
            raise ValueError(other)


def _state(reader: NvmlReader) -> dict[str, Any]:
    """Return the GPU that is sampled, or the first there is, for the answer to the opening and to ``select``."""
    device = reader.selected or next(iter(reader.devices), None)
    return {"reason": reader.reason, "driver": reader.driver, "name": device.name if device else None}


def main() -> None:
    """Open NVML, and answer until the parent asks for no more; without a GPU to read there is nothing to ask for."""
    descriptor, parent = (int(argument) for argument in sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with_parent, args=(descriptor, parent), daemon=True).start()
    reader = NvmlReader()
    _send(connection, _state(reader))
    if reader.reason is None:
        with connection.makefile("rb") as requests:
            for line in requests:
                _send(connection, _answer(reader, json.loads(line)))
    reader.close()
    leave(ok=True)


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    # What this process takes is the profiler's own use of the machine, and none of other programs'.
    connection.sendall(json.dumps({**message, "cpu_s": time.process_time()}).encode() + b"\n")


def _end_with_parent(descriptor: int, parent: int) -> None:
    """End the process when the parent has closed the socket or has ended, also while a call of NVML hangs.

    A process that the parent has forked may hold the socket open, so that its end alone would not do. It is not the
    parent by which the kernel knows this process, see `nvml._DETACHED`.
    """
    poller = select.poll()
    poller.register(descriptor, 0)  # whatever is registered, the other side's end is reported
    with contextlib.suppress(psutil.Error):  # it has ended before
        process = psutil.Process(parent)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if poller.poll(_CHECK_PARENT_MS):
                break
    os._exit(0)


if __name__ == "__main__":
    main()
