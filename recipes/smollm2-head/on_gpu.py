"""Writes text with smollm2 and trains a head for it on one GPU, in minutes: the shipped head's third training.

It reads the model's GGUF file and this repository (``PYTHONPATH=src``), and needs torch with CUDA and safetensors.
The model is computed as the CPU engine does it: 4-bit weights, and inputs of products rounded to 8 bits per group
of 32.

    python on_gpu.py write MODEL.gguf -o texts.pt --seconds 100
    python on_gpu.py train MODEL.gguf --texts texts.pt --start HEAD --shipped HEAD --old OLD.jsonl -o head
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from draftwood.engines.files.formats import FORMATS
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.engines.files.gguf_types import dequantised, read_blocks, read_floats
from draftwood.engines.heads.weights import HeadShape, HeadWeights, read_head
from draftwood.training.head_module import HeadModule, _Layer

LAYERS, HEADS, KV, DIM, WIDTH, INNER, VOCABULARY = 30, 9, 3, 64, 576, 1536, 49152
PARTS = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
EPS, THETA = 1e-5, 100000.0
END, PADDING = 2, 0  # <|im_end|>, and what no text holds
LENGTH = 512  # tokens of a text
REQUEST, ANSWER = 100, 256  # most tokens
PERIOD, LOOP = 48, 40  # a text that repeats what stood so many tokens before, for so long, is ended
STEPS, DECAY, HELD_OUT = 4, 0.8, 96

torch._dynamo.config.recompile_limit = 32


class Fast:
    """A function of small operations, compiled to one where that works."""

    def __init__(self, function: Any) -> None:
        self._plain = function
        self._fast = torch.compile(function, dynamic=False) if torch.cuda.is_available() else function

    def __call__(self, *args: Tensor) -> Any:
        try:
            return self._fast(*args)
        except Exception as error:
            if self._fast is self._plain:
                raise
            print(f"not compiled: {error}")
            self._fast = self._plain
            return self._plain(*args)


def _rounded(x: Tensor) -> Tensor:
    """Round to 8 bits per group of 32, as the CPU engine rounds inputs of products."""
    groups = x.float().unflatten(-1, (-1, 32))
    step = groups.abs().amax(-1, keepdim=True) / 127
    return ((groups / step.clamp_min(1e-30)).round() * step).flatten(-2).bfloat16()


def _norm_rounded(x: Tensor, weight: Tensor) -> Tensor:
    x = x.float()
    return _rounded(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight)


def _gated(x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, -1)
    return _rounded(functional.silu(gate) * up)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.float().chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1).bfloat16()


class Model:
    """smollm2 in bfloat16; the residual stream in float32."""

    def __init__(self, path: Path, device: str) -> None:
        self.device, self.file = device, GgufFile(path)
        self.rounded, self.norm, self.gated, self.turned = map(Fast, (_rounded, _norm_rounded, _gated, _turned))
        self.table = self.weight("token_embd.weight")
        self.last_norm = self.weight("output_norm.weight").float()
        self.layers = []
        for i in range(LAYERS):
            part = {name: self.weight(f"blk.{i}.{name}.weight") for name in PARTS}
            q, k = self.halves(part["attn_q"], HEADS), self.halves(part["attn_k"], KV)
            self.layers.append((
                part["attn_norm"].float(), torch.cat((q, k, part["attn_v"])), part["attn_output"],
                part["ffn_norm"].float(), torch.cat((part["ffn_gate"], part["ffn_up"])), part["ffn_down"],
            ))  # fmt: skip
        angles = torch.arange(4096, device=device)[:, None] * THETA ** -(
            torch.arange(0, DIM, 2, device=device).float() / DIM
        )
        self.cos, self.sin = angles.cos(), angles.sin()

    def weight(self, name: str) -> Tensor:
        tensor = self.file.tensors[name]
        raw = np.ascontiguousarray(tensor.data)
        if tensor.kind in FORMATS:
            values = dequantised(read_blocks(tensor.kind, raw), FORMATS[tensor.kind])
        else:
            values = read_floats(tensor.kind, raw)
        values = torch.from_numpy(values).view(tensor.shape)
        return values.to(self.device, torch.bfloat16)

    @staticmethod
    def halves(weight: Tensor, heads: int) -> Tensor:
        """Undo the order in which GGUF keeps rows that turn together: neighbours become halves of a head."""
        return weight.view(heads, DIM // 2, 2, WIDTH).transpose(1, 2).reshape(heads * DIM, WIDTH)

    def split(self, x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [..., heads, dim]."""
        parts = functional.linear(x, weight).unflatten(-1, (HEADS + 2 * KV, DIM))
        turned = self.turned(parts[..., : HEADS + KV, :], cos, sin)
        return turned[..., :HEADS, :], turned[..., HEADS:, :], parts[..., HEADS + KV :, :]

    def feed(self, x: Tensor, layer: Any) -> Tensor:
        inner = self.gated(functional.linear(self.norm(x, layer[3]), layer[4]))
        return x + functional.linear(inner, layer[5]).float()

    @torch.no_grad()
    def states(self, ids: Tensor, wanted: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return states before these layers, side by side, and the last ones after the norm; ids [b, n]."""
        x, found = self.table[ids].float(), {}
        tokens = ids.shape[1]
        cos, sin = self.cos[:tokens, None], self.sin[:tokens, None]
        for i, layer in enumerate(self.layers):
            if i in wanted:
                found[i] = x.bfloat16()
            q, k, v = (part.transpose(1, 2) for part in self.split(self.norm(x, layer[0]), layer[1], cos, sin))
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + functional.linear(self.rounded(out.transpose(1, 2).flatten(2)), layer[2]).float()
            x = self.feed(x, layer)
        return torch.cat([found[i] for i in wanted], -1), self.norm(x, self.last_norm)

    def cache(self, rows: int) -> list[tuple[Tensor, Tensor]]:
        shape = rows, KV, LENGTH, DIM
        return [tuple(torch.zeros(shape, dtype=torch.bfloat16, device=self.device) for _ in "kv")
                for _ in range(LAYERS)]  # fmt: skip

    @torch.no_grad()
    def step(self, ids: Tensor, position: int, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the scores [b, vocabulary] after one token of each text; all are at the same position."""
        x = self.table[ids].float()
        cos, sin, rows, end = self.cos[position], self.sin[position], len(ids), position + 1
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            q, k, v = self.split(self.norm(x, layer[0]), layer[1], cos, sin)
            keys[:, :, position], values[:, :, position] = k, v
            scores = q.reshape(rows, KV, HEADS // KV, DIM) @ keys[:, :, :end].transpose(-1, -2)
            weights = (scores.float() * DIM**-0.5).softmax(-1).bfloat16()
            out = (weights @ values[:, :, :end]).reshape(rows, HEADS * DIM)
            x = self.feed(x + functional.linear(self.rounded(out), layer[2]).float(), layer)
        return functional.linear(self.norm(x, self.last_norm), self.table)


class Writer:
    """Many conversations at once: the model asks and answers, nearly as in `draftwood.training.texts`."""

    def __init__(self, model: Model, frame: dict[str, list[int]], openings: list[list[int]], seed: int) -> None:
        self.model, self.frame, self.openings, self.chance = model, frame, openings, random.Random(seed)

    def batch(self, rows: int, heats: tuple[float, ...]) -> tuple[Tensor, Tensor]:
        """Return ids uint16 and whether the model wrote each as an answer, [rows, LENGTH]."""
        device, chance = self.model.device, self.chance
        before, after, again = (self.frame[name] for name in ("before", "after", "again"))
        begun = [[*before, *(chance.choice(self.openings) if chance.random() < 0.8 else [])] for _ in range(rows)]
        room = max(map(len, [*begun, after, again])) + 1
        queue = torch.full((rows, room), -1, dtype=torch.int64, device=device)
        for row, ids in enumerate(begun):
            queue[row, : len(ids)] = torch.tensor(ids)
        turns = torch.full((2, room), -1, dtype=torch.int64, device=device)
        turns[0, : len(again)], turns[1, : len(after)] = torch.tensor(again), torch.tensor(after)
        heat = torch.tensor(heats, device=device).repeat(rows // len(heats) + 1)[:rows]
        place = torch.zeros(rows, dtype=torch.int64, device=device)
        answering = torch.zeros(rows, dtype=torch.bool, device=device)
        count = torch.zeros(rows, dtype=torch.int64, device=device)
        ids = torch.zeros(rows, LENGTH, dtype=torch.int64, device=device)
        own = torch.zeros(rows, LENGTH, dtype=torch.bool, device=device)
        every, cache = torch.arange(rows, device=device), self.model.cache(rows)
        sampled = torch.zeros(rows, dtype=torch.int64, device=device)
        same = torch.zeros(rows, PERIOD, dtype=torch.int64, device=device)  # tokens in a row like those before
        for position in range(LENGTH):
            given = queue[every, place.clamp_max(room - 1)]
            free = given < 0
            is_loop = (same >= LOOP).any(-1)
            over = free & ((sampled == END) | is_loop | (count >= torch.where(answering, ANSWER, REQUEST)))
            token = torch.where(over, END, torch.where(free, sampled, given))
            ids[:, position], own[:, position] = token, free & answering
            count = torch.where(over, 0, count + free)
            past = functional.pad(ids, (PERIOD, 0), value=-1)[:, position : position + PERIOD].flip(-1)
            same = torch.where(past == token[:, None], same + 1, 0)
            answering = answering ^ over
            # After an end the template goes on; its first token is the end itself.
            queue = torch.where(over[:, None], turns[answering.long()], queue)
            place = torch.where(over, 1, place + ~free)
            if position + 1 < LENGTH:
                scores = self.model.step(token, position, cache)
                warm = torch.where(answering, heat, 0.8)[:, None]
                best = scores.argmax(-1)
                odds = (scores.float() / warm.clamp_min(0.1)).softmax(-1)
                drawn = odds.div_(torch.empty_like(odds).exponential_()).argmax(-1)
                sampled = torch.where(warm[:, 0] > 0, drawn, best)
        return ids.to(torch.uint16).cpu(), own.cpu()


def write(args: argparse.Namespace) -> None:
    """Write texts for so many seconds."""
    model = Model(args.model, args.device)
    frame = json.loads(Path(__file__).with_name("frame.json").read_text())
    writer = Writer(model, frame, frame["openings"], args.seed)
    torch.manual_seed(args.seed)
    started, found = time.monotonic(), []
    while time.monotonic() - started < args.seconds:
        found.append(writer.batch(args.rows, (0.0, 0.0, 0.7, 1.0)))
        print(f"{time.monotonic() - started:.0f} s, {sum(one[1].sum().item() for one in found)} tokens of answers",
              flush=True)  # fmt: skip
    texts = torch.cat([one[0] for one in found]), torch.cat([one[1] for one in found])
    torch.save(texts, args.output)


class Rounded(nn.Linear):
    """A product whose weights are rounded as the CPU engine keeps them (Q4_1) when ``active``; gradients pass."""

    active = False

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        if Rounded.active:
            weight = weight + (fast_four(weight.detach()) - weight.detach())
        return functional.linear(x, weight)


def _four(weight: Tensor) -> Tensor:
    groups = weight.unflatten(-1, (-1, 32))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = ((high - low) / 15).clamp_min(1e-12)
    return (((groups - low) / step).round() * step + low).flatten(-2)


fast_four = Fast(_four)


class Head(HeadModule):
    """A head of one layer or two."""

    def __init__(self, layers: tuple[int, ...], inner: int, depth: int) -> None:
        shape = HeadShape(WIDTH, layers, LAYERS, VOCABULARY, DIM, EPS, THETA)
        super().__init__(shape, HEADS, KV, inner)
        self.second = _Layer(shape, HEADS, KV, inner) if depth == 2 else None
        for one in self.modules():
            if isinstance(one, nn.Linear):
                one.__class__ = Rounded

    def forward(self, states: Tensor, embedded: Tensor, steps: int) -> list[Tensor]:
        x, found = self.fc(states), []
        before: list[list[Any]] = [[], []]
        for step in range(steps):
            if step:
                x = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
            x = self.midlayer(x, embedded, before[0])
            if self.second is not None:
                x = self.second(x, embedded, before[1])
            found.append(self.norm(x))
        return found

    def begin(self, start: HeadWeights) -> None:
        """Take a head's weights; what is new begins small."""
        own = dict(self.named_parameters())
        with torch.no_grad():
            for name, value in own.items():
                if name.startswith("second."):
                    its = torch.from_numpy(start.tensors[name.replace("second", "midlayer")])
                    value.copy_(its * (0.1 if "o_proj" in name or "down_proj" in name else 1))
                    continue
                its = torch.from_numpy(start.tensors[name])
                if its.shape == value.shape:
                    value.copy_(its)
                elif name == "fc.weight":
                    value.normal_(std=0.002)
                    for place, layer in enumerate(start.shape.layers):
                        at = self.shape.layers.index(layer)
                        value[:, at * WIDTH : (at + 1) * WIDTH] = its[:, place * WIDTH : (place + 1) * WIDTH]
                else:
                    value.normal_(std=0.005 if "down" in name else 0.03)
                    value[: its.shape[0], : its.shape[1]] = its


VARIANTS: dict[str, dict[str, Any]] = {
    "same": {},  # as the head it begins with
    "sharp": {"sharp": 0.5},
    "second-layer": {"depth": 2},
    "wide": {"inner": 2 * INNER},
    "six-states": {"layers": (2, 9, 15, 21, 27, 29)},
}


class Trainee:
    """One variant under training."""

    def __init__(self, name: str, start: HeadWeights, device: str) -> None:
        known = {"layers": start.shape.layers, "inner": INNER, "depth": 1, "sharp": 0.0, **VARIANTS[name]}
        self.name, self.layers, self.sharp = name, known["layers"], known["sharp"]
        self.head = Head(known["layers"], known["inner"], known["depth"])
        self.head.begin(start)
        self.head.to(device)
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), 1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=device == "cuda"
        )

    def update(self, batch: Batch, rate: float) -> Tensor:
        loss = batch.loss(self.head, batch.states_of(self.layers), self.sharp)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return loss.detach()


class Batch:
    """Texts as the model sees them; ``rows`` [v, width] score the head's tokens."""

    def __init__(self, model: Model, ids: Tensor, own: Tensor, every: tuple[int, ...], rows: Tensor) -> None:
        states, last = model.states(ids, every)
        self.every, self.states, self.rows = every, states[:, :-2], rows
        self.embedded = model.table[ids[:, 1:-1]]
        self.last, self.own, self.real = last[:, 1:-1], own[:, 2:], ids[:, 2:] != PADDING
        with torch.no_grad():
            self.wanted = functional.linear(self.last, rows).float().softmax(-1)

    def states_of(self, layers: tuple[int, ...]) -> Tensor:
        at = [self.every.index(layer) for layer in layers]
        return torch.cat([self.states[..., i * WIDTH : (i + 1) * WIDTH] for i in at], -1)

    def loss(self, head: Head, states: Tensor, sharp: float) -> Tensor:
        """Cross-entropy against the model's distribution; of tokens that are no answers a tenth."""
        weight = torch.where(self.own, 1.0, 0.1)
        wanted, whole = self.wanted, torch.zeros((), device=states.device)
        with torch.autocast(states.device.type, torch.bfloat16):
            for step, made in enumerate(head(states, self.embedded, STEPS)):
                logits = functional.linear(made[:, step:], self.rows).float()
                logits = logits.flatten(0, 1)
                entropy = functional.cross_entropy(logits, wanted[:, step:].flatten(0, 1), reduction="none")
                if sharp:
                    best = wanted[:, step:].argmax(-1).flatten()
                    hard = functional.cross_entropy(logits, best, reduction="none")
                    entropy = (1 - sharp) * entropy + sharp * hard
                part = weight[:, step:].flatten()
                whole = whole + DECAY**step * (entropy * part).sum() / part.sum()
        return whole

    @torch.no_grad()
    def judged(self, head: Head, states: Tensor, model: Model, ids: Tensor) -> list[float]:
        """Return counts: tokens, right at each step; answers' tokens, right at each step, right in a row.

        The first five as a training judges (all tokens, the model's best of the head's vocabulary), the others of
        the model's best of all.
        """
        best = functional.linear(self.last, model.table).argmax(-1)
        among = self.wanted.argmax(-1)
        all_right, right = [], []
        with torch.autocast(states.device.type, torch.bfloat16):
            for made in head(states, self.embedded, STEPS):
                said = functional.linear(made, self.rows).argmax(-1)
                all_right.append(said == among)
                right.append(ids[said] == best)
        found = [float(self.real.sum())]
        for step, one in enumerate(all_right):
            real = self.real[:, step:]
            found.append(found[0] * float((one[:, step:] & real).sum() / real.sum()))
        tokens = best.shape[1]
        end = tokens - STEPS + 1
        row, own = self.own[:, :end], float(self.own[:, :end].sum())
        run, runs = torch.ones_like(row), []
        for step in range(STEPS):
            hit = right[step][:, step : step + end]
            run = run & hit
            found_run = float((run & row).sum())
            runs.append((float((hit & row).sum()), found_run))
        return [*found, own, *(one[0] for one in runs), *(one[1] for one in runs)]


def told(sums: list[float]) -> str:
    """Say what `Batch.judged` counted."""
    whole, first, own, right, runs = sums[0], sums[1:5], max(1.0, sums[5]), sums[6:10], sums[10:14]
    shares = " ".join(f"{100 * one / whole:.1f}" for one in first)
    real = " ".join(f"{100 * one / own:.1f}" for one in right)
    chain = " ".join(f"{1 + sum(runs[: n + 1]) / own:.3f}" for n in range(STEPS))
    return f"all {shares} | answers {real} | tokens per pass with 1-4 in a chain {chain}"


def judge(trainee: Trainee, model: Model, texts: Any, ids: Tensor, every: tuple[int, ...]) -> list[float]:
    """Add up what `Batch.judged` counts over texts."""
    sums = [0.0] * 14
    for first in range(0, len(texts[0]), 16):
        some = texts[0][first : first + 16].long().to(model.device)
        own = texts[1][first : first + 16].to(model.device)
        batch = Batch(model, some, own, every, model.table[ids])
        found = batch.judged(trainee.head, batch.states_of(trainee.layers), model, ids)
        sums = [a + b for a, b in zip(sums, found, strict=True)]
    return sums


def old_texts(path: Path) -> tuple[Tensor, Tensor]:
    """Return the texts that earlier trainings held out, padded."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    ids, own = torch.full((len(lines), LENGTH), PADDING), torch.zeros(len(lines), LENGTH, dtype=torch.bool)
    for row, one in enumerate(lines):
        count = min(LENGTH, len(one["ids"]))
        ids[row, :count] = torch.tensor(one["ids"][:count])
        own[row, one["start"] : count] = True
    return ids, own


def chosen_tokens(texts: Any, size: int) -> tuple[Tensor, list[float]]:
    """Return the commonest tokens of answers, ascending, and which share 2048, 4096, ... of them have."""
    counts = torch.bincount(texts[0].long()[texts[1]], minlength=VOCABULARY)
    order = counts.argsort(descending=True)
    shares = [float(counts[order[:n]].sum() / counts.sum()) for n in (2048, 4096, 8192, 16384)]
    return order[:size].sort().values, shares


def train(args: argparse.Namespace) -> None:
    """Train variants side by side on the same batches, and judge them."""
    model, device = Model(args.model, args.device), args.device
    texts = torch.load(args.texts)
    start, shipped = read_head(args.start), read_head(args.shipped)
    held = texts[0][::4][: args.held], texts[1][::4][: args.held]  # greedy answers: every fourth row
    left = torch.ones(len(texts[0]), dtype=torch.bool)
    left[: 4 * args.held : 4] = False
    texts = texts[0][left], texts[1][left]
    ids, shares = chosen_tokens(texts, args.vocabulary)
    print(f"{len(texts[0])} texts, {int(texts[1].sum())} tokens of answers; shares of the vocabulary {shares}")
    ids, texts = ids.to(device), (texts[0].int().to(device), texts[1].to(device))
    rows = model.table[ids]
    trainees = [Trainee(name, start, device) for name in args.variants.split(",")]
    every = tuple(sorted({*shipped.shape.layers}.union(*(one.layers for one in trainees))))
    old_ids = torch.from_numpy(shipped.ids()).to(device)
    before = Trainee("same", shipped, device)
    print("shipped, its vocabulary:", told(judge(before, model, held, old_ids, every)), flush=True)
    print("shipped, new vocabulary:", told(judge(before, model, held, ids, every)), flush=True)
    old = old_texts(args.old)
    print("shipped, old texts:", told(judge(before, model, old, old_ids, every)), flush=True)
    chance = torch.Generator().manual_seed(args.seed)
    started = shown = time.monotonic()
    updates, order, losses = 0, torch.empty(0, dtype=torch.int64), {}
    while (share := (time.monotonic() - started) / args.seconds) < 1:
        if len(order) < args.batch:
            order = torch.cat((order, torch.randperm(len(texts[0]), generator=chance)))
        some, order = order[: args.batch], order[args.batch :]
        Rounded.active = share > args.rounded_from
        rate = args.rate * min(1, (updates + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        some = some.to(device)
        batch = Batch(model, texts[0][some].long(), texts[1][some], every, rows)
        for one in trainees:
            losses[one.name] = one.update(batch, rate)
        updates += 1
        if time.monotonic() - shown > args.every:
            shown = time.monotonic()
            print(f"{shown - started:.0f} s, {updates} updates,",
                  {name: round(float(one), 3) for name, one in losses.items()}, flush=True)  # fmt: skip
    Rounded.active = True
    best = None
    for one in trainees:
        sums = judge(one, model, held, ids, every)
        print(f"{one.name}, {updates} updates: {told(sums)}", flush=True)
        print(f"    old texts: {told(judge(one, model, old, ids, every))}", flush=True)
        value = sum(sums[10:13]) / max(1.0, sums[5])
        print(f"    with the shipped vocabulary: {told(judge(one, model, held, old_ids, every))}", flush=True)
        if one.head.second is None and (best is None or value > best[0]):
            best = value, one
        save(args.output.with_name(f"{args.output.stem}-{one.name}.safetensors"), one, ids, start.target)
    if best is not None:
        args.output.with_name("best").write_text(best[1].name)
        print("best of one layer:", best[1].name)


def save(path: Path, one: Trainee, ids: Tensor, target: str) -> None:
    """Write a head's file."""
    weights = HeadWeights(one.head.shape, one.head.tensors(ids.tolist(), torch.bfloat16), target)
    save_file(dict(weights.tensors), path, weights.header())


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("write", "train"))
    parser.add_argument("model", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--shipped", type=Path)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--variants", default="same")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--rounded-from", type=float, default=0.5)
    parser.add_argument("--every", type=float, default=20)
    parser.add_argument("--held", type=int, default=HELD_OUT)
    args = parser.parse_args()
    {"write": write, "train": train}[args.what](args)


if __name__ == "__main__":
    main()
