"""What schemas say by oneOf, not, if and dependencies is said by choices: the same values are allowed."""

import json
from itertools import product

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from draftwood.errors import UsageError
from draftwood.grammar.grammar import Grammar
from tests.grammar.test_schemas import accepts

A, B, C = ({"required": [name]} for name in "abc")
SCALAR = [None, True, False, 0, 1, 2, 2.5, -1, "", "a", "ab", "b", "1.2.3.4", "2026-11-28"]
OBJECTS = [dict(zip(names, values, strict=True)) for names in ("", "a", "b", "c", "ab", "ac", "bc", "abc")
           for values in product([1, "a", None], repeat=len(names))]  # fmt: skip
LISTS = [[], [1], ["a"], [1, "a"], [1, 2, 3]]
VALUES = [*SCALAR, *OBJECTS, *LISTS]
NAMES = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": False}
OBJECT = {"type": "object"}
CLOSED = {"type": "object", "required": ["a"], "additionalProperties": False}
KIND = {"properties": {"a": {"enum": ["a", "x"]}}, "required": ["a"]}
EITHER = {"definitions": {"n": {"type": ["integer", "null"]}, "s": {"$ref": "#/definitions/t"},
                          "t": {"type": "string", "minLength": 1}}}  # fmt: skip
SAID = [
    NAMES | {"oneOf": [A, B]}, NAMES | {"oneOf": [A, B, C]}, NAMES | {"oneOf": [{**A, "not": B}, B]},
    NAMES | {"not": A}, NAMES | {"not": {"required": ["a", "b"]}}, NAMES | {"not": {"anyOf": [A, {**B, **NAMES}]}},
    NAMES | {"dependencies": {"a": ["b"], "b": {"properties": {"c": {"type": "null"}}}}},
    NAMES | {"if": KIND, "then": B, "else": {"not": B}},
    NAMES | {"if": {"properties": {"a": {"const": 1}}}, "then": C},
    NAMES | {"if": {**A, "properties": {"a": {"minimum": 2}}}, "else": B, "anyOf": [B, C]},
    {"oneOf": [{"$ref": "#/definitions/n"}, {"$ref": "#/definitions/s"}]} | EITHER,
    {"oneOf": [NAMES | {"properties": {"a": {"enum": [1, "a"]}}, "required": ["a"]},
               {"properties": {"a": {"const": None}, "b": {"type": "integer"}}, "required": ["a"], **OBJECT}]},
    {"oneOf": [CLOSED | {"properties": {"a": {}, "b": {}}}, CLOSED | {"properties": {"a": {}, "c": {}}}]},
    {"oneOf": [{"pattern": "^a"}, {"enum": ["b", ""]}], "type": "string"},
    {"oneOf": [{"type": "string", "maxLength": 1}, {"type": "string", "minLength": 1}, {"type": "null"}]},
    {"oneOf": [{"type": "number", "maximum": 0}, {"type": "integer", "minimum": 2}]},
    {"oneOf": [{"type": "array", "maxItems": 1}, {"type": "array", "minItems": 1}]},
    {"not": {"type": ["object", "array", "number"]}}, {"not": {"enum": ["a", "ab", "", True, 1, 2.5, None]}},
    {"not": {"allOf": [{"type": "string"}, {"minLength": 1}]}}, {"not": {"not": {"type": "boolean"}}},
    {"not": {"maxLength": 1}},
    {"type": ["string", "null"], "not": {"const": None}},
]  # fmt: skip


@pytest.mark.parametrize("schema", SAID, ids=json.dumps)
def test_the_same_values_are_allowed(schema):
    grammar, validator = Grammar.json_schema(schema), Draft7Validator(schema)
    held = [value for value in VALUES if validator.is_valid(value)]
    assert held
    assert [value for value in VALUES if accepts(grammar, json.dumps(value))] == held


def test_keywords_of_other_drafts_are_none():
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "if": {}, "then": False}
    assert accepts(Grammar.json_schema(old), "1")
    new = NAMES | {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["c"]}}}
    grammar, validator = Grammar.json_schema(new), Draft202012Validator(new)
    assert all(accepts(grammar, json.dumps(value)) == validator.is_valid(value) for value in VALUES)


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"type": "string"}, {"pattern": "a"}]}, {"not": {"type": "integer"}}, {"not": {"enum": [[]]}},
        {"not": {"properties": {"a": {"pattern": "b"}}}}, {"not": {"uniqueItems": True}},
        {"oneOf": [{"$ref": "#"}, {}]}, {"oneOf": [A, {"$ref": "#/$defs/b", **B}], "$defs": {"b": {}}},
        {"oneOf": [{"$ref": "#/oneOf/1"}, {"type": "string"}]}, {"not": 5}, {"not": {"properties": [1]}},
        {"oneOf": [{"required": 3}, {"required": ["a"]}]}, {"oneOf": [{"enum": [[1]]}, {"enum": {}}]},
        {"oneOf": [{"not": {"required": [f"{n}"]}} for n in range(300)]},
        {"oneOf": [{"const": [1]}, {"const": [1.0]}]}, {"oneOf": [{"enum": [{"a": 1}]}, {"const": {"a": 1.0}}]},
        {"oneOf": [{"$ref": "#/$defs/n"}, {"type": "null"}],
         "$defs": {"n": {"allOf": [{"$ref": "#/$defs/n"}] * 40}}},
        {"oneOf": [{"pattern": f"^{n}*$"} for n in range(200)], "type": "string"},
    ],
    ids=lambda schema: json.dumps(schema)[:60],
)  # fmt: skip
def test_what_cannot_be_said_is_refused(schema):
    with pytest.raises(UsageError, match="cannot be"):
        Grammar.json_schema({"properties": {"x": {"type": "null"}}, **schema}).compiled()


def test_lists_of_many_values_are_told_apart_at_once():
    words = [f"word {n}" for n in range(6000)]
    grammar = Grammar.json_schema({"oneOf": [{"enum": words[:3000]}, {"enum": words[3000:]}]})
    assert accepts(grammar, '"word 17"')
    assert accepts(grammar, '"word 5000"')


def test_large_schemas_are_told_where_they_cannot_be_held():
    many = {f"property {n}": {"type": "null"} for n in range(200)}
    defs = {"$defs": {"n": {"items": {"uniqueItems": True}}, "unused": {"uniqueItems": True}}}
    with pytest.raises(UsageError, match=r"uniqueItems.* at #/\$defs/n/items\)"):
        Grammar.json_schema({"properties": {**many, "a": {"$ref": "#/$defs/n"}}} | defs).compiled()
    with pytest.raises(UsageError, match=r"several branches of its oneOf at #/properties/a\)"):
        Grammar.json_schema({"properties": {**many, "a": {"oneOf": [{}, {"pattern": "a"}]}}}).compiled()
