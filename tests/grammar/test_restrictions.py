"""Parts of JSON Schemas that restrict no text are left out, and nothing else is."""

import json
from typing import Annotated

import pytest
from pydantic import AwareDatetime, Base64Bytes, BaseModel, Field, FilePath, IPvAnyNetwork, SecretStr, TypeAdapter

from draftwood.errors import UsageError
from draftwood.grammar.calls import CallParts, Json, forced
from draftwood.grammar.grammar import Grammar
from tests.grammar.test_schemas import accepts

IDLE = [
    {"type": "string", "format": "no-such-format"}, {"type": "array", "uniqueItems": False},
    {"type": "object", "propertyNames": {"type": "string", "description": "a name"}},
    {"type": "object", "propertyNames": True}, {"type": "array", "minContains": 1},
    {"type": "array", "contains": {"type": "string"}, "minContains": 0}, {"if": {}, "then": {"title": "x"}},
    {"then": {"type": "string"}}, {"not": False}, {"dependentRequired": {"a": []}},
    {"dependencies": {"a": {"$comment": "none"}}}, {"type": "object", "unevaluatedProperties": True},
    {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 1},
    {"type": "number", "maximum": 3.4028234663852886e38},
    {"$ref": "#/components/schemas/Name", "components": {"schemas": {"Name": {"format": "no-such-format"}}}},
    {"$defs": {"a": {"allOf": [{"format": "b"}], "items": [{"format": "c"}, {"$ref": "#/$defs/a"}]}},
     "$ref": "#/$defs/a"},
]  # fmt: skip
HELD = [
    {"type": "array", "uniqueItems": True}, {"type": "object", "propertyNames": {"pattern": "^a"}},
    {"not": {"pattern": "a"}},
    {"type": "array", "contains": {"type": "string"}}, {"if": {"type": "integer"}, "then": {"minimum": 1}},
    {"type": "array", "contains": {}, "minContains": 0, "maxContains": 2},
    {"type": "object", "unevaluatedProperties": False}, {"type": "integer", "minimum": -(2**63) - 1},
    {"oneOf": [{"type": "string"}, {"type": "string", "pattern": "a"}]},
]  # fmt: skip


@pytest.mark.parametrize("schema", IDLE, ids=json.dumps)
def test_what_restricts_no_text_is_left_out(schema):
    before = json.dumps(schema)
    assert Grammar.json_schema(schema).compiled()
    assert json.dumps(schema) == before  # it is the caller's


@pytest.mark.parametrize("schema", HELD, ids=json.dumps)
def test_what_restricts_and_cannot_be_held_is_refused_with_its_place(schema):
    with pytest.raises(UsageError, match=" at #/properties/x"):
        Grammar.json_schema({"type": "object", "properties": {"x": schema}}).compiled()


def test_properties_may_have_the_names_of_notes():
    names = {"title": {"type": "integer"}, "default": {"format": "no-such-format", "type": "string"}}
    grammar = Grammar.json_schema({"type": "object", "properties": names, "required": list(names)})
    assert accepts(grammar, '{"title": 1, "default": "a"}')
    assert not accepts(grammar, '{"title": "a", "default": "a"}')
    told = {"const": {"title": "a", "default": 1}}
    assert accepts(Grammar.json_schema(told), '{"title": "a", "default": 1}')


def test_a_known_format_is_held():
    grammar = Grammar.json_schema({"type": "string", "format": "date"})
    assert accepts(grammar, '"2026-11-28"')
    assert not accepts(grammar, '"soon"')


def test_notes_do_not_count_against_the_size():
    told = {"type": "string", "description": "x" * 100_000}
    assert len(Grammar.json_schema({"anyOf": [told, {"type": "null", "title": "y" * 100_000}]}).text) < 100
    calls = {"look": [Json({"type": "object", "properties": {"x": told}})]}
    assert len(forced(CallParts(calls, "", "", "", {})).text) < 400


class Everything(BaseModel):
    secret: SecretStr
    path: FilePath
    data: Base64Bytes
    net: IPvAnyNetwork
    at: AwareDatetime
    count: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    scores: dict[str, Annotated[float, Field(description="a score")]]


def test_schemas_that_pydantic_writes_are_held():
    assert Grammar.json_schema(TypeAdapter(Everything).json_schema()).compiled()
