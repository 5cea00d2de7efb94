"""GGUF files are read as the gguf package reads them, and damaged ones raise one sentence."""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFEndian, GGUFReader, GGUFWriter
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from draftwood.engines.files.gguf_file import _TYPES, GgufFile, sampling_of
from draftwood.errors import ModelError, ModelNotFoundError, UnsupportedModelError
from draftwood.local.find import gguf_file
from tests.engines.cpu.small_models import random_rows
from tests.engines.tiny_gguf import written

METADATA = {
    "one.text": "wörter", "one.list": [1, -2, 3], "one.truth": True, "one.texts": ["a", "", "ß"], "one.float": 0.5,
}  # fmt: skip


def write(path: Path, *, split: bool = False, **options) -> Path:
    """Write a small file with one tensor of each rank; ``split`` puts each into a file of its own."""
    most = {"split_max_tensors": 1} if split else {}
    writer = GGUFWriter(path, "toy", **most, **options)
    writer.add_string("one.text", METADATA["one.text"])
    writer.add_array("one.list", METADATA["one.list"])
    writer.add_bool("one.truth", True)
    writer.add_array("one.texts", METADATA["one.texts"])
    writer.add_float32("one.float", 0.5)
    writer.add_uint64("one.large", 1 << 63)
    writer.add_tensor("norm", np.arange(5, dtype=np.float32))
    writer.add_tensor("matrix", random_rows("Q4_1", 3, 2), raw_dtype=GGMLQuantizationType.Q4_1)
    writer.add_tensor("experts", np.arange(2 * 3 * 4, dtype=np.float16).reshape(2, 3, 4))
    return written(writer, path)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("gguf") / "small.gguf")


def text(words: bytes | str) -> bytes:
    words = words.encode() if isinstance(words, str) else words
    return struct.pack("<Q", len(words)) + words


def place(name: str, shape: tuple[int, ...], code: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, code, offset)


def handmade(path: Path, pairs=(), places=(), data=b"", *, version=3, counts=None) -> Path:
    """Write a file whose parts are given as bytes."""
    tensors, values = counts or (len(places), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, values) + b"".join((*pairs, *places))
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def test_types_are_those_of_the_gguf_package():
    known = {kind.value: (kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGMLQuantizationType}
    assert {code: _TYPES.get(code) for code in known} == known


def test_metadata_and_tensors_are_what_was_written(small):
    file = GgufFile(small)
    assert {key: file.metadata[key] for key in METADATA} == METADATA
    assert file.metadata["general.architecture"] == "toy"
    assert file.metadata["one.large"] == 1 << 63
    assert {name: (t.kind, t.shape) for name, t in file.tensors.items()} == {
        "norm": ("F32", (5,)),
        "matrix": ("Q4_1", (3, 64)),
        "experts": ("F16", (2, 3, 4)),
    }
    assert (file.path, file.size) == (small, 5 * 4 + 3 * 40 + 24 * 2)
    np.testing.assert_array_equal(file.tensors["norm"].data.view(np.float32), np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(file.tensors["matrix"].data, random_rows("Q4_1", 3, 2))
    np.testing.assert_array_equal(file.tensors["experts"].data.view(np.float16).ravel(), np.arange(24))
    assert file.tensors["matrix"].data.nbytes == 120


@pytest.mark.slow
@pytest.mark.smollm2
def test_a_real_file_is_read_as_the_gguf_package_reads_it():
    path = gguf_file("smollm2")
    file, reader = GgufFile(path), GGUFReader(path)
    said = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert file.metadata == said
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        ours = file.tensors[tensor.name]
        assert (ours.kind, ours.shape) == (tensor.tensor_type.name, tuple(tensor.shape.tolist())[::-1])
        np.testing.assert_array_equal(ours.data.ravel(), tensor.data.view(np.uint8).ravel())


def test_version_2_is_read(small, tmp_path):
    raw = bytearray(small.read_bytes())
    raw[4] = 2
    (tmp_path / "two.gguf").write_bytes(raw)
    assert GgufFile(tmp_path / "two.gguf").tensors.keys() == GgufFile(small).tensors.keys()


def test_another_alignment_is_obeyed(tmp_path):
    pairs = [text("general.alignment") + struct.pack("<II", 4, 64)]
    path = handmade(tmp_path / "a.gguf", pairs, [place("a", (4,), 24, 64)], bytes(256))
    file = bytearray(path.read_bytes())
    start = -(-(24 + len(pairs[0]) + len(place("a", (4,), 24, 64))) // 64) * 64
    file[start + 64 : start + 68] = b"abcd"
    path.write_bytes(file)
    assert GgufFile(path).tensors["a"].data.tobytes() == b"abcd"


def test_texts_that_are_no_utf_8_stay_apart(tmp_path):
    pairs = [text("some") + struct.pack("<IIQ", 9, 8, 2) + text(b"\xff") + text(b"\xfe")]
    first, second = GgufFile(handmade(tmp_path / "a.gguf", pairs)).metadata["some"]
    assert (first.encode(errors="surrogateescape"), second.encode(errors="surrogateescape")) == (b"\xff", b"\xfe")


def test_an_unknown_type_is_refused_where_its_data_are_asked_for(tmp_path):
    path = handmade(tmp_path / "a.gguf", [text("some") + struct.pack("<IB", 0, 7)], [place("a", (32, 2), 77, 0)])
    file = GgufFile(path)
    assert (file.metadata, file.size) == ({"some": 7}, 0)
    assert (file.tensors["a"].kind, file.tensors["a"].shape) == ("type 77", (2, 32))
    with pytest.raises(UnsupportedModelError, match="type 77"):
        _ = file.tensors["a"].data


@pytest.mark.parametrize("unused", [0, 4])
@pytest.mark.parametrize("system", ["POSIX", "Windows"])
def test_rows_are_those_of_all_experts_in_the_order_asked_for(small, unused, system, monkeypatch):
    if system == "Windows":
        monkeypatch.delattr("os.preadv", raising=False)
    monkeypatch.setattr("draftwood.engines.files.gguf_file._MOST_UNUSED", unused)
    for tensor in GgufFile(small).tensors.values():
        every = tensor.data.reshape(-1, tensor.data.shape[-1])
        for which in (slice(None), slice(1, 3), np.arange(len(every))[::-1], np.array([len(every) - 1, 0, 0])):
            np.testing.assert_array_equal(tensor.rows(which), every[which])


def test_parts_are_found_beside_the_first(tmp_path):
    write(tmp_path / "model.gguf", split=True)
    parts = sorted(tmp_path.glob("*.gguf"))
    assert parts[0].name == "model-00001-of-00003.gguf"
    file = GgufFile(parts[0])
    assert sorted(file.tensors) == ["experts", "matrix", "norm"]
    assert (file.path, file.size) == (parts[0], 188)
    np.testing.assert_array_equal(file.tensors["matrix"].data, random_rows("Q4_1", 3, 2))
    os.utime(parts[2], ns=(0, 0))
    with pytest.raises(ModelError, match=r"00003-of-00003\.gguf has changed since it was loaded: load it again"):
        file.check_unchanged()


def test_parts_that_are_missing_swapped_or_misnamed_are_told(tmp_path):
    write(tmp_path / "model.gguf", split=True)
    first, second, third = sorted(tmp_path.glob("*.gguf"))
    with pytest.raises(ModelError, match=r"name the one whose name ends in -00001-of-00003\.gguf"):
        GgufFile(second)
    misnamed = tmp_path / "other.gguf"
    misnamed.write_bytes(first.read_bytes())
    with pytest.raises(ModelError, match="one of 3 parts"):
        GgufFile(misnamed)
    kept = second.read_bytes()
    second.write_bytes(third.read_bytes())
    with pytest.raises(ModelError, match="is not the part that its name says"):
        GgufFile(first)
    second.unlink()
    with pytest.raises(ModelNotFoundError, match=r"model-00002-of-00003\.gguf, a part of"):
        GgufFile(first)
    second.write_bytes(kept[:-20])
    with pytest.raises(ModelError, match="damaged"):
        GgufFile(first)


def test_changed_files_raise_and_replaced_ones_warn_once(small, tmp_path, caplog):
    path = tmp_path / "model.gguf"
    path.write_bytes(small.read_bytes())
    file = GgufFile(path)
    file.check_unchanged()
    (tmp_path / "other").write_bytes(small.read_bytes())
    (tmp_path / "other").replace(path)
    with caplog.at_level(logging.WARNING, "draftwood"):
        file.check_unchanged()
        file.check_unchanged()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} was replaced: texts are those of the file as it was; load it again"
    ]
    path.unlink()
    file.check_unchanged()
    path.write_bytes(small.read_bytes())
    file = GgufFile(path)
    os.utime(path, ns=(0, 0))
    with pytest.raises(ModelError, match="has changed since it was loaded: load it again"):
        file.check_unchanged()


def test_missing_files_and_folders_are_told(tmp_path):
    with pytest.raises(ModelNotFoundError, match="there is no file"):
        GgufFile(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match="cannot be read"):
        GgufFile(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"GG", "is no GGUF file"),
        (b"PK\x03\x04" + bytes(100), "is no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version 4"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    ],
)
def test_what_is_no_file_of_version_2_or_3_is_refused(tmp_path, content, says):
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=says):
        GgufFile(tmp_path / "a.gguf")


def test_a_file_cut_anywhere_is_refused(small, tmp_path):
    raw, path = small.read_bytes(), tmp_path / "cut.gguf"
    padding = -48 % 32  # behind the last tensor; the file may end before it
    for length in range(len(raw) - padding):
        path.write_bytes(raw[:length])
        with pytest.raises(ModelError):
            GgufFile(path)
    path.write_bytes(raw[: len(raw) - padding])
    GgufFile(path)


HUGE = (1 << 64) - 1
PAIR = text("some") + struct.pack("<IB", 0, 7)


@pytest.mark.parametrize(
    ("pairs", "places", "options", "says"),
    [
        ([], [], {"counts": (HUGE, 0)}, "within its head"),
        ([], [], {"counts": (0, HUGE)}, "within its head"),
        ([PAIR, PAIR], [], {}, "twice"),
        ([struct.pack("<Q", HUGE) + b"some"], [], {}, "does not fit"),
        ([struct.pack("<Q", 1 << 63) + b"some"], [], {}, "does not fit"),
        ([text("some") + struct.pack("<I", 13)], [], {}, "unknown type 13"),
        ([text("some") + struct.pack("<IIQ", 9, 0, HUGE)], [], {}, "does not fit"),
        ([text("some") + struct.pack("<IIQ", 9, 8, HUGE)], [], {}, "does not fit"),
        ([text("some") + struct.pack("<IIQ", 9, 12, 1 << 61)], [], {}, "does not fit"),
        ([text("some") + struct.pack("<IIQIQ", 9, 9, 1, 0, 1)], [], {}, "list of lists"),
        ([text("some") + struct.pack("<IIQ", 9, 99, 0)], [], {}, "unknown type 99"),
        ([text("general.alignment") + struct.pack("<II", 4, 0)], [], {}, "alignment"),
        ([text("general.alignment") + struct.pack("<II", 4, 48)], [], {}, "alignment"),
        ([text("general.alignment") + struct.pack("<IQ", 8, 2) + b"32"], [], {}, "alignment"),
        ([text("general.alignment") + struct.pack("<IQ", 10, 1 << 63)], [place("a", (1,), 0, 0)], {}, "outside"),
        ([text("split.count") + struct.pack("<IQ", 8, 1) + b"2"], [], {}, "no number"),
        ([], [place("a", (32,), 2, 0), place("a", (32,), 2, 32)], {}, "two tensors"),
        ([], [place("a", (32,), 2, 0), place("b", (32,), 2, 0)], {}, "inside another"),
        ([], [place("a", (), 0, 0)], {}, "0 axes"),
        ([], [text("a") + struct.pack("<I", HUGE >> 32)], {}, "axes"),
        ([], [place("a", (32, 0), 2, 0)], {}, "the shape"),
        ([], [place("a", (1 << 40, 1 << 40), 0, 0)], {}, "the shape"),
        ([], [place("a", (1 << 32, 1 << 32), 0, 0)], {}, "the shape"),
        ([], [place("a", (1 << 30, 1 << 30), 0, 0)], {}, "outside"),
        ([], [place("a", (33,), 2, 0)], {}, "no multiple of the 32 of Q4_0"),
        ([], [place("a", (128,), 12, 0)], {}, "no multiple of the 256 of Q4_K"),
        ([], [place("a", (32,), 2, 8)], {}, "is not aligned"),
        ([], [place("a", (32,), 2, 1 << 40)], {}, "outside"),
        ([], [place("a", (32,), 2, HUGE - 31)], {}, "outside"),
    ],
)
def test_heads_that_contradict_the_file_are_refused(tmp_path, pairs, places, options, says):
    path = handmade(tmp_path / "a.gguf", pairs, places, bytes(64), **options)
    with pytest.raises(ModelError, match=says) as caught:
        GgufFile(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=6))
@example(changes=[(8, 0xFF)])
def test_changed_bytes_of_the_head_raise_nothing_else(small, tmp_path, changes):
    raw, path = bytearray(small.read_bytes()), tmp_path / "changed.gguf"
    for at, byte in changes:
        raw[at] = byte
    path.write_bytes(raw)
    try:
        file = GgufFile(path)
        for tensor in file.tensors.values():
            assert tensor.data.nbytes <= len(raw)
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_big_endian_files_are_refused(tmp_path):
    write(tmp_path / "big.gguf", endianess=GGUFEndian.BIG)
    with pytest.raises(UnsupportedModelError, match="big-endian"):
        GgufFile(tmp_path / "big.gguf")


@pytest.mark.parametrize(
    ("said", "settings"),
    [
        ({}, {}),
        ({"temp": 0.7, "top_k": 20}, {"temperature": 0.7, "do_sample": True, "top_k": 20}),
        ({"temp": 0.0}, {"temperature": 0, "do_sample": False}),
        ({"top_k": -1, "top_p": 1.5, "min_p": -0.5}, {"top_k": 0, "top_p": 1, "min_p": 0}),  # all tokens
        ({"penalty_repeat": 1.1}, {"repetition_penalty": 1.1, "penalty_last_n": 64}),
        ({"penalty_repeat": 1.1, "penalty_last_n": -1}, {"repetition_penalty": 1.1}),
        ({"penalty_repeat": 1.1, "penalty_last_n": 0}, {}),
        ({"penalty_repeat": 1.0, "penalty_last_n": 9}, {}),
        ({"mirostat": 2, "mirostat_tau": 5.0, "xtc_probability": 0.5}, {"mirostat": 2, "xtc_probability": 0.5}),
        ({"top_k": 5, "top_p": 0.8, "sequence": "top-k;temperature"}, {"top_k": 5}),
    ],
)
def test_settings_of_sampling_are_read_as_llama_cpp_reads_them(said, settings):
    """As numbers and as llama.cpp hands them out, as text."""
    for form in (lambda value: value, lambda value: f"{value:.6f}" if isinstance(value, float) else str(value)):
        read = {f"general.sampling.{name}": form(value) for name, value in said.items()}
        assert sampling_of(read.get) == settings
    for wrong in ("warm", float("nan"), [1]):
        with pytest.raises(ModelError, match=r"says general\.sampling\.top_k is .*: get it again"):
            sampling_of({"general.sampling.top_k": wrong}.get)
