"""``pipeline-bench doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline_bench.environment import Accelerator
    from pipeline_bench.model.session import Environment
    from pipeline_bench.run.tensorflow_probe import Probed
    from pipeline_bench.worker.probe import ProbeReport

PYTHON_NEEDED = (3, 11)
NARROWEST_TERMINAL = 80

GET_TENSORFLOW = "python -m pip install tensorflow"
GET_CUDA = 'python -m pip install "tensorflow[and-cuda]"'
GET_DRIVER = "With an NVIDIA GPU: install its driver from your distribution or nvidia.com/drivers, then run nvidia-smi."

Status = Literal["ok", "absent", "missing"]


@dataclass(frozen=True)
class Check:
    """One line of the list. ``absent`` is something `compare` can do without, ``missing`` something it cannot."""

    name: str
    status: Status
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Terminal:
    """Where stdout goes."""

    is_terminal: bool
    width: int
    encoding: str


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON, for a bug report.")] = False,
) -> None:
    """Check what `compare` needs; exit 0 when it can run here, a machine without a GPU included."""
    from contextlib import closing

    from pipeline_bench.environment import describe
    from pipeline_bench.run.tensorflow_probe import run_probe
    from pipeline_bench.samplers.nvml import NvmlSampler

    with closing(NvmlSampler.open()) as gpu:  # NVML opens while TensorFlow is imported
        probed = run_probe()
        accelerator = gpu.accelerator
    environment = describe(accelerator)
    checks = examine(environment, accelerator, probed, _terminal())
    usable = all(check.status != "missing" for check in checks)
    if as_json:
        content = {
            "usable": usable,
            "checks": [asdict(check) for check in checks],
            "environment": environment.model_dump(mode="json"),
            "tensorflow": probed.report.model_dump(mode="json") if probed.report else None,
            "stderr": probed.stderr,
        }
        typer.echo(json.dumps(content, indent=1, ensure_ascii=False))
    else:
        _show(checks, usable, probed.stderr)
    raise typer.Exit(0 if usable else 1)


def examine(
    environment: Environment, accelerator: Accelerator, probed: Probed, terminal: Terminal
) -> tuple[Check, ...]:
    """The list, from what was found."""
    report = probed.report
    return (
        _python(environment),
        _tensorflow(environment, probed),
        *((_matmul(report, probed.gpus),) if report else ()),
        _gpu(probed, accelerator),
        _driver(accelerator),
        _nvml(accelerator),
        _cuda(probed),
        Check("CPU", "ok", environment.cpu),
        Check("cores", "ok", f"{environment.cores} usable by this process"),
        *(
            (Check("threads", "ok", f"{report.cpu_threads} logical: TensorFlow's choice for each pool"),)
            if report
            else ()
        ),
        _memory(environment),
        _display(terminal),
    )


def _terminal() -> Terminal:
    import shutil
    import sys

    return Terminal(sys.stdout.isatty(), shutil.get_terminal_size().columns, sys.stdout.encoding)


def _python(environment: Environment) -> Check:
    version = tuple(int(part) for part in environment.python.split(".")[:2])
    if version < PYTHON_NEEDED:
        needed = ".".join(str(part) for part in PYTHON_NEEDED)
        return Check("Python", "missing", environment.python, f"Install Python {needed} or newer.")
    return Check("Python", "ok", environment.python)


def _tensorflow(environment: Environment, probed: Probed) -> Check:
    if probed.report:
        build = f"built for CUDA {probed.report.cuda}" if probed.report.built_with_cuda else "built for the CPU only"
        return Check(
            "TensorFlow", "ok", f"{probed.report.tensorflow}, {build}; imports in {probed.report.import_s:.1f} s"
        )
    if environment.tensorflow is None:
        return Check("TensorFlow", "missing", "not installed", GET_TENSORFLOW)
    return Check(
        "TensorFlow",
        "missing",
        f"{environment.tensorflow} is installed, but cannot be used: {probed.reason}",
        f"Mend what is shown below, or install it again: {GET_TENSORFLOW}",
    )


def _matmul(report: ProbeReport, gpus: Sequence[str]) -> Check:
    if report.matmul.ok:
        return Check("matmul", "ok", f"a small product came out right on {report.matmul.device}")
    return Check(
        "matmul",
        "missing",
        f"a small product failed on {report.matmul.device}: {report.matmul.error}",
        "Compare on the CPU with --set runtime.device=cpu, or mend the GPU's set-up." if gpus else GET_TENSORFLOW,
    )


def _gpu(probed: Probed, accelerator: Accelerator) -> Check:
    if probed.gpus:
        return Check("GPU", "ok", ", ".join(probed.gpus))
    if accelerator.name is None:
        return Check("GPU", "absent", "none found; everything is measured on the CPU", GET_DRIVER)
    why = "; ".join(probed.report.reasons) if probed.report else ""
    found = f"{accelerator.name} is there, but TensorFlow does not use it{': ' + why if why else ''}"
    return Check("GPU", "absent", found, GET_CUDA)


def _driver(accelerator: Accelerator) -> Check:
    if accelerator.driver:
        return Check("driver", "ok", accelerator.driver)
    return Check("driver", "absent", "no NVIDIA driver answered", "")


def _nvml(accelerator: Accelerator) -> Check:
    if accelerator.name is not None and accelerator.reason is None:
        return Check("NVML", "ok", f"reads {accelerator.name}")
    reason = accelerator.reason or "it lists no GPU"
    return Check("NVML", "absent", f"device utilization is the CPU's: {reason}", "")


def _cuda(probed: Probed) -> Check:
    from pipeline_bench.environment import distribution_version

    report = probed.report
    packages = ("nvidia-cuda-runtime", "nvidia-cudnn", "nvidia-cublas")
    versions = [(name, distribution_version(f"{name}-cu12") or distribution_version(name)) for name in packages]
    found = ", ".join(f"{name.removeprefix('nvidia-')} {version}" for name, version in versions if version)
    if probed.gpus:
        return Check("CUDA libraries", "ok", found or "found by TensorFlow on the system's library path")
    if report and not report.built_with_cuda:
        return Check("CUDA libraries", "absent", "this TensorFlow is built for the CPU only", GET_CUDA)
    if found:
        return Check("CUDA libraries", "ok", f"{found}; no GPU uses them")
    remedy = "" if report and not report.reasons else GET_CUDA
    return Check("CUDA libraries", "absent", "not installed as packages; a machine without a GPU needs none", remedy)


def _memory(environment: Environment) -> Check:
    from pipeline_bench.text import units

    return Check("memory", "ok", units.size(environment.memory_bytes))


def _display(terminal: Terminal) -> Check:
    if not terminal.is_terminal:
        return Check(
            "terminal",
            "absent",
            "stdout is not a terminal: compare prints plain lines",
            "Run it in a terminal for the live screen.",
        )
    found = f"{terminal.width} columns, {terminal.encoding}"
    if terminal.width < NARROWEST_TERMINAL:
        return Check("terminal", "absent", found, f"Widen it to {NARROWEST_TERMINAL} columns for the whole table.")
    return Check("terminal", "ok", found)


def _show(checks: Sequence[Check], usable: bool, stderr: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "absent": "yellow", "missing": "bold red"}
    table = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        lines = Text(check.found)
        if check.remedy and check.status != "ok":
            lines.append(f"\n→ {check.remedy}", style="dim")
        table.add_row(Text(check.status, style=styles[check.status]), Text(check.name), lines)
    console = Console(highlight=False)
    console.print(table)
    console.print()
    if usable:
        console.print("pipeline-bench compare can run here.")
        return
    console.print("pipeline-bench compare cannot run here: see the lines marked missing.")
    if stderr.strip():
        typer.echo(f"\nWhat TensorFlow's process wrote:\n{stderr.rstrip()}", err=True)
