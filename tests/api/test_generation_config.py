"""Every setting that transformers' generation config knows is honoured, has no effect, or is refused by name."""

import copy
import time

import pytest
from tests.api.fake import toy
from tests.api.generating import PROMPT, speller
from tests.engines.tiny import continued
from transformers import GenerationConfig

import draftwood
from draftwood.api import checks
from draftwood.api.setup import Setup
from draftwood.errors import UsageError

KNOWN = sorted(name for name in vars(GenerationConfig()) if not name.startswith("_"))
HONOURED = frozenset(
    {
        "do_sample", "eos_token_id", "max_length", "max_new_tokens", "max_time", "min_p", "repetition_penalty",
        "stop_strings", "temperature", "top_k", "top_p",
    }
)  # fmt: skip
"""Settings that fill in what the caller leaves open."""

WITHOUT_EFFECT = frozenset(
    {
        # Without meaning for one text that is written token by token.
        "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
        "assistant_lookbehind", "bos_token_id", "decoder_start_token_id", "early_stopping", "is_assistant",
        "length_penalty", "low_memory",
        "max_matching_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule", "pad_token_id",
        "prompt_lookup_num_tokens", "renormalize_logits", "speculation_type", "target_lookbehind",
        "transformers_version", "use_mtp",
        # How the text is computed, or what is returned besides it.
        "cache_config", "compile_config", "continuous_batching_config", "disable_compile", "max_cache_len",
        "output_attentions", "output_hidden_states", "output_logits", "output_scores", "prefill_chunk_size",
        "return_dict_in_generate", "use_cache",
    }
)  # fmt: skip
"""Settings that change no text of ours; `draftwood.decode_with` returns what they ask for."""

REFUSED = {**checks.REFUSED, **checks.REFUSED_SAMPLED, **checks.REFUSED_VALUES}

CHANGING = {
    "bad_words_ids": [[5]], "begin_suppress_tokens": [1], "cache_implementation": "quantized",
    "constraints": ["anything"], "diversity_penalty": 0.5, "dola_layers": "high",
    "encoder_no_repeat_ngram_size": 2, "encoder_repetition_penalty": 1.4, "epsilon_cutoff": 3e-4,
    "eta_cutoff": 3e-4, "exponential_decay_length_penalty": (5, 1.5), "force_words_ids": [[5]],
    "forced_bos_token_id": 5, "forced_eos_token_id": 5, "guidance_scale": 1.5, "min_length": 50,
    "min_new_tokens": 9, "no_repeat_ngram_size": 3, "num_beam_groups": 2, "num_beams": 2,
    "num_return_sequences": 2, "penalty_alpha": 0.6, "remove_invalid_values": True, "sequence_bias": [[[3], 4.0]],
    "suppress_tokens": [1], "token_healing": True, "top_h": 0.4, "typical_p": 0.5,
    "watermarking_config": {"bias": 2.5}, "mirostat": 2, "xtc_probability": 0.5,
}  # fmt: skip
"""A value of each refused setting that changes the text."""


@pytest.fixture
def llama(llama):
    kept = copy.deepcopy(llama.generation_config)
    yield llama
    llama.generation_config = kept


def test_every_setting_has_its_place():
    """A new version of transformers with a new setting fails here, and somebody decides."""
    places = [HONOURED, WITHOUT_EFFECT, frozenset(REFUSED)]
    for name in KNOWN:
        assert sum(name in place for place in places) == 1, f"{name} is in no place, or in several"
    of_files = {"mirostat", "xtc_probability"}  # of GGUF
    assert sorted(set().union(*places) - of_files) == KNOWN, "and nothing else is"
    assert CHANGING.keys() == REFUSED.keys()


@pytest.mark.parametrize("name", sorted(CHANGING))
def test_what_would_change_the_text_is_refused_by_name(llama, name):
    setattr(llama.generation_config, name, CHANGING[name])
    temperature = 0.7 if name in checks.REFUSED_SAMPLED else 0
    with pytest.raises(UsageError, match=f"generation config sets {name}="):
        draftwood.generate(llama, PROMPT, max_new_tokens=4, temperature=temperature)


@pytest.mark.parametrize("name", sorted(checks.REFUSED_SAMPLED))
def test_what_shapes_sampling_says_nothing_of_greedy_text(llama, name):
    setattr(llama.generation_config, name, CHANGING[name])
    assert draftwood.generate(llama, PROMPT, max_new_tokens=9).ids == continued(llama, PROMPT, max_new_tokens=9)


@pytest.mark.parametrize(
    ("says", "alone", "served"),
    [
        ({}, 0, 0.7),
        ({"temperature": 0.6}, 0, 0.6),
        ({"do_sample": True}, 1, 1),
        ({"do_sample": True, "temperature": 0.6}, 0.6, 0.6),
        ({"do_sample": False, "temperature": 0.6}, 0, 0),
    ],
)
def test_the_temperature_is_the_caller_s_or_the_model_s(says, alone, served):
    setup = Setup(toy(**says, max_positions=100))
    for given, expected in ((None, alone), (0.3, 0.3), (0, 0)):
        assert setup.request(PROMPT, temperature=given).sampling.temperature == expected
    open_ = setup.request(PROMPT, served=True, chat=True)
    assert (open_.sampling.temperature, open_.limit) == (served, 100)
    assert setup.request(PROMPT, served=True).sampling.temperature == alone
    assert Setup(toy(max_new_tokens=7)).request(PROMPT, served=True).limit == 7


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        ({"max_new_tokens": "x"}, "max_new_tokens of the generation config is 'x': it must be a whole number"),
        ({"max_length": "x"}, "max_length of the generation config is 'x'"),
        ({"penalty_last_n": 0}, "penalty_last_n must be a whole number"),
        ({"do_sample": True, "mirostat": 2}, "sets mirostat=2, which draftwood does not apply"),
    ],
)
def test_settings_of_a_file_that_cannot_be_followed(says, sentence):
    setup = Setup(toy(**says))
    with pytest.raises(UsageError, match=sentence):
        setup.request(PROMPT)
    setup.request(PROMPT, max_new_tokens=3, repetition_penalty=1.2, temperature=0)


def test_max_length_counts_the_prompt(llama):
    llama.generation_config.max_length = len(PROMPT) + 7
    assert draftwood.generate(llama, PROMPT).ids == continued(llama, PROMPT)
    assert len(draftwood.generate(llama, PROMPT).ids) == 7
    assert len(draftwood.generate(llama, PROMPT, max_new_tokens=3).ids) == 3
    short, long = draftwood.generate(llama, [PROMPT[:10], PROMPT])
    assert (len(short.ids), len(long.ids)) == (len(PROMPT) - 3, 7)
    llama.generation_config.max_new_tokens = 5  # goes before it, as there
    assert len(draftwood.generate(llama, PROMPT).ids) == 5
    llama.generation_config.max_new_tokens = None
    llama.generation_config.max_length = len(PROMPT)
    with pytest.raises(UsageError, match=f"max_length={len(PROMPT)}, which leaves no room"):
        draftwood.generate(llama, PROMPT)


def test_max_time_ends_the_text(llama):
    llama.generation_config.max_time = 1e-9
    assert len(continued(llama, PROMPT, max_new_tokens=50)) == 1
    one = draftwood.generate(llama, PROMPT, max_new_tokens=50)
    assert (len(one.ids), one.finish_reason) == (1, "length")
    for each in draftwood.generate(llama, [PROMPT, PROMPT[3:]], max_new_tokens=50):
        assert len(each.ids) == 1
    llama.generation_config.max_time = 3600.0
    assert len(draftwood.generate(llama, PROMPT, max_new_tokens=50).ids) == 50

    def slow(_ids, scores):
        time.sleep(0.02)
        return scores

    llama.generation_config.max_time = 0.2
    cut = draftwood.generate(llama, PROMPT, max_new_tokens=500, logits_processor=[slow], drafters="ngram")
    assert 1 <= len(cut.ids) <= 12
    llama.generation_config.max_time = None
    assert cut.ids == continued(llama, PROMPT, max_new_tokens=len(cut.ids))


def test_stop_strings_end_the_text(llama):
    tokenizer = speller()
    text = draftwood.generate(llama, PROMPT, max_new_tokens=40, tokenizer=tokenizer).text
    stop = text[12:14]
    llama.generation_config.stop_strings = [stop]
    one = draftwood.generate(llama, PROMPT, max_new_tokens=40, tokenizer=tokenizer)
    assert one.ids == continued(llama, PROMPT, max_new_tokens=40, tokenizer=tokenizer)
    assert (one.text, one.finish_reason) == (text[: text.index(stop)], "stop")
    llama.generation_config.stop_strings = stop
    assert draftwood.generate(llama, PROMPT, max_new_tokens=40, tokenizer=tokenizer).ids == one.ids
    assert len(draftwood.generate(llama, PROMPT, max_new_tokens=40, tokenizer=tokenizer, stop=[]).ids) == 40
    assert len(draftwood.generate(llama, PROMPT, max_new_tokens=40, stop=[]).ids) == 40
    with pytest.raises(UsageError, match="need a tokenizer"):
        draftwood.generate(llama, PROMPT, max_new_tokens=40)
