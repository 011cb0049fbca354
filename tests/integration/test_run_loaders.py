"""`pipeline-bench run` on trainings that read PyTorch's DataLoader or grain, and on Keras on JAX."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_bench.model.session import Session, load

TORCH = """
import time, torch
from torch.utils.data import DataLoader, Dataset, dataloader
class Slow(Dataset):
    def __len__(self): return 60
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.zeros(3)
if __name__ == "__main__":
    loader = DataLoader(Slow(), num_workers=1, persistent_workers=True, batch_size=2)
    for epoch in range(2):
        for batch in loader:
            batch + 1
    next(iter(DataLoader(Slow())))
    print(isinstance(iter(loader), dataloader._MultiProcessingDataLoaderIter), len(batch))
"""
BACKWARD = """
import time, torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __init__(self, size): self.size = size
    def __len__(self): return self.size
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.zeros(3)
train, test = (DataLoader(Slow(size), batch_size=2) for size in (80, 40))
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for batch in train:
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()
    with torch.no_grad():
        for batch in test:
            net(batch)
print(True, len(batch))
"""
OWN_BATCHES = """
import time, torch
from torch.utils.data import DataLoader
net = torch.nn.Linear(3, 1)
for step in range(200):
    net(torch.zeros(2, 3)).sum().backward()
    if step % 50 == 49:
        for batch in DataLoader(torch.zeros(24, 3), batch_size=2):
            net(batch)
print(True, len(batch))
"""
TWO_LINES = """
import time, torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 240
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.zeros(3)
net = torch.nn.Linear(3, 1)
labelled = iter(DataLoader(Slow(), batch_size=2))
unlabelled = iter(DataLoader(Slow(), batch_size=2))
for step in range(100):
    batch, other = next(labelled), next(unlabelled)
    time.sleep(0.01)
    (net(batch).sum() + net(other).sum()).backward()
print(True, len(batch))
"""
OWN_ITER = """
import queue, threading, time, torch
from torch.utils.data import DataLoader, Dataset, dataloader
class Slow(Dataset):
    def __len__(self): return 60
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.zeros(3)
class Background(threading.Thread):
    def __init__(self, batches):
        super().__init__(daemon=True)
        self.batches, self.ready = batches, queue.Queue(2)
        self.start()
    def run(self):
        for batch in self.batches: self.ready.put(batch)
        self.ready.put(None)
    def __iter__(self): return self
    def __next__(self):
        batch = self.ready.get()
        if batch is None: raise StopIteration
        return batch
class Own(DataLoader):
    def __iter__(self):
        {iterates}
def fastai_loads(data):
    for batch in dataloader._SingleProcessDataLoaderIter(DataLoader(data, batch_size=2)): yield batch
for epoch in range(2):
    for batch in {loader}:
        batch + 1
print(type(Own(Slow())).__name__ == "Own", len(batch))
"""
GRAIN = """
import time, grain
def slow(index):
    time.sleep(0.01)
    return index
data = grain.MapDataset.range(60).map(slow).to_iter_dataset(grain.ReadOptions(num_threads=0)).batch(2)
for epoch in range(2):
    for batch in data:
        batch + 1
iterator = iter(data)
state = iterator.get_state()
next(iterator)
iterator.set_state(state)
print(isinstance(iterator, grain.DatasetIterator), len(batch))
"""
JAX = """
import os, sys, time
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
class Slow(keras.utils.PyDataset):
    def __len__(self): return 30
    def __getitem__(self, index):
        time.sleep(0.02)
        return np.zeros((4, 3), "float32"), np.zeros((4, 1), "float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Slow(), epochs=2, verbose=0)
print(True, 2)
"""


KERAS_ON_TORCH = """
import os, time
os.environ["KERAS_BACKEND"] = "torch"
import keras, torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 160
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.zeros(3), torch.zeros(1)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(DataLoader(Slow(), batch_size=2), verbose=0)
print(True, 2)
"""


def told_of(folder: Path, script: str, watched: bool = True) -> str:
    """What was told."""
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "pipeline_bench", "run", "--", sys.executable, "train.py"]
    done = subprocess.run(
        command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True 2\n"), done.stderr
    assert ("not watched" not in done.stderr) is watched
    return str(done.stderr)


def run(folder: Path, script: str) -> tuple[str, Session]:
    """What was told, and the session of the one training."""
    told = told_of(folder, script)
    (session,) = (folder / "reports").iterdir()
    assert (session / "report.html").exists()
    return told, load(session)


def test_a_data_loaders_batches_are_timed_over_its_epochs_and_it_stays_what_it_is(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    told, session = run(tmp_path, TORCH)
    assert re.search(r"loop of train\.py:12: 54 steps[ ,]", told)  # 60, and a tenth of them is warm-up
    assert "severely input-bound" in told
    assert "diagnose" not in told  # it knows pipelines of tf.data
    assert (session.results[0].input_wait_share.value or 0) > 0.5


def test_a_data_loader_whose_batches_no_backward_follows_is_only_read_beside_one_that_trains(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    told = told_of(tmp_path, BACKWARD)
    assert re.search(r"loop of train\.py:14: 72 steps[ ,].* severely input-bound", told)
    assert re.search(r"loop of train\.py:19: 40 batches in .*; nothing was seen to train on them", told)
    assert told.count("input-bound") == 1


def test_what_pytorch_trains_on_that_no_data_loader_gives_is_said_to_be_unwatched_and_no_validation_is_it(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    told = told_of(tmp_path, OWN_BATCHES, watched=False)
    assert re.search(r"not watched: PyTorch, which trains on batches that no DataLoader gives it \(\d+ calls", told)
    assert "nothing was seen to train on them" in told


def test_a_step_that_takes_from_two_data_loaders_is_one_training(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    told, session = run(tmp_path, TWO_LINES)
    assert "each step also takes a batch in train.py:1" in told
    assert (session.results[0].input_wait_share.value or 0) > 0.35


@pytest.mark.parametrize(
    ("iterates", "loader"),
    [
        ("return self._get_iterator()", "Own(Slow(), batch_size=2)"),
        ("return Background(super().__iter__())", "Own(Slow(), batch_size=2)"),
        ("pass", "fastai_loads(Slow())"),
    ],
)
def test_batches_that_do_not_come_by_the_data_loaders_own_iter_are_timed(
    iterates: str, loader: str, tmp_path: Path
) -> None:
    """As those of torchdata's StatefulDataLoader, of a thread that reads ahead, and of fastai."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    told, session = run(tmp_path, OWN_ITER.format(iterates=iterates, loader=loader))
    assert re.search(r"loop of train\.py:\d+: 54 steps[ ,]", told)  # 60, and a tenth of them is warm-up
    assert (session.results[0].input_wait_share.value or 0) > 0.5


def test_grains_batches_are_timed_over_its_epochs_and_its_iterators_stay_what_they_are(tmp_path: Path) -> None:
    pytest.importorskip("grain", reason="grain is not installed")
    told, session = run(tmp_path, GRAIN)
    assert re.search(r"loop of train\.py:8: 54 steps[ ,]", told)  # 60, and a tenth of them is warm-up
    assert "severely input-bound" in told
    assert (session.results[0].input_wait_share.value or 0) > 0.5


def test_a_fit_over_a_data_loader_is_not_sent_to_diagnose_which_refuses_it(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    told, session = run(tmp_path, KERAS_ON_TORCH)
    assert "severely input-bound" in told
    assert "diagnose" not in told
    assert "diagnose" not in session.results[0].verdict.reason


def test_keras_on_jax_has_its_wait_measured(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    told, session = run(tmp_path, JAX)
    assert re.search(r"fit of train\.py: 54 steps[ ,]", told)  # 60, and a tenth of them is warm-up
    assert "; input-bound; page file://" in told  # never severe where the device may still be at work
    assert session.wall_time is not None
    first, second = session.wall_time.epochs
    assert (first.wait_ns or 0) > 10**8 < (second.wait_ns or 0)
