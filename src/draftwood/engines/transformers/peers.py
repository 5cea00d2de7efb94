"""transformers' own ways to write through ``model.generate``: plain, prompt lookup, an assistant, early exit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from draftwood.contracts import Sampling
from draftwood.engines.peer import PeerAnswer, PeerName
from draftwood.engines.transformers.assistant import Assistant
from draftwood.errors import UsageError
from draftwood.models.importing import quiet_transformers


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
    model is as it was before. ``assistant`` drafts where the name says so. Raises `UsageError` for an early exit
    that is not before the last layer."""

    engine = "transformers"

    def __init__(self, name: PeerName, model: Any, assistant: Assistant | None = None) -> None:
        self.name = name.name
        self._model, self._assistant = model, assistant
        self._settings: dict[str, int] = {}
        if name.method == "lookup":
            self._settings["prompt_lookup_num_tokens"] = name.options["tokens"]
            self._settings["max_matching_ngram_size"] = name.options["ngram"]
        elif name.method == "early-exit":
            layers, exit_at = model.config.get_text_config().num_hidden_layers, name.options["early-exit"]
            if exit_at >= layers:
                raise UsageError(
                    f"{self.name} leaves too late: the model has {layers} layers, exit before the last"
                )
            self._settings["assistant_early_exit"] = exit_at

    def answer(self, ids: Sequence[int], limit: int, *, end_ids: frozenset[int], sampling: Sampling) -> PeerAnswer:
        model, settings = self._model, _settings_of(limit, end_ids, sampling)
        prompt = torch.tensor([list(ids)], device=model.device)
        random = torch.random.fork_rng([model.device] if model.device.type == "cuda" else [])
        with quiet_transformers(), random, _kept(model), _counted(model) as drafts:
            model.generation_config = GenerationConfig(**settings)
            ours, mask = GenerationConfig(**settings, **self._settings), torch.ones_like(prompt)
            more = {} if self._assistant is None else self._assistant.arguments(settings)
            if not sampling.greedy:
                torch.manual_seed(sampling.seed)
            clock = Clock()
            out = model.generate(prompt, attention_mask=mask, generation_config=ours, streamer=clock, **more)
        (before, first), (after, last), passes = clock.arrivals[0], clock.arrivals[-1], len(clock.arrivals) - 1
        drafted: int | None = 0
        if self._settings or self._assistant is not None:
            drafted = None if drafts is None else sum(drafts[1:])  # the first is scored while the prompt is read
        written = out[0, len(ids) :].tolist()
        return PeerAnswer(
            written, clock.arrivals, first, last - first, drafted, accepted=after - before - passes, passes=passes
        )

    def close(self) -> None:
        """Free what the assistant holds."""
        if self._assistant is not None:
            self._assistant.close()


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
def _kept(model: Any) -> Iterator[None]:
    """Restore the model's generation config, from which ``generate`` takes what its call leaves open, and its
    number of layers, which early exit lowers while it drafts and leaves lowered where it is interrupted."""
    config = model.config.get_text_config()
    before, layers = model.generation_config, config.num_hidden_layers
    try:
        yield
    finally:
        model.generation_config, config.num_hidden_layers = before, layers


@contextmanager
def _counted(model: Any) -> Iterator[list[int] | None]:
    """Note the length of every draft; None where transformers makes its drafts in another way."""
    make = getattr(model, "_get_candidate_generator", None)
    if make is None:
        yield None
        return
    drafts: list[int] = []

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
        del model._get_candidate_generator
