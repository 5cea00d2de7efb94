"""Functions that a request of ``/v1/responses`` offers, by the names a model is told and those a client knows."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from draftwood.serve.errors import ApiError
from draftwood.serve.fields import JsonObject

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # of a function, as the API allows it
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")


class OfferedTools:
    """The functions of a request, in ``functions`` as chats have them.

    Functions may stand in a namespace, as Codex sends those of its MCP servers. A model is told of them under one
    name, ``namespace__name``; calls go back to the client with both names. Tools that OpenAI's service would run
    itself are left out: ``left_out`` are their places.
    """

    def __init__(self) -> None:
        self.functions: list[JsonObject] = []
        self.left_out: list[str] = []
        self._own: dict[str, tuple[str, str]] = {}  # by the name a model is told: namespace, "" for none, and name
        self._told: dict[tuple[str, str], str] = {}  # the other way round
        self._spaces = set[str]()  # namespaces whose descriptions were told

    def add(self, tools: Any, place: str, namespace: JsonObject | None = None) -> None:
        """Add the tools at this ``place`` of the body, in a ``namespace``; raises `ApiError` for what is none."""
        if not isinstance(tools, list | None):
            raise ApiError(f"{place} must be a list of tools", param=place)
        for number, tool in enumerate(tools or ()):
            where = f"{place}.{number}"
            kind = tool.get("type") if isinstance(tool, dict) else None
            if not isinstance(kind, str):
                raise ApiError(f"{where} is no tool: send an object with a type", param=where)
            if kind == "function":
                self._add(tool, where, namespace)
            elif kind == "namespace" and namespace is None:
                self.add(tool.get("tools"), f"{where}.tools", tool)
            else:
                self.left_out.append(where)

    def told(self, name: Any, namespace: Any = None) -> Any:
        """Return the name that a model is told of a function, of this request or of an earlier one."""
        if not isinstance(name, str) or not isinstance(namespace, str) or not namespace:
            return name
        return self._told.get((namespace, name)) or _joined(namespace, name)

    def own(self, told: str) -> JsonObject:
        """Return the fields by which the client knows a function: its name, and its namespace if it has one."""
        namespace, name = self._own.get(told, ("", told))
        return {"name": name, "namespace": namespace} if namespace else {"name": name}

    def choice(self, choice: Any) -> Any:
        """Return a choice of tools as chats have it; raises `ApiError` for calls where nothing can be called."""
        kind = choice.get("type") if isinstance(choice, dict) else None
        if kind == "allowed_tools":
            return self._allowed(choice)
        if not self.functions:
            if choice not in (None, "auto", "none"):
                raise _nothing("no tool is a function")
            return None
        return _in_chats(self._named(choice)) if kind == "function" else choice

    def described(self) -> list[JsonObject]:
        """Return the functions as answers repeat them, with the names that the model was told."""
        empty = dict.fromkeys(("description", "parameters", "strict"))
        return [{"type": "function", **empty, **one["function"]} for one in self.functions]

    def _add(self, tool: JsonObject, place: str, namespace: JsonObject | None) -> None:
        name, space = tool.get("name"), "" if namespace is None else namespace.get("name")
        if not isinstance(name, str) or not isinstance(space, str) or (namespace is not None and not space):
            raise ApiError(f"{place}: a function and its namespace need a name each", param=place)
        if (space, name) in self._told:  # clients repeat what they have added
            return
        told = _joined(space, name) if space else name
        if told in self._own and not space:
            other = f"{place}: {told[:80]!r} is also what a function of a namespace is called here: rename it"
            raise ApiError(other, param=place)
        if told in self._own:
            told = _shortened(told, f"{space}\n{name}")
        said = {**tool, "name": told}
        about = namespace.get("description") if namespace and space not in self._spaces else None
        if isinstance(about, str) and about:  # told once
            said["description"] = f"{tool.get('description') or name}\n\nAll functions {space}__...: {about}"
        self._spaces.add(space)
        self._own[told], self._told[space, name] = (space, name), told
        self.functions.append(_in_chats(said))

    def _allowed(self, choice: JsonObject) -> Any:
        listed, mode = choice.get("tools"), choice.get("mode")
        if isinstance(listed, list):
            functions = [one for one in listed if isinstance(one, dict) and one.get("type") == "function"]
            if listed and not functions and mode == "required":
                raise _nothing("none of the allowed tools is a function")
            if listed and not functions:
                return "none"
            listed = [_in_chats(self._named(one)) for one in functions]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}

    def _named(self, tool: JsonObject) -> JsonObject:
        return {"type": "function", "name": self.told(tool.get("name"), tool.get("namespace"))}


def _nothing(why: str) -> ApiError:
    said = f"tool_choice asks for a call, and {why}: send tools of the type function, or leave tool_choice out"
    return ApiError(said, param="tool_choice")


def _joined(namespace: str, name: str) -> str:
    told = f"{namespace}__{name}"
    return told if _NAME.fullmatch(told) else _shortened(told, told)


def _shortened(told: str, whole: str) -> str:
    """Return a name that the API allows, with digits that stand for the ``whole``."""
    return f"{_OTHER.sub('_', told)[:55]}_{sha256(whole.encode()).hexdigest()[:8]}"


def _in_chats(tool: JsonObject) -> JsonObject:
    """Return a function, or its name, as chats have it."""
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
