"""Products of every format have the bits of a slow twin, on every instruction set that this processor has."""

from __future__ import annotations

import ctypes
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.engines.cpu.blocks.norm import ROUNDED
from draftwood.engines.cpu.code.instructions import INSTRUCTIONS, runnable
from draftwood.engines.cpu.code.kernels import kernels
from draftwood.engines.cpu.code.records import PASS
from draftwood.engines.cpu.code.rounding import GROUP_RECORD, MINUS, STEP, SUMS
from draftwood.engines.files.formats import FORMATS, GROUP, TILE
from tests.engines.cpu.small_models import packed_tensor, random_rows, tensor_of, zeros
from tests.oracles.cpu_arithmetic import F, fma, read_matrix, rounded, same_bits
from tests.tiers import rest_is_slow

FLOATS = ("F32", "F16", "BF16")
PLAIN_TOO = ("Q4_0", "Q8_0", *FLOATS)  # the plain set takes long to compile
CASES = [(kind, name) for name in runnable() for kind in (*FORMATS, *FLOATS)]
QUICK = [(kind, name) for kind, name in CASES if name != "plain" or kind in PLAIN_TOO]
_NUMBER, _PLACE = ctypes.c_int64, ctypes.c_void_p
CORE = ctypes.CFUNCTYPE(
    None, _PLACE, _NUMBER, _NUMBER, _PLACE, _NUMBER, _PLACE, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _NUMBER,
    ctypes.c_float, _PLACE,
)  # fmt: skip
PIECE = ctypes.CFUNCTYPE(None, _PLACE, _PLACE, _NUMBER)


def inputs(rows: int, count: int, seed: int = 0) -> np.ndarray:
    """Rows of float32 with groups that are zero, tiny, or have one large number."""
    random = np.random.default_rng(seed)
    x = random.normal(0, 1, (rows, count)).astype(np.float32)
    for group in range(count // GROUP):
        part = x[group % rows, GROUP * group : GROUP * (group + 1)]
        kind = group % 5
        if kind == 1:
            part[:] = 0
        elif kind == 2:
            part *= np.float32(1e-33)
        elif kind == 3:
            part[7] = 3e4
    return x


def packed_of(kind, outputs, blocks):
    """Return packed weights, the twin's matrix of the same, and the number of inputs."""
    if kind in FORMATS:
        raw, count = random_rows(kind, outputs, blocks), GROUP * FORMATS[kind].groups * blocks
    else:
        count = 32 * blocks + 7 - blocks % 4
        values = np.random.default_rng(1).normal(0, 1, (outputs, count)).astype(np.float32)
        raw = (values.astype(np.float16) if kind == "F16" else values).view(np.uint8)
        if kind == "BF16":
            raw = np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
    return packed_tensor(tensor_of(kind, raw, count)), read_matrix(kind, raw), count


def run_core(name, kind, packed, x, y, tiles, adds=False, scale=1.0, bias=None):
    """Call the compiled product; ``y`` is written in place."""
    core = CORE(kernels(INSTRUCTIONS[name]).product(kind))
    core(
        packed.ctypes.data, packed.shape[1], packed.strides[0], x.ctypes.data, x.strides[0], y.ctypes.data,
        y.strides[0], len(x), *tiles, int(adds), scale, None if bias is None else bias.ctypes.data,
    )  # fmt: skip


def records(x):
    """Return rows of inputs as the engine keeps them once they are rounded: uint8[rows, groups, 64]."""
    whole, step = rounded(x)
    groups = np.nan_to_num(whole).reshape(*step.shape, GROUP)
    found = zeros((*step.shape, GROUP_RECORD), np.uint8)
    found[..., :GROUP] = groups.astype(np.int8).view(np.uint8)
    sums = np.stack([groups[..., :16].sum(-1), groups[..., 16:].sum(-1), groups.sum(-1)], axis=-1)
    found[..., STEP : STEP + 4].view(F)[..., 0] = step
    found[..., SUMS : SUMS + 12].view(np.int32)[...] = sums
    found[..., MINUS : MINUS + 12].view(F)[...] = -step[..., None] * sums.astype(F)
    return found


def stored(total, y, bias, *, adds):
    """Return ``scale * (total + bias)``, or y plus that where it ``adds``, the scale being 0.37."""
    sums = total if bias is None else total + bias
    return fma(sums, F(0.37), y) if adds else sums * F(0.37)


@pytest.mark.parametrize(("kind", "name"), rest_is_slow(CASES, *QUICK))
def test_a_product_has_the_bits_of_its_twin(kind, name):
    outputs = 5 * TILE - 3
    packed, twin, count = packed_of(kind, outputs, 1 if kind in FORMATS and FORMATS[kind].groups > 1 else 6)
    x = inputs(17, count)
    given = records(x) if kind in FORMATS else x
    whole = np.zeros((17, 5 * TILE), dtype=np.float32)
    whole[:, :outputs] = twin.times(x)
    random = np.random.default_rng(2)
    bias = random.normal(size=5 * TILE).astype(np.float32)
    for rows in range(1, 18):
        low = rows % 3
        high = (5, 3, 4, 2)[rows % 4]
        adds, some = rows % 3 == 1, bias if rows % 2 else None
        y = random.normal(size=(rows, 5 * TILE + 8)).astype(np.float32)
        before = y.copy()
        columns = slice(TILE * low, TILE * max(low, high))
        shift = None if some is None else some[columns]
        expected = before.copy()
        expected[:, columns] = stored(whole[:rows, columns], before[:, columns], shift, adds=adds)
        run_core(name, kind, packed, given[:rows], y, (low, high), adds, 0.37, some)
        assert same_bits(y, expected), f"{rows} rows, tiles {low} to {high}"


@pytest.mark.parametrize("name", runnable())
def test_a_row_whose_inputs_are_not_finite_spoils_no_other(name):
    packed, twin, count = packed_of("Q4_0", 2 * TILE, 4)
    x = inputs(9, count)
    x[3, 40], x[5, 1], x[6, 2] = np.nan, np.inf, -np.inf
    y = np.zeros((9, 2 * TILE), dtype=np.float32)
    run_core(name, "Q4_0", packed, records(x), y, (0, 2))
    assert same_bits(y, twin.times(x))
    assert np.isfinite(y).all(axis=1).tolist() == [row not in (3, 5, 6) for row in range(9)]


@pytest.mark.parametrize("name", runnable())
@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "IQ4_NL"])
@pytest.mark.parametrize("largest", [False, True])
def test_the_largest_codes_and_inputs_do_not_overflow(kind, name, largest):
    if name == "plain" and kind not in PLAIN_TOO:
        pytest.skip("takes long to compile")
    codes = (0x80, 0x7F) if kind == "Q8_0" else (0x00, 0xFF)
    raw = random_rows(kind, TILE, 2).reshape(TILE, 2, -1)
    raw[..., 2:] = codes[largest]  # all but the scale
    raw = raw.reshape(TILE, -1)
    x = np.where(np.arange(2 * GROUP) % 64 < 32, 1, -1).astype(np.float32)[None]
    y = np.zeros((1, TILE), dtype=np.float32)
    run_core(name, kind, packed_tensor(tensor_of(kind, raw, 2 * GROUP)), records(x), y, (0, 1))
    assert same_bits(y, read_matrix(kind, raw).times(x))


@pytest.mark.parametrize("name", runnable())
def test_inputs_are_rounded_as_the_twin_rounds_them(name):
    x = inputs(7, 5 * GROUP, seed=3)
    x[1, 5], x[2, 40], x[3, 80] = np.nan, np.inf, -np.inf
    x[4, :GROUP] = np.arange(GROUP) - 15.5  # ties
    out = zeros((7, 5, GROUP_RECORD), np.uint8)
    whole = np.zeros(PASS.slots, dtype=np.int64)
    whole[PASS["rows"]] = 7
    phase = np.array([0, 3, *ROUNDED.slots({"x": x, "out": out, "width": 5 * GROUP})])  # three rows in a piece
    run = PIECE(kernels(INSTRUCTIONS[name])[ROUNDED])
    for piece in range(3):
        run(whole.ctypes.data, phase.ctypes.data, piece)
    truth = records(x)
    finite = np.isfinite(x.reshape(7, 5, GROUP)).all(axis=-1)
    assert np.array_equal(out[finite], truth[finite])
    assert np.isnan(out[..., 32:36].view(np.float32)[~finite]).all()


single = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(single, single, single)
def test_the_fma_of_the_twin_is_rounded_once(a, b, c):
    whole = Fraction(a) * Fraction(b) + Fraction(c)
    with np.errstate(over="ignore"):
        found = fma(*(np.float32([value]) for value in (a, b, c)))[0]
    if not np.isfinite(found):
        assert abs(whole) >= Fraction(float(np.finfo(np.float32).max))
        return
    gap = abs(Fraction(float(found)) - whole)
    with np.errstate(over="ignore"):
        others = np.nextafter(found, np.float32(-np.inf)), np.nextafter(found, np.float32(np.inf))
    for other in others:
        if np.isfinite(other):
            further = abs(Fraction(float(other)) - whole)
            assert gap < further or (gap == further and not found.view(np.int32) & 1)
