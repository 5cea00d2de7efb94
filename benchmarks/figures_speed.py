"""Tables of docs/figures.md that show seconds: draftwood left on, its peers, the pass, the planner."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from never_slower_table import TEMPERATURES, Pair, grouped, ratio, telling
from results import Figure, by_arm, lines, rows, table

from draftwood.measure.bench.table import geometric_mean
from draftwood.measure.bench.table import table as bench_table
from draftwood.measure.records.records import Answer
from draftwood.measure.records.timing import generated
from draftwood.measure.wording import number

KINDS = ("code-edit", "completion", "structured", "grammar", "summary", "web-qa", "agent", "chat", "creative")
MIX = ("code-edit", "grammar", "summary", "web-qa", "chat")
LEFT_ON = "never-slower-float32.jsonl.zst"
AGAIN = "never-slower-worst.jsonl.zst"


def chapter() -> list[Figure]:
    """All of them, in the order of the page."""
    return [
        beside_llama(),
        own_engine(),
        own_engine_avx2(),
        left_on(LEFT_ON, "float32"),
        left_on("never-slower-bfloat16.jsonl.zst", "bfloat16"),
        slowest(),
        peers(),
        llama(),
        passes(),
        planner(),
    ]


def pairs(name: str) -> dict[tuple[str, float], list[Pair]]:
    """Pairs of plain and drafted answers, by kind of text and temperature."""
    return grouped(telling(rows(name)))


def with_interval(some: Sequence[Pair]) -> str:
    """A speedup and its interval."""
    found, interval = ratio(some)
    return f"**{found:.2f}**" + (f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else "")


def per_pass(some: Sequence[Pair]) -> float:
    """Mean acceptance length."""
    tokens, count = (sum(pair.ours[what] for pair in some) for what in ("tokens", "passes"))
    return float(tokens / count)


def mean(values: Sequence[float]) -> float:
    """Geometric mean of a column."""
    return geometric_mean(values) or 0.0


def left_on(name: str, dtype: str) -> Figure:
    """Default settings on every kind of text."""
    found = pairs(name)
    body = []
    for kind in dict.fromkeys(task for task, _ in found):
        some = [found[kind, t] for t in TEMPERATURES]
        lengths = " / ".join(f"{per_pass(members):.2f}" for members in some)
        body.append([kind, *map(with_interval, some), lengths, str(len(some[0]))])
    means = [f"**{mean([ratio(found[kind, t])[0] for kind in KINDS]):.2f}**" for t in TEMPERATURES]
    body.append(["geometric mean of the nine kinds", *means, "", ""])
    every = [pair for members in found.values() for pair in members]
    lowest = min(found, key=lambda key: ratio(found[key])[0])
    about = (
        f"Speedup with default settings, {dtype}, 64 new tokens, the prompt's reading left out. Plain and drafted "
        f"decoding took turns. {sum(p.identical for p in every)} of {len(every)} texts equal plain decoding's. "
        f"Lowest: {lowest[0]} at temperature {lowest[1]:g}, {ratio(found[lowest])[0]:.3f}."
    )
    head = ["kind", *(f"temperature {t:g}" for t in TEMPERATURES), "tokens per pass at each", "prompts"]
    return Figure(f"Left on for everything, {dtype}", about, (name,), table(head, body))


def slowest() -> Figure:
    """The ten slowest prompts of the float32 run, each with the median of its rounds when run again."""
    rounds: dict[tuple[str, str, float], list[float]] = {}
    for pair in telling(rows(AGAIN)):
        rounds.setdefault((pair.task, pair.name, pair.temperature), []).append(pair.speedup)
    body = []
    for p in sorted(telling(rows(LEFT_ON)), key=lambda pair: pair.speedup)[:10]:
        if again := rounds.get((p.task, p.name, p.temperature)):
            told = [f"{p.task}, {p.name}", f"{p.temperature:g}", str(p.ours["tokens"]), number(p.speedup)]
            body.append([*told, number(statistics.median(again)), str(len(again))])
    head = ["prompt", "temperature", "tokens", "speedup, first run", "run again: median", "rounds"]
    about = "The ten slowest prompts of the float32 run above, run again in eight rounds each."
    return Figure("The slowest prompts", about, (LEFT_ON, AGAIN), table(head, body))


def tokens_per_second(some: Sequence[Answer]) -> float:
    """Decoded tokens over the median seconds of each prompt."""
    rounds: dict[str, list[Answer]] = {}
    for answer in some:
        rounds.setdefault(answer.name, []).append(answer)
    seconds = sum(statistics.median(a.decode_s or 0.0 for a in same) for same in rounds.values())
    return sum(generated(same[0]) for same in rounds.values()) / seconds


def peers() -> Figure:
    """transformers and its own speculation, beside our loop without drafts."""
    name = "peers-float32.jsonl.zst"
    speed = {key: tokens_per_second(some) for key, some in by_arm(rows(name).answers).items()}
    arms = ("transformers", "transformers:lookup", "none")
    body = [
        [kind, *(number(speed[kind, arm], 1) for arm in arms), number(speed[kind, "none"] / speed[kind, arms[0]])]
        for kind in MIX
    ]
    ratios = [speed[kind, "none"] / speed[kind, arms[0]] for kind in MIX]
    body.append(["geometric mean", "", "", "", f"**{mean(ratios):.2f}**"])
    head = ["kind", *arms[:2], "draftwood, plain", "draftwood, plain, over transformers"]
    about = (
        "Tokens per second on the engine transformers, float32, three prompts of each kind, 64 new tokens. This "
        "is plain decoding: what drafting adds is in the tables above."
    )
    return Figure("transformers beside draftwood, float32", about, (name,), table(head, body))


def llama() -> Figure:
    """llama.cpp and its speculators."""
    name = "bench.jsonl.zst"
    theirs = [answer for answer in rows(name).answers if answer.engine == "llama.cpp"]
    found = {(r["task"], r["drafter"]): r for r in bench_table(replace(rows(name), answers=theirs))}
    arms = [f"llama.cpp:ngram-{which}" for which in ("simple", "map-k", "map-k4v", "mod", "cache")]
    body = [
        [kind, number(found[kind, "llama.cpp"]["tokens_per_second"], 1),
         *(number(found[kind, arm]["speedup"]) for arm in arms)]
        for kind in KINDS
    ]  # fmt: skip
    means = [number(mean([found[kind, arm]["speedup"] for kind in KINDS])) for arm in arms]
    body.append(["geometric mean", "", *means])
    head = ["kind", "plain, tokens per second", *(f"`{arm.partition(':')[2]}`" for arm in arms)]
    about = (
        "llama.cpp on smollm2's 4-bit file: plain tokens per second, and what its own speculators add to it "
        "(speedup over its own plain decoding). The machine of this day was faster than that of the first table."
    )
    return Figure("llama.cpp on the same machine", about, (name,), table(head, body))


ARMS_OF_A_PASS = {
    "transformers": "transformers' own",
    "shadow": "our attention and cache",
    "shadow, packed": "and packed weights (any model)",
    "target": "and the lean pass (models like Llama): what draftwood does",
}


def passes() -> Figure:
    """One pass of the model."""
    found = {(r["dtype"], r["n"], r["arm"]): r for r in lines("passes.jsonl")[1:] if "arm" in r}
    widths = [(dtype, n) for dtype in ("float32", "bfloat16") for n in (1, 4, 16)]
    body = []
    for arm, words in ARMS_OF_A_PASS.items():
        some = [found[*width, arm] for width in widths]
        body.append([words, *(f"{r['ms'][1]:.1f} ({r['to_transformers'][1]:.2f})" for r in some)])
    head = ["one pass over n tokens", *(f"{dtype}, n = {n}" for dtype, n in widths)]
    about = (
        "Milliseconds of a pass behind 512 tokens, medians of 24 interleaved rounds; in brackets how many times "
        "as fast as transformers' own pass."
    )
    return Figure("The pass", about, ("passes.jsonl",), table(head, body))


CURVES = {
    ("f32", 1): "smollm2, float32 (16 tokens cost 1.5 times one)",
    ("bf16", 1): "smollm2, bfloat16 (2.0 times)",
    ("dear", 1): "llama.cpp, Q4_1 (8.5 times)",
    ("flat", 1): "flat (1.01 times)",
    ("dear", 16): "llama.cpp, Q4_1, 16 texts at once",
}


def planner() -> Figure:
    """The default planner beside the best fixed budget, chosen afterwards."""
    cells: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for r in rows("oracle.jsonl").of_kind("replay"):
        cells.setdefault((r["curve"], r["batch"]), {}).setdefault(r["task"], {})[r["arm"]] = r["speedup"]
    body = []
    for key, words in CURVES.items():
        tasks = cells[key].values()
        best = [max(v for arm, v in arms.items() if re.fullmatch("plain|fixed:[^:]*", arm)) for arms in tasks]
        known, unknown = ([arms[arm] for arms in tasks] for arm in ("goodput", "goodput, curve unknown"))
        body.append(
            [words, number(mean(best)), f"**{mean(known):.2f}**", number(mean(unknown)), number(min(known))]
        )
    head = ["cost of a pass", "best fixed number of nodes per task, chosen afterwards", "`goodput`",
            "`goodput` without a profile", "`goodput`, worst task"]  # fmt: skip
    about = (
        "Predicted speedup of the default planner: recorded answers of eight kinds, replayed with the cost of a "
        "pass given by a curve. Geometric means over the kinds."
    )
    return Figure("The planner (simulated)", about, ("oracle.jsonl",), table(head, body))


ENGINES, TRANSFORMERS = "cpu-engine.jsonl.zst", "transformers-plain.jsonl.zst"
ENGINES_AVX2 = "cpu-engine-avx2.jsonl.zst"


def engines(files: tuple[str, str]) -> str:
    """Tokens per second of every kind, and their mean."""
    columns = {
        "plain": (files[0], "none"),
        "drafted (times plain)": (files[0], "default"),
        "transformers, plain": (files[1], "transformers"),
    }
    body, plain = {kind: [kind] for kind in (*KINDS, "all nine kinds, geometric mean")}, dict[str, float]()
    for file, arm in columns.values():
        answers = by_arm(rows(file).answers)
        speed = {kind: tokens_per_second(answers[kind, arm]) for kind in KINDS}
        for kind, cells in body.items():
            value = speed.get(kind, mean(list(speed.values())))
            drafted = arm == "default"
            cells.append(f"**{value:.0f}** ({value / plain[kind]:.2f})" if drafted else f"{value:.0f}")
            plain.setdefault(kind, value)
    return table(["kind of text", *columns], body.values())


ABOUT = (
    "Tokens per second of smollm2, greedy, {} prompts of each kind, the prompt's reading left out. draftwood ran "
    "the 4-bit file (Q4_1), plain and drafted by turns, up to 192 tokens; all drafted texts equal the plain ones. "
    "transformers ran in another sitting: float32, three prompts of each kind, up to 64 tokens."
)


def own_engine() -> Figure:
    """Our own engine on a processor with AVX-512."""
    files = (ENGINES, TRANSFORMERS)
    return Figure("Our own engine, kind by kind", ABOUT.format("five"), files, engines(files))


def own_engine_avx2() -> Figure:
    """The same processor, held to AVX2 as older ones have it."""
    files = (ENGINES_AVX2, TRANSFORMERS)
    held = " Of our own engine only instructions of AVX2 were used (`DRAFTWOOD_INSTRUCTIONS=avx2`)."
    about = ABOUT.format("three") + held
    return Figure("The same with AVX2", about, files, engines(files))


FORCED = {
    "smollm2, 135M": "forced-135m.jsonl",
    "shape of Qwen3.5, 0.8B": "forced-qwen3.5-0.8b.jsonl",
    "Qwen2.5-Coder, 1.5B": "forced-coder-1.5b.jsonl",
    "shape of Llama, 7B": "forced-7b.jsonl",
}
"""Files of forced.py."""


def beside_llama() -> Figure:
    """Our own engine and llama.cpp's fastest build on the same texts; README shows this table too."""
    body = []
    for model, name in FORCED.items():
        some = [row for row in lines(name) if row.get("row") == "forced"]
        read = {arm: _speed(some, arm, "prompt", "reading") for arm in ("plain", "llama.cpp")}
        kinds = list(dict.fromkeys(row["task"] for row in some))
        wrote = {
            arm: {kind: _speed([row for row in some if row["task"] == kind], arm) for kind in kinds}
            for arm in ("plain", "drafted", "llama.cpp")
        }
        plain, drafted, llama = (mean(list(speeds.values())) for speeds in wrote.values())
        gains = {kind: wrote["drafted"][kind] / wrote["plain"][kind] for kind in kinds}
        worst, edits = min(gains, key=lambda kind: gains[kind]), wrote["drafted"]["code-edit"]
        body.append([
            model if len(kinds) == 8 else f"{model} ({len(kinds)} kinds)",
            f"{read['plain']:.0f}/{read['llama.cpp']:.0f} (**{read['plain'] / read['llama.cpp']:.1f}**)",
            f"{plain:.{_digits(plain)}f}/{llama:.{_digits(llama)}f} (**{plain / llama:.1f}**)",
            f"{drafted:.{_digits(drafted)}f} ({drafted / plain:.2f})",
            f"{edits:.{_digits(edits)}f} (**{edits / wrote['llama.cpp']['code-edit']:.1f}**)",
            f"{worst} {gains[worst]:.2f}",
        ])  # fmt: skip
    head = ["4-bit file", "reads, beside llama.cpp", "writes plain, beside llama.cpp",
            "drafted (times plain)", "code edits (times llama.cpp)", "worst kind (times plain)"]  # fmt: skip
    about = (
        "Tokens per second, greedy, geometric means over eight kinds of text (reading: all prompts together, of "
        "42 to 2,400 tokens). llama.cpp runs its fastest build, plain, on the same file; smollm2 in Q4_0, which "
        "is faster there than the file's own Q4_1. Every pass is computed; the tokens chosen are those of answers "
        "that smollm2 wrote, so all models write the same texts; the shapes have random weights. "
        f"{' '.join(map(_of_memory, FORCED))}"
    )
    return Figure(
        "Our own engine beside llama.cpp's fastest build", about, tuple(FORCED.values()), table(head, body)
    )


def _digits(speed: float) -> int:
    """Decimals of a speed: slow ones have one."""
    return int(speed < 30)


def _of_memory(model: str) -> str:
    """Say how near plain decoding comes to the speed at which memory is read."""
    first, *some = lines(FORCED[model])
    said = first["settings"]
    speed = _speed(some, "plain") * said["GB of a token"]
    return (
        f"{model}: {said['GB of a token']:.2f} GB a token, read at {speed:.0f} of the "
        f"{said['memory GB/s']:.0f} GB/s that two threads read just before."
    )


def _speed(some: Sequence[dict[str, Any]], arm: str, what: str = "tokens", seconds: str = "seconds") -> float:
    """Tokens per second of an arm."""
    mine = [row for row in some if row["arm"] == arm]
    return float(sum(row[what] for row in mine) / sum(row[seconds] for row in mine))
