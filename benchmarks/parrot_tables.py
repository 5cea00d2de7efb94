"""Tables 1 and 2 of the "N-gram Parrot" paper: time per token in per cent of plain, published cells beside ours.

    python benchmarks/parrot_tables.py -o benchmarks/results/parrot.jsonl.zst
    python benchmarks/parrot_tables.py --report benchmarks/results/parrot.jsonl.zst

Published: Kim, Kim and Oh (KAIST), models of 7B to 8x7B, 100 prompts a task. Ours: smollm2 on a CPU, prompts of
draftwood.tasks of the same four kinds. The rows run through `draftwood bench`: interleaved, resumable.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from draftwood.cli.main import run
from draftwood.measure.bench.table import table
from draftwood.measure.records.records import read_records

MODELS = ("Llama-2-7b", "Llama-2-13b", "Meta-Llama-3-8B", "Mixtral-8x7B", "Mistral-7B")
TABLE_1 = {
    "web-qa": ("Web browsing", (94.53, 98.79, 111.08, 109.74, 101.84)),
    "summary": ("Summarization", (94.04, 96.32, 107.09, 99.79, 98.41)),
    "grammar": ("Grammar check", (98.12, 95.83, 114.87, 110.90, 105.74)),
    "chat": ("ChatGPT prompts", (107.49, 104.90, 116.00, 120.45, 104.19)),
}
TABLE_2 = {
    "web-qa:one-sentence": ("Web browsing", (93.31, 98.36, 102.49, 106.13, None)),
    "grammar:one-sentence": ("Grammar check", (87.86, 94.94, 118.42, 104.99, None)),
}
"""Table 2 has no row for Mistral-7B."""


def measure(args: argparse.Namespace) -> int:
    flags = {
        "--tasks": ",".join([*TABLE_1, *TABLE_2]),
        "--limit": args.limit,
        "--drafters": args.drafters,
        "--rounds": args.rounds,
        "--model": args.model,
        "--dtype": args.dtype,
        "--output": args.output,
    }
    return run(["bench", *(str(word) for flag in flags.items() for word in flag)])


def report(path: Path) -> None:
    rows = read_records(path)
    ours = {(row["task"], row["drafter"]): row for row in table(rows)}
    said = rows.header["provenance"]
    print(f"`{said['command']}`: {said['processor']}, {said['threads']} threads, {said['date']}\n")
    for number, published in ((1, TABLE_1), (2, TABLE_2)):
        present = {task: cells for task, cells in published.items() if (task, "none") in ours}
        print(f"Table {number}: per cent of plain time per token\n")
        print("| | " + " | ".join(name for name, _ in present.values()) + " |\n|---" + "|---" * len(present) + "|")
        for i, model in enumerate(MODELS):
            cells = [published_cell(values[i]) for _, values in present.values()]
            if any(cells):
                print(f"| {model}, published | " + " | ".join(cells) + " |")
        for arm in dict.fromkeys(drafter for _, drafter in ours if drafter != "none"):
            for label, kind in (("", "speedup"), (", looped tails left out", "speedup_unlooped")):
                cells = [own_cell(ours.get((task, arm)), kind) for task in present]
                print(f"| {rows.header['settings']['model']} with {arm}{label} | " + " | ".join(cells) + " |")
        counts = ", ".join(f"{task} {ours[task, 'none']['prompts']}" for task in present)
        print(f"\nprompts: {counts}; in brackets the 95 % interval over prompts\n")
    different = [f"{t} {d}" for (t, d), row in ours.items() if row["identical"] is False]
    print("texts that are not plain's: " + (", ".join(different) or "none"))


def published_cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def own_cell(row: dict[str, Any] | None, kind: str) -> str:
    if row is None or row[kind] is None:
        return ""
    interval = row[f"{kind}_interval"]
    spread = f" [{100 / interval[1]:.1f}, {100 / interval[0]:.1f}]" if interval else ""
    return f"{100 / row[kind]:.2f}{spread}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("parrot.jsonl.zst"))
    parser.add_argument("--report", type=Path, help="only print the tables of this file")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--drafters", default="default")
    parser.add_argument("--limit", type=int, default=24, help="prompts per task")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    code = measure(args) if args.report is None else 0
    report(args.report or args.output)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
