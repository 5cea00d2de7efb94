"""Calls are forced, and held to schemas once they have begun, in the form of each chat template."""

import json

import pytest

from draftwood.grammar.grammar import library
from draftwood.grammar.vocabulary import vocabulary_of
from draftwood.serve.fields import ChatRequest
from draftwood.serve.tools import tools_of
from tests.serve.call_templates import FORMS
from tests.serve.test_call_forms import ASKED, calls_of, read, tokenizer_of

SCHEMA = {
    "type": "object", "required": ["text", "count", "deep"], "additionalProperties": False,
    "$defs": {"count": {"type": "integer", "minimum": 3}},
    "properties": {
        "text": {"type": "string"}, "count": {"$ref": "#/$defs/count"},
        "deep": {"type": "object", "properties": {"k": {"type": "array", "items": {"type": "string"}}},
                 "required": ["k"], "additionalProperties": False},
        "kind": {"enum": ["a", "b c"]},
    },
}  # fmt: skip
GIVEN = {"text": 'a <b> "q"\n\U0001f333', "count": 5, "deep": {"k": ["x", "\u6728"]}}
FUNCTIONS = [
    {"type": "function", "function": {"name": "note", "parameters": SCHEMA, "strict": True}},
    {"type": "function", "function": {"name": "list", "parameters": {"type": "object", "properties": {}}}},
]
every_form = pytest.mark.parametrize("form", FORMS)


def tools_in(form, choice="auto", functions=FUNCTIONS):
    """The tools of a request, whose prompt was made, and the tokenizer."""
    tools = tools_of(ChatRequest.model_validate({"messages": ASKED, "tools": functions, "tool_choice": choice}))
    tools.prompt(ASKED, tokenizer_of(form))
    return tools, tokenizer_of(form)


def written(form, name, arguments):
    """A call as the template writes it."""
    if form == "literals of Python":
        inner = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
        return f"<|tool_call_start|>[{name}({inner})]<|tool_call_end|>"
    if form == "literals":
        return f"<|tool_call>call:{name}{quoted(arguments)}<tool_call|>"
    call = {"id": "call12345", "type": "function", "function": {"name": name, "arguments": arguments}}
    tokenizer = tokenizer_of(form)
    said = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}]
    if "hermes of" in form:
        call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    text = tokenizer.apply_chat_template(said, tokenize=False).partition("<assistant>")[2].removesuffix("<turn>")
    text = text.removeprefix("<|START_THINKING|><|END_THINKING|>")
    return text.replace("call12345", "callid123" if form == "list" else f"call_{0:024d}")


def quoted(value):
    """A value in Gemma's form."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{quoted(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(quoted, value))}]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else json.dumps(value)


def allows(grammar, tokenizer, text):
    """Whether a text follows a grammar: to its end, only as a beginning, or not."""
    vocabulary = vocabulary_of(tokenizer, len(tokenizer), frozenset({tokenizer.eos_token_id}))
    matcher = library().LLMatcher(vocabulary.tokens, grammar.compiled(), log_level=0)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if not all(matcher.consume_token(token) for token in ids):
        return None
    return bool(matcher.is_accepting())


@every_form
def test_a_forced_call_is_as_the_template_writes_it_and_fits_the_schema(form):
    tools, tokenizer = tools_in(form, "required")
    grammar = tools.forced_grammar(tokenizer)
    for name, given in (("note", GIVEN), ("note", {**GIVEN, "kind": "b c"}), ("list", {})):
        text = written(form, name, given)
        assert allows(grammar, tokenizer, text) is True, text
        assert calls_of(read(form, text)) == [(name, given)]
    for wrong in ({**GIVEN, "count": 2}, {**GIVEN, "kind": "c"}, {**GIVEN, "deep": {"k": [1]}}, {"count": 5}):
        assert allows(grammar, tokenizer, written(form, "note", wrong)) is None
    assert allows(grammar, tokenizer, "Hi") is None
    assert allows(grammar, tokenizer, written(form, "other", {})) is None


@every_form
def test_text_is_free_and_a_call_in_it_holds(form):
    tools, tokenizer = tools_in(form)
    assert tools.is_strict(tokenizer)
    grammar = tools.strict_grammar(tokenizer)
    call, other = written(form, "note", GIVEN), written(form, "list", {})
    wrong = written(form, "note", {**GIVEN, "count": 2})
    before = "" if form == "bare" else "I do <it>.\n"
    assert allows(grammar, tokenizer, f"{before}Hi [x] {{") is True
    assert allows(grammar, tokenizer, before + call) is True
    assert allows(grammar, tokenizer, before + other) is True
    assert form == "bare" or allows(grammar, tokenizer, f"<turn>{before}<system>{call}") is True
    assert allows(grammar, tokenizer, before + wrong) is None
    if form != "bare":
        assert allows(grammar, tokenizer, f"{before}{call}\n{other} Done.") is True
        assert allows(grammar, tokenizer, f"{call}\n{wrong}") is None


@every_form
def test_an_answer_in_a_form_may_be_calls_of_the_template_instead(form):
    tools, tokenizer = tools_in(form)
    answer = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    grammar = tools.grammar_beside(answer, tokenizer)
    assert allows(grammar, tokenizer, '{"x": 1}') is True
    assert allows(grammar, tokenizer, written(form, "note", GIVEN)) is True
    assert allows(grammar, tokenizer, '{"y": 1}') is None
    assert allows(grammar, tokenizer, "Hi") is None
