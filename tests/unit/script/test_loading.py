"""Targets on the parent's side: what is accepted and refused, without importing anything of the user's."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.errors import UsageError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.run.side_effects import side_effects
from pipeline_bench.script import loading
from pipeline_bench.user_code import targets

SCRIPT = """
import os.path as paths
from somewhere import imported
raise SystemExit("importing me is a mistake")
def make_dataset(n=1): ...
class Pipelines:
    def train(self): ...
assigned = later = make_dataset
annotated: object = print
from elsewhere import other as renamed
if assigned:
    async def conditional(): ...
else:
    otherwise = 1
try:
    import fast
except ImportError:
    class slow: ...
def set_global():
    global from_inside
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    "name",
    [
        *("make_dataset", "Pipelines.train", "assigned", "later", "annotated", "imported", "renamed", "paths"),
        *("conditional", "otherwise", "slow", "from_inside"),
    ],
)
def test_names_that_a_file_may_have_are_accepted(name: str, script: Path) -> None:
    assert targets.parse(f"train.py:{name}", 3) == Target(file="train.py", name=name, argument=3)
    assert targets.parse(f"{script}:{name}").text == f"{script}:{name}"


@pytest.mark.parametrize(
    "line", ["Pipelines.late = print", "setattr(Pipelines, 'late', print)", "class Pipelines(Base): ..."]
)
def test_in_doubt_a_method_is_accepted(line: str, script: Path) -> None:
    script.write_text(f"{SCRIPT}{line}\n")
    assert targets.parse("train.py:Pipelines.late").name == "Pipelines.late"


def test_what_is_no_function_may_be_meant_as_a_script() -> None:
    with pytest.raises(UsageError, match="does not name a function") as caught:
        targets.parse("notes.txt")
    assert "FILE.py for a whole script" in caught.value.hint


@pytest.mark.parametrize("line", ["from somewhere import *", "globals()['f'] = 1", "def __getattr__(name): ..."])
def test_in_doubt_a_name_is_accepted(line: str, script: Path) -> None:
    script.write_text(line)
    assert targets.parse("train.py:anything").name == "anything"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("train.py", "'train.py' does not name a function", "FILE.py:FUNCTION, such as train.py:make_model"),
        ("train.ipynb", "train.ipynb is a notebook", "jupyter nbconvert --to script train.ipynb"),
        ("trian.py:make_dataset", "there is no file trian.py", "did you mean 'train.py'"),
        ("data.txt:make", "data.txt is not a .py file", "FILE.py:FUNCTION"),
        ("pipe.py:make", "pipe.py is not a .py file", "FILE.py:FUNCTION"),
        (".:make", r"\. is a folder", "FILE.py:FUNCTION"),
        ("train.py:make_datasets", "there is no function 'make_datasets' in train.py", "did you mean 'make_dataset'"),
        (
            "train.py:Pipelines.tran",
            "there is no function 'Pipelines.tran' in train.py",
            "did you mean 'Pipelines.train'",
        ),
        ("keyword.py:make", "make needs size and seed by keyword, which no option gives", "give them defaults"),
        ("train.py:", "train.py: names no function", "make_dataset, Pipelines"),
        ("train.py:make dataset()", "'make dataset\\(\\)' is not the name of a function", "train.py:FUNCTION"),
        ("broken.py:make", "broken.py:2: ", "correct the file"),
        ("no_such_module:make", "there is no module no_such_module", "FILE.py:FUNCTION"),
        ("json.nothing:make", "there is no module json.nothing", "FILE.py:FUNCTION"),
        ("not-a-module:make", "'not-a-module' is neither", "FILE.py:FUNCTION"),
        ("json.decoder:JSONDecode", "there is no function 'JSONDecode'", "did you mean 'JSONDecoder'"),
    ],
)
@pytest.mark.usefixtures("script")
def test_what_cannot_be_is_refused_in_words(text: str, message: str, hint: str) -> None:
    Path("data.txt").write_text("")
    os.mkfifo("pipe.py")  # to read it would be to wait for who writes there
    Path("broken.py").write_text("x = 1\ndef make(:\n")
    Path("keyword.py").write_text("def make(*, size, seed, more=1): ...\n")
    with pytest.raises(UsageError, match=message) as caught:
        targets.parse(text, what="model")
    assert hint in caught.value.hint


def test_a_folder_hides_neither_the_module_of_its_name_nor_a_package(script: Path) -> None:
    for name in ("train", "my_package", "data"):
        (script.parent / name).mkdir()
    (script.parent / "my_package" / "__init__.py").write_text(SCRIPT)
    for name in ("train", "my_package"):
        assert targets.parse(f"{name}:make_dataset") == Target(module=name, name="make_dataset")
    with pytest.raises(UsageError, match="data is a folder"):
        targets.parse("data:make_dataset")


def test_a_module_of_a_package_is_found_without_importing_it(script: Path) -> None:
    package = script.parent / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit")
    (package / "pipes.py").write_text(SCRIPT)
    assert targets.parse("my_package.pipes:make_dataset") == Target(module="my_package.pipes", name="make_dataset")
    with pytest.raises(UsageError, match="there is no function 'nothing'"):
        targets.parse("my_package.pipes:nothing")
    with pytest.raises(UsageError, match="is a module, not a package"):
        targets.parse("my_package.pipes.deeper:make")
    assert "my_package" not in sys.modules


def test_a_module_of_folders_that_are_no_packages_is_found(script: Path) -> None:
    folder = script.parent / "outer" / "inner" / "pipes"
    folder.mkdir(parents=True)
    (folder / "made.py").write_text(SCRIPT)
    name = "outer.inner.pipes.made"
    assert targets.script_file(Target(module=name, name="")) == folder / "made.py"
    with pytest.raises(UsageError, match=r"there is no module outer\.inner\.nothing"):
        targets.script_file(Target(module="outer.inner.nothing", name=""))


def test_arguments_are_held_against_the_function(script: Path) -> None:
    script.write_text("def make(path, *, size, seed=0): yield 1\ndef any_of(**options): yield 1")

    def refused(name: str, **arguments: object) -> str:
        definition = targets.check(Target(file="train.py", name=name), "generator")
        try:
            targets.check_arguments(definition, name, arguments)
        except UsageError as error:
            return f"{error.message}: {error.hint}"
        return ""

    assert not refused("make", path="x", size=3)
    assert not refused("any_of", whatever=3)
    assert "takes no 'sed': did you mean 'seed'?" in refused("make", path="x", size=3, sed=1)
    assert "needs 'size'" in refused("make", path="x")


@given(st.text(max_size=30))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    try:
        assert targets.parse(text).name
    except UsageError as error:
        told = (error.message, error.hint)
        assert all(told)


def test_a_file_may_have_the_name_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "json.py").write_text("def make(): return 7")
    assert loading.load(Target(file=str(tmp_path / "json.py"), name="make"))() == 7
    assert sys.modules["json"].loads("7") == 7


def make_number() -> int:
    return 3


def test_a_function_of_a_module_travels_by_name() -> None:
    found = targets.from_callable(make_number, 2)
    assert (found.module, found.pickled, found.argument) == (__name__, None, 2)
    assert loading.load(found) is make_number


def test_a_closure_and_a_partial_travel_by_value() -> None:
    secret = 41

    def closure(more: int = 1) -> int:
        return secret + more

    for function, expected in ((closure, 42), (functools.partial(closure, 3), 44), (lambda: secret, 41)):
        sent = Target.model_validate_json(targets.from_callable(function).model_dump_json())
        assert sent.pickled
        assert loading.load(sent)() == expected
    assert targets.from_callable(closure).text == "closure"


def test_a_function_that_holds_what_cannot_travel_is_refused() -> None:
    handle = sys.stdout
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        targets.from_callable(lambda: handle)


@pytest.mark.parametrize("text", ["train.py:make_dataset", "train:make_dataset", "caf\udce9.py:make_dataset"])
def test_a_path_that_is_no_text_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    for name in ("train.py", "caf\udce9.py"):
        (folder / name).write_text(SCRIPT)
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=r"caf\\xe9.* holds bytes that are no text") as caught:
        targets.parse(text)
    assert "rename the file or its folder" in caught.value.hint


def test_a_target_is_kept_as_it_is_and_shown_safely() -> None:
    made = Target(file="a\x1b[2Jb.py", name="f")
    assert Target.model_validate_json(made.model_dump_json()) == made
    assert (made.text, made.label) == ("ab.py:f", "ab.py:f")


RETURNS = """
import tensorflow as tf
train_ds = tf.data.Dataset.range(3).batch(2)
def constant(): return 5
def nothing():
    pick = lambda: 4
    def inner(): return 4
def samples(): yield 4
def made(size): return tf.data.Dataset.range(size) if size else None
def raised(): raise ValueError
@tf.function
def wrapped(): pass
class Data(Base):
    def batches(self): return tf.data.Dataset.range(3)
    def keeps(self): self.size = 3
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("constant", "constant, line 4, returns no dataset"),
        ("nothing", "nothing, line 5, returns nothing"),
        ("raised", None),
        ("samples", "samples is a generator, which returns no dataset"),
        ("Data.keeps", "Data.keeps, line 15, returns nothing"),
        ("made", None),
        ("wrapped", None),
        ("Data.batches", None),
        ("Data.inherited", None),
        ("train_ds", None),
    ],
)
def test_what_cannot_return_a_dataset_is_refused_before_anything_runs(
    tmp_path: Path, name: str, message: str | None
) -> None:
    (tmp_path / "data.py").write_text(RETURNS)
    target = Target(file=str(tmp_path / "data.py"), name=name)
    if message is None:
        targets.check(target)
        return
    with pytest.raises(UsageError, match=message):
        targets.check(target)


def test_the_datasets_of_a_script_are_named_beside_its_functions(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(RETURNS)
    with pytest.raises(UsageError) as caught:
        targets.check(Target(file=str(tmp_path / "data.py"), name="trian_ds"))
    assert "--dataset NAME: train_ds, line 3" in caught.value.hint


def test_python_gives_its_warnings_of_a_script_where_the_script_runs(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("NAME = '\\d'\nimport data\n")
    (tmp_path / "data.py").write_text("NAME = '\\d'\ndef make(): ...\n")
    with warnings.catch_warnings(record=True, action="always") as warned:
        targets.parse_script(str(path), ())
        targets.check(Target(file=str(tmp_path / "data.py"), name="make"), "generator")
    assert warned == []


def test_what_a_script_does_before_its_training_is_read_from_its_text() -> None:
    text = "import os, keras\nkeras.utils.get_file('x')\nos.makedirs('a')\nopen('b').read()\n"
    assert side_effects(text) == " It may download: get_file (line 2); write files: makedirs (line 3)."
    assert side_effects("model.fit(data)") == side_effects("model.fit(") == ""


def test_a_function_of_the_scripts_own_is_no_download() -> None:
    text = "def load_data(path):\n    return sorted(path)\nx = load_data('new')\ny = mnist.load_data()\n"
    assert side_effects(text) == " It may download: load_data (line 4)."


def test_a_function_of_a_module_beside_the_script_is_no_download(tmp_path: Path) -> None:
    (tmp_path / "loader").mkdir()
    text = "from loader.files import load_dataset\nfrom datasets import load_dataset as fetched, load_data\n"
    text += "load_dataset('train')\nload_data()\n"
    assert side_effects(text, [tmp_path]) == " It may download: load_data (line 4)."
    assert "load_dataset (line 3)" in side_effects(text)


def test_what_modules_and_classes_of_the_scripts_own_do_is_not_told_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    text = """import mine.sets
import mine as short
from mine.sets import movies as ml
class Loader:
    def download(self):
        self.download()
        self.model.save("a")
loader = Loader()
loader.load_data()
loader.save("b")
ml.load_data()
short.load_dataset()
mine.sets.load_data()
Loader.download()
mnist.load_data()
"""
    assert side_effects(text, [tmp_path / "elsewhere", tmp_path]) == (
        " It may download: load_data (line 15); write files: save (line 7), save (line 10)."
    )


@pytest.mark.parametrize("base", [".", "package"], ids=["a script", "a module of a package"])
def test_what_the_modules_beside_a_script_do_is_told_with_their_files(tmp_path: Path, base: str) -> None:
    texts = {
        "files.py": "import shutil\ndef fresh(): shutil.rmtree('log')\ndef unused(): os.remove('a')\n"
        "if __name__ == '__main__':\n    os.makedirs('b')\n",
        "sets/__init__.py": "from .fetch import fetched\n",
        "sets/fetch.py": "from .. import more\nimport files\ndef fetched(): return get_file('x')\n",
        "broken.py": "def (",
    }
    own = tmp_path / base
    for name, text in texts.items():
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(text)
    script = "from files import fresh\nimport broken, json\nfrom sets import fetched\nfresh()\nos.mkdir('a')\n"
    if base != ".":
        script = script.replace("from files", "from .files").replace("from sets", "from package.sets")
    assert side_effects(script, [tmp_path] if base == "." else [own, tmp_path]) == (
        f" It may delete files: rmtree ({Path(base) / 'files.py'}:2); "
        f"download: get_file ({Path(base) / 'sets/fetch.py'}:3); write files: mkdir (line 5)."
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("open('a', 'w')", "write files: open (line 2)"),
        ("Path('a').open(mode='ab')", "write files: open (line 2)"),
        ("json.dump(config, file)", "write files: dump (line 2)"),
        ("np.save('a', x)", "write files: save (line 2)"),
        ("print(yaml.dump(config, indent=2))", ""),
        ("weights.dump('weights.pkl')", "write files: dump (line 2)"),
        ("yaml.dump(config, stream=file)", "write files: dump (line 2)"),
        ("subprocess.run(['make'])", "start programs: subprocess.run (line 2)"),
        ("os.system('make')", "start programs: os.system (line 2)"),
        ("platform.system()", ""),
        ("requests.get(url)", "download: requests.get (line 2)"),
        (
            "tensorflow_hub.load(url); hub.load(url); tfds.load('mnist')",
            "download: hub.load (line 2), tfds.load (line 2)",
        ),
        (
            "keras_hub.models.Backbone.from_preset('tiny'); kagglehub.dataset_download('a/b')",
            "download: from_preset (line 2), dataset_download (line 2)",
        ),
        ("mlflow.start_run()", "start runs of a tracker: mlflow.start_run (line 2)"),
        ("open('w'); open('a', 'rb'); json.load(file); options.get('a'); app.run(main)", ""),
        ("os.remove('a'); names.remove('a'); frame.rename(columns=short)", "delete files: os.remove (line 2)"),
        (
            "os.mkdir('a'); os.mkdir('b'); np.save('c', x); np.save('d', x); x = 5; shutil.rmtree('log')",
            "delete files: rmtree (line 2); write files: mkdir (line 2), mkdir (line 2), save (line 2) and 1 more",
        ),
    ],
)
def test_what_a_call_of_a_script_does_is_known_by_its_name(call: str, said: str) -> None:
    told = side_effects(f"import json\n{call}\n")
    assert told.startswith(f" It may {said}.") if said else told == ""
    assert ("WANDB_MODE=disabled" in told) is ("tracker" in told)


def test_what_a_script_does_behind_its_fit_is_not_told() -> None:
    text = """
def main():
    with open("config", "w") as file: ...
    try:
        model.fit(data)
        model.save("a")
    finally:
        model.save("b")
    model.save("c")
if retrain: model.fit(data)
json.dump(config, file)
class Saving(Callback):
    def on_epoch_end(self, epoch, logs=None): self.model.save("d")
    def on_saved(self): np.savez("e")
"""
    assert side_effects(text) == " It may write files: open (line 3), dump (line 11), savez (line 14)."


@pytest.mark.parametrize("files", [("__init__.py", "__main__.py"), ("__main__.py",)])
def test_the_script_of_a_package_is_its_main_module(
    files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package_of_a_script").mkdir()
    for file in files:
        (tmp_path / "package_of_a_script" / file).touch()
    found = targets.script_file(targets.parse_script("package_of_a_script", ()))
    assert found == tmp_path / "package_of_a_script" / "__main__.py"


@pytest.mark.parametrize("module", ["sys", "package_without_a_script"])
def test_a_module_without_a_script_is_refused(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package_without_a_script").mkdir()
    with pytest.raises(UsageError, match=f"module {module}.__main__"):
        targets.parse_script(module, ())
