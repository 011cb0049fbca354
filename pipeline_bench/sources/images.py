"""Images as samples, decoded in Python (Pillow) and by TensorFlow to the same bits.

Held against each other over sizes, subsamplings, grey, palette, 16 bit and CMYK, see tests/tensorflow/test_sources.py:
both use libjpeg-turbo, and with ``INTEGER_ACCURATE`` the same inverse transform. Their resizings differ where a pixel
lies between two, and so do their conversions to grey; both are written out here.
"""

from __future__ import annotations

import io
import zlib
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.sources import ArraySpec
from pipeline_bench.sources.folder import FolderOptions, FolderSource
from pipeline_bench.sources.synthetic_dataset import Kind, SyntheticDataset

_FORMATS = ("JPEG", "PNG")
_PNG_MAGIC, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND"
SCALE = np.float32(1 / 255)
# ITU-R 601-2 luma in 16 bit fixed point, which is also what Pillow computes.
_RED, _GREEN, _BLUE, _HALF, _BITS = 19595, 38470, 7471, 1 << 15, 16


class ImageOptions(FolderOptions):
    """What becomes of an image on its way to the model."""

    image_size: Annotated[int, Field(ge=1, le=4096, description="pixels of a side of the square the model takes")] = 96
    channels: Annotated[Literal[1, 3], Field(description="3: red, green, blue; 1: grey")] = 3
    fit: Annotated[
        Literal["resize", "pad"],
        Field(
            description="resize: to the square, by the nearest pixel; pad: samples keep their own size, and a batch is "
            "padded with 0; what is larger than the square is cut"
        ),
    ] = "resize"
    made_size: Annotated[
        int | None,
        Field(ge=8, le=4096, description="of synthetic data: pixels of a side; unset: image_size"),
    ] = None


class ImageSource(FolderSource):
    """Encoded images, one a record, and the class of each; of the options of `ImageOptions`."""

    synthetic_options = FolderSource.synthetic_options | {"made_size"}

    @property
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        return feature_spec(self.options), ArraySpec("int64")

    @property
    def padded_shape(self) -> tuple[int, ...]:
        return self.options.image_size, self.options.image_size, self.options.channels

    def image_dataset(self, kind: Kind, files: int) -> SyntheticDataset:
        """Return the synthetic dataset of these options."""
        side = max(8, int(self.options.made_size or self.options.image_size))
        return SyntheticDataset(kind, self.options.samples, files, side, uneven=self.options.fit == "pad")


def feature_spec(options: Any) -> ArraySpec:
    """Features of a decoded image: float32 [image_size, image_size, channels], 0 to 1; of any size with ``pad``."""
    size = None if options.fit == "pad" else options.image_size
    return ArraySpec("float32", (size, size, options.channels))


def decode(raw: bytes, options: Any) -> npt.NDArray[np.float32]:
    """Return the features of an image, decoded by Pillow.

    Raises:
        ValueError: it cannot be decoded; the message says why.
    """
    pixels = _pixels(raw, options.channels)
    size = options.image_size
    if options.fit == "pad":
        pixels = pixels[:size, :size]
    elif pixels.shape[:2] != (size, size):
        pixels = pixels.take(_nearest(pixels.shape[0], size), axis=0).take(_nearest(pixels.shape[1], size), axis=1)
    return pixels.astype(np.float32) * SCALE


def decode_op(raw: Any, options: Any) -> Any:
    """Return the features of an image, decoded by TensorFlow's ops; `raw` is a string tensor []."""
    import tensorflow as tf

    # In spite of its name it decodes PNG as well, and GIF.
    no_gif = tf.debugging.Assert(tf.not_equal(tf.strings.substr(raw, 0, 3), "GIF"), ["it is no JPEG or PNG"])
    with tf.control_dependencies([no_gif]):
        pixels = tf.io.decode_jpeg(raw, channels=3, dct_method="INTEGER_ACCURATE")
    size = options.image_size
    if options.fit == "pad":
        pixels = pixels[:size, :size]
    else:
        shape = tf.shape(pixels)
        for axis in (0, 1):
            pixels = tf.gather(pixels, _nearest_op(shape[axis], size), axis=axis)
    if options.channels == 1:
        weighted = tf.cast(pixels, tf.int32) * tf.constant([_RED, _GREEN, _BLUE])
        pixels = tf.bitwise.right_shift(tf.reduce_sum(weighted, axis=2, keepdims=True) + _HALF, _BITS)
    return tf.ensure_shape(tf.cast(pixels, tf.float32) * SCALE, feature_spec(options).shape)


def _pixels(raw: bytes, channels: int) -> npt.NDArray[np.uint8]:
    """Return the image as uint8 [height, width, channels]; an alpha channel is dropped, as TensorFlow drops it."""
    from PIL import Image, UnidentifiedImageError

    try:
        _check_png(raw)
        with Image.open(io.BytesIO(raw), formats=_FORMATS) as opened:
            image: Image.Image = opened
            if image.mode == "CMYK":
                image = Image.fromarray(_from_cmyk(np.asarray(image)))
            elif image.mode.startswith("I"):  # 16 bits of grey, of which the upper ones count
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            image = image.convert("RGB")
            pixels = np.asarray(image.convert("L") if channels == 1 else image)
    except UnidentifiedImageError:  # its own message names an address in memory
        raise ValueError("it is no JPEG or PNG") from None
    except Exception as error:  # foreign bytes in a library of many parsers: any of its exceptions means the same
        raise ValueError(str(error) or type(error).__name__) from error
    return pixels.reshape(*pixels.shape[:2], channels)


def _check_png(raw: bytes) -> None:
    """Refuse a PNG whose end is missing or changed: libpng does, and Pillow stops at the last pixel.

    Raises:
        ValueError: a chunk that must be there is cut, or does not match its checksum.
    """
    if not raw.startswith(_PNG_MAGIC):
        return
    view, start, kind = memoryview(raw), len(_PNG_MAGIC), b""
    while kind != _PNG_END:
        kind, end = raw[start + 4 : start + 8], start + 12 + int.from_bytes(raw[start : start + 4])
        if end > len(raw):
            raise ValueError("the PNG ends too early")
        critical = kind[:1].isupper()
        if critical and zlib.crc32(view[start + 4 : end - 4]) != int.from_bytes(raw[end - 4 : end]):
            raise ValueError("a part of the PNG does not match its checksum")
        start = end


def _from_cmyk(inks: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    left = 255 - inks.astype(np.int32)
    return np.asarray(left[..., :3] * left[..., 3:] // 255, dtype=np.uint8)


@cache
def _nearest(size_in: int, size_out: int) -> npt.NDArray[np.intp]:
    """Return for each pixel of a resized side the one of the original side under its centre."""
    return (2 * np.arange(size_out) + 1) * size_in // (2 * size_out)


def _nearest_op(size_in: Any, size_out: int) -> Any:
    import tensorflow as tf

    return (2 * tf.range(size_out) + 1) * size_in // (2 * size_out)
