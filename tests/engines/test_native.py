"""Models by their own pass and cache: any history scores as the whole text does, whatever they carry along."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
import transformers as hf

import draftwood
from draftwood.engines.transformers.native.cache import keeping
from draftwood.engines.transformers.native.session import SETTLE
from draftwood.engines.transformers.native.target import NativeTarget
from draftwood.engines.transformers.pack import ReplacedLinear
from draftwood.errors import CapabilityError, PromptError, UnsupportedModelError
from draftwood.testing import check_target
from draftwood.tree import TokenTree
from tests.engines.registered import VOCAB, tiny
from tests.engines.rounding import RECURRENT
from tests.engines.story import Story
from tests.engines.tiny import SHAPE
from tests.tiers import rest_is_slow
from tests.toys import RandomDrafter

LONG = {"max_position_embeddings": 2048}
STATEFUL = ("qwen3_next", "qwen3_5_text", "bamba", "falcon_h1", "mamba2", "lfm2", "minimax", "rwkv")
"""Chains, taken back by putting back a copy of the states."""
STEPWISE = ("jamba", "recurrent_gemma")
"""Transformers reads several tokens right from an empty cache only."""
ROWS = ("falcon", "gptj", "falcon_alibi", "bloom", "gpt_neo", "gemma2")
"""Keys and values only, cut back row by row."""
ALL = (*STATEFUL, *STEPWISE, *ROWS)
TREES = dict.fromkeys(("llama", "gemma3_text"), "lookahead")  # on our own cache: the lean pass, and modules
CHAINS = (*STATEFUL, *ROWS)
SETTINGS = {
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "bamba", "falcon_h1", "lfm2", "minimax"), LONG),
    **dict.fromkeys(("jamba", "gpt_neo", "gemma2"), LONG),
    "gptj": {"n_positions": 2048},
    "falcon": LONG,
    "falcon_alibi": {"alibi": True, **LONG},
}
TOLERANCE = 15 * RECURRENT
"""Scores reach 15."""


def build(name, seed=0, *, scaled=True):
    """``scaled``: RWKV divides its weights in place when it first runs in eval mode."""
    model = tiny(name.removesuffix("_alibi"), seed, **SETTINGS.get(name, {}))
    if name == "rwkv":
        with torch.no_grad():
            for parameter in model.parameters():  # made alike in all layers and channels
                parameter.add_(torch.randn_like(parameter) * 0.3)
        if scaled:
            model(torch.tensor([[0]]))
    return model


def target_of(name, model=None, **settings):
    model = build(name) if model is None else model
    return NativeTarget(model, step_by_step=name in STEPWISE, **settings)


def some(n, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB, n).tolist()


def truth(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0, -1].numpy()


def gap(model, text, scores, row=0):
    return np.abs(scores.numpy(scores.raw(row)) - truth(model, text)).max()


def greedy(model, prompt, limit):
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=limit, pad_token_id=0
    )
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("chunk", [1024, 12])
@pytest.mark.parametrize("name", rest_is_slow(CHAINS, "qwen3_5_text", "lfm2", "falcon", "gpt_neo"))
def test_scores_of_chains_are_the_models_own_after_any_history(name, chunk):
    model = build(name)
    told = Story(target_of(name, model, chunk=chunk), partial(truth, model), np.random.default_rng(0), nodes=7)
    told.tell(30)
    assert told.gap < TOLERANCE


@pytest.mark.parametrize("name", rest_is_slow(ALL, "lfm2", "jamba", "bloom"))
def test_fulfils_the_contract(name):
    check_target(target_of(name), prompt=some(9), tolerance=TOLERANCE)


LONG_TEXTS = [(name, 500) for name in (*STATEFUL, "falcon", "falcon_alibi", "bloom", "gptj")]


@pytest.mark.parametrize(("name", "tokens"), rest_is_slow([("lfm2", 150), *LONG_TEXTS], ("lfm2", 150)))
def test_many_drafted_tokens_are_those_of_transformers(name, tokens):
    """Partial accepts at most steps: upstream corrupts states there silently (issue 49036)."""
    model, prompt = build(name), some(24, 1) * 2
    got = draftwood.generate(
        target_of(name, model),
        prompt,
        drafters=["ngram", RandomDrafter(VOCAB)],
        planner="fixed:16",
        max_new_tokens=tokens,
    )
    theirs = greedy(model, prompt, len(got.ids))
    if got.ids != theirs:  # only where two scores are as near as rounding: another width adds in another order
        at = next(i for i, (ours, their) in enumerate(zip(got.ids, theirs, strict=True)) if ours != their)
        scores = truth(model, [*prompt, *theirs[:at]])
        assert abs(scores[got.ids[at]] - scores[theirs[at]]) < TOLERANCE
    assert sum(step.accepted < step.drafted for step in got.steps) > 50
    assert (sum(step.replayed for step in got.steps) > 100) == (name in STATEFUL)


@pytest.mark.parametrize("name", STEPWISE)
def test_what_cannot_be_taken_back_is_written_plain(name):
    model, prompt = build(name), some(24)
    target = target_of(name, model, chunk=8)  # the prompt is read in one pass all the same
    found = draftwood.generate(target, prompt, drafters="none", max_new_tokens=100)
    assert found.ids == greedy(model, prompt, 100)
    with pytest.raises(CapabilityError, match="drafters='none'"):
        draftwood.generate(target, prompt, drafters="ngram", max_new_tokens=4)


def test_waiting_tokens_are_bounded_and_ride_in_front_of_the_next_root():
    model = build("bamba")
    target = NativeTarget(model)
    ((session, _),) = target.open([some(10)])
    text, held = some(10), []
    for step in range(30):
        chain = TokenTree.build(some(4, step))
        (scores,) = target.score([(session, step, chain)])
        assert gap(model, [*text, step], scores) < TOLERANCE
        session.keep([0])
        text += [step, int(chain.tokens[0])]
        held.append(session.replay)
    assert held[:3] == [2, 4, 6]
    assert max(held) <= SETTLE + 2
    target.score([(session, 1, TokenTree.empty())])  # a plain pass catches up
    session.keep([])
    assert session.replay == 0


@pytest.mark.parametrize("name", ["qwen3_next", "minimax", "recurrent_gemma", "bloom"])
def test_a_pass_that_was_not_kept_or_broke_off_leaves_no_trace(name, monkeypatch):
    model = build(name)
    target, text = target_of(name, model), some(12)
    ((session, _),) = target.open([text])
    draft = TokenTree.empty() if name in STEPWISE else TokenTree.build([4, 5])
    for tree in (draft, TokenTree.empty()):
        target.score([(session, 3, tree)])
        assert gap(model, [*text, 7], target.extend([(session, [7])])[0]) < TOLERANCE
        session.truncate(len(text))

    def breaks(*_, **__):
        raise KeyboardInterrupt

    head = target._passes._model.get_output_embeddings()
    for act in (lambda: target.score([(session, 3, draft)]), lambda: target.extend([(session, [1, 2])])):
        with monkeypatch.context() as patched:
            patched.setattr(head, "forward", breaks)
            with pytest.raises(KeyboardInterrupt):
                act()
        assert session.ids == text
        assert gap(model, [*text, 7], target.extend([(session, [7])])[0]) < TOLERANCE
        session.truncate(len(text))
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        target.extend([(session, [1])])


def test_a_state_in_the_model_itself_is_found():
    class Remembering(hf.LlamaForCausalLM):
        def forward(self, *args, **settings):
            out = super().forward(*args, **settings)
            self.remembered = out.logits.sum()
            return out

    model = Remembering(hf.LlamaConfig(**SHAPE)).eval()
    kept = keeping(model, {"input_ids": torch.tensor([[1, 2]]), "use_cache": True})
    assert kept.places == ((model, "remembered"),)
    assert kept.stateful, "it cannot be cut back"


@pytest.mark.parametrize("name", rest_is_slow([*ALL, *TREES], "lfm2", "falcon", *TREES))
def test_the_model_is_left_exactly_as_found(name):
    model = build(name, scaled=False).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    config, kind = copy.deepcopy(model.config.to_dict()), model.config._attn_implementation
    inside = [dict(module.__dict__) for module in model.modules()]
    run = model if name in TREES else target_of(name, model)
    draftwood.generate(run, some(10), drafters=TREES.get(name, "none"), max_new_tokens=5)
    assert all(module.training for module in model.modules())
    assert model.config.to_dict() == config
    assert model.config._attn_implementation == kind
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(weight.requires_grad for weight in model.parameters())
    for module, was in zip(model.modules(), inside, strict=True):
        assert module.__dict__.keys() == was.keys()
        assert all(module.__dict__[name] is value for name, value in was.items())


@pytest.mark.parametrize("name", ["qwen3_next", "jamba", "falcon"])  # jamba reads the weight of a layer by itself
def test_packed_weights_give_the_scores_of_plain_ones(name):
    model, text = build(name), some(20)
    for packed in (True, False):
        target = target_of(name, model, packed=packed)
        assert packed or not any(isinstance(m, ReplacedLinear) for m in target._passes._model.modules())
        ((session, scores),) = target.open([text])
        assert gap(model, text, scores) < TOLERANCE
        assert gap(model, [*text, 5], target.extend([(session, [5])])[0]) < TOLERANCE


def test_bad_calls():
    target = NativeTarget(build("lfm2"))
    ((session, _),) = target.open([[1, 2, 3]])
    with pytest.raises(PromptError, match="empty"):
        target.extend([(session, [])])
    with pytest.raises(PromptError, match="at most 2048"):
        target.extend([(session, [1] * 2046)])
    with pytest.raises(RuntimeError, match="no scored tree"):
        session.keep([])
    for act in (lambda: target.extend([(session, [4])]), lambda: session.truncate(2)):
        session.score(1, TokenTree.build([2]))
        act()
        with pytest.raises(RuntimeError, match="no scored tree"):
            session.keep([0])
    with pytest.raises(CapabilityError):
        target.score([(session, 1, TokenTree.build([2, 3], [-1, -1]))])
    with pytest.raises(UnsupportedModelError, match="keeps no cache"):
        NativeTarget(hf.OpenAIGPTLMHeadModel(hf.OpenAIGPTConfig(vocab_size=64, n_embd=32, n_layer=1, n_head=2)))
