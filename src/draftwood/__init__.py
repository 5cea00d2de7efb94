"""draftwood: language models answer faster by speculative decoding, and the text stays the model's own.

>>> import draftwood
>>> model, tokenizer = draftwood.load("smollm2")                       # doctest: +SKIP
>>> draftwood.generate(model, "Once upon a time", tokenizer=tokenizer) # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftwood.api.conversation import Conversation as Conversation
    from draftwood.api.decode_with import decode_with as decode_with
    from draftwood.api.generation import Generation as Generation
    from draftwood.api.llama_draft_model import LlamaDraftModel as LlamaDraftModel
    from draftwood.api.stream import Stream as Stream
    from draftwood.api.stream import generate as generate
    from draftwood.api.stream import stream as stream
    from draftwood.api.target import prepare as prepare
    from draftwood.api.text import Piece as Piece
    from draftwood.drafters.corpus.corpus import Corpus as Corpus
    from draftwood.drafters.memory.memory import Memory as Memory
    from draftwood.errors import DraftwoodError as DraftwoodError
    from draftwood.grammar.grammar import Grammar as Grammar
    from draftwood.models.fetch import fetch as fetch
    from draftwood.models.load import load as load
    from draftwood.step import Step as Step
    from draftwood.tree import TokenTree as TokenTree

__version__ = "0.1.0"

_HOME = {
    "Conversation": "draftwood.api.conversation",
    "Corpus": "draftwood.drafters.corpus.corpus",
    "DraftwoodError": "draftwood.errors",
    "Generation": "draftwood.api.generation",
    "Grammar": "draftwood.grammar.grammar",
    "LlamaDraftModel": "draftwood.api.llama_draft_model",
    "Memory": "draftwood.drafters.memory.memory",
    "Piece": "draftwood.api.text",
    "Step": "draftwood.step",
    "Stream": "draftwood.api.stream",
    "TokenTree": "draftwood.tree",
    "decode_with": "draftwood.api.decode_with",
    "fetch": "draftwood.models.fetch",
    "generate": "draftwood.api.stream",
    "load": "draftwood.models.load",
    "prepare": "draftwood.api.target",
    "stream": "draftwood.api.stream",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that ``import draftwood`` stays instant."""
    if name not in _HOME:
        raise AttributeError(f"module 'draftwood' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
