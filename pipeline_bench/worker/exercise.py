"""Executes the exercise of a lesson in a process of its own: ``python -m pipeline_bench.worker.exercise FD``.

The request is on stdin; the answer, one JSON line, goes to the file descriptor: ``{"result": {…}}``, or
``{"failed": "…"}`` with what was raised, in one line. Standard output and error are TensorFlow's to write to.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system.processes import leave
from pipeline_bench.text import line_of


class Request(BaseModel):
    """Which function of this package to call, and with what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str
    function: str
    arguments: dict[str, Any] = {}


def perform(request: Request) -> dict[str, Any]:
    """Call the function; the message that tells the parent what came of it."""
    try:
        exercise = getattr(importlib.import_module(request.module), request.function)
        result: Mapping[str, Any] = exercise(**request.arguments)
        message = {"result": dict(result)}
        json.dumps(message, allow_nan=False)  # what cannot be carried is said here, where its reason is known
    except PipelineBenchError as error:
        return {"failed": error.message}
    except Exception as error:
        return {"failed": line_of(error)}
    return message


def main(descriptor: int) -> None:
    """Read the request, answer it, and leave without waiting for threads that the exercise left behind."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    message = perform(Request.model_validate_json(sys.stdin.read()))
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(message) + "\n")
    leave(True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
