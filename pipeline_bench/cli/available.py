"""The commands that say what there is: ``pipeline-bench doctor`` (the machine), ``backends`` and ``scenarios``."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipeline_bench.cli.options import scenario_names
from pipeline_bench.errors import UsageError
from pipeline_bench.text import one_line, units

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline_bench.environment import Accelerator
    from pipeline_bench.model.selftest import Checked
    from pipeline_bench.model.session import Environment
    from pipeline_bench.run.machine import TensorFlowAnswer
    from pipeline_bench.worker.devices import TensorFlowReport

_MINUTES_FROM_S = 120.0
NARROWEST_TERMINAL = 80

GET_TENSORFLOW = "python -m pip install tensorflow"
GET_CUDA = 'python -m pip install "tensorflow[and-cuda]"'
GET_DRIVER = "With an NVIDIA GPU: install its driver from your distribution or nvidia.com/drivers, then run nvidia-smi."

Status = Literal["ok", "doubtful", "absent", "missing"]


@dataclass(frozen=True)
class Finding:
    """One line of the list.

    ``absent`` is something `compare` can do without, ``missing`` something it cannot. ``doubtful`` is there, but not
    well.
    """

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
    """Check this machine for `compare`. Exit 0: it can run here, with or without a GPU."""
    from contextlib import closing

    from pipeline_bench.environment import describe
    from pipeline_bench.model.selftest import last_selftest
    from pipeline_bench.run.machine import ask_tensorflow
    from pipeline_bench.samplers.nvml import NvmlSampler

    with closing(NvmlSampler.open()) as gpu:  # NVML opens while TensorFlow is imported
        answer = ask_tensorflow()
        accelerator = gpu.accelerator
    environment = describe(accelerator)
    terminal = Terminal(sys.stdout.isatty(), shutil.get_terminal_size().columns, sys.stdout.encoding)
    checked = last_selftest(environment.driver, environment.cpu, environment.gpu)
    checks = list(examine(environment, accelerator, answer, terminal, checked))
    usable = all(check.status != "missing" for check in checks)
    if as_json:
        content = {
            "usable": usable,
            "checks": [asdict(check) for check in checks],
            "environment": environment.model_dump(mode="json"),
            "tensorflow": answer.report.model_dump(mode="json") if answer.report else None,
            "stderr": answer.stderr,
        }
        typer.echo(json.dumps(content, indent=1, ensure_ascii=False))
    else:
        _show_checks(checks, usable, answer.stderr)
    raise typer.Exit(0 if usable else 1)


def examine(
    environment: Environment,
    accelerator: Accelerator,
    answer: TensorFlowAnswer,
    terminal: Terminal,
    checked: Checked | None = None,
) -> Iterator[Finding]:
    """Yield the lines of the list, from what was found."""
    report = answer.report
    yield Finding("Python", "ok", environment.python)
    yield _tensorflow(environment, answer)
    if report:
        yield _matmul(report, answer.gpus)
    yield _gpu(answer, accelerator)
    if accelerator.driver:
        yield Finding("driver", "ok", accelerator.driver)
    else:
        yield Finding("driver", "absent", "no NVIDIA driver answered")
    if accelerator.name is not None and accelerator.reason is None:
        yield Finding("NVML", "ok", f"reads {accelerator.name}")
    else:
        yield Finding("NVML", "absent", f"device utilization is the CPU's: {accelerator.reason or 'it lists no GPU'}")
    yield _cuda(answer)
    yield Finding("CPU", "ok", environment.cpu)
    yield Finding("cores", "ok", f"{environment.cores} usable by this process")
    if report:
        yield Finding("threads", "ok", f"{report.cpu_threads} logical: TensorFlow's choice for each pool")
    yield Finding("memory", "ok", units.size(environment.memory_bytes))
    yield _display(terminal)
    if checked is not None:
        yield _selftest(checked)


def _selftest(checked: Checked) -> Finding:
    from pipeline_bench.report.selftest import words

    unsettled = checked.failed or checked.disturbed or checked.other_driver
    return Finding("selftest", "absent" if checked.at is None else "doubtful" if unsettled else "ok", words(checked))


def _tensorflow(environment: Environment, answer: TensorFlowAnswer) -> Finding:
    if answer.report:
        build = f"built for CUDA {answer.report.cuda}" if answer.report.built_with_cuda else "built for the CPU only"
        return Finding(
            "TensorFlow", "ok", f"{answer.report.tensorflow}, {build}; imports in {answer.report.import_s:.1f} s"
        )
    if environment.tensorflow is None:
        return Finding("TensorFlow", "missing", "not installed", GET_TENSORFLOW)
    return Finding(
        "TensorFlow",
        "missing",
        f"{environment.tensorflow} is installed, but cannot be used: {answer.reason}",
        f"Correct the problem shown below, or install it again: {GET_TENSORFLOW}",
    )


def _matmul(report: TensorFlowReport, gpus: Sequence[str]) -> Finding:
    if report.matmul.ok:
        return Finding("matmul", "ok", f"a small matrix product was correct on {report.matmul.device}")
    return Finding(
        "matmul",
        "missing",
        f"a small matrix product failed on {report.matmul.device}: {report.matmul.error}",
        "Compare on the CPU with --set runtime.device=cpu, or correct the GPU's set-up." if gpus else GET_TENSORFLOW,
    )


def _gpu(answer: TensorFlowAnswer, accelerator: Accelerator) -> Finding:
    if answer.gpus:
        return Finding("GPU", "ok", ", ".join(answer.gpus))
    if accelerator.name is None:
        return Finding("GPU", "absent", "none found; everything is measured on the CPU", GET_DRIVER)
    why = "; ".join(answer.report.reasons) if answer.report else ""
    found = f"{accelerator.name} is there, but TensorFlow does not use it{': ' + why if why else ''}"
    return Finding("GPU", "absent", found, GET_CUDA)


def _cuda(answer: TensorFlowAnswer) -> Finding:
    from pipeline_bench.environment import distribution_version

    report = answer.report
    packages = ("nvidia-cuda-runtime", "nvidia-cudnn", "nvidia-cublas")
    versions = [(name, distribution_version(f"{name}-cu12") or distribution_version(name)) for name in packages]
    found = ", ".join(f"{name.removeprefix('nvidia-')} {version}" for name, version in versions if version)
    if answer.gpus:
        return Finding("CUDA libraries", "ok", found or "found by TensorFlow on the system's library path")
    if report and not report.built_with_cuda:
        return Finding("CUDA libraries", "absent", "this TensorFlow is built for the CPU only", GET_CUDA)
    if found:
        return Finding("CUDA libraries", "ok", f"{found}; no GPU uses them")
    remedy = "" if report and not report.reasons else GET_CUDA
    return Finding("CUDA libraries", "absent", "not installed as packages; a machine without a GPU needs none", remedy)


def _display(terminal: Terminal) -> Finding:
    if not terminal.is_terminal:
        return Finding(
            "terminal",
            "absent",
            "stdout is not a terminal: compare prints plain lines",
            "Run it in a terminal for the live screen.",
        )
    found = f"{terminal.width} columns, {terminal.encoding}"
    if terminal.width < NARROWEST_TERMINAL:
        return Finding("terminal", "absent", found, f"Widen it to {NARROWEST_TERMINAL} columns for the whole table.")
    return Finding("terminal", "ok", found)


def _show_checks(checks: Sequence[Finding], usable: bool, stderr: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "doubtful": "yellow", "absent": "yellow", "missing": "bold red"}
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


@dataclass(frozen=True)
class OptionRow:
    """One option as a reader sees it."""

    name: str
    type: str
    default: Any
    meaning: str


@dataclass(frozen=True)
class BackendRow:
    """One backend as a reader sees it; `error` where its package is broken."""

    name: str
    origin: str
    summary: str = ""
    options: tuple[OptionRow, ...] = ()
    error: str | None = None


def backends(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the backends with their options, and the package of each."""
    rows = list(_backends())
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for row in rows:
        _show_backend(console, row)


def _backends() -> Iterator[BackendRow]:
    from pipeline_bench import plugins

    for name in plugins.names("backends"):
        origin = plugins.origin("backends", name)
        try:
            plugin = plugins.find("backends", name)
        except UsageError as error:  # somebody's broken package does not hide the backends that work
            yield BackendRow(name, origin, error=error.in_full)
        else:
            options = _options(plugin.Options.model_json_schema())
            yield BackendRow(name, origin, getattr(plugin, "summary", ""), options)


def _options(schema: dict[str, Any]) -> tuple[OptionRow, ...]:
    definitions = schema.get("$defs", {})
    return tuple(
        OptionRow(name, describe_type(option, definitions), option.get("default"), option.get("description", ""))
        for name, option in schema.get("properties", {}).items()
    )


def describe_type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return a JSON schema's type in the words of the docs: ``integer ≥ 1 | "auto"``."""
    if "$ref" in schema:
        return describe_type(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        # TOML has no null: an option that may be None is one that may be left out.
        choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
        return " | ".join(describe_type(choice, definitions) for choice in choices)
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(choice) for choice in schema["enum"])
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (("exclusiveMinimum", ">"), ("minimum", "≥"), ("exclusiveMaximum", "<"), ("maximum", "≤"))
        if key in schema
    ]
    return " ".join([schema.get("type", "any"), ", ".join(bounds)]).strip()


def _show_backend(console: Console, row: BackendRow) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console.print(Text.assemble((row.name, "bold"), f"  ({row.origin})"))
    console.print(Padding(Text(row.error or row.summary, style="red" if row.error else ""), (0, 0, 0, 2)))
    if row.options:
        table = Table("option", "type", "default", "meaning", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for option in row.options:
            default = "unset" if option.default is None else json.dumps(option.default, ensure_ascii=False)
            table.add_row(Text(option.name), Text(option.type), Text(default), Text(option.meaning))
        console.print(Padding(table, (0, 0, 0, 4)))
    console.print()


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            show_default=False,
            help="A shipped scenario's name or a path to a TOML file.",
            autocompletion=scenario_names,
        ),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of a scenario file, for editors.")
    ] = False,
) -> None:
    """List the scenarios. With a name or a file: check it, and print it with every default."""
    if schema and name is not None:
        raise UsageError(f"--schema is that of every scenario: it goes without {name!r}.", "Give the one or the other.")
    if schema:
        from pipeline_bench.scenario.files import json_schema

        typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    elif name is not None:
        from pipeline_bench.run.comparison import checked_sources
        from pipeline_bench.scenario.files import to_toml
        from pipeline_bench.scenario.load import load

        scenario = load(name)
        checked_sources(scenario)
        typer.echo(to_toml(scenario), nl=False)
    else:
        _list_scenarios()


def _list_scenarios() -> None:
    """Print a line for each, cut to a terminal's width, whole for a script."""
    from pipeline_bench.scenario.files import shipped
    from pipeline_bench.scenario.load import load

    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    names = list(shipped())
    longest = max(map(len, names))
    for name in names:
        duration_s = None
        try:
            scenario = load(name)
        except UsageError as error:  # somebody's broken package does not hide the scenarios that do without it
            about = f"cannot be read: {error.message}"
        else:
            duration_s, about = scenario.usual_duration_s, scenario.question
        line = f"{name:{longest}}  {_about(duration_s):>7}  {one_line(about)}"
        typer.echo(line if room is None or len(line) <= room else f"{line[: room - 1]}…")
    typer.echo("\nRun one: pipeline-bench compare NAME. The durations are of two idle cores.")
    typer.echo("All of one, with its variants: pipeline-bench scenarios NAME.")


def _about(duration_s: float | None) -> str:
    if duration_s is None:
        return "–"
    return f"{duration_s:.0f} s" if duration_s < _MINUTES_FROM_S else f"{duration_s / 60:.0f} min"
