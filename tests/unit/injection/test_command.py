"""What is told when a watched command has ended."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_bench.injection.command import Ended, ProcessRecord, Training, _records, isolated_by, next_command


def ended(program: str, verdict: str = "input-bound", number: int | None = 1) -> Ended:
    name = f"loop of {program}:31, by fast.py:7" if number is None else f"fit of {program}"
    training = Training(
        name=name, steps=100, input_wait_share=0.9, verdict=verdict, line="waits", folder=None, number=number
    )
    record = ProcessRecord(
        pid=7, program=program, executable="python", trainings=(training,), more=0, problem=None, ended=True
    )
    return Ended(0, 9.0, (record,), (), (), (None, None), None)


@pytest.mark.parametrize(
    ("command", "program", "expected"),
    [
        ("python train.py", "train.py", "train.py"),
        ("python src/train.py --epochs 3", "train.py", "src/train.py -- --epochs 3"),
        ("python -m package.train --config a.py", "train.py", "-m package.train -- --config a.py"),
        ("python -m package", "__main__.py", "-m package"),
        ("python -m cProfile -o out train.py 3", "train.py", "train.py -- 3"),
        ("./job.sh", "train.py", None),
        ("python -m", "train.py", None),
    ],
)
def test_the_command_that_diagnoses_takes_the_same_script_and_arguments(
    command: str, program: str, expected: str | None
) -> None:
    told = next_command(ended(program), shlex.split(command))
    assert told == (expected and f"pipeline-bench diagnose {expected}")


def test_the_training_that_starves_is_the_one_to_diagnose() -> None:
    command = ["python", "train.py", "-v"]
    assert next_command(ended("train.py", number=3), command) == "pipeline-bench diagnose train.py --training 3 -- -v"
    assert next_command(ended("train.py", number=None), command) == "pipeline-bench diagnose train.py -- -v"
    several = ended("train.py", number=None)
    (record,) = several.records
    well = ended("train.py", "not input-bound").records[0].trainings
    several = replace(several, records=(record.model_copy(update={"trainings": (*well, *record.trainings)}),))
    assert next_command(several, command) == "pipeline-bench diagnose train.py --training 31 -- -v"


def test_what_does_not_starve_needs_no_diagnosis() -> None:
    assert next_command(ended("train.py", "not input-bound"), ["python", "train.py"]) is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -I train.py", "-I"),
        ("python3.12 -sE train.py", "-E"),
        ("python -Ec 'import train'", "-E"),
        ("nice -n 5 /usr/bin/python3 -u -X dev -W ignore -BS train.py", "-S"),
        ("python -X dev train.py -E", ""),
        ("python -c -E", ""),
        ("python -m train -I", ""),
        ("grep -E train", ""),
        ("python", ""),
    ],
)
def test_the_option_that_isolates_python_is_found_among_others(command: str, expected: str) -> None:
    assert isolated_by(shlex.split(command)) == expected


def test_a_quit_after_the_command_leaves_no_temporary_files(tmp_path: Path) -> None:
    program = (
        "import os, signal, subprocess\n"
        "from pipeline_bench.injection.command import signals_passed_on\n"
        "from pipeline_bench.system.files import ScratchFolder\n"
        "with signals_passed_on() as pass_on_to, ScratchFolder():\n"
        "    child = subprocess.Popen(['true'])\n"
        "    pass_on_to(child)\n"
        "    os.kill(os.getpid(), signal.SIGQUIT)\n"
        "    child.wait()\n"
        "    os.kill(os.getpid(), signal.SIGQUIT)\n"
    )
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGQUIT, b"")
    assert not list(tmp_path.iterdir())


def test_records_are_in_the_order_of_the_processes_numbers(tmp_path: Path) -> None:
    for pid in (1000, 999, 20000):
        record = ProcessRecord(pid=pid, program="x.py", executable="python", trainings=(), more=0, problem=None)
        (tmp_path / f"{pid}.json").write_text(record.model_dump_json())
    assert [record.pid for record in _records(tmp_path)] == [999, 1000, 20000]
