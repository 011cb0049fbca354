"""The command `doctor`: the list that it makes of what was found."""

import sys
from pathlib import Path

import pytest

from pipeline_bench.cli import run
from pipeline_bench.cli.available import GET_CUDA, GET_TENSORFLOW, Finding, Terminal, examine
from pipeline_bench.environment import Accelerator, describe
from pipeline_bench.model.selftest import Checked
from pipeline_bench.model.session import Environment
from pipeline_bench.run.machine import TensorFlowAnswer as Answer
from pipeline_bench.run.machine import ask_tensorflow
from pipeline_bench.worker.devices import Matmul, TensorFlowDevice, TensorFlowReport, reasons

NO_GPU = Accelerator(reason="no NVIDIA driver here")
GPU = Accelerator(name="NVIDIA H200", driver="570.1")
WIDE = Terminal(is_terminal=True, width=160, encoding="utf-8")
CPU_DEVICE = TensorFlowDevice(kind="cpu", name="CPU:0")
GPU_DEVICE = TensorFlowDevice(kind="gpu", name="NVIDIA H200", compute_capability="9.0")


def report(
    *devices: TensorFlowDevice, cuda: bool = True, error: str | None = None, because: tuple[str, ...] = ()
) -> TensorFlowReport:
    return TensorFlowReport(
        tensorflow="2.21.0",
        import_s=1.5,
        built_with_cuda=cuda,
        cuda="12.5.1" if cuda else None,
        devices=devices,
        cpu_threads=4,
        matmul=Matmul(device="/cpu:0", ok=error is None, error=error),
        reasons=because,
    )


def checks(
    answer: Answer, accelerator: Accelerator = NO_GPU, terminal: Terminal = WIDE, **changes: str | None
) -> dict[str, Finding]:
    environment: Environment = describe(accelerator).model_copy(update=changes)
    return {check.name: check for check in examine(environment, accelerator, answer, terminal)}


def test_a_machine_without_a_gpu_can_compare_and_is_told_so() -> None:
    found = checks(Answer(report(CPU_DEVICE)))
    assert "missing" not in {check.status for check in found.values()}
    assert found["GPU"].status == "absent"
    assert "CPU" in found["GPU"].found
    assert "no NVIDIA driver here" in found["NVML"].found


def test_a_machine_with_a_gpu_misses_nothing() -> None:
    found = checks(Answer(report(CPU_DEVICE, GPU_DEVICE)), GPU)
    assert {check.status for check in found.values()} == {"ok"}
    assert "compute capability 9.0" in found["GPU"].found


NOT_USED = Answer(report(CPU_DEVICE, because=("Cannot dlopen some GPU libraries.",)))


@pytest.mark.parametrize(
    ("found", "name", "status", "words", "remedy"),
    [
        (checks(NOT_USED, GPU), "GPU", "absent", "Cannot dlopen some GPU libraries.", GET_CUDA),
        (checks(Answer(report(CPU_DEVICE, cuda=False))), "CUDA libraries", "absent", "", GET_CUDA),
        (checks(Answer(report(CPU_DEVICE, cuda=False))), "TensorFlow", "ok", "CPU only", ""),
        (
            checks(Answer(reason="No module"), tensorflow=None),
            "TensorFlow",
            "missing",
            "not installed",
            GET_TENSORFLOW,
        ),
        (checks(Answer(reason="SIGILL"), tensorflow="2.21.0"), "TensorFlow", "missing", "SIGILL", None),
        (checks(Answer(report(CPU_DEVICE, error="no kernel"))), "matmul", "missing", "no kernel", None),
        (
            checks(Answer(report(CPU_DEVICE)), terminal=Terminal(False, 80, "utf-8")),
            "terminal",
            "absent",
            "",
            None,
        ),
        (
            checks(Answer(report(CPU_DEVICE)), terminal=Terminal(True, 80, "utf-8")),
            "terminal",
            "ok",
            "",
            None,
        ),
    ],
)
def test_what_is_not_as_it_should_be_is_told_with_its_remedy(
    found: dict[str, Finding], name: str, status: str, words: str, remedy: str | None
) -> None:
    assert found[name].status == status
    assert words in found[name].found
    assert remedy is None or found[name].remedy == remedy


def test_a_narrow_terminal_is_to_be_widened_and_without_tensorflow_nothing_is_multiplied() -> None:
    assert "Widen" in checks(Answer(report(CPU_DEVICE)), terminal=Terminal(True, 79, "utf-8"))["terminal"].remedy
    assert "matmul" not in checks(Answer(reason="No module named 'tensorflow'"), tensorflow=None)


def test_reasons_are_the_lines_about_the_gpu_once_each() -> None:
    log = (
        "I0000 00:00:17.66 1 port.cc:153] oneDNN custom operations are on.\n"
        "I0000 00:00:17.66 1 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.\n"
        "I0000 00:00:17.67 1 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.\n"
    )
    assert reasons(log) == ("Could not find cuda drivers on your machine, GPU will not be used.",)


@pytest.fixture
def broken_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `tensorflow` that the process that asks finds before the real one; the test writes what it does."""
    paths = [str(tmp_path), *(entry for entry in sys.path if entry)]
    monkeypatch.setenv("PYTHONPATH", ":".join(paths))
    return tmp_path / "tensorflow.py"


def test_the_probe_tells_what_the_import_raised(broken_tensorflow: Path) -> None:
    broken_tensorflow.write_text("raise ImportError('libcudart is broken')\n")
    answer = ask_tensorflow()
    assert answer.report is None
    assert answer.reason == "ImportError: libcudart is broken"
    assert "Traceback" in answer.stderr


def test_the_probe_survives_a_crash(broken_tensorflow: Path) -> None:
    broken_tensorflow.write_text("import os\nos.kill(os.getpid(), 9)\n")
    assert ask_tensorflow().reason == "its process was killed by SIGKILL"


def test_the_probe_gives_up_on_an_import_that_hangs(broken_tensorflow: Path) -> None:
    broken_tensorflow.write_text("import time\ntime.sleep(600)\n")
    assert ask_tensorflow(limit_s=0.5).reason == "it did not answer within 0.5 s"


def test_exit_1_and_the_stderr_when_tensorflow_is_broken(
    broken_tensorflow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken_tensorflow.write_text("raise ImportError('libcudart is broken')\n")
    assert run(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "cannot run here" in captured.out
    assert "Traceback" in captured.err


@pytest.mark.parametrize(
    ("checked", "status"),
    [
        (Checked(), "absent"),
        (Checked(at="2026-11-22T10:00:00+00:00", wait_error=0.01), "ok"),
        (Checked(at="2026-11-22T10:00:00+00:00", failed=("AU",)), "doubtful"),
        (Checked(at="2026-11-22T10:00:00+00:00", disturbed=("AU",)), "doubtful"),
    ],
)
def test_a_selftest_that_did_not_come_out_well_is_there_and_in_doubt(checked: Checked, status: str) -> None:
    found = examine(describe(NO_GPU), NO_GPU, Answer(report(CPU_DEVICE)), WIDE, checked)
    assert {check.name: check.status for check in found}["selftest"] == status
