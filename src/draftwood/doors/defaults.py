"""What a model's generation config says: defaults that we take over, settings that we must refuse."""

from __future__ import annotations

from typing import Any

from draftwood.errors import UsageError

NEW_TOKENS = 256
"""Most tokens to write where nobody says."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "bad_words_ids": (),
    "begin_suppress_tokens": (),
    "exponential_decay_length_penalty": (),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beams": (1,),
    "penalty_alpha": (0,),
    "sequence_bias": (),
    "suppress_tokens": (),
    "watermarking_config": (),
}
_NEUTRAL_SAMPLED: dict[str, tuple[Any, ...]] = {
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "top_h": (),
    "typical_p": (1,),
}
"""Settings that change the text of ``model.generate`` and that we do not apply, with the values that do not."""


def end_ids(config: Any) -> frozenset[int]:
    """End-of-sequence tokens of a generation config (None has none)."""
    end = getattr(config, "eos_token_id", None)
    if end is None:
        return frozenset()
    return frozenset([end] if isinstance(end, int) else end)


def new_tokens(config: Any, given: int | None) -> int:
    """Most tokens to write: what the caller says, else the config, else `NEW_TOKENS`."""
    return given if given is not None else getattr(config, "max_new_tokens", None) or NEW_TOKENS


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
    for name, neutral in (_NEUTRAL | _NEUTRAL_SAMPLED if sampled else _NEUTRAL).items():
        value = getattr(config, name, None)
        if value is not None and value not in neutral:
            raise UsageError(
                f"the model's generation config sets {name}={value!r}, which draftwood does not apply: set "
                f"model.generation_config.{name} to None, and pass a logits_processor for it where there is one"
            )
