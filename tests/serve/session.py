"""Set-ups without weights: a toy that writes what it will, and one that writes a scripted session."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

from draftwood.api.setup import Setup
from draftwood.testing import ToyTarget
from tests.serve.scripted import byte_tokenizer, scripted

tokenizer_of_bytes = cache(byte_tokenizer)


def toy(
    drafters: Any = "ngram", planner: str = "fixed:6", *, sharpness: float = 2.0, positions: int = 1 << 16
) -> Setup:
    """A set-up of a toy model with a token per byte, whose texts end at their limit alone."""
    tokenizer = tokenizer_of_bytes()
    target: Any = ToyTarget(
        len(tokenizer), order=2, sharpness=sharpness, max_positions=positions, max_pass=1 << 16
    )
    target._table[:, 257:] -= 99.0  # it writes no control tokens by itself
    target.generation_config = SimpleNamespace(eos_token_id=tokenizer.eos_token_id)
    return Setup(target, tokenizer, drafters, planner)


def acting(scripts: Mapping[str, Sequence[str]]) -> Setup:
    """A set-up that gives, after a user's message ``NAME: ...``, the answers of this name in turn.

    ``ECHO`` in an answer is the text of the last message.
    """
    tokenizer = tokenizer_of_bytes()

    def answer(prompt: Sequence[int]) -> list[int]:
        before, _, since = tokenizer.decode(prompt).rpartition("<user>")
        assert before or since
        last = since.split("<turn>")[-2].rpartition("<assistant>")[2].removeprefix("<tool>")
        text = scripts[since.partition(":")[0]][since.count("<assistant>") - 1].replace("ECHO", last)
        return [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]

    return scripted(toy(sharpness=0.0), answer, margin=99.0)


def call(name: str, **arguments: Any) -> str:
    """A call as models write it."""
    return f"<tool_call>{bare(name, **arguments)}</tool_call>"


def bare(name: str, **arguments: Any) -> str:
    """A call as it is forced."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
