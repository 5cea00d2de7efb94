"""JSON Schemas in llguidance's form: patterns of JavaScript, references of calls, places of faults."""

import json
import re
from decimal import Decimal

import numpy as np
import pytest

from draftwood.errors import UsageError
from draftwood.grammar.calls import CallParts, Json, check_parameters, forced, instead
from draftwood.grammar.grammar import Grammar, library


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


def calls_of(parameters, opening="", closing=""):
    """Calls as objects, of functions with these parameters."""
    calls = {
        name: [f'{{"name": "{name}", "arguments": ', Json({**schema, "type": "object"}), "}"]
        for name, schema in parameters.items()
    }
    return CallParts(calls, opening, closing, "", {})


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
    grammar = forced(calls_of({"other": {"$defs": {"Point": {"type": "null"}}}, "look": schema}))
    assert accepts(grammar, '{"name": "look", "arguments": {"p": {"x": 1}}}')
    assert not accepts(grammar, '{"name": "look", "arguments": {"p": null}}')
    assert accepts(grammar, '{"name": "other", "arguments": {}}')
    assert not accepts(grammar, '{"name": "other", "arguments": null}')


def test_what_a_call_cannot_hold_is_told_with_its_tool():
    with pytest.raises(UsageError, match=r"'odd'.*too many digits"):
        forced(calls_of({"right": {}, "odd": {"properties": {"a": {"multipleOf": 999_983}}}}))


def test_a_root_refers_to_its_arguments_not_to_the_call():
    kids = {"properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}, "additionalProperties": False}
    grammar = forced(calls_of({"look": {"type": "object", **kids}}))
    assert accepts(grammar, '{"name": "look", "arguments": {"kids": [{"kids": []}, {}]}}')
    assert not accepts(grammar, '{"name": "look", "arguments": {"kids": [{"name": "look", "arguments": {}}]}}')


def test_an_answer_in_a_form_may_be_calls_instead():
    grammar = instead({**P, "$defs": {"Point": POINT}} | {"properties": {"p": {"$ref": "#/$defs/Point"}}},
                              calls_of({"look": {}, "list": {}}, "<call>", "</call>"))  # fmt: skip
    call = '{"name": "list", "arguments": {"a": ["</call>"]}}'
    for text in (f"<call>{call}</call>", f"<call>\n{call}\n</call>\n<call>{call}</call>", '{"p": {"x": 1}}'):
        assert accepts(grammar, text)
    for text in (call, f"<call>{call}", f"<call>{call.replace('list', 'lost')}</call>", '{"p": 1}', "", "<call>"):
        assert not accepts(grammar, text)
    with pytest.raises(UsageError, match="too many digits"):
        instead({"multipleOf": 999_983}, calls_of({"look": {}}, "<call>", "</call>"))


def holds(schema, value):
    """The slow twin: whether a value of whole numbers and Decimals is one of a schema of a few keywords."""
    if isinstance(schema, bool):
        return schema
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    types = {"integer": is_number and value == int(value), "number": is_number, "object": isinstance(value, dict)}
    found = [types.get(schema.get("type"), True), all(holds(one, value) for one in schema.get("allOf", ()))]
    found += ["const" not in schema or value == schema["const"], "enum" not in schema or value in schema["enum"]]
    if is_number:
        found += [schema.get("minimum", value) <= value <= schema.get("maximum", value)]
        found += ["exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"]]
        found += ["exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"]]
    if isinstance(value, dict):
        found += [value.keys() >= set(schema.get("required", ()))]
        for name, one in value.items():
            by_name = [inner for known, inner in schema.get("properties", {}).items() if known == name]
            by_name += [
                one for known, one in schema.get("patternProperties", {}).items() if re.search(known, name)
            ]
            found += [holds(inner, one) for inner in by_name or [schema.get("additionalProperties", True)]]
    return all(found)


LARGE = [2**53 - 1, 2**53, 2**53 + 1, 2**54 + 2, 1234567890123456789, 1234567890123456768, 17 * 10**17, 2**63 - 1,
         2**63, 10**30, 1 - 2**53, -(2**53) - 1, -17 * 10**17, -(2**63)]  # fmt: skip
HELD = {(17 * 10**17, "maximum"), (2**63 - 1, "maximum"), (2**53, "enum")}
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
ENDS_OF_TYPES = {(-(2**63), "minimum"), (2**63, "exclusiveMaximum")}


@pytest.mark.parametrize("number", LARGE)
@pytest.mark.parametrize("key", ["enum", "const", "nested", *BOUNDS])
def test_a_large_number_is_held_exactly_or_refused(number, key):
    near = {number + step for far in (1, 2, 255, 256, 1024) for step in (-far, 0, far)} | {0}
    schema = {key: [number] if key == "enum" else number} | ({"type": "integer"} if key in BOUNDS else {})
    if key == "nested":
        schema, near = {"const": {"a": [number]}}, [{"a": [one]} for one in near]
    found, said = None, ""
    try:
        found = [accepts(Grammar.json_schema(schema), json.dumps(one)) for one in near]
    except UsageError as error:
        said = str(error)
    if (number, key) in ENDS_OF_TYPES:
        assert all(found)
        return
    assert found is None or found == [holds(schema, one) for one in near]
    assert found or re.search(f"{number} at #/.*held exactly|cannot be used .*{number}", said)
    assert found or (abs(number) >= 2**53 and (number, key) not in HELD)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('{"const": 1e400}', "cannot be written as JSON"),
        ('{"items": {"maximum": 1e19}}', "1E+19 at #/items/maximum"),
        ('{"exclusiveMinimum": 1e18}', "held exactly"),
        ('{"components": {"a": {"enum": [9007199254740993]}}, "$ref": "#/components/a"}', "#/components/a/enum"),
        ('{"enum": ["\\ud83d"]}', "cannot be used"),
        ('{"multipleOf": 0}', "no divisor"),
        ('{"type": "integer", "allOf": [{"multipleOf": 1000000000}, {"multipleOf": 7}]}', "together"),
    ],
)
def test_what_a_number_or_a_text_of_a_schema_cannot_be_is_refused(schema, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        Grammar.json_schema(schema).compiled()


@pytest.mark.parametrize(
    "text",
    ["1", "1.0", "-0", "0.1", "1e2", "5e-324", "1.10", "9007199254740991", '"\\u2028"',
     '{"a": [0.5, null], "": {}}', '"\\u0000\\ud83d\\ude00\\"\\\\/\\u007f"'],
)  # fmt: skip
@pytest.mark.parametrize("key", ["const", "enum"])
def test_a_value_is_the_only_one_that_it_allows(text, key):
    value = json.loads(text, parse_float=Decimal)
    grammar = Grammar.json_schema(f'{{"{key}": {f"[{text}]" if key == "enum" else text}}}')
    for seed in range(3):
        assert json.loads(walked(grammar, seed), parse_float=Decimal) == value


def walked(grammar, seed):
    """A text of a grammar, by choices at random; fails where the grammar leads to no end."""
    matcher = library().LLMatcher(library().LLTokenizer("byte"), grammar.compiled(), log_level=0)
    chance, text = np.random.default_rng(seed), b""
    while not matcher.is_stopped() and len(text) < 2000:
        mask = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        allowed = np.flatnonzero(mask[:256])
        assert not matcher.is_error(), text
        if matcher.is_accepting() and not (len(allowed) and chance.random() < 0.7):
            break
        ends = [byte for byte in allowed if byte in b'"}'] if len(text) > 40 else []
        text += bytes([chance.choice(ends or [byte for byte in allowed if 32 <= byte < 127] or allowed)])
        assert matcher.consume_token(text[-1])
    return text.decode()


INT = {"type": "integer", "minimum": 3, "maximum": 5}
SCORE = {"type": "object", "properties": {"score": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema",
    [
        SCORE | {"patternProperties": {"^score$": INT}, "additionalProperties": False},
        SCORE | {"patternProperties": {"^(score|rank)$": INT}, "additionalProperties": False},
        SCORE | {"patternProperties": {r"^[^\s\S]$": INT}, "additionalProperties": False},
        {"allOf": [SCORE, {"patternProperties": {"^score$": INT}, "additionalProperties": False}]},
        SCORE | {"properties": {}, "required": ["score"], "patternProperties": {"^score$": INT}},
        SCORE | {"patternProperties": {"^score$": INT, "^x": INT}, "additionalProperties": INT},
        SCORE | {"patternProperties": {"^s": INT}, "required": ["score"], "additionalProperties": False},
        {"type": "object", "patternProperties": {"^a$": {"type": "object", "patternProperties": {"^(b|c)$": INT},
         "additionalProperties": False}}, "additionalProperties": False},
    ],
)  # fmt: skip
def test_no_text_of_a_patterns_names_leads_to_a_place_without_an_end(schema):
    grammar = Grammar.json_schema(schema)
    texts = {walked(grammar, seed) for seed in range(12)}
    assert all(holds(schema, json.loads(text)) for text in texts)
    assert len(texts) > 1


def test_names_of_a_pattern_come_in_its_order():
    grammar = Grammar.json_schema(
        {"type": "object", "patternProperties": {"^(out|in)$": INT}, "additionalProperties": False}
    )
    assert accepts(grammar, '{"out": 3, "in": 4}')
    assert not accepts(grammar, '{"in": 4, "out": 3}')
