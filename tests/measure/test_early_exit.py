"""How often the first layers of a model agree with the whole, on a model of which the answer is known."""

from __future__ import annotations

import pytest
import torch
from tests.cli.conftest import TEMPLATE, save_tiny
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from draftwood.api.setup import Setup
from draftwood.errors import CapabilityError
from draftwood.measure.profile.early_exit import agreement_by_depth
from draftwood.testing import ToyTarget


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    endless = TEMPLATE.replace("<end>", "")  # else answers may end where the template ends turns
    return AutoTokenizer.from_pretrained(save_tiny(tmp_path_factory.mktemp("models") / "tiny", endless))


def test_layers_that_change_nothing_are_not_missed(tokenizer):
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=5,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024, initializer_range=0.5,
        eos_token_id=None, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for layer in model.model.layers[3:]:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    shares, tokens = agreement_by_depth(Setup(model, tokenizer, "none", "fixed:0"), tokens=12)
    assert len(shares) == 4
    assert tokens == 8 * 12
    assert shares[2:] == [1, 1]
    assert max(shares[:2]) < 1


def test_only_models_that_are_run_layer_by_layer(tokenizer):
    with pytest.raises(CapabilityError, match="early-exit needs"):
        agreement_by_depth(Setup(ToyTarget(vocab_size=len(tokenizer)), tokenizer, "none", "fixed:0"))
