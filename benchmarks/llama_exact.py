"""How many texts and tokens are the same: our plain loop, our drafted loop, and llama.cpp's own server.

    python benchmarks/llama_exact.py MODEL.gguf --prompts 200 --tokens 128 -o llama-exact-Q4_0.jsonl
    python benchmarks/llama_exact.py --table llama-exact-*.jsonl

Greedy texts on the prompts of `draftwood bench`, the kinds in turns. In the exact mode drafted texts must be
plain's in every token. The server computes as llama.cpp does by itself, so its texts may part from ours where
rounding decides; tokens are counted up to there. A row holds the ids of the three texts, null for those equal to
plain's.
The same command goes on with a file that was left unfinished.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

from places import bare

import draftwood
from draftwood.api.setup import Setup
from draftwood.decoding.sequence import common_prefix
from draftwood.engines.peers import load_peers
from draftwood.measure.prompt_files import Job, task_jobs
from draftwood.measure.records.lines import Appender, read_lines, write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.tasks import KINDS

OTHERS = ("drafted", "server")
SERVER = "llama.cpp"


def jobs_of(count: int) -> list[Job]:
    """Return so many prompts, one of each kind in turns; kinds with few prompts end early."""
    kinds = [[job for job in task_jobs(kind) if not job.sampling] or task_jobs(f"{kind}@0") for kind in KINDS]
    return list(islice((job for job in chain(*zip_longest(*kinds)) if job is not None), count))


def resumed(path: Path, header: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that a file of the same settings holds, and take a torn line off it."""
    if not path.exists() or not path.stat().st_size:
        write_whole(path, [header])
        return []
    (_, first), *others = read_lines(path)
    if first.get("settings") != header["settings"]:
        raise SystemExit(f"{path} holds another run ({first.get('settings')}): choose another -o")
    rows = [row for _, row in others]
    write_whole(path, [first, *rows])
    return rows


class Texts:
    """Writes the three texts of a prompt."""

    def __init__(self, args: argparse.Namespace) -> None:
        exact = False if args.fast else None
        self.model, self.tokenizer = draftwood.load(str(args.model), threads=args.threads, exact=exact)
        self.setup, self.tokens = Setup(self.model, self.tokenizer, "none", "off"), args.tokens
        threads = self.model.setting.threads
        (self.server,) = load_peers(SERVER, self.model, self.tokenizer, str(args.model), threads)

    def row(self, job: Job) -> dict[str, Any]:
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


def counts(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the numbers of texts and tokens, and of those that are plain's in each of the other texts."""
    found = {"texts": len(rows), "tokens": sum(len(row["plain"]) for row in rows)}
    for name in OTHERS:
        same = [row[name] is None for row in rows]
        found[f"{name}_texts"] = sum(same)
        found[f"{name}_tokens"] = sum(
            len(row["plain"]) if equal else common_prefix(row["plain"], row[name])
            for row, equal in zip(rows, same, strict=True)
        )
    return found


def said(number_format: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return one line about a file."""
    c = counts(rows)
    parts = [
        f"{name} {c[f'{name}_texts']} of {c['texts']} texts, {c[f'{name}_tokens']} of {c['tokens']} tokens"
        for name in OTHERS
    ]
    return f"{number_format}: as plain are {'; '.join(parts)}"


def run(args: argparse.Namespace) -> None:
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
                print(f"{job.task} {job.name}; {said(setting.dtype, rows)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL.gguf")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--fast", action="store_true", help="llama.cpp's own settings instead of exact ones")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--table", type=Path, nargs="+", help="only count what these files hold")
    args = parser.parse_args()
    if args.table:
        for path in args.table:
            first, *rows = (line for _, line in read_lines(path))
            print(said(first["settings"]["dtype"], rows))
    elif args.model is None or args.output is None:
        parser.error("give MODEL.gguf and -o FILE, or --table FILES")
    else:
        run(args)


if __name__ == "__main__":
    main()
