"""Watching a command's trainings without an edit: what is put into its Python processes, and what runs the command."""

OUT_VARIABLE = "PIPELINE_BENCH_RUN_OUT"
"""The one that names the folder for sessions."""
PACKAGE_VARIABLE = "PIPELINE_BENCH_RUN_PACKAGE"
"""The one that says where this package is found, and by which Python environment: `<sys.prefix>:<folder>`."""
