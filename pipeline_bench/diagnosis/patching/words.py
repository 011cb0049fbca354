"""What is said beside a diff, or in its place: of a library's call that makes several stages, of like calls elsewhere.

No stage of a library's call can be moved or followed by another in the file. What the call returns can be; and without
their batches Keras' readers of folders give single samples, so that all behind the reading can be written out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

import libcst as cst

from pipeline_bench.diagnosis.patching.source_file import SourceFile, called_name
from pipeline_bench.model.calls import UNCHANGED, WORKERS, value_text
from pipeline_bench.model.edits import Edit, InsertAfter, KeepSamples, MoveBefore, SetArgument
from pipeline_bench.model.pipeline import Location, Stage
from pipeline_bench.text import NAME, one_line

_READERS = {f"{kind}_dataset_from_directory" for kind in ("image", "text", "audio")}
"""Each takes ``batch_size=None``, from TensorFlow 2.7 on, and then gives samples: shuffle (of names), map, prefetch."""
_CLASS_NAMES = " A script that reads its `class_names` does so before that: what these calls give has none."

_OF_HUGGING_FACE = {
    "to_tf_dataset": "What it takes is",
    "prepare_tf_dataset": "What the data's own `to_tf_dataset` takes, which it calls, is",
}
"""The methods of a `datasets.Dataset` and of a model of transformers in which a map makes the batches in Python, each
with the words for the argument that takes the place of `num_parallel_calls`."""
_OF_MODELS = frozenset({"fit", "evaluate", "predict"})
"""The methods of a model that may map a preprocessing of their own, as those of KerasHub's tasks do."""


def rewritten(
    maker: Callable[[Location], str | None], stages: Mapping[int, Stage], edits: Sequence[Edit]
) -> tuple[list[str], list[Edit]]:
    """Return what to write for edits of stages that one call makes, and the edits that this does not say.

    Args:
        maker: returns the name of the function that is called in a place.
        stages: of the pipeline, by id.
        edits: those of a fix, which cannot be written as a diff.
    """
    taken = [each for each in edits if isinstance(each, InsertAfter | KeepSamples | MoveBefore | SetArgument)]
    numbers = [number for each in taken for number in (each.stage, getattr(each, "other", each.stage))]
    places = [stages[number].place for number in numbers if number in stages]
    place = places[0] if places else None
    name = maker(place) if place is not None else None
    own = [each for each in stages.values() if each.place == place]
    is_librarys = name is not None and all(each.method != name for each in own)
    if place is None or not is_librarys or any(each != place for each in places):
        return [], list(edits)
    call = f"`{name}` ({PurePath(place.file).name}:{place.line})"
    text = _behind_all(own, taken, call, place, name in _OF_MODELS)
    if text is None and name in _READERS:
        text = _behind_samples(own, taken, call)
    if text and name in _READERS:
        text += _CLASS_NAMES
    in_parallel = all(isinstance(each, SetArgument) and each.argument == "num_parallel_calls" for each in taken)
    if name in _OF_HUGGING_FACE and in_parallel:
        text = (
            f"{call} makes these stages in one call, which takes no `num_parallel_calls`. {_OF_HUGGING_FACE[name]} "
            "`num_workers`: so many processes then make the batches, which no trial has tried."
        )
    return ([text], [each for each in edits if each not in taken]) if text else ([], list(edits))


def _behind_all(own: Sequence[Stage], edits: Sequence[Edit], call: str, place: Location, of_model: bool) -> str | None:
    """Return where a call goes that comes behind all that one call makes of the elements; None of another edit."""
    last = {each.id for each in own}.difference(*(each.inputs for each in own))
    if len(last) != 1 or len(edits) != 1 or not isinstance(edits[0], InsertAfter | KeepSamples):
        return None
    edit = edits[0]
    at, handed_on = edit.stage, set[str]()
    while at not in last:
        after = [each for each in own if at in each.inputs]
        if len(after) != 1 or after[0].method not in UNCHANGED or not edit.keeps:
            return None
        at = after[0].id
        handed_on.add(after[0].method)
    written = edit.call + ".prefetch(tf.data.AUTOTUNE)" * ("prefetch" in handed_on)
    if not of_model:
        several = "," in place.text.partition("=")[0]  # as `(train, test), info = tfds.load(…)`
        which = "the dataset of this training, of those that" if several else "the dataset that"
        return f"Write `{written}` behind {which} {call} returns."
    return (
        f"{call} maps the dataset itself. Map it before that call, write `{written}` behind the map, and keep the "
        "model from mapping it again. In KerasHub: "
        f"`.map(model.preprocessor, num_parallel_calls=tf.data.AUTOTUNE){written}`, of the validation's data likewise, "
        "and `model.preprocessor = None` during that `fit` alone."
    )


def _behind_samples(own: Sequence[Stage], edits: Sequence[Edit], call: str) -> str | None:
    """Return what to write behind a reader of single samples; None where the edits ask for something else."""
    by_method = {each.method: each for each in own}
    batch, shuffle, read = (by_method.get(each) for each in ("batch", "shuffle", "map"))
    if batch is None or read is None:
        return None
    given = [each for each in edits if isinstance(each, SetArgument) and each.stage == batch.id]
    caches = [each for each in edits if isinstance(each, InsertAfter) and each.method == "cache" and not each.arguments]
    moves = [each for each in edits if isinstance(each, MoveBefore) and each.stage == read.id]
    if len(given) + len(caches) + len(moves) != len(edits) or any(each.stage != read.id for each in caches):
        return None
    if len(caches) > 1 or len(moves) != len(caches if shuffle is not None else ()):
        return None
    calls = [each.call for each in caches]
    if caches and shuffle is not None:
        calls.append(f".shuffle({value_text('buffer_size', shuffle.arguments.get('buffer_size'))})")
    arguments = [value_text("batch_size", batch.arguments.get("batch_size"))]
    arguments += [f"{each.argument}={value_text(each.argument, each.value)}" for each in given]
    behind = "".join([*calls, f".batch({', '.join(arguments)})", ".prefetch(tf.data.AUTOTUNE)"])
    return (
        f"{call} makes these stages in one call: give it `batch_size=None`, and write `{behind}` directly behind that "
        "call. If the call returns two, write it behind the one to train on; the other one needs a `.batch` of its own."
    )


def same_calls(
    calls: Mapping[int, tuple[SourceFile, cst.Call]], stages: Mapping[int, Stage], changed: Iterable[int]
) -> tuple[str, ...]:
    """Return the statements, ``train.py:31``, with the calls that stages are changed in, and those they are made on.

    Only calls of a function of the user's, or of their PyDataset, say that it is the same work: ``.batch(32)`` stands
    in any pipeline. Where there is none in the statement, those right before it must be the same up to one that has.

    Args:
        calls: of the stages, by id, as far as they were found.
        stages: by id.
        changed: the ids of the stages that a fix changes.
    """
    numbers = {call: number for number, (_, call) in calls.items()}
    found: dict[str, None] = {}
    for file, call in (calls[number] for number in changed if number in calls):
        wanted = _wanted(file, call, numbers, stages)
        name = one_line(PurePath(stages[numbers[call]].place.file).name, NAME)  # type: ignore[union-attr] # it was found
        for node in file.nodes if wanted else ():
            if isinstance(node, cst.Call) and _stands(file, node, wanted, numbers):
                found[f"{name}:{file.lines(file.statement(node))[0]}"] = None
    return tuple(found)


def _wanted(
    file: SourceFile, call: cst.Call, numbers: Mapping[cst.Call, int], stages: Mapping[int, Stage]
) -> list[list[str]]:
    """Return the texts of the calls that must stand elsewhere too: of the call's statement, then of those before it."""
    wanted: list[list[str]] = []
    chain = _chain(file, call, numbers, stages)
    if call not in chain:  # a source
        chain = [call]
    for statement in _upward(file, file.statement(call)):
        if wanted:
            own = [each for each in _calls(file, statement) if each in numbers]
            chain = _chain(file, own[0], numbers, stages) if own else []
        if not chain:
            break
        wanted.append([_text(file, each) for each in chain])
        if any(_is_users(stages[numbers[each]], each) for each in chain):
            return wanted
    return []


def _stands(file: SourceFile, call: cst.Call, wanted: list[list[str]], own: Collection[cst.Call]) -> bool:
    """Return whether calls with these texts stand at another call, and in the statements before it."""
    if _texts(file, call, len(wanted[0]), own) != wanted[0]:
        return False
    before = itertools.islice(_upward(file, file.statement(call)), 1, None)
    return all(
        any(_texts(file, each, len(texts), own) == texts for each in _calls(file, statement))
        for statement, texts in itertools.zip_longest(itertools.islice(before, len(wanted) - 1), wanted[1:])
    )


def _upward(file: SourceFile, statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a statement, then those before it in its block."""
    block = file.block(statement)
    yield from block[block.index(statement) :: -1]


def _calls(file: SourceFile, statement: cst.CSTNode | None) -> list[cst.Call]:
    """Return the calls in a statement, outer ones first; of one with a block, also those in it."""
    return [node for node in file.nodes if isinstance(node, cst.Call) and statement in file.around(node)]


def _is_users(stage: Stage, call: cst.Call) -> bool:
    return stage.function is not None or (stage.method == WORKERS and called_name(call) != "__init__")


def _chain(
    file: SourceFile, call: cst.Call, numbers: Mapping[cst.Call, int], stages: Mapping[int, Stage]
) -> list[cst.Call]:
    """Return the calls on datasets that are made on each other in one expression with this one, the last one first."""
    top: cst.CSTNode = call
    while isinstance(above := file.parents[top], cst.Attribute) and file.parents[above] in numbers:
        top = file.parents[above]
    chain: list[cst.Call] = []
    at: cst.CSTNode | None = top
    while isinstance(at, cst.Call) and at in numbers and stages[numbers[at]].inputs:
        chain.append(at)
        at = _below(at)
    return chain


def _texts(file: SourceFile, call: cst.Call, count: int, own: Collection[cst.Call]) -> list[str]:
    """Return the texts of so many calls, each made on the next one; fewer where there are fewer, or one is the own."""
    texts: list[str] = []
    at: cst.CSTNode | None = call
    while isinstance(at, cst.Call) and len(texts) < count and at not in own:
        texts.append(_text(file, at))
        at = _below(at)
    return texts


def _below(call: cst.Call) -> cst.CSTNode | None:
    return call.func.value if isinstance(call.func, cst.Attribute) else None


def _text(file: SourceFile, call: cst.Call) -> str:
    """Return a call's name and arguments, however they are laid out."""
    names = ("" if each.keyword is None else f"{each.keyword.value}=" for each in call.args)
    given = (f"{name}{each.star}{file.code(each.value)}" for name, each in zip(names, call.args, strict=True))
    return " ".join(f"{called_name(call)}({', '.join(given)})".split())
