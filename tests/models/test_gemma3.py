"""The real gemma3-270m, as ``draftwood fetch gemma3-270m`` left it."""

import pytest
import torch

import draftwood
from draftwood.local.catalogue import CATALOGUE, fault
from draftwood.local.find import find
from draftwood.models.load import load
from draftwood.tasks import prompts

pytestmark = pytest.mark.gemma3


def test_the_folder_is_whole_and_carries_the_terms():
    folder = find("gemma3-270m")
    assert fault(folder, CATALOGUE["gemma3-270m"], checksums=True) is None
    terms = (folder / "LICENSE.html").read_text(encoding="utf-8")
    assert "Gemma Terms of Use" in terms
    assert "No Waiver" in terms


def test_windows_vocabulary_and_tokenizer_are_kept():
    model, tokenizer = load("gemma3-270m", device="cpu")
    assert model.config.layer_types.count("sliding_attention") == 15
    assert model.config.layer_types.count("full_attention") == 3
    assert model.config.sliding_window == 512
    assert len(tokenizer) == model.config.vocab_size == 262_144
    assert (tokenizer.bos_token_id, model.generation_config.eos_token_id) == (2, 1)
    text = "def f():\n\treturn   12  # é 漢字 🙂\n"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert tokenizer("Hello world")["input_ids"] == [2, 9259, 1902]


def test_drafted_text_four_windows_in_is_the_plain_one():
    """2,000 tokens of context before windows of 512: drafted, plain and transformers' own."""
    model, tokenizer = load("gemma3-270m", device="cpu")
    words = "\n".join(str(prompt.content) for prompt in prompts("summary"))
    ids = tokenizer(words)["input_ids"][:2000]
    assert len(ids) == 2000
    plain = draftwood.generate(model, ids, drafters="none", max_new_tokens=64).ids
    assert draftwood.generate(model, ids, max_new_tokens=64).ids == plain
    prompt = torch.tensor([ids])
    theirs = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=64)
    assert theirs[0, 2000:].tolist() == plain
