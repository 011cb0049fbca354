"""What trains is seen in the text of a script, and of the modules that it imports."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pipeline_bench import user_code
from pipeline_bench.script import training_calls
from pipeline_bench.user_code.source_loops import SourceLoop


def test_the_fits_of_a_script_are_those_of_models() -> None:
    text = "scaler.fit(x)\nmodel.fit(\n    x, epochs=3)\nif again:\n    build().fit(x, callbacks=[])\nfit(x, epochs=2)"
    assert training_calls.fit_lines(ast.parse(text)) == (2, 5)
    others = "import lightgbm as lgb\nrows = lgb.LGBMClassifier()\nrows.fit(x, y, callbacks=[])"
    assert training_calls.fit_lines(ast.parse(others)) == ()


def test_fit_generator_of_keras_2_trains_as_fit_does() -> None:
    """And an earlier `predict_generator` only looks at an untrained model."""
    looks = "features = model.predict_generator(frozen(), steps=20)\n"
    tree = ast.parse(f"{looks}top.fit_generator(a, steps_per_epoch=2)\ntop.fit_generator(b, epochs=3)")
    assert training_calls.fit_lines(tree) == (2, 3)
    assert training_calls.fit_lines(tree, after=2) == (3,)
    assert (training_calls.trains(tree), training_calls.may_fit(tree)) == (True, True)
    assert not training_calls.trains(ast.parse(looks))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.fit(data)", True),
        ("fit(data)", False),
        ("# model.fit(data)", False),
        ("tuner.search(data, epochs=3)", True),
        ("re.search('a', text)", False),
    ],
)
def test_a_training_is_seen_in_the_text_of_a_script(text: str, expected: bool) -> None:
    assert training_calls.trains(ast.parse(text)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from sklearn.preprocessing import StandardScaler\nStandardScaler().fit(x)", False),
        ("from sklearn import preprocessing\nlabels = preprocessing.LabelEncoder().fit(y)\nlabels.fit(z)", False),
        (
            "import sklearn.svm as svm\nclass A:\n    def a(self): self.b = svm.SVC()\n    def c(self): self.b.fit(x)",
            False,
        ),
        ("import scipy.optimize\nscipy.optimize.minimize(cost, start)", False),
        ("from sklearn.svm import SVC\nmodel = SVC()\nmodel.fit(x)\nmodel = build()\nmodel.fit(data)", True),
        ("from sklearn.svm import SVC\nmodel = SVC()\ndef train(model): model.fit(data)", True),
        ("from sklearn.svm import SVC\nSVC().fit(x)\nmodel.fit(data)", True),
        ("optimizer.minimize(cost, variables)", True),
    ],
)
def test_what_other_libraries_fit_is_no_training(text: str, expected: bool) -> None:
    assert training_calls.trains(ast.parse(text)) is expected


def test_a_training_is_seen_in_an_imported_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, ModuleType] = {"math": math}
    monkeypatch.setattr(user_code, "sys", SimpleNamespace(modules=modules))
    for name, text, expected in (("shows", "plot(data)", False), ("trainer", "model.fit(data)", True)):
        modules[name] = ModuleType(name)
        modules[name].__file__ = str(tmp_path / f"{name}.py")
        (tmp_path / f"{name}.py").write_text(text)
        assert training_calls.trains_in_imported() is expected


JAX_OR_TORCH = """
import jax, numpy as np, torch
loss_and_gradient = jax.value_and_grad(loss)
class Trainer:
    def train(self, x):
        self.loss(x).backward()
    def test(self, x):
        return self.loss(x)
@jax.jit
def update(state, x):
    return loss_and_gradient(state, x)
step = jax.jit(update)
trainer = Trainer()
def fit_keras(model):
    model.fit(data)
for x in data:  # trains by functions
    state = step(state, x)
while more:  # trains by a method
    trainer.train(next(batches))
for x in data:  # validates
    trainer.test(x)
for x in data:  # counts
    count += 1
class Fitted:
    def improve(self, x):
        return jax.grad(self.loss)(x)
class Statistics:
    def improve(self, x):
        self.sum += x
for x in data:  # prepares by a method whose name another has that trains
    statistics.improve(x)
for x in data:  # computes, and reads a setting
    slope = np.grad(x) if options.backward else x
"""


@pytest.mark.parametrize("imported", ["jax", "torch", "tensorflow"])
def test_a_loop_takes_a_gradient_of_jax_or_pytorch_if_a_function_does_that_it_names(
    imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_calls, "sys", SimpleNamespace(modules={imported: math}))
    script = tmp_path / "train.py"
    script.write_text(JAX_OR_TORCH)
    lines = [number for number, line in enumerate(JAX_OR_TORCH.splitlines(), 1) if ":  #" in line]

    def around(line: int) -> Sequence[SourceLoop]:
        return SourceLoop(1, tqdm_file, 9), SourceLoop(2, str(script), line)

    tqdm_file = f"{Path(pytest.__file__).parents[1]}/tqdm/std.py"
    found = [training_calls.takes_gradient(around(line)) for line in lines]
    assert found == [imported != "tensorflow"] * 2 + [False] * 4
