"""What reading a text in another model's tokens and writing drafts back costs, and which tokens are lost by it.

    python benchmarks/translation.py TARGET DRAFT

TARGET and DRAFT are names of models; only their tokenizers are loaded. The texts are those of the bench's prompts
and recorded files. The draft is an oracle: it drafts what the text has, in its own tokens.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import takewhile
from random import Random
from time import process_time

from draftwood import tasks
from draftwood.drafters.draft_model.tokenizer_view import tokens_of
from draftwood.drafters.draft_model.translation import Translation
from draftwood.models import load_tokenizer

AHEAD = (1, 2, 4, 8)  # drafted tokens
LENGTHS = (300, 8000)  # tokens of the text
STEPS = 400


def main() -> None:
    target, draft = (tokens_of(load_tokenizer(name)) for name in sys.argv[1:3])
    translation = Translation(target, draft)
    texts = [p.text or p.messages[-1]["content"] for p in tasks.all_prompts()]
    cost(translation, list(target.encode("\n\n".join(texts))))
    for ahead in AHEAD:
        agreement(translation, texts, ahead)


def cost(translation: Translation, ids: list[int]) -> None:
    """Print microseconds of processor time a step, of one new token each."""
    for length in LENGTHS:
        session, grown, written, drafts = translation.open(), [], [], Random(0)
        session.grow(ids[:length])
        whole = translation.open()
        whole.grow(ids[: length + STEPS + 100])
        for at in range(length, length + STEPS):
            start = process_time()
            session.grow([ids[at]])
            grown.append(process_time() - start)
            begin = len(session.ids)
            drafted = whole.ids[begin : begin + drafts.randint(1, 8)]
            start = process_time()
            session.write(drafted, [0.5] * len(drafted))
            written.append(process_time() - start)
        for name, times in (("read", grown), ("write", written)):
            times.sort()
            middle, most = times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6
            print(f"{length:5} tokens: {name:5} median {middle:5.0f} us, 99 of 100 below {most:5.0f}")


def agreement(translation: Translation, texts: list[str], ahead: int) -> None:
    """Print how many target tokens oracle drafts give, and how often the last one of a draft is right."""
    found, random = Counter[str](), Random(1)
    for text in texts:
        ids = list(translation.target.encode(text))
        whole = translation.open()
        whole.grow(ids)
        session = translation.open()
        at = 0
        while at + 40 < len(ids):
            new = random.randint(1, 12)
            session.grow(ids[at : at + new])
            at += new
            before = next(
                (n for n, (a, b) in enumerate(zip(session.ids, whole.ids, strict=False)) if a != b), None
            )
            begin = len(session.ids) if before is None else before
            if before is not None or whole._ends[begin - 1 : begin] != session._ends[begin - 1 : begin]:
                found["boundary not the draft's"] += 1
                rest = whole._text[len(session._text) :][: 12 * ahead]
                drafted = list(translation.draft.encode(rest.decode(errors="ignore")))[:ahead]
            else:
                drafted = whole.ids[begin : begin + ahead]
            written = session.write(drafted).ids
            right = len([*takewhile(lambda pair: pair[0] == pair[1], zip(written, ids[at:], strict=False))])
            piece = translation.target.pieces[written[-1]] if written else None
            last = (piece or b"").decode(errors="ignore")[-1:]
            kind = "word" if last.isalnum() else "space" if last.isspace() else "mark"
            found.update(drafts=1, drafted=len(drafted), written=len(written), right=right)
            found[f"last {kind} right"] += right == len(written) > 0
            found[f"last {kind}"] += right >= len(written) - 1 and bool(written)
    names = ("drafted", "written", "right", "boundary not the draft's")
    per = {name: found[name] / found["drafts"] for name in names}
    print(f"{ahead} drafted:", ", ".join(f"{name} {value:.3f}" for name, value in per.items()))
    for kind in ("word", "space", "mark"):
        if found[f"last {kind}"]:
            share = found[f"last {kind} right"] / found[f"last {kind}"]
            print(f"   last {kind} right {share:.3f} of {found[f'last {kind}']}")


if __name__ == "__main__":
    main()
