"""NVIDIA's driver by its C interface: kernels of a known length, copies of a known size, the device's own events.

Nothing but the driver is needed, no framework and no compiler: it compiles the kernels, which are in PTX, itself.
"""

from __future__ import annotations

import ctypes
from typing import Any, Literal

from pipeline_bench.errors import PipelineBenchError

LIBRARY = "libcuda.so.1"
Kernel = Literal["spin", "tensor"]

_TARGETS = ("sm_80", "sm_70", "sm_52")
"""What the kernels are written for, the newest first; the driver takes what its GPU has."""
_HEAD = ".version 7.0\n.target {target}\n.address_size 64\n"
# Both run until the GPU's clock has advanced by so many ns, whatever the SMs' clock rate is.
_SPIN = """
.visible .entry spin(.param .u64 ns, .param .u64 out)
{
  .reg .u64 %rd<5>; .reg .pred %p;
  ld.param.u64 %rd1, [ns];
  mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p, %rd4, %rd1;
  @%p bra again;
  ret;
}
"""
_TENSOR = """
.visible .entry tensor(.param .u64 ns, .param .u64 out)
{
  .reg .u64 %rd<6>; .reg .pred %p; .reg .b32 %a<4>; .reg .b32 %b<2>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [ns];
  ld.param.u64 %rd5, [out];
  cvta.to.global.u64 %rd5, %rd5;
  mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0; mov.b32 %b0, 0; mov.b32 %b1, 0;
  mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
  mov.u64 %rd2, %globaltimer;
again:
MMA
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p, %rd4, %rd1;
  @%p bra again;
  st.global.f32 [%rd5], %f0;
  ret;
}
"""
_MMA = (
    "  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{%f0,%f1,%f2,%f3}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%f0,%f1,%f2,%f3};\n"
)
_MMAS = 64
"""Between two looks at the clock."""
_THREADS = 256
_SM_COUNT, _CLOCK_KHZ, _BUS_BITS = 16, 36, 37
"""CUdevice_attribute (cuda.h): MULTIPROCESSOR_COUNT, MEMORY_CLOCK_RATE, GLOBAL_MEMORY_BUS_WIDTH."""
_NON_BLOCKING = 1
_EXPLAINED = {
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": "the driver's compiler, libnvidia-ptxjitcompiler.so.1, is not there; a "
    "container needs it beside libcuda.so.1",
    "CUDA_ERROR_JIT_COMPILATION_DISABLED": "CUDA_DISABLE_PTX_JIT forbids it",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than 450, the first that knows PTX 7.0",
}
"""What a refusal to compile the kernels means, by cuda.h's names."""


def ptx(target: str) -> str:
    """Return the kernels for that target; tensor cores are addressed so from sm_80 on."""
    kernels = _SPIN + (_TENSOR.replace("MMA\n", _MMA * _MMAS) if target >= "sm_80" else "")
    return _HEAD.format(target=target) + kernels


def pci_bus_id(number: int) -> str | None:
    """Return the PCI address of the GPU that CUDA numbers so; None where there is no driver or no such GPU.

    No context is made, and so no memory of the GPU is taken.
    """
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    device, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), number):
        return None
    return None if driver.cuDeviceGetPCIBusId(text, 32, device) else text.value.decode()


class Gpu:
    """The GPU that CUDA numbers 0; every method raises PipelineBenchError where the driver refuses."""

    def __init__(self) -> None:
        """Load the driver, take the GPU, and let it compile the kernels."""
        try:
            self._driver = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise PipelineBenchError(f"{LIBRARY} cannot be loaded: {error}") from error
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._device = device
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._module = self._loaded()
        self._out = self.memory(64)

    @property
    def sm_count(self) -> int:
        return self._attribute(_SM_COUNT)

    @property
    def memory_bytes_per_s(self) -> float:
        """What its memory can move at most: two transfers a clock, over the whole bus."""
        return 2.0 * 1e3 * self._attribute(_CLOCK_KHZ) * self._attribute(_BUS_BITS) / 8

    def stream(self) -> Any:
        """Make a stream of its own."""
        made = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(made), _NON_BLOCKING)
        return made

    def event(self, stream: Any) -> Any:
        """Record a new event behind what the stream has to do."""
        made = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(made), 0)
        self._call("cuEventRecord", made, stream)
        return made

    def wait(self, event: Any) -> None:
        self._call("cuEventSynchronize", event)

    def ms_between(self, first: Any, second: Any) -> float:
        """Return the ms between two events that are over, by the device."""
        took = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(took), first, second)
        return float(took.value)

    def launch(self, stream: Any, ns: int, blocks: int, kernel: Kernel = "spin") -> None:
        """Run a kernel for so long, on as many SMs as it has blocks at most."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
        values = (ctypes.c_uint64(ns), ctypes.c_uint64(self._out))
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
        self._call("cuLaunchKernel", function, blocks, 1, 1, _THREADS, 1, 1, 0, stream, pointers, None)

    def memory(self, size_bytes: int) -> int:
        """Take memory of the device."""
        at = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size_bytes))
        return int(at.value)

    def release(self, at: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(at))

    def pinned(self, size_bytes: int) -> Any:
        """Take memory of the host that the device reads by itself; it is given back with the process."""
        at = ctypes.c_void_p()
        self._call("cuMemAllocHost_v2", ctypes.byref(at), ctypes.c_size_t(size_bytes))
        return at

    def copy_in(self, to: int, host: Any, size_bytes: int, stream: Any) -> None:
        """Copy from the host to the device; of pageable memory the call itself takes part of the time."""
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(to), host, ctypes.c_size_t(size_bytes), stream)

    def copy_within(self, to: int, source: int, size_bytes: int, stream: Any) -> None:
        places = (ctypes.c_uint64(to), ctypes.c_uint64(source))
        self._call("cuMemcpyDtoDAsync_v2", *places, ctypes.c_size_t(size_bytes), stream)

    @property
    def has_tensor_kernel(self) -> bool:
        """Whether the kernel on tensor cores was compiled."""
        return self._target >= "sm_80"

    def _loaded(self) -> Any:
        refused = ""
        for target in _TARGETS:
            module = ctypes.c_void_p()
            try:
                self._call("cuModuleLoadData", ctypes.byref(module), ptx(target).encode() + b"\0")
            except PipelineBenchError as error:
                refused = error.message
                continue
            self._target = target
            return module
        raise PipelineBenchError(f"the driver compiled none of the kernels: {refused}")

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return int(value.value)

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._driver, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(text))
            name = text.value.decode() if text.value else str(code)
            meaning = f" ({_EXPLAINED[name]})" if name in _EXPLAINED else ""
            raise PipelineBenchError(f"{function} failed: {name}{meaning}")
