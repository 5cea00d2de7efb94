"""Logs of servers: lines of text that hold prompts and answers if the server was asked to write them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from draftwood.files.foreign import mended
from draftwood.measure.records.conversations import Conversations
from draftwood.measure.records.records import Row

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_LITERAL = r"""('[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")"""  # a string as Python writes it


class ServerLog(Conversations):
    """Pairs what was asked with what was answered."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[str, Row] = {}  # requests by name, oldest first
        self._said: dict[str, Row] = {}  # the answer to each
        self._seen = False  # whether the log is of this server

    def take(self, where: str, found: Any) -> bool:
        if isinstance(found, str):
            self._seen |= self._line(where, _COLOURS.sub("", mended(found)))
        return self._seen and isinstance(found, str)

    def _line(self, where: str, line: str) -> bool:
        """Take in a line; returns whether this server wrote it."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        return [asked | self._said[name] for name, asked in self._asked.items() if name in self._said]

    def answers(self) -> int:
        return len(self.rows())


class Vllm(ServerLog):
    """Lines of vLLM's RequestLogger (vllm/entrypoints/logger.py). The last line of a stream may hold no text, so
    its pieces are joined."""

    told = "logs of vLLM (--enable-log-requests --enable-log-outputs)"

    _PROMPT = re.compile(rf"(?:Received request|Request) (\S+?)(?: details)?: prompt: {_LITERAL}")
    _ANSWER = re.compile(rf"Generated response (\S+?)( \(streaming \w+\))?: output: {_LITERAL}")
    _OURS = re.compile(r"Received request \S+: |Generated response \S+: |vLLM (API server )?(version|engine)")

    def _line(self, where: str, line: str) -> bool:
        if found := self._PROMPT.search(line):
            self._asked[found[1]] = {"name": where, "prompt": _evaluated(found[2])}
        elif found := self._ANSWER.search(line):
            name = found[1] if found[1] in self._asked else f"{found[1]}-0"  # one of several prompts in a request
            text = _evaluated(found[3])
            known = self._said.get(name, {"output": ""})["output"]
            if "delta" in (found[2] or ""):
                self._said[name] = {"output": known + text}
            elif len(text) > len(known) and not text.startswith("<streaming_complete:"):
                self._said[name] = {"output": text}
        return bool(found or self._OURS.search(line))

    def lacking(self) -> str:
        what = "answers" if self._asked else "prompts"
        return self._seen * (
            f"this log of vLLM holds no {what}: start it with VLLM_LOGGING_LEVEL=DEBUG, --enable-log-requests and "
            "--enable-log-outputs"
        )


class LlamaCpp(ServerLog):
    """Lines of llama-server -v (tools/server/server-http.cpp): bodies of requests and responses, and pieces of
    streamed responses. These name the response, and not the request: the first stream is taken for the first
    request that was answered by one, and so on."""

    told = "logs of llama.cpp (llama-server -v)"

    _BODY = re.compile(r"log_server_r\w*: +(request|response): *(\{.*)?$")
    _PIECE = re.compile(r"(?:streamed chunk: |^)data: (\{.*)")
    _OURS = re.compile(r"(?:^|\s)(?:srv|slot) +[\w()]+: |llama_model_loader: ")

    def __init__(self) -> None:
        super().__init__()
        self._request = ""  # the newest, whose response is told next
        self._streamed: list[str] = []  # requests
        self._streams: dict[str, list[str]] = {}  # texts of a streamed response

    def _line(self, where: str, line: str) -> bool:
        if found := self._PIECE.search(line):
            self._piece(_object(found[1]))
        elif found := self._BODY.search(line):
            body = _object(found[2] or "")
            if found[1] == "request":
                self._request = where if "messages" in body or "prompt" in body else ""
                self._asked[where] = {"name": where, "request": body}
            elif body:
                self._said[self._request] = {"response": body}
            elif self._request:
                self._streamed.append(self._request)
        return bool(self._OURS.search(line))

    def _piece(self, piece: Row) -> None:
        choices = piece.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else piece
        delta = first.get("delta", first) if isinstance(first, Mapping) else None
        if not isinstance(delta, Mapping):
            return
        name = str(piece.get("id", ""))
        if (
            delta is first or "role" in delta
        ):  # the first piece of a chat; what began before the log did is left out
            self._streams.setdefault(name, [])
        said = (delta.get(field) for field in ("reasoning_content", "content", "text"))
        self._streams.get(name, []).extend(text for text in said if isinstance(text, str))

    def rows(self) -> list[Row]:
        for name, pieces in zip(self._streamed, self._streams.values(), strict=False):
            self._said[name] = {"response": {"content": "".join(pieces)}}
        return super().rows()

    def lacking(self) -> str:
        return self._seen * "this log of llama.cpp holds no answers: llama-server writes them with -v alone"


def _evaluated(literal: str) -> str:
    with suppress(ValueError, SyntaxError):
        return mended(ast.literal_eval(literal))
    return ""


def _object(text: str) -> Row:
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        return found if isinstance(found, dict) else {}
    return {}
