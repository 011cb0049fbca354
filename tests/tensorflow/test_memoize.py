"""Calls in the user's Python whose results can be kept: which are found, and what a trial gives that keeps them."""

from __future__ import annotations

import itertools
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline_bench import user_code
from pipeline_bench.diagnosis import fixes
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.inspection import keras_stages, python_stages
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.model.function_edits import Memoize
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.tfdata import keras_input
from pipeline_bench.tfdata.keras_input import GET_ITEM, KerasInput
from pipeline_bench.user_code import function_calls, kept_results, line_profile, memoize
from tests.tensorflow import recorded
from tests.unit.diagnosis.simulated import cost, function, inspection, stage

keras = pytest.importorskip("keras")

numbered = itertools.count()


@pytest.fixture(autouse=True)
def only_modules_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that other tests left imported lie beside those of a test, and set attributes of these names."""
    plain = user_code.users_modules
    own = lambda: (each for each in plain() if Path(each[0]).is_relative_to(tmp_path))  # noqa: E731
    monkeypatch.setattr(user_code, "users_modules", own)


HEAD = """
import io
import os.path
import random
import time
import warnings
import numpy as np
import keras
import PIL.Image
import tensorflow as tf

made = []
coin = [0]
SIZE = 4

def load(number, size=SIZE, kind=None):
    made.append(number)
    time.sleep(0.002)
    return np.full([size, 2], number, np.float32)

def halves(picture, size=SIZE):
    time.sleep(0.002)
    return picture[::2] / size

def pair(number):
    return load(number), object()

DIR = "a"
if not DIR:
    DIR = "b"

class Paths:
    def build(self, path):
        self.path = path

def joins(number):
    return load(len(os.path.join(DIR, str(number))))

class Held:
    def __init__(self, number):
        self.number = number
    @property
    def picture(self):
        return load(self.number)

def maybe(number):
    return None if number is None else load(number)

def drawn(number):
    time.sleep(0.002)
    return np.full([SIZE, 2], number + random.random())

def flips(number):
    time.sleep(0.002)
    coin[0] += 1
    return np.full([SIZE, 2], coin[0] % 7 == 6)

def seldom(number, draw):
    time.sleep(0.002)
    return np.full([SIZE, 2], -1.0 if draw() > 2.0 else number)

def opened(number):
    time.sleep(0.002)
    return PIL.Image.new("RGB", (SIZE, SIZE), (number % 256, 0, 0))

def lazily(number):
    file = io.BytesIO()
    opened(number).save(file, "PNG")
    return PIL.Image.open(file)

def turned_on(number, on):
    x = load(number)
    if on:
        x = x * random.random()
    return x

class Turns:
    ON, STRENGTH, KIND, WIDTH = False, 0.0, "plain", 4

EPOCH = 0

def train():
    global EPOCH
    Turns.ON = True
    EPOCH, Turns.STRENGTH, Turns.KIND, Turns.WIDTH = 1, 0.5, "train", 8

def reads_what_is_set(number):
    x = load(number)
    return x * random.random() if EPOCH > 9 else x

def calls_what_reads_that(number):
    time.sleep(0.002)
    return len(made) and -reads_what_is_set(number)

def sets_a_name(number):
    global last
    last = number
    return load(number)

STATE = {"epoch": 0}

def later():
    STATE["epoch"] = 3

def reads_a_part(number):
    return load(number) * (random.random() if STATE["epoch"] > 2 else 1.0)

of_a_lambda = lambda number: load(number) * (random.random() if EPOCH > 2 else 1.0)

class Reader:
    def __init__(self, number):
        self.x = load(number) * (random.random() if EPOCH > 2 else 1.0)
    @staticmethod
    def reads(number):
        return load(number) * (random.random() if EPOCH > 2 else 1.0)

canvas = PIL.Image.new("L", (8, 8))

def pastes(number):
    time.sleep(0.002)
    canvas.paste(number % 256, (0, 0, 8, 8))
    return canvas

buffers = [np.zeros([SIZE, 2]) for _ in range(3)]

def fills(number):
    time.sleep(0.002)
    buffers[0][:] = number
    return buffers[0][:2]

def fills_in_turn(number):
    time.sleep(0.002)
    buffers.append(buffers.pop(0))
    buffers[0][:] = number
    return buffers[0]

def seeds_anew(number):
    time.sleep(0.002)
    random.seed(number)
    return np.full([SIZE, 2], number + random.random())

def of_tensorflow():
    return float(tf.random.get_global_generator().uniform([]))

def eagerly():
    return float(tf.random.uniform([]))
"""
BATCHES = """
class Batches(keras.utils.PyDataset):
    size, numbers = SIZE, [3, 4, 5, 6, 7, 8]
    def __len__(self):
        return 3
    def __getitem__(self, index):
        chosen = self.numbers[2 * index : 2 * index + 2]
        x = []
        for number in chosen:
            one = load(number, self.size)
            one *= random.choice([1.0, -1.0])
            x.append(one)
        return np.stack(x), np.array(chosen)
    def on_epoch_end(self):
        random.shuffle(self.numbers)
"""
POOLS = """
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
POOL, THREADS, NUMBERS = ThreadPoolExecutor(2), ThreadPool(2), iter(range(10**6))
"""
GENERATOR = """
def batches(numbers, times=1, *rest, **options):
    while True:
        random.shuffle(numbers)
        for first in range(0, len(numbers), 2):
            x = [load(number) * random.random() for number in numbers[first : first + 2]]
            yield np.stack(x), np.array(numbers[first : first + 2])
"""


def module(folder: Path, body: str) -> ModuleType:
    file = folder / f"user_{next(numbered)}.py"
    file.write_text(HEAD + body)
    return recorded.module(file)


@contextmanager
def only_sleep_counts() -> Iterator[None]:
    """Have what looks for calls read a clock that only `sleep` moves, and a look at it a little."""
    slept_s, looks = [0.0], itertools.count()
    clock = SimpleNamespace(
        perf_counter_ns=lambda: round(slept_s[0] * 1e9), monotonic=lambda: slept_s[0] + next(looks) * 1e-3
    )
    with pytest.MonkeyPatch.context() as patch:
        for each in (memoize, kept_results):
            patch.setattr(each, "time", clock)
        patch.setattr(time, "sleep", lambda seconds: slept_s.append(slept_s.pop() + seconds))
        yield


def found_in(
    code: ModuleType, lines: Iterable[int], makes: Callable[[int], Any], seconds: float = 5.0
) -> list[MemoizableCall]:
    """Look for calls in lines of a module, of which a function makes a batch that gets the number 3, 4, …."""
    given = itertools.count(3)
    places = [(code.__file__ or "", line) for line in lines]
    with only_sleep_counts():
        return memoize.find(lambda: lambda: makes(next(given)), places, seconds, lambda: None)


def all_found(folder: Path, lines: str, seconds: float = 5.0, last: int = 1) -> list[MemoizableCall]:
    """Look for calls in the last of the lines, of a function that gets the number 3, 4, …."""
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    code = module(folder, f"def batch(number):\n{body}    return x\n")
    count = len(Path(code.__file__ or "").read_text().splitlines())
    return found_in(code, range(count - 1, count - 1 - last, -1), code.batch, seconds)


def found(folder: Path, lines: str, seconds: float = 5.0) -> MemoizableCall | None:
    """The first of `all_found`, in the last of the lines."""
    return next(iter(all_found(folder, lines, seconds)), None)


def memoizable(looked: Inspection, number: int) -> MemoizableCall:
    """The first call that was found in a stage's Python."""
    call = recorded.function_of(looked.stage(number)).memoizable
    assert call is not None
    return call


@pytest.mark.parametrize(
    ("lines", "text", "arguments", "gives"),
    [
        ("x = load(number)", "load(number)", ("number",), "array"),
        ("x = -load(number) + random.random()", "load(number)", ("number",), "array"),
        ("x = np.abs(load(number, size=SIZE))", "np.abs(load(number, size=SIZE))", ("number",), "array"),
        ("x = float(load(number).sum())", "float(load(number).sum())", ("number",), "constant"),
        ("x = [number]\nx = dict(a=load(number, 99))", "dict(a=load(number, 99))", ("number",), "other"),
        ("x = [load(each) for each in (number, 9)]", "load(each)", ("each",), "array"),
        ("x = iter(load(number))\nx = load(number)", "load(number)", ("number",), "array"),
        ("x = list(load(each) for each in range(2))", "load(each)", ("each",), "array"),
        ("x = load(f'{number}'.count('3'))", "load(f'{number}'.count('3'))", ("f'{number}'",), "array"),
        ("x = (4, number)\nx = load(number, x[0])", "load(number, x[0])", ("number", "x[0]"), "array"),
        ("t = keras.ops.array(number)\nx = load(int(t.numpy()))", "load(int(t.numpy()))", ("t.numpy()",), "array"),
        (
            "x = load(number)\nx = halves(x, SIZE)\nx = halves(x)",
            "x = load(number); x = halves(x, SIZE); x = halves(x)",
            ("number",),
            "array",
        ),
        (
            "if number:\n    x = load(number)  # the picture\n    x = halves(x, number)\n    x = x + 1",
            "x = load(number); x = halves(x, number); x = x + 1",
            ("number",),
            "array",
        ),
        ("x = pair(number)[0]", "x = pair(number)[0]", ("number",), "array"),
        ("held = Held(number)\nx = held.picture", "held = Held(number); x = held.picture", ("number",), "array"),
        (
            "held = Held(number)\nx = held.picture\nx = halves(x)",
            "held = Held(number); x = held.picture; x = halves(x)",
            ("number",),
            "array",
        ),
        (
            "picture = load(number)\nx = np.abs(picture)",
            "picture = load(number); x = np.abs(picture)",
            ("number",),
            "array",
        ),
        ("x = random.choice([1, 2]) * load(\n    number,\n    SIZE)", "load(number, SIZE)", ("number",), "array"),
        ("x = opened(number)", "opened(number)", ("number",), "array"),
        ("x = [opened(number), number]", "opened(number)", ("number",), "array"),
        ("x = joins(number)", "joins(number)", ("number",), "array"),
        ("x = load(number, Turns.WIDTH)", "load(number, Turns.WIDTH)", ("number", "Turns.WIDTH"), "array"),
        ("x = lazily(number)", "lazily(number)", ("number",), "opened"),
        ("x = [maybe(each) for each in (number, None)]", "maybe(each)", ("each",), "other"),
    ],
)  # fmt: skip
def test_a_call_that_gives_the_same_for_the_same_is_found(
    tmp_path: Path, lines: str, text: str, arguments: tuple[str, ...], gives: str
) -> None:
    call = found(tmp_path, lines)
    assert call is not None
    assert (call.text, call.arguments, call.gives) == (text, arguments, gives)


@pytest.mark.parametrize(
    ("sets", "is_kept"),
    [
        ("model.trainable = False", True),
        ("data.gray = True", False),
        ("data.gray = model.best > 1", False),
        ("data.gray = not data.gray", False),
        ("model.best = loss", True),
    ],
)
def test_what_depends_on_a_truth_is_kept_unless_code_sets_one_that_something_reads(
    tmp_path: Path, sets: str, is_kept: bool
) -> None:
    """`base.trainable = False` in a script of transfer learning is no switch of its input."""
    body = (
        f"def later(model, data, loss):\n    {sets}\ndef batch(number, gray=False):\n    x = load(number, kind=gray)\n"
    )
    code = module(tmp_path, f"{body}    return x\ndef reads(data):\n    return data.gray\n")
    assert len(found_in(code, [code.batch.__code__.co_firstlineno + 1], code.batch)) == is_kept


@pytest.mark.parametrize(
    ("then", "kept"),
    [
        ("x = np.array(x[:4])", "x = load(number, 400); x = np.array(x[:4])"),
        ("x = np.repeat(x, 3, axis=0)", "load(number, 400)"),
        ("x = np.array(x[:4])\nx = np.repeat(x, 80, axis=0)", "x = load(number, 400); x = np.array(x[:4])"),
        ("x = np.array(x[:4] * random.random())", "load(number, 400)"),
    ],
)
def test_what_is_made_smaller_right_behind_a_call_is_kept_small(tmp_path: Path, then: str, kept: str) -> None:
    """Of a picture of 1918 x 1280 that the next line makes 128 x 128, the large one was kept: 150 times the memory."""
    (call,) = all_found(tmp_path, f"x = load(number, 400)\n{then}", last=2 + then.count("\n"))
    assert call.text == kept
    assert call.share >= memoize.WORTH
    assert call.batch_bytes > 0


@pytest.mark.parametrize(
    ("lines", "results"),
    [
        ("x = load(number)", 1),
        ("x = [load(each) for each in range(8 * number, 8 * number + 8)]", 8),
        ("x = [load(each % 2) for each in range(8)]", 2),
        ("x = [load(each % 6) for each in (2 * number, 2 * number + 1)]", 2),
    ],
)
def test_what_is_asked_for_again_takes_no_memory(tmp_path: Path, lines: str, results: int) -> None:
    """Many samples are often cut from each of a few files. Of the last, an epoch has three batches."""
    call = found(tmp_path, lines)
    assert call is not None
    assert call.batch_bytes == results * 4 * 2 * 4


@pytest.mark.parametrize(
    ("does", "held_bytes"),
    [
        ("load(number, 400)[:4]", 400 * 2 * 4),
        ("np.frombuffer(load(number, 400).tobytes(), np.float32)[:4]", 400 * 2 * 4),
    ],
)
def test_of_a_part_of_an_array_the_whole_is_held(tmp_path: Path, does: str, held_bytes: int) -> None:
    call = found(tmp_path, f"x = {does}")
    assert call is not None
    assert call.batch_bytes == held_bytes


def test_what_names_a_result_is_held_too(tmp_path: Path) -> None:
    call = found(tmp_path, "for text in [str(number) * 5000]:\n    x = load(text, 4)")
    assert call is not None
    assert call.batch_bytes > 5000


@pytest.mark.parametrize(
    ("does", "are_singles"),
    [
        ("np.float64(load(number, 8)[:4])", True),
        ("np.multiply(load(number, 8)[:4], 0.1, dtype=np.float64)", False),
        ("load(number)", False),
    ],
)
def test_64_bit_floats_that_32_bit_ones_hold_are_told(tmp_path: Path, does: str, are_singles: bool) -> None:
    call = found(tmp_path, f"x = {does}")
    assert call is not None
    assert call.singles is are_singles


@pytest.mark.parametrize(
    ("opens", "gives"),
    [
        ("np.load(PATH, mmap_mode='r')[2:4]", "opened"),
        ("np.asarray(np.load(PATH, mmap_mode='r')[2:4])", "opened"),
        ("np.load(PATH, mmap_mode='r')[2:4] * 2", "array"),
        ("np.load(PATH, mmap_mode='r')", None),
        ("np.load(PATH, mmap_mode='r+')[2:4]", None),
        ("(np.load(PATH, mmap_mode='r')[2:4], 1)", None),
    ],
)
def test_of_a_file_that_is_mapped_a_small_part_that_is_read_alone_may_be_kept(
    tmp_path: Path, opens: str, gives: str | None
) -> None:
    np.save(tmp_path / "one.npy", np.zeros([100, 50]))
    body = f"PATH = {str(tmp_path / 'one.npy')!r}\ndef mapped(number):\n    time.sleep(0.002)\n    return {opens}\n"
    code = module(tmp_path, f"{body}def batch(number):\n    x = mapped(number)\n    return x\n")
    calls = found_in(code, [code.batch.__code__.co_firstlineno + 1], code.batch)
    assert [call.gives for call in calls] == [gives] * (gives is not None)


def test_what_is_kept_of_files_that_are_mapped_holds_none_of_them_open(tmp_path: Path) -> None:
    """Each view of a map has a file descriptor of its own, of which a process may have a few hundred."""
    np.save(tmp_path / "one.npy", np.zeros([100, 50]))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    memo = kept_results.Memo()
    try:
        last = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (last + 40, before[1]))
        for number in range(80):
            part = memo((number,), lambda: np.load(tmp_path / "one.npy", mmap_mode="r")[2:4])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    part += 1.0
    assert memo((79,), lambda: None).sum() == 0


@pytest.mark.parametrize(
    "lines",
    [
        "x = drawn(number)",
        "x = flips(number)",
        "x = [drawn(each) for each in range(number)]",
        "x = load(random.choice(made or [1]))",
        "x = seldom(number, random.random)",
        "x = seldom(number, np.random.uniform)",
        "x = seldom(number, of_tensorflow)",
        "x = seeds_anew(number)",
        "x = drawn(number)\nx = halves(x)",
        "held = Held(number)\nx = held.picture\nx = x + held.number",
        "held = Held(number)\nif held is None:\n    return 0\nx = held.picture",
        "x = maybe(number)\nif x is None:\n    x = 0\nx = halves(x) * random.random()",
        "global shared\nshared = drawn(number)\nshared = halves(shared)\nx = shared",
        "x = load(number) if number > 100 or drawn(number) is None else time.sleep(0.002)",
        "x = load(number, size=drawn(number) if Turns.ON else SIZE)",
        "x = load(number, size=Turns.ON and drawn(number) or SIZE)",
        "x = turned_on(number, Turns.ON)",
        "on = Turns.ON\nx = turned_on(number, on)",
        "x = fills(number)",
        "x = pastes(number)",
        "x = load(number, SIZE, Turns.STRENGTH)",
        "x = load(number, SIZE, Turns.KIND)",
        "x = reads_what_is_set(number)",
        "x = calls_what_reads_that(number)",
        "x = sets_a_name(number)",
        "x = reads_a_part(number)",
        "x = Reader.reads(number)",
        "x = of_a_lambda(number)",
        "x = Reader(number).x",
        "x = [fills(number), 1]\nx = dict(x=fills(number))",
        "x = fills_in_turn(number)",
        "x = (each for each in [number])",
        "x = time.sleep(0.002)",
    ],
)
def test_no_other_call_is(tmp_path: Path, lines: str) -> None:
    assert found(tmp_path, lines) is None


def test_no_call_is_kept_that_takes_no_longer_than_to_look_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a line of a CSV file, its split was tried for a third of the time, and made a step take twice as long."""
    lines = "x = [load(each) for each in (number, 9)]"
    assert found(tmp_path, lines) is not None
    monkeypatch.setattr(memoize, "_LEAST_CALL_NS", 10**9)
    assert found(tmp_path, lines) is None


def test_a_picture_is_kept_where_the_next_line_makes_an_array_of_it(tmp_path: Path) -> None:
    (call,) = all_found(tmp_path, "picture = opened(number)\nx = np.asarray(picture)", last=2)
    assert call.text == "opened(number)"
    assert call.batch_bytes == 4 * 4 * 4, "Pillow has four bytes for a pixel of three colours"


def test_a_kept_picture_is_handed_out_as_a_copy() -> None:
    image = pytest.importorskip("PIL.Image")
    memo = kept_results.Memo()
    first = memo((1,), lambda: image.new("RGB", (4, 4)))
    first.putpixel((0, 0), (9, 9, 9))
    assert memo((1,), lambda: None).getpixel((0, 0)) == (0, 0, 0)


def test_a_picture_that_is_opened_is_decoded_once_and_handed_out_as_a_copy(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (4, 4)).save(tmp_path / "one.png")
    memo = kept_results.Memo()
    first = memo((1,), lambda: image.open(tmp_path / "one.png"))
    (tmp_path / "one.png").unlink()
    first.putpixel((0, 0), (9, 9, 9))
    assert memo((1,), lambda: None).getpixel((0, 0)) == (0, 0, 0)


def test_the_line_that_opens_a_picture_is_looked_at_where_another_one_decodes_it(tmp_path: Path) -> None:
    """Pillow decodes a picture when its pixels are asked for: opening it takes almost nothing."""
    image = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(0).integers(0, 255, (400, 400, 3), np.uint8)
    for number in range(2):
        image.fromarray(noise).save(tmp_path / f"{number}.png")
    body = f"NUMBERS = iter(range(10**6))\nFOLDER = {str(tmp_path)!r}\n"
    body += "def batch():\n    path = f'{FOLDER}/{next(NUMBERS) % 2}.png'\n    picture = PIL.Image.open(path)\n"
    body += "    picture = picture.resize((2, 2), random.choice([0, 1]))\n    return np.asarray(picture)\n"
    code = module(tmp_path, body)
    looked = inspection((stage(0, "map", of=function("batch")),), (cost(0, 5.0),))
    *_, last = python_stages.look_into(looked, 0, code.batch, 2.0, lambda: None, taker=lambda: code.batch)
    seen = recorded.function_of(last.stage(0))
    assert seen.costliest.startswith(f"line {code.batch.__code__.co_firstlineno + 3} of ")
    call = memoizable(last, 0)
    assert (call.text, call.gives) == ("PIL.Image.open(path)", "opened")


@pytest.mark.parametrize(
    ("does", "calls"),
    [
        ("np.save(FILE, x)", 0),
        ("FILE.write_bytes(b'')", 0),
        ("open(FILE, 'a').close()", 0),
        ("__import__('os').pwrite(__import__('os').open(FILE, 66), bytes(9999), 0)", 0),  # as code in C does
        ("open(__file__).close()", 1),
        ("MAPPED[number] = 7", 0),
        ("tf.io.write_file(str(FILE), b'x')", 0),
        ("MAPPED.flush() if number > 9 else None", 0),
        ("READ[number]", 1),
    ],
)
def test_of_python_that_writes_files_nothing_is_kept(tmp_path: Path, does: str, calls: int) -> None:
    """Files that a script kept its pictures in had others in them afterwards, which stood for those not made yet."""
    body = f"NUMBERS = iter(range(10**6))\nfrom pathlib import Path\nFILE = Path({str(tmp_path / 'x.npy')!r})\n"
    if "MAPPED" in does:
        body += f"MAPPED = np.memmap({str(tmp_path / 'mapped')!r}, np.uint8, 'w+', shape=(9,))\n"
    elif "READ" in does:
        np.zeros(9, np.uint8).tofile(tmp_path / "read")
        body += f"READ = np.memmap({str(tmp_path / 'read')!r}, np.uint8, 'r')\n"
    body += "def batch():\n    number = next(NUMBERS) % 2\n    x = load(number)\n"
    body += f"    {does}\n    return x * random.random()\n"
    code = module(tmp_path, body)
    looked = inspection((stage(0, "map", of=function("batch")),), (cost(0, 5.0),))
    *_, last = python_stages.look_into(looked, 0, code.batch, 1.0, lambda: None, taker=lambda: code.batch)
    vars(code).pop("MAPPED", None)  # else the file stays mapped behind the test
    assert len(recorded.function_of(last.stage(0)).memoizable_calls) == calls


def test_ops_that_python_runs_by_themselves_are_counted_with_what_their_lines_take(tmp_path: Path) -> None:
    body = "import tensorflow as tf\n\ndef batch():\n    rows = [tf.strings.as_string(n) for n in range(40)]\n"
    code = module(tmp_path, body + "    return len(rows)\n")
    looked = inspection((stage(0, "generator", of=function("batch")),), (cost(0, 5.0),))
    first, *_ = python_stages.look_into(looked, 0, code.batch, 1.0, lambda: None)
    seen = recorded.function_of(first.stage(0))
    assert seen.eager_ops == pytest.approx(40, abs=1)
    assert seen.eager_share is not None
    assert seen.eager_share > 0.9


def test_what_python_takes_of_a_dataset_is_no_op_of_its_own(tmp_path: Path) -> None:
    body = "import tensorflow as tf\n\ndef batch():\n    rows = list(tf.data.Dataset.range(40).map(tf.abs))\n"
    code = module(tmp_path, body + "    return len(rows)\n")
    looked = inspection((stage(0, "generator", of=function("batch")),), (cost(0, 5.0),))
    first, *_ = python_stages.look_into(looked, 0, code.batch, 1.0, lambda: None)
    assert recorded.function_of(first.stage(0)).eager_ops is None


def test_lines_of_what_stands_in_front_of_a_map_are_not_told_of_it(tmp_path: Path) -> None:
    import tensorflow as tf

    body = "import tensorflow as tf\n\ndef rows():\n    while True:\n        x = tf.strings.as_string(1.0)\n"
    body += "        yield x\n\ndef slow(text):\n    time.sleep(0.001)\n    time.sleep(0.0)\n    return text\n\n"
    code = module(tmp_path, body + "def load(text):\n    return tf.numpy_function(slow, [text], tf.string)\n")
    spec = tf.TensorSpec((), tf.string)
    recipe = recorded.recipe_of(lambda: tf.data.Dataset.from_generator(code.rows, output_signature=spec).map(code.load))
    looked = inspection(recipe.stages, (cost(0, 1.0), cost(1, 5.0)))
    seen = [
        recorded.function_of(each.stage(1))
        for each in python_stages.of_tf_data(recipe, looked, tmp_path, 1.0, lambda: None)
    ]
    assert seen[-1].costliest.startswith(f"line {code.slow.__code__.co_firstlineno + 1} of ")
    assert seen[-1].eager_ops is None


def test_calls_beside_each_other_are_all_found(tmp_path: Path) -> None:
    """As of a picture and its mask."""
    calls = all_found(tmp_path, "x = load(number)\ny = halves(load(number + 1))", last=2)
    assert {call.text for call in calls} == {"load(number)", "halves(load(number + 1))"}


def test_of_a_call_and_what_it_calls_only_the_outer_one_is_found(tmp_path: Path) -> None:
    body = "def outer(number):\n    return time.sleep(0.002) or load(number)\n"
    code = module(tmp_path, f"{body}def batch(number):\n    x = outer(number)\n    return x * load(number + 1)\n")
    first = code.outer.__code__.co_firstlineno
    calls = found_in(code, (first + number for number in (1, 3, 4)), code.batch)
    assert {call.text for call in calls} == {"outer(number)", "load(number + 1)"}


def test_what_is_smaller_is_kept_only_where_it_runs_apart_from_what_is_kept_already(tmp_path: Path) -> None:
    """The line of `one` runs within the assignments that end with `join`, which gives less than what it is given."""
    body = """\
def one(number):
    return load(number)

def join(small, large):
    return float(small.sum() + large.sum())

def batch(number):
    x = [one(each) for each in range(number, number + 3)]
    y = load(number + 1, 400)
    y = join(one(number), y)
    return y * x[0]
"""
    code = module(tmp_path, body)
    first = code.one.__code__.co_firstlineno
    calls = found_in(code, (first + number for number in (1, 8, 9)), code.batch)
    assert [call.text for call in calls] == ["load(number)", "load(number + 1, 400)"]


@pytest.mark.parametrize(("line", "is_same"), [("x = load(number)", True), ("x = drawn(number)", False)])
def test_a_call_is_compared_once(tmp_path: Path, line: str, is_same: bool) -> None:
    code = module(tmp_path, f"def batch(number):\n    {line}\n    return x\n")
    given = itertools.count(3)
    places = [(code.__file__ or "", code.batch.__code__.co_firstlineno + 1)]
    search = memoize._Search(lambda: lambda: code.batch(next(given)), places, 2.0, lambda: None)
    (call,) = search.promising
    assert search.gives_the_same(call) is is_same
    made = next(given)
    assert search.gives_the_same(call) is is_same
    assert next(given) == made + 1, "no batch was made"


def test_where_the_time_is_over_no_smaller_results_are_looked_for(tmp_path: Path) -> None:
    """Each would be compared in two epochs."""
    calls = all_found(tmp_path, "x = load(number, 400)\nx = np.array(x[:4])", 0.0, last=2)
    assert [call.text for call in calls] == ["load(number, 400)"]


def test_a_call_is_found_also_where_a_batch_takes_all_of_the_time(tmp_path: Path) -> None:
    call = found(tmp_path, "x = [load(each) for each in range(number, number + 8)]", seconds=0.0)
    assert call is not None
    assert call.text == "load(each)"


def test_one_batch_that_took_long_for_another_reason_hides_no_call(tmp_path: Path) -> None:
    """As where another program had the core for a while."""
    call = found(tmp_path, "time.sleep(0.03 * (number == 4))\nx = load(number)")
    assert call is not None
    assert call.text == "load(number)"


def test_what_is_drawn_eagerly_once_a_seed_was_set_is_seen(tmp_path: Path) -> None:
    import tensorflow as tf

    tf.random.set_seed(3)
    assert found(tmp_path, "x = seldom(number, eagerly)") is None


@pytest.mark.parametrize(("gives", "becomes", "doubles"), [(64, 32, True), (32, 32, False), (64, 64, False)])
def test_a_generator_of_64_bit_floats_is_told_where_they_become_smaller(
    gives: int, becomes: int, doubles: bool, tmp_path: Path
) -> None:
    import tensorflow as tf

    body = f"def batches():\n    while True:\n        yield np.zeros([9], np.float{gives}), 1\n"
    code = module(tmp_path, body)
    spec = tf.TensorSpec([9], f"float{becomes}"), tf.TensorSpec([], tf.int64)
    recipe = recorded.recipe_of(lambda: tf.data.Dataset.from_generator(code.batches, output_signature=spec))
    looked = inspection(recipe.stages, (cost(0, 2.0),))
    last = [looked, *python_stages.of_tf_data(recipe, looked, tmp_path, 0.2, lambda: None)][-1]
    function = recorded.function_of(last.stages[0])
    assert function.doubles is doubles


def test_calls_of_a_parallel_map_do_not_draw_what_others_draw_beside_them(tmp_path: Path) -> None:
    """Each `load` sleeps, while others of the map's calls would go on to what they draw behind it."""
    import tensorflow as tf

    code = module(tmp_path, "def sample(number):\n    x = load(number)\n    return x * random.random()\n")

    def make() -> Any:
        dataset = tf.data.Dataset.range(40)
        return dataset.map(lambda n: tf.numpy_function(code.sample, [n], tf.float32), num_parallel_calls=4)

    recipe = recorded.recipe_of(make)
    looked = inspection(recipe.stages, (cost(0, 0.1), cost(1, 2.5, 0.1)))
    *_, last = python_stages.of_tf_data(recipe, looked, tmp_path, 2.0, lambda: None)
    call = memoizable(last, 1)
    assert call.text == "load(number)"
    assert not call.drawn


def test_a_call_of_a_map_whose_arguments_are_drawn_is_known_as_such(tmp_path: Path) -> None:
    import tensorflow as tf

    code = module(tmp_path, "def sample(_):\n    place = random.randrange(10**6)\n    return load(place)\n")

    def make() -> Any:
        return tf.data.Dataset.range(40).map(lambda n: tf.numpy_function(code.sample, [n], tf.float32))

    recipe = recorded.recipe_of(make)
    looked = inspection(recipe.stages, (cost(0, 0.1), cost(1, 2.5, 0.1)))
    *_, last = python_stages.of_tf_data(recipe, looked, tmp_path, 2.0, lambda: None)
    call = memoizable(last, 1)
    assert (call.text, call.drawn) == ("load(place)", True)


@pytest.mark.parametrize(
    "lines",
    [
        "x = list(POOL.map(sample, [number, number + 1]))",
        "x = THREADS.map(sample, [number, number + 1])",
        "x = list(THREADS.imap(sample, [number, number + 1]))",
        "x = THREADS.starmap(sample, [(number,), (number + 1,)])",
    ],
)
def test_a_call_in_what_is_mapped_over_a_pool_of_threads_is_found(tmp_path: Path, lines: str) -> None:
    """Its own pool is as before, and in the profile the lines are those that its threads would run."""
    body = f"def sample(number):\n    x = load(number)\n    return x * random.random()\n{POOLS}def batch():\n"
    code = module(tmp_path, f"{body}    number = next(NUMBERS)\n    {lines}\n    return x\n")
    looked = inspection((stage(0, "map", of=function("batch")),), (cost(0, 5.0),))
    with code.POOL, code.THREADS:
        *_, last = python_stages.look_into(looked, 0, code.batch, 1.0, lambda: None, taker=lambda: code.batch)
        for pool in (code.POOL, code.THREADS):
            assert threading.get_ident() not in set(pool.map(lambda _: threading.get_ident(), range(2)))
        code.THREADS.close()
        code.THREADS.join()
    assert memoizable(last, 0).text == "load(number)"


def test_what_a_pool_maps_in_this_thread_raises_with_its_result() -> None:
    done: list[int] = []

    def third_fails(number: int) -> int:
        done.append(number)
        return 1 // (2 - number)

    with ThreadPoolExecutor(1) as pool, line_profile.pools_in_this_thread():
        results = pool.map(third_fails, range(4))
        assert done == [0, 1, 2]
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)


def test_of_assignments_in_a_row_those_are_kept_that_come_before_a_random_one(tmp_path: Path) -> None:
    body = "def one(number):\n    x = load(number)\n    x = halves(x)\n    x = x * random.random()\n    return x\n"
    code = module(tmp_path, body)
    (call,) = found_in(code, [code.one.__code__.co_firstlineno + 1], code.one)
    assert call.text == "x = load(number); x = halves(x)"


def test_what_becomes_small_under_another_name_is_kept_small(tmp_path: Path) -> None:
    lines = "y = {}\npicture = load(number, 400)\nmask = load(number + 1, 400)\n"
    lines += "if len(picture) > 2:\n    picture = np.array(picture[:4])\ny[number,] = np.abs(picture)\n"
    calls = all_found(tmp_path, f"{lines}y[-1] = np.array(mask[:4])\nx = y[-1] + random.random()", last=7)
    assert {(each.variable, each.arguments, each.batch_bytes) for each in calls} == {
        ("picture", ("number",), 4 * 2 * 4),
        ("mask", ("number + 1",), 4 * 2 * 4),
    }


@pytest.mark.parametrize(
    ("lines", "is_one"),
    [
        ("y = load(9)\nx = halves(x, size)", True),
        ("y = load(9)\nif y:\n    others[0] = y\nx = halves(x, Config.FIXED)", True),
        ("y = load(9)\nif size is None:\n    x = halves(x)", True),
        ("y = load(9)\nif y is None:\n    x = halves(x)", False),
        ("y = load(9)\nx = halves(x, Config.SIZE)", False),
        ("y = load(9)\nx = halves(x, others[0])", False),
        ("y = load(9)\nx = halves(x, y)", False),
        ("size = load(9)\nx = halves(x, size)", False),
        ("others[x.size] = 1\nx = halves(x)", False),
        ("made.append(9)\nx = halves(x)", False),
        ("y = yield\nx = halves(x)", False),
        ("x, y = halves(x), 1", False),
        ("if x.ndim == 2 and len(x) > 2:\n    x = halves(x)", True),
        ("if number:\n    x = halves(x, size)\nelse:\n    x = halves(x)", True),
        ("if number:\n    x = halves(x, others[0])\nelse:\n    x = halves(x, others[0])", True),
        ("if number:\n    x = halves(x, others[0])", False),
        ("if number or drawn(others[0]):\n    x = halves(x)", False),
        ("y = 1\nif number:\n    y = halves(x)", False),
        ("if number:\n    x = halves(x)\n    y = 1", False),
        ("others[0] = halves(x)", True),
        ("others[len(x)] = halves(x)", False),
        ("others[0] = halves(x)\ny = x", False),
        ("y = halves(x)", True),
        ("y = halves(x)\nsize = x", False),
        ("y = x[:1]\nx *= halves(y)", False),
        ("x = halves(x) if Config.SIZE > 4 else x", False),
        ("x = halves(x) if size > 4 else x", True),
        ("if Config.SIZE > 4:\n    x = halves(x)", False),
        ("if made:\n    x = halves(x)", False),
    ],
)
def test_of_what_stands_behind_an_assignment_that_is_kept_with_it_which_does_the_same(
    tmp_path: Path, lines: str, is_one: bool
) -> None:
    """What stands between may not see the variable, set what is read behind it, or do what nobody knows."""
    head = "others = [0]\nclass Config:\n    SIZE = FIXED = 4\ndef train():\n    Config.SIZE = 8\n"
    head += "def one(number, size):\n    x = load(number)\n"
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    code = module(tmp_path, f"{head}{body}    return {'x' if lines.partition(' = ')[0] == 'x' else 0}\n")
    first = code.one.__code__.co_firstlineno + 1
    runs = [call for through in (False, True) for call in calls_in(code, first, through=through) if call.variable]
    kept = any("halves" in call.text for call in runs)
    assert kept is is_one


@pytest.mark.parametrize(
    ("begins", "ends", "is_one"),
    [
        ("try", "except ValueError:\n        pass\n", False),
        ("try", "except* ValueError:\n        pass\n", False),
        ("with contextlib.suppress(ValueError)", "", False),
        ("with open(__file__) as file", "", True),
        ("with np.errstate(invalid='ignore')", "", True),
        ("with warnings.catch_warnings()", "", True),
    ],
)
def test_what_a_try_ends_early_stays_in_its_order(tmp_path: Path, begins: str, ends: str, is_one: bool) -> None:
    """If `halves` fails, `y` is the new one."""
    body = f"def one(number):\n    y = 0\n    {begins}:\n        x = load(number)\n        y = 1\n"
    body += f"        x = halves(x)\n    {ends}    return y\n"
    code = module(tmp_path, f"import contextlib\n{body}")
    calls = calls_in(code, code.one.__code__.co_firstlineno + 3)
    assert any(call.variable for call in calls) is is_one


@pytest.mark.parametrize(
    ("then", "is_one"),
    [
        ("except ValueError:\n    pass", False),
        ("except ValueError:\n    raise OSError(x.shape) from None", False),
        ("except ValueError:\n    raise", True),
        ("except ValueError:\n    x = load(9)", True),
        ("finally:\n    x = None", True),
        ("finally:\n    made.append(x)", False),
        ("except* ValueError:\n    pass", False),
    ],
)
def test_what_a_try_goes_on_with_is_what_the_statement_before_made(tmp_path: Path, then: str, is_one: bool) -> None:
    """If `halves` fails, `x` is what was loaded, and not what it was before."""
    body = "def one(number, x):\n    try:\n        x = load(number)\n        x = halves(x)\n"
    body += "".join(f"    {line}\n" for line in then.splitlines())
    code = module(tmp_path, f"{body}    return x\n")
    calls = calls_in(code, code.one.__code__.co_firstlineno + 2)
    assert any(call.variable for call in calls) is is_one


def test_assignments_among_each_other_are_made_once_and_give_what_they_gave(tmp_path: Path) -> None:
    body = "def some(*numbers, size):\n    found, others = {}, {}\n    for n, number in enumerate(numbers):\n"
    body += "        x = load(number)\n        y = load(number + 9)\n"
    body += "        if len(x) > 2:\n            x = halves(x)\n"
    body += "        if size is None:\n            y = -y\n        else:\n            y = halves(y, size)\n"
    body += "        found[n,] = -x\n        others[n,] = y[:1]\n    return found, others\n"
    code = module(tmp_path, body)
    first = code.some.__code__.co_firstlineno + 3
    runs = [call for line in (first, first + 1) for call in calls_in(code, line) if call.variable]
    assert [call.variable for call in runs] == ["x", "x", "y", "y"]
    for size in (None, 2):
        plain = code.some(3, 4, size=size)
        for calls in (runs, [runs[1], runs[3]], [runs[0], runs[3]]):
            code.made.clear()
            with function_calls.compiled_with({call: kept_results.Memo() for call in calls}):
                for kept in (code.some(3, 4, size=size), code.some(3, 4, size=size)):
                    for one, other in zip(kept, plain, strict=True):
                        assert {key: each.tolist() for key, each in one.items()} == {
                            key: each.tolist() for key, each in other.items()
                        }
            assert code.made == [3, 12, 4, 13]


OF_TABLE = """
class Table(dict):
    def __getitem__(self, key):
        return dict.__getitem__(self, key) if isinstance(key, str) else {"rle": dict.__getitem__(self, "rle") + key}
class Own:
    def __init__(self, table):
        self.table, self.size = table, SIZE
    def masks(self, name):
        rows = self.table[self.table["id"] + name]
        parts = rows["rle"]
        if self.size > 2:
            x = load(int(parts[0]), self.size)
        else:
            x = load(int(parts[0]))
        return x
    {other}
"""


@pytest.mark.parametrize(
    ("other", "is_kept"),
    [
        ("def __len__(self):\n        return len(self.table)", True),
        ("def one(self):\n        return self.table['id'][0]", True),
        ("def mix(self):\n        self.table = self.table.copy()", False),
        ("def mix(self):\n        self.table['id'][0] = 8", False),
        ("def mix(self):\n        random.shuffle(self.table['id'])", False),
        ("def mix(self):\n        self.table['id'].sort()", False),
        ("def mix(self):\n        ids = self.table['id'].values\n        random.shuffle(ids)", False),
        ("def mix(self):\n        ids = self.table['id']\n        ids[0] = 8", False),
        ("def mix(self):\n        ids = self.table['id']\n        ids.sort()", False),
        ("def mix(self):\n        ids = self.table['id']\n        return len(ids)", True),
        ("def mix(self):\n        self.size = 8", False),
        (
            "def __init__(self, table):\n        self.table, self.size = table, SIZE\n"
            "        ids = self.table['id']\n        ids.sort()",
            True,
        ),
        ("def order(self):\n        ids = self.table['id']\n        return np.sort(ids)", True),
    ],
)
def test_what_is_made_of_rows_of_a_table_is_kept_by_what_is_looked_up(
    tmp_path: Path, other: str, is_kept: bool
) -> None:
    """The rows are a table, which is no key: nothing was kept of masks that a table describes."""
    code = module(tmp_path, OF_TABLE.replace("{other}", other))
    first = code.Own.masks.__code__.co_firstlineno + 1
    calls = [call for call in calls_in(code, first + 3, through=True) if call.owner]
    assert len(calls) == is_kept
    for call in calls:
        assert call.arguments == ("self", "name", "self.size > 2", "self.size")
        one, two = (code.Own(code.Table(id=np.zeros(1), rle=np.array([number]))) for number in (3, 7))
        with function_calls.compiled_with({call: kept_results.Memo()}):
            found = [each.masks(name)[0, 0] for each in (one, two, one) for name in (1, 2)]
        assert (found, code.made) == ([4, 5, 8, 9, 4, 5], [4, 5, 8, 9])


def test_what_rows_are_looked_up_by_is_a_key_also_where_it_is_of_the_object(tmp_path: Path) -> None:
    """`self.size[0]` may be another one, though nothing sets `self.size`."""
    body = OF_TABLE.replace("+ name", "+ self.size[0]").replace("if self.size > 2", "if name")
    code = module(tmp_path, body.replace("{other}", ""))
    first = code.Own.masks.__code__.co_firstlineno + 1
    (call, *_) = [call for call in calls_in(code, first + 3, through=True) if call.owner]
    assert call.arguments == ("self", "self.size[0]", "name", "self.size")


def test_assignments_in_a_row_are_made_once_and_give_what_they_gave(tmp_path: Path) -> None:
    body = "def one(number):\n    try:\n        x = load(number)\n        x = halves(x, SIZE)\n"
    body += "        x = -x\n        y = x\n        return x, y\n    finally:\n        x = None\n"
    code = module(tmp_path, body)
    plain = code.one(3)
    line = code.one.__code__.co_firstlineno + 2
    runs = {call.text: call for call in calls_in(code, line) if call.variable}
    assert set(runs) == {"x = load(number); x = halves(x, SIZE)", "x = load(number); x = halves(x, SIZE); x = -x"}
    for calls in (list(runs.values())[:1], list(runs.values())):
        code.made.clear()
        with function_calls.compiled_with({call: kept_results.Memo() for call in calls}):
            for kept in (code.one(3), code.one(3)):
                assert kept[0] is kept[1]
                assert np.array_equal(kept[0], plain[0])
        assert code.made == [3]


def test_assignments_that_leave_without_a_result_go_on_leaving(tmp_path: Path) -> None:
    body = "def some(*numbers):\n    found = []\n    for number in numbers:\n        x = maybe(number)\n"
    body += "        if x is None:\n            continue\n        x = halves(x)\n        x = -x\n"
    code = module(tmp_path, body + "        found.append(x)\n    return found\n")
    plain = code.some(3, None, 4)
    code.made.clear()
    line = code.some.__code__.co_firstlineno + 3
    runs = [call for call in calls_in(code, line) if call.variable]
    both = "x = maybe(number); x = halves(x)"
    assert [call.text for call in runs] == [both, f"{both}; x = -x"]
    with function_calls.compiled_with({call: kept_results.Memo() for call in runs}):
        for kept in (code.some(3, None, 4), code.some(3, None, 4)):
            assert [each.tolist() for each in kept] == [each.tolist() for each in plain]
    assert code.made == [3, 4]


@pytest.mark.parametrize(("of", "is_one"), [("number", True), ("BOXES[number]", False)])
def test_what_may_fail_where_there_is_none_is_not_asked_for_in_front_of_what_leaves(
    tmp_path: Path, of: str, is_one: bool
) -> None:
    """A picture that cannot be read has no box either."""
    body = "BOXES = {}\ndef one(number):\n    x = maybe(number)\n    if x is None:\n        return 0\n"
    code = module(tmp_path, f"{body}    x = halves(x, {of})\n    return x + 1\n")
    calls = calls_in(code, code.one.__code__.co_firstlineno + 1)
    assert any(call.variable for call in calls) is is_one


@pytest.mark.parametrize("then", ["if x is None:\n        return 0", "y = 0 if not x else 1", "if x: pass", "return x"])
def test_assignments_that_leave_end_where_it_is_asked_again_whether_there_is_none(tmp_path: Path, then: str) -> None:
    """What leaves first stands behind the function, and would leave also where a later assignment gives none."""
    body = "def one(number):\n    x = load(number)\n    if x is None:\n        raise ValueError\n    x = maybe(x)\n"
    code = module(tmp_path, f"{body}    {then}\n    return x + 1\n")
    calls = calls_in(code, code.one.__code__.co_firstlineno + 1)
    assert [call.text for call in calls] == ["load(number)"]
    code = module(tmp_path, f"{body}    return x + 1\n")
    calls = calls_in(code, code.one.__code__.co_firstlineno + 1)
    assert [call.text for call in calls] == ["x = load(number); x = maybe(x)", "load(number)"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("Of.__read(number, Of.__SIZE)", ("number",)),
        ("Of.read(number, __size=2)", None),
        ("Of.read(number, Of.__SIZE + number)", ("number", "Of.__SIZE + number")),
        ("Of.read(number, __file__)", ("number",)),
    ],
)
def test_a_private_name_of_a_class_is_a_key_or_stays_within_it(
    tmp_path: Path, text: str, arguments: tuple[str, ...] | None
) -> None:
    """A function outside of the class names it `Of._Of__read`, and knows no `__read`."""
    code = module(tmp_path, f"class Of:\n    def one(self, number):\n        return {text}\n")
    found = calls_in(code, code.Of.one.__code__.co_firstlineno + 1)
    assert [call.arguments for call in found] == ([] if arguments is None else [arguments])


SET_ANEW = """
WIDTH = ONCE = 4
class Config:
    SIZE, FIXED, PARTS = 4, 4, [4]
    def __init__(self):
        self.FIXED = 4
for EPOCH in range(2):
    pass
"""


@pytest.mark.parametrize(
    ("value", "sets", "is_key"),
    [
        ("WIDTH", "def train():\n    global WIDTH\n    WIDTH = 8\n", True),
        ("WIDTH", "WIDTH = 8\n", True),
        ("WIDTH", "WIDTH += 1\n", True),
        ("WIDTH", "def train():\n    WIDTH = 8\n    return WIDTH\n", False),
        ("EPOCH", "", True),
        ("ONCE", "", False),
        ("Config.SIZE", "def train():\n    Config.SIZE = 8\n", True),
        ("Config.SIZE", "", False),
        ("Config.FIXED", "", False),
        ("Config.PARTS[0]", "def train():\n    Config.PARTS[0] = 8\n", True),
        ("Config.PARTS[0]", "", False),
    ],
)
def test_a_global_value_that_the_file_sets_anew_is_a_key(tmp_path: Path, value: str, sets: str, is_key: bool) -> None:
    """A first epoch with `WIDTH = 4` stood for one with 8."""
    code = module(tmp_path, f"{SET_ANEW}{sets}def one(number):\n    return load(number, {value})\n")
    (call,) = calls_in(code, code.one.__code__.co_firstlineno + 1)
    assert call.arguments == (("number", value) if is_key else ("number",))


@pytest.mark.parametrize(
    ("value", "sets", "is_key"),
    [
        ("ONCE", "of.ONCE = 8", True),
        ("ONCE", "ONCE = 8", False),
        ("Config.FIXED", "of.Config.FIXED = 8", True),
        ("Config.FIXED", "setattr(of.Config, 'FIXED', 8)", True),
    ],
)
def test_so_is_one_that_another_module_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, sets: str, is_key: bool
) -> None:
    (tmp_path / "trains").mkdir()
    other = module(tmp_path / "trains", f"def train(of):\n    {sets}\n")
    monkeypatch.setitem(sys.modules, other.__name__, other)
    (tmp_path / "reads").mkdir()
    code = module(tmp_path / "reads", f"{SET_ANEW}def one(number):\n    return load(number, {value})\n")
    (call,) = calls_in(code, code.one.__code__.co_firstlineno + 1)
    assert call.arguments == (("number", value) if is_key else ("number",))


def test_a_function_that_an_object_gets_in_its_init_is_called_and_one_that_is_set_elsewhere_is_none(
    tmp_path: Path,
) -> None:
    body = "class Of:\n    def __init__(self):\n        self.read = load\n    def one(self, number):\n"
    body += "        return self.read(number)\n"
    code = module(tmp_path, body)
    (call,) = calls_in(code, code.Of.one.__code__.co_firstlineno + 1)
    assert call.arguments == ("self", "number")
    code = module(tmp_path, f"{body}def train(of):\n    of.read = halves\n")
    (call,) = calls_in(code, code.Of.one.__code__.co_firstlineno + 1)
    assert call.arguments == ("self.read", "number"), "no value that can be a key"


def test_assignments_to_several_variables_are_made_once_and_none_begin_within_others(tmp_path: Path) -> None:
    body = "def one(number):\n    held = Held(number)\n    x = held.picture\n    y = halves(x)\n    y = -y\n"
    code: Any = module(tmp_path, f"{body}    return y\n")
    plain, first = code.one(3), code.one.__code__.co_firstlineno
    functions = function_calls.functions_of({code.__file__})
    runs = function_calls.runs_through([(code.__file__, first + number) for number in (3, 2, 4)], functions)
    held = "held = Held(number); x = held.picture"
    assert [call.text for call in runs] == [held, f"{held}; y = halves(x)", f"{held}; y = halves(x); y = -y"]
    code.made.clear()
    with function_calls.compiled_with({call: kept_results.Memo() for call in runs}):
        assert code.one(3).tolist() == code.one(3).tolist() == plain.tolist()
    assert code.made == [3]


def calls_in(code: Any, line: int, *, through: bool = False) -> list[MemoizableCall]:
    return function_calls.calls_in(code.__file__, line, function_calls.functions_of({code.__file__}), through=through)


def test_the_code_is_as_it_was_behind_it(tmp_path: Path) -> None:
    code = module(
        tmp_path, "def outer(shift):\n    def inner(number):\n        return load(number + shift)\n    return inner\n"
    )
    inner = code.outer(10)
    before = inner.__code__
    (call,) = calls_in(code, before.co_firstlineno + 1)
    assert call.arguments == ("number + shift",)
    memo = kept_results.Memo()
    with function_calls.compiled_with({call: memo}):
        first = inner(1)
        first[:] = 99
        assert inner(1)[0, 0] == 11, "a kept array is handed out as a copy"
        assert code.made == [11]
        memo.stand_in()
        assert inner(2)[0, 0] == 11, "of those that are kept"
        assert code.outer(11)(1)[0, 0] == 11
    assert inner.__code__ is before
    assert inner(1)[0, 0] == 11
    assert code.made == [11, 11]


def test_a_file_that_has_changed_is_not_what_was_looked_at(tmp_path: Path) -> None:
    code = module(tmp_path, "def one(number):\n    return load(number)\n")
    (call,) = calls_in(code, code.one.__code__.co_firstlineno + 1)
    with (
        pytest.raises(PipelineBenchError, match=r"user_\d+.py has changed"),
        function_calls.compiled_with({call.model_copy(update={"column": 0}): kept_results.Memo()}),
    ):
        pass
    assert code.one(1)[0, 0] == 1


def looked_for(code: ModuleType, read: KerasInput) -> list[MemoizableCall]:
    """Look for calls in the lines behind `HEAD` of the module of an input, as an inspection does."""
    lines = range(HEAD.count("\n") + 1, Path(code.__file__ or "").read_text().count("\n") + 1)
    places = [(code.__file__ or "", line) for line in lines]
    again = (lambda: lambda: read.data[0]) if read.kind == "PyDataset" else None
    with only_sleep_counts():
        return memoize.find(read.taker_of_next_epoch, places, 3.0, lambda: None, again)


OF_PLACES = """
samples = [*range(3, 15)]
def at(place):
    number = samples[place]
    time.sleep(0.002)
    return np.full([SIZE, 2], number, np.float32)
class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        x = [at(place) for place in (2 * index, 2 * index + 1)]
        return np.stack(x) * random.random(), np.array(samples[2 * index : 2 * index + 2])
    def on_epoch_end(self):
        {between}
def batches():
    while True:
        {between}
        for place in range(12):
            yield at(place) * random.random(), np.full([SIZE], samples[place])
"""


@pytest.mark.parametrize("kind", ["PyDataset", "generator"])
@pytest.mark.parametrize(("between", "texts"), [("pass", ["at(place)"]), ("samples.append(samples.pop(0))", [])])
def test_a_place_in_a_list_that_has_another_order_in_each_epoch_names_no_result(
    tmp_path: Path, kind: Any, between: str, texts: list[str]
) -> None:
    """As where it is shuffled, which leaves a place as it was now and then."""
    code = module(tmp_path, OF_PLACES.replace("{between}", between))
    data = code.Batches() if kind == "PyDataset" else code.batches()
    calls = looked_for(code, KerasInput(kind, data, {"shuffle": False}))
    assert [call.text for call in calls] == texts


OWN = """
class Base(keras.utils.PyDataset):
    def inherited(self, number):
        return number

class Own(Base):
    def __init__(self):
        super().__init__()
        self.size, self.calls, self.places = SIZE, 0, [3, 4, 5, 6, 7, 8]
    def __len__(self):
        return 3
    def __getitem__(self, index):
        x = [self.one(self.places[place]) for place in (2 * index, 2 * index + 1)]
        return np.stack(x) * random.random(), np.zeros([2])
    def one(self, number):
        {does}
        return self.loaded(number + 1)
    def loaded(self, number):
        return load(number, self.size)
"""
WITHIN, INNER = "self.loaded(number + 1)", "load(number, self.size)"


@pytest.mark.parametrize(
    ("does", "behind", "text"),
    [
        ("pass", "", "self.one(self.places[place])"),
        ("self.calls += 1", "", WITHIN),
        ("number += len(self.places) - 6", "", WITHIN),
        ("print(self, file=io.StringIO())", "", WITHIN),
        ("pass", "class Others(Own):\n    def loaded(self, number):\n        return load(number)\n", INNER),
        ("pass", "class Others(Own):\n    def __hash__(self):\n        return 0\n", INNER),
        ("pass", "def later(data):\n    data.size = 8\n", INNER),
        ("self.inherited(number)", "", WITHIN),
    ],
)
def test_a_method_of_the_same_object_is_kept_by_what_it_reads_of_it(
    tmp_path: Path, does: str, behind: str, text: str
) -> None:
    code = module(tmp_path, OWN.replace("{does}", does) + behind)
    (call,) = looked_for(code, KerasInput("PyDataset", code.Own(), {"shuffle": False}))
    assert call.text == text
    if text != INNER:
        assert call.arguments[0] == call.owner == "self"
        assert call.owner_reads == ("size",)


def test_what_a_method_gives_is_kept_for_each_object_and_for_what_it_reads_of_it(tmp_path: Path) -> None:
    code = module(tmp_path, OWN.replace("{does}", "pass"))
    one, other = code.Own(), code.Own()
    (call, *_) = calls_in(code, code.Own.__getitem__.__code__.co_firstlineno + 1)
    assert call.text == "self.one(self.places[place])"
    with function_calls.compiled_with({call: kept_results.Memo()}):
        for data in (one, one, other):
            data[0]
        assert code.made == [4, 5, 4, 5]
        one.size = 8
        assert one[0][0].shape == (2, 8, 2)


def test_a_call_is_found_also_where_each_epoch_has_the_same_batches(tmp_path: Path) -> None:
    """These may be too many for the memory, where what they are made of is not."""
    body = "class Batches(keras.utils.PyDataset):\n    def __len__(self):\n        return 3\n"
    body += "    def __getitem__(self, index):\n"
    body += "        return np.stack([load(each) for each in (index, index + 3)]), np.zeros([2])\n"
    code = module(tmp_path, body)
    (call,) = looked_for(code, KerasInput("PyDataset", code.Batches(), {"shuffle": False}))
    assert call.text == "load(each)"


def test_of_many_samples_of_a_few_files_the_files_are_what_takes_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 samples of 4 files were said to take what 64 files would, and no memory had room for them."""
    monkeypatch.setattr(keras_stages, "_COPY_S", 0.02)
    body = "class Batches(keras.utils.PyDataset):\n    def __len__(self):\n        return 8\n"
    body += "    def __getitem__(self, index):\n        places = range(8 * index, 8 * index + 8)\n"
    body += "        return np.stack([load(place // 16) for place in places]) * random.random(), np.zeros([8])\n"
    read = KerasInput("PyDataset", module(tmp_path, body).Batches(), {"shuffle": False})
    *_, last = keras_stages.inspect(read, read.described(0.0), 1.0, lambda: None)
    offered = fixes.attempts(last, fixes.Context(cores=2, free_memory_bytes=4.5 * 32))
    (found,) = (each for each in offered if each.fix.kind == "memoize")
    assert (found.outcome, found.fix.because.partition(" in memory")[0]) == ("pending", "takes about 128 B")


@pytest.mark.parametrize(("seconds", "all_made"), [(10.0, True), (0.08, False)])
def test_what_an_epoch_asks_for_is_known_though_not_all_of_it_is_made(
    tmp_path: Path, seconds: float, all_made: bool
) -> None:
    code = module(tmp_path, "def batch(number):\n    return [load(each) for each in (number, 31 - number)]\n")
    (call, *_) = calls_in(code, code.batch.__code__.co_firstlineno + 1)
    given = itertools.count(0, 5)
    with only_sleep_counts():
        (known,) = memoize.with_sizes([call], lambda: lambda: code.batch(next(given) % 32), 32, seconds, lambda: None)
    assert known.batch_bytes == 32, "of each two batches, two results"
    assert (len(code.made) == 32) is all_made


def test_where_the_code_fails_on_what_stands_for_its_results_what_was_known_stays(tmp_path: Path) -> None:
    code = module(tmp_path, "def batch(number):\n    return load(number, number)[number - 1]\n")
    (call, *_) = calls_in(code, code.batch.__code__.co_firstlineno + 1)
    given = itertools.count(1)
    with only_sleep_counts():
        found = memoize.with_sizes([call], lambda: lambda: code.batch(next(given)), 99, 0.05, lambda: None)
    assert found == [call]
    assert len(code.made) < 98


@pytest.mark.parametrize(
    ("does", "is_refused"),
    [
        ("open(FILE, 'w').close()", True),
        ("np.save(FILE, np.zeros(1))", True),
        ("os.close(os.open(FILE, os.O_WRONLY | os.O_CREAT))", True),
        ("tf.io.gfile.GFile(FILE, 'w').write('x')", True),
        ("open(__file__).close()", False),
        ("os.close(os.open(__file__, os.O_RDONLY))", False),
    ],
)
def test_while_results_stand_in_for_others_no_file_is_opened_to_be_written_to(
    tmp_path: Path, does: str, is_refused: bool
) -> None:
    """A script that keeps a cache of its own had the data of other pictures in it."""
    file = tmp_path / "kept.npy"
    code = module(tmp_path, f"FILE = {str(file)!r}\ndef write():\n    {does}\n")
    with kept_results.writing_refused():
        if is_refused:
            with pytest.raises(OSError, match="other results stand for"):
                code.write()
        else:
            code.write()
    assert not file.exists()
    code.write()
    assert file.exists() is is_refused


def labels(dataset: Any, batches: int) -> list[float]:
    return [float(number) for _, y in itertools.islice(dataset, batches) for number in y]


@pytest.mark.parametrize("kind", ["PyDataset", "generator"])
def test_a_trial_computes_each_once_and_trains_on_the_same_samples(
    tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras_stages, "_COPY_S", 0.02)
    code = module(tmp_path, BATCHES + GENERATOR)
    numbers = [3, 4, 5, 6, 7, 8]
    of_kind = {"PyDataset": code.Batches, "generator": lambda: code.batches(numbers, 2, 3, name=4)}[kind]
    given = {"shuffle": False, "steps_per_epoch": 3}
    read = KerasInput(kind, of_kind(), given)
    *_, last = keras_stages.inspect(read, read.described(0.0), 1.0, lambda: None)
    call = memoizable(last, GET_ITEM)
    assert call.text.startswith("load(number")
    assert not call.drawn
    edits = [Memoize(stage=GET_ITEM, call=call)]
    read = KerasInput(kind, of_kind(), given)
    code.made.clear()
    assert read.keep(edits, 60.0, lambda: None)
    assert sorted(code.made) == [3, 4, 5, 6, 7, 8]
    assert sorted(labels(read.dataset(edits), 3)) == [3, 4, 5, 6, 7, 8]
    assert len(code.made) == 6
    plain, kept = (
        [[part.numpy().tolist() for part in batch] for batch in read.subsampled(each, 7)] for each in ([], edits)
    )
    assert plain == kept
    assert len(code.made) > 6, "as written it keeps none"


def test_where_the_time_is_short_what_was_kept_stands_for_the_rest(tmp_path: Path) -> None:
    code = module(tmp_path, BATCHES)
    read = KerasInput("PyDataset", code.Batches(), {"shuffle": False})
    (call,) = looked_for(code, read)
    edits = [Memoize(stage=GET_ITEM, call=call)]
    code.made.clear()
    assert not read.keep(edits, 0.0, lambda: None)
    assert len(labels(read.dataset(edits), 3)) == 6
    assert len(code.made) == 2
    assert kept_results.stand_for_all(edits)
    samples = [[part.numpy().tolist() for part in batch] for batch in read.subsampled(edits, 7)]
    assert samples == [[part.numpy().tolist() for part in batch] for batch in read.subsampled([], 7)], "as they are"


FRAMES = """
def cut(picture, place):
    return np.array(picture[place : place + 4])
class Frames(keras.utils.PyDataset):
    def __len__(self):
        return 3
    def __getitem__(self, index):
        x = []
        for number in (2 * index, 2 * index + 1):
            place = random.randrange(10**6)
            x.append({one})
        return np.stack(x), np.zeros([2])
def frames():
    while True:
        x = []
        for number in range(2):
            place = random.randrange(10**6)
            x.append({one})
        yield np.stack(x), np.zeros([2])
"""


@pytest.mark.parametrize("kind", ["PyDataset", "generator"])
def test_what_is_kept_of_drawn_arguments_stands_for_no_others(tmp_path: Path, kind: Any) -> None:
    """Of one frame of each video that is drawn anew, hardly any comes again in the next epoch."""
    code = module(tmp_path, FRAMES.replace("{one}", "load(place)"))
    data = {"PyDataset": code.Frames, "generator": code.frames}[kind]()
    read = KerasInput(kind, data, {"shuffle": False, "steps_per_epoch": 3})
    (call,) = looked_for(code, read)
    assert (call.text, call.drawn) == ("load(place)", True)
    edits = [Memoize(stage=GET_ITEM, call=call)]
    assert not read.keep(edits, 0.0, lambda: None)
    assert not kept_results.stand_for_all(edits)
    code.made.clear()
    labels(read.dataset(edits), 3)
    assert len(code.made) >= 4, "of three batches; Keras has taken a generator's first one before"


@pytest.mark.parametrize("draws", ["shuffles", "draws"])
def test_of_a_generator_that_draws_from_its_own_it_is_not_known_whether_arguments_come_again(
    tmp_path: Path, draws: str
) -> None:
    """Each frame that it draws anew would be one of those kept so far, where not all could be made in the time."""
    body = """
def shuffles():
    rng = np.random.default_rng()
    while True:
        for number in map(int, rng.permutation(10**4)):
            yield load(number) * random.random(), np.zeros([4])
def draws():
    rng = np.random.default_rng()
    while True:
        number = int(rng.integers(10**6))
        yield load(number) * random.random(), np.zeros([4])
"""
    code = module(tmp_path, body)
    read = KerasInput("generator", getattr(code, draws)(), {"shuffle": False, "steps_per_epoch": 3})
    (call,) = looked_for(code, read)
    assert (call.text, call.drawn) == ("load(number)", None)
    edits = [Memoize(stage=GET_ITEM, call=call)]
    assert not read.keep(edits, 0.0, lambda: None)
    assert not kept_results.stand_for_all(edits)
    code.made.clear()
    labels(read.dataset(edits), 6)
    assert len(code.made) >= 4, "of six batches; Keras has taken the first one before, and one more may come again"


@pytest.mark.parametrize(
    ("one", "other", "drawn"),
    [
        ([1, 2, 3], [1, 3, 2], False),
        ([1, 2, 3], [1, 2], False),
        ([1, 2, 3], [1, 2, 4], True),
        ([1, 2, 3], [2, 1, 3], None),
        ([1], [1, 2], None),
        ([], [1], None),
    ],
)
def test_whether_arguments_are_drawn_is_known_of_two_calls_from_the_same_first_one_on(
    one: list[int], other: list[int], drawn: bool | None
) -> None:
    assert kept_results._differ([(each,) for each in one], [(each,) for each in other]) is drawn


def test_what_fails_where_it_is_made_again_is_not_known_to_be_drawn(tmp_path: Path) -> None:
    code = module(tmp_path, "def one(number):\n    return load(number)\n")
    (call,) = calls_in(code, code.one.__code__.co_firstlineno + 1)

    def fails() -> Any:
        raise ValueError

    for look in (kept_results.in_the_same_batch, kept_results.by_later_draws):
        assert look([call], fails, 0.0, lambda: None) == {call: None}


def test_an_epoch_that_is_made_first_ends_as_keras_ends_it(tmp_path: Path) -> None:
    """What is seeded by the number of the epoch was found in what was kept of the same number."""
    body = """
class Frames(keras.utils.PyDataset):
    epoch = 0
    def __len__(self):
        return 3
    def __getitem__(self, index):
        number = int(np.random.default_rng((self.epoch, index)).integers(10**6))
        return load(number)[None], np.zeros([1])
    def on_epoch_end(self):
        self.epoch += 1
"""
    code = module(tmp_path, body)
    line = code.Frames.__getitem__.__code__.co_firstlineno + 2
    call = next(each for each in calls_in(code, line) if each.text == "load(number)")
    edits = [Memoize(stage=GET_ITEM, call=call)]
    read = KerasInput("PyDataset", code.Frames(), {"shuffle": False})
    assert read.keep(edits, 60.0, lambda: None)
    code.made.clear()
    labels(read.dataset(edits), 3)
    assert len(code.made) == 3


@pytest.mark.parametrize(
    ("names", "is_found"),
    [
        ("", True),
        ("kind = '{}'.format(1)", True),
        ("kind = x.format", False),
        ("kind = x.getexif()", False),
        ("x.draft('RGB', (2, 2))", False),
    ],
)
def test_a_picture_that_is_opened_is_not_kept_where_the_file_asks_for_what_a_copy_has_not(
    tmp_path: Path, names: str, is_found: bool
) -> None:
    code = module(tmp_path, f"def batch(number):\n    x = lazily(number)\n    {names or 'pass'}\n    return x\n")
    calls = found_in(code, [code.batch.__code__.co_firstlineno + 1], code.batch)
    assert [call.text for call in calls] == ["lazily(number)"] * is_found


def test_a_picture_is_kept_rather_than_the_smaller_part_that_is_drawn_of_it(tmp_path: Path) -> None:
    lines = "one(number, place % 300)"
    body = "def one(number, place):\n    x = load(number, 400)\n    x = cut(x, place)\n    return x\n"
    code = module(tmp_path, body + FRAMES.replace("{one}", lines))
    (call,) = looked_for(code, KerasInput("PyDataset", code.Frames(), {"shuffle": False}))
    assert (call.text, call.drawn) == ("load(number, 400)", False)


@pytest.mark.parametrize(
    ("first", "can"),
    [
        ("", True),
        ("other = list(numbers)", True),
        ("def looks(numbers): numbers = numbers[:2]", True),
        ("numbers = numbers[:2]", False),
        ("times += 1", False),
        ("def looks():\n        nonlocal times\n        times = 2", False),
        ("for times in range(3): pass", False),
        ("x = [times for number in numbers]", True),
    ],
)
def test_a_generator_that_has_begun_begins_again_unless_it_sets_a_parameter_anew(
    first: str, can: bool, tmp_path: Path
) -> None:
    code = module(tmp_path, GENERATOR.replace("    while True:", f"    {first}\n    while True:"))
    begun = code.batches([1, 2, 3, 4])
    next(begun)
    read = KerasInput("generator", begun, {})
    assert read.can_begin_again == can
    if can:
        assert sorted(label for _, labels in itertools.islice(read.again(), 2) for label in labels) == [1, 2, 3, 4]


def test_a_generator_that_may_have_read_from_an_iterator_cannot_begin_again(tmp_path: Path) -> None:
    begun = module(tmp_path, GENERATOR).batches([1, 2], iter([3]))
    assert KerasInput("generator", begun, {}).can_begin_again
    next(begun)
    assert not KerasInput("generator", begun, {}).can_begin_again


def test_a_generator_begins_again_with_what_it_was_given(tmp_path: Path) -> None:
    code = module(tmp_path, GENERATOR)
    numbers = [1, 2, 3, 4, 5, 6]
    read = KerasInput("generator", code.batches(numbers), {})
    np.random.default_rng(0).shuffle(numbers)
    again = [sorted(next(read.again())[1]) for _ in range(2)]
    assert all(len(each) == 2 for each in again)
    with pytest.raises(PipelineBenchError, match="cannot be inspected"):
        keras_input.KerasInput("arrays", np.zeros(3), {}).again()
