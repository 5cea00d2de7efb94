"""Contents of messages of any API as texts: a model here reads text, and is told what was left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from draftwood.serve.errors import ApiError

_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Parts that are text, of chats, responses and messages, and the field that holds it."""
_AROUND = re.compile(r"^input_|_url$")  # image_url in chats and input_image in responses are both images
_WORD = re.compile(r"[a-z_]{1,40}")


class PartReader:
    """Reads the contents of one request; ``left_out`` are the places of parts that are no text.

    In the text ``[image left out: this model reads text]`` stands for such a part, or what else it is called:
    an agent that once sent an image sends it with every later turn. ``is_strict``: refuse them instead.
    """

    def __init__(self, *, is_strict: bool = False) -> None:
        self._is_strict = is_strict
        self.left_out: list[str] = []

    def messages(self, messages: Sequence[Mapping[str, Any]], place: str = "messages") -> list[dict[str, Any]]:
        """Return chat messages with each content as `text`; raises as it does."""
        return [self._message(one, f"{place}.{number}") for number, one in enumerate(messages)]

    def text(self, content: Any, place: str) -> Any:
        """Return a content at this ``place`` of the body, its parts joined; what is no list of parts as it is.

        Raises `ApiError` for a part that is none, and for one that is no text where that is refused.
        """
        if not isinstance(content, list):
            return content
        return "".join(self.part(part, f"{place}.{number}") for number, part in enumerate(content))

    def _message(self, message: Mapping[str, Any], place: str) -> dict[str, Any]:
        refusal = message.get("refusal")  # of an assistant that said nothing else
        if message.get("content") is None and isinstance(refusal, str):
            return {**message, "content": refusal}
        if "content" not in message:
            return dict(message)
        return {**message, "content": self.text(message["content"], f"{place}.content")}

    def part(self, part: Any, place: str) -> str:
        """Return one part as text; raises as `text`."""
        if isinstance(part, str):
            return part
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        if not isinstance(kind, str):
            raise ApiError(f"{place} is no part of a message: send an object with a type, or text", param=place)
        if kind in _TEXTS:
            text = part.get(_TEXTS[kind])
            if not isinstance(text, str):
                raise ApiError(f"{place} has no text: give it as {_TEXTS[kind]!r}", param=place)
            return text
        return self.left_out_as(kind, place)

    def left_out_as(self, kind: str, place: str) -> str:
        """Return what stands for a part, or an item, of this ``kind`` that is left out; `ApiError` if refused."""
        if self._is_strict:
            said = f"{place} is of type {kind[:80]!r}, and this model reads text: leave it out"
            raise ApiError(said, param=place)
        self.left_out.append(place)
        word = _AROUND.sub("", kind)
        return f"[{word if _WORD.fullmatch(word) else 'part'} left out: this model reads text]"
