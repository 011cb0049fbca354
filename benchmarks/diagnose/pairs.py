"""Whether each pair is a fair one: the same samples, and a fault that costs at least 1.3 times the expert's time.

``python -m benchmarks.diagnose.pairs [NAME …]`` drains the faulty and the expert's pipeline in turns, each in fresh
processes and without the program, and compares the samples. Components that are random are left out of that.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.diagnose import data, planted

LEAST_RATIO = 1.3
SAMPLES = "samples"
SIDES = ("make_dataset", "expert")
TURNS = 2
DRAIN_S = 1.5
WARM_S = 12.0
ENDLESS_WARM_S = 1.5
LOOK_S = 12.0
MOST_SAMPLES = 60_000


@dataclass(frozen=True)
class Seen:
    """The samples of a pipeline as far as they were looked at: a hash for each component of each sample."""

    samples: tuple[tuple[str, ...], ...]
    whole: bool
    """Whether all samples that there are must have been among them."""

    def only(self, components: Sequence[int]) -> Seen:
        return Seen(tuple(tuple(sample[i] for i in components) for sample in self.samples), self.whole)

    def differs(self, other: Seen) -> str:
        """How the samples differ, as distinct samples in any order, or one by one as far as both go; "" if not."""
        if self.whole and other.whole:
            mine, theirs = set(self.samples), set(other.samples)
            return "" if mine == theirs else f"{len(mine - theirs)} and {len(theirs - mine)} distinct samples differ"
        pairs = list(zip(self.samples, other.samples, strict=False))
        wrong = sum(a != b for a, b in pairs)
        return f"{wrong} of the first {len(pairs)} samples differ" if wrong else ""


def load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _hashes(element: Any) -> Iterator[tuple[str, ...]]:
    """The hashes of each sample of a batch."""
    import tensorflow as tf

    columns: list[Any] = []
    for part in tf.nest.flatten(element):
        ragged = isinstance(part, tf.RaggedTensor)
        columns.append([repr(row).encode() for row in part.to_list()] if ragged else part.numpy())
    for row in range(len(columns[0])):
        yield tuple(hashlib.md5(_bytes(column[row])).hexdigest() for column in columns)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else value.tobytes()


def look(make: Callable[[], Any], seed: int) -> Seen:
    """See one epoch, or of an endless pipeline as much as shows every sample twice; less where that takes too long."""
    import tensorflow as tf

    tf.random.set_seed(seed)
    samples: list[tuple[str, ...]] = []
    distinct: set[tuple[str, ...]] = set()
    until = time.monotonic() + LOOK_S
    for element in make():
        for sample in _hashes(element):
            samples.append(sample)
            distinct.add(sample)
        # Of samples that come round in a shuffled order, some come for the first time late in the second round.
        if len(samples) > 3 * len(distinct) + 1000:
            return Seen(tuple(samples), whole=True)
        if time.monotonic() > until or len(samples) > MOST_SAMPLES:
            return Seen(tuple(samples), whole=False)
    return Seen(tuple(samples), whole=True)


def difference(faulty: Callable[[], Any], expert: Callable[[], Any]) -> tuple[str, int]:
    """How the samples of the two differ, and how many components could be compared."""
    mine, again = look(faulty, 1), look(faulty, 2)
    components = range(len(mine.samples[0]))
    steady = [i for i in components if not mine.only([i]).differs(again.only([i]))]
    theirs = look(expert, 1)
    if len(theirs.samples[0]) != len(components):
        return "another number of components", 0
    return mine.only(steady).differs(theirs.only(steady)), len(steady)


def drained_ms(dataset: Any) -> float:
    """Milliseconds an element, epoch after epoch, once a cache has been filled."""
    iterator = iter(dataset)
    start_s = time.perf_counter()
    until_s = start_s + (ENDLESS_WARM_S if int(dataset.cardinality()) == -1 else WARM_S)
    while next(iterator, None) is not None and time.perf_counter() < until_s:
        pass
    start_s, count = time.perf_counter(), 0
    while (took_s := time.perf_counter() - start_s) < DRAIN_S:
        if next(iterator, None) is None:
            iterator = iter(dataset)
        else:
            count += 1
    return 1000 * took_s / count


def child(pair: planted.Planted, part: str) -> str:
    """What a process of its own prints: two pipelines in one process would fill their buffers in the other's turn."""
    command = [sys.executable, "-m", "benchmarks.diagnose.pairs", pair.name, "--here", part]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{pair.name}, {part}: {done.stderr[-2000:]}")
    return done.stdout.strip()


def here(pair: planted.Planted, part: str) -> str:
    """What `child` is to print: how the samples differ, or the milliseconds of one of the two."""
    module = load(pair.file)
    if part != SAMPLES:
        return str(drained_ms(getattr(module, part)()))
    differs, compared = difference(module.make_dataset, module.expert)
    return f"SAMPLES: {differs}" if differs else f"same samples, {compared} components compared"


def line(pair: planted.Planted) -> str:
    """The line of the table for a pair."""
    same = child(pair, SAMPLES)
    turns = [[float(child(pair, side)) for side in SIDES] for _ in range(TURNS)]
    faulty_ms, expert_ms = (statistics.median(turn[side] for turn in turns) for side in range(2))
    ratio = faulty_ms / expert_ms
    cheap = "" if ratio >= LEAST_RATIO else "  TOO CHEAP A FAULT"
    return f"{pair.name:<28} {faulty_ms:>9.3f} ms {expert_ms:>9.3f} ms {ratio:>7.2f} ×  {same}{cheap}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--samples", action="store_true", help="compare the samples only")
    parser.add_argument("--here", choices=(SAMPLES, *SIDES), help="in this process: what a pair's processes are given")
    given = parser.parse_args()
    try:
        chosen = planted.chosen(given.names)
    except ValueError as error:
        parser.error(str(error))
    os.environ[data.VARIABLE] = str(data.make())
    for pair in chosen:
        if given.here:
            print(here(pair, given.here))
        else:
            print(f"{pair.name:<28} {child(pair, SAMPLES)}" if given.samples else line(pair), flush=True)


if __name__ == "__main__":
    main()
