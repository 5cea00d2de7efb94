"""llama.cpp on one GGUF file: what a pass over n tokens costs, and how many texts and tokens are the same.

    python benchmarks/llama.py passes MODEL.gguf -o benchmarks/results/llama-passes-Q4_0.jsonl
    python benchmarks/llama.py same MODEL.gguf --prompts 200 --tokens 128 -o llama-exact-Q4_0.jsonl

``passes``: milliseconds of a pass over n tokens after a context, all n with scores, as `Context.run` calls it:
``exact`` (rows are bit by bit those of one-token passes, where the weights allow it) and ``fast`` (llama.cpp's
own). In every round each setting and n has its turn, in a new order; before the timed pass one of the same n runs
untimed, since the library rebuilds its graph where n changes. The fastest tells what the machine can do, the
median how quiet it was. Leave the machine alone meanwhile.

``same``: greedy texts on the prompts of `draftwood bench`, the kinds in turns, by our plain loop, our drafted loop
and llama.cpp's own server. In the exact mode drafted texts must be plain's in every token. The server computes as
llama.cpp does by itself, so its texts may part from ours where rounding decides; tokens are counted up to there. A
row holds the ids of the three texts, null for those equal to plain's. The same command goes on with a file that
was left unfinished.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain, islice, zip_longest
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from results import OTHERS, bare, counts, resumed

import draftwood
from draftwood.api.setup import Setup
from draftwood.engines.llama_cpp.context import PASS, Context, ContextSettings, PassRow, exact_settings
from draftwood.engines.llama_cpp.weights import LlamaWeights
from draftwood.files.lines import Appender, write_whole
from draftwood.local.machine import cores
from draftwood.measure.peers import load_peers
from draftwood.measure.prompt_files import PromptJob, task_jobs
from draftwood.measure.records.provenance import provenance
from draftwood.tasks import KINDS

SETTINGS = {"exact": exact_settings, "fast": ContextSettings}
TEXT = 0  # the only sequence


def filled(weights: LlamaWeights, settings: ContextSettings, tokens: list[int], room: int) -> Context:
    """Return a context that holds these tokens, with room for more."""
    context = Context(weights, settings, len(tokens) + room, 1)
    for start in range(0, len(tokens), PASS):
        part = tokens[start : start + PASS]
        compute(context, part, start)
    return context


def compute(context: Context, tokens: list[int], start: int) -> float:
    """Run one pass at these positions; returns its milliseconds."""
    rows = [PassRow(token, start + i, [TEXT]) for i, token in enumerate(tokens)]
    began = perf_counter()
    context.run(rows)
    return 1e3 * (perf_counter() - began)


def timed(context: Context, tokens: list[int], start: int) -> float:
    """Run a pass twice; returns the milliseconds of the second. The text is then as before."""
    for _ in range(2):
        milliseconds = compute(context, tokens, start)
        context.remove(TEXT, start)
    return milliseconds


def measured(weights: LlamaWeights, length: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row per setting and width, behind a text of this length."""
    widest = max(args.widths)
    tokens = np.random.default_rng(length).integers(0, weights.vocab_size, length + widest).tolist()
    contexts = {
        name: filled(weights, make(args.threads), tokens[:length], widest + 1) for name, make in SETTINGS.items()
    }
    turns = [(name, n) for name in contexts for n in args.widths]
    found: dict[tuple[str, int], list[float]] = {turn: [] for turn in turns}
    for number in range(args.rounds):
        for name, n in random.Random(f"{length} {number}").sample(turns, len(turns)):
            found[name, n].append(timed(contexts[name], tokens[length : length + n], length))
    for context in contexts.values():
        context.close()
    for (name, n), times in found.items():
        yield {
            "row": "pass", "context": length, "settings": name, "n": n, "rounds": len(times),
            "fastest_ms": round(min(times), 3), "median_ms": round(statistics.median(times), 3),
        }  # fmt: skip


def passes(args: argparse.Namespace) -> None:
    weights = LlamaWeights(args.model, gpu_layers=0)
    origin = provenance(model=args.model.name, dtype=weights.number_format, threads=args.threads)
    lines = [{"row": "header", "verb": "llama_passes", "provenance": bare(origin)}]
    for length in args.contexts:
        for line in measured(weights, length, args):
            lines.append(line)
            print(f"{length:6} tokens, {line['settings']:5}, n = {line['n']:3}: {line['fastest_ms']:8.2f} ms")
    write_whole(args.output, lines)


SERVER = "llama.cpp"


def jobs_of(count: int) -> list[PromptJob]:
    """Return so many prompts, one of each kind in turns; kinds with few prompts end early."""
    kinds = [[job for job in task_jobs(kind) if not job.sampling] or task_jobs(f"{kind}@0") for kind in KINDS]
    return list(islice((job for job in chain(*zip_longest(*kinds)) if job is not None), count))


class Texts:
    """Writes the three texts of a prompt."""

    def __init__(self, args: argparse.Namespace) -> None:
        exact = False if args.fast else None
        self.model, self.tokenizer = draftwood.load(str(args.model), threads=args.threads, exact=exact)
        self.setup, self.tokens = Setup(self.model, self.tokenizer, "none", "off"), args.tokens
        threads = self.model.setting.threads
        (self.server,) = load_peers(SERVER, self.model, self.tokenizer, str(args.model), threads)

    def row(self, job: PromptJob) -> dict[str, Any]:
        request = job.request(self.setup, max_new_tokens=self.tokens, temperature=0.0, seed=0)
        ids = list(request.prompt)
        plain = self.ours(ids, drafters="none", planner="off")
        server = self.server.answer(ids, self.tokens, end_ids=request.end_ids, sampling=request.sampling)
        texts = {"drafted": self.ours(ids), "server": server.ids}
        others = {name: None if text == plain else text for name, text in texts.items()}
        return {"row": "texts", "task": job.task, "name": job.name, "plain": plain, **others}

    def ours(self, ids: Sequence[int], **how: str) -> list[int]:
        return draftwood.generate(
            self.model, list(ids), max_new_tokens=self.tokens, temperature=0.0, seed=0, **how
        ).ids


def summary(number_format: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return one line about a file."""
    c = counts(rows)
    parts = [
        f"{name} {c[f'{name}_texts']} of {c['texts']} texts, {c[f'{name}_tokens']} of {c['tokens']} tokens"
        for name in OTHERS
    ]
    return f"{number_format}: as plain are {'; '.join(parts)}"


def same(args: argparse.Namespace) -> None:
    texts = Texts(args)
    setting = texts.model.setting
    settings = {
        "model": args.model.name,
        "dtype": setting.dtype,
        "threads": setting.threads,
        "tokens": args.tokens,
    }
    header = {
        "row": "header",
        "verb": "llama_exact",
        "settings": settings,
        "provenance": bare(provenance(**settings)),
    }
    rows = resumed(args.output, header)
    done = {(row["task"], row["name"]) for row in rows}
    with closing(texts.server), closing(Appender(args.output)) as file:
        for job in jobs_of(args.prompts):
            if (job.task, job.name) not in done:
                rows.append(texts.row(job))
                file.write(rows[-1:])
                print(f"{job.task} {job.name}; {summary(setting.dtype, rows)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    timing = verbs.add_parser("passes", help="what a pass costs")
    timing.add_argument("--contexts", type=int, nargs="+", default=[256, 1024, 2048])
    timing.add_argument("--widths", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8, 12, 16])
    timing.add_argument("--rounds", type=int, default=12)
    timing.set_defaults(do=passes)
    comparing = verbs.add_parser("same", help="how many texts are the same")
    comparing.add_argument("--prompts", type=int, default=200)
    comparing.add_argument("--tokens", type=int, default=128)
    comparing.add_argument("--fast", action="store_true", help="llama.cpp's own settings instead of exact ones")
    comparing.set_defaults(do=same)
    for verb in (timing, comparing):
        verb.add_argument("model", type=Path, metavar="MODEL.gguf")
        verb.add_argument("-o", "--output", type=Path, required=True)
        verb.add_argument("--threads", type=int, default=cores())
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
