"""What ``model.generate(custom_generate=decode_with())`` gives back beside the ids: scores, logits, caches."""

import copy

import pytest
import torch
from tests.api.generating import CACHE, PROMPT, ROWS, SETS, batch, drafted, plain, unpadded
from tests.engines.rounding import TOLERANCE
from tests.engines.tiny import build

import draftwood

ALL = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}


@pytest.mark.parametrize("extra", [{}, {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}])
def test_scores_and_logits_per_token(llama, extra):
    theirs = plain(llama, **ALL, **extra)
    ours = drafted(llama, **ALL, **extra)
    assert type(ours) is type(theirs)
    assert torch.equal(ours.sequences, theirs.sequences)
    for name in ("scores", "logits"):
        assert len(ours[name]) == 40
        for mine, other in zip(ours[name], theirs[name], strict=True):
            assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
            torch.testing.assert_close(mine, other, atol=TOLERANCE, rtol=0)
    probabilities = [
        llama.compute_transition_scores(a.sequences, a.scores, normalize_logits=True) for a in (ours, theirs)
    ]
    torch.testing.assert_close(*probabilities, atol=TOLERANCE, rtol=0)


def test_scores_of_a_batch_and_of_rows_that_have_ended(llama):
    inputs, settings = batch(ROWS), {"eos_token_id": 3, "pad_token_id": 7, **ALL}
    theirs, ours = (generate(llama, inputs, **settings) for generate in (plain, drafted))
    start = inputs["input_ids"].shape[1]
    ends = [(row == 3).nonzero() for row in theirs.sequences[:, start:]]
    ends = [int(e[0]) + 1 if len(e) else 40 for e in ends]
    assert torch.equal(ours.sequences, theirs.sequences)
    for index, (mine, other) in enumerate(zip(ours.scores, theirs.scores, strict=True)):
        for row, end in enumerate(ends):
            if index < end:
                torch.testing.assert_close(mine[row], other[row], atol=TOLERANCE, rtol=0)
            else:
                assert mine[row].exp().nonzero().tolist() == [[7]]  # the padding, for certain


def layers(cache):
    return [(layer.keys, layer.values, layer.get_seq_length()) for layer in cache.layers]


def assert_same_cache(ours, theirs):
    for (k, v, n), (tk, tv, tn) in zip(layers(ours), layers(theirs), strict=True):
        assert n == tn
        assert k.shape == tk.shape
        torch.testing.assert_close(k, tk, atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(v, tv, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral-window", "qwen2-window"])
def test_two_turns_of_a_conversation(family):
    model = build(family)
    said = torch.tensor([PROMPT[5:20]])

    def talk(**extra):
        first = plain(model, return_dict_in_generate=True, **extra)
        text = torch.cat([first.sequences, said], 1)
        held = first[CACHE].get_seq_length()
        second = plain(model, unpadded(text), return_dict_in_generate=True, **{CACHE: first[CACHE]}, **extra)
        return held, first, second

    held, _, theirs = talk()
    for name, drafters in SETS.items():
        our_held, our_first, ours = talk(custom_generate=draftwood.decode_with(drafters))
        assert our_held == held == len(PROMPT) + 39
        assert torch.equal(ours.sequences, theirs.sequences), name
        assert ours[CACHE] is our_first[CACHE]
        assert_same_cache(ours[CACHE], theirs[CACHE])


def test_rows_of_a_given_cache_are_not_computed_again(llama):
    from draftwood.engines.transformers.shared import shared_target

    cache = plain(llama, return_dict_in_generate=True)[CACHE]
    for layer in cache.layers:
        layer.keys.zero_()
        layer.values.zero_()
    ids = torch.tensor([PROMPT * 2])
    theirs_cache = copy.deepcopy(cache)
    theirs = plain(llama, unpadded(ids), **{CACHE: theirs_cache})
    ours = drafted(llama, unpadded(ids), **{CACHE: cache})
    assert torch.equal(ours, theirs)  # zeros and all
    assert cache.get_seq_length() == theirs_cache.get_seq_length() == 2 * len(PROMPT) + 39
    assert shared_target(llama).arena is not None


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_batch_goes_on_from_a_cache(family):
    model = build(family)
    inputs = batch(ROWS)

    def talk(**extra):
        first = plain(model, inputs, return_dict_in_generate=True, **extra)
        more = torch.tensor([[7, 8, 9]] * 3)
        text = unpadded(torch.cat([first.sequences, more], 1))
        mask = inputs["attention_mask"]
        text["attention_mask"][:, : mask.shape[1]] = mask
        return plain(model, text, **{CACHE: first[CACHE]}, **extra)

    theirs = talk()
    assert all(torch.equal(talk(custom_generate=draftwood.decode_with(d)), theirs) for d in SETS.values())
