"""Images as PNG files in data URLs (ISO/IEC 15948), so that a report is one file."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: Channels → colour type: grey, colours, colours and opacity.
_COLOURS = {1: 0, 3: 2, 4: 6}


def png_url(image: npt.NDArray[np.float32]) -> str:
    """An image (channels, height, width) of pixels in [0, 1]; its mean channel where it has not 1, 3 or 4."""
    shown = image if len(image) in _COLOURS else image.mean(axis=0, keepdims=True)
    pixels = np.rint(np.clip(shown, 0.0, 1.0) * 255).astype(np.uint8).transpose(1, 2, 0)
    height, width, channels = pixels.shape
    lines = b"".join(b"\x00" + line.tobytes() for line in pixels)  # 0: a line without a filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return "data:image/png;base64," + base64.b64encode(_SIGNATURE + b"".join(_chunk(*each) for each in chunks)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
