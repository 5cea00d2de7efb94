"""The flags that hold an answer to a form."""

from __future__ import annotations

import json

import pytest

SCHEMA = (
    '{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false}'
)


def test_json_of_a_schema(draftwood, tiny, tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(SCHEMA, encoding="utf-8")
    for given in (SCHEMA, f"@{file}"):
        ran = draftwood("generate", "hello", "--model", tiny, "--json-schema", given, "--json")
        assert ran.code == 0, ran.err
        assert json.loads(json.loads(ran.out)["text"])["a"] in (1, 2)
    assert draftwood("generate", "hello", "--model", tiny, "--json-schema", SCHEMA).code == 0


def test_an_expression_and_a_grammar(draftwood, tiny):
    for flags in (["--regex", "abc"], ["--grammar", 'start: "abc"']):
        ran = draftwood("generate", "hello", "--model", tiny, *flags, "--json")
        assert json.loads(ran.out)["text"] == "abc"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--regex", "("], "cannot be held"),
        (["--json-schema", "@nowhere.json"], "nowhere.json"),
        (["--json-schema", "{"], "no JSON"),
        (["--regex", "a", "--grammar", "b"], "one of them"),
    ],
)
def test_wrong_ones_are_refused_before_a_model_is_loaded(draftwood, flags, said):
    ran = draftwood("generate", "hello", "--model", "no such model", *flags)
    assert ran.code == 2
    assert said in ran.err
