"""What users of transformers carry over to a GGUF file: logits processors work, other ways in say where to go."""

import pytest
import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

import draftwood
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.errors import UsageError

PROMPT = [5, 6, 7, 8, 5, 6, 7, 8, 5, 6]
LENGTH = {"max_new_tokens": 24, "temperature": 0}


class Counting(LogitsProcessor):
    """Forbids the token that was best, in every third call; it has a state that must not be shared."""

    def __init__(self):
        self.calls = 0

    def __call__(self, input_ids, scores):
        assert input_ids.shape[0] == scores.shape[0] == 1
        self.calls += 1
        if self.calls % 3 == 0:
            scores[:, scores.argmax()] = -torch.inf
        return scores


@pytest.fixture(scope="module")
def target(tiny_gguf):
    return LlamaTarget(tiny_gguf("llama", "Q8_0"), threads=1)


@pytest.mark.parametrize("planner", ["fixed:6", "goodput"])
def test_transformers_processors_decide_with_drafts_as_without(target, planner):
    given = LogitsProcessorList(
        [NoRepeatNGramLogitsProcessor(2), RepetitionPenaltyLogitsProcessor(1.3), Counting()]
    )
    plain = draftwood.generate(target, PROMPT, drafters="none", logits_processor=given, **LENGTH)
    drafted = draftwood.generate(target, PROMPT, planner=planner, logits_processor=given, **LENGTH)
    assert drafted.ids == plain.ids != draftwood.generate(target, PROMPT, **LENGTH).ids
    assert given[-1].calls == 0, "each request has its own copy"


def test_ways_in_that_are_transformers_own_say_where_to_go(target):
    with pytest.raises(UsageError, match=r"needs no preparing: leave prepare\(\) out"):
        draftwood.prepare(target)
    for wrong in (lambda: draftwood.decode_with(target), lambda: draftwood.decode_with()(target, [PROMPT])):
        with pytest.raises(UsageError, match=r"LlamaTarget is a Target: call draftwood.generate\(target"):
            wrong()
