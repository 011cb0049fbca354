"""Whole trials of a user's pipeline: what a child tells its parent of it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pipeline_bench.diagnosis import equality
from pipeline_bench.model.edits import Edit, InsertAfter, KeepSamples, Remove, SetArgument
from pipeline_bench.model.events import Device, Done, Event, Failed, Fingerprinted, Inspected, KeptMemory, Phase, Steps
from pipeline_bench.model.function_edits import DivideMap, Memoize
from pipeline_bench.model.pipeline import Inspection, Target
from pipeline_bench.model.task import KIND, Activity, Task
from pipeline_bench.model.trial import Trial
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.run.launcher import Child, TrialServer
from pipeline_bench.scenario import Component, Run, Variant
from pipeline_bench.tfdata.keras_input import WORKERS_STAGE
from pipeline_bench.user_code import function_calls

SCRIPT = """
import ctypes
import os
import random
import tempfile
import time
import keras
import numpy as np
import tensorflow as tf


DECODED = os.open(__file__ + ".decoded", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def wait(number):
    time.sleep(0.002)
    return number


def decode(number):
    number = tf.py_function(wait, [number], tf.int64)
    number.set_shape(())
    return tf.cast(number, tf.float32) * tf.ones((8,)), number


def make_dataset():
    return tf.data.Dataset.range(100).map(decode).shuffle(20).batch(10).prefetch(2)


def empty():
    return tf.data.Dataset.range(0).batch(2)


def make_once():
    return ((np.full((4, 2), number, np.float32), np.ones(4, np.float32)) for number in range(8))


def large():
    ctypes.CDLL(None).mallopt(-3, 1 << 17)  # as TensorFlow 2.21 does: each block of 128 KiB and more is mapped
    while True:
        yield np.ones(1 << 21, np.float32)


def make_large():
    return tf.data.Dataset.from_generator(large, output_signature=tf.TensorSpec([1 << 21], tf.float32))


def make_failing():
    raise MemoryError("no room on the GPU")


def broken(number):
    raise ValueError(f"sample {number} has no label")


def make_broken():
    return tf.data.Dataset.range(9).map(lambda number: tf.py_function(broken, [number], tf.int64))


def endless():
    return tf.data.Dataset.range(10).repeat().map(decode).batch(2)


def make_cached():
    return tf.data.Dataset.range(2000).map(decode).cache().batch(10)


def make_left():
    return tf.data.Dataset.range(20).map(decode).cache().take(15).batch(5)


def make_snapshot():
    return tf.data.Dataset.range(40).map(decode).snapshot(__file__ + ".snapshot").batch(10)


def make_mixed():
    return tf.data.Dataset.range(10**6).map(decode).shuffle(10**5).batch(10)


def make_drawn():
    drawn = tf.constant(list(os.urandom(40)), tf.float32)
    return tf.data.Dataset.from_tensor_slices(drawn).map(lambda value: value * 2.0).batch(10)


def noisy(number):
    value = tf.ones((8,)) * tf.cast(number, tf.float32)
    for _ in range(2):
        value = value + 1.0
    return value + tf.random.normal((8,)), number


def make_noisy():
    return tf.data.Dataset.range(200).shuffle(20).map(noisy).batch(10)


def decoded(number):
    os.write(DECODED, f"{number} ".encode())  # what opens a file to write is not kept
    time.sleep(0.004)
    return np.full(8, number, np.float32)


def augmented(number):
    values = decoded(int(number))
    return values * np.float32(random.random())


def make_augmented():
    def augment(number):
        return tf.numpy_function(augmented, [number], tf.float32)

    return tf.data.Dataset.range(40).shuffle(40).map(augment).batch(10).repeat()


def samples():
    numbers = list(range(40))
    random.shuffle(numbers)
    for number in numbers:
        yield augmented(number)


def sometimes(number):
    if number % 2:
        raise ValueError("no picture")
    time.sleep(0.004)
    return number


def make_ignored():
    failing = tf.data.Dataset.range(40).map(lambda number: tf.numpy_function(sometimes, [number], tf.int64))
    return failing.ignore_errors().batch(10)


def make_kept():
    def decode(number):
        return tf.ensure_shape(tf.numpy_function(decoded, [number], tf.float32), [8])

    return tf.data.Dataset.range(40).map(decode).cache(__file__ + ".kept").batch(10)


def make_generated():
    return tf.data.Dataset.from_generator(samples, output_signature=tf.TensorSpec([8], tf.float32)).batch(10)


def make_scratched():
    names = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    with open(__file__ + ".scratch", "w") as file:
        file.write("".join(name for name in names if "pipeline-bench-scratch-" in name))
    return make_dataset()


def make_temporary_files():
    names = [tempfile.mkdtemp(), tempfile.mkdtemp(prefix=b"bytes").decode()]
    names.append(tf.autograph.to_graph(noisy).__code__.co_filename)
    with open(__file__ + ".made", "w") as file:
        file.write("\\n".join(names))
    assert all(map(os.path.exists, names))
    return make_dataset()


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return np.full([4, 2], index, np.float32), np.full([4], index, np.float32)


def make_batches():
    return Batches()


def make_model():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def uncompiled():
    return keras.Sequential([keras.layers.Dense(1)])
"""
LIMIT_S = 90.0

_Kind = TypeVar("_Kind")
RunTask = Callable[..., list[Event]]


@pytest.fixture
def run_task(fork_server: TrialServer, tmp_path: Path) -> RunTask:
    """Run a task on functions of the script above; every event of the child."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")

    def run(name: str, activity: Activity, model: str | None = None, **options: Any) -> list[Event]:
        (events,) = events_of(fork_server, tmp_path, task(script, name, activity, model, **options))
        return events

    return run


def task(script: Path, name: str, activity: Activity, model: str | None = None, **options: Any) -> Task:
    return Task(
        target=Target(file=str(script), name=name),
        model=Target(file=str(script), name=model) if model else None,
        activity=activity,
        warmup_s=0.1,
        **options,
    )


def events_of(server: TrialServer, folder: Path, *tasks: Task) -> list[list[Event]]:
    """Return the events of each task's trial; all run in one process."""
    first, *further = [trial_of(each) for each in tasks]
    child = server.start(first, folder / "stderr")
    try:
        told = [until_done(child)]
        for each in further:
            child.ask(each, folder / "stderr of further ones")
            told.append(until_done(child))
    finally:
        child.close()
    return told


def trial_of(task: Task) -> Trial:
    variant = Variant(
        name="as written",
        backend="tf_data",
        source=Component(kind=KIND, options=task.model_dump()),
        model=Component(kind="none"),
        loop=Component(kind="none"),
        run=Run(steps=25, stall_timeout_s=60),
    )
    return Trial(index=0, repeat=0, variant=variant)


def until_done(child: Child) -> list[Event]:
    events: list[Event] = []
    end_s = time.monotonic() + LIMIT_S
    while not child.ended and time.monotonic() < end_s:
        events += child.read(0.2)
        if events and isinstance(events[-1], Done) and events[-1].reusable:
            break
    return events


def of(kind: type[_Kind], events: list[Event]) -> list[_Kind]:
    return [event for event in events if isinstance(event, kind)]


def steps(events: list[Event]) -> int:
    return sum(event.start_ns.count for event in of(Steps, events))


def phases(events: list[Event]) -> list[str]:
    return list(dict.fromkeys(event.name for event in of(Phase, events)))


def test_what_another_run_draws_anew_is_compared_within_one_run(run_task: RunTask) -> None:
    edit = SetArgument(stage=1, argument="num_parallel_calls", value=2)
    first = of(Fingerprinted, run_task("make_drawn", "drain", fingerprint=True))[0].fingerprint
    events = run_task("make_drawn", "drain", fingerprint=True, fingerprint_as_written=True, edits=(edit,))
    with_fix = of(Fingerprinted, events)[0].fingerprint
    assert with_fix.as_written is not None
    assert equality.compare(first, with_fix.as_written).status == "unequal"
    assert equality.compare(with_fix.as_written, with_fix).status == "identical"


def inspected(run_task: RunTask, name: str, has: Callable[[UserFunction], bool]) -> list[Inspected]:
    """Inspect until a function shows what it should, for longer where a busy machine left no time for that."""
    found: list[Inspected] = []
    for limit_s in (2, 6, 25):
        events = run_task(name, "inspect", limit_s=limit_s)
        assert isinstance(events[-1], Done), events[-1]
        found = of(Inspected, events)
        if any(stage.function is not None and has(stage.function) for stage in found[-1].inspection.stages):
            break
    return found


def looked_into(run_task: RunTask, name: str, has: Callable[[UserFunction], bool]) -> Inspection:
    return inspected(run_task, name, has)[-1].inspection


def test_a_further_trial_has_its_own_edits_on_what_the_process_has_built(
    fork_server: TrialServer, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"print('imported')\n{SCRIPT}\nMODEL = make_model()\n", encoding="utf-8")
    edits = (InsertAfter(stage=1, method="cache"),)
    of_training = partial(task, script, "make_dataset", "train", "MODEL")
    tasks = of_training(), of_training(edits=edits, fingerprint=True), of_training(fingerprint=True)
    written, kept, again = events_of(fork_server, tmp_path, *tasks)
    assert [steps(events) for events in (written, kept, again)] == [25] * 3
    assert [phases(events)[:2] for events in (kept, again)] == [["build", "fill"], ["build", "train"]]
    assert not of(Inspected, written)
    assert of(Inspected, kept)[-1].inspection.cached_elements == 100
    assert not of(Inspected, again), "what the trial before has found is not of this one"
    found = [of(Fingerprinted, events)[0].fingerprint for events in (again, kept)]
    assert equality.compare(*found).status == "identical"
    logs = [(tmp_path / name).read_text() for name in ("stderr", "stderr of further ones")]
    assert [text.count("imported") for text in logs] == [1, 0]


def test_a_further_trial_of_a_py_dataset_has_its_own_workers(fork_server: TrialServer, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    counting = SCRIPT.replace(
        "    def __getitem__(self, index):\n",
        "    def __getitem__(self, index):\n"
        "        os.write(1, f'<{sum(\"(worker)\" in each.name for each in threading.enumerate())}>'.encode())\n",
    )
    script.write_text(f"import threading\n{counting}".replace("return 6", "return 600"), encoding="utf-8")
    threads = (SetArgument(stage=WORKERS_STAGE, argument="workers", value=3),)
    tasks = [task(script, "make_batches", "drain", edits=edits) for edits in ((), threads, (), ())]
    told = events_of(fork_server, tmp_path, *tasks)
    assert [steps(events) for events in told] == [25] * 4
    logs = [(tmp_path / name).read_text().split("<")[1:] for name in ("stderr", "stderr of further ones")]
    first, further = ([int(each.partition(">")[0]) for each in log] for log in logs)
    assert max(first) == 0
    assert max(further) == 3
    assert further[-1] == 0, "the pool ends with its trial"


@pytest.mark.parametrize(
    ("name", "activity", "options"),
    [
        ("make_dataset", "inspect", {"limit_s": 1}),
        ("make_once", "drain", {}),
        ("make_large", "drain", {"limit_s": 30}),
    ],
    ids=["stages were measured", "a generator is used up", "malloc keeps what is freed"],
)
def test_a_process_that_is_no_longer_as_a_new_one_runs_no_further_trial(
    run_task: RunTask, name: str, activity: Activity, options: dict[str, Any]
) -> None:
    (done,) = of(Done, run_task(name, activity, **options))
    assert not done.reusable


def test_an_inspection_names_the_slow_stage(run_task: RunTask) -> None:
    found = inspected(run_task, "make_dataset", lambda function: function.costliest != "")
    assert len(found) >= 2 + 5, "after the description, the whole run and each stage"
    told = found[-1].inspection
    assert [stage.method for stage in told.stages] == ["range", "map", "shuffle", "batch", "prefetch"]
    slowest = max(told.costs, key=lambda cost: cost.elapsed_ns or 0.0)
    decode = told.stage(slowest.stage)
    assert decode.label == "map(decode)"
    assert decode.function is not None
    assert decode.function.costliest.startswith("line ")
    assert decode.function.memoizable is None, "what it gives is the same in each pass: a cache keeps it"
    assert slowest.elements == 10
    assert _shape(told) == (10, 10, 400.0)
    assert told.first_ns is not None
    import tensorflow as tf

    tuned = {each.parameter for each in told.tuned if each.stage == told.sink}
    assert "buffer_size" in tuned or not hasattr(tf.data.experimental, "get_model_proto")  # as in TensorFlow 2.16


@pytest.mark.slow
def test_a_random_map_is_divided_and_gives_the_same_but_for_what_is_random(run_task: RunTask) -> None:
    looked = of(Inspected, run_task("make_noisy", "inspect", limit_s=3))[-1].inspection
    function = looked.stage(2).function
    assert function is not None
    assert (function.fixed_statements, function.undivided) == (2, "")
    edits = (DivideMap(stage=2, after=0, statements=2), InsertAfter(stage=0, method="cache"))
    events = run_task("make_noisy", "drain", fingerprint=True, fingerprint_as_written=True, edits=edits)
    (found,) = of(Fingerprinted, events)
    assert equality.compare(found.fingerprint.as_written, found.fingerprint).status == "random"


@pytest.mark.parametrize("name", ["make_augmented", pytest.param("make_generated", marks=pytest.mark.slow)])
def test_of_python_that_gives_other_elements_in_each_pass_what_a_call_gives_is_kept(
    run_task: RunTask, tmp_path: Path, name: str
) -> None:
    looked = looked_into(run_task, name, lambda function: function.memoizable is not None)
    (stage,) = (each for each in looked.stages if each.runs_python)
    assert stage.function is not None
    line = 1 + SCRIPT[: SCRIPT.index("time.sleep(0.004)")].count("\n")
    assert stage.function.costliest == f"line {line}"
    assert looked.notes[-1].startswith(f"Of a call of {stage.label}, ")
    call = stage.function.memoizable
    assert call is not None
    assert (call.text, call.arguments, call.gives) == ("decoded(int(number))", ("number",), "array")
    assert call.batch_bytes == pytest.approx(10 * 32, rel=0.3)
    edits = (Memoize(stage=stage.id, call=call),)
    decoded = tmp_path / "train.py.decoded"
    decoded.unlink()
    events = run_task(name, "drain", edits=edits, limit_s=30)
    assert steps(events) == 25
    assert sorted(map(int, decoded.read_text().split())) == list(range(40)), "each once, in 250 samples"
    assert of(Inspected, events)[-1].inspection.cached_elements == 4
    events = run_task(name, "drain", edits=edits, fingerprint=True, fingerprint_as_written=True)
    (found,) = of(Fingerprinted, events)
    assert equality.compare(found.fingerprint.as_written, found.fingerprint).status == "random"


def test_where_the_time_is_short_what_was_kept_of_a_call_stands_for_the_rest(run_task: RunTask, tmp_path: Path) -> None:
    file, line = str(tmp_path / "train.py"), 1 + SCRIPT[: SCRIPT.index("values = decoded(")].count("\n")
    calls = function_calls.calls_in(file, line, function_calls.functions_of({file}))
    (call,) = (each for each in calls if each.text == "decoded(int(number))")
    edits = (Memoize(stage=0, call=call.model_copy(update={"gives": "array"})),)
    events = run_task("make_generated", "drain", edits=edits, limit_s=0.1)
    assert steps(events) == 25
    told = of(Inspected, events)[-1].inspection
    assert told.cached_elements is None
    assert told.notes == ("Not all batches were made within 30.0 ms: measured on the first ones.",)


def test_a_file_that_an_earlier_run_has_filled_is_read_where_nothing_before_it_changes_and_never_written(
    run_task: RunTask, tmp_path: Path
) -> None:
    decoded, space = tmp_path / "train.py.decoded", {"__file__": str(tmp_path / "train.py"), "__name__": "train"}
    exec(compile(SCRIPT, str(tmp_path / "train.py"), "exec"), space)
    assert len(list(space["make_kept"]())) == 4  # type: ignore[operator]
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("train.py.kept*")}
    assert "train.py.kept.index" in kept
    decoded.unlink()
    events = run_task("make_kept", "drain", limit_s=0.0)
    assert steps(events) == 25
    assert not any(event.inspection.cold for event in of(Inspected, events))
    assert not decoded.read_text()
    edits = (SetArgument(stage=1, argument="num_parallel_calls", value=2),)
    assert steps(run_task("make_kept", "drain", edits=edits)) == 25
    assert decoded.read_text()
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("train.py.kept*")} == kept


def test_python_that_fails_for_elements_that_are_left_out_is_measured(run_task: RunTask) -> None:
    events = run_task("make_ignored", "inspect", limit_s=1.5)
    assert isinstance(events[-1], Done), events[-1]
    assert of(Inspected, events)[-1].inspection.cost(1) is not None


def _shape(told: Inspection) -> tuple[int | None, int | None, float | None]:
    return told.batch_size, told.cardinality, told.element_bytes


def test_a_drain_and_its_fingerprint_are_the_same_with_an_edit(run_task: RunTask) -> None:
    plain = run_task("make_dataset", "drain", fingerprint=True)
    edit = SetArgument(stage=1, argument="num_parallel_calls", value=4)
    edited = run_task("make_dataset", "drain", fingerprint=True, edits=(edit,))
    (one,), (other,) = of(Fingerprinted, plain), of(Fingerprinted, edited)
    assert one.fingerprint.reason is None
    assert one.fingerprint == other.fingerprint
    assert (steps(plain), steps(edited)) == (25, 25)
    assert phases(plain) == ["import", "build", "train", "fingerprint"]


def test_training_and_its_ceiling(run_task: RunTask) -> None:
    trained = run_task("make_dataset", "train", model="make_model")
    assert steps(trained) == 25
    assert of(Device, trained)
    names = [event.name for event in of(Phase, trained)]
    assert names.count("trace") == 1, "the first step alone, which traces"
    assert names.index("trace") < len(names) - 1 - names[::-1].index("train")
    assert all(event.wait_ns is not None for event in of(Steps, trained))
    ceiling = run_task("make_dataset", "ceiling", model="make_model")
    assert steps(ceiling) == 25
    assert all(event.wait_ns is None for event in of(Steps, ceiling))


def test_what_a_py_dataset_takes_beside_the_model_is_told_of_the_trial_as_written_alone(run_task: RunTask) -> None:
    def told(activity: Activity, *edits: Edit) -> list[float | None]:
        whole = activity == "train" and not edits
        events = run_task("make_batches", activity, model="make_model", edits=edits, fingerprint=whole)
        assert activity == "ceiling" or steps(events) == 25
        return [each.inspection.beside_model_ns for each in of(Inspected, events)]

    (batch_ns,) = told("train")
    assert batch_ns is not None
    assert batch_ns > 0
    others = told("train", SetArgument(stage=WORKERS_STAGE, argument="workers", value=2))
    assert not [*others, *told("ceiling"), *told("drain")]


def test_what_a_py_datasets_class_keeps_is_made_before_the_steps(run_task: RunTask) -> None:
    assert phases(run_task("make_batches", "drain", warm=True)) == ["import", "build", "fill", "train"]
    assert phases(run_task("make_batches", "drain")) == ["import", "build", "train"]


def test_where_a_class_had_no_time_to_keep_all_batches_the_steps_are_not_said_to_be_of_those_that_it_kept(
    run_task: RunTask,
) -> None:
    told = of(Inspected, run_task("make_batches", "drain", warm=True, limit_s=1e-6))[-1].inspection
    assert [note.rpartition(": ")[2] for note in told.notes] == [
        "where the steps come to the others, they are of a first epoch."
    ]


def test_a_generator_that_ends_is_measured_for_as_long_as_it_lasts(run_task: RunTask) -> None:
    events = run_task("make_once", "drain")
    assert 0 < steps(events) <= 8
    assert of(Inspected, events)[-1].inspection.notes == ("The input ended after 8 elements: those are all steps.",)


def test_a_models_function_that_fails_costs_no_stages(run_task: RunTask) -> None:
    looks = of(Inspected, run_task("make_dataset", "inspect", model="make_failing", limit_s=1.0))
    assert any(cost.elapsed_ns is not None for cost in looks[-1].inspection.costs)
    refused = run_task("make_dataset", "inspect", model="uncompiled", limit_s=1.0)
    assert "not compiled" in of(Failed, refused)[0].error
    assert [each.inspection.costs for each in of(Inspected, refused)] == [()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has another malloc")
def test_elements_that_need_new_pages_are_also_taken_with_the_memory_kept(run_task: RunTask) -> None:
    def told(*edits: Edit) -> list[KeptMemory]:
        return of(KeptMemory, run_task("make_large", "drain", edits=edits, fingerprint=False))

    (found,) = told()
    pages = (8 << 20) / os.sysconf("SC_PAGE_SIZE")
    assert found.kept
    assert found.page_faults < pages, "the array, or its copy, would be new each time"
    assert told(InsertAfter(stage=0, method="prefetch", arguments={"buffer_size": 1})) == []


def test_the_ceiling_fills_no_shuffle_buffer_for_its_one_batch(run_task: RunTask) -> None:
    ceiling = run_task("make_mixed", "ceiling", model="make_model")
    assert steps(ceiling) == 25, "the buffer alone would take minutes"


@pytest.mark.slow
def test_a_pipeline_whose_shuffle_takes_minutes_to_fill_is_looked_at_and_measured_with_less_in_it(
    run_task: RunTask,
) -> None:
    looked = of(Inspected, run_task("make_mixed", "inspect", limit_s=4))[-1].inspection
    held = looked.ahead_elements
    assert held == 64
    (told,) = (note for note in looked.notes if "64 elements at the most" in note)
    assert told.endswith("as much of its end comes from the buffer, for which nothing in front of it works.")
    assert [cost.reason for cost in looked.costs] == [None] * 4
    edits = (InsertAfter(stage=1, method="cache"),)
    for changed in ((), edits):
        assert steps(run_task("make_mixed", "drain", edits=changed, limit_s=0.5, ahead_elements=held)) == 25


def test_a_cache_is_filled_before_the_steps(run_task: RunTask) -> None:
    cached = run_task("make_dataset", "drain", edits=(InsertAfter(stage=1, method="cache"),))
    assert steps(cached) == 25
    assert phases(cached) == ["import", "build", "fill", "train"]
    (told,) = of(Inspected, cached)
    assert told.inspection.cached_elements == 100


def test_the_samples_that_a_trial_keeps_are_counted_as_the_batches_that_they_were(run_task: RunTask) -> None:
    keep = KeepSamples(stage=3, batch_size=10, buffer_size=8)
    (told,) = of(Inspected, run_task("make_dataset", "drain", edits=(keep,)))
    assert told.inspection.cached_elements == 10


@pytest.mark.slow
def test_a_snapshot_is_filled_as_a_cache_is(run_task: RunTask) -> None:
    assert phases(run_task("make_snapshot", "drain")) == ["import", "build", "fill", "train"]
    assert phases(run_task("make_snapshot", "drain", cold=True)) == ["import", "build", "train"]


def test_a_users_cache_that_a_take_leaves_early_is_not_filled_for_it(run_task: RunTask) -> None:
    left = run_task("make_left", "drain")
    assert steps(left) == 25
    assert phases(left) == ["import", "build", "train"], "TensorFlow empties it at the end of each pass"
    moved = (Remove(stage=2), InsertAfter(stage=3, method="cache"))
    assert phases(run_task("make_left", "drain", edits=moved)) == ["import", "build", "fill", "train"]


def test_a_cache_that_never_fills_keeps_its_first_elements_and_says_so(run_task: RunTask) -> None:
    endless = run_task("endless", "drain", limit_s=2, edits=(InsertAfter(stage=2, method="cache"),))
    assert steps(endless) == 25
    (noted,) = of(Inspected, endless)
    assert "first" in noted.inspection.notes[0]


def test_where_a_users_cache_cannot_be_filled_it_is_a_first_epoch_that_is_measured_and_told(run_task: RunTask) -> None:
    events = run_task("make_cached", "drain", limit_s=2, fingerprint=True)
    (noted,) = of(Inspected, events)
    assert noted.inspection.cold
    assert "first epoch" in noted.inspection.notes[0]
    again = run_task("make_cached", "drain", limit_s=2, cold=True)
    assert steps(again) == 25
    assert phases(again) == ["import", "build", "train"], "no time goes into filling it"
    assert not of(Inspected, again)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty", "gives no element"),
        ("make_broken", "has no label"),
    ],
)
def test_a_fault_of_the_users_is_told_in_one_message(run_task: RunTask, name: str, message: str) -> None:
    (failed,) = of(Failed, run_task(name, "drain"))
    assert message in failed.error


def test_a_trial_leaves_no_scratch_folder(run_task: RunTask, tmp_path: Path) -> None:
    cache = InsertAfter(stage=1, method="cache", arguments={"filename": "disk"})
    assert steps(run_task("make_scratched", "drain", edits=(cache,))) == 25
    scratch = (tmp_path / "train.py.scratch").read_text()
    assert "pipeline-bench-scratch-" in scratch
    assert not Path(scratch).exists()


def test_a_trial_leaves_no_temporary_files(run_task: RunTask, tmp_path: Path) -> None:
    assert steps(run_task("make_temporary_files", "drain")) == 25
    names = (tmp_path / "train.py.made").read_text().splitlines()
    assert len(names) == 3
    assert not [name for name in names if Path(name).exists()]


LOOP = """
import tensorflow as tf
weight = tf.Variable(1.0)

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = weight * tf.reduce_sum(x)
    weight.assign_sub(1e-6 * tape.gradient(loss, weight))
    CHECK
    return loss

for x in tf.data.Dataset.range(400).map(lambda x: tf.cast(x, tf.float32)).batch(4):
    step(x)
    open(__file__ + ".stepped", "w")
"""


@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("pass", "step"),
        ("tf.debugging.assert_less(x, -1.0)", ""),
        pytest.param("tf.io.write_file(__file__ + '.stepped', 'by its graph')", "", marks=pytest.mark.slow),
    ],
)
def test_a_loops_function_is_its_step_where_it_runs_by_itself(
    check: str, name: str, fork_server: TrialServer, tmp_path: Path
) -> None:
    script = tmp_path / "loop.py"
    script.write_text(LOOP.replace("CHECK", check), encoding="utf-8")
    target = Target(file=str(script), name="", arguments=())
    (events,) = events_of(fork_server, tmp_path, Task(target=target, activity="inspect", limit_s=1.0))
    training = of(Inspected, events)[-1].inspection.training
    assert training is not None
    assert (training.model, training.step) == (bool(name), name)
    if training.model:
        (events,) = events_of(fork_server, tmp_path, Task(target=target, model=target, activity="train"))
        assert steps(events) == 25
    assert not (tmp_path / "loop.py.stepped").exists(), "nothing else of the loop is run"
