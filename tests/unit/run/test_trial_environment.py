"""What the trials of a user's code find in their environment."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from pipeline_bench.run.trial_environment import compiled_once, of_trials

FLAGS = "TF_XLA_FLAGS"


def test_trackers_are_off_where_their_user_has_not_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("NEPTUNE_MODE", raising=False)
    with of_trials():
        assert (os.environ["WANDB_MODE"], os.environ["NEPTUNE_MODE"]) == ("online", "offline")
    assert (os.environ["WANDB_MODE"], "NEPTUNE_MODE" in os.environ) == ("online", False)


SETS = """
import os
os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1")
os.environ["TF_NUM"] = str(3)
os.environ["DATA"] = "photos"
os.environ.setdefault("KERAS_BACKEND", "torch")
import numpy as np, keras
os.environ["TF_LATE"] = "1"
def later():
    os.environ["JAX_PLATFORMS"] = "cpu"
"""


def test_what_a_script_sets_for_an_import_is_set_before_the_trials_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("KERAS_BACKEND", "TF_USE_LEGACY_KERAS", "TF_NUM", "DATA", "JAX_PLATFORMS", "TF_LATE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with of_trials(SETS):
        assert [os.environ.get(name) for name in names] == ["jax", "1", None, None, None, None]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0", "a default that is no matter"
    assert not any(name in os.environ for name in names)
    with of_trials("import os\nos.environ["):
        assert "KERAS_BACKEND" not in os.environ


def test_a_script_opens_no_window_unless_its_user_wants_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)
    with of_trials():
        assert os.environ["MPLBACKEND"] == "Agg"
    monkeypatch.setenv("MPLBACKEND", "TkAgg")
    with of_trials():
        assert os.environ["MPLBACKEND"] == "TkAgg"


def test_what_xla_compiles_is_kept_for_the_next_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(FLAGS, "--tf_xla_auto_jit=2")
    with compiled_once():
        own, cache, devices = os.environ[FLAGS].split()
        folder = Path(cache.partition("=")[2])
        assert (own, cache.partition("=")[0]) == ("--tf_xla_auto_jit=2", "--tf_xla_persistent_cache_directory")
        assert folder.is_dir()
        assert "CPU" not in devices, "TensorFlow has crashed with a cache there"
    assert os.environ[FLAGS] == "--tf_xla_auto_jit=2"
    assert not folder.exists()


def test_the_flags_are_gone_where_there_were_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(FLAGS, raising=False)
    with compiled_once():
        assert FLAGS in os.environ
    assert FLAGS not in os.environ


@pytest.mark.parametrize("folder", ["with a space", "missing/folder"])
def test_where_no_folder_can_be_named_each_trial_compiles_for_itself(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "with a space").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / folder))
    monkeypatch.delenv(FLAGS, raising=False)
    with compiled_once():
        assert FLAGS not in os.environ


def test_a_cache_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "--tf_xla_persistent_cache_directory=/somewhere"
    monkeypatch.setenv(FLAGS, own)
    with compiled_once():
        assert os.environ[FLAGS] == own
