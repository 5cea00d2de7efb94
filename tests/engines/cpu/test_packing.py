"""Numbers of GGUF's types are those that the gguf package reads, to the last bit; packed weights hold the same
numbers, and lie where `formats` says."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from draftwood.engines.cpu.packing import packed_shape, packing, plan
from draftwood.engines.files.formats import FORMATS, GROUP, TILE, Format, codes_from_planes, planes_from_codes
from draftwood.engines.files.gguf_blocks import Blocks, plane_of_bits, swapped_fields
from draftwood.engines.files.gguf_file import Tensor
from draftwood.engines.files.gguf_types import dequantised, read_blocks, read_floats
from draftwood.errors import ModelError, UnsupportedModelError
from tests.engines.cpu.make_grids import FILE, grids
from tests.engines.cpu.small_models import packed_tensor, random_rows, tensor_of, zeros


def naive_tiles(kind: str, raw: np.ndarray) -> np.ndarray:
    """Pack one number after another, by the words of `formats`."""
    form, rows = FORMATS[kind], read_blocks(kind, raw)
    codes = codes_from_planes(rows.planes, form)
    tiles = np.zeros((-(-len(codes) // TILE), rows.scale.shape[1], form.block_bytes), np.uint8)
    for output in range(len(codes)):
        for block in range(tiles.shape[1]):
            _naive_block(tiles[output // TILE, block], rows, codes[output], form, output, block)
    return tiles


def _naive_block(
    place: np.ndarray, rows: Blocks, codes: np.ndarray, form: Format, output: int, block: int
) -> None:
    column, at = output % TILE, 0
    for half in (rows.scale, rows.least) if form.least else (rows.scale,):
        size = half.itemsize
        place[at + size * column : at + size * (column + 1)] = half[output, block : block + 1].view(np.uint8)
        at += size * TILE
    for group in range(block * form.groups, (block + 1) * form.groups):
        for factors in (rows.factors, rows.least_factors):
            for i in range(form.factors if factors is not None else 0):
                place[at + column] = int(factors[output, group * form.factors + i]) & 255
                at += TILE
    for group in range(block * form.groups, (block + 1) * form.groups):
        below = 0
        for bits in form.planes:
            for vector in range(bits):
                for field in range(8 // bits):
                    step = vector + bits * field
                    for i in range(4):
                        code = int(codes[group * GROUP + 4 * step + i])
                        part = code >> below & ((1 << bits) - 1)
                        place[at + 64 * vector + 4 * column + i] |= part << (bits * field)
            at, below = at + 64 * bits, below + bits


def rows_of(kind: str, outputs: int, blocks: int) -> tuple[np.ndarray, int]:
    return random_rows(kind, outputs, blocks), blocks * GROUP * FORMATS[kind].groups


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("outputs", [3, 16, 21])
def test_codes_lie_where_the_format_says(kind, outputs):
    raw, inputs = rows_of(kind, outputs, 2)
    np.testing.assert_array_equal(packed_tensor(tensor_of(kind, raw, inputs)), naive_tiles(kind, raw))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("outputs", [1, 32, 53])
def test_a_tensor_is_packed_in_pieces_as_it_is_at_once(kind, outputs, monkeypatch):
    raw, inputs = rows_of(kind, outputs, 3)
    tensor = tensor_of(kind, raw, inputs)
    want = packed_tensor(tensor)
    monkeypatch.setattr("draftwood.engines.cpu.packing._AT_ONCE", 16 * inputs)
    np.testing.assert_array_equal(packed_tensor(tensor), want)
    counted: list[int] = []
    packed, pieces = plan(tensor, None, zeros)
    with packing(pieces, 3, counted.append):
        pass
    assert sum(counted) == packed.nbytes
    np.testing.assert_array_equal(packed, want)
    assert packed.ctypes.data % 64 == 0


def test_packing_reads_bytes_that_begin_anywhere():
    raw, inputs = rows_of("Q4_1", 17, 3)
    room = np.zeros(raw.size + 1, np.uint8)
    odd = room[1:].reshape(raw.shape)
    odd[...] = raw
    np.testing.assert_array_equal(
        packed_tensor(tensor_of("Q4_1", odd, inputs)), packed_tensor(tensor_of("Q4_1", raw, inputs))
    )


@pytest.mark.parametrize("kind", ["Q4_1", "Q6_K", "F16"])
def test_some_rows_are_packed_in_the_order_asked_for(kind, monkeypatch):
    raw = random_rows(kind, 40, 2) if kind in FORMATS else np.arange(40 * 64, dtype=np.uint16).view(np.uint8)
    raw, inputs = raw.reshape(40, -1), 2 * GROUP * FORMATS[kind].groups if kind in FORMATS else 64
    monkeypatch.setattr("draftwood.engines.cpu.packing._AT_ONCE", 16 * inputs)
    order = np.random.default_rng(3).permutation(40)[:35]
    tensor = tensor_of(kind, raw, inputs)
    for rows in (order, slice(5, 38), slice(0, 40, 2)):
        want = packed_tensor(tensor_of(kind, np.ascontiguousarray(raw[rows]), inputs))
        np.testing.assert_array_equal(packed_tensor(tensor, rows), want)


@pytest.mark.parametrize("kind", ["Q4_K", "MXFP4", "IQ3_XXS", "IQ1_M", "Q1_0"])
def test_each_expert_is_packed_for_itself(kind):
    raw, inputs = rows_of(kind, 3 * 20, 2)
    experts = raw.reshape(3, 20, -1)
    packed = packed_tensor(tensor_of(kind, experts, inputs))
    assert packed.shape == (3, 2, 2, FORMATS[kind].block_bytes)
    for expert, tiles in zip(experts, packed, strict=True):
        np.testing.assert_array_equal(tiles, packed_tensor(tensor_of(kind, expert, inputs)))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_floats_stand_sixteen_outputs_side_by_side(kind):
    numbers = np.random.default_rng(4).normal(size=(21, 10)).astype(np.float32)
    raw = quants.quantize(numbers, GGMLQuantizationType[kind]).view(np.uint8)
    packed = packed_tensor(tensor_of(kind, raw, 10))
    assert packed.dtype == (np.float32 if kind == "F32" else np.uint16)
    want = np.zeros((32, 10), packed.dtype)
    want[:21] = raw.view(packed.dtype)
    np.testing.assert_array_equal(packed, want.reshape(2, 16, 10).transpose(0, 2, 1))


def test_what_a_thread_cannot_pack_is_raised_at_the_end(monkeypatch):
    raw, inputs = rows_of("Q4_1", 20, 2)
    monkeypatch.setattr("draftwood.engines.cpu.packing.write_tiles", lambda *_: 1 / 0)
    _, pieces = plan(tensor_of("Q4_1", raw, inputs), None, zeros)
    for threads in (0, 2):
        with pytest.raises(ZeroDivisionError), packing(pieces, threads, int):
            pass


def test_inputs_that_are_no_whole_blocks_are_refused():
    with pytest.raises(ModelError, match="96 inputs are no multiple of the 256"):
        packed_shape("Q6_K", 16, 96)


def test_a_type_without_a_format_is_refused():
    with pytest.raises(UnsupportedModelError, match="Q8_K"):
        packed_tensor(Tensor("some.weight", "Q8_K", (16, 256), np.zeros((16, 292), np.uint8)))
    with pytest.raises(UnsupportedModelError, match="unknown type 77"):
        packed_tensor(Tensor("some.weight", "type 77", (16, 256), None))


def test_a_vector_is_no_matrix():
    with pytest.raises(ModelError, match=r"some\.weight"):
        packed_tensor(Tensor("some.weight", "F32", (16,), np.zeros(64, np.uint8)))


def _bits(numbers: np.ndarray) -> np.ndarray:
    return numbers.view(np.uint32)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (7, 5), (40, 3)])
def test_weights_are_those_of_the_gguf_package(kind, rows, blocks):
    raw = random_rows(kind, rows, blocks)
    weights = dequantised(read_blocks(kind, raw), FORMATS[kind])
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(_bits(weights), _bits(truth_of(kind, raw)))


def truth_of(kind: str, raw: np.ndarray) -> np.ndarray:
    """Return the weights that the gguf package reads, with the formula of the one type that it does not know."""
    if kind != "Q1_0":
        return quants.dequantize(raw, GGMLQuantizationType[kind]).reshape(len(raw), -1)
    blocks = raw.reshape(len(raw), -1, 18)
    signs = 2 * np.unpackbits(blocks[..., 2:], axis=-1, bitorder="little").astype(np.float32) - 1
    scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    return (scale * signs).reshape(len(raw), -1)


def test_the_file_of_grids_is_what_its_script_writes():
    assert FILE.read_bytes() == grids()


@pytest.mark.parametrize(("exponent", "code"), [(103, 0x10), (144, 0x01), (0, 0x80), (255, 0x08), (0, 0xF0)])
def test_blocks_of_mxfp4_outside_of_float16_are_refused_unless_they_are_zero(exponent, code):
    raw = random_rows("MXFP4", 1, 3)
    raw[0, 17:34] = [exponent, *[0x00] * 15, code]
    if code & 0x77:
        with pytest.raises(UnsupportedModelError, match=r"MXFP4 are too large or too small .*: get the model in"):
            read_blocks("MXFP4", raw)
    else:
        assert not dequantised(read_blocks("MXFP4", raw), FORMATS["MXFP4"])[0, 32:64].any()


def test_scales_of_nvfp4_are_those_of_the_gguf_package_whatever_their_bytes():
    """4,096 blocks of random bytes, among them those that are no number elsewhere, or negative."""
    raw = np.random.default_rng(0).integers(0, 256, (64, 64 * 36), dtype=np.uint8)
    raw.reshape(64, 64, 36)[:4, :, :4] = np.arange(4 * 64 * 4, dtype=np.int64).reshape(4, 64, 4) & 255
    want = quants.dequantize(raw, GGMLQuantizationType.NVFP4)
    for scale in (1.0, 0.25):
        found = dequantised(read_blocks("NVFP4", raw, scale), FORMATS["NVFP4"])
        np.testing.assert_array_equal(_bits(found), _bits(want * np.float32(scale)))


@pytest.mark.parametrize("kind", FORMATS)
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


@pytest.mark.parametrize("kind", ["Q8_1", "Q8_K", "F32", "type 77"])
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
