"""Time to draft, to learn and to read: every copying drafter and other projects' proposers, in one process.

    python benchmarks/drafting.py -o drafting.jsonl --vllm vllm-0.33.0-...whl [--arctic FOLDER]
        [--tokens 1000 10000 128000 1000000] [--traces ROWS.jsonl.zst] [--only ngram,suffix]

Texts are the standard library and recorded answers (prompts included), in tokens of smollm2. A step is what the
loop does with a drafter: it learns the three tokens that a pass emitted, then drafts. Shapes take turns, so none
finds the work of another at the same place; a chain of 16 is the likeliest path of a draft of 16 nodes.
``warm`` steps follow each other at once; before a ``cold`` one 64 MB are written, since a pass of the model leaves
nothing in the caches. ``read`` is opening a session on that much text; where the text lies elsewhere (prediction,
memory, corpus) indexing it is in that time and in the bytes. Drafters take turns, place by place of the text.
``accepted`` is what a draft would have brought on the true text. In a batch 64 requests learn, then each drafts.

The same command goes on with a file that was left unfinished.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from drafting_arms import SHAPES, Arm, Run, accepted, our_arms, their_arm, vllm_batch
from drafting_compile import measure as measure_compiling
from drafting_compile import show as show_compiling
from drafting_peers import ROOM, VllmNgram, peers
from numpy.typing import NDArray

from draftwood.measure.records.lines import Appender, read_lines
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import read_traces
from draftwood.models import load_tokenizer

Ints = NDArray[np.int32]

EMITTED = 3
EVICTED = 64 << 20
REQUESTS = 64
CALLS = 30
SAME = (("provenance", "commit"), ("provenance", "packages"), ("provenance", "processor"))
"""What a file that is gone on with must agree in, settings apart."""
HERE = Path(__file__).parent


def source_code(tokens: int) -> Ints:
    """Modules of the standard library in order of their names, at least ``tokens`` tokens if there are so many."""
    tokenizer, found = load_tokenizer("smollm2"), []
    root = Path(sysconfig.get_path("stdlib"))
    total = 0
    for file in sorted(root.rglob("*.py")):
        if total >= tokens:
            break
        if not {"site-packages", "test", "tests"}.intersection(file.relative_to(root).parts):
            ids = tokenizer(file.read_text(encoding="utf-8", errors="replace"), verbose=False)["input_ids"]
            found.append(np.array(ids, dtype=np.int32))
            total += len(ids)
    return np.concatenate(found)


def recorded(path: Path) -> Ints:
    """Prompts and answers of a trace or records file, one behind the other."""
    traces = read_traces(path, load_tokenizer("smollm2"))
    return np.concatenate([np.array([*t.prompt_ids, *t.output_ids], dtype=np.int32) for t in traces])


def quartiles(microseconds: Sequence[float]) -> list[float] | None:
    """First quartile, median, third quartile, 99th percentile."""
    if not len(microseconds):
        return None
    return [round(float(q), 2) for q in np.percentile(microseconds, [25, 50, 75, 99])]


class Clock:
    """Times steps of one session; nanosecond clock around each call alone."""

    def __init__(self) -> None:
        self._trash = np.zeros(EVICTED, dtype=np.uint8)
        self.draft: dict[tuple[str, bool], list[float]] = {}
        self.learn: dict[bool, list[float]] = {False: [], True: []}
        self.nodes: dict[str, list[int]] = {}
        self.accepted: dict[str, list[int]] = {}

    def steps(self, run: Run, arm: Arm, text: Ints, at: int, count: int, *, cold: bool) -> int:
        """Let the session follow the text from ``at`` on; returns where it stands."""
        for number in range(count):
            shape = arm.shapes[number % len(arm.shapes)]
            emitted = text[at : at + EMITTED].tolist()
            at += EMITTED
            run.prepare(emitted)
            if cold:
                self._trash += 1
            started = time.perf_counter_ns()
            run.learn()
            learnt = time.perf_counter_ns()
            found = run.draft(shape)
            ended = time.perf_counter_ns()
            self.learn[cold].append((learnt - started) / 1000)
            self.draft.setdefault((shape.name, cold), []).append((ended - learnt) / 1000)
            tokens, parents = run.drawn(shape, found)
            self.nodes.setdefault(shape.name, []).append(len(tokens))
            path = accepted(tokens, parents, text[at : at + shape.nodes].tolist())
            self.accepted.setdefault(shape.name, []).append(len(path))
        return at


def places(text: Ints, size: int, rounds: int, needed: int) -> list[int]:
    """Where in the text sessions begin, so that what is needed still follows."""
    rng = np.random.default_rng(size)
    return [0, *rng.integers(0, len(text) - size - needed, rounds - 1).tolist()]


def measure(arms: Sequence[Arm], text: Ints, size: int, steps: int, cold: int) -> Iterator[dict[str, Any]]:
    """Yield a row per arm and shape."""
    rounds = 10 if size <= 10_000 else 6 if size <= 200_000 else 3
    each, each_cold = -(-steps // rounds), -(-cold // rounds)
    needed = EMITTED * (each + each_cold) + 256
    clocks = {arm.name: Clock() for arm in arms}
    read: dict[str, list[float]] = {arm.name: [] for arm in arms}
    nbytes = {}
    for place in places(text, size, rounds, needed):
        for arm in arms:
            make, at = arm.start(text, place, size)
            started = time.perf_counter()
            run = make()
            read[arm.name].append((time.perf_counter() - started) / size * 1e9)
            nbytes[arm.name] = run.nbytes
            Clock().steps(run, arm, text, at, 3, cold=False)  # compiles, and finds a cursor's place
            at += 3 * EMITTED
            at = clocks[arm.name].steps(run, arm, text, at, each, cold=False)
            clocks[arm.name].steps(run, arm, text, at, each_cold, cold=True)
            run.close()
    for arm in arms:
        clock = clocks[arm.name]
        common = {
            "read_ns_per_token": [round(float(q), 1) for q in np.percentile(read[arm.name], [25, 50, 75])],
            "bytes_per_token": round(nbytes[arm.name] / size, 1),
            "learn_warm_us": quartiles(clock.learn[False]),
            "learn_cold_us": quartiles(clock.learn[True]),
        }
        for shape in arm.shapes:
            nodes = clock.nodes[shape.name]
            yield {
                "row": "draft",
                "tokens": size,
                "drafter": arm.name,
                "version": arm.version,
                "shape": shape.name,
                "warm_us": quartiles(clock.draft[shape.name, False]),
                "cold_us": quartiles(clock.draft.get((shape.name, True), [])),
                "nodes": round(float(np.mean(nodes)), 2),
                "coverage": round(float(np.mean(np.array(nodes) > 0)), 3),
                "accepted": round(float(np.mean(clock.accepted[shape.name])), 3),
                "steps": len(nodes),
                **common,
            }


def measure_batch(arm: Arm, vllm: VllmNgram | None, text: Ints, size: int) -> dict[str, Any]:
    """Microseconds per request to learn, and to draft a chain of 16, of 64 requests one after the other."""
    starts = np.linspace(0, len(text) - size - EMITTED * CALLS - 256, REQUESTS).astype(int).tolist()
    batch = vllm_batch(vllm, [text[p : p + size] for p in starts]) if vllm is not None else None
    runs: list[Run] = []
    at = [arm.start(text, place, size)[1] for place in starts]
    for place in starts if batch is None else ():
        runs.append(arm.beside(runs[0], text, place, size) if runs else arm.start(text, place, size)[0]())
    learn, draft = [], []
    for _ in range(CALLS):
        for run, place in zip(runs, at, strict=False):
            run.prepare(text[place : place + EMITTED].tolist())
        started = time.perf_counter()
        if batch is not None:
            for row, place in enumerate(at):
                batch.learn(text[place : place + EMITTED], row)
        for run in runs:
            run.learn()
        learnt = time.perf_counter()
        if batch is not None:
            batch.draft(SHAPES[0].nodes)
        for run in runs:
            run.draft(SHAPES[0])
        draft.append((time.perf_counter() - learnt) / REQUESTS * 1e6)
        learn.append((learnt - started) / REQUESTS * 1e6)
        at = [place + EMITTED for place in at]
    for run in runs:
        run.close()
    return {
        "row": "batch",
        "tokens": size,
        "drafter": arm.name,
        "version": arm.version,
        "requests": REQUESTS,
        "learn_us_per_request": quartiles(learn[2:]),
        "draft_us_per_request": quartiles(draft[2:]),
    }


class Output:
    """Rows on the screen and in a file, where those that it has are not measured again."""

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self._file, self.rows = None, []
        first = header("drafting", settings, provenance())
        if path is not None:
            known = [row for _, row in read_lines(path)] if path.exists() else []
            for part, name in (*(("settings", n) for n in settings), *SAME):
                if known and known[0].get(part, {}).get(name) != first[part].get(name):
                    sys.exit(f"{path} was measured with another {name}: choose another -o")
            self.rows = known[1:]
            self._file = Appender(path)
            if not known:
                self._file.write([first])

    def has(self, **wanted: Any) -> bool:
        return any(all(row.get(key) == value for key, value in wanted.items()) for row in self.rows)

    def take(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append the records of one unit of work, all or none."""
        self.rows += rows
        if self._file is not None:
            self._file.write(rows)


def line(row: dict[str, Any]) -> str:
    warm, cold = row["warm_us"], row["cold_us"] or [0] * 4
    return (
        f"{row['drafter']:<27}{row['shape']:<9}{warm[1]:9.1f}{warm[3]:9.1f}{cold[1]:9.1f}{cold[3]:9.1f}"
        f"{row['learn_warm_us'][1]:9.1f}{(row['learn_cold_us'] or [0] * 4)[1]:9.1f}"
        f"{row['read_ns_per_token'][1]:10.0f}{row['bytes_per_token']:8.0f}{row['nodes']:7.1f}{row['accepted']:6.2f}"
    )


TITLE = (
    f"{'drafter':<27}{'shape':<9}{'warm us':>9}{'p99':>9}{'cold us':>9}{'p99':>9}{'learn':>9}{'cold':>9}"
    f"{'ns/token':>10}{'B/token':>8}{'nodes':>7}{'acc.':>6}"
)


def run_all(args: argparse.Namespace, arms: list[Arm], vllm: VllmNgram | None, output: Output) -> None:
    needed = max(args.tokens) + ROOM + 4 * args.steps
    texts = {"source code": source_code(max(2 * needed, 400_000))}
    if args.traces:
        texts["recorded answers"] = recorded(args.traces)
    for name, text in texts.items():
        for size in args.tokens:
            if output.has(row="draft", text=name, tokens=size):
                continue
            if len(text) < size + EMITTED * (args.steps + args.cold) + 512:
                print(f"\n{name}: {len(text):,} tokens, too few for {size:,}")
                continue
            rows = [{**row, "text": name} for row in measure(arms, text, size, args.steps, args.cold)]
            output.take(rows)
            print(f"\n{name}, {size:,} tokens\n{TITLE}", *map(line, rows), sep="\n", flush=True)
    for size in args.batch_tokens:
        print(f"\n{REQUESTS} requests of {size:,} tokens, source code: microseconds per request, median (p99)")
        for arm in arms:
            if not output.has(row="batch", tokens=size, drafter=arm.name):
                row = measure_batch(arm, vllm if arm.name == VllmNgram.name else None, texts["source code"], size)
                output.take([row])
                learn, draft = row["learn_us_per_request"], row["draft_us_per_request"]
                print(f"{arm.name:<27} learn {learn[1]:8.2f} ({learn[3]:8.2f})   draft {draft[1]:8.2f} "
                      f"({draft[3]:8.2f})", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="records as JSON lines; an unfinished file is continued")
    parser.add_argument("--tokens", type=int, nargs="*", default=[1000, 10_000, 128_000, 1_000_000])
    parser.add_argument("--batch-tokens", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--steps", type=int, default=600, help="warm steps per drafter and size")
    parser.add_argument("--cold", type=int, default=300, help="steps with emptied caches")
    parser.add_argument("--traces", type=Path, default=HERE / "results" / "bench.jsonl.zst")
    parser.add_argument("--only", help="drafters to measure, by name; all by default")
    parser.add_argument("--vllm", type=Path, metavar="WHEEL", help="of vLLM, which need not be installed")
    parser.add_argument("--arctic", type=Path, metavar="FOLDER", help="with the package arctic_inference, built")
    parser.add_argument("--no-compile", action="store_true", help="leave out the compile times")
    args = parser.parse_args()
    arms, vllm = our_arms(), None
    for peer in peers(args.vllm, args.arctic):
        if isinstance(peer, str):
            print(peer)
            continue
        arms.append(their_arm(peer))
        vllm = peer if isinstance(peer, VllmNgram) else vllm
    wanted = args.only.split(",") if args.only else [arm.name for arm in arms]
    if unknown := set(wanted) - {arm.name for arm in arms}:
        sys.exit(f"no such drafter: {', '.join(sorted(unknown))}; known: {', '.join(arm.name for arm in arms)}")
    arms = [arm for arm in arms if arm.name in wanted]
    settings = {"steps": args.steps, "cold": args.cold, "traces": args.traces.name, "drafters": wanted}
    output = Output(args.output, settings)
    if not args.no_compile and not output.has(row="compile"):
        found = measure_compiling()
        show_compiling(found)
        output.take([{"row": "compile", **found}])
    run_all(args, arms, vllm, output)


if __name__ == "__main__":
    main()
