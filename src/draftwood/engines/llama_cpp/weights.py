"""A GGUF file that llama.cpp has loaded: its weights, vocabulary and metadata."""

from __future__ import annotations

import ctypes as c
import os
import weakref
from functools import cached_property
from itertools import compress, repeat
from pathlib import Path

from draftwood.engines.files.gguf_file import GgufFile, check_writes
from draftwood.engines.files.open_file import FileState
from draftwood.engines.llama_cpp.library import last_error, library
from draftwood.errors import ModelError, ModelNotFoundError, UnsupportedModelError
from draftwood.files.paths import opened

_MAGIC = b"GGUF"
_FLOATS = ("0", "1", "32")  # file types F32, F16 and BF16


class LlamaWeights:
    """The weights of a GGUF file, mapped into memory; contexts of any size share them.

    ``gpu_layers``: layers on a graphics card, -1 for as many as fit. ``vocabulary_only`` reads no weights. Raises
    `ModelNotFoundError`, `ModelError`, and `UnsupportedModelError` for a model that does not write text.
    """

    def __init__(self, path: Path, *, gpu_layers: int = -1, vocabulary_only: bool = False) -> None:
        check_file(path)
        self.path, self.gpu_layers, self._library = path, gpu_layers, library()
        state = FileState(path, path.stat())
        self.stamp, self.check_unchanged = state.stamp, state.check_unchanged
        params = self._library.llama_model_default_params()
        params.n_gpu_layers, params.vocab_only = gpu_layers, vocabulary_only
        last_error(clear=True)
        self.pointer = self._library.llama_model_load_from_file(os.fsencode(path), params)
        if not self.pointer:
            check_writes(path, GgufFile(path).metadata.get)
            raise ModelError(
                f"llama.cpp cannot load {path} ({last_error() or 'no reason given'}): get the file again"
            )
        self._free = weakref.finalize(self, self._library.llama_model_free, self.pointer)
        self.vocabulary = self._library.llama_model_get_vocab(self.pointer)
        self._refuse()

    def _refuse(self) -> None:
        check_writes(self.path, self.metadata)
        says, kind = self._library, self.metadata("general.architecture") or "unknown"
        encodes = says.llama_model_has_encoder(self.pointer) or says.llama_model_is_diffusion(self.pointer)
        if encodes or not says.llama_model_has_decoder(self.pointer):
            raise UnsupportedModelError(
                f"{self.path} is a model of type {kind}, which does not write text token by token: name another"
            )
        if not self.vocab_size or not says.llama_vocab_type(self.vocabulary):
            raise UnsupportedModelError(f"{self.path} has no vocabulary: take a file with the model's tokenizer")

    def metadata(self, key: str) -> str | None:
        """Return a value of the file's metadata as text, None where it has none."""
        size, room = 1 << 12, None
        while True:
            room = c.create_string_buffer(size)
            length = self._library.llama_model_meta_val_str(self.pointer, key.encode(), room, size)
            if length < size:
                return None if length < 0 else room.value.decode(errors="replace")
            size = length + 1

    @cached_property
    def vocab_size(self) -> int:
        return int(self._library.llama_vocab_n_tokens(self.vocabulary))

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer, as llama.cpp finds them."""
        every = range(self.vocab_size)  # 0.2 microseconds per token, so asked for only where it is needed
        return frozenset(compress(every, map(self._library.llama_vocab_is_eog, repeat(self.vocabulary), every)))

    @cached_property
    def max_positions(self) -> int:
        """The longest text the model was trained on, in tokens."""
        return int(self._library.llama_model_n_ctx_train(self.pointer))

    @cached_property
    def window(self) -> int:
        """How many tokens layers with a window see; 0 where none has one."""
        return int(self._library.llama_model_n_swa(self.pointer))

    @cached_property
    def number_format(self) -> str:
        """How most numbers of the file are written, as llama.cpp calls it: ``Q4_1``, ``F16``."""
        room = c.create_string_buffer(256)
        self._library.llama_model_desc(self.pointer, room, len(room))
        return room.value.decode(errors="replace").split(" ", 2)[-1]  # after architecture and size

    @cached_property
    def size(self) -> int:
        """Bytes of all weights."""
        return int(self._library.llama_model_size(self.pointer))

    @cached_property
    def row_cost(self) -> float:
        """What scoring a token costs, as a share of reading it; too low where the head has weights of its own."""
        head = self.vocab_size * int(self._library.llama_model_n_embd(self.pointer))
        return head / max(1, int(self._library.llama_model_n_params(self.pointer)) - head)

    @cached_property
    def is_hybrid(self) -> bool:
        """Whether some layers keep a state, and others keys and values."""
        return bool(self._library.llama_model_is_hybrid(self.pointer))

    @cached_property
    def is_recurrent(self) -> bool:
        """Whether layers keep a state from which tokens cannot be taken back."""
        return self.is_hybrid or bool(self._library.llama_model_is_recurrent(self.pointer))

    @property
    def is_float(self) -> bool:
        """Whether the weights are not quantised."""
        return self.metadata("general.file_type") in _FLOATS

    @cached_property
    def cell_bytes(self) -> int:
        """Bytes of keys and values per token at two bytes a number, from above."""
        kind = self.metadata("general.architecture")
        heads = self._number(f"{kind}.attention.head_count", 0) or 1  # recurrent models have none
        width = self._number(f"{kind}.embedding_length", 0)
        length = self._number(f"{kind}.attention.key_length", -(-width // heads))
        shared = self._number(f"{kind}.attention.head_count_kv", heads)
        return 4 * shared * length * int(self._library.llama_model_n_layer(self.pointer))

    def _number(self, key: str, default: int) -> int:
        said = self.metadata(key)
        return int(said) if said is not None and said.isdecimal() else default


def check_file(path: Path) -> None:
    """Raise an error for what is no GGUF file; the library itself says so only in its log."""
    try:
        with opened(path) as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"there is no file {path}: name an existing GGUF file") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror or error}): check its permissions") from error
    if head != _MAGIC:
        raise ModelError(f"{path} is no GGUF file: name one, or a transformers folder")
