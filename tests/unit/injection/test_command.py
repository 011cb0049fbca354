"""`run` around its command: signals and the records of its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_bench.injection import process_records
from pipeline_bench.injection.command import environment_of
from pipeline_bench.injection.command_result import ProcessRecord, _problems, _records


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


def test_what_a_process_became_by_exec_has_a_record_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"program": "x.py", "executable": "python", "trainings": (), "problem": None}
    for began, more in ((1, 0), (1, 1), (2, 7)):
        monkeypatch.setattr(process_records, "_BEGAN_NS", began)
        monkeypatch.setattr(json, "dumps", lambda record: b"as another library's")
        process_records.write(tmp_path / "made again", 7, {**about, "more": more})
    assert [(record.pid, record.more) for record in _records(tmp_path / "made again")] == [(7, 1), (7, 7)]


def test_records_that_a_job_removed_are_told(tmp_path: Path) -> None:
    assert "was removed, and with it what was recorded" in next(_problems(tmp_path / "gone"))
    assert list(_problems(tmp_path)) == []


def test_a_copy_of_the_loader_that_patches_is_one(tmp_path: Path) -> None:
    program = (
        "import copy, importlib.util as util, sys, types\n"
        "sys.argv = ['x']\n"
        "loader = util.find_spec('keras').loader\n"
        "print(type(loader).__name__, type(copy.copy(loader)).__name__)\n"
    )
    (tmp_path / "keras.py").write_text("")
    environment = environment_of({**os.environ, "PYTHONPATH": str(tmp_path)}, tmp_path, tmp_path)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["_PatchingLoader", "_PatchingLoader"]


def test_a_module_is_patched_though_a_finder_of_the_programs_own_has_it_loaded_by_the_old_method(
    tmp_path: Path,
) -> None:
    """As mlflow's, where its autologging is switched on before Keras is imported."""
    program = (
        "import importlib.util as util, sys\n"
        "from pipeline_bench.injection import hooks\n"
        "hooks.imported = lambda module, _: print('patched', module.__name__)\n"
        "class Loader:\n"
        "    def __init__(self, loader):\n"
        "        self.load_module = loader.load_module\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'keras':\n"
        "            sys.meta_path.remove(self)\n"
        "            spec = util.find_spec(name)\n"
        "            spec.loader = Loader(spec.loader)\n"
        "            return spec\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import keras\n"
        "print(type(keras.__spec__.loader).__name__)\n"
    )
    (tmp_path / "keras.py").write_text("")
    environment = environment_of({**os.environ, "PYTHONPATH": str(tmp_path)}, tmp_path, tmp_path)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["patched", "keras", "SourceFileLoader"]


def test_what_is_patched_in_a_fork_elsewhere_knows_what_python_was_started_as_and_where(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "from pipeline_bench.injection import hooks\n"
        "hooks.imported = lambda _, started: print(started[0] == os.getppid(), started[1])\n"
        "os.chdir('/')\n"
        "if not os.fork():\n"
        "    import keras\n"
        "else:\n"
        "    os.wait()\n"
    )
    (tmp_path / "keras.py").write_text("")
    environment = environment_of({**os.environ, "PYTHONPATH": str(tmp_path)}, tmp_path, tmp_path)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["True", str(tmp_path)]


@pytest.mark.parametrize(("given", "reads"), [({}, 0), ({"LC_CTYPE": "C.UTF-8"}, 1)])
def test_what_the_environment_was_is_read_once_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], reads: int
) -> None:
    read: list[Path] = []

    def as_given(path: Path) -> bytes:
        read.append(path)
        return b"HOME=/\0"

    monkeypatch.setattr(Path, "read_bytes", as_given)
    own = environment_of({"HOME": "/", "TERM": "dumb", "USER": "me", **given}, tmp_path, tmp_path)
    assert len(read) == reads
    assert "LC_CTYPE" not in own, "Python itself has set it"


def test_a_command_waits_for_the_import_of_nothing_that_measures_it() -> None:
    program = (
        "import sys\nfrom pipeline_bench.cli import hosts\nfrom pipeline_bench.hosts.ranks import of_training\n"
        "from pipeline_bench.injection import command\nprint(*{'numpy', 'psutil', 'scipy'} & sys.modules.keys())"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    assert loaded.split() == []
