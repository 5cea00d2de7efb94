"""Reads prompts of all kinds, chat messages among them, as token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any

from draftwood.api.call_frame import call_style
from draftwood.api.chat_template import CALLS, fitted, guarded
from draftwood.api.thoughts import without_thoughts
from draftwood.engines.tokens.fingerprint import remembered
from draftwood.errors import DraftwoodError, PromptError, UsageError
from draftwood.files.foreign import whole

# Text, token ids (a list, a one-dimensional array or tensor, or what a tokenizer returns), or chat messages.
Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]] | Any

_OFTEN = 16
"""Characters of a token that hardly any text has on average: what is no longer is simply tokenized."""
_KINDS = "give text, token ids or chat messages"


def as_prompts(given: Any, tokenizer: Any) -> tuple[bool, list[list[int]]]:
    """Return whether several prompts were given, and the ids of each."""
    if _is_encoding(given):
        given, several = _unpadded(given)
        return several, [as_ids(ids, tokenizer) for ids in given]
    if _is_one(given):
        return False, [as_ids(given, tokenizer)]
    if isinstance(given, Mapping):
        raise PromptError(f"a prompt of {type(given).__name__} cannot be read: {_KINDS}, which stand in a list")
    if isinstance(given, bytes) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        raise PromptError(f"a prompt of {type(given).__name__} cannot be read: {_KINDS}")
    prompts = list(given)
    if not prompts:
        raise PromptError("the prompt is empty: give some text")
    return True, [as_ids(prompt, tokenizer) for prompt in prompts]


def check_shape(prompt: Any) -> None:
    """Raise `PromptError` for what is neither text, chat messages nor a list of token ids."""
    if isinstance(prompt, str):
        whole(prompt, "the prompt", PromptError)
    elif isinstance(prompt, list) and prompt and isinstance(prompt[0], Mapping):
        for number, message in enumerate(prompt, 1):
            _plain(message, number)
    else:
        as_ids(prompt, None)


def as_ids(prompt: Any, tokenizer: Any) -> list[int]:
    """Return the token ids of one prompt; chat messages are rendered with the tokenizer's template."""
    if isinstance(prompt, str) and prompt:
        return list(needed(tokenizer)(whole(prompt, "the prompt", PromptError))["input_ids"])
    if _is_encoding(prompt):
        rows, _ = _unpadded(prompt)
        if len(rows) != 1:
            raise PromptError(f"one prompt of the list holds {len(rows)} texts: give each as a prompt of its own")
        prompt = rows[0]
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if isinstance(prompt, Mapping):
        raise PromptError("a chat message stands among the prompts: put the messages of each into a list")
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
        raise PromptError(f"a prompt of {type(prompt).__name__} cannot be read: {_KINDS}")
    if not len(prompt):
        raise PromptError("the prompt is empty: give some text")
    if isinstance(prompt[0], Mapping):
        return render(prompt, tokenizer)
    if odd := [i for i in prompt if not isinstance(i, Integral) or isinstance(i, bool)]:
        raise PromptError(f"a prompt of {type(odd[0]).__name__} cannot be read: {_KINDS}")
    return [int(i) for i in prompt]


def _is_one(given: Any) -> bool:
    if isinstance(given, str):
        return True
    if hasattr(given, "ndim"):
        return bool(given.ndim == 1)
    if not isinstance(given, Sequence) or isinstance(given, bytes) or not given or _is_encoding(given[0]):
        return False
    return isinstance(given[0], Integral | Mapping)


def _is_encoding(given: Any) -> bool:
    """Whether this is what a tokenizer returns, a mapping with ``input_ids``."""
    return isinstance(given, Mapping) and "input_ids" in given


def _unpadded(encoding: Mapping[str, Any]) -> tuple[list[Any], bool]:
    """Return the rows of ids of an encoding without padding, and whether it is a batch."""
    ids = _listed(encoding["input_ids"])
    several = bool(ids) and not isinstance(ids[0], Integral)
    rows = [_listed(row) for row in ids] if several else [ids]
    if encoding.get("attention_mask") is None:
        return rows, several
    mask = _listed(encoding["attention_mask"])
    masks = [_listed(row) for row in mask] if several else [mask]
    if [len(row) for row in masks] != [len(row) for row in rows]:
        raise PromptError("attention_mask and input_ids differ in shape: give both as the tokenizer returned them")
    return [_kept(*pair, number) for number, pair in enumerate(zip(rows, masks, strict=True), 1)], several


def _kept(ids: list[Any], mask: list[Any], number: int) -> list[Any]:
    """Return the ids that the mask keeps, which must be adjacent."""
    places = [place for place, keep in enumerate(mask) if keep]
    if places and places[-1] - places[0] >= len(places):
        raise PromptError(f"row {number} of attention_mask has holes: only padding at an end can be left out")
    return [ids[place] for place in places]


def _listed(given: Any) -> list[Any]:
    found = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(found, list | tuple):
        raise PromptError(f"input_ids of {type(given).__name__} cannot be read: give a list or a tensor of ids")
    return list(found)


def most_characters(tokenizer: Any, tokens: int) -> int:
    """Return how many characters a text of so many tokens can have: each may be the longest of the vocabulary."""
    return tokens * remembered(
        tokenizer, "longest", len(tokenizer), lambda known: max(map(len, known.get_vocab()))
    )


def check_fits(text: str, tokenizer: Any, most: int) -> None:
    """Raise `PromptError` for a text that is surely longer than ``most`` tokens; little of it is tokenized."""
    if len(text) <= _OFTEN * most:
        return
    begins = text[: _OFTEN * most]  # if it has twice as many tokens as may be, what follows cannot make them fit
    if len(text) > most_characters(tokenizer, most) or len(tokenizer(begins)["input_ids"]) > 2 * most:
        raise PromptError(
            f"the prompt has {len(text):,} characters, too many for the {most:,} tokens that can be read: "
            "shorten the prompt"
        )


def text_ids(text: str, tokenizer: Any, *, special: bool) -> list[int]:
    """Return the token ids of a text, and none that the tokenizer puts around texts.

    Names of control tokens in it stay text, unless ``special`` is set.
    """
    cut = None if special else guarded([{"role": "user", "content": text}], [], tokenizer)
    if cut is None:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []
    return cut.ids(cut.messages[0]["content"], tokenizer)


def render(
    messages: Sequence[Mapping[str, Any]], tokenizer: Any, *, tools: Sequence[Mapping[str, Any]] = (),
    arguments: Mapping[str, Any] | None = None, special: bool = False, most: int | None = None,
) -> list[int]:  # fmt: skip
    """Return the token ids of a conversation, up to where the assistant's next answer begins.

    Messages that the chat template refuses or leaves out are made to fit by `fitted`. ``tools``, as in the API,
    and ``arguments``, its further variables, are for the template. Names of control tokens in text stay text,
    unless ``special`` is set; arguments stay as they are. With ``most``, a conversation of more tokens may be
    refused before it is tokenized.

    `PromptError` for messages that cannot be read, `UsageError` without a chat template, `ModelError` for a broken
    one.
    """
    plain = without_thoughts(plain_messages(messages), needed(tokenizer))
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError(
            "this tokenizer has no chat template: give plain text (without --chat; to bench or simulate, "
            "--prompts FILE --raw), or take an instruct model"
        )
    given, told = dict(arguments or {}), (*plain, *tools)
    if most is not None and sum(len(str(part)) for one in told for part in one.values()) > _OFTEN * most:
        check_fits(_applied(tokenizer, plain, tools, given, tokenize=False), tokenizer, most)
    ids = [int(i) for i in _applied(tokenizer, plain, tools, given)]
    cut = None if special else guarded(plain, tools, tokenizer)
    if cut is None:
        return ids
    found = cut.ids(_applied(tokenizer, cut.messages, cut.tools, given, tokenize=False), tokenizer)
    first = tokenizer.bos_token_id  # some tokenizers put it before the text of a template
    return [first, *found] if ids[:1] == [first] != found[:1] else found


def _applied(
    tokenizer: Any, messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]],
    arguments: Mapping[str, Any], **how: Any,
) -> Any:  # fmt: skip
    """Return what the tokenizer's chat template makes of messages and tools; raises as `render` does."""
    given = {**arguments, **({"tools": list(tools)} if tools else {})}
    say, style = partial(tokenizer.apply_chat_template, add_generation_prompt=True, **given), call_style(tokenizer)
    try:
        return say(fitted(messages, partial(say, tokenize=False), style), return_dict=False, **how)
    except DraftwoodError:  # the template itself cannot be used
        raise
    except Exception as error:  # whatever a template raises, which is a program of the model's authors
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise PromptError(
            f"the model's chat template refuses these messages ({reason}): change their roles or their order"
        ) from error


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with each content as one string; raises `PromptError`, with the number of the message."""
    return [_plain(message, number) for number, message in enumerate(messages, 1)]


def needed(tokenizer: Any, what: str = "a prompt as text or as chat messages") -> Any:
    """Return the tokenizer; `UsageError` if there is none."""
    if tokenizer is None:
        raise UsageError(f"{what} needs a tokenizer: pass tokenizer=, or give token ids")
    return tokenizer


def _plain(message: Any, number: int) -> dict[str, Any]:
    """Return a message with its content as one string."""
    if not isinstance(message, Mapping):
        kind = type(message).__name__
        raise PromptError(f"message {number} is of type {kind}: write a dict with 'role' and 'content'")
    if not isinstance(message.get("role"), str):
        raise PromptError(f"message {number} has no role: add 'role': 'user', 'assistant' or 'system'")
    content = message.get("content")
    # Clients send back null where nothing is called, and templates ask whether the field is there.
    message = {name: value for name, value in message.items() if value or name not in CALLS}
    if content is None:
        if not CALLS.isdisjoint(message):  # an assistant's message that calls a tool and says nothing
            return message
        raise PromptError(f"message {number} ({message['role']}) has no content: add 'content' with its text")
    if not isinstance(content, str):
        if not isinstance(content, Sequence) or isinstance(content, bytes):
            kind = type(content).__name__
            raise PromptError(f"the content of message {number} is of type {kind}: give text (str)")
        content = "".join(_text(part, number) for part in content)
    return {**message, "content": whole(content, f"message {number}", PromptError)}


def _text(part: Any, number: int) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, Mapping) else type(part).__name__
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(text, str):
        raise PromptError(
            f"message {number} has a part of type {kind!r} that is no text: draftwood reads text parts "
            "({'type': 'text', 'text': ...}) only, so leave the others out"
        )
    return text
