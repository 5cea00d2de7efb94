"""Nodes that a grammar forbids are not scored, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import draftwood
from draftwood.drafters.base import draft_tree
from draftwood.grammar import Grammar
from draftwood.grammar.constraint import Pruner
from draftwood.grammar.follower import Follower
from draftwood.grammar.vocabulary import vocabulary_of
from tests.cli.conftest import TEMPLATE, save_tiny

SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "integer", "minimum": 0, "maximum": 99}, "other": {"enum": ["yes", "no"]}},
    "required": ["key", "other"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return draftwood.load(str(save_tiny(tmp_path_factory.mktemp("models") / "tiny", TEMPLATE)))


def a_follower(tokenizer, grammar):
    return Follower(grammar, vocabulary_of(tokenizer, len(tokenizer), frozenset()))


def a_tree(tokens, parents):
    tokens, parents = (np.array(some, dtype=np.int32) for some in (tokens, parents))
    return draft_tree(tokens, np.zeros_like(tokens), np.full(len(tokens), 0.5, np.float32), parents)


def test_a_forbidden_node_and_all_below_it_go(loaded):
    a, b, c, x = loaded[1]("abcx")["input_ids"]
    pruner = Pruner(a_follower(loaded[1], Grammar.regex("a(b|c)+x")), 3)
    tree = a_tree([a, b, x, c, a, b, b], [-1, 0, 1, 1, 3, 4, -1])
    assert pruner([9, 9, 9], tree).tolist() == [0, 1, 2, 3]
    assert pruner([9, 9, 9, a], tree).tolist() == [6]
    assert pruner([9, 9, 9, a, b, x], tree).tolist() == []


@pytest.mark.parametrize("planner", ["fixed:12", "threshold:0.05", "goodput"])
def test_scored_drafts_follow_the_grammar(loaded, planner):
    model, tokenizer = loaded
    follower = a_follower(tokenizer, Grammar.json_schema(SCHEMA))
    # what tempts the drafters to something forbidden
    context = ['{"key": 1234567, "other": "perhaps"} {"key": 55, "other": "yes", "key": 7}']
    given = {"max_new_tokens": 120, "trace": True, "temperature": 0.7, "planner": planner, "context": context}
    scored = 0
    for seed in range(16):
        with draftwood.stream(
            model, "hello", tokenizer=tokenizer, drafters="ngram+suffix", grammar=SCHEMA, seed=seed, **given
        ) as stream:
            for _ in stream:
                pass
        found = stream.generation
        before = len(found.ids) - sum(len(step.emitted) for step in found.steps)
        for step in found.steps:
            for way in ways(step.trace):
                assert is_allowed(follower, found.ids[:before], way)
                scored += 1
            before += len(step.emitted)
    assert scored > (0 if planner == "goodput" else 50)  # goodput goes by the clock


def is_allowed(follower, answer, way):
    return all(token in follower.allowed([*answer, *way[:at]]) for at, token in enumerate(way))


def ways(trace):
    """The tokens from the root to each node of a scored tree."""
    tokens, parents = trace["tokens"], trace["parents"]
    for node in range(len(tokens)):
        way, at = [], node
        while at >= 0:
            way.insert(0, tokens[at])
            at = parents[at]
        yield way
