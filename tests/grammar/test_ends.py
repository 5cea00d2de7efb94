"""Texts of models without an end token end where their grammar is complete."""

from __future__ import annotations

import json

import pytest

import draftwood
from draftwood.errors import DraftwoodError
from draftwood.grammar import Grammar
from draftwood.grammar.follower import Follower
from draftwood.grammar.vocabulary import vocabulary_of

SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "integer", "minimum": 0, "maximum": 99}, "other": {"enum": ["yes", "no"]}},
    "required": ["key", "other"],
    "additionalProperties": False,
}


def written(loaded, **settings):
    model, tokenizer = loaded
    given = {"max_new_tokens": 60, "grammar": SCHEMA, "planner": "fixed:8"} | settings
    return draftwood.generate(model, "hello", tokenizer=tokenizer, **given)


@pytest.mark.parametrize("which", ["pieces", "endless"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_complete_text_ends_with_and_without_an_end_token(which, temperature, request):
    loaded = request.getfixturevalue(which)
    settings = {"temperature": temperature, "seed": 5}
    drafted, plain = (written(loaded, drafters=some, **settings) for some in ("ngram", "none"))
    assert drafted.ids == plain.ids
    assert drafted.finish_reason == plain.finish_reason == ("eos" if which == "pieces" else "stop")
    assert set(json.loads(drafted.text)) == {"key", "other"}
    assert drafted.stats.passes < plain.stats.passes - 3


def test_the_end_token_is_drafted(pieces):
    found = written(pieces, drafters="ngram")
    assert found.ids[-1] == pieces[1].eos_token_id
    assert found.sources[-1] == "grammar"


def test_many_texts_without_an_end_token(endless):
    model, tokenizer = endless
    given = {"tokenizer": tokenizer, "max_new_tokens": 60, "grammar": SCHEMA, "drafters": "ngram"}
    many = draftwood.generate(model, ["hello", "{", "no"], **given)
    assert [one.ids for one in many] == [
        draftwood.generate(model, prompt, **given).ids for prompt in ("hello", "{", "no")
    ]
    assert {one.finish_reason for one in many} == {"stop"}


def test_a_text_that_may_go_on_goes_on(endless):
    """Nothing can choose an end before the grammar leaves nothing else."""
    found = written(endless, grammar=Grammar.regex("(ab){2,5}"), temperature=1.0)
    assert (found.text, found.finish_reason) == ("ababababab", "stop")


def test_an_empty_text_without_an_end_token_is_an_error(endless):
    with pytest.raises(DraftwoodError, match="none that ends a text"):
        written(endless, grammar=Grammar.regex(""))


@pytest.mark.parametrize("more", [0, 1, 40])
def test_no_row_has_a_score_for_the_end_that_is_added(endless, more):
    size = len(endless[1]) + more
    vocabulary = vocabulary_of(endless[1], size, frozenset())
    follower = Follower(Grammar.regex(".*"), vocabulary)
    allowed = follower.allowed([])
    assert vocabulary.ends == frozenset()
    assert len(allowed)
    assert allowed.max() < len(endless[1])
