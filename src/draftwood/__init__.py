"""draftwood: language models answer faster, without changing a token of what they say.

>>> import draftwood
>>> model, tokenizer = draftwood.load("smollm2")                       # doctest: +SKIP
>>> draftwood.generate(model, "Once upon a time", tokenizer=tokenizer) # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftwood.doors.conversation import Conversation as Conversation
    from draftwood.doors.decode_with import decode_with as decode_with
    from draftwood.doors.generation import Generation as Generation
    from draftwood.doors.prepare import prepare as prepare
    from draftwood.doors.stream import Stream as Stream
    from draftwood.doors.stream import generate as generate
    from draftwood.doors.stream import stream as stream
    from draftwood.doors.text import Piece as Piece
    from draftwood.errors import DraftwoodError as DraftwoodError
    from draftwood.index.corpus.corpus import Corpus as Corpus
    from draftwood.index.memory.memory import Memory as Memory
    from draftwood.models import fetch as fetch
    from draftwood.models import load as load
    from draftwood.step import Step as Step
    from draftwood.tree import TokenTree as TokenTree

__version__ = "0.1.0"

_HOME = {
    "Conversation": "draftwood.doors.conversation",
    "Corpus": "draftwood.index.corpus.corpus",
    "DraftwoodError": "draftwood.errors",
    "Generation": "draftwood.doors.generation",
    "Memory": "draftwood.index.memory.memory",
    "Piece": "draftwood.doors.text",
    "Step": "draftwood.step",
    "Stream": "draftwood.doors.stream",
    "TokenTree": "draftwood.tree",
    "decode_with": "draftwood.doors.decode_with",
    "fetch": "draftwood.models",
    "generate": "draftwood.doors.stream",
    "load": "draftwood.models",
    "prepare": "draftwood.doors.prepare",
    "stream": "draftwood.doors.stream",
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
