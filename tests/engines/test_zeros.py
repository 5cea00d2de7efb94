"""A cache takes memory where it is written to."""

import resource
import sys
from pathlib import Path

import pytest
import torch

from draftwood.engines.transformers.cache import Arena, zeros


def resident():
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 5, 7, 2), (4, 3, 2000, 64)])
def test_new_buffers_are_zeros_that_can_be_written_to_in_a_pass(shape, dtype):
    slots, heads, rows, dim = shape
    with torch.inference_mode():
        made = zeros(slots, rows, torch.ones(heads, 1, dim, dtype=dtype))
    assert (made.shape, made.dtype) == (shape, dtype)
    assert not made.any()
    with torch.inference_mode():
        made[-1] = 1
    assert made.sum() == made[-1].numel()
    made += 1  # outside of a pass too


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_short_texts_beside_a_long_one_take_what_they_fill():
    arena = Arena([None])
    rows = torch.ones(2, 64, 64)  # heads, rows, numbers of a head
    arena.prepare(16, 64)
    arena.take(64)
    arena.buffers(0, rows, rows)
    for _ in range(15):
        slot = arena.take(64)
        arena.wrote(slot, 64)
        for tensor in arena.buffers(0, rows, rows):
            tensor[slot, :, :64] = rows
    before = resident()
    arena.reserve(8192)
    held = [tensor[1, :, :64].clone() for tensor in arena.buffers(0, rows, rows)]
    assert all(torch.equal(some, rows) for some in held)
    assert sum(buffer.nbytes for buffer in arena.tensors()) > 100 << 20
    assert resident() - before < sum(buffer.nbytes for buffer in arena.tensors()) / 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_growing_beside_a_long_text_takes_no_more():
    arena = Arena([None])
    rows = torch.ones(2, 64, 64)
    arena.prepare(16, 8192)
    slots = [arena.take(8192) for _ in range(16)]
    for tensor in arena.buffers(0, rows, rows):
        for slot in slots:
            arena.wrote(slot, 64)
            tensor[slot, :, :64] = rows
    before = resident()
    arena.reserve(8193)  # all slots are copied, of which few rows were written
    for tensor in arena.buffers(0, rows, rows):
        assert all(torch.equal(tensor[slot, :, :64], rows) for slot in slots)
    assert resident() - before < sum(buffer.nbytes for buffer in arena.tensors()) / 8


def test_a_slot_given_back_is_all_zeros():
    arena = Arena([None, 8])
    rows = torch.ones(2, 4, 16)
    slot = arena.take(32)
    buffers = [*arena.buffers(0, rows, rows), *arena.buffers(1, rows, rows)]
    arena.wrote(slot, 8)
    for tensor in buffers:
        tensor[slot, :, 4:8] = rows
    arena.clear(slot, 6)
    assert buffers[2][slot, :, 4:6].all()
    assert not buffers[2][slot, :, 6:].any()
    assert not buffers[0][slot, :, 7].any()
    arena.give_back(slot)
    assert not any(tensor.any() for tensor in buffers)
