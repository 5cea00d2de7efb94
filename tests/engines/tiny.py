"""Tiny random models of the supported families: every architecture, no weights from anywhere."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from draftwood.tree import TokenTree

SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.5,  # large, so that random texts are far from ties
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}

FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SHAPE)),
    "llama-multi-head": (LlamaForCausalLM, LlamaConfig(**SHAPE | {"num_key_value_heads": 4})),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SHAPE)),
    "qwen2-window": (
        Qwen2ForCausalLM,
        Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1),
    ),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, head_dim=16)),
    "mistral": (MistralForCausalLM, MistralConfig(**SHAPE, sliding_window=None)),
    "mistral-window": (MistralForCausalLM, MistralConfig(**SHAPE, sliding_window=8)),
    "gemma3": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            **SHAPE,
            head_dim=16,
            sliding_window=8,
            query_pre_attn_scalar=16,
            sliding_window_pattern=3,
            tie_word_embeddings=False,
        ),
    ),
}


def build(family: str, seed: int = 0) -> Any:
    """A model of this family with random weights, in eval mode."""
    torch.manual_seed(seed)
    kind, config = FAMILIES[family]
    return kind(copy.deepcopy(config)).eval()  # a model may be given another attention later


def continued(model: Any, prompt: list[int], **settings: Any) -> list[int]:
    """The greedy text of transformers itself after a prompt."""
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0, **settings)
    return out[0, len(prompt) :].tolist()


def scores_of_texts(model: Any, texts: Sequence[list[int]]) -> NDArray[np.float32]:
    """The model's own scores after every token, all texts in one pass.

    They are filled up at their ends: what follows a token has no say in its scores.
    """
    longest = max(map(len, texts))
    with torch.no_grad():
        ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
        return model(ids, use_cache=False).logits.numpy()


def scores_of_tree(model: Any, text: Sequence[int], root: int, tree: TokenTree) -> NDArray[np.float32]:
    """The model's own scores after the root and after each node, every branch read as a whole text."""
    leaves = sorted({-1, *range(len(tree))} - set(tree.parents.tolist())) or [-1]
    scores = scores_of_texts(model, [[*text, root, *tree.tokens[tree.path(leaf)].tolist()] for leaf in leaves])
    found = np.empty((1 + len(tree), scores.shape[-1]), dtype=np.float32)
    for row, leaf in enumerate(leaves):
        for depth, node in enumerate((-1, *tree.path(leaf))):
            found[1 + node] = scores[row, len(text) + depth]
    return found
