"""Every prompt fits a small model: counted with the tokens of smollm2."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from draftwood.api.prompts import as_ids
from draftwood.models.find import find
from draftwood.tasks import KINDS, prompts

pytestmark = pytest.mark.smollm2


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(find("smollm2"))


@pytest.mark.parametrize("kind", [*KINDS, "code-suite"])
def test_no_prompt_takes_too_many_tokens(kind, tokenizer):
    counts = [len(as_ids(prompt.content, tokenizer)) for prompt in prompts(kind)]
    shortest, longest = {"agent": (900, 3500), "code-suite": (150, 500)}.get(kind, (20, 900))
    assert shortest <= min(counts)
    assert max(counts) <= longest
