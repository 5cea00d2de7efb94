"""The metadata of a GGUF file as a plain dict; the package gguf takes seconds for long lists."""

from __future__ import annotations

import struct

import numpy as np

_NUMBERS = {
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_TEXT, _LIST = 8, 9


def metadata_of(path):
    with path.open("rb") as file:
        _, _, _, count = struct.unpack("<IIQQ", file.read(24))
        return {_text(file): _value(file, *struct.unpack("<I", file.read(4))) for _ in range(count)}


def _text(file):
    return file.read(struct.unpack("<Q", file.read(8))[0]).decode()


def _value(file, kind):
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        inner, count = struct.unpack("<IQ", file.read(12))
        return [_text(file) for _ in range(count)] if inner == _TEXT else _numbers(file, inner, count)
    return _numbers(file, kind, 1)[0]


def _numbers(file, kind, count):
    dtype = np.dtype(_NUMBERS[kind])
    return np.frombuffer(file.read(dtype.itemsize * count), dtype).tolist()
