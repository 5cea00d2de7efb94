"""A record of a model, taken when a target is made of it, to notice later changes, and a key of its kind.

A shadow shares the model's tensors but has its own module dictionaries and configurations, so it misses a switched
adapter, a replaced activation, number, hook, forward or tensor. `Seen` records those, and the functions of the
modules' classes. What is written *into* a tensor is shared; `pack` checks its copies.
"""

from __future__ import annotations

import copy
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from weakref import ref

import torch
import torch.nn.modules.module as hooks
from torch import Tensor, nn
from transformers import PreTrainedConfig

from draftwood.models.machine import machine

_UNREAD = frozenset({"training", "generation_config", "generate", "_backward_hooks", "_backward_pre_hooks"})
"""Attributes of modules that no pass of ours reads."""

_OWN_CODE = frozenset({"forward", "_forward_hooks", "_forward_pre_hooks", "_hf_hook"})
"""Attributes that attach code to a single module."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)

_LIBRARIES = ("torch.", "transformers.modeling_utils", "transformers.generation.", "transformers.integrations.")
"""Prefixes of Python modules whose functions are not compared, but for `_RUN` of the classes defined there."""

_RUN = frozenset({"forward", "__call__", "_call_impl", "__getattr__"})  # what runs when a module is called

_COMMON = ("transformers.", "torch.", "peft.", "accelerate.")
"""Packages whose code hides no values: two models of the same classes and plain values run alike."""

Names = Mapping[str, Any]


class Seen:
    """All of a model that a shadow copies, as it was; keeps no reference to the model itself."""

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._modules = [(ref(module), type(module), _copied(module.__dict__)) for module in modules]
        self._forwards = [(ref(module), _weak(forward)) for module in modules if (forward := _own_forward(module))]
        self._configs = [(config.__dict__, copy.deepcopy(config.__dict__)) for config in _configs(modules)]
        self._tensors = [(tensor, _place(tensor)) for tensor in (*model.parameters(), *model.buffers())]
        self._code = [(names, only, _functions(names, only)) for names, only in _namespaces(modules)]
        self._hooks = global_hooks()

    def is_unchanged(self) -> bool:
        """Whether the model is as it was; takes about a millisecond for 400 modules."""
        try:  # == on dictionaries tests identity first, so that only replaced tensors are compared by value
            return (
                all(type(module()) is kind and _same(module(), was) for module, kind, was in self._modules)
                and all(_own_forward(module()) is forward() for module, forward in self._forwards)
                and all(now == was for now, was in self._configs)
                and all(_place(tensor) == place for tensor, place in self._tensors)
                and all(_functions(names, only) == was for names, only, was in self._code)
                and global_hooks() == self._hooks
            )
        except (RuntimeError, TypeError, ValueError):  # from == on a replaced tensor or array
            return False


def traits(model: nn.Module) -> bytes | None:
    """Return a digest that is equal, in every process, for models that can be run in the same ways, whatever their
    weights: of classes, code, shapes, and plain values of modules and configurations. None where the model has
    hooks, or classes or functions of other packages than `_COMMON`, whose values no comparison may see."""
    modules = list(model.modules())
    if global_hooks() or any(module.__dict__.get(name) for module in modules for name in _OWN_CODE):
        return None
    code = [thing for module in modules for thing in (type(module), *module.__dict__.values())]
    if not all(str(it.__module__).startswith(_COMMON) for it in code if isinstance(it, type | FunctionType)):
        return None
    read = [{name: value for name, value in module.__dict__.items() if name not in _UNREAD} for module in modules]
    held = [(type(module), _trait(names)) for module, names in zip(modules, read, strict=True)]
    settings = [_trait(config.__dict__) for config in _configs(modules)]
    functions = [_functions(names, only).items() for names, only in _namespaces(modules)]
    does = [[(name, _code_trait(it)) for name, (_, it) in some] for some in functions]
    return hashlib.sha256(repr((held, settings, does)).encode()).digest()


def global_hooks() -> list[Any]:
    """Hooks that torch calls for every module there is."""
    kinds = (hooks._global_forward_pre_hooks, hooks._global_forward_hooks)
    return [hook for kind in kinds for hook in kind.values()]


def _copied(names: Names) -> dict[str, Any]:
    """A module's attributes, dictionaries copied as a shadow copies them. A ``forward`` or ``generate`` may be
    bound to the model and keep it alive: of the first only the presence is noted, the second is left out."""
    held = {name: value for name, value in names.items() if name not in ("forward", "generate")}
    held = {name: type(value)(value) if isinstance(value, dict) else value for name, value in held.items()}
    return held | ({"forward": True} if "forward" in names else {})


def _same(module: nn.Module | None, was: Names) -> bool:
    return module is not None and (module.__dict__ == was or _read(module.__dict__) == _read(was))


def _read(names: Names) -> Names:
    """The attributes that passes read; a forward is compared by itself (`_own_forward`)."""
    read = {name: value for name, value in names.items() if name not in _UNREAD}
    read["forward"] = "forward" in read
    return read


def _own_forward(module: nn.Module | None) -> Any:
    return None if module is None else module.__dict__.get("forward")


def _configs(modules: Iterable[nn.Module]) -> list[PreTrainedConfig]:
    """The modules' configurations, each once; nested ones are compared as part of their parents."""
    every = (value for module in modules for value in module.__dict__.values())
    return list({id(value): value for value in every if isinstance(value, PreTrainedConfig)}.values())


def _namespaces(modules: Iterable[nn.Module]) -> Iterator[tuple[Names, frozenset[str] | None]]:
    """Classes and source files that hold functions which a pass may run, and which of them (None: all)."""
    kinds = {type(module): None for module in modules}
    files: dict[str, None] = {}
    for base in {base: None for kind in kinds for base in kind.__mro__ if base is not object}:
        library = base.__module__.startswith(_LIBRARIES)
        yield vars(base), _RUN if library else None
        if not library:
            files[base.__module__] = None
    for file in files:
        if file in sys.modules:
            yield vars(sys.modules[file]), None


def _functions(names: Names, only: frozenset[str] | None) -> dict[str, tuple[Any, Any]]:
    """Functions by name, each with its code, which may be replaced too, and properties."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, value in list(names.items()):
        if only is not None and name not in only:
            continue
        if type(value) is FunctionType:
            found[name] = ref(value), value.__code__
        elif type(value) is property:
            found[name] = value, value.fget and getattr(value.fget, "__code__", None)
    return found


def _weak(thing: Any) -> Callable[[], Any]:
    """A weak reference to the thing, or a strong one if its type allows no weak references."""
    try:
        return ref(thing)
    except TypeError:
        return lambda: thing


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Address and layout of a tensor; one of a class of its own may have no single address."""
    try:
        return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
    except RuntimeError:
        return (tensor.dtype,)


def _trait(value: Any) -> Any:
    if isinstance(value, Tensor):
        return type(value), value.dtype, value.device, tuple(value.shape)
    if isinstance(value, dict):
        return [(key, _trait(part)) for key, part in value.items()]
    if isinstance(value, set | frozenset):  # in an order that differs from process to process
        return type(value), sorted(repr(_trait(part)) for part in value)
    if isinstance(value, list | tuple):
        return type(value), [_trait(part) for part in value]
    return value if isinstance(value, _PLAIN) else type(value)


@lru_cache(maxsize=4096)
def _code_trait(code: CodeType | None) -> bytes:
    """A digest of what a function does, without the place of its source."""
    if code is None:
        return b""
    constants = [_code_trait(it) if isinstance(it, CodeType) else _trait(it) for it in code.co_consts]
    facts = (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, constants)
    return hashlib.sha256(repr((facts, code.co_flags, code.co_argcount)).encode()).digest()


_INSTRUCTIONS = ("ONEDNN_", "DNNL_", "ATEN_", "MKL_")
"""Beginnings of variables of the environment that change which instructions torch uses."""

_VERSIONED = ("draftwood", "torch", "transformers", "peft", "accelerate", "numpy")


def trial_key(model: Any, *, packed: bool) -> str | None:
    """Return the key of a model's trial, or None where the model holds code of unknown effect. It covers the
    model's `traits`, packing, versions of the libraries, code of this engine, processor, instruction set, device
    and threads, and variables that choose their instructions, but not the values of weights: with those that were
    not tried yet, a brief trial finds a way that fails."""
    known = traits(model)
    if known is None:
        return None
    device = model.get_input_embeddings().weight.device.type
    versions = [(name, getattr(sys.modules.get(name), "__version__", None)) for name in _VERSIONED]
    runs = (machine(device), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
    asked = sorted((name, value) for name, value in os.environ.items() if name.startswith(_INSTRUCTIONS))
    facts = (known.hex(), packed, _engine(), sys.version, versions, runs, asked)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@cache
def _engine() -> str:
    """Return a digest of this engine's own source files."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
