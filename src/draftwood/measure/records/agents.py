"""Sessions that coding agents keep on this disk: lines of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftwood.measure.records.conversations import Conversations, text_of

_ASIDE = ("summary", "file-history-snapshot", "queue-operation")  # lines that are no turns and have no names


class ClaudeCode(Conversations):
    """Lines of ``type`` user and assistant with a ``message``; ``parentUuid`` names the line before. The parts of
    one answer are lines of their own. Other lines have names, too, and no text."""

    told = "sessions of Claude Code (~/.claude/projects)"

    def take(self, where: str, found: Any) -> bool:
        if not isinstance(found, Mapping) or not ("parentUuid" in found or found.get("type") in _ASIDE):
            return False
        message, role = found.get("message"), str(found.get("type"))
        if not isinstance(message, Mapping) or role not in ("user", "assistant") or found.get("isApiErrorMessage"):
            message, role = {}, ""
        content = message.get("content")
        parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
        thought = "\n".join(part["thinking"] for part in parts if isinstance(part.get("thinking"), str))
        if any(part.get("type") == "tool_result" for part in parts):
            role = "tool"
        self.add_to(
            str(found.get("parentUuid")), str(found.get("uuid", where)), where, role, text_of(content), thought
        )
        return True


class Codex(Conversations):
    """Lines of ``type`` and ``payload``, of which those of type ``response_item`` are what the model was given and
    gave; older sessions hold these items alone. What ``event_msg`` says, items say, too."""

    told = "sessions of Codex (~/.codex/sessions)"

    def take(self, where: str, found: Any) -> bool:
        if not isinstance(found, Mapping) or not isinstance(kind := found.get("type"), str):
            return isinstance(found, Mapping) and "record_type" in found
        payload = found.get("payload")
        if kind == "session_meta" or kind == "compacted":
            self.begin()  # after a compaction the model is given its summary
            if kind == "compacted" and isinstance(payload, Mapping):
                self.add(where, "user", text_of(payload.get("message")))
        elif kind == "response_item" and isinstance(payload, Mapping):
            self._item(where, payload)
        elif "payload" not in found:
            return self._item(where, found)
        return True

    def _item(self, where: str, item: Mapping[str, Any]) -> bool:
        kind = str(item.get("type"))
        if kind == "message" and isinstance(item.get("role"), str):
            role = "system" if item["role"] == "developer" else item["role"]
            self.add(where, role, text_of(item.get("content")))
        elif kind.endswith("_output"):
            self.add(where, "tool", text_of(item))
        elif kind.endswith("_call"):
            self.add(where, "assistant", text_of(item))
        else:
            return kind in ("reasoning", "ghost_snapshot")  # whose text is encrypted, or which has none
        return True
