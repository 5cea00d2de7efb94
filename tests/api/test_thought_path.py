"""Places in an answer: the same whichever way a path has come there, and as a twin says that reads the text."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import numpy as np
import pytest
from tests.api.test_thoughts import GEMMA, HARMONY, MINISTRAL, QWEN, ids_of, spoken  # noqa: F401 - a fixture
from tests.serve.session import tokenizer_of_bytes

from draftwood.api.text import StopStrings
from draftwood.api.thought_path import AnswerStops, ThoughtBudget, ThoughtPath
from draftwood.engines.tokens.file_tokenizer import decoder

OPEN = re.compile(r"\s*(?:<think>(?:(?!</think>).)*</think>\s*)*<think>(?:(?!</think>).)*", re.DOTALL)
BYTES = tokenizer_of_bytes()


def twin(ids, prompt):
    """What a place behind these tokens is, from the text of each beginning: (thinks, tokens, begins)."""
    before = "<think>" if prompt.rstrip().endswith("<think>") else ""
    texts = [before + BYTES.decode(ids[:n]) for n in range(len(ids) + 1)]
    thinks = [OPEN.fullmatch(text) is not None for text in texts]
    pairs = list(pairwise(thinks))
    count = sum(one and two for one, two in pairs)
    closed = [n for n, (one, two) in enumerate(pairs, 1) if one and not two]
    return thinks[-1], count, None if thinks[-1] else (closed or [0])[-1]


PARTS = ["<think>", "</think>", "<", "think", "</", ">", "a", " ", "\n", "{"]


@pytest.mark.parametrize("prompt", ["", "<think>\n"])
def test_a_place_is_what_the_whole_text_says_whichever_way_a_path_came(prompt):
    draw = random.Random(prompt)
    before = ids_of(BYTES, prompt)
    for _ in range(60):
        path, known = ThoughtPath(BYTES, before), []
        for _ in range(4):
            known = known[: draw.randrange(len(known) + 1)]
            known += ids_of(BYTES, "".join(draw.choices(PARTS, k=draw.randrange(8))))
            for length in (len(known), draw.randrange(len(known) + 1)):
                place = path.at(known[:length])
                assert place[1:] == ThoughtPath(BYTES, before).at(known[:length])[1:]
                assert (place.thinks, place.tokens, place.begins) == twin(known[:length], prompt)


def written(tokenizer, prompt, budget, wish):
    """What a model writes that wishes these tokens, one after the other, until it has said what it wishes."""
    start, path = ids_of(tokenizer, prompt), ThoughtPath(tokenizer, ids_of(tokenizer, prompt), budget)
    processor, found = ThoughtBudget(path, len(start)), []
    for token in wish:
        while True:
            row = np.zeros(len(tokenizer), np.float32)
            row[token] = 9.0
            came = int(np.argmax(processor(np.array([*start, *found]), row)))
            if row[token] == -np.inf and np.isfinite(row).sum() > 1:
                break  # it may not come here, and others may
            found.append(came)
            if np.isfinite(row).sum() > 1:
                break
    return decoder(tokenizer, special=True)(found)


FINAL = "<|start|>assistant<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("names", "prompt", "wish", "budget", "text"),
    [
        (QWEN, "", "<think>xyz", 2, "<think>xy</think>z"),
        (QWEN, "<think>", "xyz", 0, "</think>xyz"),
        (QWEN, "", "<think>xyz", 0, "xyz"),
        (QWEN, "", "<think>x</think>y", 2, "<think>x</think>y"),
        (MINISTRAL, "[THINK]", "xyz", 1, "x[/THINK]yz"),
        (MINISTRAL, "", "x[THINK]yz", 0, "xyz"),
        (GEMMA, "<|channel>thought\n", "xyz", 2, "xy<channel|>z"),
        (HARMONY, "", f"<|channel|>analysis<|message|>xyz{FINAL}", 2,
         f"<|channel|>analysis<|message|>xy<|end|><|start|>assistantz{FINAL}"),
    ],
)  # fmt: skip
def test_a_thought_ends_when_its_tokens_are_spent(spoken, names, prompt, wish, budget, text):  # noqa: F811
    tokenizer = spoken(*names)
    assert written(tokenizer, prompt, budget, ids_of(tokenizer, wish)) == text


def test_stop_strings_are_those_of_the_answer():
    def ends(text, *strings):
        stop = AnswerStops(StopStrings(strings, decoder(BYTES)), ThoughtPath(BYTES, []))
        ids = ids_of(BYTES, text)
        return next((text[:n] for n in range(1, len(ids) + 1) if stop(ids[:n])), None)

    assert ends("<think>a.b</think>c.d", ".") == "<think>a.b</think>c."
    assert ends("<think>ab</think>c", "b</think>c") is None
    assert ends("<think>ab</think>c", "</think>") == "<think>ab</think>"
    assert ends("a</think>c", "</think>") == "a</think>"
