"""What a script may get wrong: a clear error or a clean end, the text so far kept, the model left as found."""

import copy
import threading

import numpy as np
import pytest
import torch
from tests.api.generating import CACHE, drafted, plain, speller
from tests.engines.tiny import build
from transformers import (
    DynamicCache,
    LogitsProcessor,
    StaticCache,
    StoppingCriteria,
    T5Config,
    T5ForConditionalGeneration,
    TextIteratorStreamer,
)

import draftwood
from draftwood.engines.transformers.plugin import refusals
from draftwood.engines.transformers.shared import shared_target
from draftwood.errors import DraftwoodError, PromptError, UnsupportedModelError, UsageError

PROMPT = np.random.default_rng(5).integers(1, 64, 24).tolist() * 2
IDS = torch.tensor([PROMPT])
ONE = {"inputs": IDS}


@pytest.fixture
def llama():
    """A model whose state must be the same afterwards, its arena idle."""
    model = build("llama")
    before = state(model)
    yield model
    after = state(model)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[k], before[k]) if "." in k else after[k] == before[k] for k in before)
    arena = shared_target(model).arena
    assert sorted(arena._free) == list(range(arena.slots))


def state(model):
    return {
        **{f"weights.{k}": v.clone() for k, v in model.state_dict().items()},
        "config": model.config.to_dict(),
        "generation": model.generation_config.to_dict(),
        "training": [m.training for m in model.modules()],
        "attention": model.config._attn_implementation,
        "attributes": sorted(model.__dict__),
    }


def refused(model, error, match, ids=IDS, **settings):
    decoding = draftwood.decode_with()
    with pytest.raises(error, match=match):
        drafted(model, {"inputs": ids}, decoding, **settings)
    assert decoding.generations == [] or not decoding.generations[0].ids


def mask(*rows):
    return {"ids": IDS.repeat(len(rows), 1), "attention_mask": torch.tensor(rows)}


FULL = [1] * len(PROMPT)


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ([*FULL[:-2], 0, 0], "row 1 is padded on the right"),
        ([0] * len(PROMPT), "row 1 of attention_mask masks its whole prompt"),
        ([0, 1, 0, *FULL[3:]], "row 1 of attention_mask has holes"),
    ],
)
def test_masks_that_are_no_left_padding(llama, row, match):
    refused(llama, PromptError, match, **mask(FULL, row))


def test_a_mask_of_another_length(llama):
    refused(llama, PromptError, "must be equal", attention_mask=torch.tensor([[0, 1]]))
    refused(llama, UsageError, "attention_mask covers 2 tokens", attention_mask=torch.ones(1, 2))


def test_positions_of_the_callers_own(llama):
    refused(llama, PromptError, "position_ids differ", position_ids=torch.arange(1, 49)[None])


SETTINGS = {
    "num_beams": {"num_beams": 2},
    "constraints": {"constraints": ["x"], "num_beams": 2},
    "force_words_ids": {"force_words_ids": [[1]], "num_beams": 2},
    "penalty_alpha": {"penalty_alpha": 0.6, "top_k": 4},
    "dola_layers": {"dola_layers": "high"},
    "prompt_lookup_num_tokens": {"prompt_lookup_num_tokens": 3},
    "assistant_early_exit": {"assistant_early_exit": 1},
    "guidance_scale": {"guidance_scale": 1.5},
    "output_attentions": {"output_attentions": True, "return_dict_in_generate": True},
    "output_hidden_states": {"output_hidden_states": True, "return_dict_in_generate": True},
    "synced_gpus": {"synced_gpus": True},
    "inputs_embeds": {"ids": None, "inputs_embeds": torch.zeros(1, 4, 32)},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETTINGS)
def test_what_cannot_be_honoured_is_refused_by_name(llama, name):
    wanted = "num_beams" if "num_beams" in SETTINGS[name] else name
    refused(llama, UsageError, wanted, **SETTINGS[name])


def test_an_assistant_is_refused(llama):
    refused(llama, UsageError, "assistant_model", assistant_model=build("llama"))


def test_inputs_that_the_model_would_take_and_our_passes_would_not(llama):
    decoding = draftwood.decode_with()
    with pytest.raises(UsageError, match="pixel_values is an input"):
        decoding(llama, IDS, [], [], llama.generation_config, pixel_values=torch.zeros(1))
    with pytest.raises(UsageError, match="output_attentions is an input"):
        decoding(llama, IDS, [], [], llama.generation_config, output_attentions=True)


def test_what_later_versions_of_generate_may_ask_for_is_refused_by_name(llama, monkeypatch):
    monkeypatch.setattr(refusals, "_KNOWN", refusals._KNOWN - {"prefix_allowed_tokens_fn", "top_h", "top_k"})
    refused(llama, UsageError, "top_h=0.5 is new in transformers", top_h=0.5)
    refused(llama, UsageError, "prefix_allowed_tokens_fn=<", prefix_allowed_tokens_fn=lambda *_: [1])
    assert drafted(llama, ONE).shape == (1, 88)  # usual values


def test_every_argument_and_setting_of_this_transformers_is_known():
    """Where this fails, look at what the new one asks for: refuse it, honour it, or call it harmless."""
    assert {*refusals._ARGUMENTS, *refusals._SETTINGS}.issubset(refusals._KNOWN)


def test_an_encoder_decoder_is_refused():
    sizes = {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    config = T5Config(**sizes, decoder_start_token_id=0)
    refused(T5ForConditionalGeneration(config).eval(), UnsupportedModelError, "encoder-decoder")


def test_a_limit_below_the_prompt(llama):
    refused(llama, ValueError, "max_length", max_new_tokens=None, max_length=20)
    config = copy.deepcopy(llama.generation_config)
    for length in (20, len(PROMPT)):
        config.max_length = length
        with pytest.raises(UsageError, match=f"max_length={length} leaves no room"):
            draftwood.decode_with()(llama, IDS, [], [], config)
    config.max_length = len(PROMPT) + 5
    assert draftwood.decode_with()(llama, IDS, [], [], config).shape == (1, len(PROMPT) + 5)


def filled(length):
    """A cache with so many tokens, of zeros."""
    cache = DynamicCache()
    for layer in range(3):
        cache.update(torch.zeros(1, 2, length, 8), torch.zeros(1, 2, length, 8), layer)
    return cache


@pytest.mark.parametrize("length", [len(PROMPT), len(PROMPT) + 3])
def test_a_cache_that_leaves_nothing_to_read(llama, length):
    refused(llama, PromptError, f"the given cache holds {length} tokens", **{CACHE: filled(length)})


def test_caches_that_are_not_the_models(llama):
    other = DynamicCache()
    other.update(torch.zeros(1, 4, 5, 8), torch.zeros(1, 4, 5, 8), 0)
    refused(llama, UsageError, "other shapes", **{CACHE: other})
    short = filled(5)
    short.layers.pop()
    refused(llama, UsageError, "2 layers and no row 0 in layer 2", **{CACHE: short})
    refused(llama, UsageError, "does not fit", ids=IDS.repeat(2, 1), **{CACHE: filled(5)})
    static = StaticCache(config=llama.config, max_cache_len=100)
    refused(llama, UsageError, "StaticCache", **{CACHE: static})


class Breaks(LogitsProcessor):
    """Behaves until its tenth call."""

    def __init__(self, what):
        self.calls, self.what = 0, what

    def __call__(self, input_ids, scores):
        self.calls += 1
        return scores if self.calls < 10 else self.what(scores)


@pytest.mark.parametrize("what", [lambda s: s[:, :-1], lambda s: s.repeat(2, 1), lambda s: s[0]])
def test_a_processor_that_changes_the_shape(llama, what):
    decoding = draftwood.decode_with()
    with pytest.raises(DraftwoodError, match="logits processor Breaks returned shape"):
        drafted(llama, ONE, decoding, logits_processor=[Breaks(what)])
    assert_kept(llama, decoding, 9, "error")


def test_a_processor_that_cannot_be_copied_in_a_batch(llama):
    class Locked(LogitsProcessor):
        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, input_ids, scores):
            return scores

    assert drafted(llama, ONE, logits_processor=[Locked()]) is not None
    refused(llama, UsageError, "Locked cannot be copied", ids=IDS.repeat(2, 1), logits_processor=[Locked()])


def assert_kept(model, decoding, most, finish=None):
    """The generations hold a beginning of the text: all that was certain."""
    (written,) = decoding.generations
    text = plain(model, ONE)[0, len(PROMPT) :].tolist()
    assert 0 < len(written.ids) <= most
    assert written.ids == text[: len(written.ids)]
    assert len(written.sources) == len(written.ids)
    assert written.finish_reason == finish
    assert (written.error is None) == (finish is None)


def test_a_criterion_that_raises(llama):
    class Raises(StoppingCriteria):
        def __call__(self, input_ids, scores, **kwargs):
            if input_ids.shape[1] == len(PROMPT) + 10:
                raise ZeroDivisionError("mine")
            return torch.tensor([False])

    decoding = draftwood.decode_with()
    with pytest.raises(ZeroDivisionError, match="mine"):
        drafted(llama, ONE, decoding, stopping_criteria=[Raises()])
    assert_kept(llama, decoding, 10, "error")


class Full:
    """A streamer that takes ten puts, and whose end fails too."""

    def __init__(self):
        self.puts, self.ends = 0, 0

    def put(self, value):
        self.puts += 1
        if self.puts > 10:
            raise OSError("the reader has left")

    def end(self):
        self.ends += 1
        raise OSError("twice")


@pytest.mark.parametrize("given_to", ["generate", "decode_with"])
def test_a_streamer_that_raises(llama, given_to):
    streamer = Full()
    decoding = draftwood.decode_with(streamer=streamer if given_to == "decode_with" else None)
    settings = {"streamer": streamer} if given_to == "generate" else {}
    with pytest.raises(OSError, match="the reader has left"):
        drafted(llama, ONE, decoding, **settings)
    assert streamer.ends == 1
    assert_kept(llama, decoding, 10)


@pytest.mark.parametrize("drafters", ["none", "ngram"])
def test_ctrl_c_in_a_pass(llama, drafters, monkeypatch):
    target = shared_target(llama)
    score, left = target.score, [5]

    def pressed(requests):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return score(requests)

    monkeypatch.setattr(target, "score", pressed)
    decoding = draftwood.decode_with(drafters)
    streamer = TextIteratorStreamer(speller(), skip_prompt=True, timeout=60)
    with pytest.raises(KeyboardInterrupt):
        drafted(llama, ONE, decoding, streamer=streamer)
    shown = "".join(streamer)  # it has ended
    assert shown == speller().decode(decoding.generations[0].ids)
    monkeypatch.undo()
    assert_kept(llama, decoding, 39)
    assert torch.equal(drafted(llama, ONE, decoding), plain(llama, ONE))


def test_ctrl_c_within_the_models_own_code(llama, monkeypatch):
    kind, left = type(shared_target(llama)), [4]
    run = kind._run

    def pressed(self, *arguments):
        scores = run(self, *arguments)
        left[0] -= 1
        if left[0] == 0:  # the pass has written into the cache
            raise KeyboardInterrupt
        return scores

    monkeypatch.setattr(kind, "_run", pressed)
    decoding = draftwood.decode_with()
    cache = DynamicCache()
    with pytest.raises(KeyboardInterrupt):
        drafted(llama, ONE, decoding, **{CACHE: cache})
    monkeypatch.undo()
    assert_kept(llama, decoding, 39)
    assert cache.get_seq_length() == 0  # filled as a whole or not at all
