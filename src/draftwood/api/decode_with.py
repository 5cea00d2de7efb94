"""The function `decode_with`, whose result makes transformers' ``model.generate`` draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from threading import Lock, local
from typing import Any

from draftwood.api.checks import check_tokenizer_kind
from draftwood.api.checks import stop_strings as check_stop
from draftwood.api.generation import Generation, recorded
from draftwood.api.setup import DrafterSpec, Setup, affordable
from draftwood.api.user_texts import (
    CorpusGiven,
    MemoryGiven,
    Prediction,
    Text,
    UserTexts,
    check_tokenizer,
    per_prompt,
    read_texts,
    saving,
)
from draftwood.contracts import Planner, Rule, Target
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.load import load as load_drafters
from draftwood.errors import LARGEST, UsageError, number
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.planning.load import load as load_planner
from draftwood.verify.load import DEFAULT as DEFAULT_RULE
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
        Strings that end the text, and the tokenizer for them: ``model.generate`` does not pass its own on. The
        text ends with the token that completes one. ``prediction`` and ``context`` need a tokenizer if they are
        text.
    seed
        Of sampled texts; by default drawn from torch's generator, so that ``torch.manual_seed`` decides.
    prediction, memory, corpus, context
        As in `generate`; a memory file is saved after every call. A list of predictions has an entry per prompt of
        a batch. With one prompt a list counts as several texts for it, unless it holds None or a list of texts.

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
        if isinstance(drafters, Target):
            raise _no_generate(drafters)
        load_planner(planner)  # a wrong name raises at once
        self._rule = load_rule(rule)
        check_tokenizer_kind(tokenizer)
        if streamer is not None and not (hasattr(streamer, "put") and hasattr(streamer, "end")):
            raise UsageError(f"streamer is a {type(streamer).__name__}: give a streamer of transformers")
        if seed is not None:
            number(seed, -LARGEST, LARGEST, "seed must be a whole number, got {}", whole=True)
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
        if isinstance(model, Target):
            raise _no_generate(model)
        from draftwood.engines.transformers.plugin.call import GenerateCall
        from draftwood.engines.transformers.plugin.refusals import kept_back
        from draftwood.engines.transformers.plugin.text import Feed

        self._last.generations = []
        kept = kept_back(input_ids)._replace(stop_strings=self._stop, tokenizer=self._tokenizer, seed=self._seed)
        with self._streaming(), Feed(self._streamer, kept.arguments.get("streamer")) as feed:
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
        setup = Setup(model, self._tokenizer, self._drafters, self._planner, rule=self._rule, checked=False)
        setup.refresh()
        capabilities = setup.target.capabilities
        if self._texts.context is not None:  # ids outside this model's vocabulary are refused
            read_texts(self._texts.context, "context", self._tokenizer, capabilities.vocab_size)
        setup.drafters = affordable(self._spec, setup.drafters, capabilities, given=bool(self._texts.given))
        requests = [setup.on_the_model(request) for request in self._expecting(setup, call)]
        reading = call.target(setup.target)  # the target, reading through the caller's cache where one was given
        self._last.generations = written = [setup.generation(request) for request in requests]
        with open_sequences(reading, setup.drafters, requests, setup.rule) as sequences:
            for sequence, generation in zip(sequences, written, strict=True):
                generation.prefill_s = sequence.prefill_s
            for emission in decode_sequences(reading, setup.planner, sequences):
                for token, _ in recorded(emission, setup.names, written[emission.row]):
                    feed.token(token)
                if emission.error is not None:  # the returned tensor has no place for it
                    raise emission.error
            call.hand_back(setup.target, sequences)
        return call.answer([generation.ids for generation in written])

    def _expecting(self, setup: Setup, call: Any) -> Sequence[Request]:
        """Return the requests, each with drafters that copy from the prediction of its prompt."""
        prediction, requests = self._texts.prediction, call.requests
        if prediction is None:
            return requests
        prompts = len(requests) // call.sequences
        expected = per_prompt(prediction, prompts if prompts > 1 or _nested(prediction) else None)
        bound = {id(one): setup.predicting(one) for one in expected}  # a shared prediction is indexed once
        return [replace(r, drafters=bound[id(expected[i // call.sequences])]) for i, r in enumerate(requests)]


def _nested(prediction: Any) -> bool:
    """Whether this can only be a list with an entry per prompt."""
    if not isinstance(prediction, list | tuple):
        return False
    entries = [one for one in prediction if isinstance(one, list | tuple) and one]
    return any(one is None for one in prediction) or any(not isinstance(one[0], Integral) for one in entries)
