"""Measurements of pipeline-bench itself; each module is a command, ``python -m benchmarks.<name>``."""
