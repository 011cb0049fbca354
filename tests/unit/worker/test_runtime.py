"""A placement from the graphs that TensorFlow tells; whatever fails on the way is its reason, and no failed trial."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from pipeline_bench.model.events import Placement
from pipeline_bench.model.trial import Trial
from pipeline_bench.scenario import Runtime
from pipeline_bench.worker import runtime
from tests.unit import sessions

HERE = "/job:localhost/replica:0/task:0/device:CPU"


def graph(*nodes: tuple[str, str, str]) -> Any:
    return SimpleNamespace(node=[SimpleNamespace(name=name, op=kind, device=device) for name, kind, device in nodes])


def trial(repeat: int = 0, *, asked: bool = True) -> Trial:
    variant = sessions.variant("tf_data").model_copy(update={"runtime": Runtime(log_placement=asked)})
    return Trial(index=0, repeat=repeat, variant=variant)


def test_one_process_is_left_out_of_the_devices() -> None:
    found = runtime.placement_of_graphs([graph(("b", "MatMul", f"{HERE}:1")), graph(("a", "Const", f"{HERE}:0"))])
    assert [(op.name, op.type, op.device) for op in found.ops] == [("a", "Const", "CPU:0"), ("b", "MatMul", "CPU:1")]
    assert (found.op_count, found.reason) == (2, None)


def test_several_processes_are_told_apart() -> None:
    tasks = [f"/job:worker/replica:0/task:{task}/device:GPU:0" for task in range(2)]
    found = runtime.placement_of_graphs([graph(*((f"op_{task}", "MatMul", task) for task in tasks))])
    assert [op.device for op in found.ops] == ["/job:worker/task:0/GPU:0", "/job:worker/task:1/GPU:0"]


def test_the_same_ops_in_another_order_are_the_same_placement() -> None:
    nodes = [("a", "Const", f"{HERE}:0"), ("b", "MatMul", f"{HERE}:1")]
    assert runtime.placement_of_graphs([graph(*nodes)]) == runtime.placement_of_graphs([graph(*reversed(nodes))])


def test_beyond_the_most_ops_are_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MOST_OPS", 3)
    found = runtime.placement_of_graphs([graph(*((f"op_{i}", "MatMul", f"{HERE}:0") for i in range(10)))])
    assert (len(found.ops), found.op_count) == (3, 10)


def test_no_graph_at_all_is_a_reason() -> None:
    assert runtime.placement_of_graphs([]).reason == "TensorFlow reported no graph that it ran"


def test_only_the_first_repeat_of_a_variant_that_asks_tells_it() -> None:
    assert runtime.wants_placement(trial())
    assert not runtime.wants_placement(trial(repeat=1))
    assert not runtime.wants_placement(trial(asked=False))


def test_a_step_that_fails_is_a_reason() -> None:
    def failing(_: object) -> NoReturn:
        raise RuntimeError("the queue is\nclosed")

    reason = "the step that was to tell it failed: RuntimeError: the queue is closed"
    assert runtime.placement(failing, None) == Placement(reason=reason)


def test_a_model_spreads_over_no_gpu_that_is_not_visible_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in eager loops, which leave one of them."""
    config = SimpleNamespace(list_physical_devices=lambda _: ["0", "1", "2"], get_visible_devices=lambda _: ["1"])
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))
    assert runtime.model_devices(Runtime(), "/gpu:0") == ("/gpu:0",)
