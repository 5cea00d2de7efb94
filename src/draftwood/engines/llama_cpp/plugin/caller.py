"""The `Llama` of llama-cpp-python that asks for drafts: finding it, refusing it, and its tokenizer."""

from __future__ import annotations

import sys
import weakref
from functools import cached_property, partial
from types import FrameType
from typing import Any

from draftwood.engines.file_tokenizer import known_tokens, utf8
from draftwood.engines.llama_cpp.deep_stack import run_deep
from draftwood.engines.llama_cpp.tokenizer import UNUSED
from draftwood.errors import CapabilityError


def calling() -> Any:
    """Return the `Llama` whose ``generate`` is asking for a draft; None if something else is.

    A draft model is told the ids and nothing else. What must be known besides (the vocabulary, whether the object
    was made so that drafts can work) is looked up in the frame of ``generate``, which is known by its code.
    """
    kind = getattr(sys.modules.get("llama_cpp"), "Llama", None)
    code = getattr(getattr(kind, "generate", None), "__code__", None)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("self")


def room(llama: Any) -> int:
    """Return how many tokens a text can have; the context is rounded up, the object's own buffer is not."""
    return min(llama.n_ctx(), len(llama.input_ids))


def check(llama: Any) -> None:
    """Raise `CapabilityError` for a `Llama` that fails, or reads wrong scores, as soon as it drafts.

    With a draft model it stores the scores of every token, but has room for those of one batch only, unless it was
    made with ``logits_all=True``. And one that got its draft model later computes the last token's scores alone.
    """
    if len(llama.scores) < room(llama) or not getattr(llama, "_logits_all", True):
        raise CapabilityError(
            "this Llama does not keep the scores of all tokens, and fails at drafts: make it with "
            "Llama(..., logits_all=True, draft_model=...)"
        )


def cuts(llama: Any) -> bool:
    """Return whether rejected tokens can be taken back; recurrent models keep them, and nobody notices."""
    return not (getattr(llama, "_is_recurrent", False) or getattr(llama, "_is_hybrid", False))


class CallerTokenizer:
    """The tokenizer of a `Llama`, which it does not keep alive, under the names of transformers' tokenizers."""

    def __init__(self, llama: Any) -> None:
        self._llama = weakref.proxy(llama)

    def __call__(self, text: str, *, add_special_tokens: bool = False) -> dict[str, list[int]]:
        """Return the ids of a text as ``input_ids``."""
        ask = partial(self._llama.tokenize, utf8(text), add_bos=add_special_tokens, special=True)
        return {"input_ids": run_deep(text, ask)}

    def __len__(self) -> int:
        return len(self._vocabulary)

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each token, as `LlamaTokenizer.get_vocab` does."""
        return dict(self._vocabulary)

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        says = sys.modules["llama_cpp"]
        given = says.llama_model_get_vocab(self._llama.model)
        names = [
            says.llama_vocab_get_text(given, token).decode(errors="replace")
            for token in range(self._llama.n_vocab())
        ]
        size = known_tokens(
            len(names), names.__getitem__, lambda token: bool(says.llama_vocab_get_attr(given, token) & UNUSED)
        )
        return {name: token for token, name in enumerate(names[:size])}
