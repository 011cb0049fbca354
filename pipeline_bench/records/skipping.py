"""Records that cannot be decoded, where a graph decodes them: flagged in place of an exception, and noted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline_bench import graph_ops

if TYPE_CHECKING:
    from pipeline_bench.records import Raw, RecordSource

_NOTES = "undecodable_records"


def decode_or_flag(source: RecordSource, place: Any, raw: Raw) -> tuple[Any, Any, Any]:
    """`RecordSource.decode_or_flag`: a tf.data pipeline of one element, whose errors end nothing else.

    Of the decoded record, where there is one, and a sample of zeros behind it the first is taken. That takes some 70 µs
    a record more, as measured in a parallel map; reading and decoding a JPEG of 96 × 96 pixels takes 180 there.

    Args:
        source: whose record it is.
        place: int64 [].
        raw: tensors as `raw_specs` says.
    """
    import tensorflow as tf

    def decode(*record: Any) -> tuple[Any, Any, Any]:
        features, label = shaped(source, source.decode_op(record[0], record[1:]))
        return features, label, True

    def zeros(spec: Any) -> Any:
        return tf.zeros([size or 0 for size in spec.shape], spec.dtype)

    with tf.device("/cpu:0"):
        decoded = tf.data.Dataset.from_tensors((place, *raw)).map(decode).ignore_errors(log_warning=False)
        flagged = tf.data.Dataset.from_tensors((*(zeros(spec) for spec in source.sample_specs), False))
        features, label, ok = decoded.concatenate(flagged).take(1).get_single_element()
        with tf.control_dependencies([_note(source.records, place, ok)]):
            return features, label, tf.identity(ok)


def shaped(source: RecordSource, decoded: Sequence[Any]) -> tuple[Any, Any]:
    """Features and label of one sample, which must have the shapes that `sample_specs` says."""
    import tensorflow as tf

    features, label = (
        tf.ensure_shape(tensor, spec.shape) for tensor, spec in zip(decoded, source.sample_specs, strict=True)
    )
    return features, label


def noted(session: Any) -> list[int]:
    """The places of the records that the session's graph has flagged, in order."""
    import tensorflow as tf

    notes = [variable for variable in tf.compat.v1.global_variables() if variable.op.name == _NOTES]
    return [int(place) for variable in notes for place in session.run(variable).nonzero()[0]]


def _note(records: int, place: Any, ok: Any) -> Any:
    """An op that notes the place of a record that is not ok, in a variable of the graph's, bool [records]."""
    import tensorflow as tf

    notes = graph_ops.shared_variable(_NOTES, [records], tf.bool)
    count = tf.cast(tf.logical_not(ok), tf.int32)
    places = tf.fill([count], place)
    return tf.raw_ops.ResourceScatterUpdate(resource=notes.handle, indices=places, updates=tf.fill([count], True))
