"""Small random weights and models for the CPU engine, and the truth about these: one token per pass, one text at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from draftwood.engines.cpu.packing import plan
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.formats import FORMATS, GROUP
from draftwood.engines.files.gguf_file import BLOCK_BYTES, Tensor
from draftwood.tree import TokenTree
from tests.engines.tiny_gguf import written

HALVES = {
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2),
    "Q5_1": (0, 2), "MXFP4": (), "NVFP4": (), "IQ1_M": (), "TQ1_0": (52,), "TQ2_0": (64,),
}  # fmt: skip
"""Bytes of a block where float16 numbers lie; elsewhere, at its beginning."""
KINDS = ("Q4_K", "Q6_K", "Q5_K", "Q3_K", "Q2_K", "IQ4_XS", "Q5_1", "Q4_1", "IQ4_NL", "Q5_0")
"""Of the matrices of `write_mixed`, in turn."""
FEW_BITS = ("IQ3_S", "IQ2_XS", "IQ1_S", "MXFP4", "IQ3_XXS", "IQ2_XXS", "IQ1_M", "TQ1_0", "IQ2_S", "TQ2_0", "NVFP4")
WIDTH, FEED, HEADS, KV_HEADS, VOCAB, LAYERS = 256, 256, 4, 2, 90, 2


def zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Return zeros that begin at a multiple of 64 bytes, as those of `Slabs` do."""
    size = prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def random_rows(kind: str, rows: int, blocks: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Return uint8[rows, bytes of a row]; every byte is random but for the scales, which are finite.

    They are normally distributed times ``scale``; MXFP4's are of any size, or about as large as a smaller scale,
    NVFP4's of any size, or small.
    """
    random = np.random.default_rng(seed)
    size = BLOCK_BYTES[kind]
    raw = random.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    if kind == "MXFP4":
        _write_exponents(random, raw, scale)
    if kind == "NVFP4" and scale < 1:
        raw[..., :4] &= 15
    if kind == "IQ1_M":
        words, shifts = raw[..., 48:56].view(np.uint16), np.arange(0, 16, 4, dtype=np.uint16)
        words &= 0xFFF  # the rest is a quarter of the scale in each of four words
        words |= (_scales(random, rows, blocks, scale).view(np.uint16)[..., None] >> shifts & 15) << 12
    for at in HALVES.get(kind, (0,)):
        raw[..., at : at + 2] = _scales(random, rows, blocks, scale)[..., None].view(np.uint8)
    return raw.reshape(rows, blocks * size)


def _scales(random: np.random.Generator, rows: int, blocks: int, scale: float) -> np.ndarray:
    scales = random.normal(size=(rows, blocks)).astype(np.float16)
    scales[random.random(scales.shape) < 0.05] = 0
    scales[random.random(scales.shape) < 0.05] = np.float16(6e-8)  # the smallest there is
    return scales * np.float16(scale)


def _write_exponents(random: np.random.Generator, raw: np.ndarray, scale: float) -> None:
    """Give blocks of MXFP4 exponents that float16 has; some are zero and have any."""
    low, high = (104, 144) if scale == 1 else (125 + round(np.log2(scale)), 130 + round(np.log2(scale)))
    raw[..., 0] = random.integers(low, high, raw.shape[:-1])
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
    form = FORMATS[kind]
    scale = 0.05 / (31 if form.factors else 1) / form.most / 2.0**form.power
    return random_rows(kind, rows, inputs // (GROUP * form.groups), seed, scale)


def write_mixed(path: Path, seed: int = 0, kinds: Sequence[str] = KINDS) -> Path:
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
        kind = "Q8_0" if name == "token_embd" else kinds[number % len(kinds)]
        if name.endswith(("ffn_gate", "ffn_up")):
            kind = "Q4_K"
        raw = small_rows(kind, rows, WIDTH, seed + number)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=GGMLQuantizationType[kind])
        if kind == "NVFP4":
            for end in ("scale", "input_scale"):
                writer.add_tensor(f"{name}.{end}", random.uniform(0.3, 1, 1).astype(np.float32))
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
        self._saved: dict[int, Any] = {}  # of it, by length: states begin where they were saved

    def __call__(self, text: Any) -> np.ndarray[Any, Any]:
        """Return float32[vocabulary]."""
        text = tuple(int(token) for token in text)
        if text not in self._known:
            self._read(text)
        return self._known[text]

    def begin_with(self, text: Any) -> np.ndarray[Any, Any]:
        """Return the scores after each token of a text, float32[tokens, vocabulary]."""
        self._start = ()
        text = tuple(int(token) for token in text)
        self._saved, self._start = self._read(text, every=16), text
        return np.array([self._known[text[: i + 1]] for i in range(len(text))])

    def _read(self, text: tuple[int, ...], every: int = 0) -> dict[int, Any]:
        """Read a text; returns what was saved of it, ``every`` so many tokens and at the end."""
        saved, common = {}, 0
        while common < len(self._start) and self._start[: common + 1] == text[: common + 1]:
            common += 1
        if common:
            near = max((length for length in self._saved if length <= common), default=min(self._saved))
            session = self.target.resume(self._saved[near], min(near, common))
        else:
            ((session, scores),) = self.target.open([text[:1]])
            self._known[text[:1]] = scores.raw(0)
        for length in range(session.length, len(text)):
            (scores,) = self.target.score([(session, text[length], TokenTree.empty())])
            self._known[text[: length + 1]] = scores.raw(0)
            session.keep(())
            if every and session.length % every == 0:
                saved[session.length] = self.target.save(session)
        saved[session.length] = self.target.save(session)
        session.close()
        return saved


def equal(scores: Any, row: int, truth: np.ndarray[Any, Any]) -> bool:
    """Whether a row of scores has the bits of the truth."""
    return np.array_equal(scores.raw(row).view(np.int32), truth.view(np.int32))
