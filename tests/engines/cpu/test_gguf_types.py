"""Numbers of GGUF's types are those that the gguf package reads, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from draftwood.engines.cpu.formats import FORMATS, GROUP
from draftwood.engines.cpu.gguf_types import blocks_of, codes_of, dequantised, read_codes, read_floats
from draftwood.engines.cpu.planes import plane_of_bits, swapped_fields
from draftwood.errors import UnsupportedModelError
from tests.engines.cpu.random_blocks import KINDS, random_rows


def _bits(numbers: np.ndarray) -> np.ndarray:
    return numbers.view(np.uint32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (7, 5), (40, 3)])
def test_weights_are_those_of_the_gguf_package(kind, rows, blocks):
    raw = random_rows(kind, rows, blocks)
    weights = dequantised(read_codes(kind, raw), FORMATS[kind])
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(_bits(weights), _bits(quants.dequantize(raw, GGMLQuantizationType[kind])))


@pytest.mark.parametrize("kind", KINDS)
def test_codes_have_the_shapes_and_types_that_are_promised(kind):
    form, raw = FORMATS[kind], random_rows(kind, 3, 4)
    codes = read_codes(kind, raw)
    inputs = 4 * GROUP * form.groups
    assert (codes.codes.shape, codes.codes.dtype) == ((3, inputs), np.uint8)
    assert (codes.scale.shape, codes.scale.dtype) == ((3, 4), np.float16)
    assert int(codes.codes.max()) < 1 << sum(form.planes)
    assert (codes.least is not None) == form.least
    assert (codes.factors is not None) == bool(form.factors)
    assert (codes.least_factors is not None) == (form.least and bool(form.factors))
    if codes.least is not None:
        assert (codes.least.shape, codes.least.dtype) == ((3, 4), np.float16)
    if codes.factors is not None:
        assert codes.factors.shape == (3, inputs // GROUP * form.factors)
        assert codes.factors.dtype == (np.int8 if form.signed else np.uint8)
    if codes.least_factors is not None:
        assert (codes.least_factors.shape, codes.least_factors.dtype) == (codes.factors.shape, np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_planes_and_codes_hold_the_same(kind):
    codes = read_codes(kind, random_rows(kind, 3, 2))
    again = codes_of(blocks_of(codes, FORMATS[kind]), FORMATS[kind])
    np.testing.assert_array_equal(again.codes, codes.codes)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_floats_are_those_of_the_gguf_package(kind):
    numbers = np.random.default_rng(1).normal(size=(5, 9)).astype(np.float32)
    raw = quants.quantize(numbers, GGMLQuantizationType[kind]).view(np.uint8)
    want = quants.dequantize(raw, GGMLQuantizationType[kind])
    np.testing.assert_array_equal(_bits(read_floats(kind, raw)), _bits(want.reshape(5, 9)))


@pytest.mark.parametrize("kind", ["IQ2_XXS", "TQ1_0", "Q8_K", "F32", "type 77"])
def test_types_without_a_format_are_refused_by_name(kind):
    with pytest.raises(UnsupportedModelError, match=kind):
        read_codes(kind, np.zeros((1, 256), np.uint8))


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
