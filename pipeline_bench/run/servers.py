"""TensorFlow's servers that trials start, and whether other machines can be kept from them.

They listen on every network interface, without a password. A trial that starts one is therefore given a network of its
own (`processes.private_network`), where the system allows that.
"""

from __future__ import annotations

import subprocess
from functools import cache

from pipeline_bench import replication, user_pipeline
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.system.processes import module_command
from pipeline_bench.text import one_line
from pipeline_bench.user_pipeline import Task
from pipeline_bench.user_pipeline.edits import OffloadToService

OPTION = "--expose-servers"
_LIMIT_S = 20.0


def started_by(variant: Variant) -> bool:
    """Return whether a trial of the variant starts servers."""
    if variant.source.kind == user_pipeline.KIND:
        edits = Task.model_validate(variant.source.options).edits
        return any(isinstance(edit, OffloadToService) for edit in edits)
    return replication.in_processes(variant.runtime)


@cache
def refusal() -> str | None:
    """Return why trials that start servers are refused on this system; None where they get a network of their own."""
    command = module_command("pipeline_bench.system.private_network")
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    else:
        if ended.returncode == 0:
            return None
        reason = ended.stdout or f"the attempt ended with exit code {ended.returncode}"
    return (
        "TensorFlow's servers would listen on every network interface of this machine, without a password, and this "
        f"system allows no network of their own ({one_line(reason, 100)}); {OPTION} runs them all the same"
    )


def exposed_note(scenario: Scenario) -> str | None:
    """Return the note for a scenario whose servers other machines could reach; None where it starts none."""
    names = [variant.name for variant in scenario.variants if started_by(variant)]
    if not names:
        return None
    return f"{OPTION}: other machines could reach the servers of {', '.join(names)} while its trials ran"
