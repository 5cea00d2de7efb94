"""A tiny model whose tokens are pieces of words, so that a text can be spelled in several ways."""

from __future__ import annotations

import pytest

from tests.cli.conftest import TEMPLATE, save_tiny

TEXT = [
    '{"key": 12, "other": "yes"}',
    '{"name": "the cat", "colour": "black"}',
    "abc abab bcbc cab 2024",
    "no, yes",
]
END = "<end>"
SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "integer", "minimum": 0, "maximum": 99}, "other": {"enum": ["yes", "no"]}},
    "required": ["key", "other"],
    "additionalProperties": False,
}


def load_pieces(ends: bool):
    """A random Llama and its tokenizer, with or without an end token."""
    import torch
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    pieces = Tokenizer(BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    how = {"initial_alphabet": letters, "special_tokens": [END], "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=330, **how)
    pieces.train_from_iterator(TEXT * 5, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, eos_token=END if ends else None)
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, initializer_range=0.5,
        eos_token_id=None, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval(), tokenizer


@pytest.fixture(scope="session")
def letters(tmp_path_factory):
    """A model with a token per letter."""
    import draftwood

    return draftwood.load(str(save_tiny(tmp_path_factory.mktemp("models") / "tiny", TEMPLATE)))


@pytest.fixture(scope="session")
def pieces():
    return load_pieces(ends=True)


@pytest.fixture(scope="session")
def endless():
    return load_pieces(ends=False)
