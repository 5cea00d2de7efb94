"""Tables by which requests are read: values with a special meaning, and fields that are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
COUNT = f"{MESSAGES}/count_tokens"
OLLAMA = "/api/"
"""How the paths of Ollama's API begin."""
INFILL = "/infill"
EMBEDDINGS = "/v1/embeddings"
OLLAMA_EMBED, OLLAMA_EMBEDDING = f"{OLLAMA}embed", f"{OLLAMA}embeddings"
OLLAMA_CHAT, OLLAMA_TEXT = f"{OLLAMA}chat", f"{OLLAMA}generate"
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
BUDGETS = ("thinking_budget", "reasoning_budget", "thinking_budget_tokens", "thinking_token_budget")
"""Names of the most tokens that a model may think: of Qwen, of llama.cpp (its option and its field), of vLLM."""
ALL = 1 << 24
"""More tokens than any model takes, or any vocabulary has."""


class Meaning(NamedTuple):
    """Values that other servers and clients use in a special sense; docs/server.md lists them."""

    fields: tuple[str, ...]
    values: tuple[Any, ...]
    read_as: Any  # what is put in their place; None: as if the field were left out


VALUES = (
    Meaning(("temperature",), (0,), 0),
    Meaning(("top_p",), (0,), 1e-9),  # the likeliest token alone
    Meaning(("top_p", "min_p"), (-1,), None),
    Meaning(("min_p",), (0,), 0),
    Meaning(("top_k",), (0, -1), ALL),
    Meaning(("repetition_penalty",), (0, -1), 1),
    Meaning(("seed",), (-1,), None),
    Meaning(LIMITS, (-1,), ALL),
    Meaning(BUDGETS, (-1,), None),
    Meaning(("stop",), ([],), None),
    Meaning(("logit_bias",), ([],), None),
    Meaning(("logprobs",), (False,), None),
    Meaning(("tool_choice",), ("any",), "required"),
    Meaning(("tool_choice",), ("none",), "none"),
)
"""Null means for every field that it is left out: then the model's generation config decides; temperature is 0.7
in chats and else 0 where that says none, and the seed is drawn. Values that are neither here
nor in the API's ranges are refused."""

_KEEPS_NOTHING = "this server keeps no responses, conversations or prompts: send the whole text as input"
REFUSED: Mapping[str, Mapping[str, str]] = {
    CHAT: {},
    TEXT: {
        "best_of": "this server does not choose among texts: leave it out, and set n",
    },
    RESPONSES: dict.fromkeys(("previous_response_id", "conversation", "prompt"), _KEEPS_NOTHING),
    MESSAGES: {},
    COUNT: {},
    OLLAMA_CHAT: {},
    OLLAMA_TEXT: {},
    INFILL: {},
    EMBEDDINGS: {},
    OLLAMA_EMBED: {},
    OLLAMA_EMBEDDING: {},
}
"""Fields that are refused where they ask for something."""


def read_as(name: str, value: Any) -> Any:
    """Return what a field's value is read as."""
    for meaning in VALUES:
        if name in meaning.fields and any(
            isinstance(value, bool) == isinstance(one, bool) and bool(value == one) for one in meaning.values
        ):
            return meaning.read_as
    return value
