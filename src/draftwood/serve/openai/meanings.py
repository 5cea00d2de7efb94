"""What the fields of requests mean here: tables that requests are read by, and docs/clients.md is made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
ALL = 1 << 24
"""More tokens than any model takes, or any vocabulary has."""


class Meaning(NamedTuple):
    """Values of fields that other servers and clients use in a sense of their own.

    Attributes
    ----------
    fields, values
        Whose, and which.
    read_as
        What is put in their place; None: as if the field were left out.
    said
        The same in words.
    """

    fields: tuple[str, ...]
    values: tuple[Any, ...]
    read_as: Any
    said: str


VALUES = (
    Meaning(("temperature",), (0,), 0, "greedy: the likeliest token each time"),
    Meaning(("top_p",), (0,), 1e-9, "the likeliest token alone, as with temperature 0"),
    Meaning(("top_p", "min_p"), (-1,), None, "as if left out"),
    Meaning(("min_p",), (0,), 0, "no such cut"),
    Meaning(("top_k",), (0, -1), ALL, "all tokens, whatever the model's generation config says"),
    Meaning(("repetition_penalty",), (0, -1), 1, "1, no penalty"),
    Meaning(("seed",), (-1,), None, "drawn anew for each request"),
    Meaning(LIMITS, (-1,), ALL, "as many as the model takes"),
    Meaning(("stop",), ([],), None, "no stop strings"),
    Meaning(("logit_bias",), ([],), None, "no biases"),
    Meaning(("logprobs",), (False,), None, "none"),
    Meaning(("tool_choice",), ("any",), "required", "`required`"),
    Meaning(("tool_choice",), ("none",), "none", "no tools: the model is not told of any"),
)
"""Null means for every field that it is left out: then the model's generation config decides, temperature is 1,
and the seed is drawn. Values that are neither here nor in the API's ranges are refused with a sentence."""

_KEEPS_NOTHING = "this server keeps no responses, conversations or prompts: send the whole text as input"
REFUSED: Mapping[str, Mapping[str, str]] = {
    CHAT: {},
    TEXT: {
        "suffix": "this server writes no text between two others: leave it out",
        "best_of": "this server does not choose among texts: leave it out, and set n",
    },
    RESPONSES: dict.fromkeys(("previous_response_id", "conversation", "prompt"), _KEEPS_NOTHING),
}
"""Fields that are refused where they ask for something."""

_OF_A_SERVICE = (
    "metadata", "moderation", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "safety_identifier", "service_tier", "store",
)  # fmt: skip
IGNORED: Mapping[str, tuple[str, ...]] = {
    CHAT: (
        *_OF_A_SERVICE, "audio", "function_call", "functions", "modalities", "reasoning_effort", "verbosity",
        "web_search_options",
    ),
    TEXT: (),
    RESPONSES: (
        *(name for name in _OF_A_SERVICE if name not in ("metadata", "store")), "access_programs", "background",
        "background_options", "context_management", "image", "max_tool_calls", "reasoning", "stream_options",
        "truncation",
    ),
}  # fmt: skip
"""Fields of the API that nobody reads here; all others that are unknown are treated alike."""

HONOURED: Mapping[str, str] = {
    "best_of": "equal to `n`, or left out",
    "draftwood": "our own: [with which drafters](server.md#the-field-draftwood) the answer is written",
    "echo": "the prompt before the answer, with `logprobs` its scores, too",
    "frequency_penalty": "-2 to 2",
    "guided_regex": "vLLM's: the answer fits this [regular expression](grammars.md)",
    "ignore_eos": "vLLM's: write on behind tokens that end a text",
    "include": "`message.output_text.logprobs`: log-probabilities; others change nothing",
    "input": "a text, or messages, calls of functions and their outputs; items of reasoning are passed over",
    "instructions": "a system message before the others",
    "logit_bias": "of token ids, -100 to 100",
    "logprobs": "[of each token](server.md#routes); in plain texts the number of best tokens besides",
    "max_completion_tokens": "most tokens of the answer; as many as the model takes if left out",
    "max_output_tokens": "most tokens of the answer; as many as the model takes if left out",
    "max_tokens": "most tokens of the answer; if left out, 16 for plain texts and as many as the model takes for "
    "chats; 0 for plain texts: none",
    "messages": "texts, or parts of the type `text`; calls of tools and their results",
    "metadata": "repeated in the answer",
    "min_p": "0 to 1",
    "model": "the name of the model that is served, or left out",
    "n": "1 to 16 answers, drawn apart",
    "parallel_tool_calls": "taken, and changes nothing: the model calls as many as it will",
    "prediction": "[text that is expected](server.md) in the answer, to draft from",
    "presence_penalty": "-2 to 2",
    "prompt": "a text, token ids, or several of either",
    "repetition_penalty": "0.01 to 10; 1 is none",
    "response_format": "`text`, `json_object` or `json_schema`, which a [grammar](grammars.md) holds; "
    "with tools, calls instead",
    "seed": "the same seed gives the same text",
    "stop": "a text or up to 64, which the answer ends before; names of special tokens, too",
    "store": "taken; nothing is stored, and the answer says so",
    "stream": "events as the text comes",
    "stream_options": "`include_usage`",
    "temperature": "0 to 2, 1 if left out",
    "text": "`format`, as `response_format` in chats",
    "tool_choice": "`auto`, `none`, `required`, a function, or `allowed_tools`",
    "tools": "functions; in responses others are left out",
    "top_k": "as many of the likeliest tokens",
    "top_logprobs": "up to 20 of the best tokens at each place",
    "top_p": "0 to 1",
    "user": "keeps what was read and remembered apart, beside the API key",
}
"""Fields that are read, and how."""


def read_as(name: str, value: Any) -> Any:
    """Return what a field's value is read as."""
    for meaning in VALUES:
        if name in meaning.fields and any(_is_same(value, one) for one in meaning.values):
            return meaning.read_as
    return value


def read_values(given: Any) -> Any:
    """Return the fields of a request with what they are read as; anything but an object stays what it is."""
    return {name: read_as(name, value) for name, value in given.items()} if isinstance(given, dict) else given


def _is_same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
