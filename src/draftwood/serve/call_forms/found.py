"""Which form of calls a model's chat template has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftwood.api.call_frame import CallFrame, call_style
from draftwood.api.calls import CLOSING, OPENING
from draftwood.api.control_names import control_ids, control_names
from draftwood.api.thoughts import CALL_BETWEEN, CALL_OPENING
from draftwood.engines.tokens.file_tokenizer import decoder, single_token
from draftwood.engines.tokens.fingerprint import remembered
from draftwood.grammar.calls import CallParts
from draftwood.serve.call_forms.base import CallForm
from draftwood.serve.call_forms.elements import ElementForm
from draftwood.serve.call_forms.literals import LiteralForm
from draftwood.serve.call_forms.named import NamedForm
from draftwood.serve.call_forms.objects import ObjectForm

OURS: CallForm = ObjectForm(f'{OPENING}{{"name": "', '", "arguments": ', f"}}{CLOSING}")
"""The form of which models are told whose templates have none; read beside others, since many models know it."""


def forms_of(tokenizer: Any) -> tuple[CallForm, ...]:
    """Return the forms in which a model's calls are read, that of its template first."""
    frame = call_style(tokenizer).frame
    return (OURS,) if frame is None else (form_of(frame), OURS)


def form_of(frame: CallFrame) -> CallForm:
    """Return the form of a template that writes calls in this frame."""
    if frame.kind == "object":
        return ObjectForm(frame.before, frame.between, frame.after)
    if frame.kind == "elements":
        return ElementForm(frame.before, frame.members, frame.after)
    if frame.kind == "values":
        return LiteralForm(frame.before, frame.members, frame.after)
    if CALL_BETWEEN in frame.between:  # what reads the tokens of harmony writes the header so
        return NamedForm(CALL_OPENING, CALL_BETWEEN, "")
    return NamedForm(frame.before, frame.between, frame.after)


BARE: CallForm = ObjectForm('{"name": "', '", "arguments": ', "}")
"""In which a model is told to write a call that is forced on it, if its template has no form."""


def call_parts(form: CallForm, schemas: Mapping[str, Mapping[str, Any] | None], tokenizer: Any) -> CallParts:
    """Return what calls consist of, for grammars: each function's by its schema, None for free arguments."""
    calls = {name: form.written(name, schema) for name, schema in schemas.items()}
    return CallParts(calls, *form.around, form.separator, control_tokens(tokenizer), control_ids(tokenizer))


def hidden_tags(tokenizer: Any) -> dict[str, int]:
    """Return those tags of a model's forms that are control tokens, which decoding drops, with their ids.

    The reader of calls sees them, and no client does.
    """
    shown = decoder(tokenizer)
    return {name: token for name, token in control_tokens(tokenizer).items() if not shown([token])}


def control_tokens(tokenizer: Any) -> Mapping[str, int]:
    """Return the control tokens in a model's forms of calls, by their names."""
    return remembered(tokenizer, "tokens of calls", getattr(tokenizer, "chat_template", None), _control_tokens)


def _control_tokens(tokenizer: Any) -> dict[str, int]:
    names = control_names(tokenizer)
    parts = " ".join(part for form in forms_of(tokenizer) for part in form.tags)
    found = {name: single_token(tokenizer, name) for name in (names.findall(parts) if names is not None else ())}
    return {name: token for name, token in found.items() if token is not None}
