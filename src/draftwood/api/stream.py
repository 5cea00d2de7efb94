"""The functions `generate` and `stream`."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from inspect import GEN_RUNNING, getgeneratorstate
from typing import Any, Self

from draftwood.api.checks import check_whole
from draftwood.api.generation import Generation, recorded
from draftwood.api.prompts import Prompt, as_prompts
from draftwood.api.setup import DrafterSpec, Setup
from draftwood.api.text import Piece, Spelling, TextBuilder, stop_strings_of
from draftwood.api.thoughts import thought_reader
from draftwood.api.user_texts import CorpusGiven, MemoryGiven, Prediction, Text, per_prompt
from draftwood.contracts import Planner, Rule
from draftwood.contracts.declaring import refuse_mismatch
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Emission, Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.errors import UsageError
from draftwood.grammar.grammar import Grammar
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.verify.load import DEFAULT as DEFAULT_RULE

BATCH_SIZE = 8  # default number of prompts of a list that are answered together


def generate(
    model: Any,
    prompts: Prompt | Sequence[Prompt],
    *,
    tokenizer: Any = None,
    drafters: DrafterSpec = "default",
    planner: str | Planner = DEFAULT_PLANNER,
    rule: str | Rule = DEFAULT_RULE,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] | None = None,
    logits_processor: Any = None,
    grammar: Grammar | Mapping[str, Any] | None = None,
    batch_size: int = BATCH_SIZE,
    prediction: Prediction | None = None,
    memory: MemoryGiven | None = None,
    corpus: CorpusGiven | Sequence[CorpusGiven] | None = None,
    context: Text | Sequence[Text] | None = None,
) -> Any:
    """Write answers faster by speculative decoding; the text is the model's own unless a lossy ``rule`` is given.

    Parameters
    ----------
    model
        A causal language model of transformers, a `Target`, or a model's name or folder.
    prompts
        Text, token ids, a tensor of ids, what a tokenizer returns (without its padding), chat messages
        (``[{"role": ..., "content": ...}]``), or a list of these. A list or a batch gives a list of answers.
    tokenizer
        For text in or out and for ``stop``; a model given by name brings its own.
    drafters
        ``"default"``, ``"ngram+lookup:max_ngram=3"``, Drafter objects, or a list of these; ``"none"`` is
        plain decoding through the same loop.
    planner
        How much is drafted: ``"goodput"`` as much as makes decoding fastest, ``"fixed:16"``, ``"off"``, or a
        Planner. Policies follow the name: ``"goodput+thermal"``.
    rule
        Which draft tokens are accepted. ``"exact"`` leaves the text as plain decoding writes it. All others are
        lossy: ``"threshold:tau=0.15"``, ``"top-k:k=2"``, a Rule.
    max_new_tokens
        Most tokens to write. None: what the model's generation config says, else 256.
    temperature, top_k, top_p, min_p, repetition_penalty
        As in transformers; temperature 0 is greedy. None: what the model's generation config says.
    seed
        The same seed gives the same text, with drafting on or off. None draws one.
    stop
        Text that ends the answer and is left out of it.
    logits_processor
        A list of logits processors of transformers; each request gets its own copy. Other callables get text and
        scores as the target has them: of a GGUF file as NumPy arrays, int64[length] and float32[vocab].
    grammar
        What the answer must look like: a `Grammar`, or a JSON Schema as a dict. What it forces next is drafted.
    batch_size
        How many prompts of a list are answered together, in shared passes; each text is the same as alone. Targets
        that take one text per pass answer one after another.
    prediction
        Text (or token ids) that you expect in the answer and that drafts copy. A list has alternatives; with a
        list of prompts it has an entry per prompt: a text, a list of texts or None.
    memory
        A `Memory` of earlier answers to copy from, to which these are added, or its file, saved at the end.
    corpus
        A `Corpus` to copy from, its file (see ``draftwood corpus build``), or several.
    context
        Further texts to copy from that are not in the prompt, as text or token ids.

    Returns
    -------
    Generation or list of Generation

    Raises
    ------
    UsageError, PromptError, ModelError, CapabilityError, FileFormatError
        Before the first token, with a sentence that says what to do.
    DraftwoodError
        While it writes, if the model's scores are no numbers; a processor's own error is raised as it is. With a
        list of prompts neither is raised: that answer ends with ``finish_reason="error"`` and the reason in
        ``error``, and the others are written to their end.
    """
    with Stream(
        model, prompts, tokenizer=tokenizer, drafters=drafters, planner=planner, rule=rule,
        max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        repetition_penalty=repetition_penalty, seed=seed, stop=stop, logits_processor=logits_processor,
        grammar=grammar, batch_size=batch_size, prediction=prediction, memory=memory, corpus=corpus,
        context=context,
    ) as streamed:  # fmt: skip
        for _ in streamed:
            pass
    return streamed.generations if streamed.many else streamed.generations[0]


def stream(model: Any, prompt: Prompt, **settings: Any) -> Stream:
    """Write an answer piece by piece; settings as in `generate`.

    Returns
    -------
    Stream
        Iterate over its `Piece` objects; ``stream.generation`` holds what was written so far, also after an
        interrupt. Close it, or use it in a ``with`` block, to end the answer early.
    """
    return Stream(model, prompt, **settings)


class Stream(Iterator[Piece]):
    """Answers that are being written: an iterator over their pieces, and a context manager that ends them.

    Settings are those of `generate`.
    """

    def __init__(self, model: Any, prompts: Prompt | Sequence[Prompt], **settings: Any) -> None:
        batch_size = check_whole("batch_size", settings.pop("batch_size", BATCH_SIZE))
        setup = Setup.of(model, settings, "batch_size")
        self.many, read = as_prompts(prompts, setup.tokenizer)
        expected = per_prompt(setup.texts.prediction, len(read) if self.many else None)
        bound = {id(one): setup.predicting(one) for one in expected}  # a shared prediction is indexed once
        requests = [
            setup.request(ids, drafters=bound[id(one)], **settings)
            for ids, one in zip(read, expected, strict=True)
        ]
        refuse_mismatch(setup.target.capabilities, setup.drafters)
        for request in requests:  # all of them, before the first token of the first
            request.check(setup.target.capabilities)
        self.generations = [setup.generation(request) for request in requests]
        self._pieces = _written(setup, requests, self.generations, batch_size, many=self.many)

    @property
    def generation(self) -> Generation:
        """What was written so far for the first prompt."""
        return self.generations[0]

    def __next__(self) -> Piece:
        self._refuse_another_thread()
        return next(self._pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the answers; what was written stays in `generation`."""
        self._refuse_another_thread()
        self._pieces.close()

    def _refuse_another_thread(self) -> None:
        if getgeneratorstate(self._pieces) == GEN_RUNNING:
            raise UsageError("this stream is being read by another thread: open one stream per thread")


def _written(
    setup: Setup, requests: Sequence[Request], generations: Sequence[Generation], batch_size: int, *, many: bool
) -> Generator[Piece]:
    """Write the texts in batches; without a reference to the stream, so that a dropped stream ends at once."""
    width = batch_size if setup.target.capabilities.batch else 1
    with setup.saving():
        for start in range(0, len(requests), width):
            some = slice(start, start + width)
            with setup.open(requests[some]) as sequences:
                yield from pieces(setup, sequences, generations[some], start, many=many)


def pieces(
    setup: Setup, sequences: Sequence[ActiveSequence], generations: Sequence[Generation], first: int = 0, *,
    many: bool = False,
) -> Generator[Piece]:  # fmt: skip
    """Decode opened sequences into ``generations``, one each, yielding their text as it becomes certain.

    The first of them answers the prompt with index ``first``. The error of a sequence is raised or, with ``many``,
    left to its `Generation.error`.
    """
    names = setup.names
    pairs = zip(sequences, generations, strict=True)
    writers = {s.number: _Writer(setup, s, generation, first + s.number) for s, generation in pairs}
    try:
        for emission in decode_sequences(setup.target, setup.planner, sequences):
            yield from writers[emission.row].take(emission, names)
    except Exception as error:
        if not many or all(error is not sequence.error for sequence in sequences):
            raise
    finally:
        held_back = [writer.finish() for writer in writers.values()]
    for shown in held_back:
        yield from shown


class _Writer:
    """Writes one sequence's emissions into its generation."""

    def __init__(self, setup: Setup, sequence: ActiveSequence, generation: Generation, prompt: int) -> None:
        self._generation = generation
        spelling = Spelling(setup.tokenizer) if setup.tokenizer else None
        thoughts = thought_reader(setup.tokenizer, sequence.request.prompt) if spelling else None
        stop = stop_strings_of(sequence.request)
        self._builder = TextBuilder(spelling, stop, prompt, thoughts) if spelling else None
        generation.prefill_s = sequence.prefill_s

    def take(self, emission: Emission, names: Sequence[str]) -> Iterator[Piece]:
        for token, source in recorded(emission, names, self._generation):
            if self._builder is not None:
                shown = self._builder.push(token, source)
                self._generation.text = self._builder.text
                yield from shown

    def finish(self) -> list[Piece]:
        if self._builder is None:
            return []
        held_back = self._builder.finish((self._generation.sources or ["model"])[-1])
        self._generation.text = self._builder.text
        return held_back
