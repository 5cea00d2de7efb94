"""Writes docs/figures.md from the result rows in benchmarks/results, the small table of README, and the tables of
docs/llama-cpp.md.

    python benchmarks/figures.py > docs/figures.md
    python benchmarks/figures.py --readme          # the table that README shows
    python benchmarks/figures.py --llama           # puts the tables into docs/llama-cpp.md

A test fails where one of them is not what the rows give.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import figures_llama
import figures_speed
import own_passes as own
from never_slower_table import pairs
from results import RESULTS, Figure, by_arm, lines, rows, said, table

from draftwood.measure.records.timing import acceptance_length
from draftwood.measure.wording import number

HEAD = """# Figures

For readers who want the numbers with their machine, date and command.

Made by `python benchmarks/figures.py > docs/figures.md` from [the result rows](../benchmarks/results/README.md); do not edit. A test fails where this page is not what the rows give.

Times were taken with smollm2 (135 million parameters) on two processor cores while nothing else ran. Your model and your machine differ, so [measure them](measuring.md). The machine was not equally fast on all days, so compare figures of one table only. Tables of float32 and bfloat16 are of the engine transformers, with the drafter `ngram` alone (smollm2's default set also has a [head](drafters/models.md#head) there). Counts (tokens per pass) do not depend on the machine; they are given for a fixed number of draft nodes, so that drafters can be compared. The words are those of [words.md](words.md). *Speedup* means: times as fast as plain decoding in the same loop. Intervals are 95 % bootstrap intervals over prompts.

The commands were shortened to file names when the rows were written; `spine` is called `copy-and-recycle` today, and of llama.cpp's drafters only the form with `faithful=true` is left (of `ngram-cache` the corrected one).
"""  # noqa: E501 - a line per paragraph, as in all of docs/


MIX = ("code-edit", "grammar", "summary", "web-qa", "chat")
TASKS = ("code-edit", "structured", "completion", "grammar", "summary", "agent", "web-qa", "chat")
REPLAY = "replay.jsonl"
FAMILY = "family.jsonl.zst"


def counts() -> list[Figure]:
    """Tables that count: tokens per pass, whether acceptance rates hold, texts that differ."""
    return [replayed(), family(), own_passes(), sampled(), differing()]


def replayed() -> Figure:
    """Drafters that copy, over recorded answers."""
    words = {
        "ngram": "`ngram` (the default)",
        "ngram+memory": "`ngram+memory`",
    }
    found = {(r["task"], r["arm"]): r["tokens"] / r["passes"] for r in rows(REPLAY).of_kind("replayed")}
    body = [[said, *(number(found[task, arm]) for task in TASKS)] for arm, said in words.items()]
    about = (
        "Tokens per pass with 16 draft nodes in every step, replayed over recorded answers of smollm2 that no "
        "prior was learnt from; looped tails left out. `memory` here holds the answers before."
    )
    return Figure("Drafters that copy", about, (REPLAY,), table(["drafters", *TASKS], body))


def family() -> Figure:
    """llama.cpp's five, three ways, and two more."""
    found = {
        key: acceptance_length(some, unlooped=True) or acceptance_length(some)
        for key, some in by_arm(rows(FAMILY).answers).items()
    }
    arms: list[tuple[str, str]] = []
    for which in ("simple", "map-k", "map-k4v", "mod", "cache"):
        arms.append((f"`ngram-{which}`, corrected", f"ngram-{which}"))
        arms.append((f"`ngram-{which}:faithful=true`", f"ngram-{which}:faithful=true"))
        arms.append((f"llama.cpp's own `ngram-{which}`", f"llama.cpp:ngram-{which}"))
    arms += [
        ("`lookup`", "lookup"),
        ("transformers' prompt lookup", "transformers:lookup"),
        ("`parrot`", "parrot"),
    ]
    body = [[said, *(number(found.get((kind, arm))) for kind in MIX)] for said, arm in arms]
    about = (
        "Tokens per pass, live, with up to 16 draft nodes in every step; three prompts of each kind, 64 new "
        "tokens, two rounds, greedy (today's command needs `--planner fixed:16`). llama.cpp ran with "
        "four-bit weights, so its texts differ from ours."
    )
    return Figure("llama.cpp's family, prompt lookup and parrot", about, (FAMILY,), table(["drafter", *MIX], body))


def _own_table(files: Sequence[str]) -> str:
    """Tokens per pass of each arm in these files of own_passes.py."""
    groups = own.grouped(own.runs(rows(name) for name in files))
    present = {run.task for members in groups.values() for run in members}
    kinds = [*(kind for kind in MIX if kind in present), *sorted(present - set(MIX))]
    kinds += ["mix"] if set(MIX) <= present else []
    body = []
    for group, members in groups.items():
        found = own.lengths(members)
        cells = [f"`{group.arm}`", str(group.draft), "across" if group.across else "within"]
        body.append([*cells, *(number(found.get(kind)) for kind in kinds), str(len(members))])
    return table(["drafters", "draft nodes", "state kept", *kinds, "prompts"], body)


def own_passes() -> Figure:
    """What the model's own passes are worth."""
    files = tuple(f"own-passes-{name}.jsonl.zst" for name in ("within", "spine", "within-64", "across", "alone"))
    about = (
        "Tokens per pass of smollm2, greedy, up to 20 prompts of each kind, 128 new tokens (96 for `lookahead` "
        "and `jacobi`), looped tails left out. *Within*: drafters begin anew with each prompt. *Across*: they "
        "keep what their options let them keep. *Mix*: all tokens of the five kinds over all their passes. "
        "`recycling` alone was stopped before all kinds were done. "
        "Explained in [own passes](drafters/own-passes.md)."
    )
    return Figure("Drafters that use the model's own passes", about, files, _own_table(files))


def sampled() -> Figure:
    """The same at a temperature."""
    files = ("own-passes-sampled.jsonl.zst",)
    return Figure("The same at temperature 0.7", "Eight prompts of each kind.", files, _own_table(files))


def differing() -> Figure:
    """Texts that are not plain decoding's, by number format."""
    body = []
    for dtype in ("float32", "bfloat16"):
        some = pairs(rows(f"never-slower-{dtype}.jsonl.zst"))
        for t in sorted({pair.temperature for pair in some}):
            told = [pair.identical for pair in some if pair.temperature == t]
            body.append([dtype, f"draftwood, default settings, temperature {t:g}", _count(told)])
    for dtype in ("float32", "bfloat16"):
        file = rows(f"peers-{dtype}.jsonl.zst")
        plain = {a.name: a.output_ids for a in reversed(file.answers) if a.arm == "none"}
        for arm in ("transformers", "transformers:lookup", "transformers:early-exit=28"):
            first = {a.name: a.output_ids for a in reversed(file.answers) if a.arm == arm}
            body.append([dtype, f"`{arm}`, greedy", _count(plain[name] == ids for name, ids in first.items())])
    about = (
        "Texts that differ from draftwood's plain decoding. In bfloat16 the two best tokens are often closer than"
        " the rounding of a pass, so any other way to compute moves some texts: [exactness.md](exactness.md)."
    )
    files = tuple(
        f"{kind}-{dtype}.jsonl.zst" for dtype in ("float32", "bfloat16") for kind in ("never-slower", "peers")
    )
    return Figure("Texts that differ", about, files, table(["number format", "text of", "differ"], body))


def _count(identical: Iterable[bool]) -> str:
    told = list(identical)
    return f"{sum(not same for same in told)} of {len(told)}"


CARD = "gpu.jsonl"
OF_CARD: tuple[tuple[str, str, tuple[str, ...], str, Callable[[Any], str], str], ...] = (
    (
        "Texts on a card", "texts", ("model", "task"), "arm",
        lambda row: number(row["tokens"] / row["seconds"], 1),
        "Tokens per second of random weights in bfloat16 that are made to write recorded answers, as in the table "
        "of larger models; `generate` and `lookup` are `model.generate` of transformers and its prompt lookup, "
        "`together` are several texts at once.",
    ),
    (
        "Passes on a card", "pass", ("model", "shape", "context"), "width",
        lambda row: number(1e3 * row["seconds"], 1),
        "Milliseconds of a pass over so many tokens, medians, by the tokens before it.",
    ),
    (
        "Equal scores on a card", "equality", ("model", "shape"), "width",
        lambda row: "{same_bits}, {same_best} of {rows} ({largest:.1%})".format(**row),
        "How many rows of a pass over so many tokens (or texts) have the bits of a pass of their own, how many "
        "the same best token, and the largest difference as a share of the largest score.",
    ),
    (
        "Memory on a card", "memory", ("model",), "arm", lambda row: number(row["bytes"] / 1e9, 1),
        "Gigabytes that are taken at most, weights included, while a prompt of 8,000 tokens is read.",
    ),
    (
        "Types of models on a card", "types", ("drafts", "way"), "dtype",
        lambda row: f"`{row['type']}`" + (f" ({row['differs']})" if row.get("differs") else ""),
        "How the tiny models of [model types](models.md) run, by number format.",
    ),
)  # fmt: skip
"""Tables of gpu.py's rows: title, part, what names a line and a column, a cell, what is said."""


def card(name: str = CARD) -> list[Figure]:
    """What gpu.py measured on a graphics card."""
    first, *found = lines(name)
    left = [f"{row['part']} of {row['model']} ({row['why']})" for row in found if row["row"] != "measured"]
    told = f" On one {first['provenance'].get('card', 'processor')}."
    told += f" Not all was measured: {', '.join(left)}." if left else ""
    made = []
    for title, part, keys, column, cell, about in OF_CARD:
        cells: dict[tuple[str, ...], dict[str, list[str]]] = {}
        for row in found:
            if (row["row"], row["part"]) == ("measured", part):
                line = cells.setdefault(tuple(str(row.get(key, "")) for key in keys), {})
                line.setdefault(str(row[column]), []).append(cell(row))
        columns = list(dict.fromkeys(one for line in cells.values() for one in line))
        body = [[*key, *(", ".join(line.get(one, ())) for one in columns)] for key, line in cells.items()]
        made.append(Figure(title, about + told, (name,), table([*keys, *columns], body)))
    return made


@functools.cache
def figures() -> list[tuple[str, list[Figure]]]:
    """Chapters of the page, each with its tables."""
    found = [("Speed", figures_speed.chapter()), ("Tokens per pass", counts())]
    return [*found, ("On a graphics card", card())] if (RESULTS / CARD).exists() else found


def page() -> str:
    """Return docs/figures.md."""
    chapters = figures()
    parts, known = [HEAD], set[str]()
    parts += [f"- [{figure.title}](#{figure.anchor})" for _, some in chapters for figure in some]
    for title, some in chapters:
        parts += ["", f"## {title}"]
        for figure in some:
            parts += ["", *said(figure, known)]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", action="store_true", help="print the table of README instead")
    parser.add_argument("--llama", action="store_true", help="put the tables into docs/llama-cpp.md instead")
    options = parser.parse_args()
    if options.llama:
        path = figures_llama.PAGE
        path.write_text(figures_llama.filled(path.read_text(encoding="utf-8")), encoding="utf-8")
        return
    sys.stdout.write(figures_speed.beside_llama().table + "\n" if options.readme else page())


if __name__ == "__main__":
    main()
