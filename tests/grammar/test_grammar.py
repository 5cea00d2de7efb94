"""Texts follow their grammar, are the same with and without drafts, and end where it is complete."""

import json
import re

import numpy as np
import pytest

import draftwood
from draftwood.errors import DraftwoodError, UsageError
from draftwood.grammar.follower import Follower
from draftwood.grammar.grammar import Grammar, as_grammar
from draftwood.grammar.vocabulary import vocabulary_of
from tests.grammar.conftest import SCHEMA

PROMPTS = ["hello", "{", "what is it?"]


def written(loaded, prompt="hello", **settings):
    model, tokenizer = loaded
    given = {"max_new_tokens": 120, "drafters": "ngram", "planner": "fixed:8", "grammar": SCHEMA} | settings
    return draftwood.generate(model, prompt, tokenizer=tokenizer, **given)


@pytest.fixture
def loaded(request):
    """A model by its fixture's name: with a token per letter, with pieces of words, and without an end token."""
    return request.getfixturevalue(request.param)


MODELS = pytest.mark.parametrize("loaded", ["letters", "pieces", "endless"], indirect=True)


@MODELS
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_json_follows_its_schema_and_drafts_change_nothing(loaded, prompt, temperature, request):
    settings = {"temperature": temperature, "seed": 3}
    drafted, plain = (written(loaded, prompt, drafters=some, **settings) for some in ("ngram", "none"))
    assert drafted.ids == plain.ids
    end = loaded[1].eos_token_id
    assert drafted.finish_reason == plain.finish_reason == ("stop" if end is None else "eos")
    found = json.loads(drafted.text)
    assert list(found) == SCHEMA["required"]
    assert found["other"] in ("yes", "no")
    assert drafted.sources.count("grammar") > 3
    assert drafted.stats.passes < plain.stats.passes - 3
    if end is not None:
        assert (drafted.ids[-1], drafted.sources[-1]) == (end, "grammar")


@pytest.mark.parametrize("loaded", ["letters", "endless"], indirect=True)
@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        (Grammar.regex("[0-9]{4}-[a-c]+x"), "[0-9]{4}-[a-c]+x"),
        (Grammar.regex("yes|no"), "yes|no"),
        (Grammar.regex("(ab){5}"), "(ab){5}"),
        (Grammar.lark('start: "<" ("a" | "b")+ ">"'), "<[ab]+>"),
    ],
)
def test_other_grammars(loaded, grammar, pattern):
    for seed in range(3):
        found = written(loaded, grammar=grammar, temperature=1.0, seed=seed, max_new_tokens=400)
        assert found.finish_reason in ("eos", "stop")
        assert re.fullmatch(pattern, found.text)


def test_a_text_without_an_end_token_goes_on_while_it_may(endless):
    """Nothing can choose an end before the grammar leaves nothing else."""
    found = written(endless, grammar=Grammar.regex("(ab){2,5}"), temperature=1.0)
    assert (found.text, found.finish_reason) == ("ababababab", "stop")
    with pytest.raises(DraftwoodError, match="none that ends a text"):
        written(endless, grammar=Grammar.regex(""))


def test_an_answer_that_is_cut_is_a_beginning(letters):
    found = written(letters, max_new_tokens=6)
    assert (found.finish_reason, found.text) == ("length", '{"key"')


def test_a_follower_at_any_place_is_a_fresh_one(letters):
    """The naive twin begins anew at each place."""
    vocabulary = vocabulary_of(letters[1], len(letters[1]), frozenset())
    random, follower, fresh = np.random.default_rng(0), *(Follower(as_grammar(SCHEMA), vocabulary) for _ in "ab")
    paths = [[]]
    for _ in range(150):
        path = list(paths[random.integers(len(paths))])
        path = path[: random.integers(len(path) + 1)]
        allowed = follower.allowed(path)
        assert allowed.tolist() == fresh.twin().allowed(path).tolist()
        assert follower.forced(path, 8) == fresh.twin().forced(path, 8)
        nexts = [token for token in allowed.tolist() if token not in vocabulary.ends]
        if nexts:
            paths.append([*path, int(random.choice(nexts))])


def test_an_answer_that_left_its_grammar_is_an_error(letters):
    follower = Follower(Grammar.regex("ab"), vocabulary_of(letters[1], len(letters[1]), frozenset()))
    with pytest.raises(UsageError, match="left its grammar"):
        follower.allowed([5, 5])
    assert len(follower.allowed([])) == 1


@pytest.mark.parametrize("more", [0, 1, 40])
def test_no_row_has_a_score_for_the_end_that_is_added(endless, more):
    size = len(endless[1]) + more
    vocabulary = vocabulary_of(endless[1], size, frozenset())
    allowed = Follower(Grammar.regex(".*"), vocabulary).allowed([])
    assert vocabulary.ends == frozenset()
    assert len(allowed)
    assert allowed.max() < len(endless[1])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: Grammar.json_schema("{"), "no JSON"),
        (lambda: Grammar.json_schema("[1]"), "is an object"),
        (lambda: Grammar.regex("("), "cannot be used"),
        (lambda: Grammar.lark("nothing"), "cannot be used"),
        (lambda: Grammar.json_schema({"type": "nonsense"}), "cannot be used"),
        (lambda: Grammar.regex("a" * (1 << 21)), "characters"),
        (lambda: as_grammar(3), "cannot be read"),
    ],
)
def test_what_cannot_be_held_is_refused_before_a_token(given, said):
    with pytest.raises(UsageError, match=said):
        given().compiled()
