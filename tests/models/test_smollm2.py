"""The real smollm2, as ``draftwood fetch smollm2`` left it."""

import pytest

from draftwood.local.catalogue import CATALOGUE, fault
from draftwood.local.find import find
from draftwood.models.load import load

pytestmark = [pytest.mark.smollm2, pytest.mark.slow]

TEXTS = [
    "def f(x):\n    if x:\n\t\treturn   12\n\n\n    # é ü 漢字 🙂  3.14\r\n",
    "  lead and trail  ",
    "don't , . !  ' s \n b",
    "👩‍👩‍👧 naïve ﬁ ½ Ⅷ ٣٤",
    "<|im_start|>user\nhi<|im_end|>\n",
    "   7 apples\n        8 pears",
]
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def loaded():
    return load("smollm2", engine="transformers", device="cpu")


def test_the_files_have_the_checksums_of_the_manifest():
    assert fault(find("smollm2"), CATALOGUE["smollm2"], checksums=True) is None


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_tokenizer(loaded, text):
    tokenizer = loaded[1]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_tokens_are_those_of_llama_cpp(loaded):
    # From llama.cpp's own /tokenize on the same GGUF file; transformers' GGUF reader alone gives others.
    assert loaded[1]("1234  56")["input_ids"] == [33, 34, 35, 36, 256, 37, 38]


def test_the_greedy_answer_is_sensible(loaded):
    model, tokenizer = loaded
    prompt = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_tensors="pt")
    answer = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert answer[-1] == 2
