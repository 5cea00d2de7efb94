"""Weights that change between two turns: what drafts by them changes with them, or the turn fails as a whole."""

import pytest
import torch
from tests.api.fake import TOKENIZER, TOKENS
from tests.engines.tiny import SHAPE
from transformers import LlamaConfig, LlamaForCausalLM

import draftwood
from draftwood.engines.transformers.target import TransformersTarget


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SHAPE | {"vocab_size": len(TOKENS)})).eval()


def change(model):
    with torch.no_grad():
        model.model.layers[2].mlp.down_proj.weight.mul_(-1)


def said(conversation, text):
    for _ in conversation.say(text):
        pass
    return conversation.generation.ids


def fresh(model, conversation):
    return draftwood.generate(
        model, conversation.messages[:-1], tokenizer=TOKENIZER, drafters="none", max_new_tokens=12
    ).ids


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_turn_that_fails_while_drafters_are_renewed_leaves_no_stale_cache(model, monkeypatch, error):
    with draftwood.Conversation(
        model, tokenizer=TOKENIZER, drafters="early-exit:layers=2", max_new_tokens=12
    ) as talk:
        said(talk, "ab a")
        change(model)
        with monkeypatch.context() as broken:

            def fails(*_):
                raise error

            broken.setattr(TransformersTarget, "early_exit", fails)
            with pytest.raises(error):
                said(talk, "b")
        assert said(talk, "ab") == fresh(model, talk)
        assert said(talk, "ba") == fresh(model, talk)
