"""What draftwood does on one graphics card: its passes, its texts, and which way it runs each type of model.

    python benchmarks/gpu.py -o gpu.jsonl [--seconds 440] [--only pass texts]
    python benchmarks/gpu.py --small -o small.jsonl         # tiny shapes, on the processor: tries the command

Takes less than eight minutes and 24 GB of a card. It needs torch 2.11, transformers 5.17 (or newer ones), xxhash
and zstandard, but no network. Models have random weights in bfloat16 in the shapes of 1.1B and 8B. Texts are
forced, as in `forced`: every pass is computed, and then chooses what smollm2 wrote, in ``model.generate`` too.

Parts, of each model: ``way`` (trees, texts per pass), ``memory``, ``equality`` (scores of a token in passes of
other widths beside those of a pass of its own), ``pass`` (seconds by width and context), ``texts`` (alone and 16
together, plain and drafted, beside ``model.generate`` and its prompt lookup); then ``types``: the way of each type
that transformers registers, as a tiny model, and whether drafted text is its own.

The file is written anew after each row, so whatever stops the command, what was measured stays. A part that fails
is a row, and the others go on. A part whose time is spent ends, which is a row too, and no part begins after
``--seconds``. Put the file into benchmarks/results as gpu.jsonl, and docs/figures.md shows it.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from forced import TRACES, Arm, Forced, text_of
from model_types import difference, drafted
from tests.engines.registered import causal_types, tiny

from draftwood.engines.transformers.peers import Clock
from draftwood.engines.transformers.selftest import agreeing
from draftwood.engines.transformers.shared import ways
from draftwood.errors import UnsupportedModelError
from draftwood.files.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import grouped, read_traces
from draftwood.tree import TokenTree

Row = dict[str, Any]
Text = tuple[list[int], list[int]]  # prompt and answer

LOOKUP = {"prompt_lookup_num_tokens": 10}  # as in transformers' own examples
SHORT = 200  # tokens of each prompt of a batch: the last ones, so that nothing is padded
TOGETHER = "together"
ALONE = TokenTree.empty()


LARGE = {
    "1.1B": {
        "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 16384,
    },
    "8B": {
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 16384,
    },
}  # fmt: skip
TINY = {
    "tiny": {
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096,
    },
}  # fmt: skip
# How much is measured; of answers so many ``tokens`` each, of types the first ones (None: all).
CARD = SimpleNamespace(
    device="cuda", shapes=LARGE, contexts=(512, 8000), widths=(1, 2, 4, 8, 16, 32, 64), rounds=12, tokens=96,
    batch=16, types=None,
)  # fmt: skip
SMALL = SimpleNamespace(
    device="cpu", shapes=TINY, contexts=(16, 48), widths=(1, 4), rounds=1, tokens=24, batch=2, types=1
)
COMMON = ("llama", "qwen3", "qwen2", "mistral", "gemma2", "gemma3_text", "phi3", "gpt2", "qwen3_moe", "gpt_oss",
          "deepseek_v3", "qwen3_next", "mamba2", "falcon_h1")  # fmt: skip
"""Types that come first."""


class Subject:
    """A model with random weights, the way that it is run, and the texts that it is made to write."""

    def __init__(self, plan: SimpleNamespace, name: str) -> None:
        self.plan, settings = plan, plan.shapes[name]
        config = transformers.LlamaConfig(**settings, eos_token_id=None, bos_token_id=None, pad_token_id=0)
        with torch.device(plan.device):  # the weights are made where they stay
            self.model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        self.target, self.said = opened(self.model)
        size = settings["vocab_size"]
        self.ids: list[int] = np.random.default_rng(0).integers(0, size, plan.contexts[-1]).tolist()
        traces = [trace for trace in read_traces(TRACES) if len(trace.output_ids) >= plan.tokens]
        self.tasks = {task: [text_of(some[0], size, plan.tokens)] for task, some in grouped(traces)}
        texts = [text_of(trace, size, plan.tokens) for trace in traces if len(trace.prompt_ids) >= SHORT]
        some = texts[:: len(texts) // plan.batch][: plan.batch]
        self.tasks[TOGETHER] = [(prompt[-SHORT:], output) for prompt, output in some]


def opened(model: Any) -> tuple[Any, Row]:
    """The target of the first way to run a model that passes its trial, and what it offers; ``before`` says why
    other ways do not."""
    before: list[str] = []
    for way, make in ways(model, packed=True).items():
        target, reason = agreeing(make, model)
        if target is not None:
            able = target.capabilities
            return target, {"way": way, "drafts": drafted(able), "batch": able.batch, "before": before}
        before.append(f"{way}: {reason}")
    raise UnsupportedModelError("; ".join(before))


def way(one: Subject) -> Iterator[Row]:
    yield {"bytes": one.model.get_memory_footprint(), **one.said}


def memory(one: Subject) -> Iterator[Row]:
    """Bytes that are taken at most while a long prompt is read, weights included."""
    text = one.ids, [1]
    for write in (partial(generated, one.model, "generate"), Arm("draftwood", Forced(one.target)).write):
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        yield {**write(text), "bytes": torch.cuda.max_memory_allocated()}


def equality(one: Subject) -> Iterator[Row]:
    """Compare rows of chains, of trees and of passes over several texts with those of passes alone."""
    start, most, target = one.plan.contexts[0] // 2, one.plan.widths[-1], one.target
    ((session, _),) = target.open([one.ids[:start]])
    alone = []
    for token in one.ids[start : start + most]:
        alone += rows_of(target.score([(session, token, ALONE)]))
        session.keep([])
    session.truncate(start)
    for width in one.plan.widths[1:]:
        root, *chain = one.ids[start : start + width]
        for shape, wrong in (("chain", 0), ("tree", 4)):  # the wrong nodes follow the root, too
            parents = [*range(-1, width - 2), *[-1] * wrong]
            found = target.score([(session, root, TokenTree.build([*chain, *range(wrong)], parents))])
            yield {"shape": shape, "width": width, **compared(rows_of(found, width), alone[:width])}
    session.close()
    texts = [session for session, _ in target.open([one.ids[: start + place] for place in range(one.plan.batch)])]
    alone = [row for session in texts for row in rows_of(target.score([(session, 1, ALONE)]))]
    together = rows_of(target.score([(session, 1, ALONE) for session in texts]))
    yield {"shape": "texts", "width": len(texts), **compared(together, alone)}
    for session in texts:
        session.close()


def rows_of(several: Sequence[Any], rows: int = 1) -> list[torch.Tensor]:
    """The first rows of all of these scores, float32[vocab] each."""
    return [scores.raw(row).clone() for scores in several for row in range(rows)]


def compared(found: list[torch.Tensor], alone: list[torch.Tensor]) -> Row:
    """How many rows have the same bits and the same best token; the largest difference as a share of the largest
    score."""
    pairs = list(zip(found, alone, strict=True))
    apart = [((ours - own).abs().max() / own.abs().max()).item() for ours, own in pairs]
    same_best = sum(ours.argmax() == own.argmax() for ours, own in pairs)
    return {"rows": len(apart), "same_bits": apart.count(0), "same_best": int(same_best), "largest": max(apart)}


def passes(one: Subject) -> Iterator[Row]:
    """Time passes over chains and trees, in turns."""
    trees = {
        (shape, width): TokenTree.build(one.ids[1:width], [(node - 1) // arity for node in range(width - 1)])
        for shape, arity in (("chain", 1), ("tree", 2))
        for width in one.plan.widths
    }
    for context in one.plan.contexts:
        ((session, _),) = one.target.open([one.ids[:context]], reserve=64)
        seconds: dict[tuple[str, int], list[float]] = {key: [] for key in trees}
        for _ in range(1 + one.plan.rounds):
            for key, tree in trees.items():
                started = perf_counter()
                one.target.score([(session, 1, tree)])[0].argmax(0)
                seconds[key].append(perf_counter() - started)
                session.keep([])
                session.truncate(context)
        session.close()
        for (shape, width), some in seconds.items():  # the first pass of each chooses kernels
            yield {"shape": shape, "context": context, "width": width, "seconds": median(some[1:])}


def texts(one: Subject) -> Iterator[Row]:
    """Each kind of text alone, and several texts together, which prompt lookup does not take."""
    target = Forced(one.target)
    arms = {
        "plain": Arm("plain", target).write,
        "drafted": Arm("drafted", target, "ngram").write,
        "generate": partial(generated, one.model, "generate"),
        "lookup": partial(generated, one.model, "lookup", **LOOKUP),
    }
    for task, some in one.tasks.items():
        for arm, write in arms.items():
            if arm != "lookup" or task != TOGETHER:
                write(*((prompt, output[:4]) for prompt, output in some))  # the first time chooses kernels
                yield {"task": task, **write(*some)}


class Recorded(transformers.LogitsProcessor):  # type: ignore[misc]
    """Lets ``model.generate`` choose the tokens of these texts, int64[texts, tokens]."""

    def __init__(self, texts: torch.Tensor) -> None:
        self._texts = texts

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        following = self._texts[:, input_ids.shape[1] :][:, :1]
        return torch.zeros_like(scores).scatter_(1, following, 1.0)


def generated(model: Any, name: str, *texts: Text, **options: int) -> Row:
    """Write the answers by ``model.generate``; prompts have one length, and so have answers."""
    whole = torch.tensor([[*prompt, *output] for prompt, output in texts], device=model.device)
    (prompt, output), *_ = texts
    prompts, clock = whole[:, : len(prompt)], Clock()
    found = model.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=len(output), do_sample=False,
        logits_processor=[Recorded(whole)], streamer=clock, **options,
    )  # fmt: skip
    assert found.equal(whole), "an answer is not the recorded one"
    (before, first), (after, last), passes = clock.arrivals[0], clock.arrivals[-1], len(clock.arrivals) - 1
    return {"arm": name, "tokens": after - before, "passes": len(texts) * passes, "seconds": last - first}


def types(plan: SimpleNamespace) -> Iterator[Row]:
    """Of each type the way in both number formats; its texts in float32, where no two tokens score alike."""
    for name in [*dict.fromkeys((*COMMON, *causal_types()))][: plan.types]:
        for dtype in (torch.bfloat16, torch.float32):
            row: Row = {"type": name, "dtype": str(dtype)}
            try:
                model = tiny(name).to(plan.device, dtype)
                target, said = opened(model)
                row |= said
                if dtype == torch.float32:
                    row["differs"] = difference(model, target.capabilities)
            except Exception as error:  # of whatever code a model brings
                row |= {"drafts": "refused", "why": repr(error)}
            yield row


PARTS = {
    "way": (way, 30), "memory": (memory, 20), "equality": (equality, 25), "pass": (passes, 40),
    "texts": (texts, 110), "types": (types, 200),
}  # fmt: skip
"""What yields a part's rows, and the seconds after which it ends."""


def measured(plan: SimpleNamespace, chosen: Sequence[str], seconds: float) -> Iterator[Row]:
    """Run the parts, of each model and then without one, as long as their seconds and those of all allow."""
    latest = perf_counter() + seconds
    for model in (*plan.shapes, None):
        given: Callable[[], Any] = cache(partial(Subject, plan, model)) if model else lambda: plan
        for part in chosen:
            if (part == "types") == bool(model):
                continue
            make, share = PARTS[part]
            about, end = {"part": part, "model": model}, min(latest, perf_counter() + share)
            try:
                for row in make(given()) if perf_counter() < latest else ():
                    yield {"row": "measured", **about, **row}
                    if perf_counter() > end:
                        break
            except Exception as error:  # the other parts go on
                yield {"row": "failed", **about, "why": repr(error)}
            if perf_counter() > end:
                yield {"row": "ended", **about, "why": "its time is spent"}
        del given
        gc.collect()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=440, help="after which no part begins")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, metavar="PART")
    parser.add_argument("--small", action="store_true", help="tiny shapes on the processor")
    args = parser.parse_args(arguments)
    has_card = torch.cuda.is_available()
    if not (args.small or has_card):
        parser.error("torch finds no graphics card here: run it where one is, or try the command with --small")
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    facts = provenance(card=torch.cuda.get_device_name() if has_card else None)
    rows = [header("gpu", {"small": args.small}, facts)]
    for row in measured(SMALL if args.small else CARD, args.only, args.seconds):
        rows.append(row)
        write_whole(args.output, rows)
        print(row, flush=True)
    return int(any(row["row"] == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
