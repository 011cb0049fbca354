"""Makes a data set in a process of its own: ``python -m pipeline_bench.worker.make_data FD``, a request on stdin.

TensorFlow writes the TFRecord files, and the parent never imports it. What is going on goes to the file descriptor as
JSON lines: ``{"made": 340}`` a few times a second, ``{"waiting": true}`` while another process makes the same data,
and at the end ``{"done": true}`` or ``{"failed": "…"}``.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from pipeline_bench.sources import synthetic_dataset
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset, is_complete, read_manifest

_TELL_EVERY_S = 0.1
_LOCK = ".lock"


class Request(BaseModel):
    """What to make, and in which folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: SyntheticDataset
    folder: Path


def run(request: Request, say: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> None:
    """Make what is not there yet, and tell how far it is."""
    told_s = float("-inf")

    def told(made: int) -> None:
        nonlocal told_s
        if clock() - told_s >= _TELL_EVERY_S or made == request.data.samples:
            told_s = clock()
            say(made=made)

    try:
        request.folder.mkdir(parents=True, exist_ok=True)
        with _only_one(request.folder, lambda: say(waiting=True)):
            # What another process may have made there since the parent looked.
            manifest = read_manifest(request.folder)
            if manifest is not None and manifest.data != request.data:
                say(failed=f"it holds other made data, {manifest.data.name}")
                return
            if not is_complete(request.data, request.folder):
                synthetic_dataset.make(request.data, request.folder, told)
    except OSError as error:
        say(failed=error.strerror or str(error))
    else:
        say(done=True)


@contextmanager
def _only_one(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when the process ends, however it ends."""
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(descriptor: int) -> None:
    """Make the data that is asked for on stdin."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    request = Request.model_validate_json(sys.stdin.read())
    with os.fdopen(descriptor, "w", encoding="utf-8", buffering=1) as events:

        def say(**message: Any) -> None:
            events.write(json.dumps(message) + "\n")

        run(request, say)


if __name__ == "__main__":
    main(int(sys.argv[1]))
