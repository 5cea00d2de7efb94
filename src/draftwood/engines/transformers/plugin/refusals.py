"""Reads what a call of ``model.generate`` asks for; refuses by name, before the first token, what we do not do."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin

from draftwood.engines.transformers.families import CACHES
from draftwood.errors import PromptError, UnsupportedModelError, UsageError

_SPECULATION = "speculation of transformers' own"
_ASKS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "num_beams": ("beam search", (1,)),
    "constraints": ("constrained beam search", ()),
    "force_words_ids": ("constrained beam search", ()),
    "penalty_alpha": ("contrastive search", ()),
    "dola_layers": ("DoLa decoding", ()),
    "prompt_lookup_num_tokens": (_SPECULATION, ()),
    "assistant_early_exit": (_SPECULATION, ()),
    "assistant_model": (_SPECULATION, ()),
    "use_mtp": (_SPECULATION, ()),
    "speculation_type": (_SPECULATION, ()),
    "guidance_scale": ("a second pass of the model per token", (1,)),
    "output_attentions": ("attention weights of every token", ()),
    "output_hidden_states": ("hidden states of every token", ()),
    "synced_gpus": ("passes in step with other processes", ()),
}
"""Settings that ask for more than one token after another: for what, and the values that do not."""

_NAMES = """
assistant_confidence_threshold assistant_ensemble_weight assistant_lookbehind bad_words_ids begin_suppress_tokens
bos_token_id cache_config cache_implementation compile_config continuous_batching_config decoder_start_token_id
disable_compile diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty
eos_token_id epsilon_cutoff eta_cutoff exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id
is_assistant length_penalty low_memory max_cache_len max_length max_matching_ngram_size max_new_tokens max_time
min_length min_new_tokens min_p no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule
num_beam_groups num_return_sequences output_logits output_scores pad_token_id prefill_chunk_size
remove_invalid_values renormalize_logits repetition_penalty return_dict_in_generate sequence_bias stop_strings
suppress_tokens target_lookbehind temperature token_healing top_h top_k top_p transformers_version typical_p
use_cache watermarking_config self inputs generation_config logits_processor stopping_criteria
prefix_allowed_tokens_fn negative_prompt_ids negative_prompt_attention_mask custom_generate streamer kwargs
_from_model_config
"""
_KNOWN = frozenset(_NAMES.split()).union(_ASKS)
"""Settings and arguments of generate, up to transformers 5.24, that we refuse, honour, or may ignore."""
_GENERATE = inspect.unwrap(GenerationMixin.generate)
_ARGUMENTS = {name: one.default for name, one in inspect.signature(_GENERATE).parameters.items()}
_SETTINGS = dict.fromkeys(vars(GenerationConfig())) | GenerationConfig._get_default_generation_params()
"""Those of the transformers at hand, and their defaults."""

_UNDERSTOOD = {"attention_mask", "position_ids", "use_cache", "logits_to_keep", "return_dict", *CACHES}
"""Arguments of the model that our passes use, or replace by their own."""


class KeptBack(NamedTuple):
    """What ``model.generate`` does not hand on to a callable: its own ``arguments``, looked up in its call; the
    others are given to the callable when it is made."""

    arguments: dict[str, Any]
    stop_strings: str | Sequence[str] | None = None
    tokenizer: Any = None
    seed: int | None = None


def kept_back(input_ids: Tensor) -> KeptBack:
    """Look up what the call of ``model.generate`` that calls us with these ids does not hand on: arguments that
    its own sampling method knows, such as the streamer. They are only in generate's own frame, known by its code,
    whatever it is wrapped in, and its very tensor of ids; where a callable is called by hand there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _GENERATE.__code__:
        frame = frame.f_back
    known = {} if frame is None else frame.f_locals
    if known.get("input_ids") is not input_ids:
        return KeptBack({})
    return KeptBack({name: known.get(name) for name in _ARGUMENTS})


def refuse_settings(model: Any, config: Any, kept: KeptBack, arguments: dict[str, Any]) -> None:
    """Raise an error that names the first setting, input or model that we cannot honour; ``config`` is the merged
    generation config, ``arguments`` are the model's own."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{type(model).__name__} is an encoder-decoder model: use a decoder-only one")
    asked, usual = vars(config) | kept.arguments, _SETTINGS | _ARGUMENTS
    for name, (what, harmless) in _ASKS.items():
        value = asked.get(name)
        if value and value not in harmless:
            shown = type(value).__name__ if name == "assistant_model" else repr(value)
            raise UsageError(f"{name}={shown} asks for {what}, which draftwood does not do: leave it out")
    for name in usual.keys() - _KNOWN:
        if asked.get(name) not in (None, usual[name]):
            raise UsageError(
                f"{name}={asked[name]!r:.80} is new in transformers and unknown to draftwood: leave it out"
            )
    if asked.get("cache_implementation") == "quantized":
        raise UsageError("cache_implementation='quantized' changes the text; our cache is exact: leave it out")
    for name, value in arguments.items():
        if name in _ASKS and not value:
            continue
        if name not in _UNDERSTOOD and value is not None:
            raise UsageError(f"{name} is an input that drafting does not hand to the model: give token ids alone")


def refuse_positions(positions: Tensor | None, padding: list[int], length: int) -> None:
    """Raise `PromptError` for positions other than those that follow from the padding."""
    if positions is None:
        return
    expected = torch.arange(length, device=positions.device)
    if any(padding):
        expected = (expected[None] - positions.new_tensor(padding)[:, None]).clamp(min=0)
    if positions.shape[-1] != length or not (positions == expected).all():
        raise PromptError(
            "position_ids differ from what attention_mask says: leave them out, and give the whole prompt"
        )
