"""Texts follow their grammar, and are the same with and without drafts."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import draftwood
from draftwood.errors import UsageError
from draftwood.grammar import Grammar
from draftwood.grammar.follower import Follower
from draftwood.grammar.grammar import as_grammar
from draftwood.grammar.vocabulary import vocabulary_of
from tests.cli.conftest import TEMPLATE, save_tiny

SCHEMA = {
    "type": "object",
    "properties": {"a_long_key_of_this_object": {"type": "integer", "minimum": 0, "maximum": 99},
                   "another_long_key": {"enum": ["yes", "no"]}},
    "required": ["a_long_key_of_this_object", "another_long_key"],
    "additionalProperties": False,
}  # fmt: skip
PROMPTS = ["hello", "{", "what is it?"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return draftwood.load(str(save_tiny(tmp_path_factory.mktemp("models") / "tiny", TEMPLATE)))


@pytest.fixture(scope="module")
def vocabulary(loaded):
    return vocabulary_of(loaded[1], len(loaded[1]), frozenset())


def written(loaded, prompt, **settings):
    model, tokenizer = loaded
    given = {"max_new_tokens": 120, "drafters": "ngram", "planner": "fixed:8"} | settings
    return draftwood.generate(model, prompt, tokenizer=tokenizer, **given)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_json_follows_its_schema_and_drafts_change_nothing(loaded, prompt, temperature):
    settings = {"grammar": SCHEMA, "temperature": temperature, "seed": 3}
    drafted, plain = (written(loaded, prompt, drafters=some, **settings) for some in ("ngram", "none"))
    assert drafted.ids == plain.ids
    assert drafted.finish_reason == "eos"
    found = json.loads(drafted.text)
    assert set(found) == set(SCHEMA["required"])
    assert found["another_long_key"] in ("yes", "no")
    assert drafted.sources.count("grammar") > 10
    assert drafted.stats.passes < plain.stats.passes - 10


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        (Grammar.regex("[0-9]{4}-[a-c]+x"), "[0-9]{4}-[a-c]+x"),
        (Grammar.regex("yes|no"), "yes|no"),
        (Grammar.lark('start: "<" ("a" | "b")+ ">"'), "<[ab]+>"),
    ],
)
def test_other_grammars(loaded, grammar, pattern):
    for seed in range(4):
        found = written(loaded, "hello", grammar=grammar, temperature=1.0, seed=seed, max_new_tokens=400)
        assert found.finish_reason == "eos"
        assert re.fullmatch(pattern, found.text)


def test_many_prompts_have_a_grammar_each(loaded):
    many = written(loaded, PROMPTS, grammar=SCHEMA)
    assert [one.ids for one in many] == [written(loaded, prompt, grammar=SCHEMA).ids for prompt in PROMPTS]


def test_an_answer_that_is_cut_is_a_beginning(loaded):
    found = written(loaded, "hello", grammar=SCHEMA, max_new_tokens=9)
    assert (found.finish_reason, found.text) == ("length", '{"a_long_key_of'[:9])


def test_a_conversation_follows_it_turn_by_turn(loaded):
    model, tokenizer = loaded
    with draftwood.Conversation(model, tokenizer=tokenizer, grammar=SCHEMA, max_new_tokens=120) as conversation:
        for text in PROMPTS:
            "".join(piece.text for piece in conversation.say(text))
            assert set(json.loads(conversation.generation.text)) == set(SCHEMA["required"])


def test_a_follower_at_any_place_is_a_fresh_one(vocabulary):
    """The naive twin begins anew at each place."""
    random, follower = np.random.default_rng(0), Follower(as_grammar(SCHEMA), vocabulary)
    paths = [[]]
    for _ in range(150):
        path = list(paths[random.integers(len(paths))])
        path = path[: random.integers(len(path) + 1)]
        fresh = Follower(as_grammar(SCHEMA), vocabulary)
        allowed = follower.allowed(path)
        assert allowed.tolist() == fresh.allowed(path).tolist()
        forced = follower.forced(path, 8)
        assert forced == Follower(as_grammar(SCHEMA), vocabulary).forced(path, 8)
        nexts = [token for token in allowed.tolist() if token not in vocabulary.ends]
        if nexts:
            paths.append([*path, int(random.choice(nexts))])


def test_an_answer_that_left_its_grammar_is_an_error(vocabulary):
    follower = Follower(Grammar.regex("ab"), vocabulary)
    with pytest.raises(UsageError, match="left its grammar"):
        follower.allowed([5, 5])
    assert len(follower.allowed([])) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: Grammar.json_schema("{"), "no JSON"),
        (lambda: Grammar.json_schema("[1]"), "is an object"),
        (lambda: Grammar.regex("("), "cannot be held"),
        (lambda: Grammar.lark("nothing"), "cannot be held"),
        (lambda: Grammar.json_schema({"type": "nonsense"}), "cannot be held"),
        (lambda: Grammar.regex("a" * (1 << 21)), "characters"),
        (lambda: as_grammar(3), "cannot be read"),
    ],
)
def test_what_cannot_be_held_is_refused_before_a_token(given, said):
    with pytest.raises(UsageError, match=said):
        given().compiled()
