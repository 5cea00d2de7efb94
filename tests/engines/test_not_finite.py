"""Keys, values and scores that are not finite stay where they are: in the text that has them."""

import pytest
import torch

import draftwood
from draftwood.engines.transformers.native.target import NativeTarget
from draftwood.engines.transformers.shared import shared_target
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.tree import TokenTree
from tests.engines.registered import tiny
from tests.engines.tiny import build
from tests.tiers import rest_is_slow
from tests.toys import RandomDrafter

BAD = 63
CLEAN = [[5, 6, 7, 5, 6, 7, 5], [9, 30, 31, 9, 30, 31, 2, 2, 9, 30], [40, 41] * 9, [17], [3, 4, 5, 6, 7, 8] * 4]
BROKEN = [[5, 6, BAD, 5, 6], [BAD] * 9, [40, 41] * 14 + [BAD], [1, BAD] * 3, [3, 4] * 9]
N = 12
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def name_of(value):
    """The case's name, the same in every process: a function's default id has its address."""
    return getattr(value, "__name__", str(value))


def nan(model):
    """Reading the token gives NaN everywhere."""
    model.get_input_embeddings().weight.data[BAD] = torch.nan


def infinite(model):
    model.get_input_embeddings().weight.data[BAD, ::2] = torch.inf


def overflowing_keys(model):
    """In half precision keys of the token, and of nothing else, overflow in the first layer; its values do not."""
    embedding = model.get_input_embeddings().weight.data
    embedding[:, 0] = 0
    embedding[BAD] = 0
    embedding[BAD, 0] = 8
    for layer in model.model.layers[:1]:
        layer.self_attn.k_proj.weight.data[:, 0] = 6e4
    model.model.layers[0].input_layernorm.weight.data[0] = 1
    never_choose(model)


def overflowing_values(model):
    overflowing_keys(model)
    layer = model.model.layers[0].self_attn
    layer.k_proj.weight.data[:, 0] = 0
    layer.v_proj.weight.data[:, 0] = 6e4


def never_choose(model):
    """The token is not the model's own choice, so that plain decoding writes to the end."""
    head = model.get_output_embeddings()
    if head.weight.data_ptr() != model.get_input_embeddings().weight.data_ptr():
        head.weight.data[BAD] = 0


class Proposing(RandomDrafter):
    """Random trees, every other node of which is the last token of the vocabulary."""

    def propose(self, *args):
        tree = super().propose(*args)
        tokens = tree.tokens.copy()
        tokens[::2] = self.vocab_size - 1
        return TokenTree.build(tokens, tree.parents, belief=tree.belief, evidence=tree.evidence)


def texts(model, prompts, drafters="none", **settings):
    """What is written for each prompt, and how it ends."""
    found = draftwood.generate(model, prompts, drafters=drafters, planner="fixed:7", max_new_tokens=N, **settings)
    return [(one.ids, one.finish_reason) for one in found]


def one_by_one(model, prompts, **settings):
    return [text for prompt in prompts for text in texts(model, [prompt], **settings)]


CASES = [
    (spoil, dtype)
    for dtype in DTYPES
    for spoil in (nan, infinite, *((overflowing_keys, overflowing_values) if dtype == torch.float16 else ()))
]


@pytest.mark.parametrize(
    "family", rest_is_slow(["llama", "mistral-window", "qwen2-window", "qwen3", "gemma3"], "llama")
)
@pytest.mark.parametrize(("spoil", "dtype"), CASES, ids=name_of)
def test_a_draft_that_is_not_finite_touches_no_text(family, spoil, dtype):
    model = build(family)
    spoil(model)
    never_choose(model)
    model = model.to(dtype)
    plain = one_by_one(model, CLEAN)
    assert [finish for _, finish in plain] == ["length"] * len(CLEAN)
    drafters = [Proposing(64), RandomDrafter(63, seed=5)]
    for prompts, batch_size in ((CLEAN, 1), (CLEAN, 5), (CLEAN[::-1], 3)):
        expected = plain if prompts is CLEAN else plain[::-1]
        found = texts(model, prompts, drafters, batch_size=batch_size)
        if dtype == torch.float32:
            assert found == expected
        else:  # other widths round otherwise, and texts may part at near-ties; none may end
            assert [finish for _, finish in found] == ["length"] * len(CLEAN)


@pytest.mark.parametrize("family", rest_is_slow(["llama", "mistral-window", "gemma3"], "gemma3"))
@pytest.mark.parametrize(("spoil", "dtype"), CASES, ids=name_of)
def test_broken_texts_leave_nothing_behind(family, spoil, dtype):
    """In their slots of the cache, which the next texts take over in part."""
    model = build(family)
    spoil(model)
    never_choose(model)
    model = model.to(dtype)
    before = texts(model, CLEAN, batch_size=5)
    assert [finish for _, finish in before] == ["length"] * len(CLEAN)
    for rows in (BROKEN, BROKEN[::-1]):
        broken = texts(model, rows, [Proposing(64)], batch_size=5)
        assert "error" in [finish for _, finish in broken]
        assert texts(model, CLEAN, batch_size=5) == before
    mixed = [text for pair in zip(BROKEN, CLEAN, strict=True) for text in pair]
    found = texts(model, mixed, batch_size=10)
    assert [finish for _, finish in found[1::2]] == ["length"] * len(CLEAN)
    if dtype == torch.float32:
        assert found[1::2] == before


@pytest.mark.parametrize("how", ["lean", "modules", "chains", "native"])
@pytest.mark.parametrize("spoil", rest_is_slow([nan, infinite], nan))
def test_every_way_to_run_a_model(how, spoil):
    model = build("llama")
    spoil(model)
    never_choose(model)
    target = {
        "lean": lambda: TransformersTarget(model),
        "modules": lambda: TransformersTarget(model, lean=False),
        "chains": lambda: TransformersTarget(model, lean=False, trees=False),
        "native": lambda: NativeTarget(model),
    }[how]()
    plain = one_by_one(target, CLEAN)
    assert [finish for _, finish in plain] == ["length"] * len(CLEAN)
    texts(target, BROKEN, batch_size=5)
    assert texts(target, CLEAN, [Proposing(64)], batch_size=5) == plain


@pytest.mark.parametrize(
    "name",
    rest_is_slow(
        ["gpt2", "qwen3_5_text", "falcon_h1", "bloom", "mixtral", "gemma2", "gpt_oss", "mamba2"], "bloom", "mamba2"
    ),
)
def test_other_kinds_of_models(name):
    model = tiny(name)
    vocab = model.get_input_embeddings().weight.shape[0]
    model.get_input_embeddings().weight.data[vocab - 1] = torch.nan
    head = model.get_output_embeddings()
    if head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr():
        head.weight = torch.nn.Parameter(torch.nan_to_num(head.weight.detach().clone()))
    prompts = [[token % (vocab - 1) for token in prompt] for prompt in CLEAN]
    plain = one_by_one(model, prompts)
    if shared_target(model).capabilities.rollback == "none":
        return
    assert texts(model, prompts, [Proposing(vocab)], batch_size=5) == plain


def test_what_no_text_has_committed_is_finite():
    """After each step the cache holds nothing infinite but in broken texts' own rows, after them nothing."""
    model = build("llama")
    nan(model)
    target = TransformersTarget(model)
    opened = target.open([CLEAN[0], BROKEN[1]], reserve=8)
    good, bad = (session for session, _ in opened)
    target.score([(good, 5, TokenTree.build([BAD, 6, BAD], [-1, 0, -1])), (bad, 5, TokenTree.empty())])
    target.score([(good, 5, TokenTree.empty())])  # alone: the pass before it is taken back
    good.keep([])
    for tensor in target.arena.tensors():
        assert torch.isfinite(tensor[good.slot]).all()
        assert not torch.isfinite(tensor[bad.slot]).all()
    bad.close()
    good.close()
    assert all(torch.isfinite(t).all() for t in target.arena.tensors())
