"""The machine, as the files of a made-up one describe it."""

import os
import platform
from pathlib import Path

import psutil
import pytest

from pipeline_bench import __version__, environment
from pipeline_bench.environment import (
    Accelerator,
    cpu_model,
    describe,
    seen_by_tensorflow,
    usable_cores,
    usable_memory_bytes,
)
from pipeline_bench.model.events import Device

AFFINITY = len(os.sched_getaffinity(0))


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_a_gpu_the_cpu_is_the_accelerator_and_the_reason_is_kept() -> None:
    described = describe(Accelerator(reason="no driver"))
    assert described.accelerator_kind == "cpu"
    assert described.accelerator_name == described.cpu
    assert (described.accelerator_reason, described.driver) == ("no driver", None)
    assert (described.python, described.package) == (platform.python_version(), __version__)
    assert described.cores >= 1
    assert described.memory_bytes > 0


def test_with_a_gpu_it_is_the_accelerator() -> None:
    described = describe(Accelerator(name="NVIDIA H200", driver="570.1"))
    assert (described.accelerator_kind, described.accelerator_name) == ("gpu", "NVIDIA H200")
    assert (described.accelerator_reason, described.driver) == (None, "570.1")


def test_a_gpu_that_tensorflow_does_not_use_is_not_the_accelerator() -> None:
    found = seen_by_tensorflow(describe(Accelerator(name="NVIDIA H200")), [Device(kind="cpu", name="CPU:0")])
    assert (found.accelerator_kind, found.accelerator_name) == ("cpu", found.cpu)
    assert "NVIDIA H200 is here, but the trials trained on the CPU" in (found.accelerator_reason or "")


def test_a_gpu_that_nvml_cannot_read_is_still_the_accelerator() -> None:
    device = Device(kind="gpu", name="NVIDIA H200")
    found = seen_by_tensorflow(describe(Accelerator(reason="no permission")), [device])
    assert (found.accelerator_kind, found.accelerator_name) == ("gpu", "NVIDIA H200")
    assert found.accelerator_reason == "no permission"


@pytest.mark.parametrize("devices", [[], [Device(kind="gpu", name="NVIDIA H200")]])
def test_before_a_trial_or_when_both_agree_the_driver_is_believed(devices: list[Device]) -> None:
    described = describe(Accelerator(name="NVIDIA H200", driver="570.1"))
    assert seen_by_tensorflow(described, devices) == described


def test_tensorflow_is_none_where_no_distribution_of_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "TENSORFLOW_DISTRIBUTIONS", ("not-a-distribution",))
    assert environment.tensorflow_version() is None


def test_a_nightly_build_counts_as_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "distribution_version", {"tf-nightly": "2.22.dev1"}.get)
    assert environment.tensorflow_version() == "2.22.dev1"


def test_the_cpus_name_is_one_line_of_single_spaces(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Some   CPU @ 2.0GHz\n"})
    assert cpu_model(root) == "Some CPU @ 2.0GHz"


def test_a_kernel_that_does_not_name_the_cpu_leaves_its_architecture(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 50.00\n"})
    assert cpu_model(root) == (platform.processor() or platform.machine())


def test_without_a_quota_the_cores_are_those_of_the_affinity(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == AFFINITY
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert usable_cores(root) == AFFINITY


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "50000 100000\n"},
        {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "100000 100000\n"},
        {"proc/self/cgroup": "0::/not/visible/here\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"},
        {
            "proc/self/cgroup": "3:cpuacct,cpu:/a\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "70000\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
        },
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/a\n2:memory:/a\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "70000\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
        },
    ],
    ids=["version 2", "of a group above", "in a container", "version 1, by its link", "version 1"],
)
def test_a_quota_of_a_core_or_less_is_one_core(files: dict[str, str], tmp_path: Path) -> None:
    assert usable_cores(machine(tmp_path, files)) == 1


@pytest.mark.parametrize("text", ["", "nonsense\n", "0 100000\n", "-1 100000\n", "1 0\n"])
def test_a_quota_that_says_nothing_limits_nothing(text: str, tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\nbroken\n", "sys/fs/cgroup/cpu.max": text})
    assert usable_cores(root) == AFFINITY


def test_memory_is_the_control_groups_limit_where_that_is_less(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "1048576\n"})
    assert usable_memory_bytes(root) == 1048576
    machine(root, {"sys/fs/cgroup/a/memory.max": "max\n"})
    assert usable_memory_bytes(root) == psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("started", "line"),
    [
        ("/env/bin/pipeline-bench", "pipeline-bench compare 'my file.toml'"),
        ("/env/lib/pipeline_bench/__main__.py", "python -m pipeline_bench compare 'my file.toml'"),
    ],
)
def test_a_command_line_is_the_one_to_write_again(started: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [started, "compare", "my file.toml"])
    assert environment.command_line() == line
