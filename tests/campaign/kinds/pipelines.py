"""User pipelines that turn against the process that runs them: a deed, and where in the pipeline it is done."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from random import Random

from pipeline_bench.session import load
from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import Outcome
from tests.campaign.processes import Program, survivors
from tests.tensorflow.test_diagnose import run_trials
from tests.unit.hostile import unsafe
from tests.unit.test_hostile_text import every_view

COUNT = 80
WAITS = False
_COMMAND_EVERY = 20
"""One in so many is given to the command itself, which takes longer."""
_DEEDS = (
    *(
        "raise ValueError('no label')",
        "raise ValueError('\\udcff\\ud800 \\x1b]0;t\\x07 \\x9b2J')",
        "raise BaseException('x')",
    ),
    *(
        "raise ValueError('x' * 50_000_000)",
        "raise Silent",
        "raise KeyboardInterrupt",
        "raise SystemExit(0)",
        "sys.exit('x')",
    ),
    *(
        "raise StopIteration",
        "raise MemoryError",
        "raise ExceptionGroup('g', [ValueError('\\x1b[2J')])",
        "raise type('\\x1b[2J', (ValueError,), {})",
    ),
    *("os._exit(0)", "os._exit(77)", "os.abort()", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), signal.SIGSTOP)"),
    *(
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os.kill(os.getpid(), signal.SIGINT)",
        "os.killpg(0, 9)",
        "time.sleep(600)",
    ),
    *(
        "re.match(r'(a+)+$', 'a' * 60 + 'b')",
        "recurse()",
        "bytearray(1 << 50)",
        "ctypes.string_at(0)",
        "signal.pause()",
    ),
    *(
        "os.fork() or time.sleep(600)",
        "os.fork() and os._exit(0)",
        "subprocess.Popen(['sleep', '604'], start_new_session=True)",
    ),
    *("subprocess.Popen(['bash', '-c', 'setsid setsid sleep 604 & exit'])", "subprocess.Popen(['yes'])"),
    *("threading.Thread(target=time.sleep, args=(600,)).start()", "threading.Thread(target=boom).start()"),
    *(
        "os.closerange(3, 4096)",
        "os.closerange(0, 3)",
        "[os.write(fd, b'junk\\n') for fd in range(1, 64) if is_pipe(fd)]",
    ),
    *(
        "print('\\x1b]0;title\\x07\\x1b[2J' * 100)",
        "print('x' * 10_000_000)",
        "sys.stderr.write('\\x9b2J\\n')",
        "sys.stdout.close()",
    ),
    *(
        "setattr(sys, 'stdout', None) or setattr(sys, 'stderr', None)",
        "input('?')",
        "sys.path.clear() or sys.modules.clear()",
    ),
    *(
        "os.environ.clear()",
        "os.chdir('/')",
        "os.remove(__file__)",
        "shutil.rmtree(os.path.dirname(__file__))",
        "os.setsid()",
    ),
    *(
        "atexit.register(time.sleep, 600)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "setattr(time, 'monotonic_ns', lambda: 0)",
    ),
    *("setattr(time, 'sleep', boom)", "setattr(json, 'dumps', boom)", "warnings.simplefilter('error')", "gc.disable()"),
    *(
        "resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))",
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
    ),
    *(
        "shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)",
        "os.kill(os.getppid(), 9)",
        "sys.setswitchinterval(100)",
    ),
)
_PLACES = ("import", "make", "map", "generator")
_SCRIPT = """\
import atexit, ctypes, gc, json, os, re, resource, shutil, signal, stat, subprocess, sys, tempfile, threading
import time, warnings

import numpy as np
import tensorflow as tf


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def boom(*_, **__):
    raise RuntimeError("boom")


def recurse():
    recurse()


def is_pipe(fd):
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def deed():
    {deed}


def mapped(number):
    if int(number) == {at}:
        deed()
    return number


def generated():
    for number in range(100):
        mapped(number)
        yield number


def make():
    if {place!r} == "make":
        deed()
    if {place!r} == "generator":
        dataset = tf.data.Dataset.from_generator(generated, output_signature=tf.TensorSpec((), tf.int64))
    else:
        dataset = tf.data.Dataset.range(100)
    if {place!r} == "map":
        dataset = dataset.map(lambda number: tf.py_function(mapped, [number], tf.int64))
    return dataset.batch(4)


if {place!r} == "import":
    deed()
"""
_LIMIT_S = 2.0
"""How long a trial may make no progress; the deeds that hang hang for longer."""


def plan(random: Random, number: int) -> Case:
    """Draw a script."""
    deed = _DEEDS[number] if number < len(_DEEDS) else random.choice(_DEEDS)
    text = _SCRIPT.format(deed=deed, place=random.choice(_PLACES), at=random.choice((0, 3, 50)))
    return {"text": text, "trials": random.choice((1, 1, 2)), "command": number % _COMMAND_EVERY == _COMMAND_EVERY - 1}


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Diagnose it: by the command, or for a trial or two by a server that has imported TensorFlow already."""
    # A folder of its own: a deed may remove it.
    script = bench.folder / "theirs" / "script.py"
    script.parent.mkdir()
    script.write_text(case["text"], "utf-8")
    deed = next(line.strip() for line in case["text"].partition("def deed():\n")[2].splitlines())
    if case["command"]:
        return [_by_command(script, bench)]
    out = bench.folder / "out"
    out.mkdir()
    found = Outcome(f"diagnose a pipeline that does {deed}")
    server = bench.server()
    try:
        run_trials(server, out, "make", file=script, trials=case["trials"], stall_timeout_s=_LIMIT_S)
        found.more += _said(out)
    except Exception:  # nothing of the user's may reach the runner
        found.stderr = traceback.format_exc()
    found.processes = tuple(survivors(bench.mark, spared=[server.pid]))
    found.leftovers = tuple(path.name for path in bench.temporary.glob("pipeline-bench*"))
    return [found]


def _by_command(script: Path, bench: Bench) -> Outcome:
    options = ["--budget", "20", "--stall-timeout", str(_LIMIT_S), "--no-live", "--out", "reports"]
    program = Program(bench.folder, ["diagnose", f"{script}:make", *options])
    return program.outcome(allowed=(0, 1), folder=bench.folder / "reports", tells_all=False, shows_tracebacks=True)


def _said(out: Path) -> list[str]:
    """What is wrong with the session: it says nothing, shows our own insides, or steers a terminal."""
    session = load(out)
    diagnosis = session.diagnosis
    assert diagnosis is not None
    wrong = [] if diagnosis.failure or diagnosis.inspection else ["neither a failure nor a finding is told"]
    told = [diagnosis.failure or "", diagnosis.traceback]
    # Of a trial that stalled it holds the stacks of all threads, ours among them.
    told += [trial.stderr_tail for trial in session.trials if trial.status != "stalled"]
    wrong += [f"our own insides are shown: {text[-500:]}" for text in told if f"pipeline_bench{os.sep}" in text]
    for name, text in every_view(session).items():
        if found := unsafe(text):
            wrong.append(f"the view {name} holds {sorted(found)!r}")
    return wrong
