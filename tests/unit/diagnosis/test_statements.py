"""Random programs of several datasets: a diff changes the pipeline as it is meant, and nothing that others read."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pipeline_bench.diagnosis.patching.patch import change
from pipeline_bench.model.edits import Edit, GatherBatches, MoveBefore, Remove
from pipeline_bench.model.function_edits import DivideMap
from tests.unit.diagnosis.recorded import FILE, Dataset, Recorder, fix_of, patched

HEAD = """\
x, y, yes, others = [1] * 9, [2] * 9, True, []
def load(path):
    path = path * 2
    return path

def make_dataset():
"""
VARIABLES = st.sampled_from(["a", "b", "c"])
CALLS = st.sampled_from([".map(load)", ".batch(2)", ".shuffle(3)", ".repeat()", ".unbatch()", ".take(4)"])
SOURCES = st.sampled_from(["tf.data.Dataset.range(9)", "tf.data.Dataset.from_tensor_slices((x, y))"])


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A function that makes datasets of datasets, in which `others` gets what else reads some of them."""
    lines = [f"    a = {draw(SOURCES)}{draw(CALLS) if draw(st.booleans()) else ''}"]
    known = ["a"]
    for _ in range(draw(st.integers(1, 6))):
        base = draw(st.sampled_from(known[-2:]))
        calls = "".join(draw(st.lists(CALLS, min_size=1, max_size=2)))
        name, indent = (
            draw(VARIABLES),
            draw(st.sampled_from(["", "", "", "", "if yes: ", "for _ in (1,): "])),
        )
        made = f"{base}{calls}"
        reading = [
            f"others.append({base})",
            f"others.append({made})",
            f"others.append(lambda: {base})",
            f"others.extend([each for each in [{base}]])",
            f"others.append(lambda {base}={base}: {base})",
            f"assert not others.append({base})",
        ]
        setting = [f"{name} = {made}"] * 9 + [
            f"{name}, c = {made}, {base}",
            f"{name} = c = {made}",
            f"{name}: object = {made}",
            f"({name} := {made})",
        ]
        if not draw(st.integers(0, 3)):
            lines.append(f"    {indent}{draw(st.sampled_from(reading))}")
        elif not draw(st.integers(0, 9)):
            lines += ["    if not yes: pass", f"    elif not others.append({made}): pass"]
        else:
            lines.append(f"    {indent}{draw(st.sampled_from(setting))}")
            known.append(name)
    lines.append(f"    return {known[-1]}{draw(st.sampled_from(['', '.batch(2)', '.map(load)']))}")
    return HEAD + "\n".join(lines) + "\n"


@st.composite
def branched(draw: st.DrawFn) -> str:
    """A function that makes one dataset in a variable, in part behind conditions, and may read it in between."""
    lines = [f"    a = {draw(SOURCES)}"]
    for _ in range(draw(st.integers(1, 5))):
        made = f"a = a{draw(CALLS)}"
        kinds = [made] * 4 + [f"if yes: {made}"] * 4 + [f"if yes:\n        if yes: {made}"]
        kinds += [f"if yes: {made}\n    else: a = a{draw(CALLS)}", f"for _ in (1,): {made}", f"with w: {made}"]
        kinds += [f"{made} if yes else a", f"a = a if not yes else a{draw(CALLS)}", f"{made} if yes else a.take(3)"] * 2
        kinds += ["others.append(a)", "if yes: others.append(a)", "if yes: others.append(lambda: a)", "b = len(others)"]
        lines.append(f"    {draw(st.sampled_from(kinds))}")
    last = draw(st.sampled_from(["", ".batch(2)", ".map(load)", ".map(load).take(others.append(a) or 4)"]))
    lines.append(f"    {draw(st.sampled_from(['return a', 'return a', 'a = a', 'b = a', 'return [a][0]']))}{last}")
    lines.append(f"    return {'b' if lines[-1].startswith('    b') else 'a'}")
    return HEAD.replace("x, y,", "import contextlib\nw = contextlib.nullcontext()\nx, y,") + "\n".join(lines) + "\n"


@st.composite
def straight(draw: st.DrawFn) -> str:
    """A function that makes one dataset in a variable that nothing else reads, so that each edit can be written."""
    calls = draw(st.lists(CALLS, min_size=2, max_size=5))
    lines = [f"a = {draw(SOURCES)}", *(f"a = a{call}" for call in calls), "return a"]
    return HEAD + "".join(f"    {line}\n" for line in lines)


def run(source: str) -> tuple[Recorder, Dataset, list[Dataset]]:
    """What the program makes, and what it has read beside that."""
    recorder = Recorder(functions=True)
    space: dict[str, Any] = {"tf": recorder.tensorflow()}
    exec(compile(source, FILE, "exec"), space)
    made = space["make_dataset"]()
    return recorder, made, [each if isinstance(each, Dataset) else each() for each in space["others"]]


def path(recorder: Recorder, made: Dataset) -> list[int]:
    """The stages from the source to the sink."""
    stages = {stage.id: stage for stage in recorder.stages}
    found = [made.number]
    while stages[found[0]].inputs:
        found.insert(0, stages[found[0]].inputs[0])
    return found


def changes(recorder: Recorder, stages: list[int]) -> list[tuple[int, tuple[Edit, ...]]]:
    """Edits of every kind that moves stages or changes what they give, each with the last stage that it is about."""
    methods = [recorder.stages[number].method for number in stages]
    found: list[tuple[int, tuple[Edit, ...]]] = []
    for place, method in enumerate(methods):
        number = stages[place]
        only_passed = not {*methods[1:place]} - {"shuffle", "repeat", "take"}
        if method in ("batch", "shuffle", "map"):
            crossed = "shuffle" if method == "map" else "map"
            others = [stages[other] for other in range(1, place) if methods[other] == crossed]
            found += [(number, (MoveBefore(stage=number, other=other),)) for other in others]
        if method == "batch" and methods[0] == "from_tensor_slices" and only_passed:
            found.append((number, (GatherBatches(source=stages[0], batch=number),)))
        if methods[place : place + 2] == ["batch", "unbatch"]:
            undone = stages[place + 1]
            found.append((undone, (Remove(stage=number), Remove(stage=undone))))
        if method == "map" and place and only_passed:
            found.append((number, (DivideMap(stage=number, after=stages[0], statements=1),)))
    return found


def meant(edits: tuple[Edit, ...], calls: list[Any], stages: list[int]) -> list[Any]:
    """The calls of the sink that the edits ask for."""
    made, places = list(calls), list(stages)
    for edit in edits:
        assert isinstance(edit, MoveBefore | Remove)
        at = places.index(edit.stage)
        call, number = made.pop(at), places.pop(at)
        if isinstance(edit, MoveBefore):
            made.insert(to := places.index(edit.other), call)
            places.insert(to, number)
    return made


READ_LATER = f"""{HEAD}    a = tf.data.Dataset.range(9)
    others.append(lambda: a)
    a = a.map(load)
    return a.batch(2)
"""


@example((READ_LATER, False), 0)
@given(
    st.tuples(programs() | branched(), st.just(False)) | st.tuples(straight(), st.just(True)),
    st.integers(0, 1000),
)
def test_a_diff_changes_the_pipeline_as_it_is_meant_and_nothing_that_others_read(
    program: tuple[str, bool], which: int
) -> None:
    source, is_straight = program
    recorder, made, others = run(source)
    stages = path(recorder, made)
    edits = changes(recorder, stages)
    if not edits:
        return
    last, chosen = edits[which % len(edits)]
    not_behind = [at for at, each in enumerate(others) if last not in path(recorder, each)]
    calls, read = made.calls, [others[at].calls for at in not_behind]
    code = change({FILE: source}, recorder.inspection(made), fix_of(*chosen))
    if code.diff is None:
        assert "no diff" in code.text
        assert not is_straight, code.text
        return
    new = patched(source, code.diff)
    _, after, others_after = run(new)
    assert [others_after[at].calls for at in not_behind] == read, new
    match chosen[0]:
        case GatherBatches():
            assert [call[0] for call in after.calls][:1] == ["range"]
            assert ungathered(after.calls) == ungathered(calls), new
            assert ungathered(otherwise(new)) == ungathered(otherwise(source)), new
        case DivideMap():
            assert ("map", "load_fixed", ("num_parallel_calls", -1)) in after.calls
        case _:
            assert after.calls == meant(chosen, calls, stages), new
            if isinstance(chosen[0], MoveBefore):
                assert sorted(map(repr, otherwise(new))) == sorted(map(repr, otherwise(source))), new


def otherwise(source: str) -> list[Any]:
    """What the program's dataset is made of where its conditions come out otherwise; nothing if it fails then."""
    try:
        return run(source.replace(" True,", " False,", 1))[1].calls
    except (NameError, AssertionError, AttributeError):
        return []


def ungathered(calls: list[Any]) -> list[Any]:
    """The calls with slices in place of numbers of rows, which are gathered right behind a batch."""
    made = [call[:1] if call[0] in ("range", "from_tensor_slices") else call for call in calls]
    if ("map", "<lambda>") in made:
        at = made.index(("map", "<lambda>"))
        assert made[at - 1][0] == "batch"
        assert {call[0] for call in made[1 : at - 1]} <= {"shuffle", "repeat", "take"}
        made = [("from_tensor_slices",), *made[1:at], *made[at + 1 :]]
    return made
