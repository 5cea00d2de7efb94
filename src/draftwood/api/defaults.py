"""What a model's generation config says: defaults that we take over, settings that we must refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np

from draftwood.api.given import check_whole
from draftwood.errors import UsageError

NEW_TOKENS = 256
"""Most tokens to write where nobody says."""

HONOURED = frozenset(
    {
        "eos_token_id",
        "max_length",
        "max_new_tokens",
        "max_time",
        "min_p",
        "repetition_penalty",
        "stop_strings",
        "top_k",
        "top_p",
    }
)
"""Settings that fill in what the caller leaves open."""

WITHOUT_EFFECT = frozenset(
    {
        # The caller says it: greedy, unless he gives a temperature.
        "do_sample", "temperature",
        # They say nothing of one text that is written token by token, without its own speculation.
        "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
        "assistant_lookbehind", "bos_token_id", "decoder_start_token_id", "early_stopping", "is_assistant",
        "length_penalty", "low_memory",
        "max_matching_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule", "pad_token_id",
        "prompt_lookup_num_tokens", "renormalize_logits", "speculation_type", "target_lookbehind",
        "transformers_version", "use_mtp",
        # How it is computed, or what is told of it beside the text.
        "cache_config", "compile_config", "continuous_batching_config", "disable_compile", "max_cache_len",
        "output_attentions", "output_hidden_states", "output_logits", "output_scores", "prefill_chunk_size",
        "return_dict_in_generate", "use_cache",
    }
)  # fmt: skip
"""Settings that change no text of ours; `draftwood.decode_with` is the door that returns what they ask for."""

REFUSED: dict[str, tuple[Any, ...]] = {
    "bad_words_ids": (),
    "begin_suppress_tokens": (),
    "constraints": (),
    "diversity_penalty": (0,),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0,),
    "remove_invalid_values": (False,),
    "sequence_bias": (),
    "suppress_tokens": (),
    "token_healing": (False,),
    "watermarking_config": (),
}
REFUSED_SAMPLED: dict[str, tuple[Any, ...]] = {
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "top_h": (),
    "typical_p": (1,),
}
"""Settings that change the text of ``model.generate`` and that we do not apply, with the values that do not."""

REFUSED_VALUES: dict[str, tuple[Any, ...]] = {"cache_implementation": ("quantized",)}
"""The same, with the values that do."""


def end_ids(config: Any) -> frozenset[int]:
    """End-of-sequence tokens of a generation config (None has none)."""
    end = getattr(config, "eos_token_id", None)
    if end is None:
        return frozenset()
    try:
        return frozenset(index(one) for one in (end if np.ndim(end) else [end]))
    except TypeError:
        raise UsageError(
            f"eos_token_id of the generation config is {end!r}: give a token id or a list of token ids"
        ) from None


def new_tokens(config: Any, given: int | None, prompt: int) -> int:
    """Most tokens to write: what the caller says, else the config, else `NEW_TOKENS`.

    Parameters
    ----------
    config
        A generation config; None has none.
    given
        By the caller.
    prompt
        Tokens of the prompt, which ``max_length`` counts too.

    Raises
    ------
    UsageError
        If it is no whole number from 1 on, or ``max_length`` leaves no room behind the prompt.
    """
    if given is not None:
        return check_whole("max_new_tokens", given)
    if new := getattr(config, "max_new_tokens", None):
        return int(new)
    longest = getattr(config, "max_length", None)
    if longest is None:
        return NEW_TOKENS
    if longest <= prompt:
        raise UsageError(
            f"the model's generation config sets max_length={longest}, which leaves no room behind a prompt of "
            f"{prompt} tokens: pass max_new_tokens"
        )
    return int(longest) - prompt


def stop_strings(config: Any, given: str | Sequence[str] | None) -> list[str]:
    """Texts that end the answer: the caller's, else the config's; `UsageError` for what is no text."""
    found = given if given is not None else getattr(config, "stop_strings", None)
    if not found:
        return []
    texts = list(found) if isinstance(found, Iterable) and not isinstance(found, str | bytes) else [found]
    if odd := [text for text in texts if not isinstance(text, str)]:
        raise UsageError(f"stop is text (str) or a list of texts, and {odd[0]!r:.80} is none: decode it first")
    return texts


def fill_sampling(config: Any, sampling: dict[str, Any]) -> None:
    """Fill in what the caller left open from the config."""
    for name in ("top_k", "top_p", "min_p", "repetition_penalty"):
        if sampling.get(name) is None:
            sampling[name] = getattr(config, name, None)
            if name == "top_k" and sampling[name] == 0:  # how transformers writes "none"
                sampling[name] = None
    if sampling["repetition_penalty"] is None:
        sampling["repetition_penalty"] = 1.0


def refuse_settings(config: Any, *, sampled: bool) -> None:
    """Raise `UsageError` for a setting of the config that changes the text and that we would ignore."""
    neutral = REFUSED | REFUSED_SAMPLED if sampled else REFUSED
    for name in (*neutral, *REFUSED_VALUES):
        value = getattr(config, name, None)
        if value is None or (isinstance(value, list | tuple | dict) and not value):
            continue
        if value in REFUSED_VALUES[name] if name in REFUSED_VALUES else value not in neutral[name]:
            raise UsageError(
                f"the model's generation config sets {name}={value!r}, which draftwood does not apply: set "
                f"model.generation_config.{name} to None, and pass a logits_processor for it where there is one"
            )
