"""The program of a rank on the node where Ray has placed it, run as a module."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from pydantic import ValidationError

from pipeline_bench import __version__
from pipeline_bench.cli.hosts import compare_as_rank
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.hosts.ranks import find_rank
from pipeline_bench.scenario import Scenario
from pipeline_bench.text import NAME, REASON, one_line


def _run(out: Path, *, expose_servers: bool) -> int:
    """Run the rank that this process is by its environment, as the scenario on stdin says, until that is closed."""
    given = sys.stdin.buffer.readline()
    threading.Thread(target=_end_when_closed, daemon=True).start()
    rank = find_rank(os.environ)
    assert rank is not None
    try:
        scenario = Scenario.model_validate_json(given)
    except ValidationError as error:
        (problem, *_) = error.errors()
        where = one_line(".".join(map(str, problem["loc"])) or "the scenario", NAME)
        sys.stderr.write(
            f"rank {rank.number}: pipeline-bench {__version__} of this node does not know this scenario: {where}: "
            f"{one_line(problem['msg'], REASON)}; install the version that started it\n"
        )
        return 2
    try:
        return compare_as_rank(rank, scenario, out, expose_servers=expose_servers)
    except PipelineBenchError as error:
        sys.stderr.write(f"rank {rank.number}: {error}\n")
        return 2


def _end_when_closed() -> None:
    """End this rank when its stdin is closed: what started it keeps that open for as long as the rank is wanted."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1]), expose_servers=sys.argv[2] == "1"))
