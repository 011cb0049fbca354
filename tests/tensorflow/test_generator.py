"""Real trials over a user's own generator: the same samples under every backend, and what is said when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.model.session import Session
from pipeline_bench.sources import RecordError
from pipeline_bench.sources.generator import Generator
from tests.tensorflow.conftest import RunScenario
from tests.trials import alone, losses

BACKENDS: list[dict[str, Any]] = [
    {"name": "feed_dict", "backend": "feed_dict"},
    {"name": "queue", "backend": "fifo_queue", "options": {"threads": 2}},
    {"name": "tf_data", "backend": "tf_data"},
]


def run(run_scenario: RunScenario, *variants: dict[str, Any], stall_timeout_s: float = 20, **source: Any) -> Session:
    generated = {"kind": "generator", "batch_size": 8, **source}
    length = {"steps": 25, "stall_timeout_s": stall_timeout_s}
    return run_scenario(alone(*variants, source=generated, model={"hidden_widths": [16]}, run=length))


def written(folder: Path, body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (folder / "train.py").write_text(f"import time\nimport numpy as np\ndef make():\n{lines}\n", encoding="utf-8")
    return f"{folder / 'train.py'}:make"


@pytest.mark.slow
@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
def test_every_backend_trains_on_the_same_samples(run_scenario: RunScenario, tmp_path: Path, uneven: bool) -> None:
    body = "for i in range(37):\n    yield np.full((3 + i % 4 * UNEVEN, 2), i / 37), i".replace(
        "UNEVEN", str(int(uneven))
    )
    options = {"length": 7} if uneven else {}
    session = run(run_scenario, *BACKENDS, callable=written(tmp_path, body), **options)
    for result in session.results[: len(BACKENDS)]:
        assert result.work.status == "equal", (result.variant, result.reason, result.work.text)
    by_name = {record.variant: record for record in session.trials}
    for name in ("tf_data",):  # of two threads, which puts its sample first is open
        np.testing.assert_allclose(losses(by_name[name]), losses(by_name["feed_dict"]), rtol=1e-3)


@pytest.mark.parametrize("entry", BACKENDS, ids=lambda entry: entry["name"])
def test_a_generator_that_raises_ends_the_trial_with_its_line(
    run_scenario: RunScenario, tmp_path: Path, entry: dict[str, Any]
) -> None:
    body = "print('hello from the generator')\nfor i in range(50):\n    yield [i], 0\nraise ValueError('planted')"
    session = run(run_scenario, entry, callable=written(tmp_path, body))
    record = next(record for record in session.trials if record.variant == entry["name"])
    assert record.status == "failed"
    assert "train.py:make raised ValueError: planted after 50 samples (train.py:7)" in str(record.reason)
    stderr = (tmp_path / str(record.stderr_file)).read_text()
    assert "hello from the generator" in stderr
    assert "raise ValueError('planted')" in stderr, "its end may be the traceback that TensorFlow logs"


@pytest.mark.parametrize("raised", ["KeyboardInterrupt()", "asyncio.CancelledError()", "GeneratorExit()"])
def test_what_is_no_exception_of_a_program_is_one_of_the_generator(tmp_path: Path, raised: str) -> None:
    body = f"import asyncio\nfor i in range(50):\n    yield [i], 0\nraise {raised}"
    (stream,) = Generator({"callable": written(tmp_path, body)}).streams(1)
    with pytest.raises(RecordError, match=f"raised {raised[:-2].removeprefix('asyncio.')} after 50 samples"):
        list(stream)


def test_a_generator_that_hangs_is_found_at_its_own_line(run_scenario: RunScenario, tmp_path: Path) -> None:
    """In the standard library, in the end: what the user can mend is the line that called it."""
    body = "import queue\nfor i in range(50):\n    yield [i], 0\nqueue.Queue().get()"
    record = run(run_scenario, BACKENDS[0], stall_timeout_s=3, callable=written(tmp_path, body)).trials[0]
    assert record.status == "stalled"
    assert "train.py:7 in make" in str(record.reason)
