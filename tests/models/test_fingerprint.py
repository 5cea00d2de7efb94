"""The fingerprint of a tokenizer, which is kept while the tokenizer is the same, and lives."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from time import sleep

from draftwood.engines.tokens import fingerprint
from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint


class Tokenizer:
    def __init__(self, *tokens):
        self.vocab = {token: i for i, token in enumerate(tokens)}
        self.asked = 0

    def __len__(self):
        return len(self.vocab)

    def get_vocab(self):
        self.asked += 1
        return dict(reversed(self.vocab.items()))


class Unhashable(Tokenizer):
    __hash__ = None


def test_a_fingerprint_is_a_hash_of_the_vocabulary():
    wanted = hashlib.sha256(repr([("b", 0), ("a", 1)]).encode()).hexdigest()[:16]
    assert tokenizer_fingerprint(Tokenizer("b", "a")) == wanted
    assert tokenizer_fingerprint(Unhashable("b", "a")) == wanted
    assert tokenizer_fingerprint(Tokenizer("a", "b")) != wanted


def test_a_fingerprint_is_remembered_until_tokens_are_added_or_the_tokenizer_goes():
    before = len(fingerprint._known)
    tokenizer = Tokenizer("a", "b")
    first = tokenizer_fingerprint(tokenizer)
    assert tokenizer_fingerprint(tokenizer) == first
    assert tokenizer.asked == 1
    tokenizer.vocab["c"] = 2
    assert tokenizer_fingerprint(tokenizer) != first
    del tokenizer
    assert len(fingerprint._known) == before


def test_of_a_tokenizer_the_latest_few_things_are_kept():
    tokenizer, asked = Tokenizer("a"), []
    for number in (*range(20), 19, 0):
        found = fingerprint.remembered(tokenizer, f"thing {number}", 1, lambda _, n=number: asked.append(n) or n)
        assert found == number
    assert asked == [*range(20), 0]
    assert len(fingerprint._known[tokenizer][1]) == fingerprint._MOST


def test_threads_that_ask_at_once_have_it_found_once():
    class Slow(Tokenizer):
        def get_vocab(self):
            sleep(0.05)
            return super().get_vocab()

    tokenizer = Slow("a")
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(tokenizer_fingerprint, [tokenizer] * 4))) == 1
    assert tokenizer.asked == 1
