"""One target per model, shared by all calls and threads, and made again when the model has changed:
`shared_target` compares the shadow and the packed copies with the model whenever a call begins."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from torch import nn

from draftwood.child_safe import ChildSafeLock
from draftwood.engines.per_model import PerModel
from draftwood.engines.transformers.families import layer_windows, refuse_autocast, refuse_unsupported, text_config
from draftwood.engines.transformers.native.target import NativeTarget
from draftwood.engines.transformers.seen import Seen, trial_key
from draftwood.engines.transformers.selftest import agreeing
from draftwood.engines.transformers.shadow import ModelTarget, is_released
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import UnsupportedModelError, UsageError
from draftwood.local import findings

Way = Callable[[], ModelTarget]


class _Model:
    """What is known of a model: how its passes are to run, its target, and what the model was when it was made.
    ``lock`` is held while the target is looked up or made, so that concurrent first calls make only one."""

    def __init__(self) -> None:
        self.lock = ChildSafeLock()
        self.packs, self.is_released = True, False
        self.seen: Seen | None = None
        self.made: ModelTarget | None = None
        self._process = 0

    @property
    def target(self) -> ModelTarget | None:
        """The target; None also in a child of fork, where another thread may have been in the middle of it. That
        of a released model is kept: the model has no other weights."""
        if self._process != os.getpid() and not self.is_released:
            self.made = None
        return self.made

    def keep(self, target: ModelTarget, seen: Seen) -> None:
        self.made, self.seen, self._process = target, seen, os.getpid()


_models = PerModel(_Model)
_passed: dict[str, str] = {}  # per `trial_key` of a model: which way passed the self-test in this process


def prepare(model: Any, *, pack: bool, release: bool = False) -> ModelTarget:
    """Choose how passes over this model run from now on, and make its target; see `draftwood.prepare`."""
    known = _models.of(model)
    with known.lock:
        if known.is_released:
            if not pack:
                raise UsageError("the weights of this model were released: load it again")
            return shared_target(model)
        if pack != known.packs:
            known.made, known.packs = None, pack
        target = shared_target(model)
        if release:
            _release(model, known, target)
        return target


def _release(model: Any, known: _Model, target: ModelTarget) -> None:
    """Free the weights that passes read from packed copies only."""
    if not target.owns_weights or target.packing is None:
        raise UsageError(
            f"the weights of {type(model).__name__} cannot be released: its passes still read them (only "
            "models that run on the lean pass, packed, on a CPU can do without)"
        )
    embedding = model.get_input_embeddings().weight.data_ptr()
    known.is_released = True  # first: what an interrupt leaves must not pass for a whole model
    try:
        for module in model.modules():
            if type(module) is nn.Linear and module.weight.data_ptr() != embedding:  # a tied head is the embedding
                module.weight.data = module.weight.data.new_empty(0)
        for weight in model.parameters():  # the others would keep their whole file mapped
            weight.data = weight.data.clone()
    finally:
        target.packing.let_go()
        model.register_state_dict_pre_hook(_refuse_saving)
        known.keep(target, Seen(model))


def _refuse_saving(*_: object) -> None:
    raise UsageError("the weights of this model were released, so it cannot be saved: load it again")


def packs(model: Any) -> bool:
    """Return whether passes over this model run on packed weights where the machine can."""
    return _models.of(model).packs


def known_target(model: Any) -> ModelTarget:
    """Return the target of this model, made if there is none, without checking the model for changes."""
    known = _models.of(model)
    with known.lock:
        return known.target or shared_target(model)


def shared_target(model: Any) -> ModelTarget:
    """Return the target of this model, which lives as long as it; a new one if the model has changed since the
    last call. The check takes a millisecond or two, with packed weights on a CPU a plain pass. Raises
    `UnsupportedModelError` if no way to run the model gives its own scores, `UsageError` within torch.autocast and
    for a model that was changed after its weights were released."""
    refuse_autocast(model)
    known = _models.of(model)
    with known.lock:
        target = known.target
        is_known = target is not None and known.seen is not None and known.seen.is_unchanged()
        if target is not None and is_known and (target.packing is None or target.packing.is_current()):
            return target
        if known.is_released:
            raise UsageError("this model was changed after its weights were released: load it again")
        target = known.made = None  # frees outdated packed copies before new ones are made
        seen = Seen(model)
        target = open_target(model)
        known.keep(target, seen)
        return target


def open_target(model: Any) -> ModelTarget:
    """Make a target that runs the model in the first of `ways` that passes the self-test.

    What passed is remembered by `trial_key`. In the same process that way is taken again without a trial. A later
    process tries it first, and briefly; where it is the lean pass, over the same weights, without a trial.
    """
    packed = packs(model)
    refuse_unsupported(model)
    if is_released(model):
        raise UsageError("this model is a copy of a model that was released, or shares its modules: load it again")
    found = ways(model, packed)
    key = trial_key(model, packed=packed)
    if key in _passed:
        with suppress(Exception):  # short of memory, say: then another way may do
            return found[_passed[key]]()
    tries = [(name, False) for name in found]
    if (before := _remembered(key)) is not None and before in found:
        tries.insert(0, (before, True))
    reason = ""
    for name, brief in tries:
        target, reason = agreeing(found[name], model, partial(_was_tried, key, name), brief=brief)
        if target is None:
            continue
        if key is not None:
            _passed[key] = name
        for place in (None if brief else key, _weights_key(key, target)):
            if place is not None and _remembered(place) != name:
                findings.write(findings.place_of(findings.TRIAL, place), name)
        return target
    raise UnsupportedModelError(
        f"no way that we know to run {type(model).__name__} behind a cache gives its own scores, so drafts "
        f"cannot be checked (the last: {reason}): use model.generate"
    )


def ways(model: Any, packed: bool) -> dict[str, Way]:
    """Return how a model may be run, best first, by names. On our cache: the lean pass, transformers' modules with
    trees, with chains. Then the model's own forward and cache: with chains, one token at a time."""
    own = partial(NativeTarget, model, packed=packed)
    found: dict[str, Way] = {"own cache": own, "own cache, token by token": partial(own, step_by_step=True)}
    if layer_windows(text_config(model)) is not None:
        ours = partial(TransformersTarget, model, packed=packed)
        modules = partial(ours, lean=False)
        found = {"lean": ours, "modules": modules, "modules, chains": partial(modules, trees=False)} | found
    return found


def _remembered(key: str | None) -> str | None:
    """Return the name of the way that passed under this key in an earlier process, if that is known."""
    found = None if key is None else findings.read(findings.place_of(findings.TRIAL, key))
    return found if isinstance(found, str) else None


def _was_tried(key: str | None, name: str, target: ModelTarget) -> bool:
    return _remembered(_weights_key(key, target)) == name


def _weights_key(key: str | None, target: ModelTarget) -> str | None:
    """Return the key of a trial with these weights, bit for bit. None but for the lean pass on packed weights: its
    code and its numbers are all that its scores come from, and other ways run code of the model's."""
    if key is None or not target.owns_weights or target.packing is None:
        return None
    facts = (key, target.packing.digests(), target.contents())
    return hashlib.sha256(repr(facts).encode()).hexdigest()
