"""What the instruments themselves cost: the bench beside a bare loop, recording a step, replaying a token.

    python benchmarks/instruments.py -o benchmarks/results/instruments.json

Bench and bare loop write the same answer plainly, in turns in one process; the ratio is of medians, with the
spread of the rounds beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import draftwood
from draftwood.api.prompts import as_ids
from draftwood.api.setup import Setup
from draftwood.measure.bench.arms import OurArm
from draftwood.measure.bench.run import Bench, BenchSettings
from draftwood.measure.prompt_files import Job, task_jobs
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import Answer, header
from draftwood.measure.records.timing import rates
from draftwood.measure.records.traces import Trace
from draftwood.measure.records.writer import RecordsWriter
from draftwood.measure.simulate import simulate
from draftwood.tree import TokenTree


def bare(setup: Setup, ids: list[int], limit: int) -> float:
    """The shortest plain loop there is over our own target: score, take the best, keep."""
    ((session, scores),) = setup.target.open([ids], reserve=limit)
    token, nothing = scores.argmax(0), TokenTree.empty()
    started = perf_counter()
    for _ in range(limit - 1):
        (scores,) = setup.target.score([(session, token, nothing)])
        session.keep(())
        token = scores.argmax(0)
    seconds = perf_counter() - started
    session.close()
    return seconds


def bench_against_bare(model: Any, tokenizer: Any, limit: int, rounds: int) -> dict[str, Any]:
    setup = Setup(model, tokenizer, "none", "fixed:16")
    job = Job("chat", "x", as_ids(task_jobs("chat", 1)[0].prompt, tokenizer))
    times: dict[str, list[float]] = {"bare": [], "bench": []}
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordsWriter(Path(folder) / "rows.jsonl", header("bench", {}, {}))
        arm = OurArm("none", setup, "fixed:16")
        work = Bench(setup, [arm], [job], BenchSettings("fixed:16", limit), writer)
        for number in range(rounds + 1):
            for what in ("bare", "bench") if number % 2 else ("bench", "bare"):
                if what == "bare":
                    seconds = bare(setup, job.prompt, limit)
                else:
                    answer = work.answer(arm, job, number)
                    writer.answer(answer)
                    seconds = answer.decode_s or 0.0
                    if len(answer.output_ids) < limit:
                        raise SystemExit("the answer ended early: choose a smaller --max-new-tokens")
                if number:  # the first round warms up
                    times[what].append(seconds)
    pairs = [b / a for a, b in zip(times["bare"], times["bench"], strict=True)]
    return {
        "tokens": limit,
        "rounds": rounds,
        "bare_s": statistics.median(times["bare"]),
        "bench_s": statistics.median(times["bench"]),
        "ratio": statistics.median(times["bench"]) / statistics.median(times["bare"]),
        "ratio_of_pairs": [min(pairs), statistics.median(pairs), max(pairs)],
    }


def recording(answers: list[Answer]) -> dict[str, Any]:
    """Microseconds to turn a step into its line and write it, file included."""
    steps = sum(len(a.steps) for a in answers)
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordsWriter(Path(folder) / "rows.jsonl", header("bench", {}, {}))
        started = perf_counter()
        for answer in answers:
            writer.answer(answer)
        seconds = perf_counter() - started
        writer.close()
        size = (Path(folder) / "rows.jsonl").stat().st_size
    return {"steps": steps, "us_per_step": 1e6 * seconds / steps, "bytes_per_step": size / steps}


def replaying(traces: list[Trace]) -> tuple[dict[str, Any], list[Answer]]:
    """Replayed tokens per second with `suffix` and chains of at most 8, and where the time of a step goes."""
    arm = "suffix:branches=1:length=8:factor=inf"
    list(simulate(traces[:1], arm, "fixed:8"))
    started = perf_counter()
    answers = list(simulate(traces, arm, "fixed:8"))
    seconds = perf_counter() - started
    found = rates(answers)
    split = {f"{name}_us_per_step": 1e6 * s / found.passes for name, s in found.seconds.items()}
    rest = seconds - sum(found.seconds.values())
    opening = sum(source.open_s for a in answers for source in a.steps[0].by_source if a.steps)
    return {
        "tokens": found.tokens,
        "passes": found.passes,
        "tokens_per_second": found.tokens / seconds,
        "us_per_step": 1e6 * seconds / found.passes,
        **split,
        "opening_us_per_step": 1e6 * opening / found.passes,
        "loop_us_per_step": 1e6 * (rest - opening) / found.passes,
    }, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--traces", type=Path, help="what to replay; by default a made-up text that half repeats")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    args = parser.parse_args()
    model, tokenizer = draftwood.load("smollm2", threads=2)
    if args.traces:
        from draftwood.measure.records.traces import read_traces

        traces = read_traces(args.traces)
    else:
        traces = [
            Trace("t", str(i), [k * k % 977 for k in range(500)], [(k + i) * k % 977 for k in range(190)])
            for i in range(20)
        ]
    replayed, answers = replaying(traces)
    found = {
        "provenance": provenance(model="smollm2", dtype="float32"),
        "bench_against_bare_loop": bench_against_bare(model, tokenizer, args.max_new_tokens, args.rounds),
        "recording": recording(answers),
        "replay": replayed,
    }
    text = json.dumps(found, indent=2)
    print(text)
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
