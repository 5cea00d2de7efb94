"""What larger models gain: random weights in their shape, made to write recorded answers.

    python benchmarks/forced.py 7b.gguf --random 7b [--llama PLACE [--its-file 7b-q4_0.gguf]] [-o rows.jsonl]
    python benchmarks/forced.py 4b.gguf --random qwen3.5-4b-mtp --mtp

Passes, drafts and plans are real and take the time that they take; only the tokens that the model chooses come
from answers that smollm2 wrote, since random weights would write noise. So a row tells what a model of this shape
would gain if it wrote these answers. Plain decoding, the default drafters and llama.cpp's plain decoding of the
same file take turns, or of the same weights in a type that is faster there (``--its-file``). ``--random`` writes
MODEL.gguf first (`shapes`); ``--llama`` is as of `cpu_passes`. Rows give the tokens and seconds of the prompt's
reading too, and the header the speed at which two threads read memory.

``--mtp`` adds the model's block for further tokens: it reads as it would and takes as long, but proposes what the
answer has, as often as people report for real ones (`ACCEPTED`), and else something wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from draftwood.api.setup import Setup
from draftwood.contracts import Target, Watch
from draftwood.decoding.loop import decode_sequences
from draftwood.drafters.draft_model.drafter import DraftTarget
from draftwood.drafters.head.drafter import MtpDrafter
from draftwood.drafters.head.reading import HeadReader, TreeRequest
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.heads.text import GrownTree
from draftwood.engines.replay import ReplayScores
from draftwood.files.lines import write_whole
from draftwood.local.memory_speed import measured as measured_memory
from draftwood.measure.bench.table import geometric_mean
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.models.forecast import forecast
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from cpu_passes import LlamaLibrary

ACCEPTED = (0.88, 0.82, 0.71, 0.64)
"""Shares of tokens that were right, by depth and where those before were (llama.cpp's pull request 22673)."""
_READ = 1 << 30  # bytes whose reading is timed
TRACES = Path(__file__).parent / "results" / "answers-test.jsonl.zst"


class ForcedScores(ReplayScores):
    """The tokens of a recorded text, and the states of the pass. What the model would choose is looked up, too,
    since that takes time."""

    def __init__(self, text: Sequence[int], length: int, tree: TokenTree, inner: Any) -> None:
        super().__init__(text, length, tree)
        self.hidden, self._chosen = inner.hidden, inner.argmax

    def argmax(self, row: int) -> int:
        self._chosen(row)
        return super().argmax(row)


class Forced(Target):
    """A target that computes every pass and then chooses the tokens of ``texts``, prompts and answers, which all
    begin differently."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.texts = inner, [[0]]
        self.capabilities = replace(inner.capabilities, top_k=False, grows=False)

    def pass_times(self) -> dict[int, float]:
        return dict(self.inner.pass_times())

    def mtp(self) -> Any:
        return self.inner.mtp()

    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[Any]:
        opened = self.inner.open(prompts, reserve=reserve, watch=_without_scores(watch))
        return [(session, self._next(session, 0, TokenTree.empty(), scores)) for session, scores in opened]

    def extend(
        self, texts: Sequence[tuple[Any, Sequence[int]]], watch: Sequence[Watch] | None = None
    ) -> list[Any]:
        found = self.inner.extend(texts, _without_scores(watch))
        pairs = zip(texts, found, strict=True)
        return [self._next(session, 0, TokenTree.empty(), scores) for (session, _), scores in pairs]

    def score(self, requests: Sequence[tuple[Any, int, TokenTree]]) -> list[Any]:
        pairs = zip(requests, self.inner.score(requests), strict=True)
        return [self._next(session, 1, tree, scores) for (session, _, tree), scores in pairs]

    def _next(self, session: Any, roots: int, tree: TokenTree, scores: Any) -> ForcedScores:
        read = session.ids
        text = next(text for text in self.texts if text[: len(read)] == read)
        return ForcedScores(text, len(read) + roots, tree, scores)


def _without_scores(watch: Sequence[Watch] | None) -> list[Watch] | None:
    """Nobody may see the scores of random weights."""
    return watch and [replace(one, wanted=np.zeros(0, np.int64)) for one in watch]


class SimulatedReader(HeadReader):
    """Runs the block as long as its proposals would pay, and proposes tokens of the recorded text."""

    def __init__(self, target: Any, k: int, forced: Forced) -> None:
        super().__init__(target, k)
        self._forced = forced

    def grow(self, asked: TreeRequest) -> GrownTree:
        (length, further, most, *_), (_, _, gain, price, _) = asked.sizes.tolist(), asked.worth.tolist()
        reached, depth = np.cumprod(ACCEPTED), 1
        while depth < min(1 + further, most, len(ACCEPTED)) and reached[depth - 1] * gain > price:
            depth += 1
        chain, always = (length, depth - 1, depth, asked.sizes[3], 1, depth), (0.0, 1.0, 1.0, -1.0, 0.0)
        grown = super().grow(asked._replace(sizes=np.array(chain), worth=np.array(always)))
        assert len(grown.beliefs) == depth, "the block was not run as often as its chain is long"
        draws = np.random.default_rng((length, *self._forced.texts[0][length - 2 : length])).random(depth)
        are_right = np.logical_and.accumulate(draws < ACCEPTED[:depth])
        true = np.resize(self._forced.texts[0][length : length + depth], depth)
        tokens = np.where(are_right, true, (true + 1) % self._forced.capabilities.vocab_size)
        classes = asked.firsts[1 : depth + 1] + np.searchsorted(asked.bounds, ACCEPTED[:depth], "right")
        columns = np.array((tokens, np.arange(-1, depth - 1), classes), np.int32)
        numbers = np.array((asked.rates[classes], ACCEPTED[:depth], reached[:depth]), np.float32)
        return GrownTree(columns, numbers, list(ACCEPTED[:depth]), grown.seconds)


@dataclass(frozen=True)
class SimulatedMtp(MtpDrafter):
    """The drafter ``mtp`` with a `SimulatedReader`."""

    forced: Any = None

    def reader(self, found: DraftTarget, k: int) -> HeadReader:
        return SimulatedReader(found.target, k, self.forced)


@dataclass
class Arm:
    """Who writes: a target, and what drafts for it."""

    name: str
    target: Forced
    drafters: Any = "none"

    def __post_init__(self) -> None:
        self.setup = Setup(self.target, None, self.drafters, "off" if self.drafters == "none" else "goodput")

    def write(self, *texts: tuple[list[int], list[int]]) -> dict[str, Any]:
        """Write the answers to these prompts together. The first token of each, which comes from reading its
        prompt, counts nowhere; a pass counts for each text that takes part in it."""
        self.target.texts = [[*prompt, *output, 0] for prompt, output in texts]
        make, found = self.setup.request, [[] for _ in texts]
        requests = [make(prompt, max_new_tokens=len(output), temperature=0.0) for prompt, output in texts]
        asked = perf_counter()
        with self.setup.open(requests) as sequences:
            emissions = decode_sequences(self.target, self.setup.planner, sequences)
            for emission in islice(emissions, len(texts)):
                found[emission.row] += emission.tokens
            passes, started = 0, perf_counter()
            for emission in emissions:
                found[emission.row] += emission.tokens
                passes += 1
            seconds = perf_counter() - started
        assert found == [output for _, output in texts], "an answer is not the recorded one"
        tokens = sum(len(output) - 1 for _, output in texts)
        return _row(self.name, tokens, passes, seconds, (sum(len(prompt) for prompt, _ in texts), started - asked))


@dataclass
class LlamaArm:
    """llama.cpp, which writes by passes over one token."""

    library: LlamaLibrary
    name = "llama.cpp"

    def write(self, text: tuple[list[int], list[int]]) -> dict[str, Any]:
        prompt, output = text
        self.library.cut(0)
        asked = perf_counter()
        self.library.run(prompt, scored=False)
        started = perf_counter()
        for token in output[:-1]:
            self.library.run([token], scored=True)
        tokens = len(output) - 1
        return _row(self.name, tokens, tokens, perf_counter() - started, (len(prompt), started - asked))


def _row(arm: str, tokens: int, passes: int, seconds: float, read: tuple[int, float]) -> dict[str, Any]:
    """Return what an arm did with an answer; ``read``: the prompt's tokens and the seconds that it took."""
    written = {"arm": arm, "tokens": tokens, "passes": passes, "seconds": seconds}
    return written | {"prompt": read[0], "reading": read[1]}


def measured(arms: Sequence[Arm | LlamaArm], size: int, trace: Trace, tokens: int) -> list[dict[str, Any]]:
    """One answer by every arm."""
    text = text_of(trace, size, tokens)
    return [{"row": "forced", "task": trace.task, "name": trace.name, **arm.write(text)} for arm in arms]


def text_of(trace: Trace, size: int, tokens: int) -> tuple[list[int], list[int]]:
    """Prompt and answer, of at most so many tokens; ids are taken modulo the vocabulary, which keeps repeats what
    they are."""
    prompt, output = ([token % size for token in ids] for ids in (trace.prompt_ids, trace.output_ids[:tokens]))
    return prompt, output


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
    names = [*arms, "tokens/pass", *("times plain", "times llama")[: len(arms) - 1]]
    print(f"\n{'':12}" + "".join(f"{name:>12}" for name in names))
    cells = {task: [*speeds, lengths[task], *(speeds[1] / one for one in speeds if one != speeds[1])]
             for task, speeds in found.items()}  # fmt: skip
    for task, values in cells.items():
        print(f"{task:12}" + "".join(f"{value:12.2f}" for value in values))
    columns = zip(*cells.values(), strict=True)
    print(f"{'mean':12}" + "".join(f"{geometric_mean(column) or 0:12.2f}" for column in columns), flush=True)


def main() -> None:
    from cpu_passes import LlamaLibrary  # what they need, `gpu` does without
    from shapes import SHAPES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--random", choices=SHAPES, help="write MODEL first: random weights of this size")
    parser.add_argument("--llama", type=Path, help="llama.cpp's libraries, a folder or a file")
    parser.add_argument("--its-file", type=Path, help="what llama.cpp runs instead of MODEL")
    parser.add_argument("--mtp", action="store_true", help="with the model's block for further tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tasks", help="kinds of text, with commas between; all, if left out")
    parser.add_argument("--limit", type=int, default=1, help="answers of each kind of text")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer, at most")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    if args.random:
        SHAPES[args.random]().write(args.model)
    target = Forced(CpuTarget(args.model, threads=args.threads))
    size = target.capabilities.vocab_size
    drafters = ("ngram", SimulatedMtp(forced=target)) if args.mtp else "ngram"
    arms: list[Arm | LlamaArm] = [Arm("plain", target), Arm("drafted", target, drafters)]
    if args.llama:
        arms.append(LlamaArm(LlamaLibrary(args.llama, args.its_file or args.model, threads=args.threads)))
    said = {
        "model": args.random or args.model.name,
        "threads": args.threads,
        "tokens": args.tokens,
        "mtp": args.mtp,
        "llama.cpp's file": args.its_file and args.its_file.name,
        "GB of a token": (forecast(args.model).read or 0) / 1e9,
        "memory GB/s": measured_memory(args.threads, _READ) / 1e9,
    }
    kept: list[dict[str, Any]] = [header("forced", said, provenance())]
    every = [members[: args.limit] for _, members in grouped(read_traces(TRACES))]
    by_kind = [some for some in every if not args.tasks or some[0].task in args.tasks.split(",")]
    measured(arms, size, by_kind[0][0], 8)  # kernels are compiled, weights paged in
    for place in range(args.limit):
        for trace in (members[place] for members in by_kind if place < len(members)):
            kept += measured(arms, size, trace, args.tokens)
            if args.output:
                write_whole(args.output, kept)
        show(kept[1:])


if __name__ == "__main__":
    main()
