from tests.stubs.nvml import nvml_stub, old_nvml_stub

__all__ = ["nvml_stub", "old_nvml_stub"]
