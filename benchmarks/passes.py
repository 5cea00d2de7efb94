"""The pass itself: what each part of ours brings beside transformers' own, interleaved in one process.

    python benchmarks/passes.py [-o rows.jsonl] [--widths 1 2 4 8 16 32] [--dtypes float32 bfloat16] [--rounds 40]

Milliseconds of one pass of smollm2 over n tokens behind a context, all n with scores. Every round runs every arm
once, in a new order; ratios are those of a round, given as median and quartiles over the rounds. ``twin`` is
the shortest fast pass there is (`Twin`), for this model only; arms that begin with ``lean``
use its attention, ``target`` is the whole of what our loop calls. Lines with ``op`` say where the time of the lean
pass goes, beside reading its weights at the speed that this machine's memory has.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm, scaled_dot_product_attention, silu
from transformers import DynamicCache

import draftwood
from draftwood.engines.transformers.lean import Attend, LeanDecoder, _Block
from draftwood.engines.transformers.lean_parts import Layer, Parts, read_parts
from draftwood.engines.transformers.pack import Packing
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.measure.records.provenance import provenance
from draftwood.tree import TokenTree

THEIRS, TWIN, LEAN = "transformers", "twin", "lean"
PIECE = 128  # the context is read in pieces, whose mask is cheap


class Cache:
    """Keys and values of one text, written in place; attention with grouped queries as more query rows."""

    def __init__(self, parts: Parts, rows: int) -> None:
        shape = (1, parts.kv_heads, rows, parts.dim)
        self.keys, self.values = ([parts.embedding.new_zeros(shape) for _ in parts.layers] for _ in range(2))
        self.length, self.groups, self.scaling = 0, parts.heads // parts.kv_heads, parts.scaling
        self.mask: Tensor | None = None

    def prepare(self, rows: int) -> Tensor:
        """Make the mask of a pass over ``rows`` tokens; returns their positions."""
        self.mask = None
        if rows > 1:
            mask = self.keys[0].new_zeros(rows, self.length + rows)
            mask[:, self.length :] = torch.full((rows, rows), -torch.inf).triu(1)
            self.mask = mask.repeat(self.groups, 1)
        return torch.arange(self.length, self.length + rows)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (n, heads, dim), kv_heads, start = q.shape, k.shape[1], self.length
        keys, values = self.keys[layer][:, :, : start + n], self.values[layer][:, :, : start + n]
        keys[0, :, start:] = k.transpose(0, 1)
        values[0, :, start:] = v.transpose(0, 1)
        q = q.view(n, kv_heads, self.groups, dim).permute(1, 2, 0, 3).reshape(1, kv_heads, self.groups * n, dim)
        out = scaled_dot_product_attention(q, keys, values, attn_mask=self.mask, scale=self.scaling)
        return out.view(kv_heads, self.groups, n, dim).permute(2, 0, 1, 3).reshape(n, heads * dim)


class Twin:
    """The plain twin: packed layers, merged products, torch's norm, a rotation as it is written in books."""

    def __init__(self, model: Any, parts: Parts) -> None:
        self.parts, self.eps = parts, parts.norm[1]
        self.layers = [
            (pack(s.q, s.k, s.v), pack(s.o), pack(s.gate, s.up), pack(s.down), s.first_norm[0], s.second_norm[0])
            for s in parts.layers
        ]
        self.head, self.rotary = pack(parts.head), model.model.rotary_emb

    def __call__(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        parts, n = self.parts, len(ids)
        heads, turned = parts.heads, parts.heads + parts.kv_heads
        x = embedding(ids, parts.embedding)
        width = x.shape[-1:]
        cos, sin = (t[0, :, None] for t in self.rotary(x[None], positions[None]))
        for index, (qkv, out, gate_up, down, first, second) in enumerate(self.layers):
            y = product(rms_norm(x, width, first, self.eps), qkv).view(n, -1, parts.dim)
            z = y[:, :turned]
            a, b = z.chunk(2, -1)
            z = z * cos + torch.cat((-b, a), -1) * sin
            x = x + product(attend(index, z[:, :heads], z[:, heads:], y[:, turned:]), out)
            gate, up = product(rms_norm(x, width, second, self.eps), gate_up).chunk(2, -1)
            x = x + product(silu(gate) * up, down)
        return product(rms_norm(x, width, parts.norm[0], self.eps), self.head)


class FusedBlock(_Block):
    """As the lean pass, with residual adds, silu and its product inside oneDNN's products."""

    def __init__(self, layer: Layer, parts: Parts) -> None:
        super().__init__(layer, parts, Packing())
        self._weights = [pack(part) for part in (layer.o, layer.gate, layer.up, layer.down)]

    def __call__(self, x: Tensor, cos: Tensor, turn: Tensor, attend: Attend, index: int) -> Tensor:
        out, gate, up, down = self._weights
        queries, keys, values = self._queries_keys_values(x, cos, turn)
        x = product_and(attend(index, queries, keys, values), x, out, "add")
        y = self._second(x)
        gated = torch.ops.mkldnn._linear_pointwise(y, gate, None, "swish", [], "")
        return product_and(product_and(y, gated, up, "mul"), x, down, "add")


def pack(*layers: Any) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(torch.cat([layer.weight.detach() for layer in layers]), 16)


def product(x: Tensor, weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


def product_and(x: Tensor, other: Tensor, weight: Tensor, what: str) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.binary(x, other, weight, None, what)


Run = Callable[[Tensor], Tensor]


def of_transformers(model: Any, context: Tensor) -> Run:
    cache = DynamicCache(config=model.config)
    model(context[None], past_key_values=cache)

    def run(ids: Tensor) -> Tensor:
        return model(ids[None], past_key_values=cache).logits[0]

    run.after = lambda ids: cache.crop(-len(ids))  # type: ignore[attr-defined]  # outside of the time
    return run


def of_target(model: Any, context: Tensor, **how: bool) -> Run:
    target = TransformersTarget(model, **how)
    ((session, _),) = target.open([context.tolist()], reserve=64)

    def run(ids: Tensor) -> Tensor:
        root, *rest = ids.tolist()
        (scores,) = target.score([(session, root, TokenTree.build(rest, range(-1, len(rest) - 1)))])
        return scores._logits

    return run


def of_decoder(decoder: Any, parts: Parts, context: Tensor) -> Run:
    cache = Cache(parts, len(context) + 64)
    for piece in context.split(PIECE):
        decoder(piece, cache.prepare(len(piece)), cache.attend)
        cache.length += len(piece)
    return lambda ids: decoder(ids, cache.prepare(len(ids)), cache.attend)


def arms(model: Any, context: Tensor) -> tuple[dict[str, Run], LeanDecoder]:
    parts = read_parts(model)
    if parts is None:
        raise SystemExit("there is no lean pass for this model")
    decoder, fused = LeanDecoder(parts, Packing()), LeanDecoder(parts, Packing())
    fused._blocks = [FusedBlock(layer, parts) for layer in parts.layers]
    found = {
        THEIRS: of_transformers(model, context),
        "shadow": of_target(model, context, lean=False, packed=False),
        "shadow, packed": of_target(model, context, lean=False),
        "target": of_target(model, context),
    }
    decoders = {
        TWIN: Twin(model, parts),
        LEAN: decoder,
        "lean, not packed": LeanDecoder(parts, None),
        "lean, fused": fused,
    }
    return found | {name: of_decoder(one, parts, context) for name, one in decoders.items()}, decoder


def interleaved(runs: dict[str, Run], ids: Tensor, rounds: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Milliseconds per arm and round, and the largest difference of each arm's scores from transformers'."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    scores: dict[str, Tensor] = {}
    for number in range(-2, rounds):  # two to warm up
        for name in random.sample(list(runs), len(runs)):
            started = perf_counter()
            scores[name] = runs[name](ids)
            seconds = perf_counter() - started
            getattr(runs[name], "after", lambda _: None)(ids)
            if number >= 0:
                times[name].append(1e3 * seconds)
    gaps = {name: float((scores[name].float() - scores[THEIRS].float()).abs().max()) for name in runs}
    return times, gaps


def quartiles(values: list[float]) -> list[float]:
    return [round(q, 3) for q in statistics.quantiles(values, n=4, method="inclusive")]


def ratios(times: dict[str, list[float]], of: str, to: str) -> list[float]:
    return quartiles([theirs / ours for ours, theirs in zip(times[of], times[to], strict=True)])


def by_op(decoder: LeanDecoder, parts: Parts, context: Tensor, ids: Tensor, rounds: int) -> dict[str, float]:
    """Median milliseconds of each kind of operation in a lean pass; ``rest`` is rotation, views and sums."""
    spent: dict[str, float] = {}

    def clocked(name: str, run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def timed(*args: Any) -> Tensor:
            started = perf_counter()
            result = run(*args)
            spent[name] = spent.get(name, 0.0) + 1e3 * (perf_counter() - started)
            return result

        return timed

    cache = Cache(parts, len(context) + 64)
    cache.length = len(context)
    kept = [(decoder, dict(vars(decoder))), *((block, dict(vars(block))) for block in decoder._blocks)]
    names = {"_first": "norms", "_second": "norms", "_norm": "norms", "_act": "silu", "_qkv": "qkv", "_out": "out",
             "_gate_up": "gate and up", "_down": "down", "_head": "head"}  # fmt: skip
    found: list[dict[str, float]] = []
    try:
        for one, before in kept:
            for name in names.keys() & before.keys():
                setattr(one, name, clocked(names[name], before[name]))
        for _ in range(rounds):
            spent.clear()
            attend = clocked("attention and cache", cache.attend)
            positions, started = cache.prepare(len(ids)), perf_counter()
            decoder(ids, positions, attend)
            total = 1e3 * (perf_counter() - started)
            found.append(spent | {"rest": total - sum(spent.values()), "all": total})
    finally:
        for one, before in kept:
            vars(one).update(before)
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def measure(dtype: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    model = draftwood.load("smollm2", dtype=dtype)[0]
    ids = torch.randint(model.config.vocab_size, (args.context + 64,), generator=torch.manual_seed(0))
    context, rows = ids[: args.context], []
    runs, decoder = arms(model, context)
    parts = read_parts(model)
    for n in args.widths:
        new = ids[args.context : args.context + n]
        times, gaps = interleaved(runs, new, args.rounds)
        print(f"\n{dtype}, n = {n}\n{'':<18}{'best':>8}{'median':>8} ms"
              f"   {'x transformers':<22}{'x twin':<22}furthest score", flush=True)  # fmt: skip
        for name, ms in times.items():
            ratio = {f"to_{to}": ratios(times, name, to) for to in (THEIRS, TWIN)}
            spread = "".join("{1:.2f} ({0:.2f} .. {2:.2f})   ".format(*three) for three in ratio.values())
            print(
                f"{name:<18}{min(ms):8.1f}{statistics.median(ms):8.1f}      {spread}{gaps[name]:.1e}", flush=True
            )
            rows.append({"dtype": dtype, "n": n, "arm": name, "best_ms": min(ms), "ms": quartiles(ms), **ratio,
                         "furthest_score": gaps[name]})  # fmt: skip
        for name, spent in by_op(decoder, parts, context, new, args.rounds).items():
            rows.append({"dtype": dtype, "n": n, "op": name, "ms": spent})
            print(f"    {name:<22}{spent:7.2f} ms")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="write the rows as JSON lines, provenance first")
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    lines = [{"provenance": provenance(model="smollm2", context=args.context, rounds=args.rounds)}]
    for dtype in args.dtypes:
        lines += measure(dtype, args)
    if args.output:
        args.output.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
