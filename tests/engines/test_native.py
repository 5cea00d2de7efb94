"""Models by their own pass and cache: any history scores as the whole text does, whatever they carry along."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import transformers as hf

import draftwood
from draftwood.engines.transformers.native.cache import Keeping, NativeCache, keeping
from draftwood.engines.transformers.native.session import SETTLE
from draftwood.engines.transformers.native.target import NativeTarget
from draftwood.engines.transformers.pack import ReplacedLinear
from draftwood.errors import CapabilityError, PromptError, UnsupportedModelError
from draftwood.testing import HugeDrafter, RandomDrafter, check_target
from draftwood.tree import TokenTree
from tests.engines.rounding import RECURRENT
from tests.tiers import rest_is_slow

VOCAB = 64
COMMON = {
    "vocab_size": VOCAB,
    "initializer_range": 0.3,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
WIDE = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
GROUPED = COMMON | WIDE | {"num_key_value_heads": 2, "max_position_embeddings": 2048}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1}
MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MIXED = ["linear_attention", "full_attention"] * 2

STATEFUL = {
    "qwen3_next": lambda: hf.Qwen3NextConfig(
        **GROUPED, **DELTA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8,
        shared_expert_intermediate_size=16, layer_types=MIXED,
    ),
    "qwen3_5": lambda: hf.Qwen3_5TextConfig(**GROUPED, **DELTA, head_dim=8, layer_types=MIXED),
    "bamba": lambda: hf.BambaConfig(**GROUPED, **MAMBA2, attn_layer_indices=[1]),
    "falcon_h1": lambda: hf.FalconH1Config(**GROUPED, **MAMBA2, mamba_d_ssm=64, head_dim=8),
    "mamba2": lambda: hf.Mamba2Config(
        **COMMON, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, state_size=8, n_groups=2,
        chunk_size=8,
    ),
    "lfm2": lambda: hf.Lfm2Config(**GROUPED, layer_types=["conv", "full_attention"] * 2),
    "minimax": lambda: hf.MiniMaxConfig(
        **GROUPED, head_dim=8, num_local_experts=2, num_experts_per_tok=1, block_size=8, layer_types=MIXED[::-1],
    ),
    "rwkv": lambda: hf.RwkvConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=4, attention_hidden_size=32, rescale_every=2,
        bos_token_id=None, eos_token_id=None,
    ),
}  # fmt: skip
"""Chains, taken back by putting back a copy of the states."""

STEPWISE = {
    "jamba": lambda: hf.JambaConfig(
        **GROUPED, **EXPERTS, mamba_d_state=8, mamba_dt_rank=4, attn_layer_period=2, attn_layer_offset=1,
        expert_layer_period=2, use_mamba_kernels=False,
    ),
    "recurrent_gemma": lambda: hf.RecurrentGemmaConfig(
        **COMMON, **WIDE, num_key_value_heads=1, lru_width=32, attention_window_size=8, head_dim=8,
        block_types=["recurrent", "attention"],
    ),
}  # fmt: skip
"""Transformers reads several tokens right from an empty cache only."""

BRANCHING = {
    "falcon": lambda: hf.FalconConfig(
        **COMMON,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        alibi=False,
        new_decoder_architecture=False,
    ),
    "gptj": lambda: hf.GPTJConfig(**COMMON, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=2048),
}
"""Trees, by a mask and positions."""

ROWS = {
    **BRANCHING,
    "falcon_alibi": lambda: hf.FalconConfig(
        **COMMON, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True,
        new_decoder_architecture=False,
    ),
    "bloom": lambda: hf.BloomConfig(**COMMON, hidden_size=32, n_layer=2, n_head=4),
    "gpt_neo": lambda: hf.GPTNeoConfig(
        **COMMON, hidden_size=32, num_layers=2, num_heads=4, intermediate_size=32, window_size=8,
        attention_types=[[["global", "local"], 1]], max_position_embeddings=2048,
    ),
    "gemma2": lambda: hf.Gemma2Config(**GROUPED, head_dim=8, sliding_window=8, query_pre_attn_scalar=8),
}  # fmt: skip
"""Keys and values only, cut back row by row."""

ALL = STATEFUL | STEPWISE | ROWS
CHAINS = STATEFUL | ROWS
TOLERANCE = 15 * RECURRENT
"""Scores reach 15."""


def build(name, seed=0, *, scaled=True):
    """``scaled``: RWKV divides its weights in place when it first runs in eval mode."""
    torch.manual_seed(seed)
    model = hf.AutoModelForCausalLM.from_config(ALL[name]()).eval()
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
@pytest.mark.parametrize("name", rest_is_slow(CHAINS, "qwen3_5", "lfm2", "falcon", "gpt_neo"))
def test_scores_of_a_chain_are_the_models_own_after_any_history(name, chunk):
    model, rng = build(name), np.random.default_rng(0)
    target = target_of(name, model, chunk=chunk)
    text = some(30)
    ((session, first),) = target.open([text])
    assert gap(model, text, first) < TOLERANCE
    for step in range(24):
        chain, root = TokenTree.build(rng.integers(0, VOCAB, int(rng.integers(0, 8)))), int(rng.integers(VOCAB))
        (scores,) = target.score([(session, root, chain)])
        for row in {0, len(chain) // 2, len(chain)}:
            path = [*text, root, *chain.tokens[:row].tolist()]
            assert gap(model, path, scores, row) < TOLERANCE, f"step {step}, row {row} of {chain}"
        kept = int(rng.integers(0, len(chain) + 1))
        session.keep(range(kept))
        text += [root, *chain.tokens[:kept].tolist()]
        assert session.ids == text
        assert session.replay == 0 or name in STATEFUL
        if step % 6 == 5:
            text = text[: int(rng.integers(len(text) - 12, len(text)))]
            session.truncate(len(text))
            assert session.length == len(text)


@pytest.mark.parametrize("name", [*BRANCHING, "gemma2"])  # the last one has windows
def test_scores_of_a_tree_are_the_models_own(name):
    model, rng = build(name), np.random.default_rng(1)
    target = NativeTarget(model, trees=True)
    text = some(20)
    ((session, _),) = target.open([text])
    for _ in range(8):
        parents = [int(rng.integers(-1, i)) if i else -1 for i in range(6)]
        tree, root = TokenTree.build(rng.integers(0, VOCAB, 6), parents), int(rng.integers(VOCAB))
        (scores,) = target.score([(session, root, tree)])
        for node in range(-1, 6):
            assert gap(model, [*text, root, *tree.tokens[tree.path(node)].tolist()], scores, 1 + node) < TOLERANCE
        kept = tree.path(int(rng.integers(-1, 6)))
        session.keep(kept)
        text += [root, *tree.tokens[kept].tolist()]


def test_a_window_goes_by_positions_not_by_places_in_the_pass():
    """Three nodes side by side, then ten in a row behind the third: the last one sees eight tokens."""
    model, text = build("gemma2"), some(20)
    ((session, _),) = NativeTarget(model, trees=True).open([text])
    tree = TokenTree.build(some(13, 1), [-1, -1, -1, *range(2, 12)])
    scores = session.score(3, tree)
    for node in range(13):
        assert gap(model, [*text, 3, *tree.tokens[tree.path(node)].tolist()], scores, 1 + node) < TOLERANCE


@pytest.mark.parametrize("name", rest_is_slow(ALL, "lfm2", "jamba", "bloom"))
def test_fulfils_the_contract(name):
    check_target(target_of(name), prompt=some(9), tolerance=TOLERANCE)


@pytest.mark.parametrize("name", BRANCHING)
def test_fulfils_the_contract_with_trees(name):
    check_target(NativeTarget(build(name), trees=True), prompt=some(9), tolerance=TOLERANCE)


@pytest.mark.parametrize("name", rest_is_slow([*STATEFUL, "falcon", "falcon_alibi", "bloom", "gptj"], "lfm2"))
def test_five_hundred_drafted_tokens_are_those_of_transformers(name):
    """Partial accepts at most steps: upstream corrupts states there silently (issue 49036)."""
    model, prompt = build(name), some(24, 1) * 2
    want = greedy(model, prompt, 500)
    got = draftwood.generate(
        target_of(name, model),
        prompt,
        drafters=["suffix", RandomDrafter(VOCAB)],
        planner="fixed:16",
        max_new_tokens=500,
    )
    assert got.ids == want
    assert sum(step.accepted < step.drafted for step in got.steps) > 50
    assert (sum(step.replayed for step in got.steps) > 100) == (name in STATEFUL)


@pytest.mark.parametrize("name", STEPWISE)
def test_what_cannot_be_taken_back_is_written_plain(name):
    model, prompt = build(name), some(24)
    target = target_of(name, model, chunk=8)  # the prompt is read in one pass all the same
    assert draftwood.generate(target, prompt, drafters="none", max_new_tokens=100).ids == greedy(
        model, prompt, 100
    )
    with pytest.raises(CapabilityError, match="drafters='none'"):
        draftwood.generate(target, prompt, drafters="suffix", max_new_tokens=4)


@pytest.mark.parametrize("name", ["qwen3_next", "minimax", "gptj"])
def test_sampled_text_does_not_depend_on_drafting(name):
    model, settings = build(name), {"max_new_tokens": 80, "temperature": 0.8, "top_p": 0.9, "seed": 3}
    texts = [
        draftwood.generate(target_of(name, model), some(20), drafters=d, **settings).ids
        for d in ("none", "suffix", HugeDrafter(VOCAB))
    ]
    assert texts[1] == texts[0] == texts[2]


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


def test_a_copy_is_made_for_drafts_only_and_one_is_held():
    ((session, _),) = NativeTarget(build("falcon_h1")).open([some(10)])
    session.score(1, TokenTree.empty())
    assert session._copy is None
    session.keep([])
    session.score(1, TokenTree.build([2, 3]))
    assert session._copy is not None
    session.keep([0, 1])
    assert session._copy is None
    assert session.replay == 0


@pytest.mark.parametrize("name", ["qwen3_next", "minimax", "recurrent_gemma", "bloom"])
def test_a_pass_that_was_not_kept_or_broke_off_leaves_no_trace(name, monkeypatch):
    model = build(name)
    target, text = target_of(name, model), some(12)
    ((session, _),) = target.open([text])
    draft = TokenTree.empty() if name in STEPWISE else TokenTree.build([4, 5])
    for tree in (draft, TokenTree.empty()):
        target.score([(session, 3, tree)])
        assert gap(model, [*text, 7], target.extend([(session.fork(), [7])])[0]) < TOLERANCE

    def breaks(*_, **__):
        raise KeyboardInterrupt

    head = target._passes._model.get_output_embeddings()
    for act in (lambda: target.score([(session, 3, draft)]), lambda: target.extend([(session, [1, 2])])):
        with monkeypatch.context() as patched:
            patched.setattr(head, "forward", breaks)
            with pytest.raises(KeyboardInterrupt):
                act()
        assert session.ids == text
        assert gap(model, [*text, 7], target.extend([(session.fork(), [7])])[0]) < TOLERANCE
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        target.extend([(session, [1])])


@pytest.mark.parametrize("name", ["qwen3_5", "recurrent_gemma", "rwkv", "gptj"])
def test_sessions_do_not_disturb_each_other(name):
    model = build(name)
    target = target_of(name, model)
    texts = [some(9, 1), some(14, 2), some(5, 3)]
    opened = [session for session, _ in target.open(texts)]
    twin = opened[1].fork()
    target.extend([(opened[1], [1])])
    opened[0].truncate(4)
    for session, text in (
        (opened[0], texts[0][:4]),
        (opened[1], [*texts[1], 1]),
        (opened[2], texts[2]),
        (twin, texts[1]),
    ):
        assert session.ids == text
        assert gap(model, [*text, 11], target.extend([(session, [11])])[0]) < TOLERANCE


@pytest.mark.parametrize("name", ["qwen3_next", "lfm2", "gptj"])
def test_a_fork_behind_a_draft_that_was_not_kept_goes_on_by_itself(name):
    model, text = build(name), some(12)
    target = target_of(name, model)
    ((session, _),) = target.open([text])
    target.score([(session, 3, TokenTree.build([4, 5]))])
    twin = session.fork()
    assert gap(model, [*text, 7], target.extend([(twin, [7])])[0]) < TOLERANCE
    assert gap(model, [*text, 8], target.extend([(session, [8])])[0]) < TOLERANCE
    assert gap(model, [*text, 7, 9], target.extend([(twin, [9])])[0]) < TOLERANCE


def test_copies_of_a_cache_share_no_state():
    model = torch.nn.Module()
    kept = Keeping("state", None, ((model, "inner"),), stateful=True)
    cache = NativeCache(kept, [torch.zeros(2)], [torch.zeros(2)], 5)
    twin = cache.copied()
    twin.held[0].add_(1)
    twin.inside[0].add_(1)
    assert not cache.held[0].any()
    assert not cache.inside[0].any()


def test_a_state_in_the_model_itself_is_found():
    class Remembering(hf.LlamaForCausalLM):
        def forward(self, *args, **settings):
            out = super().forward(*args, **settings)
            self.remembered = out.logits.sum()
            return out

    model = Remembering(hf.LlamaConfig(**GROUPED)).eval()
    kept = keeping(model, {"input_ids": torch.tensor([[1, 2]]), "use_cache": True})
    assert kept.places == ((model, "remembered"),)
    assert kept.stateful, "it cannot be cut back"


def test_a_model_that_always_gives_all_scores():
    class Plain(hf.LlamaForCausalLM):
        def forward(self, input_ids=None, position_ids=None, past_key_values=None, use_cache=None):
            return super().forward(
                input_ids=input_ids,
                position_ids=position_ids,
                past_key_values=past_key_values,
                use_cache=use_cache,
            )

    torch.manual_seed(0)
    model, text = Plain(hf.LlamaConfig(**GROUPED)).eval(), some(12)
    target = NativeTarget(model)
    ((session, first),) = target.open([text])
    assert gap(model, text, first) < TOLERANCE
    assert gap(model, [*text, 4, 5], target.extend([(session, [4, 5])])[0]) < TOLERANCE


def test_a_cut_that_cuts_nothing_reads_nothing_again():
    ((session, _),) = NativeTarget(build("lfm2")).open([some(10)])
    session.truncate(10)
    assert session.replay == 0


@pytest.mark.parametrize("name", STEPWISE)
def test_step_by_step_more_text_is_read_a_token_at_a_time(name):
    model, text = build(name), some(12)
    target = target_of(name, model)
    ((session, _),) = target.open([text])
    run, passes = target._passes.run, []
    target._passes.run = lambda cache, ids, *rest: passes.append(len(ids)) or run(cache, ids, *rest)
    assert gap(model, [*text, 4, 5, 6], target.extend([(session, [4, 5, 6])])[0]) < TOLERANCE
    assert passes == [1, 1, 1]


@pytest.mark.parametrize(("name", "rollback"), [("lfm2", "snapshot"), ("gptj", "truncate"), ("jamba", "none")])
def test_what_a_target_declares(name, rollback):
    can = target_of(name, chunk=100).capabilities
    assert (can.rollback, can.max_pass, can.trees) == (rollback, 1 if rollback == "none" else 100, False)


@pytest.mark.parametrize("name", rest_is_slow(ALL, "lfm2", "falcon"))
def test_the_model_is_left_exactly_as_found(name):
    model = build(name, scaled=False).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    config, kind = copy.deepcopy(model.config.to_dict()), model.config._attn_implementation
    inside = [dict(module.__dict__) for module in model.modules()]
    draftwood.generate(target_of(name, model), some(10), drafters="none", max_new_tokens=5)
    assert all(module.training for module in model.modules())
    assert model.config.to_dict() == config
    assert model.config._attn_implementation == kind
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    for module, was in zip(model.modules(), inside, strict=True):
        assert module.__dict__.keys() == was.keys()
        assert all(module.__dict__[name] is value for name, value in was.items())


def test_rwkv_reads_the_same_before_and_after_its_own_pass_has_scaled_its_weights():
    model, text = build("rwkv", scaled=False), some(20)
    ((_, scores),) = NativeTarget(model).open([text])
    assert gap(model, text, scores) < TOLERANCE  # the forward of `truth` scales
    ((_, scores),) = NativeTarget(model).open([text])
    assert gap(model, text, scores) < TOLERANCE


@pytest.mark.parametrize("name", ["qwen3_next", "jamba", "falcon"])  # jamba reads the weight of a layer by itself
def test_packed_weights_give_the_scores_of_plain_ones(name):
    model, text = build(name), some(20)
    for packed in (True, False):
        target = target_of(name, model, packed=packed)
        assert packed or not any(isinstance(m, ReplacedLinear) for m in target._passes._model.modules())
        ((session, scores),) = target.open([text])
        assert gap(model, text, scores) < TOLERANCE
        assert gap(model, [*text, 5], target.extend([(session, [5])])[0]) < TOLERANCE


def test_what_trees_cannot_do_is_refused_by_name():
    with pytest.raises(UnsupportedModelError, match="carries states"):
        NativeTarget(build("rwkv"), trees=True)
    with pytest.raises(UnsupportedModelError, match="no mask of ours"):
        NativeTarget(build("bamba"), trees=True)
    with pytest.raises(UnsupportedModelError, match="no mask of ours"):
        NativeTarget(build("gpt_neo"), trees=True)
    model = build("falcon")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UnsupportedModelError, match="flash"):
        NativeTarget(model, trees=True)


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
