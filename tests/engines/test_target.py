"""The transformers target: trees against their chains, windows, rollback, refusals, and a model left as found."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    T5Config,
    T5ForConditionalGeneration,
)

import draftwood
from draftwood.engines.transformers import cache
from draftwood.engines.transformers.shared import shared_target
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import PromptError, UnsupportedModelError
from draftwood.testing import check_target
from draftwood.tree import TokenTree
from tests.engines.registered import tiny
from tests.engines.rounding import TOLERANCE
from tests.engines.story import Story, random_tree
from tests.engines.tiny import FAMILIES, SHAPE, build
from tests.tiers import rest_is_slow

T5 = {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}

QUICK = ("llama", "mistral-window", "gemma3")
"""Of the families, one without windows, one with, and one with both kinds of layers."""


def truth(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -1].numpy()


@pytest.mark.parametrize("family", rest_is_slow(FAMILIES, *QUICK))
@pytest.mark.parametrize("chunk", [1024, 12])  # 12: prompts share passes and are cut across them
@pytest.mark.parametrize("lean", [True, False])
def test_scores_of_trees_are_the_models_own_after_any_history(family, chunk, lean):
    """Law 6 on a real engine, too: ragged texts and trees share passes, and come and go."""
    model = build(family)
    target = TransformersTarget(model, chunk=chunk, lean=lean)
    told = Story(target, partial(truth, model), np.random.default_rng(0), most=4, nodes=7)
    told.tell(40)
    assert told.gap < TOLERANCE


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_fulfils_the_contract(family):
    check_target(TransformersTarget(build(family)), tolerance=TOLERANCE)


@pytest.mark.parametrize("family", ["llama", "mistral-window"])
def test_after_every_step_the_cache_equals_a_fresh_reading(family):
    """Law 5 on a real engine, row by row."""
    model, rng = build(family), np.random.default_rng(1)
    target = TransformersTarget(model)
    text = rng.integers(0, 64, 10).tolist()
    ((session, _),) = target.open([text])
    for _ in range(8):
        tree, root = random_tree(rng, 7, 64), int(rng.integers(64))
        target.score([(session, root, tree)])
        kept = tree.path(len(tree) - 1)
        session.keep(kept)
        text += [root, *tree.tokens[kept].tolist()]
        ((fresh, _),) = target.open([text])
        for tensor in target.arena.tensors():
            ours, theirs = (tensor[s.slot, :, : len(text)] for s in (session, fresh))
            assert (ours - theirs).abs().max() < TOLERANCE
        fresh.close()


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_more_text_of_several_sessions_is_read_in_shared_passes(family, monkeypatch):
    model, rng = build(family), np.random.default_rng(5)
    target = TransformersTarget(model, chunk=12)
    texts = [rng.integers(0, 64, n).tolist() for n in (4, 7, 5)]
    sessions = [session for session, _ in target.open(texts)]
    more = [rng.integers(0, 64, n).tolist() for n in (9, 1, 14)]
    run, passes = target._run, []
    monkeypatch.setattr(target, "_run", lambda rows, ids, *rest: passes.append(len(rows)) or run(rows, ids, *rest))
    found = target.extend(list(zip(sessions, more, strict=True)))
    assert passes == [3, 1], "24 tokens in passes of 12"
    for session, text, rest, scores in zip(sessions, texts, more, found, strict=True):
        assert session.ids == [*text, *rest]
        assert np.abs(scores.numpy(scores.raw(0)) - truth(model, session.ids)).max() < TOLERANCE
        assert not any(held is target for held in vars(session).values()), "sessions do not know their target"


def test_texts_longer_than_the_model_are_refused():
    target = TransformersTarget(build("llama"))
    with pytest.raises(PromptError, match="at most 512"):
        target.open([[1] * 600])
    with pytest.raises(PromptError, match="empty"):
        target.open([[]])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LlamaModel(LlamaConfig(**SHAPE)), "AutoModelForCausalLM"),
        (lambda: torch.nn.Linear(2, 2), "no model of transformers"),
        (lambda: T5ForConditionalGeneration(T5Config(**T5)), "encoder-decoder"),
        (lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, use_bidirectional_attention=True)), "later tokens"),
    ],
)
def test_what_we_cannot_answer_for_is_refused_by_name(make, sentence):
    with pytest.raises(UnsupportedModelError, match=sentence):
        shared_target(make())


def test_a_rope_that_rescales_itself_ends_where_it_would():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 128}
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=rope)).eval()
    assert TransformersTarget(model).capabilities.max_positions == 128


def test_a_batch_holds_no_more_memory_than_transformers_own_cache():
    model = LlamaForCausalLM(LlamaConfig(**SHAPE | {"max_position_embeddings": 2048})).eval()
    target = TransformersTarget(model)
    length, rows = 960, 5
    target.open([[1] * length] * rows)
    own = rows * length * 3 * 2 * 2 * 8 * 4  # layers, keys and values, key-value heads, width, bytes
    assert sum(buffer.nbytes for buffer in target.arena.tensors()) <= 1.1 * own


@pytest.mark.slow
def test_two_hundred_requests_leave_no_more_behind_than_one():
    target = TransformersTarget(build("llama"))
    for length in (180, *np.random.default_rng(6).integers(5, 180, 200).tolist()):
        ((session, _),) = target.open([[1] * length], reserve=200)
        session.close()
    held = sum(buffer.nbytes for buffer in target.arena.tensors())
    assert held <= (180 + 200 + 64) * 3 * 2 * 2 * 8 * 4
    many = target.open([[1] * 10] * 7)
    for session, _ in many:
        session.close()
    target.open([[1] * 300])
    assert (
        sum(buffer.nbytes for buffer in target.arena.tensors()) <= held
    )  # a batch does not leave its slots behind


def test_hooks_of_accelerate_run_on_the_shadow_too():
    """As on a model that is spread over several devices: inputs are moved by a hook on each module."""
    accelerate = pytest.importorskip("accelerate")
    model, plain = build("llama"), build("llama")
    accelerate.dispatch_model(model, device_map={"": "cpu"}, force_hooks=True)
    text = [1, 2, 3, 4, 5]
    target = shared_target(model)
    assert target.capabilities.trees
    ((_, scores),) = target.open([text])
    assert np.abs(scores.numpy(scores.raw(0)) - truth(plain, text)).max() < TOLERANCE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", rest_is_slow(["llama", "qwen2-window", "gemma3"], "llama"))
def test_half_precision_scores_trees_too(family, dtype):
    model = build(family).to(dtype)
    target = shared_target(model)
    assert target.capabilities.trees
    text = np.random.default_rng(8).integers(0, 64, 40).tolist()
    ((session, _),) = target.open([text])
    (scores,) = target.score([(session, 5, TokenTree.build([6, 7, 8], [-1, 0, -1]))])
    own = truth(model.float(), [*text, 5, 8])
    gap = np.abs(scores.numpy(scores.raw(3)) - own).max()
    assert gap < 0.1 * np.abs(own).max()  # 8 or 11 bits of mantissa through three layers


def test_a_model_that_takes_no_positions_is_batched_text_by_text():
    """Bart's decoder counts on from the cache's length, which two texts of a pass do not share."""
    model = tiny("bart")
    target = shared_target(model)
    assert not target.capabilities.batch
    prompts = [[5, 6, 7, 5, 6, 7], [9, 8, 9, 8, 9, 8, 9, 8, 9], [3, 4]]
    ids = torch.zeros((3, 9), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, 9 - len(prompt) :] = torch.tensor(prompt)
        mask[row, 9 - len(prompt) :] = 1
    out = model.generate(
        ids, attention_mask=mask, max_new_tokens=12, pad_token_id=0, custom_generate=draftwood.decode_with()
    )
    for row, prompt in enumerate(prompts):
        alone = draftwood.generate(model, prompt, drafters="none", max_new_tokens=12).ids
        assert out[row, 9:].tolist()[: len(alone)] == alone


def test_a_replaced_forward_is_followed():
    model = build("llama")
    text = draftwood.generate(model, [1, 2, 3], max_new_tokens=8).ids
    layer = model.model.layers[0].mlp
    layer.forward = layer.forward  # bound to the user's module, as tools leave it behind
    assert draftwood.generate(copy.deepcopy(model), [1, 2, 3], max_new_tokens=8).ids == text
    layer.forward = lambda x: x
    ids = torch.tensor([[1, 2, 3]])
    theirs = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False)
    assert draftwood.generate(model, [1, 2, 3], max_new_tokens=8).ids == theirs[0, 3:].tolist() != text


def test_an_interrupt_while_the_cache_is_made_anew_leaves_it_whole(monkeypatch):
    model = build("mistral-window")
    target = TransformersTarget(model)
    ((session, _),) = target.open([[1, 2, 3, 4]])
    made = cache.zeros

    def interrupted(*size_and_like):
        interrupted.calls += 1
        if interrupted.calls == 3:
            raise KeyboardInterrupt
        return made(*size_and_like)

    interrupted.calls = 0
    monkeypatch.setattr(cache, "zeros", interrupted)
    with pytest.raises(KeyboardInterrupt):
        target.extend([(session, list(range(60)) * 3)])
    monkeypatch.undo()
    (scores,) = target.extend([(session, [5, 6])])
    assert np.abs(scores.numpy(scores.raw(0)) - truth(model, [1, 2, 3, 4, 5, 6])).max() < TOLERANCE


BROKEN_FLEX = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "AVX2",
    reason="without AVX-512 torch 2.13's flex_attention gives wrong scores, and writes where it must not",
)


@pytest.mark.parametrize(
    "attention", ["eager", pytest.param("flex_attention", marks=[BROKEN_FLEX, pytest.mark.slow])]
)
def test_the_users_attention_implementation_makes_no_difference(attention):
    model = build("gemma3")
    text = np.random.default_rng(9).integers(0, 64, 30).tolist()
    expected = draftwood.generate(model, text, max_new_tokens=20).ids
    model.set_attn_implementation(attention)
    assert shared_target(model).capabilities.trees
    assert draftwood.generate(model, text, max_new_tokens=20).ids == expected
    assert model.config._attn_implementation == attention
