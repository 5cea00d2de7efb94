"""The fingerprint of a tokenizer."""

from __future__ import annotations

import hashlib

from draftwood.models.fingerprint import tokenizer_fingerprint


class Tokenizer:
    def __init__(self, *tokens):
        self.vocab = {token: i for i, token in enumerate(tokens)}
        self.asked = 0

    def __len__(self):
        return len(self.vocab)

    def get_vocab(self):
        self.asked += 1
        return dict(reversed(self.vocab.items()))


class Plain(Tokenizer):
    __slots__ = ()
    __hash__ = None


def test_it_is_a_hash_of_the_vocabulary():
    wanted = hashlib.sha256(repr([("b", 0), ("a", 1)]).encode()).hexdigest()[:16]
    assert tokenizer_fingerprint(Tokenizer("b", "a")) == wanted
    assert tokenizer_fingerprint(Plain("b", "a")) == wanted
    assert tokenizer_fingerprint(Tokenizer("a", "b")) != wanted


def test_it_is_remembered_until_tokens_are_added():
    tokenizer = Tokenizer("a", "b")
    first = tokenizer_fingerprint(tokenizer)
    assert tokenizer_fingerprint(tokenizer) == first
    assert tokenizer.asked == 1
    tokenizer.vocab["c"] = 2
    assert tokenizer_fingerprint(tokenizer) != first
