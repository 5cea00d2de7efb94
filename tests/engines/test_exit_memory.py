"""A draft by some of the target's layers has no weights and no cache of its own."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from draftwood.engines.transformers.self_draft import early_exit
from draftwood.engines.transformers.target import TransformersTarget
from tests.engines.tiny import build

_SHARED = (type, types.ModuleType)  # what every object leads to, and nothing of a model


def tensors(root: Any) -> Iterator[torch.Tensor]:
    """Tensors that an object leads to, through closures too, but not through modules and classes."""
    seen, left = set[int](), [root]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, types.FunctionType):
            left += [one.__closure__ or (), one.__defaults__ or (), one.__kwdefaults__ or {}]
        else:
            left += gc.get_referents(one)


def storages(root: Any) -> dict[Any, int]:
    """Bytes of each tensor's memory; packed weights, whose memory is hidden, go by the object."""
    found = {}
    for tensor in tensors(root):
        hidden = tensor.layout is not torch.strided
        key = id(tensor) if hidden else tensor.untyped_storage().data_ptr()
        found[key] = tensor.numel() * tensor.element_size() if hidden else tensor.untyped_storage().nbytes()
    return found


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("layers", ["1", "0.2", "2"])
def test_an_exit_adds_at_most_a_hundredth_of_memory(packed, layers):
    model = build("llama")
    target = TransformersTarget(model, packed=packed)
    ((session, _),) = target.open([[3, 1, 4, 1, 5]])
    before = storages(target) | storages(model)
    size, rows = sum(before.values()), target.arena.capacity
    part = early_exit(target, layers)
    for length in (1, 4):
        part.grow([(session, [7] * length, list(range(-1, length - 1)))])
        session.truncate(session.length)
    added = {key: count for key, count in storages(part).items() if key not in before}
    assert size > sum(weight.nbytes for weight in model.parameters())
    assert sum(added.values()) <= size / 100
    assert target.arena.capacity == rows
    assert part.arena is target.arena
    assert len(storages(part.decoder)) > 5, "its weights are found"
    assert storages(part.decoder).keys() <= before.keys(), "no weights of its own"


def test_a_copy_of_a_weight_would_be_seen():
    target = TransformersTarget(build("llama"), packed=False)
    before = storages(target)
    part = early_exit(target, "1")
    part.decoder._embedding = part.decoder._embedding.clone()
    assert [count for key, count in storages(part).items() if key not in before] == [64 * 32 * 4]
