"""What a follower says of nodes and of forced text agrees with the mask, the naive twin; others are not scored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.convert_slow_tokenizer import bytes_to_unicode

import draftwood
from draftwood.grammar.follower import Follower
from draftwood.grammar.grammar import Grammar
from draftwood.grammar.vocabulary import holds, members, vocabulary_of, words_of
from draftwood.tree import TokenTree
from tests.grammar.conftest import END, SCHEMA

GRAMMARS = {
    "json": Grammar.json_schema({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "key": {"type": "integer"},
                       "colour": {"enum": ["black", "blue", "by"]}},
        "required": ["name", "key", "colour"],
        "additionalProperties": False,
    }),
    "object": Grammar.json_object(),
    "regex": Grammar.regex("(ab|abab|abc){1,4}( yes| no)?"),
    "lark": Grammar.lark('start: ("a" | "abc") "the cat"+ /[0-9]*/ "black"?'),
    "bytes": Grammar.regex("(é|ü|日本)+x?"),
}  # fmt: skip


class Plain:
    """A tokenizer that is none of transformers, as that of a GGUF file."""

    bos_token_id = None

    def __init__(self, tokenizer):
        self._tokenizer, self.eos_token_id = tokenizer, tokenizer.eos_token_id
        self.all_special_ids = tokenizer.all_special_ids

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": self._tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]}

    def __len__(self):
        return len(self._tokenizer)

    def token_bytes(self):
        as_bytes = {letter: byte for byte, letter in bytes_to_unicode().items()}
        names = self._tokenizer.convert_ids_to_tokens(list(range(len(self))))
        return [bytes([as_bytes[letter] for letter in name]) if name != END else b"<end>" for name in names]


@pytest.fixture(scope="module", params=["transformers", "other"])
def vocabulary(request, pieces):
    tokenizer = pieces[1] if request.param == "transformers" else Plain(pieces[1])
    return vocabulary_of(tokenizer, len(tokenizer), frozenset())


def naive_fitting(grammar, vocabulary, answer, tokens, parents):
    """A fresh follower's whole mask at every node."""
    found, places, fresh = set(), {-1: answer}, Follower(grammar, vocabulary)
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        place = places.get(parent)
        if place is None or (place and place[-1] in vocabulary.ends):
            continue
        if token in fresh.twin().allowed(place):
            found.add(node)
            places[node] = [*place, token]
    return found


def fitting(follower, answer, tokens, parents):
    tokens, parents = (np.array(some, dtype=np.int32) for some in (tokens, parents))
    tree = TokenTree.build(tokens, parents, belief=0.5)
    return set(follower.fitting(answer, tree).tolist())


@pytest.mark.parametrize("name", GRAMMARS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_fitting_nodes_are_those_of_the_masks(vocabulary, name, seed):
    random, grammar = np.random.default_rng(seed), GRAMMARS[name]
    follower, fresh, answer = Follower(grammar, vocabulary), Follower(grammar, vocabulary), []
    for _ in range(random.integers(12)):
        nexts = [token for token in follower.allowed(answer).tolist() if token not in vocabulary.ends]
        if not nexts:
            break
        answer.append(int(random.choice(nexts)))
    tokens, parents, places = [], [], [answer]
    for node in range(random.integers(1, 16)):  # half of the nodes are allowed, the end token among them
        parent = int(random.integers(-1, node))
        place = places[parent + 1]
        allowed = [] if place is None else fresh.twin().allowed(place).tolist()
        among = allowed if allowed and random.random() < 0.7 else vocabulary.size
        token = int(random.choice(among))
        is_inner = token in allowed and token not in vocabulary.ends
        places.append([*place, token] if is_inner else None)
        tokens.append(token)
        parents.append(parent)
    found = fitting(follower, answer, tokens, parents)
    assert found == naive_fitting(grammar, vocabulary, answer, tokens, parents)
    assert follower.mask(answer).tolist() == Follower(grammar, vocabulary).mask(answer).tolist()


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_forced_token_is_the_only_one_of_its_mask(vocabulary, name):
    random, follower, seen = np.random.default_rng(4), Follower(GRAMMARS[name], vocabulary), 0
    for _ in range(20):
        answer = []
        while len(answer) < 40:
            place = list(answer)
            for token in follower.forced(answer, 16):
                assert follower.allowed(place).tolist() == [token]
                place.append(token)
                seen += 1
            token = int(random.choice(follower.allowed(answer)))
            if token in vocabulary.ends:
                break
            answer.append(token)
    assert seen > 20 or name in ("object", "bytes")


def test_a_spelling_that_the_mask_forbids_is_none_of_the_nodes(vocabulary, pieces):
    """A JSON text may begin with ``{`` and then ``"``; the mask wants both in one token, where there is one."""
    spell = lambda text: pieces[1](text)["input_ids"]  # noqa: E731
    (both,), one = spell('{"'), spell("{")[0]
    follower = Follower(GRAMMARS["json"], vocabulary)
    assert follower.allowed([]).tolist() == [both]
    assert fitting(follower, [], [one, both], [-1, -1]) == {1}


def test_an_end_behind_a_complete_text_stays_and_nothing_behind_it(vocabulary, pieces):
    (end,) = vocabulary.ends
    spell = lambda text: pieces[1](text)["input_ids"]  # noqa: E731
    follower = Follower(Grammar.regex("ab( yes)?"), vocabulary)
    tokens = [*spell("ab"), end, end]
    assert fitting(follower, [], tokens, range(-1, len(tokens) - 1)) == set(range(len(tokens) - 1))
    assert fitting(follower, [], [end], [-1]) == set()
    whole = spell("ab yes")
    assert follower.forced(whole, 4) == [end]
    assert fitting(follower, whole, [end, *spell("a")], [-1, -1]) == {0}


def test_likely_spellings_are_allowed_and_spell_forced_text(vocabulary, pieces):
    follower = Follower(Grammar.regex("ab ?(cat|cab)"), vocabulary)
    answer = follower.forced([], 9)
    likely = follower.likely(answer, 9)
    assert "ab cat".startswith(pieces[1].decode(answer + likely))
    follower.mask(answer + likely)


@given(st.integers(1, 200), st.integers(0, 1 << 30))
def test_sets_of_tokens(size, seed):
    random = np.random.default_rng(seed)
    tokens = np.flatnonzero(random.random(size) < random.random())
    words = words_of(tokens.tolist(), size)
    assert members(words, size).tolist() == tokens.tolist()
    assert [token for token in range(size) if holds(words, token)] == tokens.tolist()
    assert members(~words, size).tolist() == np.setdiff1d(np.arange(size), tokens).tolist()


# Nodes that a grammar forbids are not scored, and nothing else changes.


def a_follower(tokenizer, grammar):
    return Follower(grammar, vocabulary_of(tokenizer, len(tokenizer), frozenset()))


def test_a_forbidden_node_and_all_below_it_go(letters):
    a, b, c, x = letters[1]("abcx")["input_ids"]
    follower, tree = (
        a_follower(letters[1], Grammar.regex("a(b|c)+x")),
        ([a, b, x, c, a, b, b], [-1, 0, 1, 1, 3, 4, -1]),
    )
    for answer, nodes in (([], {0, 1, 2, 3}), ([a], {6}), ([a, b, x], set())):
        assert fitting(follower, answer, *tree) == nodes


@pytest.mark.parametrize("planner", ["fixed:12", "threshold:0.05", "goodput"])
def test_scored_drafts_follow_the_grammar(letters, planner):
    model, tokenizer = letters
    follower = a_follower(tokenizer, Grammar.json_schema(SCHEMA))
    # what tempts the drafters to something forbidden
    context = ['{"key": 1234567, "other": "perhaps"} {"key": 55, "other": "yes", "key": 7}']
    given = {"max_new_tokens": 120, "trace": True, "temperature": 0.7, "planner": planner, "context": context}
    scored = 0
    for seed in range(6):
        with draftwood.stream(
            model, "hello", tokenizer=tokenizer, drafters="ngram+lookup", grammar=SCHEMA, seed=seed, **given
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
    assert scored > (0 if planner == "goodput" else 20)  # goodput goes by the clock


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
