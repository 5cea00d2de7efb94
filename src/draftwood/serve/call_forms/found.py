"""Which form of calls a model's chat template has."""

from __future__ import annotations

from typing import Any

from draftwood.api.call_frame import CallFrame, call_style
from draftwood.api.calls import CLOSING, OPENING
from draftwood.api.control_names import control_names
from draftwood.engines.tokens.file_tokenizer import decoder
from draftwood.engines.tokens.fingerprint import remembered
from draftwood.serve.call_forms.base import CallForm
from draftwood.serve.call_forms.elements import ElementForm
from draftwood.serve.call_forms.literals import LiteralForm
from draftwood.serve.call_forms.named import NamedForm
from draftwood.serve.call_forms.objects import ObjectForm

OURS: CallForm = ObjectForm(f'{OPENING}{{"name": "', f"}}{CLOSING}")
"""The form of which models are told whose templates have none; read beside others, since many models know it."""


def forms_of(tokenizer: Any) -> tuple[CallForm, ...]:
    """Return the forms in which a model's calls are read, that of its template first."""
    frame = call_style(tokenizer).frame
    return (OURS,) if frame is None else (form_of(frame), OURS)


def form_of(frame: CallFrame) -> CallForm:
    """Return the form of a template that writes calls in this frame."""
    if frame.kind == "object":
        return ObjectForm(frame.before, frame.after)
    if frame.kind == "elements":
        return ElementForm(frame.before, frame.members, frame.after)
    if frame.kind == "values":
        return LiteralForm(frame.before, frame.members, frame.after)
    return NamedForm(frame.before, frame.between, frame.after)


def hidden_tags(tokenizer: Any) -> dict[str, int]:
    """Return those tags of a model's forms that are control tokens, which decoding drops, with their ids.

    The reader of calls sees them, and no client does.
    """
    return remembered(tokenizer, "tags of calls", getattr(tokenizer, "chat_template", None), _hidden)


def _hidden(tokenizer: Any) -> dict[str, int]:
    shown, names = decoder(tokenizer), control_names(tokenizer)
    found = dict[str, int]()
    parts = [part for form in forms_of(tokenizer) for part in form.tags]
    for tag in [] if names is None else [tag for part in parts for tag in names.findall(part)]:
        ids = tokenizer(tag, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and not shown(ids):
            found[tag] = int(ids[0])
    return found
