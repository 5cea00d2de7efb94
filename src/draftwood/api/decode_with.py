"""The door into scripts that call ``model.generate``: one argument more, and the same text comes faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from numbers import Integral
from threading import Lock, local
from typing import Any
from weakref import WeakKeyDictionary

from draftwood.api.defaults import stop_strings as check_stop
from draftwood.api.generation import Generation, noted
from draftwood.api.given import check_tokenizer_kind
from draftwood.api.learned import learned, planner_of
from draftwood.api.setup import DrafterSpec, affordable
from draftwood.api.text_input import Prediction, Text, per_prompt, read_texts
from draftwood.api.user_texts import (
    CorpusGiven,
    MemoryGiven,
    UserTexts,
    check_tokenizer,
    predicting,
    saving,
)
from draftwood.contracts import Drafter, Planner
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.load import load as load_drafters
from draftwood.errors import UsageError
from draftwood.planning.learned import Learned
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.planning.load import load as load_planner
from draftwood.verify.exact import SampleAndMatch


def decode_with(
    drafters: DrafterSpec = "default",
    planner: str | Planner = DEFAULT_PLANNER,
    *,
    streamer: Any = None,
    tokenizer: Any = None,
    stop_strings: str | Sequence[str] | None = None,
    seed: int | None = None,
    prediction: Prediction | None = None,
    memory: MemoryGiven | None = None,
    corpus: CorpusGiven | Sequence[CorpusGiven] | None = None,
    context: Text | Sequence[Text] | None = None,
) -> CustomGenerate:
    """Make ``model.generate`` draft: ``model.generate(..., custom_generate=draftwood.decode_with())``.

    Settings, logits processors, stopping criteria, left-padded batches, ``num_return_sequences``, a given cache,
    a streamer and ``return_dict_in_generate`` mean what they mean without it. What cannot be honoured (beam
    search, assisted generation at the same time, ...) is refused before the first token.

    Parameters
    ----------
    drafters, planner
        As in `generate`; ``"none"`` is plain decoding through the same loop.
    streamer
        A streamer of transformers; it may be given to ``model.generate`` as well.
    tokenizer, stop_strings
        Stop strings, which transformers does not hand to a callable, and the tokenizer that reads them. The text
        ends with the token that completes one, as there. Predictions and context as text need it, too.
    seed
        Keys a sampled text; by default drawn from torch's generator, so that ``torch.manual_seed`` rules.
    prediction, memory, corpus, context
        As in `generate`; a memory that is a file is saved after every call. In a list of predictions for a batch,
        sequences of one prompt share an entry; a list with None or lists of texts in it is one, even for a batch
        of one. A text is read once, in the first call.

    Returns
    -------
    CustomGenerate
        A callable, to be used as often as one likes, by several threads too; its ``generations`` tell each thread
        how its own last text was written.

    Raises
    ------
    UnknownNameError, UsageError
        For names and options that nobody knows, and sources that are not there.
    FileFormatError, VocabularyError
        For files of sources that are damaged, or of another tokenizer.
    """
    return CustomGenerate(
        drafters, planner, UserTexts(prediction, memory, corpus, context),
        streamer=streamer, tokenizer=tokenizer, stop_strings=stop_strings, seed=seed,
    )  # fmt: skip


Bound = dict[tuple[int, int], tuple[Any, tuple[Drafter, ...]]]
"""Drafters that know a prediction, by its identity (which it keeps alive) and the size of the vocabulary."""


class CustomGenerate:
    """A callable for the argument ``custom_generate`` of ``model.generate``; see `decode_with`.

    Threads may share it: a call keeps nothing on it but what the next call of the same thread replaces.
    """

    def __init__(
        self,
        drafters: DrafterSpec,
        planner: str | Planner,
        sources: UserTexts,
        *,
        streamer: Any,
        tokenizer: Any,
        stop_strings: str | Sequence[str] | None,
        seed: int | None,
    ) -> None:
        load_planner(planner)  # wrong names are told at once
        check_tokenizer_kind(tokenizer)
        if streamer is not None and not (hasattr(streamer, "put") and hasattr(streamer, "end")):
            raise UsageError(f"streamer is a {type(streamer).__name__}: give a streamer of transformers")
        if not isinstance(seed, Integral | None):
            raise UsageError(f"seed must be a whole number, got {seed!r:.80}")
        if stop_strings is not None:
            stop_strings = check_stop(None, stop_strings)
        self._spec, self._planner, self._sources = drafters, planner, sources
        self._planners: WeakKeyDictionary[Any, tuple[Learned, Planner]] = WeakKeyDictionary()
        self._lock = Lock()  # of the planners, while one is looked up or made
        chosen = sources.complete(load_drafters(drafters))
        opened = sources.opened(chosen)
        self._kept = sources.to_save(opened)
        self._drafters = opened.bind(chosen, tokenizer, None)
        check_tokenizer(self._drafters, tokenizer)
        self._streamer, self._tokenizer, self._stop, self._seed = streamer, tokenizer, stop_strings, seed
        self._bound: Bound = {}  # of the predictions of the last call; replaced as a whole
        self._fits: set[int] = set()  # sizes of vocabularies that the context was found to lie in
        self._feeding = Lock()  # held while the streamer that was given here is fed
        self._last = local()

    @property
    def generations(self) -> list[Generation]:
        """What the last call of this thread wrote, one per row, and how; also after an error or an interrupt.

        Empty in a thread that has called nothing.
        """
        return list(getattr(self._last, "generations", ()))

    def __call__(
        self,
        model: Any,
        input_ids: Any,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        generation_config: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """Write the texts of one call of ``model.generate``, which alone need call this.

        Raises
        ------
        DraftwoodError
            For what cannot be honoured, before the first token; in mid-text where a text cannot go on.
        """
        from draftwood.engines.transformers.plugin.call import GenerateCall
        from draftwood.engines.transformers.plugin.frame import kept_back
        from draftwood.engines.transformers.plugin.streamer import Feed

        self._last.generations = []
        kept = kept_back(input_ids)._replace(stop_strings=self._stop, tokenizer=self._tokenizer, seed=self._seed)
        with self._streaming(), Feed(self._streamer, kept.streamer) as feed:
            call = GenerateCall(
                model,
                input_ids,
                logits_processor,
                stopping_criteria,
                generation_config or model.generation_config,
                model_kwargs,
                kept,
            )
            feed.prompt(input_ids)
            with saving(self._kept):
                return self._write(model, call, feed)

    @contextmanager
    def _streaming(self) -> Iterator[None]:
        """Keep the streamer that was given here for one call at a time.

        Raises
        ------
        UsageError
            If it is being fed.
        """
        if self._streamer is None:
            yield
            return
        if not self._feeding.acquire(blocking=False):
            raise UsageError(
                "the streamer of this decode_with() is being fed by another thread's call: make a decode_with() "
                "per thread, or give the streamer to model.generate"
            )
        try:
            yield
        finally:
            self._feeding.release()

    def _write(self, model: Any, call: Any, feed: Any) -> Any:
        from draftwood.engines.transformers.shared import shared_target

        target = shared_target(model)
        drafters, planner = self._drafters, self._planner_of(model)
        self._check_context(target.capabilities.vocab_size)
        drafters = affordable(self._spec, drafters, target.capabilities, given=bool(self._sources.given))
        names = [drafter.name for drafter in drafters]
        requests = self._expecting(call.requests, call.sequences, target.capabilities.vocab_size)
        source = call.target(target)
        written = [Generation(prompt_tokens=len(r.prompt), seed=r.sampling.seed) for r in requests]
        self._last.generations = written
        with open_sequences(source, drafters, requests, SampleAndMatch()) as rows:
            for row, generation in zip(rows, written, strict=True):
                generation.prefill_s = row.prefill_s
            for emission in decode_sequences(source, planner, rows):
                for token, _ in noted(emission, names, written[emission.row]):
                    feed.token(token)
                if emission.error is not None:  # as generate does, which has no place for it in a tensor
                    raise emission.error
            call.hand_back(target, rows)
        return call.answer([generation.ids for generation in written])

    def _planner_of(self, model: Any) -> Planner:
        """Return the planner of this model: what passes cost, and how often sources are right, is its own."""
        known = learned(model)
        with self._lock:
            made = self._planners.get(model)
            if made is None or made[0] is not known:
                made = self._planners[model] = known, planner_of(self._planner, known, self._tokenizer)
            return made[1]

    def _expecting(self, requests: Sequence[Request], sequences: int, vocab_size: int) -> Sequence[Request]:
        """Return the requests, each with drafters that know what is expected of its prompt."""
        if self._sources.prediction is None:
            return requests
        prompts, prediction = len(requests) // sequences, self._sources.prediction
        known, bound = self._bound, Bound()
        found: list[Request] = []
        listed = prompts > 1 or _nested(prediction)
        for number, one in enumerate(per_prompt(prediction, prompts if listed else None)):
            key = id(one), vocab_size
            if key not in bound:
                read = known.get(key)
                bound[key] = read or (one, predicting(self._drafters, one, self._tokenizer, vocab_size))
            of_prompt = requests[number * sequences : (number + 1) * sequences]
            found += [replace(request, drafters=bound[key][1]) for request in of_prompt]
        self._bound = bound
        return found

    def _check_context(self, vocab_size: int) -> None:
        """Raise `UsageError` for ids of the context that this model does not have."""
        if self._sources.context is not None and vocab_size not in self._fits:
            read_texts(self._sources.context, "context", self._tokenizer, vocab_size)
            self._fits.add(vocab_size)


def _nested(prediction: Any) -> bool:
    """Whether this can only be a list with an entry per prompt."""
    if not isinstance(prediction, list | tuple):
        return False
    entries = [one for one in prediction if isinstance(one, list | tuple) and one]
    return any(one is None for one in prediction) or any(not isinstance(one[0], Integral) for one in entries)


def generate_with(model: Any, *inputs: Any, drafters: DrafterSpec, planner: str | Planner, **settings: Any) -> Any:
    """Call ``generate`` of a model's class, drafting: what `draftwood export-custom-generate` writes calls this.

    Parameters
    ----------
    model
        A model of transformers.
    inputs, settings
        As in ``model.generate``; ``streamer``, ``tokenizer`` and ``stop_strings`` mean what they mean there.
    drafters, planner
        As in `generate`.
    """
    from draftwood.engines.transformers.plugin.folder import call_generate

    return call_generate(model, inputs, settings, partial(decode_with, drafters, planner))
