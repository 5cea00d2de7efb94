"""One target per model, shared by all calls; the first way to run it that passes its self-test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from torch import nn

from draftwood.contracts import Target
from draftwood.engines.transformers.families import layer_windows, refuse_unsupported, text_config
from draftwood.engines.transformers.native.target import NativeTarget
from draftwood.engines.transformers.selftest import agreeing
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import UnsupportedModelError, UsageError

Way = Callable[[], Target]
Fingerprint = tuple[tuple[int, int], ...]
_targets: WeakKeyDictionary[Any, tuple[Fingerprint, Target]] = WeakKeyDictionary()
_unpacked: WeakSet[Any] = WeakSet()
_released: WeakSet[Any] = WeakSet()
_passed: dict[tuple[Any, ...], int] = {}
"""Per class and configuration of a model, which way passed the self-test."""


def prepare(model: Any, *, pack: bool, release: bool = False) -> Target:
    """Choose how passes over this model run, from now on, and make its target; see `draftwood.prepare`."""
    if model in _released:
        if not pack:
            raise UsageError("the weights of this model were released, only packed ones are left: load it again")
        return shared_target(model)
    if pack == (model in _unpacked):
        _targets.pop(model, None)
        (_unpacked.discard if pack else _unpacked.add)(model)
    target = shared_target(model)
    if release:
        _release(model, target)
    return target


def _release(model: Any, target: Target) -> None:
    """Let go of the weights that passes read from packed copies only."""
    if not (isinstance(target, TransformersTarget) and target.owns_weights):
        raise UsageError(
            f"the weights of {type(model).__name__} cannot be released: its passes do not run on packed copies "
            "alone (on a CPU, of a model that runs lean, they do)"
        )
    embedding = model.get_input_embeddings().weight.data_ptr()
    _released.add(model)  # first: what an interrupt leaves must not be taken for a whole model
    try:
        for module in model.modules():
            if type(module) is nn.Linear and module.weight.data_ptr() != embedding:  # a tied head is the embedding
                module.weight.data = module.weight.data.new_empty(0)
    finally:
        _targets[model] = (_fingerprint(model), target)


def packs(model: Any) -> bool:
    """Return whether passes over this model run on packed weights where the machine can."""
    return model not in _unpacked


def shared_target(model: Any) -> Target:
    """Return the target of this model; a new one if its weights were moved, converted or edited since.

    The target lives as long as the model does.

    Raises
    ------
    UnsupportedModelError
        If no way to run the model gives the scores that the model itself gives.
    UsageError
        If the model was changed after its weights were released.
    """
    now = _fingerprint(model)
    known = _targets.get(model)
    if known is None or known[0] != now:
        if model in _released:
            raise UsageError("this model was changed after its weights were released: load it again")
        _targets.pop(model, None)  # its packed weights go before others are made
        known = (now, open_target(model))
        _targets[model] = known
    return known[1]


def open_target(model: Any) -> Target:
    """Make a target of the first of `ways` that passes the self-test; the result is remembered per model class."""
    refuse_unsupported(model)
    found = ways(model)
    kind = _kind(model)
    if kind in _passed:
        with suppress(Exception):  # short of memory, say: then another way may do
            return found[_passed[kind]]()
    reasons = []
    for index, make in enumerate(found):
        target, reason = agreeing(make, model)
        if target is not None:
            _passed[kind] = index
            return target
        reasons.append(reason)
    raise UnsupportedModelError(
        f"no way that we know to run {type(model).__name__} behind a cache gives its own scores, so drafts "
        f"cannot be checked (the last: {reasons[-1]}): use model.generate"
    )


def ways(model: Any) -> list[Way]:
    """Return how a model may be run, best first.

    Our cache and a lean pass, transformers' modules, chains instead of trees; then the model's own cache with
    trees, with chains, one token at a time.
    """
    packed = packs(model)
    native = partial(NativeTarget, model, packed=packed)
    found: list[Way] = [partial(native, trees=True), native, partial(native, step_by_step=True)]
    if layer_windows(text_config(model)) is not None:
        own = partial(TransformersTarget, model, packed=packed)
        found = [own, partial(own, lean=False), partial(own, lean=False, trees=False), *found]
    return found


def _fingerprint(model: Any) -> Fingerprint:
    """Where weights and buffers are, and in which version; which hooks hang where."""
    tensors = (*model.parameters(), *model.buffers())
    return (*((t.data_ptr(), t._version) for t in tensors), *_hooks(model))


def _hooks(model: Any) -> list[tuple[int, int]]:
    return [
        (number, id(hook))
        for number, module in enumerate(model.modules())
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]


def _kind(model: Any) -> tuple[Any, ...]:
    weight, config = model.get_input_embeddings().weight, model.config
    where = (weight.dtype, weight.device.type, model in _unpacked, bool(_hooks(model)))
    return type(model), config._attn_implementation, config.to_json_string(), *where
