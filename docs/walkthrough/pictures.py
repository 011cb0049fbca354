"""Trains on pictures that a store on the network gives, 20 ms a batch."""

import time
from typing import Any

import keras
import numpy as np


class Pictures(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of pictures by their number."""

    def __init__(self, count: int, batch_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.count, self.batch_size = count, batch_size

    def __len__(self) -> int:
        return self.count // self.batch_size

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.02)  # the store answers
        rng = np.random.default_rng(index)
        return rng.random((self.batch_size, 16, 16, 3), dtype=np.float32), rng.integers(10, size=self.batch_size)


train = Pictures(3200, 32)
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(train, epochs=5)
