"""Answers of fresh processes: plain, drafted by one that knows nothing of the model, and by one that does.

    python benchmarks/fresh.py MODEL --tokens 64 --prompts 2 --threads 1 -o fresh-MODEL-64.jsonl
    python benchmarks/fresh.py --table fresh-*.jsonl

Each answer is `draftwood generate` in a process of its own. *Plain* and *first* have an empty folder of what was
learnt, *known* one that earlier answers have filled. The three take turns, and their order turns with each prompt.
A row holds the seconds of decoding (opening the drafters, which is done after the first token, included), of
opening alone, of reading the prompt, and of the whole process.
The same command goes on with a file that was left unfinished.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import exp, log
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from llama_exact import resumed
from places import bare

from draftwood.measure.records.lines import Appender, read_lines
from draftwood.measure.records.provenance import provenance
from draftwood.models import cache_folder
from draftwood.tasks import KINDS, prompts

ARMS = ("plain", "first", "known")


def folder(base: Path, name: str) -> Path:
    """Return a cache folder with this machine's models and trials, and nothing learnt."""
    made, own = base / name, cache_folder()
    made.mkdir(parents=True, exist_ok=True)
    if not (made / "models").exists():
        (made / "models").symlink_to(own / "models")
    (made / "found").mkdir(exist_ok=True)
    for trial in own.glob("found/trial-*"):
        shutil.copy(trial, made / "found")
    return made


def answer(args: argparse.Namespace, text: str, arm: str, cache: Path) -> dict[str, Any]:
    """Write one answer in a process of its own."""
    if arm != "known":
        for path in cache.glob("found/learned-*"):
            path.unlink()
    command = [sys.executable, "-m", "draftwood", "generate", "-", "--json", "--model", str(args.model)]
    command += ["--max-new-tokens", str(args.tokens), "--temperature", str(args.temperature), "--seed", "1"]
    command += ["--dtype", args.dtype] if args.dtype else []
    command += ["--threads", str(args.threads)] if args.threads else []
    command += ["--drafters", "none", "--planner", "off"] if arm == "plain" else []
    started = perf_counter()
    done = subprocess.run(
        command, input=text, text=True, capture_output=True, check=True,
        env={**os.environ, "DRAFTWOOD_CACHE": str(cache), "DRAFTWOOD_LEARNED": "on"},
    )  # fmt: skip
    whole, found = perf_counter() - started, json.loads(done.stdout)
    opening = sum(source.get("open_s", 0.0) for step in found["steps"] for source in step.get("by_source", ()))
    decode = sum(part for part in found["seconds"].values()) + opening
    read = found["prefill_s"]
    return {"decode_s": decode, "open_s": opening, "prefill_s": read, "whole_s": whole, "ids": found["ids"]}


def asked(kind: str, count: int) -> Iterator[tuple[str, str]]:
    """Yield names and texts of prompts of a kind: of a conversation the last message."""
    for prompt in prompts(kind, count):
        messages = getattr(prompt, "messages", None)
        yield prompt.name, messages[-1]["content"] if messages else prompt.text


def run(args: argparse.Namespace) -> None:
    settings = {name: getattr(args, name) for name in ("tokens", "threads", "dtype", "temperature")}
    settings["model"] = Path(args.model).name
    header = {"row": "header", "verb": "fresh", "settings": settings, "provenance": bare(provenance(**settings))}
    rows = resumed(args.output, header)
    done = {(row["kind"], row["name"]) for row in rows}
    with tempfile.TemporaryDirectory() as base, closing(Appender(args.output)) as file:
        caches = {arm: folder(Path(base), arm) for arm in ARMS}
        for _, text in asked("summary", 1):
            answer(args, text, "known", caches["known"])
        jobs = [(kind, *job) for kind in KINDS for job in asked(kind, args.prompts)]
        for number, (kind, name, text) in enumerate(jobs):
            if (kind, name) in done:
                continue
            turn = number % len(ARMS)
            found = {arm: answer(args, text, arm, caches[arm]) for arm in ARMS[turn:] + ARMS[:turn]}
            same = all(found[arm]["ids"] == found["plain"]["ids"] for arm in ARMS)
            for one in found.values():
                one["tokens"] = len(one.pop("ids"))
            row = {"row": "answer", "kind": kind, "name": name, "identical": same, **found}
            rows.append(row)
            file.write([row])
            print(kind, name, *(f"{arm} {found[arm]['decode_s']:.2f}" for arm in ARMS), flush=True)
    table(rows)


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Print times plain by kind, the medians of what a process takes besides, and how many texts are the same."""
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["plain"]["tokens"] > 1:
            kinds[row["kind"]].append(row)
    logs: dict[str, list[float]] = defaultdict(list)
    for kind, some in kinds.items():
        speeds = {}
        for arm in ARMS[1:]:
            for what in ("decode_s", "whole_s"):
                plain, ours = (sum(row[of][what] for row in some) for of in ("plain", arm))
                name = f"{arm} {'decoding' if what == 'decode_s' else 'whole'}"
                speeds[name] = plain / ours
                logs[name].append(log(plain / ours))
        print(f"{kind:16} {len(some):3}", *(f"{arm} {speed:.3f}" for arm, speed in speeds.items()))
    means = [f"{arm} {exp(sum(some) / len(some)):.3f}" for arm, some in logs.items()]
    print(f"{'geometric mean':20}", *means)
    for arm in ARMS:
        start = median(row[arm]["whole_s"] - row[arm]["decode_s"] for row in rows)
        opening = median(row[arm].get("open_s", 0.0) for row in rows)
        print(f"{arm}: {start:.2f} s besides decoding; in decoding, drafters took {1e3 * opening:.0f} ms to open")
    print(f"{sum(row['identical'] for row in rows)} of {len(rows)} texts are the same")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", metavar="MODEL")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=2, help="of each kind")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dtype")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--table", type=Path, nargs="+", help="only show what these files hold")
    args = parser.parse_args()
    if args.table:
        for path in args.table:
            table([row for _, row in read_lines(path) if row.get("row") == "answer"])
    elif args.model is None or args.output is None:
        parser.error("give MODEL and -o FILE, or --table FILES")
    else:
        run(args)


if __name__ == "__main__":
    main()
