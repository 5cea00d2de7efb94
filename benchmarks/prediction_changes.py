"""How far a prediction that differs from the answer carries: emitted tokens per pass, by kind of difference.

    python benchmarks/prediction_changes.py                      # modules of the standard library
    python benchmarks/prediction_changes.py ROWS.jsonl.zst ...   # recorded answers of smollm2

Each text is an answer, and its prediction is the same text with a share of its lines changed at random, by a fixed
seed. The answers replay through the live loop with 16 draft nodes per step. Where no prompt was recorded it is the
prediction (as when a model is asked to edit a file), so that `suffix` can copy from the same text.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from draftwood.contracts import Drafter, Feedback
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.prediction.drafter import PRIOR, PredictionDrafter
from draftwood.drafters.suffix.drafter import SuffixDrafter
from draftwood.engines.replay import ReplayTarget
from draftwood.measure.records.traces import read_traces
from draftwood.models import load_tokenizer
from draftwood.planning.fixed import FixedPlanner
from draftwood.verify.exact import SampleAndMatch

MODULES = (
    "fnmatch",
    "textwrap",
    "shutil",
    "heapq",
    "statistics",
    "string",
    "calendar",
    "csv",
    "filecmp",
    "colorsys",
)
WORDS = ("value", "result", "index", "self", "node", "count", "name", "items", "not", "buffer", "limit", "state")
PIECE = re.compile(r"\w+")

Change = Callable[[str, random.Random], str]


def replaced(line: str, rng: random.Random) -> str:
    found = rng.choice(list(PIECE.finditer(line)))
    return line[: found.start()] + rng.choice(WORDS) + line[found.end() :]


def inserted(line: str, rng: random.Random) -> str:
    found = rng.choice(list(PIECE.finditer(line)))
    return line[: found.start()] + rng.choice(WORDS) + " " + line[found.start() :]


def deleted(line: str, rng: random.Random) -> str:
    found = rng.choice(list(PIECE.finditer(line)))
    return line[: found.start()] + line[found.end() :].lstrip(" ")


def any_word(line: str, rng: random.Random) -> str:
    return rng.choice((replaced, inserted, deleted))(line, rng)


def by_line(change: Change) -> Callable[[str, float, random.Random], str]:
    def changed(text: str, share: float, rng: random.Random) -> str:
        lines = text.splitlines(keepends=True)
        able = [i for i, line in enumerate(lines) if PIECE.search(line)]
        for i in rng.sample(able, round(share * len(able))):
            lines[i] = change(lines[i], rng)
        return "".join(lines)

    return changed


def renamed(text: str, share: float, rng: random.Random) -> str:
    """Rename identifiers, most frequent first, until that share of the lines is touched."""
    lines = text.splitlines(keepends=True)
    names = [w for w in dict.fromkeys(re.findall(r"[a-z_]{3,}", text)) if text.count(w) > 1]
    rng.shuffle(names)
    touched: set[int] = set()
    for name in names:
        if len(touched) >= share * len(lines):
            break
        pattern, new = re.compile(rf"\b{name}\b"), rng.choice(WORDS) + "_" + name[:2]
        touched |= {i for i, line in enumerate(lines) if pattern.search(line)}
        lines = [pattern.sub(new, line) for line in lines]
    return "".join(lines)


def lines_out_and_in(text: str, share: float, rng: random.Random) -> str:
    """Half of the changed lines are missing in the prediction, half stand in it and not in the answer."""
    lines = text.splitlines(keepends=True)
    chosen = set(rng.sample(range(len(lines)), round(share * len(lines))))
    kept: list[str] = []
    for i, line in enumerate(lines):
        if i not in chosen:
            kept.append(line)
        elif rng.random() < 0.5:
            kept += [line, rng.choice(lines)]
    return "".join(kept)


def moved(text: str, share: float, rng: random.Random) -> str:
    """Blocks of lines stand in another order."""
    lines = text.splitlines(keepends=True)
    size = max(2, round(1 / max(share, 0.02)))
    blocks = [lines[i : i + size] for i in range(0, len(lines), size)]
    for _ in range(len(blocks) // 4):
        blocks.insert(rng.randrange(len(blocks)), blocks.pop(rng.randrange(len(blocks))))
    return "".join(line for block in blocks for line in block)


KINDS: dict[str, Callable[[str, float, random.Random], str]] = {
    "nothing": lambda text, *_: text,
    "words": by_line(any_word),
    "replaced words": by_line(replaced),
    "inserted words": by_line(inserted),
    "deleted words": by_line(deleted),
    "renamed": renamed,
    "lines": lines_out_and_in,
    "moved blocks": moved,
    "another text": lambda text, _, rng: "".join(rng.sample(words := PIECE.findall(text), len(words))),
}


class Tally:
    """Labels per evidence class of the drafter ``prediction``: nodes whose parent was accepted."""

    def __init__(self) -> None:
        self.tried = np.zeros(len(PRIOR), dtype=np.int64)
        self.taken = np.zeros(len(PRIOR), dtype=np.int64)

    def __call__(self, feedback: Feedback) -> None:
        tree, reached = feedback.proposal, {-1: feedback.emitted[0]}
        rows = {int(row): node for node, row in enumerate(feedback.node_map.tolist())}
        for depth, row in enumerate(feedback.path[: len(feedback.emitted) - 1]):
            if row in rows:
                reached[rows[row]] = feedback.emitted[depth + 1]
        for node, parent in enumerate(tree.parents.tolist()):
            if parent in reached:
                self.tried[tree.evidence[node]] += 1
                self.taken[tree.evidence[node]] += int(tree.tokens[node]) == reached[parent]


def replay(
    prompt: Sequence[int],
    answer: Sequence[int],
    drafters: Sequence[Drafter],
    planner: FixedPlanner,
    tally: Tally | None,
) -> tuple[int, int, int, int]:
    """Return emitted tokens, passes, draft tokens scored and accepted."""
    target = ReplayTarget(prompt, answer)
    emitted = passes = scored = accepted = 0
    request = Request(list(prompt), len(answer))
    with open_sequences(target, drafters, [request], SampleAndMatch()) as (sequence,):
        if tally is not None:
            session = sequence.sources[0].session
            learn = session.learn
            session.learn = lambda feedback: (tally(feedback), learn(feedback))  # type: ignore[method-assign]
        for emission in decode_sequences(target, planner, [sequence]):
            if emission.step is not None:
                passes += 1
                emitted += len(emission.tokens)
                scored += sum(s.kept for s in emission.step.by_source)
                accepted += sum(s.accepted for s in emission.step.by_source)
    return emitted, passes, scored, accepted


def material(paths: Sequence[Path], tokenizer: object, lines: int) -> list[tuple[list[int] | None, str]]:
    """Prompts, where recorded, and texts of answers."""
    if paths:
        traces = [t for path in paths for t in read_traces(path, tokenizer)]
        return [(t.prompt_ids, tokenizer.decode(t.output_ids)) for t in traces]  # type: ignore[attr-defined]
    texts = []
    for name in MODULES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        source = Path(spec.origin).read_text(encoding="utf-8").splitlines(keepends=True)
        texts.append((None, "".join(source[:lines])))
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "rows", nargs="*", type=Path, help="recorded answers; without, modules of the standard library"
    )
    parser.add_argument("--tokenizer", default="smollm2")
    parser.add_argument("--share", type=float, default=0.2, help="of the lines, changed")
    parser.add_argument("--draft", type=int, default=16, help="draft nodes per step")
    parser.add_argument("--lines", type=int, default=200, help="of each module, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--classes", action="store_true", help="print acceptance per evidence class: new priors")
    args = parser.parse_args()
    tokenizer = load_tokenizer(args.tokenizer)
    texts = material(args.rows, tokenizer, args.lines)
    tally = Tally()
    print(f"{len(texts)} answers, {args.share:.0%} of lines changed, {args.draft} draft nodes, seed {args.seed}\n")
    print("| difference | prediction | suffix | both | acceptance rate of prediction | its nodes per step |")
    print("|---|---|---|---|---|---|")
    for kind, change in KINDS.items():
        totals = {arm: np.zeros(4, dtype=np.int64) for arm in ("prediction", "suffix", "both")}
        planners = {arm: FixedPlanner(args.draft) for arm in totals}  # beliefs go on from answer to answer
        for number, (prompt, text) in enumerate(texts):
            expected = tokenizer(change(text, args.share, random.Random(args.seed * 1000 + number)),
                                 add_special_tokens=False)["input_ids"]  # fmt: skip
            answer = tokenizer(text, add_special_tokens=False)["input_ids"]
            prediction, suffix = PredictionDrafter(texts=(tuple(expected),)), SuffixDrafter()
            for arm, drafters in (
                ("prediction", [prediction]),
                ("suffix", [suffix]),
                ("both", [prediction, suffix]),
            ):
                counted = tally if arm == "prediction" and kind not in ("nothing", "another text") else None
                totals[arm] += replay(prompt or expected or [0], answer, drafters, planners[arm], counted)
        cells = [f"{t[0] / t[1]:.2f}" for t in totals.values()]
        _, passes, scored, accepted = totals["prediction"].tolist()
        print(f"| {kind} | {' | '.join(cells)} | {accepted / max(1, scored):.2f} | {scored / passes:.1f} |")
    if args.classes:
        print("\n| class | tried | taken | prior |\n|---|---|---|---|")
        for c, (tried, taken) in enumerate(zip(tally.tried, tally.taken, strict=True)):
            print(f"| {c} | {tried} | {taken / max(1, tried):.3f} | {PRIOR[c]} |")


if __name__ == "__main__":
    main()
