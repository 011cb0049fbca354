"""What to write for a fix where one call of a library's function makes several stages, in words.

None of these can be moved or followed by another in the file. What the function returns can be; and without their
batches Keras' readers of folders give single samples, so that all behind the reading can be written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from pipeline_bench.model.calls import UNCHANGED, value_text
from pipeline_bench.model.edits import Edit, InsertAfter, KeepSamples, MoveBefore, SetArgument
from pipeline_bench.model.pipeline import Location, Stage

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
    places = [stages[number].place for each in taken for number in _numbers(each) if number in stages]
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


def _numbers(edit: InsertAfter | KeepSamples | MoveBefore | SetArgument) -> tuple[int, ...]:
    return (edit.stage, edit.other) if isinstance(edit, MoveBefore) else (edit.stage,)


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
