"""Comparing vocabularies token by token, and seeing a tokenizer's tokens as bytes."""

from __future__ import annotations

from random import Random

import pytest
from tests.drafters.draft_model.random_tokenizers import KINDS, random_tokenizer
from tests.drafters.draft_model.translation_story import LOSSLESS, LOSSY
from tests.tiers import rest_is_slow

from draftwood.drafters.draft_model.tokenizer_view import tokens_of
from draftwood.drafters.draft_model.vocabulary import Tokens, check_reversible, compare
from draftwood.errors import VocabularyError


def tokens(*pieces):
    return Tokens(pieces=[piece if piece is None else piece.encode() for piece in pieces], encode=lambda _: [])


def test_rows_without_a_token_do_not_count():
    found = compare(tokens("a", "b", None, None), tokens("a", "b", "c"))
    assert found.same
    assert (found.shared, found.only_target) == (2, 0)
    assert str(found) == "both models share 2 tokens; 0 only the target has"
    assert not compare(tokens("a"), tokens(None, "b")).same
    assert not compare(tokens(), tokens()).same


def test_differences_are_found_and_the_first_are_named():
    found = compare(tokens("a", "b", "c", "d", "e", "f"), tokens("a", "x", "y", "z", "w", "f", "g"))
    assert not found.same
    assert [token for token, _, _ in found.differences] == [1, 2, 3, 4]
    assert str(found).startswith("4 of 6 ids differ: 1 is 'b' for the target and 'x' for the draft model; 2 is")
    assert str(found).endswith("; ...")


@pytest.mark.parametrize("kind", rest_is_slow(KINDS, "bytes", "gemma", "metaspace-always", "wordpiece"))
def test_pieces_of_an_encoded_text_are_the_text(kind):
    for seed in range(10):
        view = tokens_of(random_tokenizer(Random(seed), kind))
        assert compare(view, view).same
        if kind in LOSSY:
            with pytest.raises(VocabularyError, match="does not give back the text that it reads"):
                check_reversible(view, "the draft model")
        elif kind in LOSSLESS:
            text = "x 🙂 中文\n\n  don't"
            read = b"".join(view.pieces[token] for token in view.encode(text)).decode()
            assert read == (text if view.prefix == b"" else " " + text)
            assert view.prefix == (b"" if kind in ("bytes", "bytes-digits", "gemma") else b" ")


def test_special_tokens_have_roles_by_name_before_settings():
    tokenizer = random_tokenizer(Random(0), "bytes")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<end>"]})
    tokenizer.bos_token, tokenizer.eos_token = "<|im_start|>", "<end>"
    view = tokens_of(tokenizer)
    start, end, other = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>", "<end>"])
    roles = {token: role for role, ids in view.roles.items() for token in ids}
    assert (roles[start], roles[end], roles[other]) == ("turn_start", "turn_end", "end")
    assert view.pieces[end] == b"<|im_end|>"
    assert {start, end, other} <= view.special


def test_rows_cut_the_vocabulary():
    tokenizer = random_tokenizer(Random(0), "bytes")
    assert len(tokens_of(tokenizer, rows=100).pieces) == 100
    assert len(tokens_of(tokenizer, rows=10**6).pieces) == len(tokenizer)


def test_a_callers_padding_and_truncation_do_not_matter():
    tokenizer = random_tokenizer(Random(1), "bytes")
    view = tokens_of(tokenizer)
    expected = list(view.encode("the cat"))
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer("a", padding="max_length", max_length=32, truncation=True)
    assert list(view.encode("the cat")) == expected


def test_the_tokens_before_a_text_are_known():
    from tokenizers.processors import TemplateProcessing

    tokenizer = random_tokenizer(Random(3), "bytes")
    assert tokens_of(tokenizer).opening == ()
    tokenizer.add_special_tokens({"bos_token": "<begin>"})
    begin = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<begin> $A", special_tokens=[("<begin>", begin)]
    )
    assert tokens_of(tokenizer).opening == (begin,)


@pytest.mark.smollm2
def test_smollm2_is_the_same_in_both_engines():
    pytest.importorskip("xllamacpp")
    from draftwood.models.load import load_tokenizer

    ours, theirs = (
        tokens_of(load_tokenizer("smollm2", engine=engine)) for engine in ("transformers", "llama.cpp")
    )
    found = compare(ours, theirs)
    assert found.same
    assert found.shared == 49152
    assert ours.roles == theirs.roles
    text = "<|im_start|>user\nHello 🙂 12"
    assert list(ours.encode(text)) == list(theirs.encode(text))


def test_a_sentencepiece_file_of_llama_cpp(tmp_path):
    pytest.importorskip("xllamacpp")
    from tests.engines.tiny_vocabulary import write_vocabulary

    from draftwood.engines.llama_cpp.tokenizer import LlamaTokenizer
    from draftwood.engines.llama_cpp.weights import Weights

    view = tokens_of(LlamaTokenizer(Weights(write_vocabulary(tmp_path / "v.gguf"), vocabulary_only=True)))
    assert view.prefix == b" "
    assert view.pieces[3 + 0xF0] == b"\xf0"
    assert (view.roles["begin"], view.roles["end"]) == ({1}, {2})
    assert len(view.pieces) == 3 + 256 + 7 + 1
