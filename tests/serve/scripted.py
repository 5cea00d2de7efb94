"""A model that writes a scripted session: its answers in turn, each ended by a control token."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from draftwood.testing import ToyTarget
from tests.cli.conftest import TEMPLATE

ROLES = ("<system>", "<user>", "<assistant>", "<tool>")


def byte_tokenizer() -> Any:
    """A token per byte, and the control tokens of `TEMPLATE`."""
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(BPE({letter: number for number, letter in enumerate(letters)}, []))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bare.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(
        tokenizer_object=bare, eos_token="<end>", additional_special_tokens=list(ROLES)
    )
    found.chat_template = TEMPLATE
    return found


@dataclass
class ScriptedTarget(ToyTarget):
    """Writes after each user's message the answers that are named there; what else is sent changes nothing.

    A user's message begins with the name of a script and a colon. ``ECHO`` in an answer is the last message.
    """

    tokenizer: Any = None
    scripts: Mapping[str, Sequence[str]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._end = self.tokenizer.eos_token_id
        self._roles = self.tokenizer.convert_tokens_to_ids(list(ROLES))
        self._ids = cache(lambda answer: self.tokenizer(answer)["input_ids"])
        self.generation_config = SimpleNamespace(eos_token_id=self._end)

    def look(self, ids: Any, positions: Any, sees: Any, at: Any) -> Any:
        scores = np.zeros((len(at), self.vocab_size), dtype=np.float32)
        for row, seen in enumerate(sees):
            order = np.argsort(positions[seen], kind="stable")
            scores[row, self._next(ids[seen][order])] = 50
        return scores

    def _next(self, text: Any) -> int:
        """The token after a text."""
        _, user, assistant, _ = self._roles
        asked, begins = np.flatnonzero(text == user), np.flatnonzero(text == assistant)
        if not len(asked) or not len(begins):
            return self._end
        turn = int((begins > asked[-1]).sum()) - 1
        before = text[: begins[-1]]
        start = int(np.flatnonzero(np.isin(before, self._roles))[-1]) + 1
        name = self.tokenizer.decode(text[asked[-1] + 1 :][:40]).partition(":")[0]
        answers = self.scripts.get(name, ()) if self.scripts else ()
        if not 0 <= turn < len(answers):
            return self._end
        last = self.tokenizer.decode(before[start:], skip_special_tokens=True)
        answer = self._ids(answers[turn].replace("ECHO", last))
        written = len(text) - int(begins[-1]) - 1
        return answer[written] if written < len(answer) else self._end


def call(name: str, **arguments: Any) -> str:
    """A call as models write it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"
