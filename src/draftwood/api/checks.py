"""Checks what the user gave, and reads a model's generation config: defaults, and settings that are refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np

from draftwood.contracts import Target
from draftwood.errors import LARGEST, UnsupportedModelError, UsageError, number

NEW_TOKENS = 256  # most tokens to write if neither the caller nor the generation config sets a limit
CHAT_TEMPERATURE = 0.7  # of the command line and the server, for chats of models that name none

# Settings that change the text and that we do not apply, each with those of its values that change nothing.
REFUSED: dict[str, tuple[Any, ...]] = {
    "bad_words_ids": (), "begin_suppress_tokens": (), "constraints": (), "dola_layers": (),
    "exponential_decay_length_penalty": (), "force_words_ids": (), "forced_bos_token_id": (),
    "forced_eos_token_id": (), "sequence_bias": (), "suppress_tokens": (), "watermarking_config": (),
    "diversity_penalty": (0,), "encoder_no_repeat_ngram_size": (0,), "min_length": (0,), "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,), "penalty_alpha": (0,), "encoder_repetition_penalty": (1,),
    "guidance_scale": (1,), "num_beam_groups": (1,), "num_beams": (1,), "num_return_sequences": (1,),
    "remove_invalid_values": (False,), "token_healing": (False,),
}  # fmt: skip
# The same for settings that change sampled texts only.
REFUSED_SAMPLED: dict[str, tuple[Any, ...]] = {
    "epsilon_cutoff": (0,), "eta_cutoff": (0,), "top_h": (), "typical_p": (1,),
    "mirostat": (0,), "xtc_probability": (0,),  # of GGUF files
}  # fmt: skip
# Settings with the values that change the text; all others change nothing.
REFUSED_VALUES: dict[str, tuple[Any, ...]] = {"cache_implementation": ("quantized",)}


def check_model(model: Any) -> None:
    """Raise an error for what is plainly no model; whether it is one that draftwood can run is checked later."""
    if isinstance(model, type):
        raise UsageError(f"model is the class {model.__name__}: give an object of it, or a model's name")
    if isinstance(model, Target):
        return
    if model is None or isinstance(model, list | tuple):
        raise UsageError(
            f"model is {'None' if model is None else f'a {type(model).__name__}'}: give one model, as in "
            "model, tokenizer = draftwood.load(...)"
        )
    if callable(getattr(model, "decode", None)) and not hasattr(model, "forward"):
        raise UsageError(
            f"a tokenizer ({type(model).__name__}) was given as the model: give the model first, and tokenizer="
        )
    if not hasattr(getattr(model, "config", None), "get_text_config"):
        raise UnsupportedModelError(
            f"{type(model).__name__} is no model of transformers and no Target: give one, or a model's name"
        )


def check_tokenizer_kind(tokenizer: Any) -> None:
    """Raise `UsageError` for what cannot turn text into ids and back; None (no tokenizer) is allowed."""
    if tokenizer is None:
        return
    is_class = isinstance(tokenizer, type)
    if is_class or not (callable(tokenizer) and hasattr(tokenizer, "decode") and hasattr(tokenizer, "__len__")):
        name = f"the class {tokenizer.__name__}" if is_class else f"a {type(tokenizer).__name__}"
        raise UsageError(
            f"tokenizer is {name}: give a tokenizer of transformers, as in model, tokenizer = draftwood.load(...)"
        )


def check_whole(name: str, value: Any) -> int:
    """Return the value as int; `UsageError` if it is not a whole number above 0."""
    return number(value, 1, LARGEST, f"{name} is {{}}: it must be a whole number, at least 1", whole=True)


def end_ids(config: Any) -> frozenset[int]:
    """Return the end-of-sequence tokens of a generation config, or of None, which has none."""
    end = getattr(config, "eos_token_id", None)
    if end is None:
        return frozenset()
    try:
        return frozenset(index(one) for one in (end if np.ndim(end) else [end]))
    except TypeError:
        raise UsageError(
            f"eos_token_id of the generation config is {end!r}: give a token id or a list of token ids"
        ) from None


def new_tokens(config: Any, given: int | None, prompt: int, otherwise: int = NEW_TOKENS) -> int:
    """Return how many tokens to write at most: ``given`` by the caller, else by the config, else ``otherwise``.

    ``prompt`` is the length of the prompt, which ``max_length`` of the config includes.
    """
    if given is not None:
        return check_whole("max_new_tokens", given)
    if new := getattr(config, "max_new_tokens", None):
        return check_whole("max_new_tokens of the generation config", new)
    if (longest := getattr(config, "max_length", None)) is None:
        return otherwise
    if check_whole("max_length of the generation config", longest) <= prompt:
        raise UsageError(
            f"the model's generation config sets max_length={longest}, which leaves no room after a prompt of "
            f"{prompt} tokens: pass max_new_tokens"
        )
    return int(longest) - prompt


def stop_strings(config: Any, given: str | Sequence[str] | None) -> list[str]:
    """Return the texts that end the answer: the caller's, else the config's; `UsageError` if one is not text."""
    found = given if given is not None else getattr(config, "stop_strings", None)
    if not found:
        return []
    texts = list(found) if isinstance(found, Iterable) and not isinstance(found, str | bytes) else [found]
    if odd := [text for text in texts if not isinstance(text, str)]:
        raise UsageError(f"stop is text (str) or a list of texts, and {odd[0]!r:.80} is none: decode it first")
    return texts


def fill_sampling(config: Any, sampling: dict[str, Any], *, otherwise: float = 0.0) -> None:
    """Fill settings of ``sampling`` that the caller left open from the config.

    ``otherwise`` is the temperature where neither says one or whether to sample; above 0, a config that names a
    temperature alone is believed.
    """
    if sampling.get("temperature") is None:
        said, chosen = getattr(config, "temperature", None), getattr(config, "do_sample", None)
        is_sampled = otherwise > 0 if chosen is None else chosen
        usual = 1.0 if chosen else otherwise  # 1 is that of transformers, for a config that only says to sample
        sampling["temperature"] = 0.0 if not is_sampled else usual if said is None else said
    if sampling.get("repetition_penalty") is None:  # what a caller gives is for the whole text
        sampling["penalty_last_n"] = getattr(config, "penalty_last_n", None)
    for name in ("top_k", "top_p", "min_p", "repetition_penalty"):
        if sampling.get(name) is None:
            sampling[name] = getattr(config, name, None)
            if name == "top_k" and sampling[name] == 0:  # transformers' way to say "no limit"
                sampling[name] = None
    if sampling["repetition_penalty"] is None:
        sampling["repetition_penalty"] = 1.0


def refuse_settings(config: Any, *, sampled: bool) -> None:
    """Raise `UsageError` if the config sets something that changes the text and that we do not apply."""
    neutral = REFUSED | REFUSED_SAMPLED if sampled else REFUSED
    for name in (*neutral, *REFUSED_VALUES):
        value = getattr(config, name, None)
        if value is None or (isinstance(value, list | tuple | dict) and not value):
            continue
        if value in REFUSED_VALUES[name] if name in REFUSED_VALUES else value not in neutral[name]:
            raise UsageError(
                f"the model's generation config sets {name}={value!r}, which draftwood does not apply: remove it "
                f"there, or set model.generation_config.{name} to None, and pass a logits_processor for it where "
                "there is one"
            )
