"""llama.cpp's C functions, as far as we call them, from the library inside an installed wheel (`sources`).

The C API gives no version of its structs, and they grow from release to release: a field in the wrong place would
be lost without a word, or memory overwritten. So only releases whose layout is known here are used, and every
default that the library fills in is compared when it is loaded. Source: ``include/llama.h`` of each release.
"""

from __future__ import annotations

import ctypes as c
import importlib.util
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from draftwood.errors import CapabilityError

_U, _I, _P, _F, _Z, _B = c.c_uint32, c.c_int32, c.c_void_p, c.c_float, c.c_size_t, c.c_bool
_SLACK = 256  # bytes after each struct: a longer one, returned by value, would overrun our memory

F16, BF16 = 1, 30  # element types of a cache


def _struct(name: str, *groups: tuple[Any, str]) -> type[c.Structure]:
    fields = [(field, kind) for kind, names in groups for field in names.split()]
    return type(name, (c.Structure,), {"_fields_": [*fields, ("slack", c.c_uint8 * _SLACK)]})


ModelParams = _struct(
    "ModelParams", (_P, "devices overrides"), (_I, "n_gpu_layers split_mode load_mode lazy_mode main_gpu"),
    (_P, "tensor_split progress progress_data kv_overrides"),
    (_B, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"),
)  # fmt: skip
ContextParams = _struct(
    "ContextParams", (_U, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq"),
    (_I, "n_threads n_threads_batch ctx_type rope_scaling pooling attention flash_attn"),
    (_F, "rope_base rope_scale yarn_ext yarn_attn yarn_fast yarn_slow"), (_U, "yarn_orig"), (_F, "defrag"),
    (_P, "cb_eval cb_eval_data"), (_I, "type_k type_v"), (_Z, "moe_cache_size"), (_P, "abort abort_data"),
    (_B, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"), (_P, "samplers"), (_Z, "n_samplers"),
    (_P, "ctx_other"),
)  # fmt: skip


def _without(struct: type[c.Structure], name: str) -> type[c.Structure]:
    fields = [field for field in struct._fields_ if field[0] != name]
    return type(struct.__name__, (c.Structure,), {"_fields_": fields})


CONTEXTS = {"xllamacpp": ContextParams, "llama_cpp_python": _without(ContextParams, "moe_cache_size")}

_OF_TOKENS = ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")


class TokenBatch(c.Structure):
    """Tokens of one pass: ids, positions, the sequences of each, and whether its scores are wanted."""

    _fields_ = [("n_tokens", _I), *((name, _P) for name in _OF_TOKENS)]


MODEL_DEFAULTS = {"n_gpu_layers": -1, "split_mode": 1, "load_mode": -1, "lazy_mode": 1, "use_extra_bufts": 1}
CONTEXT_DEFAULTS = {
    "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_outputs_max_per_seq": 1, "n_threads": 4,
    "n_threads_batch": 4, "rope_scaling": -1, "pooling": -1, "attention": -1, "flash_attn": -1, "yarn_ext": -1,
    "yarn_attn": -1, "yarn_fast": -1, "yarn_slow": -1, "defrag": -1, "type_k": F16, "type_v": F16,
    "offload_kqv": 1, "no_perf": 1, "op_offload": 1, "swa_full": 1,
}  # fmt: skip
"""What the library sets; all other fields are 0."""

_FUNCTIONS: tuple[tuple[Any, ...], ...] = (  # name, result, arguments
    ("model_default_params", ModelParams), ("context_default_params", ContextParams), ("backend_init", None),
    ("log_set", None, _P, _P), ("supports_gpu_offload", _B),
    ("model_load_from_file", _P, c.c_char_p, ModelParams), ("model_free", None, _P),
    ("init_from_model", _P, _P, ContextParams), ("free", None, _P), ("get_memory", _P, _P),
    *((name, _U, _P) for name in ("n_ctx", "n_ctx_seq", "n_seq_max", "n_batch")),
    *((f"model_{name}", _I, _P) for name in ("n_ctx_train", "n_embd", "n_layer", "n_swa")),
    *((f"model_{name}", _B, _P) for name in ("has_encoder", "has_decoder", "is_recurrent", "is_hybrid",
                                              "is_diffusion")),
    *((f"model_{name}", c.c_uint64, _P) for name in ("size", "n_params")), ("model_desc", _I, _P, c.c_char_p, _Z),
    ("model_meta_val_str", _I, _P, c.c_char_p, c.c_char_p, _Z),
    ("model_get_vocab", _P, _P), ("vocab_n_tokens", _I, _P), ("vocab_type", _I, _P),
    *((f"vocab_{name}", _I, _P) for name in ("bos", "eos")), ("vocab_get_add_bos", _B, _P),
    *((f"vocab_{name}", _B, _P, _I) for name in ("is_eog", "is_control")), ("vocab_get_attr", _I, _P, _I),
    ("vocab_get_text", c.c_char_p, _P, _I),
    ("tokenize", _I, _P, c.c_char_p, _I, _P, _I, _B, _B), ("token_to_piece", _I, _P, _I, _P, _I, _I, _B),
    ("decode", _I, _P, TokenBatch), ("get_logits", _P, _P),
    ("memory_clear", None, _P, _B), ("memory_seq_rm", _B, _P, _I, _I, _I),
    ("memory_seq_cp", None, _P, _I, _I, _I, _I), ("memory_seq_pos_min", _I, _P, _I),
    ("state_seq_get_size_ext", _Z, _P, _I, _U), ("state_seq_get_data_ext", _Z, _P, _P, _Z, _I, _U),
    ("state_seq_set_data_ext", _Z, _P, _P, _Z, _I, _U),
)  # fmt: skip

_LOGGED: deque[str] = deque(maxlen=50)  # what the library said last, for errors
_ERROR = 4


def last_error(*, clear: bool = False) -> str:
    """Return the first error that the library has logged since the last ``clear``, or an empty string."""
    found = next(iter(_LOGGED), "")
    if clear:
        _LOGGED.clear()
    return found


@c.CFUNCTYPE(None, _I, c.c_char_p, _P)
def _log(level: int, text: bytes, _: Any) -> None:
    if level >= _ERROR:
        _LOGGED.append(text.decode(errors="replace").strip().partition(": ")[2])


@cache
def library() -> Any:
    """Load the library, check its layout, and declare its functions, once. ``release`` names the wheel.

    Raises `CapabilityError` if there is none, or none whose layout is known here.
    """
    refused = []
    for source in SOURCES:
        if source.is_installed:
            try:
                return _loaded(source)
            except CapabilityError as error:
                refused.append(error)
    if not refused:
        raise CapabilityError('GGUF files need llama.cpp: run pip install "draftwood[llama]"')
    raise refused[0]


def _loaded(source: LibraryWheel) -> Any:
    context = CONTEXTS[source.package]
    try:
        found: Any = c.CDLL(str(source.place()))
    except OSError as error:
        raise CapabilityError(f"llama.cpp cannot be loaded ({error}): install {source.package} again") from error
    try:
        for name, result, *takes in _FUNCTIONS:
            function = getattr(found, f"llama_{name}")
            kinds = [context if kind is ContextParams else kind for kind in (result, *takes)]
            function.restype, function.argtypes = kinds[0], kinds[1:]
    except AttributeError as error:
        raise unknown(f"{error} is missing") from error
    found.llama_log_set(c.cast(_log, _P), None)
    check_layout(found.llama_model_default_params(), MODEL_DEFAULTS)
    check_layout(found.llama_context_default_params(), CONTEXT_DEFAULTS)
    found.llama_backend_init()
    found.release = f"{source.package} {source.release}"
    return found


def check_layout(params: Any, defaults: dict[str, int]) -> None:
    """Raise `CapabilityError` unless each field holds the value that the library sets."""
    names = [name for name, _ in params._fields_ if name != "slack"]
    wrong = [name for name in names if (getattr(params, name) or 0) != defaults.get(name, 0)]
    if wrong:
        raise unknown(f"{type(params).__name__} has another layout at {wrong[0]}")


def takes_layers() -> bool:
    """Whether the library can put layers on a graphics card."""
    return bool(library().llama_supports_gpu_offload())


@dataclass(frozen=True)
class LibraryWheel:
    """A wheel with llama.cpp's library: the names under which it is installed and imported, the releases whose
    structs are known here, and where the library may lie in the module's folder, as patterns."""

    package: str
    module: str
    good: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def release(self) -> str:
        """The installed release; a build of it (``0.3.36+cu124``) is the same."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(self.package).partition("+")[0]
        except PackageNotFoundError:  # installed under another name
            return "of an unknown release"

    @property
    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.module) is not None

    def place(self) -> Path:
        """Return the library's file; the module is not imported. `CapabilityError` where there is none to use."""
        if self.release not in self.good:
            raise unknown(f"{self.package} {self.release} is not known here")
        spec = importlib.util.find_spec(self.module)
        folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
        files = [] if folder is None else [found for pattern in self.files for found in folder.glob(pattern)]
        if not files:
            raise CapabilityError(
                f"{self.package} has no library for this system whose functions can be called: run pip install "
                f'"{SOURCES[-1].package}=={SOURCES[-1].good[-1]}", which compiles one, or run the model through '
                "transformers"
            )
        return files[0]


SOURCES = (
    LibraryWheel("xllamacpp", "xllamacpp", ("2026.10.11549",), ("xllamacpp.*.so", "xllamacpp.*.dylib")),
    LibraryWheel(
        "llama_cpp_python", "llama_cpp", ("0.3.36",),
        ("lib/libllama.so", "lib/libllama.dylib", "lib/llama.dll", "lib/libllama.dll"),
    ),
)  # fmt: skip
"""The first that is installed and can be used serves; on Windows xllamacpp exports no functions."""


def is_installed() -> bool:
    """Whether a wheel with the library is here; it may still be of another release."""
    return any(source.is_installed for source in SOURCES)


def unknown(why: str) -> CapabilityError:
    """Return the error that this library cannot be used."""
    first = SOURCES[0]
    return CapabilityError(
        f'this llama.cpp cannot be used safely ({why}): run pip install "{first.package}=={first.good[-1]}"'
    )
