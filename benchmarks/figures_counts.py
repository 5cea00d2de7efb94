"""Tables of docs/figures.md that count: tokens per pass, whether acceptance rates hold, texts that differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import own_passes_table as own
from figures_format import Figure, by_arm, number, rows, table
from never_slower_table import pairs

from draftwood.measure.records.timing import acceptance_length

MIX = ("code-edit", "grammar", "summary", "web-qa", "chat")
TASKS = ("code-edit", "structured", "completion", "grammar", "summary", "agent", "web-qa", "chat")
REPLAY = "replay.jsonl"
FAMILY = "family.jsonl.zst"


def chapter() -> list[Figure]:
    """All of them, in the order of the page."""
    return [replayed(), family(), own_passes(), sampled(), gemma(), calibration(), differing()]


def replayed() -> Figure:
    """Drafters that copy, over recorded answers."""
    words = {
        "suffix:branches=1:factor=inf": "the longest suffix, as a chain",
        "suffix": "`suffix`, a tree",
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
        "`recycling` alone was stopped before all kinds were done. Explained in [own-passes.md](own-passes.md)."
    )
    return Figure("Drafters that use the model's own passes", about, files, _own_table(files))


def sampled() -> Figure:
    """The same at a temperature."""
    files = ("own-passes-sampled.jsonl.zst",)
    return Figure("The same at temperature 0.7", "Eight prompts of each kind.", files, _own_table(files))


def gemma() -> Figure:
    """The same with another model."""
    files = ("own-passes-gemma.jsonl.zst",)
    about = "A base model, which goes on with prose and code; three prompts of each, 64 new tokens, greedy."
    return Figure("The same with gemma3-270m", about, files, _own_table(files))


def calibration() -> Figure:
    """How far beliefs are from what came."""
    found = {
        (r["task"], r["mode"]): r
        for r in rows("calibration.jsonl").of_kind("calibration")
        if r["first"] is None and (r["mode"] == "raw frequencies") == r["likeliest"]
    }
    body = []
    for task in TASKS:
        ours, raw = found[task, "learning"], found[task, "raw frequencies"]
        body.append([task, number(ours["promised"]), number(ours["came"]), number(ours["ece"], 3),
                     number(raw["ece"], 3)])  # fmt: skip
    head = ["kind", "promised by `ngram`", "came true", "calibration error", "of raw n-gram frequencies"]
    about = (
        "The acceptance rate that `ngram` believes in, beside the share that was right. The calibration error is "
        "the mean distance of the two over bins of similar belief; raw frequencies are those of the likeliest "
        "node of each step. As pictures: [calibration.png](calibration.png)."
    )
    return Figure("Do acceptance rates hold?", about, ("calibration.jsonl",), table(head, body))


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
