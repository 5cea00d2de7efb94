"""Seconds from the start of a process to the first token on screen, by stage, beside a bare transformers script.

    python benchmarks/starts.py --rounds 5 --threads 1 -o starts.jsonl
    python benchmarks/starts.py --rounds 5 --threads 1 --busy -o starts-busy.jsonl
    python benchmarks/starts.py --table starts*.jsonl

Arms take turns: the bare script (`starts_bare.py`) and `draftwood generate` through transformers in two number
formats, and through llama.cpp. *First* starts with an empty cache folder and no compiled kernel; *second* is the
next start. *Busy*: a process spins on a core meanwhile, with this process's priority. Files are in the system's
cache. A row holds, per stage, the seconds from the start of the process to its end; ``answer`` is the end of all.
The same command goes on with a file that was left unfinished.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from llama_exact import resumed
from places import bare

from draftwood.measure.records.lines import Appender, read_lines
from draftwood.measure.records.provenance import provenance
from draftwood.models import cache_folder
from draftwood.models.find import gguf_file, model_folder

HERE = Path(__file__).parent
PROMPT = "Once upon a time"
FORMATS = ("float32", "bfloat16")
TOKENS = 16


def command(arm: str, args: argparse.Namespace, stages: Path) -> list[str]:
    """Return the command of an arm: ``bare float32``, ``draftwood bfloat16``, ``llama.cpp``."""
    kind, _, dtype = arm.partition(" ")
    threads = str(args.threads)
    if kind == "bare":
        script = HERE / "starts_bare.py"
        return [sys.executable, str(script), str(model_folder(args.model)), dtype, threads, PROMPT, str(TOKENS)]
    found = [sys.executable, str(HERE / "starts_stages.py"), str(stages), "generate", PROMPT, "--raw"]
    found += ["--max-new-tokens", str(TOKENS), "--threads", threads]
    if kind == "llama.cpp":
        return [*found, "--model", str(args.gguf or gguf_file(args.model)), "--engine", "llama.cpp"]
    return [*found, "--model", args.model, "--dtype", dtype]


def start(arm: str, args: argparse.Namespace, cache: Path) -> dict[str, float]:
    """Run one process; returns the seconds until each stage ended."""
    stages = cache / "stages.json"
    stages.unlink(missing_ok=True)
    kernels = {"NUMBA_CACHE_DIR": str(cache / "kernels")}
    began = monotonic()
    process = subprocess.Popen(
        command(arm, args, stages), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **kernels, "DRAFTWOOD_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.read(1)
    first = monotonic()
    _, said = process.communicate()
    ended = monotonic()
    if process.returncode:
        raise SystemExit(f"{arm} failed: {said.decode()}")
    found = json.loads(stages.read_bytes()) if stages.exists() else {}
    return {
        **{stage: at - began for stage, at in found.items()},
        "on screen": first - began,
        "answer": ended - began,
    }


def prepared(base: Path, name: str) -> Path:
    """Return a cache folder with this machine's models and nothing else."""
    cache = base / name
    cache.mkdir()
    (cache / "models").symlink_to(cache_folder() / "models")
    return cache


@contextmanager
def spinning(*, wanted: bool) -> Iterator[None]:
    """Keep one core busy."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(args: argparse.Namespace) -> None:
    settings = {name: getattr(args, name) for name in ("model", "threads", "busy")}
    settings["gguf"] = Path(args.gguf or gguf_file(args.model)).name
    header = {"row": "header", "verb": "starts", "settings": settings, "provenance": bare(provenance(**settings))}
    rows = resumed(args.output, header)
    arms = [*(f"{kind} {dtype}" for dtype in FORMATS for kind in ("bare", "draftwood")), "llama.cpp"]
    with closing(Appender(args.output)) as file, spinning(wanted=args.busy):
        for arm in arms:  # files into the system's cache
            with tempfile.TemporaryDirectory() as base:
                start(arm, args, prepared(Path(base), "cache"))
        done = max((row["round"] for row in rows), default=-1) + 1
        for number in range(done, args.rounds):
            turn = number % len(arms)
            found = []
            for arm in arms[turn:] + arms[:turn]:
                with tempfile.TemporaryDirectory() as base:
                    cache = prepared(Path(base), "cache")
                    for which in ("first", "second"):
                        if which == "first" and arm.startswith("bare"):
                            continue
                        seconds = start(arm, args, cache)
                        found.append({"row": "start", "round": number, "arm": arm, "start": which, "s": seconds})
                        print(number, arm, which, f"{seconds['on screen']:.2f}", flush=True)
            rows += found
            file.write(found)
    table(rows)


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Print medians: when each stage ended, and the first token's time over the bare script's of its round."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["arm"], row["start"]].append(row)
    bares = {
        (row["round"], row["arm"].partition(" ")[2]): row["s"] for row in rows if row["arm"].startswith("bare")
    }
    for (arm, which), some in sorted(groups.items()):
        stages = " · ".join(f"{stage} {median(row['s'][stage] for row in some):.2f}" for stage in some[0]["s"])
        dtype = arm.partition(" ")[2]
        ratios = [row["s"]["on screen"] / bares[row["round"], dtype]["on screen"] for row in some] if dtype else []
        ratio = f", {median(ratios):.2f} of bare ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
        print(f"{arm}, {which} start ({len(some)}): {stages}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="a fetched model")
    parser.add_argument("--gguf", type=Path, help="the file for llama.cpp; by default the model's own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--busy", action="store_true", help="a process spins on one core")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--table", type=Path, nargs="+", help="only show what these files hold")
    args = parser.parse_args()
    if args.table:
        for path in args.table:
            print(path.name)
            table([row for _, row in read_lines(path) if row.get("row") == "start"])
    elif args.output is None:
        parser.error("give -o FILE, or --table FILES")
    else:
        run(args)


if __name__ == "__main__":
    main()
