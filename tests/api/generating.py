"""What the tests of `decode_with` share: prompts, settings, a tokenizer, and the comparison with transformers."""

from __future__ import annotations

import numpy as np
import torch
from tests.toys import RandomDrafter
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import LogitsProcessor, PreTrainedTokenizerFast

import draftwood
from draftwood.engines.transformers.families import cache_name

PROMPT = np.random.default_rng(5).integers(0, 64, 24).tolist() * 2
ROWS = [PROMPT, PROMPT[3:40], PROMPT[10:27] * 2]
SETS = {"none": "none", "chain": "ngram", "tree": ["ngram", RandomDrafter(64)]}
CACHE = cache_name(())  # the argument, and field of the answer
GREEDY = {"do_sample": False, "max_new_tokens": 40, "pad_token_id": 0}

SETTINGS = {
    "repetition_penalty": {"repetition_penalty": 1.3},
    "no_repeat_ngram": {"no_repeat_ngram_size": 3},
    "min_new_tokens": {"min_new_tokens": 30, "eos_token_id": list(range(32))},
    "bad_words": {"bad_words_ids": [[5], [7, 8], *([i] for i in range(20, 30))]},
    "forced_eos": {"forced_eos_token_id": 9, "eos_token_id": 9},
    "suppress": {"suppress_tokens": list(range(30)), "begin_suppress_tokens": list(range(40, 60))},
    "sequence_bias": {"sequence_bias": [[[3], 4.0], [[4, 5], -7.0]]},
    "decay": {"exponential_decay_length_penalty": (5, 1.5), "eos_token_id": 11},
    "encoder": {"encoder_repetition_penalty": 1.4, "encoder_no_repeat_ngram_size": 2},
    "renormalize": {"renormalize_logits": True, "repetition_penalty": 0.8},
    "max_length": {"max_new_tokens": None, "max_length": len(PROMPT) + 11},
    "max_time": {"max_time": 3600.0},
    "no_cache": {"use_cache": False},
    "chunks": {"prefill_chunk_size": 7},
    "static": {"cache_implementation": "static"},
}


def batch(rows, pad=0):
    """Ids and attention mask of prompts, padded on the left."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


ONE = batch([PROMPT])


def unpadded(ids):
    """Ids of which none is padding, whatever they are."""
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def plain(model, inputs=ONE, **settings):
    """What the model generates by itself."""
    return model.generate(**inputs, **GREEDY | settings)


def drafted(model, inputs=ONE, decoding=None, **settings):
    """What it generates through us."""
    return plain(model, inputs, **settings, custom_generate=decoding or draftwood.decode_with())


def same(model, inputs=ONE, **settings):
    """Generate with and without us; the ids must be equal."""
    theirs = plain(model, inputs, **settings)
    for name, drafters in SETS.items():
        ours = drafted(model, inputs, draftwood.decode_with(drafters), **settings)
        assert torch.equal(ours, theirs), name
        assert (ours.dtype, ours.device) == (theirs.dtype, theirs.device)
    return theirs


class Every(LogitsProcessor):
    """Stateful: forbids the best token at every third call."""

    def __init__(self, third=3):
        self.calls, self.third = 0, third

    def __call__(self, input_ids, scores):
        self.calls += 1
        if self.calls % self.third == 0:
            scores[torch.arange(len(scores)), scores.argmax(-1)] = -torch.inf
        return scores


LETTERS = [chr(c) for c in range(63, 127)]


def speller() -> PreTrainedTokenizerFast:
    """Token i is the i-th sign from the question mark on."""
    words = Tokenizer(BPE({letter: i for i, letter in enumerate(LETTERS)}, [], unk_token="?"))
    words.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=words)
