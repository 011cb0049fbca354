"""Sources of files: Python and TensorFlow decode the same samples bit for bit, and every backend trains on them."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pipeline_bench import plugins
from pipeline_bench.run import comparison
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.sources import RecordError, datasets, images, synthetic_dataset
from pipeline_bench.sources.records import FileOptions, RecordSource
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset
from tests.tensorflow.conftest import RunScenario
from tests.trials import losses, without_ceilings

MADE = {
    "image_folder": SyntheticDataset("image_folder", 23, 23, 20, uneven=True),
    "tfrecord": SyntheticDataset("tfrecord", 23, 3, 20, uneven=True),
    "npz": SyntheticDataset("npz", 23, 3, 12),
    "csv": SyntheticDataset("csv", 23, 3, 5),
}
IMAGES: list[dict[str, Any]] = [
    {"image_size": 16},
    {"image_size": 31, "channels": 1},
    {"image_size": 16, "fit": "pad"},
    {"image_size": 40, "fit": "pad", "channels": 1},
]
SOURCES = [(kind, options) for kind in ("image_folder", "tfrecord") for options in IMAGES] + [("npz", {}), ("csv", {})]
KINDS = ["image_folder", "tfrecord", "npz", "csv"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    for kind, data in MADE.items():
        synthetic_dataset.make(data, root / kind)
    return root


def source_of(kind: str, path: Path, **options: Any) -> RecordSource:
    source: Any = plugins.find("sources", kind)({"path": str(path), "batch_size": 4, **options})
    source.prepare(None)
    return source  # type: ignore[no-any-return]


def dataset(tf: Any, source: RecordSource) -> Any:
    """Places and records of an epoch, as a backend strings the files together."""
    paths = [file.path for file in source.files]
    firsts = np.array([file.first for file in source.files], dtype=np.int64)
    files = tf.data.Dataset.from_tensor_slices((paths, firsts))
    return files.flat_map(source.file_dataset).enumerate()


def drained(tf: Any, made_of: Any) -> list[tuple[npt.NDArray[Any], ...]]:
    iterator = tf.compat.v1.data.make_initializable_iterator(made_of)
    element = iterator.get_next()
    found = []
    with tf.compat.v1.Session() as session:
        session.run(iterator.initializer)
        while True:
            try:
                found.append(session.run(element))
            except tf.errors.OutOfRangeError:
                return found


@pytest.mark.parametrize(("kind", "options"), SOURCES, ids=str)
def test_python_and_tensorflow_decode_the_same_bits(tf: Any, made: Path, kind: str, options: dict[str, Any]) -> None:
    source = source_of(kind, made / kind, **options)
    in_graph = drained(tf, dataset(tf, source).map(source.decode_op))
    (stream,) = source.streams(1)
    assert len(in_graph) == source.records == 23
    for (features, label), sample, place in zip(in_graph, stream, range(23), strict=False):
        assert sample.number == place
        assert features.dtype == sample.features.dtype == np.float32
        np.testing.assert_array_equal(features, sample.features)
        assert label.dtype == sample.label.dtype == np.int64
        assert label == sample.label
        alone, same_label = source.decode(place, source.load(place))
        np.testing.assert_array_equal(alone, features)
        assert same_label == label


def test_what_decodes_in_a_pipeline_is_not_read_by_autograph(
    tf: Any, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reading would be half of what the build of a trial takes."""
    source = source_of("csv", made / "csv", on_error="skip")
    callers: set[str] = set()
    decode = source.decode_op

    def noting(*record: Any) -> Any:
        callers.update(frame.filename for frame in inspect.stack())
        return decode(*record)

    monkeypatch.setattr(source, "decode_op", noting)
    datasets.endless(source, datasets.PipelineOptions(), datasets.Resources())
    source.decode_or_flag(tf.constant(0, tf.int64), (tf.constant("0"),))
    assert callers
    assert not any("autograph_generated" in name for name in callers)


@pytest.mark.parametrize("kind", ["image_folder", "tfrecord", "npz", "csv"])
def test_a_whole_batch_is_decoded_to_the_same_bits(tf: Any, made: Path, kind: str) -> None:
    source = source_of(kind, made / kind)
    batches = dataset(tf, source).batch(5).map(source.decode_batch_op)
    features, labels = (np.concatenate(part) for part in zip(*drained(tf, batches), strict=True))
    samples = [source.decode(place, source.load(place)) for place in range(source.records)]
    np.testing.assert_array_equal(features, np.stack([sample[0] for sample in samples]))
    np.testing.assert_array_equal(labels, [sample[1] for sample in samples])


@pytest.mark.parametrize("kind", ["image_folder", "tfrecord", "csv"])
def test_the_readers_of_tensorflow_1_give_the_records_and_the_keys(tf: Any, made: Path, kind: str) -> None:
    source = source_of(kind, made / kind)
    names = tf.queue.FIFOQueue(100, tf.string, shapes=[[]])
    key, value = source.reader().read(names)
    with tf.compat.v1.Session() as session:
        session.run(names.enqueue_many([[file.path for file in source.files]]))
        for place in range(source.records):
            found_key, found = session.run([key, value])
            assert found_key.decode() == source.key_of(place)
            assert found == source.load(place)[0]


def pictures() -> Iterator[tuple[str, bytes]]:
    """Encoded images of odd sizes and of every kind that a data set may hold."""
    generator = np.random.default_rng(5)
    for height, width in ((1, 1), (7, 31), (33, 16), (48, 65), (100, 3)):
        noise = generator.integers(0, 256, (height // 4 + 1, width // 4 + 1, 4), dtype=np.uint8)
        rgba = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        rgb = rgba.convert("RGB")
        for subsampling in (0, 1, 2):
            for progressive in (False, True):
                yield from _saved(rgb, "JPEG", quality=80, subsampling=subsampling, progressive=progressive)
        yield from _saved(rgb.convert("L"), "JPEG", quality=60)
        yield from _saved(Image.fromarray(np.asarray(rgba), "CMYK"), "JPEG", quality=90)
        for picture in (rgb, rgba, rgb.convert("L"), rgba.convert("LA"), rgb.convert("P"), rgb.convert("1")):
            yield from _saved(picture, "PNG")
        deep = generator.integers(0, 65536, (height, width), dtype=np.uint16)
        yield from _saved(Image.fromarray(deep), "PNG")


def _saved(picture: Image.Image, form: str, **how: Any) -> Iterator[tuple[str, bytes]]:
    file = io.BytesIO()
    picture.save(file, form, **how)
    yield f"{form} {picture.mode} {picture.size} {how}", file.getvalue()


@pytest.mark.parametrize("options", IMAGES, ids=str)
def test_images_of_every_kind_and_size_are_decoded_alike(tf: Any, options: dict[str, Any]) -> None:
    given = images.ImageOptions(**options)
    raw = tf.compat.v1.placeholder(tf.string, [])
    decoded = images.decode_op(raw, given)
    with tf.compat.v1.Session() as session:
        for what, encoded in pictures():
            np.testing.assert_array_equal(
                images.decode(encoded, given), session.run(decoded, {raw: encoded}), err_msg=what
            )


def _encoded(form: str) -> bytes:
    return next(_saved(Image.fromarray(np.full((32, 32, 3), 7, dtype=np.uint8)), form))[1]


BROKEN = {
    "empty": b"",
    "text": b"no image at all",
    "jpeg, cut": _encoded("JPEG")[:-40],
    "png, last byte cut": _encoded("PNG")[:-1],
    "png, end cut": _encoded("PNG")[:-12],
    "png, changed in its last checksum": _encoded("PNG")[:-1] + b"x",
    "png, changed in its pixels' checksum": _encoded("PNG")[:-13] + b"x" + _encoded("PNG")[-12:],
    "gif": _encoded("GIF"),
}


@pytest.mark.parametrize("encoded", BROKEN.values(), ids=BROKEN)
def test_what_python_cannot_decode_tensorflow_cannot_either(tf: Any, encoded: bytes) -> None:
    given = images.ImageOptions(image_size=8)
    with pytest.raises(ValueError, match=r"\w"):
        images.decode(encoded, given)
    with tf.compat.v1.Session() as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(images.decode_op(tf.constant(encoded), given))


def test_numbers_in_text_are_the_same_in_python_and_in_tensorflow(tf: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    doubles = generator.integers(0, 2**64, 900, dtype=np.uint64).view(np.float64)
    texts = [repr(float(value)) for value in doubles[np.isfinite(doubles)]]
    texts += [f"{value:.8f}" for value in generator.random(900)] + [
        "nan",
        "-inf",
        "1e400",
        "1e-400",
        "1e-39",
        "-1e-40",
        " 1.5 ",
        '"2"',
        ".5",
        "0x1F",
    ]
    if tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 20):  # TensorFlow 2.18 refuses it
        texts.append("-0x1.8p-2")
    (tmp_path / "a.csv").write_text("".join(f"{text},{i}\r\n" for i, text in enumerate(texts)))
    source = source_of("csv", tmp_path)
    in_graph = drained(tf, dataset(tf, source).batch(512).map(source.decode_batch_op))
    features = np.concatenate([batch[0] for batch in in_graph])
    in_python = [source.decode(place, source.load(place))[0] for place in range(source.records)]
    np.testing.assert_array_equal(features, in_python)


@pytest.mark.parametrize("line", ["", "1,2", "1,2,3,4", "1,,3", "x,2,3", "1,2,3.0", "1_0,2,3", "1,2,3x", '1,"2,3'])
def test_a_malformed_line_is_refused_by_both(tf: Any, tmp_path: Path, line: str) -> None:
    (tmp_path / "a.csv").write_text(f"a,b,c\n1,2,3\n{line}\n4,5,6\n")
    source = source_of("csv", tmp_path / "a.csv")
    with pytest.raises(RecordError, match=r"a\.csv, line 3 cannot be decoded"):
        source.decode(1, source.load(1))
    with pytest.raises(tf.errors.InvalidArgumentError):
        drained(tf, dataset(tf, source).map(source.decode_op))


@pytest.mark.parametrize("cut", [1, 40, 2000])
def test_a_truncated_tfrecord_file_is_named_or_used_as_far_as_it_goes(
    tf: Any, made: Path, tmp_path: Path, cut: int
) -> None:
    whole = sorted((made / "tfrecord").glob("*.tfrecord"))
    for path in whole:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    broken = tmp_path / whole[1].name
    broken.write_bytes(broken.read_bytes()[:-cut])
    with pytest.raises(RecordError, match=rf"{whole[1].name}, record \d: .* file ends after"):
        source_of("tfrecord", tmp_path)
    source = source_of("tfrecord", tmp_path, on_error="skip")
    assert list(source.damaged_files) == [str(broken)]
    assert 7 + 8 < source.records < 23
    in_graph = drained(tf, dataset(tf, source).map(source.decode_op))
    assert len(in_graph) == source.records
    for place, (features, _) in enumerate(in_graph):
        np.testing.assert_array_equal(features, source.decode(place, source.load(place))[0])


def test_a_record_with_a_wrong_checksum_ends_its_file_in_both(tf: Any, made: Path, tmp_path: Path) -> None:
    content = bytearray(sorted((made / "tfrecord").glob("*.tfrecord"))[0].read_bytes())
    first_bytes = int.from_bytes(content[:8], "little")
    content[12 + first_bytes + 4 + 12 + 30] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(content)
    source = source_of("tfrecord", tmp_path, on_error="skip")
    assert source.records == 1
    assert len(drained(tf, dataset(tf, source))) == 1


def test_an_example_whose_keys_are_no_text_is_named(tf: Any, tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        feature = {"image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"image"]))}
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        writer.write(example.SerializeToString().replace(b"image/", b"image\xaa"))
    source = source_of("tfrecord", tmp_path)
    with pytest.raises(RecordError, match=r"a\.tfrecord is no tf\.train\.Example"):
        source.decode(0, source.load(0))


def test_numbers_of_the_other_byte_order_are_the_same_numbers(tf: Any, tmp_path: Path) -> None:
    features = np.linspace(0, 1, 6, dtype=np.float32).reshape(3, 2)
    np.savez(tmp_path / "a.npz", x=features.astype(">f4"), y=np.arange(3).astype(">i8"))
    source = source_of("npz", tmp_path)
    in_graph = drained(tf, dataset(tf, source).map(source.decode_op))
    np.testing.assert_array_equal([sample[0] for sample in in_graph], features)
    assert [int(sample[1]) for sample in in_graph] == [0, 1, 2]


def test_an_example_without_the_keys_says_which_it_has(tf: Any, made: Path) -> None:
    source = source_of("tfrecord", made / "tfrecord", image_key="image")
    with pytest.raises(RecordError, match="its keys: image/class/label, image/encoded"):
        source.decode(0, source.load(0))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "tfrecord" else pytest.mark.slow) for kind in KINDS]
)
def test_every_source_trains_on_equal_samples_under_feed_dict_and_tf_data(
    run_scenario: RunScenario, made: Path, kind: str
) -> None:
    document: dict[str, Any] = {
        "name": kind,
        "source": {"kind": kind, "path": str(made / kind), "batch_size": 5},
        "model": {"hidden_widths": [8]},
        "run": {"steps": 14, "repeats": 1},
        "variants": [{"name": "python", "backend": "feed_dict"}, {"name": "graph", "backend": "tf_data"}],
    }
    session = run_scenario(without_ceilings(resolve(document)))
    for name in ("python", "graph"):
        result = session.result(name)
        assert result.work.status == "equal", result.work.text
    python, graph = (losses(record) for record in session.trials)
    np.testing.assert_allclose(python, graph, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("commands_share_server")
def test_a_comparison_makes_its_data_once(tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "name": "made",
        "source": {"kind": "tfrecord", "samples": 41, "image_size": 8, "files": 2, "batch_size": 8},  # no other's
        "model": {"hidden_widths": [8]},
        "run": {"steps": 5, "repeats": 1},
        "variants": [{"backend": "feed_dict"}],
    }
    heard = []

    class Listener(Observer):
        def making(self, what: str, made: int, total: int) -> None:
            heard.append((what, made, total))

    (tmp_path / "session").mkdir()
    outcome = comparison.compare(resolve(document), tmp_path / "session", Listener(), command="test")
    assert outcome.all_ok, [trial.reason for trial in outcome.session.trials]
    assert heard[-1] == ("images for tfrecord", 41, 41)
    heard.clear()
    comparison.prepare_data(resolve(document), Listener())
    assert not heard, "it is there"


def test_the_options_of_every_source_of_files_are_those_of_files() -> None:
    for kind in KINDS:
        assert issubclass(plugins.find("sources", kind).Options, FileOptions)
