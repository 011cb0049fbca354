"""The program looks at the same steps as the recorder would: its C is called from here, beside the recorder."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench import native
from pipeline_bench.scenario import Run
from pipeline_bench.worker.recorder import Channel, Recorder

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")

# A struct plan is larger than this on no machine.
PLAN_BYTES = 4096


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("plan")
    sources = [str(Path(native.__file__).parent / name) for name in ("plan.c", "stream.c")]
    command = [str(COMPILER), "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread"]
    subprocess.run([*command, *sources, "-o", str(folder / "plan.so"), "-lm"], check=True)
    return ctypes.CDLL(str(folder / "plan.so"))


def looked_at_in_c(library: Any, folder: Path, recorder: Recorder, lengths_ns: list[int]) -> list[bool]:
    sampling_rule = recorder.sampling_rule
    assert sampling_rule is not None
    lines = ["train t", "plain p:0", "sampled c:0", *(f"{k} {v!r}" for k, v in sampling_rule._asdict().items())]
    (folder / "plan").write_text("\n".join(lines), encoding="ascii")
    plan = ctypes.create_string_buffer(PLAN_BYTES)
    library.plan_read(str(folder / "plan").encode(), plan)
    lengths = (ctypes.c_int64 * len(lengths_ns))(*lengths_ns)
    every = ctypes.c_int64(1)
    due = [True]
    for step in range(1, len(lengths_ns)):
        due.append(bool(library.plan_is_due(plan, ctypes.c_int64(step), lengths, ctypes.byref(every))))
    return due


def looked_at_by(recorder: Recorder, lengths_ns: list[int]) -> list[bool]:
    due = []
    now_ns = 10**15
    for length_ns in lengths_ns:
        due.append(recorder.should_sample)
        recorder(now_ns, now_ns + length_ns, 0, 0.0)
        now_ns += length_ns + 1000
    return due


@given(
    st.lists(st.integers(1, 5 * 10**7), min_size=12, max_size=60),
    st.floats(0.1, 1e6, allow_nan=False),
)
def test_the_same_steps_are_looked_at(
    library: Any, tmp_path_factory: pytest.TempPathFactory, lengths_ns: list[int], cost_us: float
) -> None:
    read, write = os.pipe()
    try:
        recorder = Recorder(Channel(write), Run(steps=len(lengths_ns)))
        audit: Any = object()
        recorder.audit_samples(audit, cost_us)
        in_c = looked_at_in_c(library, tmp_path_factory.getbasetemp(), recorder, lengths_ns)
        assert in_c == looked_at_by(recorder, lengths_ns)
    finally:
        os.close(read)
        os.close(write)
