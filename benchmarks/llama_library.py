"""A llama.cpp library in a folder, such as a wheel's, as a peer: passes over a GGUF file, timed. No dependency."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Sequence
from pathlib import Path


class _Settings(c.Structure):
    """A C struct whose fields differ from release to release: with room for all, it is returned and passed whole."""

    _fields_ = (("bytes", c.c_uint8 * 512),)


_IDS = c.POINTER(c.c_int32)


class _Batch(c.Structure):
    _fields_ = (
        ("n_tokens", c.c_int32), ("token", _IDS), ("embd", c.c_void_p), ("pos", _IDS), ("n_seq_id", _IDS),
        ("seq_id", c.POINTER(_IDS)), ("logits", c.POINTER(c.c_int8)),
    )  # fmt: skip


class LlamaLibrary:
    """A model in a library of llama.cpp, in its default settings; the fastest build in the folder is taken."""

    def __init__(self, folder: Path, model: Path, *, threads: int, context: int = 4096) -> None:
        os.environ["GGML_LOG_LEVEL"] = "0"
        for name in ("libggml-base.so", "libggml.so", "libllama.so"):
            library = c.CDLL(str(folder / name), mode=c.RTLD_GLOBAL)
            if name == "libggml.so":
                library.ggml_backend_load_all_from_path(str(folder).encode())
        self._library, pointer = library, c.c_void_p
        for name, result, arguments in (
            ("llama_model_default_params", _Settings, []), ("llama_context_default_params", _Settings, []),
            ("llama_model_load_from_file", pointer, [c.c_char_p, _Settings]),
            ("llama_init_from_model", pointer, [pointer, _Settings]),
            ("llama_set_n_threads", None, [pointer, c.c_int32, c.c_int32]),
            ("llama_batch_init", _Batch, [c.c_int32, c.c_int32, c.c_int32]),
            ("llama_decode", c.c_int32, [pointer, _Batch]), ("llama_get_memory", pointer, [pointer]),
            ("llama_get_logits_ith", c.POINTER(c.c_float), [pointer, c.c_int32]),
            ("llama_memory_seq_rm", c.c_bool, [pointer, c.c_int32, c.c_int32, c.c_int32]),
            ("llama_log_set", None, [pointer, pointer]),
        ):  # fmt: skip
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self._quiet = c.CFUNCTYPE(None, c.c_int, c.c_char_p, pointer)(lambda *_: None)
        library.llama_log_set(c.cast(self._quiet, pointer), None)
        self._model = library.llama_model_load_from_file(str(model).encode(), library.llama_model_default_params())
        settings = library.llama_context_default_params()
        c.cast(c.pointer(settings), c.POINTER(c.c_uint32))[0] = context  # n_ctx is the first field of all releases
        self._context = library.llama_init_from_model(self._model, settings)
        library.llama_set_n_threads(self._context, threads, threads)
        self._batch = library.llama_batch_init(512, 0, 1)
        self.length = 0

    def run(self, ids: Sequence[int], *, scored: bool) -> None:
        """Read tokens behind the text, with scores of all or of the last; they stay until `cut`."""
        for start in range(0, len(ids), 512):
            part, batch = ids[start : start + 512], self._batch
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, self.length + i, 1
                batch.seq_id[i][0], batch.logits[i] = 0, scored or start + i == len(ids) - 1
            if self._library.llama_decode(self._context, batch):
                raise RuntimeError("llama_decode failed")
            self._library.llama_get_logits_ith(self._context, len(part) - 1)
            self.length += len(part)

    def cut(self, length: int) -> None:
        """Drop the text behind so many tokens."""
        self._library.llama_memory_seq_rm(self._library.llama_get_memory(self._context), 0, length, -1)
        self.length = length
