"""Keeps the text of chat messages text: names of control tokens that stand in it do not become these tokens.

Else whoever writes ``<|im_end|>`` into a message, or a page that an agent reads, ends the message and may begin
another one in somebody else's name. Templates write the names of control tokens as text, too, so those in messages
are cut by characters that nobody can guess, and the rendered text is tokenized in the pieces between.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence, Sized
from typing import Any

from draftwood.api.remembering import Known, remembered

_PRIVATE = 0xF0000  # the first of the characters for private use
_ROLES = ("assistant", "system", "developer")
_OWN = re.compile("think|reason|tool|call|func")  # in names of what a model itself writes: thoughts and calls
_known = Known[re.Pattern[str] | None]()


class Guarded:
    """Messages in which names of control tokens are cut.

    Parameters
    ----------
    messages
        Chat messages whose content is text.
    names
        What `control_names` found.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], names: re.Pattern[str]) -> None:
        self._names, self._guard = names, "".join(chr(_PRIVATE + byte) for byte in secrets.token_bytes(8))
        self.messages = [self._message(message) for message in messages]

    def ids(self, text: str, tokenizer: Any) -> list[int]:
        """Return the token ids of the text that a template made of `messages`, without tokens at its beginning."""
        first, *others = text.split(self._guard)
        found = _ids(tokenizer, first)
        mark = _ids(tokenizer, "\n")
        for piece in others:  # behind a line end, lest the tokenizer puts a blank before it
            ids = _ids(tokenizer, f"\n{piece}")
            found += ids[len(mark) :] if ids[: len(mark)] == mark else _ids(tokenizer, piece)
        return found

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        own = message.get("role") in _ROLES
        return {key: value if key == "role" else self._cut(value, own) for key, value in message.items()}

    def _cut(self, value: Any, own: bool) -> Any:
        if isinstance(value, str):
            return self._names.sub(lambda found: self._cut_name(found[0], own), value)
        if isinstance(value, Mapping):
            return {key: self._cut(one, own) for key, one in value.items()}
        return [self._cut(one, own) for one in value] if isinstance(value, list | tuple) else value

    def _cut_name(self, name: str, own: bool) -> str:
        return name if own and _OWN.search(name) else f"{name[0]}{self._guard}{name[1:]}"


def guarded(messages: Sequence[Mapping[str, Any]], tokenizer: Any) -> Guarded | None:
    """Return the messages with names of control tokens cut; None where none stands in them."""
    names = control_names(tokenizer)
    return Guarded(messages, names) if names is not None and _holds(messages, names) else None


def _holds(value: Any, names: re.Pattern[str]) -> bool:
    if isinstance(value, str):
        return names.search(value) is not None
    if isinstance(value, Mapping):
        return any(_holds(one, names) for one in value.values())
    return isinstance(value, list | tuple) and any(_holds(one, names) for one in value)


def control_names(tokenizer: Any) -> re.Pattern[str] | None:
    """Return what finds the names of a tokenizer's control tokens, the longest first; None if it has none."""
    size = len(tokenizer) if isinstance(tokenizer, Sized) else None  # another one where tokens were added
    return remembered(_known, tokenizer, size, _control_names)


def _control_names(tokenizer: Any) -> re.Pattern[str] | None:
    added = getattr(tokenizer, "added_tokens_decoder", None)
    if added is not None:  # transformers; those that are not special stand for text
        names = [token.content for token in added.values() if token.special]
    else:
        ids = getattr(tokenizer, "all_special_ids", ())
        names = tokenizer.convert_ids_to_tokens(ids) if ids else []
    longest = sorted({name for name in names if name and len(name) > 1}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest))) if longest else None


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []
