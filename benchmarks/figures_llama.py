"""Tables of docs/llama-cpp.md, from results/llama-*: what a pass costs, speed on each kind of text, equal texts.

Each stands between two comments, ``<!-- passes -->`` and ``<!-- /passes -->``; one without rows stays as it is.
Rows for a file MODEL.gguf with Q4_0 weights, while nothing else runs:

    python benchmarks/llama.py passes MODEL.gguf -o benchmarks/results/llama-passes-Q4_0.jsonl
    draftwood bench -m MODEL.gguf --temperature 0 --max-new-tokens 96 --peers llama.cpp:all -o rows.jsonl
    python benchmarks/results.py rows.jsonl -o benchmarks/results/llama-bench-Q4_0.jsonl.zst
    python benchmarks/llama.py same MODEL.gguf -o benchmarks/results/llama-exact-Q4_0.jsonl
    python benchmarks/figures.py --llama
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from results import OTHERS, RESULTS, counts, lines, link, origin, rows, table

from draftwood.measure.bench.table import geometric_mean
from draftwood.measure.bench.table import table as bench_table
from draftwood.measure.records.records import Records
from draftwood.measure.wording import number

PAGE = Path(__file__).parents[1] / "docs" / "llama-cpp.md"

SETTINGS = {"fast": "llama.cpp's own", "exact": "exact"}
SERVER, PLAIN = "llama.cpp", "none"
COSTS = (2, 4, 8, 16)

Row = Mapping[str, Any]


def filled(text: str) -> str:
    """Return a page with every table for which there are rows made anew."""
    for name, (kind, make) in SECTIONS.items():
        if files := sorted(path.name for path in RESULTS.glob(f"llama-{kind}-*.jsonl*")):
            body = make(files)
            marks = re.escape(f"<!-- {name} -->"), re.escape(f"<!-- /{name} -->")
            pattern = re.compile(f"({marks[0]}\n).*?({marks[1]})", re.DOTALL)
            text = pattern.sub(lambda found, body=body: f"{found[1]}\n{body}\n\n{found[2]}", text)
    return text


def each(make: Callable[[str], str]) -> Callable[[Sequence[str]], str]:
    """Return a function that makes a table of each file."""
    return lambda files: "\n\n".join(map(make, files))


def passes(file: str) -> str:
    """What a pass over n tokens costs behind each length of text."""
    header, *found = lines(file)
    facts = header["provenance"]
    cells = {(r["context"], r["settings"], r["n"]): r["fastest_ms"] for r in found}
    widths = sorted({n for _, _, n in cells})
    keys = [(c, s) for c in sorted({c for c, _, _ in cells}) for s in SETTINGS if (c, s, widths[0]) in cells]
    body = [[f"{c:,}", SETTINGS[s], *(number(cells.get((c, s, n)), 1) for n in widths)] for c, s in keys]
    head = ["tokens in the cache", "settings", f"n = {widths[0]}", *map(str, widths[1:])]
    about = f"Milliseconds of a pass over n tokens, {facts['dtype']}, fastest of {found[0]['rounds']} in turns:"
    return _section(about, head, body, file)


def costs(files: Sequence[str]) -> str:
    """How much dearer wide passes are, a line per number format, and how often a guess must be right to pay."""
    body = []
    for file in files:
        header, *found = lines(file)
        shortest = min(row["context"] for row in found)
        ms = {r["n"]: r["fastest_ms"] for r in found if (r["context"], r["settings"]) == (shortest, "fast")}
        ratios = {n: ms[n] / ms[1] for n in COSTS if n in ms and 1 in ms}
        pays = f"{100 * (ratios[2] - 1):.0f} %" if 2 in ratios else ""
        body.append([header["provenance"]["dtype"], *(number(ratios.get(n)) for n in COSTS), pays])
    head = ["weights", *(f"n = {n}" for n in COSTS), "one guess pays if right in more than"]
    about = "A pass over n tokens beside one over one token (1.00), llama.cpp's own settings, a short text:"
    return "\n\n".join([about, table(head, body), "\n".join(map(origin, files))])


def bench(file: str) -> str:
    """Tokens per second on each kind of text, and how many times as fast drafts are."""
    found = {(r["task"], r["drafter"]): r for r in bench_table(rows(file))}
    kinds = list(dict.fromkeys(task for task, _ in found))
    arms = [arm for arm in dict.fromkeys(arm for _, arm in found) if not arm.startswith(SERVER) and arm != PLAIN]
    speculates = any(arm.startswith(f"{SERVER}:") for _, arm in found)
    kinds.sort(key=lambda kind: -(found[kind, arms[0]]["speedup_unlooped"] or 0.0))
    serves = any(arm == SERVER for _, arm in found)

    def line(kind: str) -> list[str]:
        others = [_pace(found[kind, SERVER])] if serves else []
        others += [_best(found, kind)] if speculates else []
        own = [_pace(found[kind, PLAIN]), *(cell for arm in arms for cell in _drafted(found[kind, arm]))]
        return [kind, *others, *own]

    body = [line(kind) for kind in kinds]
    means = [geometric_mean(found[kind, arm]["speedup_unlooped"] or 1.0 for kind in kinds) for arm in arms]
    before = [""] * (1 + serves + speculates)
    body.append(["geometric mean", *before, *(cell for mean in means for cell in ("", f"**{number(mean)}**"))])
    head = ["kind", *(["llama.cpp's server"] if serves else []), *(["its best speculator"] if speculates else [])]
    head += ["draftwood plain", *(cell for arm in arms for cell in (f"`{arm}`", "times plain"))]
    return _section(_about_bench(rows(file).header, list(found.values()), arms), head, body, file)


def benches(files: Sequence[str]) -> str:
    """The file with llama.cpp beside it in full; of the others the mean over all kinds, the best and the worst."""
    whole = next((file for file in files if _has_peers(rows(file))), files[0])
    body, others = [], [file for file in files if file != whole]
    for file in others:
        settings, found = rows(file).header["settings"], bench_table(rows(file))
        gains = {
            row["task"]: row["speedup_unlooped"] or 1.0 for row in found if row["drafter"] not in (PLAIN, SERVER)
        }
        best, worst = max(gains, key=gains.__getitem__), min(gains, key=gains.__getitem__)
        said = [f"{kind} {number(gains[kind])}" for kind in (best, worst)]
        temperature = f"{settings.get('temperature') or 0:g}"
        body.append([settings["dtype"], temperature, f"**{number(geometric_mean(gains.values()))}**", *said])
    if not others:
        return bench(whole)
    about = "The same with other weights and temperatures, *times plain*, geometric mean over the nine kinds:"
    head = ["weights", "temperature", "all", "best kind", "worst kind"]
    return "\n\n".join([bench(whole), about, table(head, body), "\n".join(map(link, others))])


def _has_peers(file: Records) -> bool:
    return any(answer.engine == SERVER for answer in file.answers)


def exact(file: str) -> str:
    """How many texts and tokens are plain's."""
    header, *found = lines(file)
    c = counts(found)
    names = dict(zip(OTHERS, ("our drafted loop", "llama.cpp's server"), strict=True))
    body = [
        [names[o], f"{c[f'{o}_texts']} of {c['texts']}", f"{c[f'{o}_tokens']:,} of {c['tokens']:,}"]
        for o in OTHERS
    ]
    about = (
        f"Greedy texts that equal our plain loop's, {header['settings']['dtype']}, tokens up to where they part:"
    )
    return _section(about, ["written by", "texts", "tokens"], body, file)


def _about_bench(header: Row, found: Sequence[Row], arms: Sequence[str]) -> str:
    settings = header["settings"]
    same = [row["identical"] for row in found if row["drafter"] in arms]
    texts = "every text with drafts was the text without"
    if not all(same):
        texts = f"texts with drafts differ from those without in {same.count(False)} of {len(same)} cells"
    return (
        f"Tokens per second after the prompt, {settings['dtype']}, {found[0]['prompts']} prompts of each kind, "
        f"{settings['max_new_tokens']} new tokens, temperature {settings.get('temperature') or 0:g}, "
        f"{found[0]['rounds']} rounds in turns; {texts}. *Times plain* leaves out text that only repeats itself."
    )


def _best(found: Mapping[tuple[str, str], Row], kind: str) -> str:
    """The fastest of llama.cpp's own speculators."""
    some = [row for (task, arm), row in found.items() if task == kind and arm.startswith(f"{SERVER}:")]
    best = max(some, key=lambda row: row["tokens_per_second"] or 0.0)
    return f"{_pace(best)} (`{best['drafter'].partition(':')[2]}`)"


def _drafted(row: Row) -> tuple[str, str]:
    return _pace(row), number(row["speedup_unlooped"])


def _pace(row: Row | None) -> str:
    return number(row["tokens_per_second"] if row else None, 1)


def _section(about: str, head: Sequence[str], body: Sequence[Sequence[str]], file: str) -> str:
    return f"{about}\n\n{table(head, body)}\n\n{origin(file)}"


Make = Callable[[Sequence[str]], str]
SECTIONS: Mapping[str, tuple[str, Make]] = {
    "passes": ("passes", each(passes)),
    "costs": ("passes", costs),
    "bench": ("bench", benches),
    "exact": ("exact", each(exact)),
}
"""Name of a table -> the kind of its result files, and what makes it of them."""
