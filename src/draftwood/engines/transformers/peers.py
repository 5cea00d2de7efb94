"""transformers' own ways to write through ``model.generate``, for comparisons: plain, prompt lookup, an assistant.

Source of assistants: Leviathan and others, "Fast Inference from Transformers via Speculative Decoding", arXiv
2211.17192.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from draftwood.contracts import Sampling
from draftwood.engines.peer import PANGRAM, PeerAnswer, PeerName
from draftwood.engines.transformers.quiet import quiet_transformers
from draftwood.engines.transformers.shadow import shadow
from draftwood.errors import UsageError


class Clock(BaseStreamer):
    """Notes after each pass how many tokens there are and when, in seconds since it was made; ``generate`` puts
    the prompt first, then one block of tokens per pass."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[int, float]] = []
        self._started = perf_counter()
        self._tokens = -1  # until the prompt has come

    def put(self, value: torch.Tensor) -> None:
        if self._tokens < 0:
            self._tokens = 0
            return
        self._tokens += value.numel()
        self.arrivals.append((self._tokens, perf_counter() - self._started))

    def end(self) -> None: ...


class TransformersPeer:
    """``model.generate`` with nothing of ours in it; fulfils `draftwood.engines.peer.Peer`. After each answer the
    model is as it was before. ``assistant`` is a model with its tokenizer; a view of it drafts at most ``tokens``
    tokens, all other settings being transformers' defaults. Raises `UsageError` for an assistant that cannot take
    tokens back or has another vocabulary."""

    engine = "transformers"

    def __init__(self, name: PeerName, model: Any, tokenizer: Any = None, assistant: Any = None) -> None:
        self.name = name.name
        self._model, self._view, self._options = model, None, name.options
        self._settings: dict[str, int] = {}
        if name.method == "lookup":
            self._settings["prompt_lookup_num_tokens"] = name.options["tokens"]
            self._settings["max_matching_ngram_size"] = name.options["ngram"]
        if assistant is not None:
            drafting, its_tokenizer = assistant
            if drafting._is_stateful:
                raise UsageError(
                    f"the assistant of {self.name} cannot take rejected tokens back: name another model"
                )
            sizes = [one.config.get_text_config().vocab_size for one in (model, drafting)]
            if sizes[0] != sizes[1] or (tokenizer and _split(tokenizer) != _split(its_tokenizer)):
                raise UsageError(f"the assistant of {self.name} has another vocabulary: name one of the same")
            self._view = shadow(drafting, attention=None)

    def answer(self, ids: Sequence[int], limit: int, *, end_ids: frozenset[int], sampling: Sampling) -> PeerAnswer:
        model, settings = self._model, _settings_of(limit, end_ids, sampling)
        prompt = torch.tensor([list(ids)], device=model.device)
        random = torch.random.fork_rng([model.device] if model.device.type == "cuda" else [])
        with quiet_transformers(), random, _watched(model) as drafts:
            model.generation_config = GenerationConfig(**settings)
            ours, mask = GenerationConfig(**settings, **self._settings), torch.ones_like(prompt)
            more = {}
            if self._view is not None:  # transformers keeps its number of draft tokens in these settings
                count = self._options["tokens"]
                self._view.generation_config = GenerationConfig(**settings, num_assistant_tokens=count)
                more["assistant_model"] = self._view
            if not sampling.greedy:
                torch.manual_seed(sampling.seed)
            clock = Clock()
            out = model.generate(prompt, attention_mask=mask, generation_config=ours, streamer=clock, **more)
        (before, first), (after, last), passes = clock.arrivals[0], clock.arrivals[-1], len(clock.arrivals) - 1
        return PeerAnswer(
            out[0, len(ids) :].tolist(), clock.arrivals, first, last - first,
            drafted=sum(drafts[1:]),  # the first is scored while the prompt is read
            accepted=after - before - passes, passes=passes,
        )  # fmt: skip

    def close(self) -> None:
        """Nothing is held between answers."""


def _settings_of(limit: int, end_ids: frozenset[int], sampling: Sampling) -> dict[str, Any]:
    """All settings that the text depends on: transformers would fill in those that are missing."""
    settings: dict[str, Any] = {
        "max_new_tokens": limit,
        "eos_token_id": sorted(end_ids) or None,
        "pad_token_id": min(end_ids, default=0),  # a single row is never padded, but its absence is warned of
        "repetition_penalty": sampling.repetition_penalty,
        "do_sample": not sampling.greedy,
    }
    if not sampling.greedy:
        settings |= {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or 0,
            "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
            "min_p": sampling.min_p,
        }
    return settings


@contextmanager
def _watched(model: Any) -> Iterator[list[int]]:
    """Note the length of every draft; afterwards the model has its generation config again, from which
    ``generate`` takes what its call leaves open."""
    before, make, drafts = model.generation_config, model._get_candidate_generator, list[int]()

    def make_counted(*args: Any, **options: Any) -> Any:
        generator = make(*args, **options)
        draft = generator.get_candidates

        def get_candidates(input_ids: torch.Tensor, *args: Any, **options: Any) -> Any:
            found = draft(input_ids, *args, **options)
            drafts.append(found[0].shape[1] - input_ids.shape[1])
            return found

        generator.get_candidates = get_candidates
        return generator

    model._get_candidate_generator = make_counted
    try:
        yield drafts
    finally:
        model.generation_config = before
        del model._get_candidate_generator


def _split(tokenizer: Any) -> list[int]:
    found: list[int] = tokenizer(PANGRAM, add_special_tokens=False)["input_ids"]
    return found
