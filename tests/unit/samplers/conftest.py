from tests.stubs.nvml import nvml_stub

__all__ = ["nvml_stub"]
