"""A model that changes between two calls, in whatever way: every text is that of the model as it is."""

from __future__ import annotations

import copy
import types
from functools import cache

import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaMLP

import draftwood
from draftwood import Conversation
from draftwood.engines.transformers.shared import prepare, shared_target
from draftwood.errors import UsageError
from tests.api.fake import TOKENIZER
from tests.engines.registered import tiny
from tests.engines.tiny import build, continued
from tests.tiers import rest_is_slow

PROMPT = [5, 6, 7, 5, 6, 7, 5, 9, 30, 31]
N = 12


def theirs(model, prompt=PROMPT, **more):
    return continued(model, prompt, max_new_tokens=N, **more)


@cache
def unchanged():
    return theirs(build("llama"))


def ours(model, prompt=PROMPT):
    return draftwood.generate(model, prompt, max_new_tokens=N).ids


class Doubled(nn.Linear):
    def forward(self, x):
        return -2 * super().forward(x)


def activation_by_a_function(model):
    mlp = model.model.layers[0].mlp
    del mlp.act_fn
    mlp.act_fn = lambda x: torch.relu(x) * 2


def forward_of_a_module(model):
    mlp = model.model.layers[0].mlp
    mlp.forward = types.MethodType(lambda self, x: self.down_proj(torch.relu(self.up_proj(x))), mlp)


def forward_by_a_closure(model):
    own = model.lm_head.forward
    model.lm_head.forward = lambda x: own(x).flip(-1)


def forward_of_the_whole(model):
    own = model.forward

    def forward(*args, **kwargs):
        out = own(*args, **kwargs)
        out.logits = out.logits.roll(1, -1)
        return out

    model.forward = forward


def running(statement):
    """A change made by a statement about ``whole`` (the model) and its ``layers``."""
    names = {"nn": nn, "torch": torch, "PROMPT": PROMPT, "Doubled": Doubled}
    return lambda model: exec(statement, names | {"whole": model, "layers": model.model.layers})


CHANGES = {
    "one number": running("layers[1].mlp.down_proj.weight.data[3, 5] = 40.0"),
    "through numpy": running("layers[0].self_attn.q_proj.weight.detach().numpy()[:] *= -1.5"),
    "norm weight": running("whole.model.norm.weight.data[:16] *= 5"),
    "norm epsilon": running("layers[0].input_layernorm.variance_epsilon = 3.0"),
    "embedding row": running("whole.model.embed_tokens.weight.data[PROMPT[-1]] = torch.linspace(-2, 2, 32)"),
    "exchanged data": running("p = layers[0].mlp.up_proj.weight; p.data = p.data.flip(1).clone()"),
    "exchanged parameter": running("l = layers[0].self_attn.v_proj; l.weight = nn.Parameter(-l.weight.detach())"),
    "exchanged layer": running("layers[1].mlp.up_proj = nn.Linear(32, 64, bias=True)"),
    "new bias": running("whole.lm_head.bias = nn.Parameter(torch.linspace(-9, 9, 64))"),
    "activation": running("layers[0].mlp.act_fn = nn.ReLU()"),
    "activation by a function": activation_by_a_function,
    "scaling": running("for layer in layers: layer.self_attn.scaling *= 4"),
    "theta": running("whole.model.rotary_emb.inv_freq.data *= 3"),
    "forward of a module": forward_of_a_module,
    "forward by a closure": forward_by_a_closure,
    "forward of the whole": forward_of_the_whole,
    "hook": running("layers[1].register_forward_hook(lambda _module, _args, out: out * 0.3)"),
    "class of a module": running("layers[1].mlp.up_proj.__class__ = Doubled"),
    "hook before": running("layers[1].mlp.register_forward_pre_hook(lambda _module, args: (args[0] * 7,))"),
}
HOW = {"packed": {"pack": True}, "not packed": {"pack": False}}


@pytest.mark.parametrize("how", rest_is_slow(HOW, "packed"))
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change, how):
    model, decoding = build("llama"), draftwood.decode_with("ngram+recycling")
    prepare(model, **HOW[how])
    before = ours(model)
    assert before == unchanged() == theirs(model, custom_generate=decoding)
    CHANGES[change](model)
    now = theirs(model)
    assert now != before, "the change changes the text"
    assert ours(model) == ours(model) == theirs(model, custom_generate=decoding) == now


@pytest.mark.parametrize("name", ["gpt2", "qwen3_5_text", "mamba2", "bloom", "mixtral"])
def test_a_change_is_seen_in_models_that_run_by_themselves(name):
    model = tiny(name)
    ours(model)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data.mul_(1.7)
    assert ours(model) == theirs(model)


def test_a_configuration_that_is_edited_is_seen():
    model = build("mistral-window")
    before = ours(model, PROMPT * 3)
    model.config.sliding_window = 4
    assert ours(model, PROMPT * 3) == theirs(model, PROMPT * 3) != before


_rotated = modeling_llama.apply_rotary_pos_emb
PATCHES = {
    "class": (LlamaMLP, "forward", lambda self, x: self.down_proj(torch.relu(self.up_proj(x)))),
    "class of torch": (nn.Linear, "forward", lambda self, x: torch.sin(x @ self.weight.T)),
    "code": (LlamaMLP.forward, "__code__", (lambda self, x: -4 * self.down_proj(self.up_proj(x))).__code__),
    "function": (modeling_llama, "apply_rotary_pos_emb", lambda q, k, cos, sin, **_: _rotated(q, k, -cos, sin)),
}


def test_a_method_that_a_forward_calls_is_seen(monkeypatch):
    model = build("gemma3")
    before, own = ours(model), Gemma3RMSNorm._norm
    monkeypatch.setattr(Gemma3RMSNorm, "_norm", lambda self, x: own(self, x).flip(-1))
    assert ours(model) == theirs(model) != before


@pytest.mark.parametrize("patch", PATCHES)
def test_code_that_is_patched_is_seen(monkeypatch, patch):
    model = build("llama")
    before = ours(model)
    monkeypatch.setattr(*PATCHES[patch])
    assert ours(model) == theirs(model) != before
    monkeypatch.undo()
    assert ours(model) == before


class Gain(LlamaMLP):
    """What this multiplies by lies where no comparison of modules sees it."""

    by: object = 1.0

    def forward(self, x):
        return super().forward(x) * self.by


def gains(model, kind):
    for layer in model.model.layers:
        layer.mlp.__class__ = kind


@pytest.mark.parametrize("where", ["class", "property", "tensor", "closure"])
def test_values_that_only_the_users_own_code_reads_are_seen(where):
    """Such modules are run, never imitated; and a model that was never seen is tried, whoever resembles it."""

    def made(factor):
        if where == "property":
            return type("Made", (Gain,), {"by": property(lambda _: factor)})
        return type("Made", (Gain,), {"by": torch.tensor(factor) if where == "tensor" else factor})

    model, kind = build("llama"), made(1.0)
    gains(model, kind)
    before = ours(model)
    if where == "tensor":
        kind.by.fill_(-4.0)
    elif where == "closure":
        model = build("llama")
        gains(model, made(-4.0))
    else:
        kind.by = property(lambda _: -4.0) if where == "property" else -4.0
    assert ours(model) == theirs(model) != before


def test_a_hook_on_every_module_is_seen():
    model = build("llama")
    before = ours(model)
    hook = nn.modules.module.register_module_forward_hook(
        lambda module, _args, out: out * 3 if isinstance(module, LlamaMLP) else None
    )
    try:
        assert ours(model) == theirs(model) != before
    finally:
        hook.remove()
    assert ours(model) == before


def test_what_was_compiled_or_hooked_keeps_the_forward_that_it_was_given():
    from accelerate.hooks import ModelHook, add_hook_to_module

    for wrap in (
        lambda layer: setattr(layer, "forward", torch.compile(layer.forward, backend="eager")),
        lambda layer: add_hook_to_module(layer, ModelHook()),
    ):
        model = build("llama")
        before, layer = ours(model), model.model.layers[1].mlp
        own = layer.forward
        layer.forward = lambda x, own=own: own(x) * -3
        wrap(layer)
        assert ours(model) == theirs(model) != before


def test_what_does_not_change_costs_no_new_target():
    model = build("llama")
    target = shared_target(model)
    theirs(model)
    ours(model)
    model.train()
    model.eval()
    model.generation_config.max_new_tokens = 7
    weight = next(iter(model.parameters()))
    weight.grad = torch.zeros_like(weight)
    assert shared_target(model) is target


def test_a_released_model_that_is_changed_is_refused():
    model = build("llama")
    if shared_target(model).packing is None:
        pytest.skip("this machine packs no weights")
    prepare(model, pack=True, release=True)
    text = ours(model)
    assert ours(model) == text
    with pytest.raises(UsageError, match="cannot be saved: load it again"):
        model.state_dict()
    with pytest.raises(UsageError, match="is a copy of a model that was released"):
        ours(copy.deepcopy(model))
    model.model.norm.weight.data.mul_(2)
    with pytest.raises(UsageError, match="changed after its weights were released"):
        ours(model)


def talking():
    """A model with the vocabulary of `TOKENIZER`."""
    config = LlamaConfig(**build("llama").config.to_dict() | {"vocab_size": len(TOKENIZER)})
    torch.manual_seed(3)
    return modeling_llama.LlamaForCausalLM(config).eval()


def test_a_conversation_goes_on_with_the_model_as_it_is():
    """Each turn is what a fresh conversation with the same history gives."""
    model = talking()
    settings = {"tokenizer": TOKENIZER, "max_new_tokens": 12, "temperature": 0, "seed": 1}
    with Conversation(model, **settings) as chat:
        list(chat.say("ab a"))
        CHANGES["one number"](model)
        history = copy.deepcopy(chat.messages)
        list(chat.say("b"))
        with Conversation(model, **settings) as other:
            other.messages = history
            list(other.say("b"))
            assert chat.generation.ids == other.generation.ids
        assert chat.read > 8, "all of it was read anew"
        list(chat.say("a"))
        assert chat.read < 30


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("change", ["embedding", "rotary", "linear"])
def test_a_conversation_reads_again_what_other_weights_have_read(change, pack):
    """Written in place: passes share the tensor, but the rows that the last turn left in the cache do not."""
    model = talking()
    prepare(model, pack=pack)
    tensor = {
        "embedding": model.model.embed_tokens.weight.data,
        "rotary": model.model.rotary_emb.inv_freq,
        "linear": model.model.layers[0].mlp.up_proj.weight.data,
    }[change]
    with Conversation(model, tokenizer=TOKENIZER, max_new_tokens=8, temperature=0) as chat:
        list(chat.say("ab a"))
        tensor.mul_(-1.5)
        list(chat.say("b"))
        assert chat.read > 8
        assert chat.generation.ids == theirs_of(model, chat.messages[:-1])
        list(chat.say("a"))
        assert chat.read < 30


def theirs_of(model, messages):
    prompt = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return theirs(model, prompt)[:8]


pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks for it


@pytest.fixture
def adapted():
    """A model with two adapters, of which the first is active."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    settings = {"r": 4, "target_modules": ["q_proj", "v_proj", "up_proj", "down_proj"], "init_lora_weights": False}
    model = peft.get_peft_model(build("llama"), peft.LoraConfig(**settings), adapter_name="one")
    model.add_adapter("two", peft.LoraConfig(**settings | {"r": 8, "lora_alpha": 32}))
    return model.eval()


def test_adapters_that_are_switched_are_seen(adapted):
    base = adapted.base_model.model
    texts = {}
    for name in ("one", "two", "one", "two"):
        adapted.set_adapter(name)
        text = ours(base)
        assert text == theirs(base) == ours(adapted), "the wrapper itself is taken, too"
        assert texts.setdefault(name, text) == text
    with adapted.disable_adapter():
        plain = ours(base)
        assert plain == theirs(base) == unchanged()
    assert ours(base) == texts["two"]
    assert len({tuple(text) for text in (*texts.values(), plain)}) == 3


def test_adapters_that_are_merged_are_seen(adapted):
    base = adapted.base_model.model
    before = ours(base)
    adapted.merge_adapter()
    assert ours(base) == theirs(base) == before
    adapted.unmerge_adapter()
    assert ours(base) == theirs(base) == before
    adapted.set_adapter("two")
    merged = adapted.merge_and_unload()
    assert ours(merged) == theirs(merged) != before


def test_transformers_own_adapters_are_seen():
    peft = pytest.importorskip("peft")
    model = build("llama")
    plain = ours(model)
    torch.manual_seed(2)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "o_proj"], init_lora_weights=False)
    try:
        model.add_adapter(config, adapter_name="a")
    except ValueError as refused:  # a new transformers may wait for a peft that is not out yet
        pytest.skip(str(refused))
    adapted = ours(model)
    assert adapted == theirs(model) != plain
    model.disable_adapters()
    assert ours(model) == theirs(model) == plain
    model.enable_adapters()
    assert ours(model) == adapted
