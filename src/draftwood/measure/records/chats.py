"""Chats as web pages export them, and files for fine-tuning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from draftwood.measure.records.conversations import Conversations, message_text, text_of

_FOLDED = re.compile(r"<details\b.*?</details>\s*", re.DOTALL)  # what the page made of thoughts and calls


class FineTuning(Conversations):
    """Lines with ``messages`` and nothing that was answered to them: the assistant's are the answers."""

    told = "OpenAI's lines for fine-tuning (messages)"

    def take(self, where: str, found: Any) -> bool:
        if not isinstance(found, Mapping) or not isinstance(found.get("messages"), list):
            return False
        self.begin()
        for message in found["messages"]:
            if isinstance(message, Mapping) and isinstance(role := message.get("role"), str):
                self.add(where, role, message_text(message))
        return True


class Exports(Conversations):
    """A list of chats, or one. Each holds its messages by name, oldest first; a message names the one that it
    answers, since there may be several answers."""

    told = "exports of Open WebUI"

    def take(self, where: str, found: Any) -> bool:
        if isinstance(found, list):
            return any([self.take(f"{where} {number}", chat) for number, chat in enumerate(found, 1)])
        chat = found.get("chat", found) if isinstance(found, Mapping) else None
        history = chat.get("history") if isinstance(chat, Mapping) else None
        nodes = history.get("messages") if isinstance(history, Mapping) else None
        if not isinstance(nodes, Mapping):
            return False
        for name, node in nodes.items():
            if isinstance(node, Mapping) and isinstance(parent := node.get("parentId", ""), str | None):
                said = _FOLDED.sub("", text_of(node.get("content")))
                self.add_to((where, parent), (where, name), where, str(node.get("role")), said)
        return True
