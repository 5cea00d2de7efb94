"""Whether a model is still the one that its target was made of, and a key of its kind.

When a call begins, `Seen` compares the model's modules, their attributes and classes, the functions of these
classes and of their source files, its configurations and the places of its tensors with those that were noted when
the target was made. `Packing.is_current` then hashes all weights that were packed, since torch does not report
writes through ``.data`` or numpy. Weights that passes share with the model are as they are: `ModelTarget.contents`
hashes them for caches and copies that outlive a call. A changed model gets a new target, which is tried unless one
of the same `trial_key` was.
"""

from __future__ import annotations

import copy
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from draftwood.engines.transformers.lean_parts import global_hooks
from draftwood.local.machine import machine

_UNREAD = frozenset({"training", "generation_config", "generate", "_backward_hooks", "_backward_pre_hooks"})
"""Attributes of modules that no pass of ours reads."""
_OWN_CODE = frozenset({"forward", "_forward_hooks", "_forward_pre_hooks", "_hf_hook"})
"""Attributes that attach code to a single module."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_COMMON = ("transformers.", "torch.", "peft.", "accelerate.")
"""Packages whose code hides no values: two models of the same classes and plain values run alike."""
_LIBRARIES = ("torch.", "transformers.modeling_utils", "transformers.generation.", "transformers.integrations.")
"""Files whose functions are not compared, but for `_RUN` of the classes in them."""
_RUN = ("forward", "__call__", "_call_impl", "__getattr__")  # what runs when a module is called
_INSTRUCTIONS = ("ONEDNN_", "DNNL_", "ATEN_", "MKL_")
"""Beginnings of variables of the environment that change which instructions torch uses."""
_HELPERS = sys.stdlib_module_names | {"huggingface_hub", "safetensors"}
"""Other packages whose functions the files of transformers import."""
_VERSIONED = ("draftwood", "torch", "transformers", "peft", "accelerate", "numpy")


class Seen:
    """All of a model that a shadow copies, as it was; keeps no reference to the model itself."""

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._modules = [(ref(module), _noted(module)) for module in modules]
        self._configs = [(config.__dict__, copy.deepcopy(config.__dict__)) for config in _configs(modules)]
        self._tensors = [(tensor, _place(tensor)) for tensor in (*model.parameters(), *model.buffers())]
        self._code = [(names, only, _functions(names, only)) for names, only in _namespaces(modules)]
        self._hooks = global_hooks()

    def is_unchanged(self) -> bool:
        """Whether the model is as it was; takes a millisecond or two for 400 modules."""
        try:  # == on dictionaries tests identity first, so that only replaced tensors are compared by value
            return (
                all((it := module()) is not None and _noted(it) == was for module, was in self._modules)
                and all(now == was for now, was in self._configs)
                and all(_place(tensor) == place for tensor, place in self._tensors)
                and all(_functions(names, only) == was for names, only, was in self._code)
                and global_hooks() == self._hooks
            )
        except (RuntimeError, TypeError, ValueError):  # from == on a replaced tensor or array
            return False


def _noted(module: nn.Module) -> dict[str, Any]:
    """A module's attributes, dictionaries copied as a shadow copies them, and its class. A ``forward`` of its own
    may be bound to the model and keep it alive: only a weak reference is held."""
    noted: dict[str, Any] = {"": (type(module), type(module).forward)}
    for name, value in module.__dict__.items():
        if name == "forward":
            noted[name] = ref(value)
        elif name not in _UNREAD:
            noted[name] = type(value)(value) if isinstance(value, dict) else value
    return noted


def _namespaces(modules: Iterable[nn.Module]) -> Iterator[tuple[Mapping[str, Any], tuple[str, ...] | None]]:
    """Classes and source files with functions that a pass may run, and which of these functions (None: all)."""
    kinds = {type(module): None for module in modules}
    files: dict[str, None] = {}
    for base in {base: None for kind in kinds for base in kind.__mro__ if base is not object}:
        is_library = base.__module__.startswith(_LIBRARIES)
        yield vars(base), _RUN if is_library else None
        if not is_library:
            files[base.__module__] = None
    for file in files:
        if file in sys.modules:
            yield vars(sys.modules[file]), None


def _functions(names: Mapping[str, Any], only: tuple[str, ...] | None) -> dict[str, tuple[Any, Any]]:
    """Functions and properties by name, each with its code, which may be replaced too."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, value in list(names.items()) if only is None else [(name, names.get(name)) for name in only]:
        if type(value) is FunctionType:
            found[name] = ref(value), value.__code__
        elif type(value) is property:
            found[name] = value, getattr(value.fget, "__code__", None)
    return found


def _configs(modules: Iterable[nn.Module]) -> list[PreTrainedConfig]:
    """The modules' configurations, each once; nested ones are compared as part of their parents."""
    every = (value for module in modules for value in module.__dict__.values())
    return list({id(value): value for value in every if isinstance(value, PreTrainedConfig)}.values())


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Address and layout of a tensor; one of a class of its own may have no single address."""
    try:
        return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
    except RuntimeError:
        return (tensor.dtype,)


def trial_key(model: Any, *, packed: bool) -> str | None:
    """Return a key that is equal, in every process, for models that can be run in the same ways, whatever their
    weights; None for models with hooks, or with classes or functions of other packages than `_COMMON`, whose
    values no comparison may see. It covers classes, their functions and those of their source files, shapes, plain
    values of modules and configurations, packing, this engine, the libraries, and what chooses their
    instructions."""
    modules = list(model.modules())
    if global_hooks() or any(module.__dict__.get(name) for module in modules for name in _OWN_CODE):
        return None
    functions = [_functions(names, only) for names, only in _namespaces(modules)]
    code = [it for module in modules for it in (type(module), type(module).forward, *module.__dict__.values())]
    code += [it() for some in functions for it, _ in some.values() if isinstance(it, ref)]
    if not all(_is_common(it) for it in code):
        return None
    read = [{name: it for name, it in module.__dict__.items() if name not in _UNREAD} for module in modules]
    held = [(type(module), _trait(it)) for module, it in zip(modules, read, strict=True)]
    does = [[(name, _code_trait(it)) for name, (_, it) in some.items()] for some in functions]
    settings = [_trait(config.__dict__) for config in _configs(modules)]
    device = model.get_input_embeddings().weight.device.type
    versions = [(name, getattr(sys.modules.get(name), "__version__", None)) for name in _VERSIONED]
    runs = (
        machine(device), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(),
        torch.get_float32_matmul_precision(), torch.get_default_dtype(), torch.get_default_device(),
    )  # fmt: skip
    asked = sorted((name, value) for name, value in os.environ.items() if name.startswith(_INSTRUCTIONS))
    facts = (held, settings, does, packed, _engine(), sys.version, versions, runs, asked)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _is_common(thing: Any) -> bool:
    """Whether a class or function is from `_COMMON`, a function from `_HELPERS`; true of other things. A decorator
    gives a function the name of another file, but not its global names."""
    if isinstance(thing, FunctionType):
        file = str(thing.__globals__.get("__name__"))
        return file.startswith(_COMMON) or file.partition(".")[0] in _HELPERS
    return not isinstance(thing, type) or str(thing.__module__).startswith(_COMMON)


@lru_cache(maxsize=4096)
def _code_trait(code: CodeType | None) -> bytes:
    """A digest of what a function does, without the place of its source."""
    if code is None:
        return b""
    constants = [_code_trait(it) if isinstance(it, CodeType) else _trait(it) for it in code.co_consts]
    facts = (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, constants)
    return hashlib.sha256(repr((facts, code.co_flags, code.co_argcount)).encode()).digest()


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


@cache
def _engine() -> str:
    """Return a digest of this engine's own source files."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
