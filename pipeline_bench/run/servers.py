"""TensorFlow's servers that trials start, and whether other machines can be kept from them.

They listen on every network interface, without a password. A trial that starts one is therefore given a network of its
own (`processes.private_network`), where the system allows that.
"""

from __future__ import annotations

from functools import cache

from pipeline_bench import plugins, replication
from pipeline_bench.model import pipeline
from pipeline_bench.model.edits import OffloadToService
from pipeline_bench.model.pipeline import Task
from pipeline_bench.run.child import call
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.system import private_network
from pipeline_bench.text import NAME, one_line

OPTION = "--expose-servers"
_LIMIT_S = 20.0


def started_by(variant: Variant) -> bool:
    """Return whether a trial of the variant starts servers."""
    if variant.source.kind == pipeline.KIND:
        edits = Task.model_validate(variant.source.options).edits
        return any(isinstance(edit, OffloadToService) for edit in edits)
    backend = plugins.make("backends", variant.backend, variant.options)
    return bool(backend.starts_servers) or replication.in_processes(variant.runtime)


@cache
def refusal() -> str | None:
    """Return why trials that start servers are refused on this system; None where they get a network of their own."""
    answer = call(private_network.attempt, limit_s=_LIMIT_S)
    if answer.result is not None:
        return None
    reason = answer.failed or ("the attempt took too long" if answer.timed_out else f"the attempt {answer.ending}")
    return (
        "TensorFlow's servers would listen on every network interface of this machine, without a password, and this "
        f"system allows no network of their own ({one_line(reason, NAME)}); {OPTION} runs them all the same"
    )


def exposed_note(scenario: Scenario) -> str | None:
    """Return the note for a scenario whose servers other machines could reach; None where it starts none."""
    names = [variant.name for variant in scenario.variants if started_by(variant)]
    if not names:
        return None
    return f"{OPTION}: other machines could reach the servers of {', '.join(names)} while its trials ran"
