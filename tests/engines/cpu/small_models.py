"""Small random weights and models for the CPU engine, and the truth about these: one token per pass, one text at a
time.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter

from draftwood.engines.cpu.packing import plan
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.formats import FORMATS, GROUP
from draftwood.engines.files.gguf_file import Tensor
from draftwood.tree import TokenTree
from tests.engines.tiny_gguf import written

HALVES = {
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2),
    "Q5_1": (0, 2), "MXFP4": (),
}  # fmt: skip
"""Bytes of a block where float16 numbers lie; elsewhere, at its beginning."""
KINDS = ("Q4_K", "Q6_K", "Q5_K", "Q3_K", "Q2_K", "IQ4_XS", "Q5_1", "Q4_1", "IQ4_NL", "Q5_0")
"""Of the matrices of `write_mixed`, in turn."""
WIDTH, FEED, HEADS, KV_HEADS, VOCAB, LAYERS = 256, 256, 4, 2, 90, 2


def zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Return zeros that begin at a multiple of 64 bytes, as those of `Slabs` do."""
    size = prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def random_rows(kind: str, rows: int, blocks: int, seed: int = 0) -> np.ndarray:
    """Return uint8[rows, bytes of a row]; every byte is random but for the scales, which are finite."""
    random = np.random.default_rng(seed)
    size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    raw = random.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    if kind == "MXFP4":
        _exponents(random, raw)
    for at in HALVES.get(kind, (0,)):
        scales = random.normal(size=(rows, blocks)).astype(np.float16)
        scales[random.random(scales.shape) < 0.05] = 0
        scales[random.random(scales.shape) < 0.05] = np.float16(6e-8)  # the smallest there is
        raw[..., at : at + 2] = scales[..., None].view(np.uint8)
    return raw.reshape(rows, blocks * size)


def _exponents(random: np.random.Generator, raw: np.ndarray) -> None:
    """Give blocks of MXFP4 exponents that float16 has; some are zero and have any."""
    raw[..., 0] = random.integers(104, 144, raw.shape[:-1])
    zero = random.random(raw.shape[:-1]) < 0.1
    raw[zero, 0] = random.integers(0, 256, zero.sum())
    raw[zero, 1:] &= 0x88


def tensor_of(kind: str, raw: np.ndarray, inputs: int) -> Tensor:
    return Tensor("some.weight", kind, (*raw.shape[:-1], inputs), raw)


def packed_tensor(tensor: Tensor, rows=None) -> np.ndarray:
    """Pack a tensor of the file, or some of its rows."""
    packed, parts = plan(tensor, rows, zeros)
    for part in parts:
        part.pack()
    return packed


def small_rows(kind: str, rows: int, inputs: int, seed: int) -> np.ndarray:
    """Random rows of a quantised type whose weights are small."""
    blocks = inputs // (GROUP * FORMATS[kind].groups)
    raw = random_rows(kind, rows, blocks, seed).reshape(rows, blocks, -1)
    for at in HALVES.get(kind, (0,)):
        scales = np.ascontiguousarray(raw[..., at : at + 2]).view(np.float16)
        scales *= np.float16(0.05 / (31 if FORMATS[kind].factors else 1) / FORMATS[kind].most)
        raw[..., at : at + 2] = scales.view(np.uint8)
    return raw.reshape(rows, -1)


def write_mixed(path: Path, seed: int = 0) -> Path:
    """Write a llama whose matrices are of many types, with biases, and with fewer outputs than whole tiles."""
    writer, random = GGUFWriter(path, "llama"), np.random.default_rng(seed)
    writer.add_vocab_size(VOCAB)
    writer.add_context_length(600)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_tokenizer_model("no_vocab")
    for number, (name, rows) in enumerate(_matrices()):
        kind = "Q8_0" if name == "token_embd" else KINDS[number % len(KINDS)]
        if name.endswith(("ffn_gate", "ffn_up")):
            kind = "Q4_K"
        raw = small_rows(kind, rows, WIDTH, seed + number)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=GGMLQuantizationType[kind])
    for name in ("output_norm", *(f"blk.{i}.{norm}_norm" for i in range(LAYERS) for norm in ("attn", "ffn"))):
        writer.add_tensor(f"{name}.weight", random.uniform(0.5, 1.5, WIDTH).astype(np.float32))
    for name, size in (("q", WIDTH), ("k", WIDTH // 2), ("v", WIDTH // 2)):
        writer.add_tensor(f"blk.0.attn_{name}.bias", random.normal(0, 0.5, size).astype(np.float32))
    return written(writer, path)


def _matrices() -> list[tuple[str, int]]:
    keys = WIDTH // HEADS * KV_HEADS
    layer = (
        ("attn_q", WIDTH), ("attn_k", keys), ("attn_v", keys), ("attn_output", WIDTH),
        ("ffn_gate", FEED), ("ffn_up", FEED), ("ffn_down", WIDTH),
    )  # fmt: skip
    found = [("token_embd", VOCAB), ("output", VOCAB)]
    return [*found, *((f"blk.{i}.{name}", rows) for i in range(LAYERS) for name, rows in layer)]


class Truth:
    """Scores of the token after a text, by passes of one token from its beginning on; nothing is ever cut.

    Texts that begin as one given to `begin_with` go on from there.
    """

    def __init__(self, target: CpuTarget) -> None:
        self.target = target
        self._known: dict[tuple[int, ...], np.ndarray[Any, Any]] = {}
        self._start: tuple[int, ...] = ()
        self._saved: Any = None

    def __call__(self, text: Any) -> np.ndarray[Any, Any]:
        """Return float32[vocabulary]."""
        text = tuple(int(token) for token in text)
        if text not in self._known:
            self._read(text)
        return self._known[text]

    def begin_with(self, text: Any) -> np.ndarray[Any, Any]:
        """Return the scores after each token of a text, float32[tokens, vocabulary]."""
        self._start, self._saved = (), None
        text = tuple(int(token) for token in text)
        self._saved, self._start = self._read(text), text
        return np.array([self._known[text[: i + 1]] for i in range(len(text))])

    def _read(self, text: tuple[int, ...]) -> Any:
        common = 0
        while common < len(self._start) and self._start[: common + 1] == text[: common + 1]:
            common += 1
        if common:
            session = self.target.resume(self._saved, common)
        else:
            ((session, scores),) = self.target.open([text[:1]])
            self._known[text[:1]] = scores.raw(0)
        for length in range(session.length, len(text)):
            (scores,) = self.target.score([(session, text[length], TokenTree.empty())])
            self._known[text[: length + 1]] = scores.raw(0)
            session.keep(())
        saved = self.target.save(session)
        session.close()
        return saved


def equal(scores: Any, row: int, truth: np.ndarray[Any, Any]) -> bool:
    """Whether a row of scores has the bits of the truth."""
    return np.array_equal(scores.raw(row).view(np.int32), truth.view(np.int32))
