"""What draftwood takes of every causal model type that transformers registers, as the table in docs/models.md.

    python benchmarks/model_types.py > docs/models.md
    python benchmarks/model_types.py llama jamba

Each type is built as a tiny random model; what its target offers is what a self-test found when it was opened.
Every row is checked by a short text, drafted and plain, against the model's own generate; a row that differs says
so, and the command then fails.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

import draftwood
from draftwood.contracts import Capabilities
from draftwood.engines.transformers.shared import shared_target
from draftwood.errors import DraftwoodError, UnsupportedModelError

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tiny models are those of the tests
from tests.engines.registered import LEFT_OUT, VOCAB, causal_types, tiny

PROMPT = np.random.default_rng(5).integers(0, VOCAB, 24).tolist()
LIMIT = 24

INTRODUCTION = """# Model types

For users of transformers who ask whether their model is drafted for.

What draftwood drafts for, of the {types} model types that transformers {version} registers for causal language
models. Remade by

    python benchmarks/model_types.py > docs/models.md

from tiny random models: nothing here is declared by hand. When a model is opened, draftwood tries ways to run it,
best first, and takes the first whose scores are the model's own (trees or chains behind a text, kept, taken back
and scored again); a type that comes with a newer transformers is tried in the same way. Every type that is not
refused has written a short text equal to `model.generate`, plain and drafted; `tests/engines/test_every_type.py`
writes longer ones. The remark says where that fails.

- **Drafts.** *trees*: several continuations are scored in one pass. *chains*: one is, since a state or a position
  cannot branch. *plain only*: draftwood writes the text, a token per pass, and refuses drafters.
- **Takes back by.** *truncation*: rejected tokens are cut off the cache. *snapshot*: recurrent states are copied
  before a pass; after a rejection they are put back and the accepted tokens read again, in the next pass.
- **Texts per pass.** *many*: the texts of a batch share a pass. *one*: each has a pass of its own.

{counts}.
"""


class Entry(NamedTuple):
    """One line of the table."""

    type: str
    drafts: str
    back: str = ""
    texts: str = ""
    remark: str = ""
    wrong: bool = False


def entry(model_type: str) -> Entry:
    try:
        model = tiny(model_type)
        offered = shared_target(model).capabilities
    except UnsupportedModelError as error:
        return Entry(model_type, "refused", remark=str(error))
    found = difference(model, offered)
    back = {"truncate": "truncation", "snapshot": "snapshot", "none": ""}[offered.rollback]
    return Entry(model_type, drafted(offered), back, "many" if offered.batch else "one", found, bool(found))


def drafted(offered: Capabilities) -> str:
    """What can be drafted for a target."""
    return "plain only" if offered.rollback == "none" else "trees" if offered.trees else "chains"


def difference(model: Any, offered: Capabilities) -> str:
    """What is wrong with the texts that we write with this model; empty if nothing is."""
    ids = torch.tensor([PROMPT], device=model.device)
    settings = {"do_sample": False, "max_new_tokens": LIMIT, "pad_token_id": 0}
    theirs = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, len(PROMPT) :].tolist()
    arms: dict[str, Any] = {"plain": "none"}
    if offered.rollback != "none":
        arms |= {"drafted": ["ngram", "recycling"]}
    for name, drafters in arms.items():
        try:
            ours = draftwood.generate(model, PROMPT, drafters=drafters, max_new_tokens=LIMIT).ids
        except DraftwoodError as error:
            return f"**{name} text fails: {error}**"
        if ours != theirs:
            at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
            return f"**{name} text differs from model.generate at token {at}**"
    return ""


def show(entries: Iterable[Entry]) -> None:
    """Print types that are drafted for alike in one line, and every remark."""
    entries = list(entries)
    alike: dict[tuple[str, str, str], list[str]] = {}
    for found in entries:
        alike.setdefault((found.drafts, found.back, found.texts), []).append(f"`{found.type}`")
    print("| drafts | takes back by | texts per pass | types |\n|---|---|---|---|")
    for key, types in sorted(alike.items(), key=lambda item: -len(item[1])):
        print(f"| {' | '.join(key)} | {', '.join(types)} |")
    remarks: dict[str, list[str]] = {}
    for found in entries:
        if found.remark:
            remarks.setdefault(re.sub(r"\b[A-Z]\w+LM\w*", "it", found.remark), []).append(f"`{found.type}`")
    print("".join(f"\n- {', '.join(types)}: {remark}" for remark, types in remarks.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", help="some types only, without the text around the table")
    chosen = parser.parse_args().types
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # tiny products; more threads only wait for each other
    entries = []
    for number, model_type in enumerate(names := chosen or causal_types(), 1):
        print(f"\r{number}/{len(names)} {model_type:30}", end="", file=sys.stderr, flush=True)
        entries.append(entry(model_type))
    print(file=sys.stderr)
    if chosen:
        show(entries)
    else:
        counted = Counter(found.drafts for found in entries)
        counts = ", ".join(f"{counted[k]} {k}" for k in ("trees", "chains", "plain only", "refused"))
        print(INTRODUCTION.format(
            types=len(names) + len(LEFT_OUT), version=transformers.__version__,
            counts=f"{counts[0].upper()}{counts[1:]}, {len(LEFT_OUT)} not tried",
        ))  # fmt: skip
        show(entries)
        print("\n## Not tried\n\nNo tiny model of these is built.\n")
        reasons: dict[str, list[str]] = {}
        for model_type, reason in sorted(LEFT_OUT.items()):
            reasons.setdefault(reason, []).append(f"`{model_type}`")
        for reason, types in reasons.items():
            print(f"- {', '.join(types)}: {reason}.")
    return int(any(found.wrong for found in entries))


if __name__ == "__main__":
    sys.exit(main())
