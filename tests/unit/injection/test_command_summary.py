"""What is told when a watched command has ended."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_bench.analysis import watched
from pipeline_bench.injection import command_result, process_records
from pipeline_bench.injection.command_result import (
    Adapted,
    EndedCommand,
    ProcessRecord,
    TimeBetweenFits,
    TracedAnew,
    WatchedTraining,
)
from pipeline_bench.injection.command_summary import isolated_by, lines, next_command
from pipeline_bench.injection.watched_loops import WATCHED_LOOPS
from pipeline_bench.model.job import WallTime


def ended(
    command: str,
    program: str,
    verdict: str = "input-bound",
    number: int | None = 1,
    *,
    device_percent: float | None = None,
) -> EndedCommand:
    of, line = (f"{program}:31, by fast.py:7", 31) if number is None else (program, None)
    share = 0.9 if verdict == "input-bound" else 0.02
    judged = watched.judge(
        10.0, 10.0 * share, share, 3 if verdict == "too few steps" else 100, reason=None, device_waits=True
    )
    figures: dict[str, object] = {"steps": 100, "input_wait_share": share, "line": "waits", "folder": None}
    figures |= {"verdict": judged.kind, "cause": judged.cause, "device_percent": device_percent}
    training = WatchedTraining.model_validate({"of": of, "number": number, "line_number": line, **figures})
    record = ProcessRecord(
        pid=7,
        program=program,
        executable="python",
        trainings=(training,),
        more=0,
        problem=None,
        command=tuple(shlex.split(command)),
    )
    return EndedCommand(0, 9.0, (record,), (), (), (None, None), None)


@pytest.mark.parametrize(
    ("command", "program", "expected"),
    [
        ("python train.py", "train.py", "train.py"),
        ("python src/train.py --epochs 3", "train.py", "src/train.py -- --epochs 3"),
        ("python -m package.train --config a.py", "train.py", "-m package.train -- --config a.py"),
        ("python -m package -v", "package", "-m package -- -v"),
        ("python -m package.part", "part", "-m package.part"),
        ("python -m launcher package", "package", None),
        ("python -m cProfile -o out train.py 3", "train.py", "train.py -- 3"),
        ("python -m", "train.py", None),
        ("python bin/pytest tests/test_train.py", "pytest", None),
        ("python launch.py worker.py", "worker.py", "worker.py"),
        ("python -c 'from multiprocessing.spawn import spawn_main; spawn_main()'", "train.py", None),
        ("", "train.py", None),
    ],
)
def test_the_command_that_diagnoses_takes_the_same_script_and_arguments(
    command: str, program: str, expected: str | None
) -> None:
    told = next_command(ended(command, program))
    assert told == (expected and f"pipeline-bench diagnose {expected}")


@pytest.mark.parametrize(
    ("argument", "command", "expected"),
    [("/site/package/__main__.py", "python -m package", "-m package"), ("train.py", "python train.py", "train.py")],
)
def test_the_command_is_found_by_the_name_that_the_process_leaves(
    argument: str, command: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [argument])
    assert next_command(ended(command, process_records.program())) == f"pipeline-bench diagnose {expected}"


def test_variables_that_the_training_was_started_with_and_that_are_not_set_here_are_named_beside_the_next_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME_OF_DATA", "/data")
    for name in ("MAKEFLAGS", "_", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    job = ended("python train.py", "train.py")
    started_with = (
        "DATA_DIR",
        "HOME_OF_DATA",
        "KERAS_BACKEND",
        "MAKEFLAGS",
        "MAKE_MODEL",
        "PIPELINE_BENCH_RUN",
        "PWD",
        "PYTHONPATH",
        "SHLVL",
        "_",
        "_SEED",
    )
    record = job.records[0].model_copy(update={"variables": started_with})
    said = lines(replace(job, records=(record,)), ["./job.sh"])
    assert said[-1] == (
        "what the next command names was started with variables that are not set here: DATA_DIR, KERAS_BACKEND, "
        "MAKE_MODEL, _SEED; set those that it reads"
    )
    assert said[:-1] == lines(job, ["./job.sh"])


def test_a_process_leaves_the_names_of_the_variables_that_it_was_started_with_and_no_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"/proc/self/environ": b"HOME=/\0DATA_DIR=a=secret\nB=c\0"}
    monkeypatch.setattr(Path, "read_bytes", lambda path: given[str(path)])
    assert process_records.variables() == ("DATA_DIR", "HOME")


def test_the_training_that_starves_is_the_one_to_diagnose() -> None:
    command = "python train.py -v"
    third = ended(command, "train.py", number=3)
    assert next_command(third) == "pipeline-bench diagnose train.py --training 3 -- -v"
    several = ended(command, "train.py", number=None)
    assert next_command(several) == "pipeline-bench diagnose train.py -- -v"
    (record,) = several.records
    well = ended(command, "train.py", "not input-bound").records[0].trainings
    several = replace(several, records=(record.model_copy(update={"trainings": (*well, *record.trainings)}),))
    assert next_command(several) == "pipeline-bench diagnose train.py --training 31 -- -v"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [((20.0, 1.0, 9.0), "31"), ((20.0, 9.0, 1.0), "40"), ((20.0, 0.5, 0.5), None)],
)
def test_of_the_loops_that_starve_the_one_that_waits_longest_is_diagnosed_where_that_is_a_good_part(
    seconds: tuple[float, float, float], expected: str | None
) -> None:
    (record,) = ended("python train.py", "train.py", number=None).records
    (starved,) = record.trainings
    well = starved.model_copy(update={"verdict": "inconclusive", "input_wait_share": 0.02, "line_number": 9})
    others = (well, starved.model_copy(update={"line_number": 40}), starved)
    trainings = tuple(each.model_copy(update={"seconds": s}) for each, s in zip(others, seconds, strict=True))
    job = replace(ended("", "a.py"), records=(record.model_copy(update={"trainings": trainings}),))
    command = f"pipeline-bench diagnose train.py --training {expected}"
    assert next_command(job) == (expected and command)


def test_a_comma_in_a_files_name_and_data_in_one_are_its_own() -> None:
    (record,) = ended("python train,v2.py", "train,v2.py", number=None).records
    well = record.trainings[0].model_copy(update={"verdict": "inconclusive"})
    job = replace(ended("", ""), records=(record.model_copy(update={"trainings": (well, *record.trainings)}),))
    assert next_command(job) == "pipeline-bench diagnose train,v2.py --training 31"
    several = ended("python fit, data 2", "fit, data 2", number=2)
    assert lines(several, ["python"])[0] == "fit 2 of fit, data 2: waits"
    assert lines(ended("python refit.py", "refit.py", number=None), ["python"])[0].startswith("loop of refit.py:31")


def test_of_several_data_of_a_line_only_the_first_is_diagnosed_and_it_is_told_why() -> None:
    (record,) = ended("python train.py", "train.py", number=None).records
    (first,) = record.trainings
    first = first.model_copy(update={"seconds": 1.0})
    second = first.model_copy(update={"data_number": 2, "seconds": 9.0})
    for trainings, expected in (((second,), None), ((first, second), None), ((first,), "")):
        job = replace(ended("", ""), records=(record.model_copy(update={"trainings": trainings}),))
        assert next_command(job) == (None if expected is None else "pipeline-bench diagnose train.py")
        told = [
            line
            for line in lines(job, ["python"])
            if line.startswith(f"no next command for loop of {second.of}, data 2: ")
        ]
        assert len(told) == (expected is None)
        assert all("--training 31" in line and "--dataset" in line for line in told)
    both = tuple(each.model_copy(update={"seconds": 9.0}) for each in (first, second))
    job = replace(ended("", ""), records=(record.model_copy(update={"trainings": both}),))
    assert next_command(job) == "pipeline-bench diagnose train.py --training 31"


def test_a_loop_that_only_reads_gets_no_verdict_and_is_not_diagnosed() -> None:
    job = ended("python train.py", "train.py", number=None)
    (record,) = job.records
    reads = record.trainings[0].model_copy(update={"trains": False, "seconds": 2.5})
    job = replace(job, records=(record.model_copy(update={"trainings": (reads,)}),))
    assert next_command(job) is None
    assert f"loop of {reads.of}: 100 batches in 2.50 s; nothing was seen to train on them" in lines(
        job, ["python", "train.py"]
    )


def test_of_a_jobs_processes_the_first_that_starves_and_can_be_started_again_is_diagnosed_where_it_ran() -> None:
    (forked,) = ended("", "prepare.py").records
    (well,) = ended("python check.py", "check.py", "not input-bound").records
    (starved,) = ended("python train.py -v", "train.py").records
    job = replace(ended("", "a.py"), records=(forked, well, starved.model_copy(update={"folder": Path("/some where")})))
    assert next_command(job) == "cd '/some where' && pipeline-bench diagnose train.py -- -v"


def test_a_command_that_a_package_installed_is_diagnosed_as_the_script_that_it_is(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("#!/env/bin/python\n")
    told = next_command(ended(f"python {tmp_path}/train --epochs 3", "train"))
    assert told == f"pipeline-bench diagnose {tmp_path}/train -- --epochs 3"


def test_what_does_not_starve_needs_no_diagnosis() -> None:
    assert next_command(ended("python train.py", "train.py", "not input-bound")) is None


@pytest.mark.parametrize(
    ("verdict", "device_percent", "cpu_percent", "gpu_percent", "expected"),
    [
        ("not input-bound", 90.0, 53.0, None, True),  # imports and the end are most of the command
        ("not input-bound", 50.0, 90.0, None, True),  # it has workers in processes of their own
        ("not input-bound", 50.0, 53.0, None, False),
        ("not input-bound", 90.0, 53.0, 40.0, False),
        ("too few steps", 90.0, 53.0, None, False),
    ],
)
def test_where_input_and_model_share_busy_cores_a_wait_is_not_all(
    verdict: str, device_percent: float, cpu_percent: float, gpu_percent: float | None, expected: bool
) -> None:
    job = replace(
        ended("python train.py", "train.py", verdict, device_percent=device_percent),
        cpu_percent=cpu_percent,
        gpu_percent=(gpu_percent, "NVML"),
    )
    assert next_command(job) == ("pipeline-bench diagnose train.py" if expected else None)
    assert any("take cores from the model" in line for line in lines(job, ["python"])) == expected
    starved = ended("python train.py", "train.py", device_percent=90.0)
    assert not any("take cores from the model" in line for line in lines(starved, ["python"]))


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


@pytest.mark.parametrize(
    ("command", "code", "expected"),
    [
        ("./job.sh", 0, "no Python process was seen to import TensorFlow, "),
        ("./job.sh", 3, "the command failed with exit code 3; no Python process was seen to import TensorFlow, "),
        (
            "sh -c 'export PYTHONPATH=.:$PYTHONPATH; python a.py'",
            0,
            "no Python process was seen to import TensorFlow, ",
        ),
        ("env PYTHONPATH=. python train.py", 0, "the command sets PYTHONPATH, which disables the watching"),
    ],
)
def test_of_a_command_that_left_no_record_it_is_not_said_that_it_imported_nothing(
    command: str, code: int, expected: str
) -> None:
    """Its script may set PYTHONPATH, as by `export`: that is not seen, and named as a reason."""
    unseen = replace(ended(command, "train.py"), records=(), code=code)
    (line,) = (each for each in lines(unseen, shlex.split(command)) if each.startswith("no training was found: "))
    assert line.removeprefix("no training was found: ").startswith(expected)
    assert "PYTHONPATH" in line


def test_many_calls_of_fit_too_short_for_a_verdict_are_one_line_and_of_a_batch_each_have_a_remark() -> None:
    def told(count: int, steps: int, more: int, verdict: str = "too few steps") -> list[str]:
        (record,) = ended("python agent.py", "agent.py", verdict).records
        each = record.trainings[0].model_copy(update={"steps": steps})
        fits = tuple(each.model_copy(update={"number": number}) for number in range(1, count + 1))
        record = record.model_copy(update={"trainings": fits, "more": more})
        return [line for line in lines(replace(ended("", ""), records=(record,)), ["python"]) if "fit" in line]

    first, others, remark, more = told(10, 1, 71)
    assert first == "fit 1 of agent.py: waits"
    assert others == "9 more calls of fit took 1 step at most: too few for a verdict"
    assert "use train_on_batch instead" in remark
    assert more.startswith("71 more calls of fit were not measured")
    assert len(told(5, 20, 0)) == 2  # as the folds of a validation
    assert told(5, 20, 0, "input-bound")[1] == (
        "4 more calls of fit took 20 steps at most: 4 of them are input-bound too"
    )
    assert len(told(2, 1, 0)) == 2
    assert len(told(5, 100, 0)) == 5


@pytest.mark.parametrize(("seconds", "fits_s", "expected"), [(6.0, 2.0, True), (6.0, 94.0, False), (0.9, 0.1, False)])
def test_what_goes_by_between_fits_is_told_with_its_line_where_it_is_a_good_part(
    seconds: float, fits_s: float, expected: bool
) -> None:
    job = ended("python train.py", "train.py")
    between = TimeBetweenFits(seconds=seconds, fits_s=fits_s, line="train.py:12", line_share=0.9)
    records = (job.records[0].model_copy(update={"between_fits": between}),)
    told = [each for each in lines(replace(job, records=records), ["python"]) if each.startswith("between")]
    assert told == expected * [
        "between the calls of fit: 6.00 s, 75 % of the time from the first call to the last, evaluate and predict not "
        "counted; 90 % of it in train.py:12"
    ]


@pytest.mark.parametrize(
    ("calls", "seconds", "told"), [(57, 12.0, True), (2, 12.0, False), (57, 0.9, False), (57, 4.0, False)]
)
def test_a_function_that_is_traced_again_and_again_is_told_where_it_takes_a_good_part(
    calls: int, seconds: float, told: bool
) -> None:
    job = ended("python train.py", "train.py")
    anew = TracedAnew(function="train_step", line="train.py:40", calls=calls, seconds=seconds)
    trainings = tuple(each.model_copy(update={"seconds": 100.0}) for each in job.records[0].trainings)
    record = job.records[0].model_copy(update={"traced_anew": (anew,), "trainings": trainings})
    said = lines(replace(job, records=(record,)), ["python", "train.py"])
    start = "  train_step, train.py:40, was traced anew in 57 calls, which took 12.0 s: each new shape"
    assert [line.startswith(start) for line in said].count(True) == told
    assert any("traced anew" in line for line in said) == told


def test_loops_that_were_not_measured_are_named() -> None:
    told = ended("python train.py", "train.py")
    where = tuple(f"train.py:{line}" for line in (31, 40, 55, 60, 71))
    records = tuple(each.model_copy(update={"unwatched_loops": where}) for each in told.records)
    (line,) = [line for line in lines(replace(told, records=records * 2), ["python"]) if "loops" in line]
    assert line == (
        "5 more loops were not measured (train.py:31, train.py:40, train.py:55, train.py:60, …): "
        f"at most {WATCHED_LOOPS} per process are."
    )


def test_trainings_are_told_apart_by_their_number_and_their_process() -> None:
    (record,) = ended("python train.py", "train.py").records
    (fit,) = record.trainings
    alone = replace(ended("", ""), records=(record,))
    assert lines(alone, ["python"])[0] == "fit of train.py: waits"
    twice = record.model_copy(update={"trainings": (fit, fit.model_copy(update={"number": 2})), "pid": 9})
    told = lines(replace(alone, records=(record, twice)), ["python"])
    assert told[:3] == [
        "fit of train.py, process 7: waits",
        "fit 1 of train.py, process 9: waits",
        "fit 2 of train.py, process 9: waits",
    ]


def test_a_process_that_trains_on_in_the_background_was_not_killed() -> None:
    (record,) = ended("python train.py", "train.py").records
    job = replace(ended("", ""), records=(record.model_copy(update={"ended": False}),))
    assert "process 7 was killed" in lines(job, ["python"])[1]


def test_of_a_process_that_was_killed_it_is_told_when_it_saved_last(tmp_path: Path) -> None:
    job = ended("python train.py", "train.py")
    process_records.write(tmp_path, 7, {**job.records[0].model_dump(exclude={"pid", "saved_s"}), "ended": False})
    (record,) = command_result._records(tmp_path)
    assert record.saved_s > 0
    record = record.model_copy(update={"saved_s": time.mktime((2026, 1, 2, 13, 58, 7, 0, 0, -1))})
    (told,) = [line for line in lines(replace(job, records=(record,)), ["python"]) if "was killed" in line]
    assert told.endswith("what came after its last save, 13:58:07, is missing")
    assert "process 7 still trains" in lines(replace(job, running=frozenset({7})), ["python"])[1]


@pytest.mark.parametrize(("after_s", "expected"), [(4.0, True), (1.5, False)])
def test_what_comes_behind_the_last_training_is_told_where_it_is_long(after_s: float, expected: bool) -> None:
    told = lines(replace(ended("python train.py", "train.py"), after_s=after_s), ["python", "train.py"])[-1]
    assert ("after its last training" in told) is expected


@pytest.mark.parametrize(
    ("unmeasured", "after_s"),
    [({}, 4.0), ({"more": 2}, 0.0), ({"unwatched_loops": ("train.py:9",)}, 0.0), ({"problem": "it trains so"}, 0.0)],
)
def test_where_a_training_was_not_measured_it_is_not_known_what_comes_behind_the_last_one(
    unmeasured: dict[str, object], after_s: float
) -> None:
    (record,) = ended("python train.py", "train.py").records
    time = WallTime(before_s=None, begin_ns=0, end_ns=6 * 10**9, epochs=())
    trainings = tuple(each.model_copy(update={"time": time}) for each in record.trainings)
    record = record.model_copy(update={"trainings": trainings, **unmeasured})
    assert command_result._after_s([record], 10 * 10**9) == after_s
    on = tuple(each.model_copy(update={"trains_on": True}) for each in trainings)
    assert command_result._after_s([record.model_copy(update={"trainings": on})], 10 * 10**9) == 0.0


def test_a_session_that_could_not_be_saved_is_told() -> None:
    found = ended("python train.py", "train.py")
    (record,) = found.records
    unsaved = record.trainings[0].model_copy(update={"unsaved": "reports cannot be made: Read-only file system."})
    found = replace(found, records=(record.model_copy(update={"trainings": (unsaved,)}),))
    assert lines(found, ["python"])[0].endswith("; no session: reports cannot be made: Read-only file system")


@pytest.mark.parametrize(
    ("single", "calls", "elements", "seconds", "expected"),
    [
        (True, 1, 2000, 60.0, ["train.py:3: 2,000 elements in 60.0 s", "each element is a single value"]),
        (False, 1, 20_000, 9.0, ["train.py:3: 20,000 elements in 9.00 s", "if each element is a single sample"]),
        (False, 9, 20_000, 9.0, ["train.py:3, 9 calls: 20,000 elements in 9.00 s"]),
        (False, 1, 0, 9.0, ["train.py:3: 9.00 s"]),
        (True, 1, 2000, 0.5, []),
    ],
)
def test_a_long_adapt_is_told_and_what_helps_where_its_elements_may_be_no_batches(
    single: bool, calls: int, elements: int, seconds: float, expected: list[str]
) -> None:
    job = ended("python train.py", "train.py")
    place = {"layer": "StringLookup", "line": "train.py:3", "single_values": single}
    adapted = Adapted.model_validate({**place, "calls": calls, "elements": elements, "seconds": seconds})
    untrained = job.records[0].model_copy(update={"adapted": (adapted,), "trainings": ()})
    for record in (job.records[0].model_copy(update={"adapted": (adapted,)}), untrained):
        said = lines(replace(job, records=(record,)), ["python", "train.py"])
        told = [line for line in said if "adapt" in line]
        assert len(told) == len(expected)
        assert all(part in line for part, line in zip(expected, told, strict=True))
        assert all("dataset.batch(1024) before adapt" in line for line in told[1:])
    documents = adapted.model_copy(update={"may_batch": False, "elements": 20_000})
    said = lines(replace(job, records=(job.records[0].model_copy(update={"adapted": (documents,)}),)), ["python"])
    assert not [line for line in said if "dataset.batch(1024)" in line], "they would become one document"
