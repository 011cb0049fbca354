"""npz: what is kept of a file that was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.sources.npz import Npz


def test_a_file_is_read_again_after_another_one_and_when_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((2, 3), np.float32), y=np.zeros(2, np.int64))
    read: list[str] = []
    load = np.load

    def noting(path: str) -> Any:
        read.append(Path(path).stem)
        return load(path)

    monkeypatch.setattr(np, "load", noting)
    source = Npz({"path": str(tmp_path)})
    for index in (0, 1, 2, 3, 0):
        source.load(index)
    assert "".join(read) == "aba"
    source.forget()
    source.load(1)
    assert "".join(read) == "abaa"
