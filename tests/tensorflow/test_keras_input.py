"""What a `fit` is given that is no tf.data pipeline: its stages measured, its workers changed."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipeline_bench.diagnosis import fixes
from pipeline_bench.diagnosis.fixes import Context
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.inspection import keras_stages
from pipeline_bench.model.edits import InsertAfter, SetArgument
from pipeline_bench.model.function_edits import KeepBatches
from pipeline_bench.model.pipeline import Location, ScriptTraining
from pipeline_bench.tfdata import keras_adapters, keras_input, passes, worker_places
from pipeline_bench.tfdata.keras_input import COPY, GET_ITEM, QUEUE, WORKERS_STAGE, KerasInput
from pipeline_bench.user_code import legacy_keras
from pipeline_bench.user_code.line_profile import line_costs
from pipeline_bench.worker import consumers, keras_step

keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")


class Batches(keras.utils.PyDataset):  # type: ignore[name-defined,misc]
    epochs = 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)  # the costliest line
        return np.full([4, 2], index, np.float32), np.full([4], index, np.float32)

    def on_epoch_end(self) -> None:
        self.epochs += 1


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the copy, no test wants a figure; it is given up no sooner."""
    monkeypatch.setattr(keras_stages, "_COPY_S", 0.02)
    monkeypatch.setattr(keras_stages, "_LONGEST", 250)


def read(data: Any, kind: Any = "PyDataset", **given: Any) -> KerasInput:
    return KerasInput(kind, data, {"shuffle": False, **given})


def numbers(dataset: Any) -> list[float]:
    return [float(y[0]) for _, y in dataset]


@pytest.mark.parametrize("processes", [False, True])
def test_the_workers_give_the_same_batches_in_order_epoch_after_epoch(processes: bool) -> None:
    data = Batches()
    edits = [SetArgument(stage=WORKERS_STAGE, argument="workers", value=2)]
    edits += [SetArgument(stage=WORKERS_STAGE, argument="use_multiprocessing", value=True)] * processes
    found = read(data)
    assert found.held_batches == 0
    dataset = found.dataset([*edits, SetArgument(stage=WORKERS_STAGE, argument="max_queue_size", value=40)])
    assert found.held_batches == 40
    assert numbers(dataset) == numbers(dataset) == [0, 1, 2, 3, 4, 5]
    assert (data.workers, data.use_multiprocessing, data.epochs) == (2, processes, 2)
    next(iter(dataset))  # a pass that is left before its end
    assert numbers(read(data).subsampled(edits, 3)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("workers", "processes", "batch_ns"), [(1, False, 10.0), (2, False, 5.0), (2, True, None)])
def test_calls_in_this_process_are_timed_and_those_of_threads_run_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, workers: int, processes: bool, batch_ns: float | None
) -> None:
    now = threading.local()

    def clock() -> int:
        now.ns = getattr(now, "ns", 0) + 10
        return int(now.ns)

    monkeypatch.setattr(keras_adapters, "monotonic_ns", clock)
    data = Batches(workers=workers, use_multiprocessing=processes)
    found = read(data)
    dataset = found.dataset(timed=True)
    assert numbers(dataset) == numbers(dataset) == [0, 1, 2, 3, 4, 5]
    assert data.epochs == 2
    assert found.batch_ns(0, 1 << 61) == batch_ns
    assert found.batch_ns(1 << 60, 1 << 61) is None, "no call began then"
    found = read(data)
    numbers(found.dataset())
    assert found.batch_ns(0, 1 << 61) is None


class Endless(keras.utils.PyDataset):  # type: ignore[name-defined,misc]
    """Without a length, as Keras takes it with `steps_per_epoch`."""

    num_batches = None

    def __getitem__(self, index: int) -> Any:
        return np.full([4, 2], index, np.float32), np.full([4], index, np.float32)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_py_dataset_without_a_length_is_timed_as_it_is(workers: int) -> None:
    found = read(Endless(workers=workers))
    assert numbers(found.dataset(timed=True).take(8)) == list(range(8))
    assert found.batch_ns(0, 1 << 61) is not None


def test_an_edit_of_something_else_is_refused() -> None:
    with pytest.raises(PipelineBenchError, match="no such edit: InsertAfter"):
        read(Batches()).dataset([InsertAfter(stage=COPY, method="prefetch")])


class Labels(Batches):
    """As of a table that pandas read."""

    def __getitem__(self, index: int) -> Any:
        return np.full([4, 9], index, np.float32), np.full([4], index, np.float64)


class Doubles(Batches):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x.astype(np.float64) / 255, y


@pytest.mark.parametrize(("data", "doubles"), [(Labels, False), (Doubles, True)])
def test_batches_of_64_bit_floats_are_told_from_others(data: type[Batches], doubles: bool) -> None:
    function = stages_of(read(data()), 0.1).stages[GET_ITEM].function
    assert function is not None
    assert function.doubles is doubles


class Whole(Batches):
    def __getitem__(self, index: int) -> Any:
        return np.full([4, 8, 8, 3], index, dtype=int), np.full([4], index, np.float32)


def test_64_bit_whole_numbers_stay_so_in_keras_and_are_known_from_its_batches_unlike_64_bit_floats() -> None:
    found = stages_of(read(Whole()), 0.1).element
    assert found is not None
    assert [each.dtype for each in found.tensors()] == ["int64", "float32"]


class Counting(Batches):
    """Counts how often each batch is made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[int] = Counter()

    def __getitem__(self, index: int) -> Any:
        self.made[index] += 1
        return super().__getitem__(index)

    def on_epoch_end(self) -> None:
        """Does nothing."""


KEEP = KeepBatches(stage=GET_ITEM, workers=WORKERS_STAGE)


def test_batches_that_are_kept_are_made_once() -> None:
    data = Counting()
    found = read(data)
    assert found.keep([KEEP], 60.0, lambda: None)
    dataset = found.dataset([KEEP, SetArgument(stage=WORKERS_STAGE, argument="workers", value=2)])
    assert numbers(dataset) == numbers(dataset) == [0, 1, 2, 3, 4, 5]
    assert numbers(found.subsampled([KEEP], 3)) == [0, 1, 2, 3, 4, 5]
    assert data.made == dict.fromkeys(range(6), 1)
    assert numbers(found.dataset()) == [0, 1, 2, 3, 4, 5]
    assert min(data.made.values()) == 2, "as written it keeps none"


def test_where_the_time_is_short_the_first_batches_stand_for_all() -> None:
    data = Counting()
    found = read(data)
    assert not found.keep([KEEP], 0.0, lambda: None)
    assert numbers(found.dataset([KEEP])) == [0] * 6
    assert data.made == {0: 1}


class Drawing(Batches):
    def __getitem__(self, index: int) -> Any:
        return np.random.random([4, 2]), np.full([4], index)


@pytest.mark.parametrize(
    ("kind", "draws", "hooks"), [(Batches, False, True), (Counting, False, False), (Drawing, True, True)]
)
def test_what_may_change_its_batches_between_epochs_is_told(kind: type, draws: bool, hooks: bool) -> None:
    stage = stages_of(read(kind()), 0.1).stages[GET_ITEM]
    assert (stage.draws, stage.epoch_hooks) == (draws, hooks)


@pytest.mark.parametrize(("kind", "asked_for"), [("PyDataset", 2 + 3), ("generator", 3)])  # two describe them
@pytest.mark.parametrize(("backend", "ahead"), [("tensorflow", True), ("torch", False)])
def test_on_pytorch_no_batch_is_made_before_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, kind: Any, asked_for: int, backend: str, ahead: bool
) -> None:
    made: list[int] = []
    more = threading.Event()

    class Noting(Batches):
        def __getitem__(self, index: int) -> Any:
            made.append(index)
            if len(made) > asked_for:
                more.set()
            return super().__getitem__(index)

    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    data = Noting()
    batches = (data[index] for index in range(6))
    iterator = iter(read(data if kind == "PyDataset" else batches, kind).dataset())
    for _ in range(3):
        next(iterator)
    assert more.wait(5.0 if ahead else 0.3) is ahead


def stages_of(of: KerasInput, limit_s: float = 1.0, **given: Any) -> Any:
    described = of.described(0.0).model_copy(update=given)
    *_, last = keras_stages.inspect(of, described, limit_s, lambda: None)
    return last


class Computing(Batches):
    """Small batches that take Python long."""

    def __getitem__(self, index: int) -> Any:
        sum(range(1_000_000))
        return super().__getitem__(index)


def test_processes_that_compute_are_not_said_to_hand_small_batches_over_for_as_long() -> None:
    found = stages_of(read(Computing(workers=2, use_multiprocessing=True)))
    assert found.cost(QUEUE).elapsed_ns < found.cost(GET_ITEM).elapsed_ns / 4


class KeepingItself(Batches):
    """Has a cache of its own."""

    def __init__(self, **pool: Any) -> None:
        super().__init__(**pool)
        self.kept: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.kept:
            sum(range(50_000))
            self.kept[index] = super().__getitem__(index)
        return self.kept[index]

    def on_epoch_end(self) -> None:
        """Does nothing."""


@pytest.mark.parametrize("workers", [1, 2])
def test_of_a_class_that_keeps_what_it_makes_later_epochs_are_measured_and_the_first_one_apart(workers: int) -> None:
    found = stages_of(read(KeepingItself(workers=workers)))
    cost = found.cost(GET_ITEM)
    assert cost.first_epoch_ns > 4 * cost.elapsed_ns
    assert cost.first_epoch_cpu_ns > 4 * cost.cpu_ns
    assert not found.cold
    assert (found.cost(QUEUE) is not None) is (workers > 1)
    assert any("it keeps what it makes. What is said here is of later epochs" in note for note in found.notes)


@pytest.mark.parametrize("pool", [{}, {"workers": 4}], ids=["alone", "threads"])
def test_of_a_class_that_keeps_what_it_makes_the_first_epoch_is_measured_where_no_later_one_is(pool: Any) -> None:
    found = stages_of(read(KeepingItself(**pool)), training=ScriptTraining(line="train.py:9", epochs=1))
    cost = found.cost(GET_ITEM)
    assert found.cold
    assert cost.first_epoch_ns == cost.elapsed_ns > 1e6
    assert (cost.elapsed_ns < 4.5e6) is bool(pool), "threads wait for batches beside each other"
    assert found.cost(QUEUE) is None, "this process has made what a pool would make"
    assert any("it keeps what it makes. What is said here is of the first epoch." in note for note in found.notes)


class OfShards(Batches):
    """A slow one that keeps the last of what it read."""

    def __len__(self) -> int:
        return 200

    @functools.lru_cache(maxsize=32)  # noqa: B019 - as users write it
    def shard(self, number: int) -> Any:
        sum(range(200_000))
        return super().__getitem__(number)

    def __getitem__(self, index: int) -> Any:
        return self.shard(index)

    def on_epoch_end(self) -> None:
        """Does nothing."""


@pytest.mark.parametrize("workers", [1, 4])
def test_of_a_class_whose_batches_were_not_all_made_nothing_is_known_of_later_epochs(workers: int) -> None:
    found = stages_of(read(OfShards(workers=workers)), 0.2)
    cost = found.cost(GET_ITEM)
    assert (found.cold, cost.first_epoch_ns, cost.calls) == (False, None, 1)
    assert cost.elapsed_ns > 1e6
    assert any("it may keep what it makes. What is said here is of batches that it" in note for note in found.notes)
    assert found.cost(QUEUE) is None, "this process has made a part of what a pool would make"
    kept = next(each for each in fixes.attempts(found, Context(cores=4, as_written_ms=9.0)) if each.fix.keeps)
    assert kept.outcome == "pending"


def test_what_worker_processes_keep_ends_with_them() -> None:
    found = stages_of(read(KeepingItself(workers=4, use_multiprocessing=True)))
    cost = found.cost(GET_ITEM)
    assert (found.cold, cost.first_epoch_ns) == (False, None)
    assert cost.calls == 4, "four make batches beside each other"
    assert any("worker processes end with each epoch, and what they keep with them." in each for each in found.notes)


class WithTable(Batches):
    """Makes one batch, and reads a table first."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        if not hasattr(self, "table"):
            time.sleep(0.05)
            self.table = sum(range(500_000))
        return np.full([4, 2], index, np.float32), np.full([4], index, np.float32)


def test_the_only_batch_of_an_epoch_is_not_said_to_be_kept() -> None:
    of = read(WithTable())
    described = of.described(0.0)  # makes a batch
    del of.data.table
    *_, found = keras_stages.inspect(of, described, 1.0, lambda: None)
    assert not found.cold
    assert not any("keep what it makes" in note or "keeps what it makes" in note for note in found.notes)


class Filling(Batches):
    """Fills the same arrays for each batch."""

    def __init__(self, **pool: Any) -> None:
        super().__init__(**pool)
        self.x, self.y = np.empty([4, 2], np.float32), np.empty([4], np.float32)

    def __getitem__(self, index: int) -> Any:
        self.x[:] = self.y[:] = index
        time.sleep(0.001)
        return self.x, self.y


def test_a_class_that_fills_one_buffer_is_not_said_to_draw_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches are made, then the first one again."""
    monkeypatch.setattr(keras_stages, "_AGAIN_S", 0.0)
    stage = stages_of(read(Filling()), 0.0).stages[GET_ITEM]
    assert not stage.draws


class Refilling(Filling):
    """Draws what it fills them with."""

    def __getitem__(self, index: int) -> Any:
        self.x[:] = np.random.default_rng().random([4, 2])
        return self.x, self.y


class SameLabels(Batches):
    """Gives the same labels with each batch, as a GAN's, and rows of one array between which those of others lie."""

    def __init__(self, **pool: Any) -> None:
        super().__init__(**pool)
        self.rows, self.labels = np.arange(48, dtype=np.float32).reshape(24, 2), np.ones([4], np.float32)

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.001)
        return self.rows[index::6], self.labels


class DrawingOnCopies(SameLabels):
    """Changes a copy of its rows."""

    def __getitem__(self, index: int) -> Any:
        rows, labels = super().__getitem__(index)
        return rows + np.random.default_rng().random([4, 2]), labels


@pytest.mark.parametrize(
    ("kind", "refused"),
    [(Filling, True), (Refilling, True), (SameLabels, False), (DrawingOnCopies, False), (Batches, False)],
)
def test_threads_are_refused_where_making_a_batch_changes_the_one_before(kind: type, refused: bool) -> None:
    """And processes are not, which copy it: two calls show it, whatever is random in the batches."""
    looked = stages_of(read(kind()))
    attempts = fixes.attempts(looked, Context(cores=2, allow_threads=True))
    told = {each.fix.kind: "fills the same arrays anew for each batch" in each.reason for each in attempts}
    assert told["worker_threads"] is refused
    assert told.get("keep_batches", refused) is refused
    assert not told["worker_processes"]


def test_the_stages_of_a_py_dataset_and_its_costliest_line() -> None:
    found = stages_of(read(Batches()))
    assert [stage.label for stage in found.stages] == ["__getitem__(Batches)", "workers", "copy"]
    assert found.cost(GET_ITEM).elapsed_ns > 4e6
    assert found.cost(COPY).elapsed_ns > 0
    assert (found.api, found.batch_size, found.cardinality) == ("PyDataset", 4, 6)
    assert found.stages[0].place.line == Batches.__getitem__.__code__.co_firstlineno
    assert any("time.sleep(0.005) # the costliest line" in note for note in found.notes)
    function = found.stage(keras_input.GET_ITEM).function
    assert function is not None
    assert function.costliest == f"line {Batches.__getitem__.__code__.co_firstlineno + 1}"
    assert function.costliest_share is not None
    assert 0.5 < function.costliest_share <= 1
    pooled = stages_of(read(Batches(workers=4)))
    assert [stage.method for stage in pooled.stages] == ["__getitem__", "workers", "queue", "copy"]


def test_of_a_librarys_py_dataset_the_users_call_and_the_librarys_costliest_line_are_named() -> None:
    image = pytest.importorskip("keras.src.legacy.preprocessing.image")
    with worker_places.recorded():
        generator = image.ImageDataGenerator(rescale=1 / 255)
        made = generator.flow(np.ones([64, 32, 32, 3]), np.ones(64))  # the user's call
    found = stages_of(read(made))
    place = found.stages[GET_ITEM].place
    assert "the user's call" in place.text
    assert found.stages[WORKERS_STAGE].place == place
    assert any(" of keras/…/preprocessing/image.py: " in note for note in found.notes), found.notes


@pytest.mark.filterwarnings("ignore:Please import `affine_transform`:DeprecationWarning")  # Keras' own
def test_of_a_librarys_py_dataset_with_a_cheap_function_of_the_users_the_librarys_line_is_named() -> None:
    """It was said to be all of a call."""
    image = pytest.importorskip("keras.src.legacy.preprocessing.image")
    generator = image.ImageDataGenerator(rotation_range=20, preprocessing_function=lambda x: x + 1)
    function = stages_of(read(generator.flow(np.ones([64, 64, 64, 3]), np.ones(64)))).stage(GET_ITEM).function
    assert function is not None
    assert function.costliest.endswith(" of keras/…/preprocessing/image.py")


def test_a_generator_and_arrays_are_measured_as_they_are() -> None:
    def forever() -> Iterator[Any]:
        while True:
            time.sleep(0.003)
            yield np.ones([4, 2], np.float32), np.ones([4], np.float32)

    found = stages_of(read(forever(), "generator"))
    assert [stage.label for stage in found.stages] == ["generator(forever)", "copy"]
    assert found.cost(GET_ITEM).elapsed_ns > 2e6
    found = stages_of(read(np.ones([64, 2]), "arrays", y=np.ones(64), batch_size=16))
    assert [stage.method for stage in found.stages] == ["arrays"]
    assert found.batch_size == 16


@pytest.mark.parametrize("more", [1, 4])
def test_of_a_generator_that_has_begun_the_batches_that_are_left_are_measured(more: int) -> None:
    """It cannot begin anew: what had been measured was thrown away at its end, for "gives no element"."""

    def batches(left: int) -> Iterator[Any]:
        while left:
            left -= 1
            time.sleep(0.003)
            yield np.ones([4, 2], np.float32), np.ones([4], np.float32)

    begun = batches(3 + more)  # one is taken here, and two describe them
    next(begun)
    found = stages_of(read(begun, "generator"))
    assert found.cost(GET_ITEM).elapsed_ns > 2e6
    assert found.cost(COPY) is not None


class OfOtherParts(Batches):
    """What Keras takes beside arrays."""

    part: Any = None

    def __getitem__(self, index: int) -> Any:
        return self.part, np.full([4], index, np.float32)


@pytest.mark.parametrize("kind", ["sparse", "ragged", "strings", "SciPy"])
def test_parts_that_are_no_arrays_are_measured_as_keras_takes_them(kind: str) -> None:
    import tensorflow as tf

    sparse = pytest.importorskip("scipy.sparse")
    parts = {
        "sparse": tf.sparse.from_dense(np.eye(4, dtype=np.float32)),
        "ragged": tf.ragged.constant([[1], [2, 3], [], [4]]),
        "strings": tf.constant(["a", "b", "c", "d"]),
        "SciPy": sparse.csr_matrix(np.eye(4, dtype=np.float32)),
    }
    data = OfOtherParts()
    data.part = parts[kind]
    found = stages_of(read(data), 0.1)
    assert found.cost(GET_ITEM) is not None
    assert found.cost(COPY).elapsed_ns > 0
    assert found.batch_size == 4


class OnGpu:
    """As a tensor of PyTorch's on a GPU, which NumPy does not take."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def detach(self) -> Any:
        return self

    def cpu(self) -> Any:
        return np.ones([4, 2], np.float32)


def test_parts_that_are_on_a_gpu_are_looked_at_on_the_host() -> None:
    x, y = keras_stages._as_tuple((OnGpu(), np.zeros(4)))
    assert (x.numpy().sum(), y.numpy().sum()) == (8.0, 0.0)


class OfKeras2(tf_keras.utils.Sequence):  # type: ignore[name-defined,misc]
    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.epochs = 0

    def __len__(self) -> int:
        return 5

    def __getitem__(self, number: int) -> Any:
        return np.full([self._rows, 2], number, np.float32), np.ones([self._rows], np.float32)

    def on_epoch_end(self) -> None:
        self.epochs += 1


def test_a_sequence_of_keras_2_becomes_a_py_dataset_with_the_workers_of_its_fit() -> None:
    data = OfKeras2(4)
    given = {"x": data, "workers": 3, "use_multiprocessing": None, "max_queue_size": 7, "epochs": 9}
    assert legacy_keras.as_py_dataset(data, given) is data
    assert isinstance(data, OfKeras2)
    found = KerasInput("PyDataset", data, {**given, "shuffle": False}, legacy=True)
    assert [x[0, 0] for x, _ in found.dataset().as_numpy_iterator()] == [0, 1, 2, 3, 4]
    assert data.epochs == 1
    stages = found.described(0.0).stages
    assert [stage.label for stage in stages] == ["__getitem__(OfKeras2)", "workers", "queue", "copy"]
    assert stages[WORKERS_STAGE].arguments == {"workers": 3, "use_multiprocessing": False, "max_queue_size": 7}


def test_a_generator_and_arrays_of_keras_2_are_read_as_it_reads_them() -> None:
    made = ((np.full([4, 2], number, np.float32), np.ones([4], np.float32)) for number in range(5))
    numbers = (np.full([4, 2], number, np.float32) for number in range(5))
    for iterator in (made, zip(numbers, np.ones([5, 4], np.float32), strict=True)):
        dataset = KerasInput("generator", iterator, {}, legacy=True).dataset()
        assert [x[0, 0] for x, _ in dataset.as_numpy_iterator()] == [0, 1, 2, 3, 4]
    given = {"y": np.arange(64), "batch_size": 16, "sample_weight": np.ones(64), "shuffle": True, "epochs": 2}
    dataset = KerasInput("arrays", np.arange(64), given, legacy=True).dataset()
    batches = [x.tolist() for x, *_ in dataset.as_numpy_iterator()]
    assert [len(batch) for batch in batches] == [16] * 8
    first, second = (list(itertools.chain(*each)) for each in (batches[:4], batches[4:]))
    assert sorted(first) == sorted(second) == [*range(64)]
    assert first != second


@pytest.mark.parametrize(("steps", "batches"), [(187.5, 188), (np.ceil(7 / 2), 4), (np.int64(3), 3), (5, 5)])
def test_steps_of_an_epoch_that_are_no_whole_number_are_those_that_keras_2_makes(steps: Any, batches: int) -> None:
    """As `len(samples) / batch_size`."""
    made = (np.full([4, 2], number, np.float32) for number in range(5))
    found = KerasInput("generator", made, {"steps_per_epoch": steps}, legacy=True)
    assert (found.batches, type(found.batches)) == (batches, int)
    looked = found.described(0.0)
    assert (looked.cardinality, looked.pass_elements) == (batches, batches)


def test_an_epoch_whose_steps_are_no_whole_number_is_kept() -> None:
    def make() -> Iterator[Any]:
        for number in itertools.count():
            yield np.full([4, 2], number, np.float32), np.full([4], number, np.float32)

    found = KerasInput("generator", make(), {"steps_per_epoch": 2.5}, legacy=True)
    asked: list[None] = []
    assert found.keep((), 60.0, lambda: asked.append(None))
    assert len(asked) == 3


class Counted(OfKeras2):
    """Has its number of batches as an attribute, of which its length is made."""

    def __init__(self) -> None:
        super().__init__(4)
        self.num_batches = np.ceil(4.5)

    def __len__(self) -> int:
        return int(self.num_batches)


def test_a_sequence_of_keras_2_may_have_its_number_of_batches_as_an_attribute() -> None:
    """Its length was that of the PyDataset, which is its length, and so on."""
    data = legacy_keras.as_py_dataset(Counted(), {})
    found = KerasInput("PyDataset", data, {"shuffle": False}, legacy=True)
    assert found.described(0.0).cardinality == 5
    assert [x[0, 0] for x, _ in found.dataset().as_numpy_iterator()] == [0, 1, 2, 3, 4]
    data.num_batches = 3
    assert (len(data), data.num_batches) == (3, 3)
    without = legacy_keras.as_py_dataset(OfKeras2(4), {})
    without.num_batches = 5
    assert without.num_batches == 5
    others = OfKeras2(4)
    others.num_batches = 7
    assert not isinstance(legacy_keras.as_py_dataset(others, {}), keras.utils.PyDataset), "it says something else"
    assert "its num_batches is not its length, 5," in legacy_keras.sequence_hint(others)
    assert not any(map(legacy_keras.sequence_hint, (Counted(), OfKeras2(4), object())))


class Shared:
    """A generator that threads may share."""

    def __init__(self, generator: Iterator[Any], meeting: threading.Barrier) -> None:
        self._generator, self._lock, self._meeting = generator, threading.Lock(), meeting

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._lock:
            x, y = next(self._generator)
        if y[0] > 0:  # Keras looks at the first one before it starts its workers
            self._meeting.wait(20)
        return x, y


def test_a_generator_of_keras_2_is_read_with_the_workers_of_its_fit() -> None:
    def numbered() -> Iterator[Any]:
        for number in itertools.count():
            yield np.full([4, 2], number, np.float32), np.full([4], number, np.float32)

    data = Shared(numbered(), threading.Barrier(2))
    found = KerasInput("generator", data, {"workers": 2, "max_queue_size": 6, "epochs": 9}, legacy=True)
    assert found.held_batches == 6
    (stage, _) = found.described(0.0).stages
    assert stage.label == "generator(numbered)"
    assert stage.place is not None
    assert stage.place.line == numbered.__code__.co_firstlineno
    assert stage.arguments == {"workers": 2, "use_multiprocessing": False, "max_queue_size": 6}
    assert sorted(numbers(found.dataset().take(5))) == [0, 1, 2, 3, 4], "alone, a call would wait for another one"


def test_of_a_generator_of_keras_2_no_workers_share_what_is_compared() -> None:
    def numbered() -> Iterator[Any]:
        for number in range(9):
            yield np.full([4, 2], number, np.float32), np.full([4], number, np.float32)

    found = KerasInput("generator", numbered(), {"workers": 4}, legacy=True)
    assert numbers(found.subsampled((), 3, most=5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("legacy", [False, True])
def test_a_generator_that_has_ended_does_not_give_its_first_batches_again(legacy: bool) -> None:
    """Keras 3 gave the two that it had looked at, for ever: the steps then waited for nothing."""

    def batches() -> Iterator[Any]:
        for number in range(6):
            yield np.full([4, 2], number, np.float32), np.full([4], number, np.float32)

    dataset = KerasInput("generator", batches(), {"shuffle": False}, legacy=legacy).dataset()
    more = iter([True] * 20 + [False])
    assert consumers.train(dataset, lambda batch: 0.0, lambda *_: next(more)) == 6


def test_arrays_are_read_as_another_backend_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    found = read(np.arange(8.0).reshape(8, 1), "arrays", y=np.arange(8), batch_size=4)
    dataset = found.dataset()
    assert not isinstance(dataset, tf.data.Dataset), "its threads would compete with the model"
    take = passes.batches(dataset)
    taken = [take() for _ in range(3)]
    assert [y.tolist() for _, y in taken] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    assert keras_step._as_array(taken[0][0]) is taken[0][0]
    looked = stages_of(found)
    assert [stage.method for stage in looked.stages] == ["arrays"]
    assert [part.shape for part in looked.element.tensors()] == [(None, 1), (None,)]
    assert (looked.batch_size, looked.element_bytes) == (4, 4 * (4 + 8))
    assert looked.cost(COPY).elapsed_ns > 0


def test_a_line_is_charged_with_the_libraries_that_it_calls() -> None:
    def work() -> None:
        total = sum(range(1000))
        np.linalg.svd(np.ones([200, 200]))
        total += 1

    found = next(iter(line_costs(work, 0.05).own), None)
    assert found is not None
    assert "svd" in found.place.text
    assert found.share > 0.5


def test_one_whose_place_is_not_known_has_not_that_of_another_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Again(keras.utils.PyDataset):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            worker_places._made_in[id(self)] = Location(file="gone.py", line=1)
            super().__init__()

    monkeypatch.setattr(worker_places, "_place_of_workers", lambda made, base: None)
    with worker_places.recorded():
        made = Again()
    assert KerasInput("PyDataset", made, {})._place is None


def place_of(data: Any) -> str | None:
    """Return the line in which the workers of a PyDataset are set."""
    place = KerasInput("PyDataset", data, {})._place
    return None if place is None else place.text


class Handing(keras.utils.PyDataset):  # type: ignore[name-defined,misc]
    def __init__(self, size: int, **named: Any) -> None:
        super().__init__(**named)


def test_where_the_workers_are_set_is_noted() -> None:
    class Keeping(keras.utils.PyDataset):  # type: ignore[name-defined,misc]
        def __init__(self, size: int, **named: Any) -> None:
            super().__init__()

    with worker_places.recorded():
        made = [Handing(3), Keeping(3), Batches()]
    assert place_of(made[1]) == "super().__init__()"
    assert place_of(made[0]) == place_of(made[2]) == "made = [Handing(3), Keeping(3), Batches()]"
    places = [KerasInput("PyDataset", each, {})._place for each in made]
    assert places[0] is not None
    assert places[2] is not None
    assert places[0].column != places[2].column


def test_workers_of_one_that_another_class_makes_in_its_init_are_set_where_it_makes_it() -> None:
    class Trainer:
        def __init__(self, size: int) -> None:
            self.train = Handing(size)

    with worker_places.recorded():
        trainer = Trainer(3)
    assert place_of(trainer.train) == "self.train = Handing(size)"


@pytest.mark.filterwarnings("ignore:Your `PyDataset` class should call:UserWarning")
def test_one_whose_class_never_calls_keras_init_has_the_place_of_its_call_and_takes_attributes_alone() -> None:
    class Plain(keras.utils.PyDataset):  # type: ignore[name-defined,misc]
        def __init__(self, size: int) -> None:
            self.keep(size)
            self.more = 1

        def keep(self, size: int) -> None:
            self.size = size

        def __len__(self) -> int:
            return self.size

        def __getitem__(self, index: int) -> Any:
            return np.ones([4, 2], np.float32), np.ones(4, np.float32)

    class OnIt(Plain):
        def __init__(self) -> None:
            super().__init__(size=3)

    class Late(keras.utils.PyDataset):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            self.size = 3
            super().__init__()

    with worker_places.recorded():
        made = [Plain(3), OnIt(), Late()]
    whole = "made = [Plain(3), OnIt(), Late()]"
    assert [place_of(each) for each in made] == [whole, whole, "super().__init__()"]
    places = [KerasInput("PyDataset", each, {})._place for each in made[:2]]
    assert [None if each is None else each.end_column for each in places] == [24, 32]
    assert [worker_places.by_attributes(each) for each in made] == [True, True, False]
    assert read(made[0]).described(0.0).stages[WORKERS_STAGE].by_attributes


def test_workers_are_set_in_the_outermost_call_that_hands_them_on() -> None:
    class OnIt(Handing):
        def __init__(self, **named: Any) -> None:
            super().__init__(
                3,
                **named,
            )

    class Without(Handing):
        def __init__(self, size: int) -> None:
            super().__init__(size=size)

    class Some(Handing):
        def __init__(self, workers: int = 1, **named: Any) -> None:
            super().__init__(size=4, workers=workers, **named)

    class Fixed(Handing):
        def __init__(self, **named: Any) -> None:
            super().__init__(5, workers=1, **named)

    with worker_places.recorded():
        made = [OnIt(), Without(3), Some(), Fixed()]
    whole = "made = [OnIt(), Without(3), Some(), Fixed()]"
    inner = "super().__init__(size=size)", "super().__init__(5, workers=1, **named)"
    assert [place_of(each) for each in made] == [whole, inner[0], whole, inner[1]]
