"""Numbers of GGUF's types are those that the gguf package reads, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from draftwood.engines.cpu.formats import FORMATS, codes_from_planes, planes_from_codes
from draftwood.engines.cpu.gguf_types import dequantised, plane_of_bits, read_blocks, read_floats, swapped_fields
from draftwood.errors import UnsupportedModelError
from tests.engines.cpu.random_blocks import KINDS, random_rows


def _bits(numbers: np.ndarray) -> np.ndarray:
    return numbers.view(np.uint32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (7, 5), (40, 3)])
def test_weights_are_those_of_the_gguf_package(kind, rows, blocks):
    raw = random_rows(kind, rows, blocks)
    weights = dequantised(read_blocks(kind, raw), FORMATS[kind])
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(_bits(weights), _bits(quants.dequantize(raw, GGMLQuantizationType[kind])))


@pytest.mark.parametrize("kind", KINDS)
def test_planes_and_codes_hold_the_same(kind):
    planes = read_blocks(kind, random_rows(kind, 3, 2)).planes
    again = planes_from_codes(codes_from_planes(planes, FORMATS[kind]), FORMATS[kind])
    assert all(np.array_equal(*pair) for pair in zip(planes, again, strict=True))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_floats_are_those_of_the_gguf_package(kind):
    numbers = np.random.default_rng(1).normal(size=(5, 9)).astype(np.float32)
    raw = quants.quantize(numbers, GGMLQuantizationType[kind]).view(np.uint8)
    want = quants.dequantize(raw, GGMLQuantizationType[kind])
    np.testing.assert_array_equal(_bits(read_floats(kind, raw)), _bits(want.reshape(5, 9)))


@pytest.mark.parametrize("kind", ["IQ2_XXS", "TQ1_0", "Q8_K", "F32", "type 77"])
def test_types_without_a_format_are_refused_by_name(kind):
    with pytest.raises(UnsupportedModelError, match=kind):
        read_blocks(kind, np.zeros((1, 256), np.uint8))


def test_quantised_types_are_no_floats():
    with pytest.raises(UnsupportedModelError, match="Q4_0"):
        read_floats("Q4_0", np.zeros((1, 18), np.uint8))


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_fields_and_rows_are_swapped(bits):
    count = 8 // bits
    rows = np.random.default_rng(bits).integers(0, 256, (2, count, 4 * bits), dtype=np.uint8)
    want = np.zeros_like(rows)
    for row in range(count):
        for field in range(count):
            want[:, row] |= (rows[:, field] >> (bits * row) & ((1 << bits) - 1)) << (bits * field)
    before = rows.copy()
    np.testing.assert_array_equal(swapped_fields(rows, bits), want)
    np.testing.assert_array_equal(rows, before)


def test_bits_in_order_become_a_plane():
    bits = np.random.default_rng(2).integers(0, 2, 32, dtype=np.uint8)
    plane = plane_of_bits(np.packbits(bits, bitorder="little"))
    assert [plane[i % 4] >> (i // 4) & 1 for i in range(32)] == bits.tolist()
