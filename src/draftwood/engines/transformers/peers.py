"""transformers' own ways to write through ``model.generate``: plain, prompt lookup, an assistant, early exit.

For comparisons; nothing that drafts imports it. Sources of assistants: Leviathan and others, "Fast Inference from
Transformers via Speculative Decoding", arXiv 2211.17192; for another vocabulary Timor and others, "Accelerating
LLM Inference with Lossless Speculative Decoding Algorithms for Heterogeneous Vocabularies", arXiv 2502.05202.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.candidate_generator import AssistantVocabTranslatorCache
from transformers.generation.streamers import BaseStreamer

from draftwood.contracts import Sampling
from draftwood.engines.peer import PeerAnswer, PeerName
from draftwood.engines.transformers.shadow import shadow
from draftwood.errors import UsageError
from draftwood.models.importing import quiet_transformers

_PANGRAM = "The quick brown fox jumps over the lazy dog."  # tokenizers of one vocabulary split it alike


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


class Assistant:
    """What ``generate`` is given to draft with a smaller model; nothing stays from one answer to the next.

    transformers keeps its number of draft tokens in the settings of the assistant and, for sampled texts of
    another vocabulary, cuts rows out of the assistant's head for good. So it gets views of the model, which share
    its weights and are nobody else's.

    Parameters
    ----------
    peer
        What error messages call it.
    model, tokenizer
        The model that writes, and its tokenizer (None is enough where both vocabularies have one size).
    assistant, assistant_tokenizer
        The model that drafts, and its tokenizer.
    tokens
        Longest draft (transformers' ``num_assistant_tokens``). All other settings of drafting are transformers'
        defaults, whatever the assistant's files say: a constant length, and a draft ends after a token of which
        the assistant is less than 0.4 sure (where scikit-learn is installed, this bound adapts to each text).

    Raises `UsageError` for an assistant that cannot take tokens back, and for another vocabulary of the same size:
    transformers knows vocabularies by their sizes, and would take the ids of one for those of the other.
    """

    def __init__(
        self, peer: str, model: Any, tokenizer: Any, assistant: Any, assistant_tokenizer: Any, tokens: int
    ) -> None:  # fmt: skip
        if assistant._is_stateful:
            raise UsageError(f"the assistant of {peer} cannot take rejected tokens back: name another model")
        self._model, self._tokens = assistant, tokens
        self._rows, theirs = (one.config.get_text_config().vocab_size for one in (model, assistant))
        self._tokenizers: tuple[Any, Any] | None = None
        if self._rows != theirs:
            if tokenizer is None:
                raise UsageError(
                    f"the assistant of {peer} has another vocabulary: give the model's tokenizer, too"
                )
            self._tokenizers = (tokenizer, assistant_tokenizer)
        elif tokenizer is not None and _split(tokenizer) != _split(assistant_tokenizer):
            raise UsageError(
                f"the assistant of {peer} has another vocabulary of the same size, which transformers would take "
                "for the model's own: name another model"
            )
        self._views: dict[bool, Any] = {}  # by whether transformers may have cut its head
        self._own: tuple[Any, Any] | None = None  # copies of the tokenizers, by which it keeps what it has cut

    def arguments(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of ``generate`` for one answer; ``settings`` are those of the text."""
        is_cut = self._tokenizers is not None and settings["do_sample"]
        if self._tokenizers is not None and self._own is None:
            self._own = copy.deepcopy(self._tokenizers)
        if is_cut not in self._views:
            self._views[is_cut] = shadow(self._model, attention=None)
            if is_cut and self._own is not None:
                # What generate would do in the first sampled answer, where it also uses up random numbers.
                AssistantVocabTranslatorCache.get_translator(
                    *self._own, self._rows, assistant_model=self._views[is_cut], assistant_prune_lm_head=True
                )
        view = self._views[is_cut]
        view.generation_config = GenerationConfig(**settings, num_assistant_tokens=self._tokens)
        given = {"assistant_model": view}
        if self._own is not None:
            given |= dict(zip(("tokenizer", "assistant_tokenizer"), self._own, strict=True))
        return given

    def close(self) -> None:
        """Free the views; transformers would keep the head that it has cut for as long as the process runs."""
        if self._own is not None:
            AssistantVocabTranslatorCache._cache.pop(self._own[0], None)
        self._views, self._own = {}, None


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


def _split(tokenizer: Any) -> list[int]:
    found: list[int] = tokenizer(_PANGRAM, add_special_tokens=False)["input_ids"]
    return found
