"""JSON Schemas in llguidance's form: patterns of JavaScript, references of calls, places of faults."""

import json

import pytest

from draftwood.errors import UsageError
from draftwood.grammar.grammar import Grammar, answer_or_calls, call_grammar, check_parameters, library


def accepts(grammar, text):
    """Whether a text follows a grammar from end to end."""
    matcher = library().LLMatcher(library().LLTokenizer("byte"), grammar.compiled(), log_level=0)
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("pattern", "held", "others"),
    [
        ("[a&&b]", ["a", "&"], ["c"]),
        ("[[a]", ["[", "a"], ["b"]),
        ("^[+--]$", ["+", ",", "-"], ["a"]),
        ("^[a~~^]$", ["~", "^"], ["b"]),
        (r"^[\w-]+[\d-x]$", ["a-x"], ["+x"]),
        (r"^[a\]&&]$", ["]", "&"], ["b"]),
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", ["1", "+1.5", ".5"], ["", "+", "."]),  # of pydantic's Decimal
        (r"^(?=.*[A-Z])(?=.*\d).{3,}$", ["aB1"], ["ab1", "B1", "aBc"]),
        ("^(?!-)[a-]+$", ["a-"], ["-a", ""]),
        (r"^(?!\s)\S?$", ["a", ""], [" "]),
        (r"^(?!.*\d)[a1]+$", ["aa"], ["a1"]),
        ("^(?!$)a*$", ["a"], [""]),
        ("^{a}$", ["{a}"], ["a"]),
        ("^a{2}$", ["aa"], ["a", "a{2}"]),
        (r"^\ud83d\ude00\/[^]$", ["😀/é"], ["😀/"]),
        (r"^[\b]\cJ\0$", ["\b\n\0"], ["b"]),
        ("^(?:(?:a|b)c)?d$", ["acd", "d"], ["ad"]),
    ],
)
def test_patterns_mean_what_they_mean_in_a_schema(pattern, held, others):
    grammar = Grammar.json_schema({"type": "string", "pattern": pattern})
    assert {text: accepts(grammar, json.dumps(text, ensure_ascii=False)) for text in (*held, *others)} == {
        **dict.fromkeys(held, True), **dict.fromkeys(others, False)}  # fmt: skip


@pytest.mark.parametrize(
    "pattern", ["a(?=b)", "^(?!ab)c", "^(?=a)b|c", r"(a)\1", "(?<=a)b", "^(?=a", "(", "[", r"\bx"]
)
@pytest.mark.parametrize("within", ["pattern", "patternProperties"])
def test_what_a_pattern_cannot_say_is_told_with_its_place(pattern, within):
    odd = {"pattern": pattern, "type": "string"} if within == "pattern" else {"patternProperties": {pattern: {}}}
    schema = {"properties": {"a/b": {"items": odd}, "c": {}}}
    with pytest.raises(UsageError, match="#/properties/a~1b/items") as raised:
        Grammar.json_schema(schema).compiled()
    assert "cannot be used" in str(raised.value)
    assert repr(pattern) in str(raised.value) or within != "pattern"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {"$defs": {"b": {"items": {"uniqueItems": True}}}, "properties": {"a": {"$ref": "#/$defs/b"}}},
            "#/$defs/b/items",
        ),
        ({"properties": {"a": {"$ref": "#/$defs/q"}}}, "'/$defs/q' does not exist at #/properties/a"),
        ({"anyOf": [{"type": "string"}, {"type": "zzz"}]}, "zzz at #/anyOf/1"),
        ({"multipleOf": 999_983}, "too many digits"),
    ],
)
def test_an_odd_schema_is_told_of_with_its_tool_and_place(schema, said):
    with pytest.raises(UsageError) as raised:
        check_parameters({"right": {}, "odd": schema})
    assert "'odd'" in str(raised.value)
    assert said in str(raised.value)


@pytest.mark.parametrize("schema", [True, False])
def test_a_schema_that_is_no_object_is_refused_in_a_sentence(schema):
    with pytest.raises(UsageError, match="at #"):
        Grammar.json_schema(schema).compiled()


POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"],
         "additionalProperties": False}  # fmt: skip
P = {"type": "object", "properties": {"p": {"$ref": "REF"}}, "required": ["p"], "additionalProperties": False}
OLD, ID = {"$schema": "http://json-schema.org/draft-07/schema#"}, {"$id": "https://example.com/tool"}
NESTED = {"$id": "nested", "$ref": "#/$defs/Point", "$defs": {"Point": POINT}}  # refers to its own root


@pytest.mark.parametrize(
    ("reference", "more"),
    [
        ("#/$defs/Point", {"$defs": {"Point": POINT}}),
        ("#/definitions/Point", {"definitions": {"Point": POINT}} | OLD),
        ("#/$defs/Point", {"$defs": {"Point": POINT}} | ID),
        ("point", {"$defs": {"Point": {**POINT, "$id": "point"}}} | ID),
        ("#place", {"$defs": {"Point": {**POINT, "$anchor": "place"}}}),
        ("nested", {"$defs": {"A": NESTED, "Point": {"type": "null"}}}),
    ],
)
def test_references_of_a_call_mean_what_they_mean_in_its_own_schema(reference, more):
    schema = json.loads(json.dumps(P).replace("REF", reference)) | more
    grammar = call_grammar({"other": {"$defs": {"Point": {"type": "null"}}}, "look": schema})
    assert accepts(grammar, '{"name": "look", "arguments": {"p": {"x": 1}}}')
    assert not accepts(grammar, '{"name": "look", "arguments": {"p": null}}')
    assert accepts(grammar, '{"name": "other", "arguments": {}}')
    assert not accepts(grammar, '{"name": "other", "arguments": null}')


def test_what_a_call_cannot_hold_is_told_with_its_tool():
    with pytest.raises(UsageError, match=r"'odd'.*too many digits"):
        call_grammar({"right": {}, "odd": {"properties": {"a": {"multipleOf": 999_983}}}})


def test_a_root_refers_to_its_arguments_not_to_the_call():
    kids = {"properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}, "additionalProperties": False}
    grammar = call_grammar({"look": {"type": "object", **kids}})
    assert accepts(grammar, '{"name": "look", "arguments": {"kids": [{"kids": []}, {}]}}')
    assert not accepts(grammar, '{"name": "look", "arguments": {"kids": [{"name": "look", "arguments": {}}]}}')


def test_an_answer_in_a_form_may_be_calls_instead():
    grammar = answer_or_calls({**P, "$defs": {"Point": POINT}} | {"properties": {"p": {"$ref": "#/$defs/Point"}}},
                              ["look", "list"], ("<call>", "</call>"))  # fmt: skip
    call = '{"name": "list", "arguments": {"a": ["</call>"]}}'
    for text in (f"<call>{call}</call>", f"<call>\n{call}\n</call>\n<call>{call}</call>", '{"p": {"x": 1}}'):
        assert accepts(grammar, text)
    for text in (call, f"<call>{call}", f"<call>{call.replace('list', 'lost')}</call>", '{"p": 1}', "", "<call>"):
        assert not accepts(grammar, text)
    with pytest.raises(UsageError, match="too many digits"):
        answer_or_calls({"multipleOf": 999_983}, ["look"], ("<call>", "</call>"))
