"""Calls that are a function's name and then arguments as a JSON object: Mistral, harmony, DeepSeek and others."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from draftwood.api.thoughts import CALL_BETWEEN, CALL_OPENING
from draftwood.engines.tokens.file_tokenizer import single_token
from draftwood.grammar.calls import Json, Messages, Part
from draftwood.serve.call_forms.base import CallForm, Event, FormReader, arguments, end, tags_of

_LONGEST = 200
"""Characters between a name and its arguments: an id of the call, a kind of its content."""


HARMONY = Messages(
    f"<|channel|>analysis{CALL_BETWEEN}",
    f"<|channel|>commentary{CALL_BETWEEN}",
    f"<|channel|>final{CALL_BETWEEN}",
    "<|end|><|start|>assistant",
)
"""What gpt-oss writes around messages (https://cookbook.openai.com/articles/openai-harmony)."""
_MARKS = ("<|start|>", "<|channel|>", "<|constrain|>", CALL_BETWEEN, "<|end|>")


def message_marks(tokenizer: Any, prompt: Sequence[int]) -> Mapping[str, int] | None:
    """Return the tokens of headers by name, if the prompt ends within the header of an answer; else None."""
    found = {name: token for name in _MARKS if (token := single_token(tokenizer, name)) is not None}
    if len(found) < len(_MARKS):
        return None
    role = list(tokenizer("assistant", add_special_tokens=False)["input_ids"])
    return found if list(prompt[-len(role) - 1 :]) == [found["<|start|>"], *role] else None


class NamedForm(CallForm):
    """Calls by name, with ``between`` before the arguments and ``after`` behind them."""

    def __init__(self, before: str, between: str, after: str) -> None:
        self.openings, self._closing = tags_of(before.removesuffix("functions.")), tags_of(after)
        inner = tags_of(between)
        self.in_messages = before == CALL_OPENING
        self._between, self.around = between, (before.lstrip(), after.rstrip())
        self._last = inner[-1]  # what stands before it may differ from call to call
        self.tags = (*self.openings, *inner, *self._closing)

    def read(self, reader: FormReader) -> Iterator[Event | None]:
        if not (yield from reader.enters(self.openings)):
            return
        yield from reader.skip_blanks()
        name = yield from reader.name()
        if name is None or not (yield from self._to_arguments(reader)):
            return
        yield Event("call", name)
        yield from reader.skip_blanks()
        if reader.next_is("{"):
            yield from arguments(reader)
        elif reader.is_cut and reader.at == len(reader.text):
            reader.is_open = True
        else:
            yield Event("arguments", "{}")
        yield from end(reader)
        for closing in self._closing:
            yield from reader.passes(closing)

    def written(self, name: str, schema: Mapping[str, Any] | None) -> Sequence[Part]:
        between = f" <|constrain|>json{self._between}" if self.in_messages else self._between
        return [f"{name}{between}", Json({**(schema or {}), "type": "object"})]

    def _to_arguments(self, reader: FormReader) -> Generator[None, None, bool]:
        """Go past what stands before the arguments; returns whether it stands here."""
        most = _LONGEST + len(self._last)
        while (place := reader.text.find(self._last, reader.at, reader.at + most)) < 0:
            if reader.is_ended or len(reader.text) - reader.at >= most:
                return False
            yield None
        reader.at = place + len(self._last)
        return True
