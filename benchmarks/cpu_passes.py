"""Passes of our own engine beside a llama.cpp library's: milliseconds by tokens, in turns, and reading a prompt.

    python benchmarks/cpu_passes.py MODEL.gguf [--random 1.1b] [--llama FOLDER] [--threads 2] [--rounds 20]

``--random 1.1b`` first writes MODEL.gguf: random weights in the shape of a model, see `shapes`. ``--llama`` names
a folder with libllama.so and its builds, as the wheel muthuishere-modelnexus 0.2.1 has one.
"""

from __future__ import annotations

import argparse
import ctypes as c
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from shapes import SHAPES

from draftwood.engines.cpu.target import CpuTarget
from draftwood.local.machine import processor
from draftwood.tree import TokenTree

WIDTHS = (1, 2, 4, 8, 16, 32)


class _Settings(c.Structure):
    """A C struct whose fields differ between releases: with room for all, it is returned and passed whole."""

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


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("model", type=Path)
    options.add_argument("--llama", type=Path)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--context", type=int, default=300)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--prompt", type=int, default=1000)
    options.add_argument("--random", choices=SHAPES, help="write MODEL.gguf first: random weights of this size")
    given = options.parse_args()
    if given.random:
        SHAPES[given.random]().write(given.model)
    target = CpuTarget(given.model, threads=given.threads)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, target.capabilities.vocab_size, given.prompt + given.context + 64).tolist()
    other = LlamaLibrary(given.llama, given.model, threads=given.threads) if given.llama else None
    ((session, _),) = target.open([ids[: given.context]])
    if other is not None:
        other.run(ids[: given.context], scored=False)
    taken: dict[tuple[str, int], list[float]] = {}
    for _ in range(given.rounds):
        for width in WIDTHS:
            tree = TokenTree.build(ids[-width:-1]) if width > 1 else TokenTree.empty()
            before = perf_counter()
            target.score([(session, ids[0], tree)])
            taken.setdefault(("cpu", width), []).append(perf_counter() - before)
            if other is not None:
                before = perf_counter()
                other.run(ids[-width:], scored=True)
                taken.setdefault(("llama.cpp", width), []).append(perf_counter() - before)
                other.cut(given.context)
    for _ in range(3 if given.prompt else 0):
        before = perf_counter()
        ((read, _),) = target.open([ids[: given.prompt]])
        taken.setdefault(("cpu", -given.prompt), []).append(perf_counter() - before)
        read.close()
        if other is not None:
            other.cut(0)
            before = perf_counter()
            other.run(ids[: given.prompt], scored=False)
            taken.setdefault(("llama.cpp", -given.prompt), []).append(perf_counter() - before)
    say = {"processor": processor(), "instructions": target.model.instructions.name, "threads": given.threads}
    print(json.dumps(say | {"model": given.model.name, "bytes of weights": target.weight_bytes}))
    for (arm, width), seconds in taken.items():
        one = median(taken[arm, 1])
        row = {"arm": arm, "tokens": abs(width), "reads": width < 0, "ms": round(1e3 * median(seconds), 2)}
        print(json.dumps(row | {"least": round(1e3 * min(seconds), 2), "of one": round(median(seconds) / one, 2)}))


if __name__ == "__main__":
    main()
