"""The function `decode_with`, whose result makes transformers' ``model.generate`` draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from threading import Lock, local
from typing import Any

from draftwood.api.checks import check_tokenizer_kind, is_target
from draftwood.api.checks import stop_strings as check_stop
from draftwood.api.draft_models import DraftModels, with_models
from draftwood.api.generation import Generation, recorded
from draftwood.api.learned import fresh, learned
from draftwood.api.setup import DrafterSpec, affordable
from draftwood.api.user_texts import (
    CorpusGiven,
    MemoryGiven,
    Prediction,
    Text,
    UserTexts,
    check_tokenizer,
    per_prompt,
    predicting,
    read_texts,
    saving,
)
from draftwood.contracts import Planner, Rule
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.load import load as load_drafters
from draftwood.errors import UsageError
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.planning.load import load as load_planner
from draftwood.verify.load import DEFAULT as DEFAULT_RULE
from draftwood.verify.load import is_lossy, label
from draftwood.verify.load import load as load_rule


def decode_with(
    drafters: DrafterSpec = "default",
    planner: str | Planner = DEFAULT_PLANNER,
    *,
    streamer: Any = None,
    tokenizer: Any = None,
    stop_strings: str | Sequence[str] | None = None,
    seed: int | None = None,
    rule: str | Rule = DEFAULT_RULE,
    prediction: Prediction | None = None,
    memory: MemoryGiven | None = None,
    corpus: CorpusGiven | Sequence[CorpusGiven] | None = None,
    context: Text | Sequence[Text] | None = None,
) -> CustomGenerate:
    """Make ``model.generate`` draft: ``model.generate(..., custom_generate=draftwood.decode_with())``.

    Settings, logits processors, stopping criteria, left-padded batches, ``num_return_sequences``, a given cache, a
    streamer and ``return_dict_in_generate`` work as without it. What draftwood cannot do (beam search, assisted
    generation at the same time, ...) raises an error before the first token.

    Parameters
    ----------
    drafters, planner, rule
        As in `generate`; ``"none"`` is plain decoding through the same loop.
    streamer
        A streamer of transformers; it may be given to ``model.generate`` as well.
    tokenizer, stop_strings
        Stop strings and the tokenizer for them, as transformers does not pass its own on. As there, the text ends
        with the token that completes a stop string. Predictions and context as text need a tokenizer, too.
    seed
        Of sampled texts; by default drawn from torch's generator, so that ``torch.manual_seed`` decides.
    prediction, memory, corpus, context
        As in `generate`; a memory file is saved after every call. A list of predictions has an entry per prompt of
        a batch, for all its returned sequences; for a batch of one, only if it contains None or a list of texts.

    Returns
    -------
    CustomGenerate
        A callable for any number of calls, by several threads too; its ``generations`` tell each thread how its
        last texts were written.

    Raises
    ------
    UnknownNameError, UsageError
        For unknown names and options and missing files.
    FileFormatError, VocabularyError
        For files that are damaged or belong to another tokenizer.
    """
    return CustomGenerate(
        drafters, planner, UserTexts(prediction, memory, corpus, context),
        streamer=streamer, tokenizer=tokenizer, stop_strings=stop_strings, seed=seed, rule=rule,
    )  # fmt: skip


def _no_generate(target: Any) -> UsageError:
    return UsageError(
        f"decode_with() is for model.generate of transformers, and {type(target).__name__} is a Target: call "
        "draftwood.generate(target, ...)"
    )


class CustomGenerate:
    """A callable for the argument ``custom_generate`` of ``model.generate``; threads may share it."""

    def __init__(
        self, drafters: DrafterSpec, planner: str | Planner, texts: UserTexts, *, streamer: Any, tokenizer: Any,
        stop_strings: str | Sequence[str] | None, seed: int | None, rule: str | Rule,
    ) -> None:  # fmt: skip
        if is_target(drafters):
            raise _no_generate(drafters)
        load_planner(planner)  # a wrong name raises at once
        self._rule = load_rule(rule)
        check_tokenizer_kind(tokenizer)
        if streamer is not None and not (hasattr(streamer, "put") and hasattr(streamer, "end")):
            raise UsageError(f"streamer is a {type(streamer).__name__}: give a streamer of transformers")
        if not isinstance(seed, Integral | None):
            raise UsageError(f"seed must be a whole number, got {seed!r:.80}")
        if stop_strings is not None:
            stop_strings = check_stop(None, stop_strings)
        if texts.context is not None:
            texts = replace(texts, context=read_texts(texts.context, "context", tokenizer, None))
        self._spec, self._planner, self._texts = drafters, planner, texts
        chosen = texts.complete(load_drafters(drafters))
        opened = texts.opened(chosen)
        self._memory = texts.to_save(opened)
        self._drafters = opened.bind(chosen, tokenizer, None)
        check_tokenizer(self._drafters, tokenizer)
        self._streamer, self._tokenizer, self._stop, self._seed = streamer, tokenizer, stop_strings, seed
        self._feeding = Lock()  # held while a call uses the streamer that was given here
        self._last = local()

    @property
    def generations(self) -> list[Generation]:
        """The texts of this thread's last call and how they were written, also after an error or an interrupt."""
        return list(getattr(self._last, "generations", ()))

    def __call__(
        self, model: Any, input_ids: Any, logits_processor: Any = None, stopping_criteria: Any = None,
        generation_config: Any = None, **model_kwargs: Any,
    ) -> Any:  # fmt: skip
        """Write the texts of one call of ``model.generate``; `DraftwoodError` for what draftwood cannot do."""
        if is_target(model):
            raise _no_generate(model)
        from draftwood.engines.transformers.plugin.call import GenerateCall
        from draftwood.engines.transformers.plugin.refusals import kept_back
        from draftwood.engines.transformers.plugin.text import Feed

        self._last.generations = []
        kept = kept_back(input_ids)._replace(stop_strings=self._stop, tokenizer=self._tokenizer, seed=self._seed)
        with self._streaming(), Feed(self._streamer, kept.streamer) as feed:
            config = generation_config or model.generation_config
            call = GenerateCall(model, input_ids, logits_processor, stopping_criteria, config, model_kwargs, kept)
            feed.prompt(input_ids)
            with saving(self._memory):
                return self._write(model, call, feed)

    @contextmanager
    def _streaming(self) -> Iterator[None]:
        """Reserve the streamer that was given here for this call; `UsageError` if another call uses it."""
        if self._streamer is not None and not self._feeding.acquire(blocking=False):
            raise UsageError(
                "the streamer of this decode_with() is being fed by another thread's call: make a decode_with() "
                "per thread, or give the streamer to model.generate"
            )
        try:
            yield
        finally:
            if self._streamer is not None:
                self._feeding.release()

    def _write(self, model: Any, call: Any, feed: Any) -> Any:
        from draftwood.engines.transformers.shared import shared_target

        target = shared_target(model)
        models = DraftModels(target, model, self._tokenizer)
        drafters = with_models(self._drafters, models)
        # What is accepted by a lossy rule says nothing about exact decoding: others do not learn from it.
        known = fresh(model) if is_lossy(self._rule) else learned(model)
        planner = load_planner(self._planner, known)
        size = target.capabilities.vocab_size
        if self._texts.context is not None:  # ids outside this model's vocabulary are refused
            read_texts(self._texts.context, "context", self._tokenizer, size)
        drafters = affordable(self._spec, drafters, target.capabilities, given=bool(self._texts.given))
        names = [drafter.name for drafter in drafters]
        requests = self._expecting(call.requests, call.sequences, size)
        requests = [
            r if r.drafters is None else replace(r, drafters=with_models(r.drafters, models)) for r in requests
        ]
        reading = call.target(target)  # the target, reading through the caller's cache where one was given
        said: dict[str, Any] = {"rule": label(self._rule), "lossy": is_lossy(self._rule)}
        written = [Generation(prompt_tokens=len(r.prompt), seed=r.sampling.seed, **said) for r in requests]
        self._last.generations = written
        with open_sequences(reading, drafters, requests, self._rule) as sequences:
            for sequence, generation in zip(sequences, written, strict=True):
                generation.prefill_s = sequence.prefill_s
            for emission in decode_sequences(reading, planner, sequences):
                for token, _ in recorded(emission, names, written[emission.row]):
                    feed.token(token)
                if emission.error is not None:  # the returned tensor has no place for it
                    raise emission.error
            call.hand_back(target, sequences)
        return call.answer([generation.ids for generation in written])

    def _expecting(self, requests: Sequence[Request], sequences: int, vocab_size: int) -> Sequence[Request]:
        """Return the requests, each with drafters that copy from the prediction of its prompt."""
        if self._texts.prediction is None:
            return requests
        prompts, prediction = len(requests) // sequences, self._texts.prediction
        listed = prompts > 1 or _nested(prediction)
        expected = per_prompt(prediction, prompts if listed else None)
        # A prediction for all prompts is indexed once.
        bound = {id(one): predicting(self._drafters, one, self._tokenizer, vocab_size) for one in expected}
        return [
            replace(request, drafters=bound[id(expected[number // sequences])])
            for number, request in enumerate(requests)
        ]


def _nested(prediction: Any) -> bool:
    """Whether this can only be a list with an entry per prompt."""
    if not isinstance(prediction, list | tuple):
        return False
    entries = [one for one in prediction if isinstance(one, list | tuple) and one]
    return any(one is None for one in prediction) or any(not isinstance(one[0], Integral) for one in entries)
