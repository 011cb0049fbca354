"""Calls one function of this program in a process of its own: ``python -m pipeline_bench.worker.call FD``.

The request is on stdin. What comes of it goes to the file descriptor in JSON lines: ``{"progress": {…}}`` now and then,
from a function that reports, and at the end ``{"result": {…}}``, or ``{"failed": "…"}`` with what was raised, in one
line. Standard output and error are for TensorFlow and for tracebacks.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.system.files import own_temporary_files
from pipeline_bench.system.processes import leave
from pipeline_bench.text import line_of


class Request(BaseModel):
    """Which function of this package to call, and with what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str
    function: str
    arguments: dict[str, Any] = {}
    reports: bool = False
    """Whether the function also takes `report`, which it calls with keywords."""


def perform(request: Request, send: Callable[[dict[str, Any]], object]) -> None:
    """Call the function, and send what comes of it: a mapping, a model or None."""
    reporting = {"report": lambda **progress: send({"progress": progress})} if request.reports else {}
    try:
        function = getattr(importlib.import_module(request.module), request.function)
        result = function(**request.arguments, **reporting)
        message: dict[str, Any] = {
            "result": result.model_dump(mode="json") if isinstance(result, BaseModel) else dict(result or {})
        }
        json.dumps(message, allow_nan=False)  # what cannot be carried fails here, where its reason is known
    except PipelineBenchError as error:
        message = {"failed": error.message}
    except Exception as error:
        traceback.print_exc()
        message = {"failed": line_of(error)}
    send(message)


def main(descriptor: int) -> None:
    """Read the request, answer it, and leave without waiting for threads that the function left behind."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    request = Request.model_validate(json.loads(sys.stdin.read()))  # pydantic's reader refuses a path that is no UTF-8
    with own_temporary_files(), os.fdopen(descriptor, "w", encoding="utf-8", buffering=1) as file:
        perform(request, lambda message: file.write(json.dumps(message) + "\n"))
    leave(True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
