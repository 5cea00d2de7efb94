"""What requests say of thinking: arguments for the chat template, and how many tokens thoughts may take."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from draftwood.api.control_names import control_names
from draftwood.engines.tokens.file_tokenizer import variables
from draftwood.engines.tokens.fingerprint import remembered
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import ChatRequest

_SWITCHES = ("enable_thinking", "thinking")
"""Variables by which templates turn thoughts on and off: of Qwen, SmolLM and Gemma; of Granite and DeepSeek."""
_EFFORT, _BUDGET, _ARGUMENTS = "reasoning_effort", "thinking_budget", "chat_template_kwargs"
_NO_EFFORT = "none"
_NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_MOST_ARGUMENTS, _MOST_CHARACTERS = 32, 4096
_TAKEN = frozenset({
    "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token",
    "conversation", "chat_template", "tokenize", "padding", "truncation", "max_length", "return_tensors",
    "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
})  # fmt: skip
"""What the server itself gives to templates, and parameters of the function that renders them."""


@dataclass(frozen=True, slots=True)
class ThinkingDefault:
    """What holds for requests that say nothing: None leaves it to the template, and thoughts without a limit."""

    thinks: bool | None = None
    budget: int | None = None


@dataclass(slots=True)
class ThinkingPlan:
    """What one request says of thinking, fitted to the template."""

    arguments: dict[str, Any] = field(default_factory=dict)  # of the template
    budget: int | None = None  # most tokens of thoughts; None: no limit
    ignored: list[str] = field(default_factory=list)  # fields that change nothing here

    def without_effort(self) -> ThinkingPlan:
        """Return the plan for a template that refuses this effort."""
        left = {name: value for name, value in self.arguments.items() if name != _EFFORT}
        return ThinkingPlan(left, self.budget, [*self.ignored, _EFFORT])


def thinking_of(asked: ChatRequest, default: ThinkingDefault, tokenizer: Any, *, special: bool) -> ThinkingPlan:
    """Return the plan of a request; raises `ApiError` for arguments that no template may have.

    ``special``: arguments may hold names of control tokens.
    """
    given = asked.chat_template_kwargs or {}
    _check(given, None if special else control_names(tokenizer))
    template = getattr(tokenizer, "chat_template", None)
    known = remembered(tokenizer, "variables", template, _variables)
    plan = ThinkingPlan({name: value for name, value in given.items() if name in known}, _budget(asked, default))
    plan.ignored = [f"{_ARGUMENTS}.{name}" for name in sorted(given.keys() - known)]
    switch = next((name for name in _SWITCHES if name in known), None)
    thinks = _thinks(asked, default, plan.budget)
    if thinks is not None and switch is not None:
        plan.arguments.setdefault(switch, thinks)
    if thinks is False:  # also where the template cannot be told
        plan.budget = 0
    elif switch is None:
        plan.ignored += [
            name for name in _SWITCHES if getattr(asked, name) is not None and not _is_budget(asked, name)
        ]
    if plan.budget and _BUDGET in known:
        plan.arguments.setdefault(_BUDGET, plan.budget)
    effort = asked.reasoning_effort
    if effort is not None and _EFFORT in known:
        plan.arguments.setdefault(_EFFORT, effort)
    elif effort is not None and effort != _NO_EFFORT:
        plan.ignored.append(_EFFORT)
    return plan


def _is_budget(asked: ChatRequest, name: str) -> bool:
    """Whether a field has a budget, which holds with every template."""
    return name == "thinking" and asked.thinking is not None and asked.thinking.budget_tokens is not None


def _variables(tokenizer: Any) -> frozenset[str]:
    template = getattr(tokenizer, "chat_template", None)
    return variables(template) - _TAKEN if isinstance(template, str) else frozenset()


def _budget(asked: ChatRequest, default: ThinkingDefault) -> int | None:
    if asked.thinking_budget is not None:
        return asked.thinking_budget
    if asked.thinking is not None and asked.thinking.budget_tokens is not None:
        return asked.thinking.budget_tokens
    return default.budget


def _thinks(asked: ChatRequest, default: ThinkingDefault, budget: int | None) -> bool | None:
    """Return whether the model is to think, None if nobody has said so."""
    if asked.enable_thinking is not None:
        return asked.enable_thinking
    if asked.thinking is not None and asked.thinking.type != "adaptive":
        return asked.thinking.type == "enabled"
    if budget == 0:
        return False
    if asked.reasoning_effort is not None:
        return asked.reasoning_effort != _NO_EFFORT
    return default.thinks


def _check(given: Mapping[str, Any], names: re.Pattern[str] | None) -> None:
    """Raise `ApiError` for arguments that are too many or too long, or have wrong names or values."""
    if len(given) > _MOST_ARGUMENTS:
        raise _refused(f"has {len(given)} arguments: give at most {_MOST_ARGUMENTS}")
    for name, value in given.items():
        if not _NAME.fullmatch(name):
            raise _refused(
                f"has an argument {name[:64]!r}, which is no name of a variable: correct or leave it out"
            )
        if name in _TAKEN:
            raise _refused(f"sets {name!r}, which the server gives itself: leave it out")
        some = value if isinstance(value, list) else [value]
        if not all(one is None or isinstance(one, str | int | float) for one in some):
            raise _refused(f"has {name!r}, which is none of text, number, true, false, null or a list of these")
        if names is not None and any(isinstance(one, str) and names.search(one) for one in some):
            raise _refused(f"has {name!r} with the name of a control token in it: leave that out")
    try:
        size = len(json.dumps(given, allow_nan=False))
    except ValueError as error:
        raise _refused("has a number that is none of JSON: correct it") from error
    if size > _MOST_CHARACTERS:
        raise _refused(f"has {size:,} characters as JSON: give at most {_MOST_CHARACTERS:,}")


def _refused(said: str) -> ApiError:
    return ApiError(f"{_ARGUMENTS} {said}", param=_ARGUMENTS)
