"""What Keras' own work for each step costs: `fit` with one step a call, and with several, by turns.

``python -m benchmarks.short_steps [--rounds N]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SEVERAL = 16
SAMPLES = 25_600


def embeddings(steps: int) -> Any:
    from keras import Input, Model, layers

    inputs = {f"id{number}": Input((), name=f"id{number}", dtype="int32") for number in range(8)}
    joined = layers.Concatenate()([layers.Embedding(1000, 16)(each) for each in inputs.values()])
    return compiled(Model(inputs, layers.Dense(10)(layers.Dense(64, activation="relu")(joined))), steps)


def dense(steps: int) -> Any:
    from keras import Input, Sequential, layers

    return compiled(Sequential([Input((784,)), layers.Dense(128, activation="relu"), layers.Dense(10)]), steps)


def convolutions(steps: int) -> Any:
    from keras import Input, Sequential, layers

    first = [Input((28, 28, 1)), layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D()]
    second = [layers.Conv2D(32, 3, activation="relu"), layers.GlobalAveragePooling2D(), layers.Dense(10)]
    return compiled(Sequential([*first, *second]), steps)


def compiled(model: Any, steps: int) -> Any:
    from keras.losses import SparseCategoricalCrossentropy

    model.compile("adam", SparseCategoricalCrossentropy(True), metrics=["accuracy"], steps_per_execution=steps)
    return model


def data(shape: tuple[int, ...]) -> dict[str, Any]:
    """Return random samples of one array, or of eight inputs of one number each, and labels."""
    draw = np.random.default_rng(0)
    if shape:
        x: Any = draw.random((SAMPLES, *shape), np.float32)
    else:
        x = {f"id{number}": draw.integers(0, 1000, SAMPLES, np.int32) for number in range(8)}
    return {"x": x, "y": draw.integers(0, 10, SAMPLES), "verbose": 0}


CASES: tuple[tuple[str, Callable[[int], Any], tuple[int, ...], int], ...] = (
    ("8 embeddings, batch 128", embeddings, (), 128),
    ("2 dense layers, batch 128", dense, (784,), 128),
    ("2 convolutions, batch 32", convolutions, (28, 28, 1), 32),
    ("2 convolutions, batch 128", convolutions, (28, 28, 1), 128),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    print(f"{'model':<26} {'ms a step':>9} {f'{SEVERAL} a call':>9} {'ratio':>6}  quartiles")
    for name, model_of, shape, batch in CASES:
        models, given = {steps: model_of(steps) for steps in (1, SEVERAL)}, {**data(shape), "batch_size": batch}
        for model in models.values():
            model.fit(**given)
        step_ms: dict[int, list[float]] = {steps: [] for steps in models}
        for _ in range(rounds):
            for steps, model in models.items():
                begin = time.perf_counter()
                model.fit(**given)
                step_ms[steps].append((time.perf_counter() - begin) * 1e3 * batch / SAMPLES)
        ratios = np.array(step_ms[1]) / np.array(step_ms[SEVERAL])
        low, ratio, high = np.percentile(ratios, [25, 50, 75])
        one, several = np.median(step_ms[1]), np.median(step_ms[SEVERAL])
        print(f"{name:<26} {one:>9.2f} {several:>9.2f} {ratio:>6.2f}  {low:.2f}–{high:.2f}", flush=True)


if __name__ == "__main__":
    main()
