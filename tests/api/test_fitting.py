"""Messages are made to fit chat templates: nothing that can be said is refused or left out."""

from functools import partial

import pytest

from draftwood.api.chat_template import fitted
from draftwood.api.prompts import plain_messages
from draftwood.engines.tokens.file_tokenizer import render
from draftwood.errors import PromptError

ANY = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
IN_TURN = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
)
NO_TOOLS = (
    "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}"
    "<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
)
SYSTEM_FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('x') }}{% endif %}"
    "<{{ m.role }}>{{ m.content | tojson }}{% endfor %}"
)
SYSTEM, DEVELOPER, USER = (
    {"role": r, "content": c} for r, c in (("system", "be"), ("system", "do"), ("user", "hi"))
)
CALL, RESULT = {"role": "assistant", "content": "call"}, {"role": "tool", "content": "got", "tool_call_id": "c"}
GOT = "<tool_response>\ngot\n</tool_response>"


@pytest.mark.parametrize(
    ("template", "messages", "said"),
    [
        (ANY, [SYSTEM, DEVELOPER, USER, USER, CALL, RESULT, RESULT, DEVELOPER],
         "<system>be<system>do<user>hi<user>hi<assistant>call<tool>got<tool>got<system>do"),
        (IN_TURN, [USER, CALL, USER], "<user>hi<assistant>call<user>hi"),
        (IN_TURN, [SYSTEM, DEVELOPER, USER], "<user>be\n\ndo\n\nhi"),
        (IN_TURN, [SYSTEM, USER, CALL, RESULT, RESULT, DEVELOPER],
         f"<user>be\n\nhi<assistant>call<user>{GOT}\n\n{GOT}\n\ndo"),
        (IN_TURN, [USER, CALL, CALL, DEVELOPER, USER], "<user>hi<assistant>call\n\ncall<user>do\n\nhi"),
        (IN_TURN, [SYSTEM], "<user>be"),
        (NO_TOOLS, [SYSTEM, USER, CALL, RESULT], f"<system>be<user>hi<assistant>call<user>{GOT}"),
        (NO_TOOLS, [SYSTEM, USER, CALL, {**RESULT, "role": "function"}],
         f"<system>be<user>hi<assistant>call<user>{GOT}"),
        (SYSTEM_FIRST, [SYSTEM, DEVELOPER, USER, CALL, RESULT, DEVELOPER],
         '<system>"be\\n\\ndo"<user>"hi"<assistant>"call"<tool>"got"<user>"do"'),
        # what no form can say is the template's to refuse, or to leave out
        (IN_TURN, [CALL, USER], None),
        ("{{ messages[-1].content }}", [USER, CALL, USER], "hi"),
    ],
)  # fmt: skip
def test_messages_fit_the_template(template, messages, said):
    say = partial(render, template)
    form = fitted(messages, say)
    if said is None:
        assert form == messages
    else:
        assert say(form) == said


def test_calls_that_are_null_are_not_there():
    """Clients send back the fields of an answer as they got them, and templates ask whether these are there."""
    said = [
        {**USER, "tool_calls": None},
        {**CALL, "tool_calls": None, "function_call": None},
        {**CALL, "tool_calls": []},
    ]
    assert plain_messages(said) == [USER, CALL, CALL]
    with pytest.raises(PromptError, match=r"message 1 .* has no content"):
        plain_messages([{"role": "assistant", "content": None, "tool_calls": None}])


def test_calls_that_a_template_knows_are_never_merged():
    template = IN_TURN.replace("{{ m.content | trim }}", "{{ m.content or m.tool_calls }}")
    calls = [USER, *[{"role": "assistant", "content": None, "tool_calls": [n]} for n in (1, 2)], USER]
    assert fitted(calls[:2], partial(render, template)) == calls[:2]
    assert fitted(calls, partial(render, template)) == calls
