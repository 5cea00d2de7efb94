"""A record of a model, taken when a target is made of it, to notice later changes.

A shadow shares the model's tensors, but has its own module dictionaries and configurations, so changes to those do
not reach it. `Seen` records them, and the functions of the modules' classes, and compares them with the model as
it is now: an adapter that was switched, an activation, a number, a hook or a forward that was replaced, a tensor
that was exchanged. What is written *into* a tensor is shared and needs no notice, except where it was copied into
packed weights: `draftwood.engines.transformers.pack`.
"""

from __future__ import annotations

import copy
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any
from weakref import ref

from torch import Tensor, nn
from transformers import PreTrainedConfig

_UNREAD = frozenset({"training", "generation_config", "generate", "_backward_hooks", "_backward_pre_hooks"})
"""What modules hold that no pass of ours reads."""

_OWN_CODE = frozenset({"forward", "_forward_hooks", "_forward_pre_hooks", "_hf_hook"})
"""Attributes that attach code to a single module."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)

_LIBRARIES = ("torch.", "transformers.modeling_utils", "transformers.generation.", "transformers.integrations.")
"""Prefixes of Python modules; of the functions of classes defined there only ``forward`` is compared."""

Names = Mapping[str, Any]


class Seen:
    """All of a model that a shadow copies, as it was; without a reference to the model itself.

    Parameters
    ----------
    model
        A model of transformers.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._modules = [(ref(module), type(module), _copied(module.__dict__)) for module in modules]
        self._forwards = [(ref(module), _weak(forward)) for module in modules if (forward := _own_forward(module))]
        self._configs = [(config.__dict__, copy.deepcopy(config.__dict__)) for config in _configs(modules)]
        self._tensors = [(tensor, _place(tensor)) for tensor in (*model.parameters(), *model.buffers())]
        self._code = [(names, name, ref(code)) for names, name, code in _code(modules)]

    def is_unchanged(self) -> bool:
        """Whether the model is what it was; takes about a millisecond for 400 modules."""
        try:  # == on dictionaries tests identity first: tensors are compared by value only if exchanged
            return (
                all(type(module()) is kind and _same(module(), was) for module, kind, was in self._modules)
                and all(_own_forward(module()) is forward() for module, forward in self._forwards)
                and all(now == was for now, was in self._configs)
                and all(_place(tensor) == place for tensor, place in self._tensors)
                and all(names.get(name) is code() for names, name, code in self._code)
            )
        except (RuntimeError, TypeError, ValueError):  # from == on an exchanged tensor or array
            return False


def traits(model: nn.Module) -> bytes | None:
    """Return a digest that is equal for models that can be run in the same ways, whatever their weights.

    It covers classes, their code, shapes, and all plain values of modules and configurations. None where code of
    unknown effect hangs on a module.
    """
    modules = list(model.modules())
    if any(module.__dict__.get(name) for module in modules for name in _OWN_CODE):
        return None
    digest = hashlib.sha256()
    for module in modules:
        held = [(name, _trait(value)) for name, value in module.__dict__.items() if name not in _UNREAD]
        digest.update(repr((type(module), held)).encode())
    for config in _configs(modules):
        digest.update(repr([(name, _trait(value)) for name, value in config.__dict__.items()]).encode())
    for _, name, code in _code(modules):
        digest.update(repr((name, hash(code.__code__))).encode())
    return digest.digest()


def _copied(names: Names) -> dict[str, Any]:
    """What a module holds, its dictionaries copied as a shadow copies them.

    A ``forward`` or ``generate`` may be bound to the model and would keep it alive: of the first only its presence
    is kept, the second is left out.
    """
    held = {name: value for name, value in names.items() if name not in ("forward", "generate")}
    held = {name: type(value)(value) if isinstance(value, dict) else value for name, value in held.items()}
    return held | ({"forward": True} if "forward" in names else {})


def _same(module: nn.Module | None, was: Names) -> bool:
    return module is not None and (module.__dict__ == was or _read(module.__dict__) == _read(was))


def _read(names: Names) -> Names:
    """What passes read of it, apart from a forward, which is compared by itself: see `_own_forward`."""
    read = {name: value for name, value in names.items() if name not in _UNREAD}
    read["forward"] = "forward" in read
    return read


def _own_forward(module: nn.Module | None) -> Any:
    return None if module is None else module.__dict__.get("forward")


def _configs(modules: Iterable[nn.Module]) -> list[PreTrainedConfig]:
    """The configurations that modules hold, each once; nested ones are compared as part of their parents."""
    every = (value for module in modules for value in module.__dict__.values())
    return list({id(value): value for value in every if isinstance(value, PreTrainedConfig)}.values())


def _code(modules: Iterable[nn.Module]) -> Iterator[tuple[Names, str, FunctionType]]:
    """Functions that a pass may run, each with the namespace that holds it: a class or its source file."""
    kinds = {type(module): None for module in modules}
    files: dict[str, None] = {}
    for base in {base: None for kind in kinds for base in kind.__mro__}:
        functions = [(name, it) for name, it in vars(base).items() if type(it) is FunctionType]
        if base.__module__.startswith(_LIBRARIES):
            functions = [(name, it) for name, it in functions if name == "forward"]
        elif base is not object:
            files[base.__module__] = None
        yield from ((vars(base), name, it) for name, it in functions)
    for file in files:
        names = vars(sys.modules[file]) if file in sys.modules else {}
        yield from ((names, name, it) for name, it in list(names.items()) if type(it) is FunctionType)


def _weak(thing: Any) -> Callable[[], Any]:
    """A weak reference to the thing, or a strong one if its type allows no weak references."""
    try:
        return ref(thing)
    except TypeError:
        return lambda: thing


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies and how; one of a class of its own may have no single place."""
    try:
        return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
    except RuntimeError:
        return (tensor.dtype,)


def _trait(value: Any) -> Any:
    if isinstance(value, Tensor):
        return type(value), value.dtype, value.device, tuple(value.shape)
    if isinstance(value, dict):
        return [(key, _trait(part)) for key, part in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return type(value), [_trait(part) for part in value]
    return value if isinstance(value, _PLAIN) else type(value)
