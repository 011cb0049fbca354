"""Have other processes run the pipeline."""

from __future__ import annotations

from pipeline_bench.diagnosis.fixes import Context, FixKind, short
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import OffloadToService
from pipeline_bench.model.pipeline import Inspection, Stage


class Service(FixKind):
    """tf.data service with a worker on this machine; on others it gains what they have."""

    name = "service"
    promise = 0.05

    def candidates(self, inspection: Inspection, context: Context) -> list[Fix]:
        return [
            self.fix(
                inspection,
                "tf.data service",
                "Have a tf.data service worker in a process of its own run the pipeline",
                OffloadToService(workers=1),
                because="here it has the same cores; workers on other machines bring their own",
            )
        ]

    def hindrance(self, fix: Fix, inspection: Inspection, context: Context) -> str | None:
        if not context.model:
            return "a worker on this machine has the same cores, and without a model nothing competes for them"
        if context.no_servers is not None:
            return context.no_servers
        for stage in inspection.stages:
            if _runs_python(stage):
                return f"a tf.data service worker cannot run the Python of {short(stage)}"
        return None


def _runs_python(stage: Stage) -> bool:
    own = stage.method == "from_generator" or (stage.function is not None and stage.function.python)
    return own or any(_runs_python(inner) for inner in stage.inner)
