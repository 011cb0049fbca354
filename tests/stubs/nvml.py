"""The stub of NVIDIA's library: a fixture that builds it, and a way to run the sampler against it in its own process.

The stub proves the plumbing and the error paths, and nothing about what the figures mean on a GPU.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LIBRARY = "libnvidia-ml.so.1"


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder to put in front of LD_LIBRARY_PATH before a process starts; see nvml_stub.c for the variables."""
    return build(tmp_path_factory.mktemp("nvml_stub"))


@pytest.fixture(scope="session")
def old_nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the names that a driver before 535 has."""
    return build(tmp_path_factory.mktemp("old_nvml_stub"), "-DNVML_STUB_OLD_NAMES")


@pytest.fixture(scope="session")
def gpu_stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both stubs, NVML's and the driver's."""
    folder = build(tmp_path_factory.mktemp("gpu_stub"))
    return build(folder, source="cuda_stub.c", library="libcuda.so.1")


def build(folder: Path, *options: str, source: str = "nvml_stub.c", library: str = LIBRARY) -> Path:
    """Build a stub in the folder, and return that."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the NVML stub with")
    if not sys.platform.startswith("linux"):
        pytest.skip("pynvml loads libnvidia-ml.so.1 on Linux only")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{library}"]
    subprocess.run([*command, *options, "-o", str(folder / library), str(HERE / source)], check=True)
    return folder


def stub_environment(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of a process that finds the stub: `variables` are those of nvml_stub.c, e.g. NVML_STUB_MODE."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NVML_STUB_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"))
    }
    paths = [str(folder), *filter(None, [inherited.get("LD_LIBRARY_PATH")])]
    return {**inherited, "LD_LIBRARY_PATH": os.pathsep.join(paths), **variables}


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, **variables: str) -> None:
    """Have the processes that this one starts find the stub."""
    for name, value in stub_environment(folder, **variables).items():
        monkeypatch.setenv(name, value)


def gpu_environment(folder: Path, timeline: Path, **variables: str) -> dict[str, str]:
    """The environment in which the stub of NVML computes its figures of what the stub of the driver keeps busy."""
    timeline.touch()
    shared = {"NVML_STUB_TIMELINE": str(timeline), "CUDA_STUB_TIMELINE": str(timeline)}
    return stub_environment(folder, **shared, NVML_STUB_GPM="3:6,10:3,20:100,21:900", **variables)


@cache
def _probe() -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(HERE / "nvml_probe.py")]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
    atexit.register(probe.communicate)
    return probe


def run_probe(folder: Path, steps: list[dict[str, Any]], *, gpm: bool = False, **variables: str) -> list[Any]:
    """Run nvml_probe.py against the library in `folder`; returns what each step gave, `{"do": "open"}` being the first.

    A step is ``{"do": "open" | "select" | "begin" | "poll" | "close", "at_ns": …, "wall_ns": …, "tick_ns": …,
    "env": {…}}``: the two clocks are set before it (they start at 0), and so are the variables of the stub; with a tick
    the first clock goes on by it whenever it is read. What GPM says, or why it says
    nothing, is among the answers only where it is asked for.
    """
    probe = _probe()
    assert probe.stdin is not None
    assert probe.stdout is not None
    environment = stub_environment(folder, **variables)
    request = {"library": str(folder / LIBRARY), "environment": environment, "steps": steps}
    probe.stdin.write(json.dumps(request) + "\n")
    probe.stdin.flush()
    answers = json.loads(probe.stdout.readline())
    assert isinstance(answers, list), f"{answers}; its traceback is on stderr"
    return answers if gpm else [_without_gpm(answer) for answer in answers]


def _without_gpm(answer: Any) -> Any:
    if not isinstance(answer, list):
        return answer
    return [reading for reading in answer if reading["source"] != "NVML GPM"]
