"""Smaller copies of GGUF files: what is in them, when they are made, and when not."""

from __future__ import annotations

import os

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter, quants

from draftwood.engines.llama_cpp import quantised_file
from draftwood.engines.llama_cpp.quantised_file import files, quantised_copy
from draftwood.errors import CapabilityError, ModelError


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "cache"))


def types_of(path):
    return {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(path).tensors}


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_matrices_are_smaller_and_all_else_is_the_source_s(tiny_gguf, kind):
    source = tiny_gguf("llama", kind)
    copy = quantised_copy(source, 4)
    assert copy.stat().st_size < 0.8 * source.stat().st_size
    before, after = GGUFReader(source), GGUFReader(copy)
    same = set(before.fields) - {"general.file_type"}
    assert same <= set(after.fields)
    for name in same:
        if not name.startswith("GGUF."):
            assert after.fields[name].contents() == before.fields[name].contents(), name
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert (old.name, old.shape.tolist()) == (new.name, new.shape.tolist())
        if len(old.shape) == 1:
            assert np.array_equal(old.data, new.data)
            continue
        exact = quants.dequantize(old.data, old.tensor_type)
        assert new.tensor_type.name == ("Q8_0" if old.name in quantised_file._HEADS else "Q4_0")
        assert np.array_equal(new.data, quants.quantize(exact, new.tensor_type))


@pytest.mark.parametrize("family", ["gemma3", "mamba"])
@pytest.mark.parametrize("bits", [4, 8])
def test_llama_cpp_loads_the_copy_and_its_texts_are_exact(tiny_gguf, family, bits):
    pytest.importorskip("xllamacpp")
    import draftwood

    target, tokenizer = draftwood.load(quantised_copy(tiny_gguf(family), bits), threads=1)
    texts = [
        draftwood.generate(target, "a b a b", tokenizer=tokenizer, max_new_tokens=8, drafters=drafters).ids
        for drafters in ("none", "suffix")
    ]
    assert texts[0] == texts[1]


def test_a_copy_is_made_once_per_file_and_bits(tiny_gguf):
    source = tiny_gguf("llama")
    copy = quantised_copy(source, 4)
    written = copy.stat().st_ino
    assert quantised_copy(source, 4) == copy
    assert copy.stat().st_ino == written
    assert quantised_copy(source, 8) != copy
    assert set(files()) == {copy, quantised_copy(source, 8)}


def test_a_source_that_changed_gets_another_copy(tiny_gguf, tmp_path):
    source = tmp_path / "model.gguf"
    source.write_bytes(tiny_gguf("llama").read_bytes())
    first = quantised_copy(source)
    os.utime(source, ns=(1, 1))
    assert quantised_copy(source) != first


def test_the_copy_that_was_not_asked_for_the_longest_goes(tiny_gguf, tmp_path, monkeypatch):
    monkeypatch.setattr(quantised_file, "_MOST_FILES", 2)
    copies = []
    for number in range(3):
        source = tmp_path / f"{number}.gguf"
        source.write_bytes(tiny_gguf("llama").read_bytes())
        copies.append(quantised_copy(source))
        os.utime(copies[-1], (number, number))
    quantised_copy(tmp_path / "1.gguf")
    assert [copy.exists() for copy in copies] == [False, True, True]
    assert files() == [copies[2], copies[1]]


def test_an_interrupt_leaves_nothing(tiny_gguf, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(quantised_file, "_converted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quantised_copy(tiny_gguf("llama"))
    assert list(quantised_file.folder().iterdir()) == []


def test_what_gets_no_copy(tiny_gguf, tmp_path, monkeypatch):
    with pytest.raises(
        CapabilityError, match=r"has .* bits per weight, so a copy in 4 bits would save too little"
    ):
        quantised_copy(tiny_gguf("llama", "Q4_0"))
    with pytest.raises(CapabilityError, match=r"has 8\.\d bits per weight"):
        quantised_copy(tiny_gguf("llama", "Q8_0"), 8)
    with pytest.raises(CapabilityError, match="choose 4 or 8"):
        quantised_copy(tiny_gguf("llama"), 3)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and no more")
    with pytest.raises(ModelError, match="cannot be read"):
        quantised_copy(broken)
    monkeypatch.setattr(quantised_file, "_SPARE", 1 << 60)
    with pytest.raises(CapabilityError, match="does not fit on the disk"):
        quantised_copy(tiny_gguf("llama"))


def test_one_of_several_parts_gets_no_copy(tmp_path):
    part = tmp_path / "part.gguf"
    writer = GGUFWriter(part, "llama")
    writer.add_uint16("split.count", 2)
    writer.add_tensor("blk.0.ffn_up.weight", np.ones((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CapabilityError, match="one of several parts"):
        quantised_copy(part)


def test_shapes_that_fit_no_block_keep_their_type(tmp_path):
    source = tmp_path / "odd.gguf"
    writer = GGUFWriter(source, "llama")
    writer.add_tensor("blk.0.ffn_up.weight", np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))
    writer.add_tensor("blk.0.ffn_down.weight", np.ones((8, 33), np.float32))
    writer.add_tensor("blk.0.ssm_conv1d.weight", np.ones((8, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert types_of(quantised_copy(source)) == {
        "blk.0.ffn_up.weight": "Q4_0",
        "blk.0.ffn_down.weight": "F32",
        "blk.0.ssm_conv1d.weight": "F32",
    }
