"""What larger models gain: random weights in their shape, made to write recorded answers.

    python benchmarks/forced.py 7b.gguf --random 7b [--limit 1] [--tokens 64] [-o rows.jsonl]

Passes, drafts and plans are real and take the time that they take; only the tokens that the model chooses come
from answers that smollm2 wrote, since random weights would write noise. So a row tells what a model of this shape
would gain if it wrote these answers. Plain decoding, the default drafters and llama.cpp's plain decoding of the
same file take turns. ``--random`` writes MODEL.gguf first: see `shapes`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from shapes import SHAPES

from draftwood.api.setup import Setup
from draftwood.contracts import Target, Watch
from draftwood.decoding.loop import decode_sequences
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.engines.replay import ReplayScores
from draftwood.files.lines import write_whole
from draftwood.measure.bench.table import geometric_mean
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.tree import TokenTree

TRACES = Path(__file__).parent / "results" / "answers-test.jsonl.zst"


class Forced(Target):
    """A target that computes every pass and then chooses the tokens of ``text``; one request at a time."""

    def __init__(self, inner: CpuTarget | LlamaTarget) -> None:
        self.inner, self.text = inner, [0]
        self.capabilities = replace(inner.capabilities, top_k=False, hidden=(), grows=False)

    def pass_times(self) -> dict[int, float]:
        return dict(self.inner.pass_times())

    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[Any]:
        del watch  # nobody may see the scores of random weights
        opened = self.inner.open(prompts, reserve=reserve)
        return [(session, self._next(session.length, TokenTree.empty())) for session, _ in opened]

    def extend(
        self, texts: Sequence[tuple[Any, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> list[Any]:
        del watch
        self.inner.extend(texts)
        return [self._next(session.length, TokenTree.empty()) for session, _ in texts]

    def score(self, requests: Sequence[tuple[Any, int, TokenTree]]) -> list[Any]:
        self.inner.score(requests)
        return [self._next(session.length + 1, tree) for session, _, tree in requests]

    def _next(self, length: int, tree: TokenTree) -> ReplayScores:
        return ReplayScores(self.text, length, tree)


@dataclass
class Arm:
    """Who writes: a target, and what drafts for it."""

    name: str
    target: Forced
    drafters: str = "none"

    def __post_init__(self) -> None:
        self.setup = Setup(self.target, None, self.drafters, "off" if self.drafters == "none" else "goodput")

    def write(self, prompt: list[int], output: list[int]) -> dict[str, Any]:
        self.target.text = [*prompt, *output, 0]
        request = self.setup.request(prompt, max_new_tokens=len(output), temperature=0.0)
        with self.setup.open([request]) as sequences:
            emissions = decode_sequences(self.target, self.setup.planner, sequences)
            found, passes, started = list(next(emissions).tokens), 0, perf_counter()
            for emission in emissions:
                found, passes = [*found, *emission.tokens], passes + 1
            seconds = perf_counter() - started
        assert found == output, "the answer is not the recorded one"
        return {"arm": self.name, "tokens": len(output) - 1, "passes": passes, "seconds": seconds}


def measured(arms: Sequence[Arm], trace: Trace, tokens: int) -> list[dict[str, Any]]:
    """One answer by every arm; ids are taken modulo the vocabulary, which keeps repeats what they are."""
    size = arms[0].target.capabilities.vocab_size
    prompt, output = ([token % size for token in ids] for ids in (trace.prompt_ids, trace.output_ids[:tokens]))
    return [{"row": "forced", "task": trace.task, "name": trace.name, **arm.write(prompt, output)} for arm in arms]


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print tokens per second by kind of text and arm, and the means of the speedups."""
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    found: dict[str, list[float]] = {}
    lengths: dict[str, float] = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        some = {arm: [row for row in rows if (row["task"], row["arm"]) == (task, arm)] for arm in arms}
        sums = {
            arm: {key: sum(row[key] for row in some[arm]) for key in ("tokens", "passes", "seconds")}
            for arm in arms
        }
        found[task] = [sums[arm]["tokens"] / sums[arm]["seconds"] for arm in arms]
        lengths[task] = sums["drafted"]["tokens"] / sums["drafted"]["passes"]
    print(f"\n{'':12}" + "".join(f"{arm:>12}" for arm in [*arms, "tokens/pass", "times plain"]))
    for task, speeds in found.items():
        values = [*speeds, lengths[task], speeds[1] / speeds[0]]
        print(f"{task:12}" + "".join(f"{value:12.2f}" for value in values))
    columns = zip(
        *([*speeds, lengths[task], speeds[1] / speeds[0]] for task, speeds in found.items()), strict=True
    )
    print(f"{'mean':12}" + "".join(f"{geometric_mean(column) or 0:12.2f}" for column in columns), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--random", choices=SHAPES, help="write MODEL first: random weights of this size")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=1, help="answers of each kind of text")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer, at most")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    if args.random:
        SHAPES[args.random]().write(args.model)
    engines = Forced(CpuTarget(args.model, threads=args.threads)), Forced(LlamaTarget(args.model, exact=False))
    arms = [Arm("plain", engines[0]), Arm("drafted", engines[0], "ngram"), Arm("llama.cpp", engines[1])]
    said = {"model": args.random or args.model.name, "threads": args.threads, "tokens": args.tokens}
    kept: list[dict[str, Any]] = [header("forced", said, provenance())]
    by_kind = [members[: args.limit] for _, members in grouped(read_traces(TRACES))]
    measured(arms, by_kind[0][0], 8)  # kernels are compiled, weights paged in
    for place in range(args.limit):
        for trace in (members[place] for members in by_kind if place < len(members)):
            kept += measured(arms, trace, args.tokens)
            if args.output:
                write_whole(args.output, kept)
        show(kept[1:])


if __name__ == "__main__":
    main()
