"""The laws on a real model: smollm2 in float32 writes what transformers writes, drafted or not.

A wide pass may round differently from a narrow one, so a difference is allowed only as a shown near-tie; none is
expected. The whole set is 108 prompts x 128 tokens and 20 sampled (``DRAFTWOOD_LAWS=full``, about an hour on two
cores); by default 12 prompts x 64 tokens and 4 sampled.
"""

import os

import pytest
import torch
from tests.helpers import untimed

import draftwood
from draftwood.api.prompts import as_ids
from draftwood.contracts import Sampling
from draftwood.engines.transformers.shared import shared_target
from draftwood.measure.records.traces import Trace
from draftwood.measure.simulate import simulate
from draftwood.measure.ties import first_difference
from draftwood.planning.fixed import FixedPlanner
from draftwood.tasks import KINDS, prompts

FULL = os.environ.get("DRAFTWOOD_LAWS") == "full"
PER_KIND = {kind: 12 if FULL else 1 + (kind in ("code-edit", "chat", "grammar")) for kind in KINDS}
PROMPTS = [p for kind in KINDS for p in prompts(kind, PER_KIND[kind])]
TOKENS = 128 if FULL else 64
SAMPLED = PROMPTS[:: max(1, len(PROMPTS) // (20 if FULL else 4))][: 20 if FULL else 4]
ROUNDING = 1e-3
"""Scores of smollm2 reach 30 and kernels differ by about 5e-5: a larger margin is no near-tie."""

pytestmark = [pytest.mark.smollm2, pytest.mark.slow]


@pytest.fixture(scope="module")
def smollm2():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield draftwood.load("smollm2", engine="transformers")
    torch.set_num_threads(threads)


def only_near_ties(model, ids, ours, theirs, sampling=None):
    """Fail unless the two texts are equal; a near-tie is an expected failure that shows its margin."""
    found = first_difference(shared_target(model), ids, theirs, ours, sampling)
    if found is None:
        return
    assert found.margin < ROUNDING, f"the texts differ at {found.index} and it is no near-tie: {found}"
    pytest.xfail(f"near-tie: {found}")


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda p: f"{p.task}-{p.name}")
def test_greedy_text_is_that_of_transformers_generate(smollm2, prompt):
    model, tokenizer = smollm2
    ids = as_ids(prompt.content, tokenizer)
    theirs = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=TOKENS)[0, len(ids) :].tolist()
    ours = draftwood.generate(model, ids, max_new_tokens=TOKENS)
    only_near_ties(model, ids, ours.ids, theirs)


@pytest.mark.parametrize("prompt", SAMPLED, ids=lambda p: f"{p.task}-{p.name}")
def test_sampled_text_does_not_depend_on_drafting(smollm2, prompt):
    model, tokenizer = smollm2
    ids = as_ids(prompt.content, tokenizer)
    settings = {"temperature": 0.8, "top_p": 0.9, "seed": 7, "max_new_tokens": TOKENS}
    plain, drafted = (draftwood.generate(model, ids, drafters=d, **settings).ids for d in ("none", "default"))
    only_near_ties(model, ids, drafted, plain, Sampling(temperature=0.8, top_p=0.9, seed=7))


def test_pieces_of_a_stream_join_to_the_text(smollm2):
    model, tokenizer = smollm2
    messages = [{"role": "user", "content": "Write the word naïve, a heart symbol and three emoji."}]
    with draftwood.stream(model, messages, tokenizer=tokenizer, max_new_tokens=40) as pieces:
        shown = "".join(p.text for p in pieces)
    assert shown == pieces.generation.text == tokenizer.decode(pieces.generation.ids, skip_special_tokens=True)


def test_a_conversation_reads_only_what_is_new_and_says_the_same(smollm2):
    model, tokenizer = smollm2
    with draftwood.Conversation(model, tokenizer=tokenizer, max_new_tokens=24) as talk:
        first = "".join(p.text for p in talk.say("Name three colours."))
        whole = talk.read
        second = "".join(p.text for p in talk.say("And three animals?"))
        assert talk.read < whole / 2
        history = talk.messages[:-1]
    again = draftwood.generate(model, history, tokenizer=tokenizer, max_new_tokens=24)
    assert first
    assert again.text == second


def test_a_replay_of_what_it_wrote_is_the_live_run_step_for_step(smollm2):
    model, tokenizer = smollm2
    for prompt in PROMPTS[:3]:
        ids = as_ids(prompt.content, tokenizer)
        live = draftwood.generate(
            model, ids, drafters="ngram", planner=FixedPlanner(16), max_new_tokens=32
        )  # with beliefs of its own
        trace = Trace(prompt.task, prompt.name, ids, live.ids, 32, live.finish_reason)
        (replayed,) = simulate([trace], drafters="ngram", planner="fixed:16")
        assert [untimed(step) for step in replayed.steps] == [untimed(step) for step in live.steps]
