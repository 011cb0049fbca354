"""Which calls of a program are the steps of a loop, and what else it does between them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline_bench.model.events import Device
from pipeline_bench.monitoring import calls, sampling
from pipeline_bench.monitoring.calls import CallMonitor, TrainingCalls

STEP_NS, GAP_NS = 1_000_000, 9_000_000


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clock of the steps, in ns, as its only item."""
    now = [1]
    monkeypatch.setattr(calls, "time", SimpleNamespace(monotonic_ns=lambda: now[0]))
    monkeypatch.setattr(calls, "device_of", lambda _: Device(kind="cpu", name="CPU"))
    return now


Made = dict[str, CallMonitor]


def calling(problems: list[Exception], where: Callable[[], str] = lambda: "train.py:7") -> tuple[TrainingCalls, Made]:
    """What watches calls that train, and the loops that it has made of them, by their lines."""
    made: Made = {}

    def watch(line: str, begin: Callable[[str], CallMonitor]) -> CallMonitor:
        made[line] = made.get(line) or begin(line)
        return made[line]

    return TrainingCalls(where, watch, problems.append, None), made


def step(at: list[int]) -> None:
    at[0] += STEP_NS


def taped(training: TrainingCalls, at: list[int]) -> None:
    training.enter_tape()
    step(at)
    training.leave_tape()


def loop(at: list[int], between: Callable[[TrainingCalls, int], None]) -> CallMonitor:
    """What was seen of a loop of 40 steps, each of 1 ms and 9 ms after the one before."""
    problems: list[Exception] = []
    training, made = calling(problems)
    for number in range(40):
        training.on_batch("train_on_batch", "tensorflow", lambda: step(at))
        between(training, number)
        at[0] += GAP_NS
    assert not problems
    (monitor,) = made.values()
    return monitor


def test_what_lies_between_two_threads_of_one_number_is_no_part_of_a_step(
    at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "threading", SimpleNamespace(get_ident=lambda: 5))
    problems: list[Exception] = []
    training, made = calling(problems)

    def train() -> None:
        for _ in range(10):
            training.on_batch("train_on_batch", "tensorflow", lambda: step(at))
            at[0] += GAP_NS

    for _ in range(4):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(train).result()
        at[0] += 10**9
    (monitor,) = made.values()
    monitor.close()
    assert not problems
    assert monitor.summary.step_ms == pytest.approx(10, abs=1.0)
    assert monitor.record.log.totals.time_ns < 10**9


def acts(training: TrainingCalls, _: int) -> None:
    for _ in range(3):
        training.other("predict")


def validates(training: TrainingCalls, number: int) -> None:
    if number % 10 == 9:
        acts(training, number)


def test_what_a_policy_does_in_every_step_is_a_part_of_the_loop(at: list[int]) -> None:
    monitor = loop(at, acts)
    monitor.close()
    assert monitor.summary.steps >= 30
    assert len(monitor.record.remarks) == 1
    assert monitor.summary.input_wait_share == pytest.approx(0.9, abs=0.01)


def test_what_a_policy_does_in_every_step_of_two_calls_that_train_is_a_part_of_the_loop(at: list[int]) -> None:
    """As an actor's and a critic's."""
    where, problems = ["actor"], list[Exception]()
    training, made = calling(problems, lambda: where[0])
    for number in range(40):
        for where[0] in ("actor", "critic"):
            training.on_batch("train_on_batch", "tensorflow", lambda: step(at))
        acts(training, number)
        at[0] += GAP_NS
    (monitor,) = made.values()
    monitor.close()
    assert not problems
    assert monitor.beside_ns == 0
    assert monitor.summary.input_wait_share == pytest.approx(9 / 11, abs=0.01)


def test_what_a_model_computes_between_two_steps_is_no_input_wait(at: list[int]) -> None:
    """As the generator's pictures, on which a GAN's discriminator is trained."""
    polled = []

    def predicts(training: TrainingCalls, _: int) -> None:
        def compute() -> str:
            at[0] += 10 * STEP_NS
            if (monitor := training._thread.monitor) is not None:
                with ThreadPoolExecutor(1) as other:
                    other.submit(monitor.poll).result()  # no wait
                polled.append(monitor)
            return "pictures"

        training.other("predict")
        assert training.computes(compute) == "pictures"

    monitor = loop(at, predicts)
    monitor.close()
    assert len(polled) > 30
    assert monitor.summary.input_wait_share == pytest.approx(9 / 20, abs=0.01)
    (line,) = [
        number for number, text in enumerate(Path(__file__).read_text().split("\n"), 1) if text.endswith("# no wait")
    ]
    assert line not in {number for _, number in monitor._wait_lines._seen}  # the job's own sampler may poll as well


@pytest.mark.parametrize(
    ("what", "took_ns", "every", "told"),
    [
        ("predict", 2 * STEP_NS, 1, True),
        ("predict", STEP_NS // 2, 1, False),
        ("predict", 100 * STEP_NS, 10, False),
        ("predict_on_batch", 2 * STEP_NS, 1, False),
    ],
)
def test_predict_in_each_step_is_told_where_it_takes_much_of_it(
    at: list[int], what: str, took_ns: int, every: int, told: bool
) -> None:
    """Not where it is a validation now and then, of all its data."""

    def predicts(training: TrainingCalls, number: int) -> None:
        def compute() -> None:
            at[0] += took_ns

        if number % every == 0:
            training.other(what)
            training.computes(compute)

    monitor = loop(at, predicts)
    monitor.close()
    remarks = [each for each in monitor.record.remarks if "predict_on_batch, or a call of the model" in each]
    assert len(remarks) == told
    assert all(each.startswith("39 calls of predict took 2.00 ms each, 78.0 ms in all:") for each in remarks)


def test_the_time_of_a_validation_is_no_input_wait_and_told_where_it_is_much(at: list[int]) -> None:
    monitor = loop(at, validates)
    assert monitor.beside_ns == 3 * GAP_NS
    monitor.close()
    assert len(monitor.record.remarks) == 1  # 27 of 400 ms

    def validates_long(training: TrainingCalls, number: int) -> None:
        validates(training, number)
        at[0] += 10**9 if number % 10 == 9 else 0

    monitor = loop(at, validates_long)
    monitor.close()
    assert monitor.record.remarks[1].startswith("3.03 s between its steps, 9")


@pytest.mark.parametrize(
    ("gap_ns", "every", "told"), [(GAP_NS, 1, False), (STEP_NS // 2, 1, True), (STEP_NS // 2, 8, False)]
)
def test_where_steps_of_eager_code_compute_for_most_of_their_time_the_reason_is_given(
    at: list[int], gap_ns: int, every: int, told: bool
) -> None:
    """Not where only every eighth step is one, as with a penalty of its own."""
    training, made = calling([])
    for number in range(40):
        if number % every:
            training.on_batch("train_on_batch", "tensorflow", lambda: step(at))
        else:
            taped(training, at)
            training.goes_on()
        at[0] += gap_ns
    kept = made["train.py:7"].close()
    reasons = [
        each
        for each in kept.remarks
        if "eager code, op by op from Python: their GradientTape is in no tf.function" in each
    ]
    assert len(reasons) == told
    assert [note for note in kept.session.notes if note in reasons] == reasons


@pytest.mark.parametrize("validations", [1, 10])
def test_a_tape_that_no_gradient_follows_begins_no_step(at: list[int], validations: int) -> None:
    """As that of a validation, here after each 20 steps of two tapes each, as a GAN's."""
    where, problems = [""], list[Exception]()
    training, made = calling(problems, lambda: where[0])
    for _ in range(3):
        for _ in range(20):
            for where[0] in ("generator", "discriminator"):
                taped(training, at)
                at[0] += STEP_NS
                training.goes_on()
            at[0] += GAP_NS
        for _ in range(validations):
            where[0] = "validation"
            taped(training, at)
            at[0] += GAP_NS
    (monitor,) = made.values()
    monitor.close()
    assert not problems
    assert made.keys() == {"generator"}
    assert monitor.summary.steps >= 50
    assert monitor.summary.step_ms == pytest.approx(13, abs=0.5)
    assert monitor.summary.input_wait_share == pytest.approx(9 / 13, abs=0.02)
    assert monitor.beside_ns == (0 if validations == 1 else 2 * (GAP_NS + validations * (STEP_NS + GAP_NS)))


def test_a_tape_on_a_new_line_is_part_of_the_step_where_a_gradient_follows(at: list[int]) -> None:
    """As that of a penalty, which comes in every fifth step."""
    where = [""]
    training, made = calling([], lambda: where[0])
    for number in range(40):
        for where[0] in ("loss", "penalty")[: 1 + (number % 5 == 4)]:
            taped(training, at)
            training.goes_on()
        at[0] += GAP_NS
    (monitor,) = made.values()
    monitor.close()
    assert monitor.record.log.totals.time_ns - monitor.record.log.totals.wait_ns == pytest.approx(
        47 * STEP_NS, abs=2 * STEP_NS
    )


def polls(training: TrainingCalls, number: int) -> None:
    """Make a batch, while the sampler polls."""
    monitor = training._thread.monitor
    if monitor is None:  # which loop it is, is not known before its second step
        return
    with ThreadPoolExecutor(1) as other:
        if number % 4:
            other.submit(monitor.poll).result()  # often
        else:
            other.submit(monitor.poll).result()  # seldom


def test_the_line_that_takes_most_of_making_a_batch_is_named(at: list[int]) -> None:
    monitor = loop(at, polls)
    monitor.close()
    (line,) = [
        number for number, text in enumerate(Path(__file__).read_text().split("\n"), 1) if text.endswith("# often")
    ]
    found = monitor._wait_lines.costliest()
    assert found is not None
    assert found.share == pytest.approx(29 / 38, abs=0.05)  # the job's own sampler may poll as well
    (remark,) = monitor.record.remarks[1:]
    assert remark.startswith("of the input wait, 7")
    assert remark.endswith(f" % is in test_calls.py:{line}: other.submit(monitor.poll).result() # often")


def test_what_a_thread_does_where_no_further_step_comes_is_in_no_line(at: list[int]) -> None:
    def polls_and_leaves(training: TrainingCalls, number: int) -> None:
        polls(training, number)
        training.leave()

    monitor = loop(at, polls_and_leaves)
    monitor.close()
    assert len(monitor.record.remarks) == 1


def test_what_is_kept_of_a_loop_that_has_ended_does_not_grow(at: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may go on for days behind it."""
    monkeypatch.setattr(sampling, "PERIOD_S", 60.0)  # the looks are the test's own
    monitor = loop(at, lambda *_: None)
    with ThreadPoolExecutor(1) as other:
        for _ in range(200):
            other.submit(monitor._wait_lines.sample).result()
    (kept,) = monitor._wait_lines._waits.values()
    assert len(kept) <= 2
    monitor.drop()


def test_what_goes_wrong_as_a_step_is_ended_stays_out_of_the_program(
    at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(CallMonitor, "leave", fail)
    problems: list[Exception] = []
    training, made = calling(problems)
    for _ in range(3):
        assert training.on_batch("train_on_batch", "tensorflow", lambda: 5) == 5
        acts(training, 0)
        at[0] += GAP_NS
        training._thread.repeated = False  # as before a validation
    made["train.py:7"].drop()
    assert isinstance(problems[0], MemoryError)
