"""Whether the ids of two tokenizers stand for the same tokens."""

from __future__ import annotations

import re
from typing import Any

from draftwood.errors import VocabularyError

_FILLER = re.compile(r"\[PAD\d+\]")  # what converters call rows without a token
_SHOWN = 3  # differences that an error names


def refuse_other_vocabulary(name: str, target: Any, draft: Any) -> None:
    """Raise `VocabularyError` where the tokenizer of the draft model ``name`` gives an id to another token.

    Ids that only one of them knows do not count: models fill up their heads with rows without a token.
    """
    ours, theirs = _names(target), _names(draft)
    both = sorted(ours.keys() & theirs.keys())
    different = [token for token in both if ours[token] != theirs[token]]
    if both and not different:
        return
    shown = "; ".join(f"{i} is {ours[i]!r} and {theirs[i]!r} there" for i in different[:_SHOWN])
    raise VocabularyError(
        f"the draft model {name} has another vocabulary than its target ({len(different):,} of {len(both):,} ids "
        f"differ{': ' if shown else ''}{shown}): choose a draft model of the target's own family"
    )


def _names(tokenizer: Any) -> dict[int, str]:
    return {token: name for name, token in tokenizer.get_vocab().items() if not _FILLER.fullmatch(name)}
