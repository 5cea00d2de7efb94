"""What a follower says of nodes and of forced text agrees with the mask, the naive twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.convert_slow_tokenizer import bytes_to_unicode

from draftwood.grammar import Grammar, bitmask
from draftwood.grammar.follower import Follower
from draftwood.grammar.vocabulary import vocabulary_of
from tests.grammar.conftest import END

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
    found, places = set(), {-1: answer}
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        place = places.get(parent)
        if place is None or (place and place[-1] in vocabulary.ends):
            continue
        if token in Follower(grammar, vocabulary).allowed(place):
            found.add(node)
            places[node] = [*place, token]
    return found


def children_of(tokens, parents):
    children = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append((node, tokens[node]))
    return children


@pytest.mark.parametrize("name", GRAMMARS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_fitting_nodes_are_those_of_the_masks(vocabulary, name, seed):
    random, grammar = np.random.default_rng(seed), GRAMMARS[name]
    follower, answer = Follower(grammar, vocabulary), []
    for _ in range(random.integers(12)):
        nexts = [token for token in follower.allowed(answer).tolist() if token not in vocabulary.ends]
        if not nexts:
            break
        answer.append(int(random.choice(nexts)))
    tokens, parents, places = [], [], [answer]
    for node in range(random.integers(1, 16)):  # half of the nodes are allowed, the end token among them
        parent = int(random.integers(-1, node))
        place = places[parent + 1]
        allowed = [] if place is None else Follower(grammar, vocabulary).allowed(place).tolist()
        token = int(
            random.choice(allowed) if allowed and random.random() < 0.7 else random.integers(vocabulary.size)
        )
        is_inner = token in allowed and token not in vocabulary.ends
        places.append([*place, token] if is_inner else None)
        tokens.append(token)
        parents.append(parent)
    found = follower.fitting(answer, children_of(tokens, parents))
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
    assert follower.fitting([], children_of([one, both], [-1, -1])) == {1}


def test_an_end_behind_a_complete_text_stays_and_nothing_behind_it(vocabulary, pieces):
    (end,) = vocabulary.ends
    spell = lambda text: pieces[1](text)["input_ids"]  # noqa: E731
    follower = Follower(Grammar.regex("ab( yes)?"), vocabulary)
    tokens = [*spell("ab"), end, end]
    assert follower.fitting([], children_of(tokens, range(-1, len(tokens) - 1))) == set(range(len(tokens) - 1))
    assert follower.fitting([], children_of([end], [-1])) == set()
    whole = spell("ab yes")
    assert follower.forced(whole, 4) == [end]
    assert follower.fitting(whole, children_of([end, *spell("a")], [-1, -1])) == {0}


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
    words = bitmask.of(tokens.tolist(), size)
    assert bitmask.members(words, size).tolist() == tokens.tolist()
    assert [token for token in range(size) if bitmask.holds(words, token)] == tokens.tolist()
    some, inside = bitmask.smaller_part(words, size)
    assert some.tolist() == (tokens if inside else np.setdiff1d(np.arange(size), tokens)).tolist()
