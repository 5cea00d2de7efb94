"""What users bring to draft from beside the prompt: predictions, a memory, corpora, further texts."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from draftwood.api.text_input import Ids, Prediction, Text, read_prediction, read_texts, several
from draftwood.contracts import Drafter
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.drafter import CorpusDrafter
from draftwood.drafters.llama_cpp.ngram_cache import NgramCacheDrafter
from draftwood.drafters.load import load as load_drafters
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.memory.memory import Memory
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.drafters.parrot.drafter import ParrotDrafter
from draftwood.drafters.prediction.drafter import PredictionDrafter
from draftwood.errors import DraftwoodError, UsageError
from draftwood.files.format import compare_tokenizers
from draftwood.files.paths import named

MemoryGiven = Memory | str | PathLike[str]
CorpusGiven = Corpus | str | PathLike[str]

log = logging.getLogger("draftwood")

_OWN = {"prediction": PredictionDrafter, "memory": MemoryDrafter, "corpus": CorpusDrafter}
"""Who drafts from what."""


@dataclass(frozen=True, slots=True)
class UserTexts:
    """What was given; None is nothing.

    Attributes
    ----------
    prediction
        Texts that the user expects, as text or token ids; see `per_prompt`.
    memory
        A `Memory`, or its file: loaded if it is there, and saved when the call ends.
    corpus
        A `Corpus` or the file of one, or several of these.
    context
        Further texts to copy from, as text or token ids; one or several.
    """

    prediction: Prediction | None = None
    memory: MemoryGiven | None = None
    corpus: CorpusGiven | Sequence[CorpusGiven] | None = None
    context: Text | Sequence[Text] | None = None

    @property
    def given(self) -> list[str]:
        """Names of what was given."""
        names = ("prediction", "memory", "corpus", "context")
        return [name for name in names if getattr(self, name) is not None]

    def complete(self, drafters: tuple[Drafter, ...]) -> tuple[Drafter, ...]:
        """Return the drafters, and behind them one more for each source that none of them drafts from.

        Raises
        ------
        UsageError
            If there are no drafters at all: plain decoding drafts from nothing.
        """
        given = self.given
        if given and not drafters:
            raise UsageError(
                f"'none' is plain decoding, which drafts from nothing: leave {' and '.join(given)} out, or name "
                "drafters other than 'none'"
            )
        added: list[Drafter] = []
        for name in given:
            if name == "context":
                if not any(_reads_context(d) for d in (*drafters, *added)):
                    added.append(NgramDrafter())
            elif not any(isinstance(d, _OWN[name]) for d in drafters):
                added.append(_OWN[name]())
        return (*drafters, *added)

    def label(self, spec: str) -> str:
        """Return the name of these drafters with what `complete` adds: ``suffix+prediction``."""
        if not self.given:
            return spec
        drafters = load_drafters(spec)
        return "+".join([spec, *(d.name for d in self.complete(drafters)[len(drafters) :])])

    def opened(self, drafters: Iterable[Drafter] = ()) -> UserTexts:
        """Return the same with files opened; ``drafters`` may say how many tokens a memory holds.

        Raises
        ------
        UsageError
            For what is no source, and files that are not there; a memory need not be.
        FileFormatError
            For files that are no memory or corpus, or damaged.
        """
        return replace(self, memory=self._memory(drafters), corpus=self._corpora())

    def said(self) -> dict[str, str]:
        """Return what tells these sources from others, for the header of a measurement."""
        opened, found = self.opened(), {}
        for name in ("prediction", "context"):
            if getattr(self, name) is not None:
                found[name] = _digest(repr(several(getattr(self, name), name)).encode())
        if isinstance(opened.memory, Memory):
            answers = opened.memory.answers()
            digest = _digest(b"".join(a.namespace.encode() + a.ids.tobytes() for a in answers))
            found["memory"] = f"{len(answers)} answers" + (f", {digest}" if answers else "")
        for number, corpus in enumerate(opened._corpora() or ()):
            digest = corpus.header.checksum.hex()[:16] if corpus.header else ""
            found[f"corpus {number}" if number else "corpus"] = f"{len(corpus)} tokens, {digest}"
        return found

    def to_save(self, opened: UserTexts) -> Memory | None:
        """Return the memory of ``opened`` that was given as a file here, if one was."""
        return opened.memory if isinstance(opened.memory, Memory) and opened.memory is not self.memory else None

    def _memory(self, drafters: Iterable[Drafter]) -> Memory | None:
        if self.memory is None or isinstance(self.memory, Memory):
            return self.memory
        path = _path(self.memory, "memory")
        sizes = {d.tokens for d in drafters if isinstance(d, MemoryDrafter) and d.tokens is not None}
        if len(sizes) > 1:
            said = " and ".join(f"tokens={size}" for size in sorted(sizes))
            raise UsageError(f"one memory is given, and its drafters say {said}: give the same everywhere")
        return Memory.open(path, *sizes)

    def _corpora(self) -> tuple[Corpus, ...] | None:
        given: Any = self.corpus
        if given is None:
            return None
        files = given if isinstance(given, list | tuple) else [given]
        return tuple(c if isinstance(c, Corpus) else Corpus.open(_path(c, "corpus")) for c in files)

    def bind(self, drafters: tuple[Drafter, ...], tokenizer: Any, vocab_size: int | None) -> tuple[Drafter, ...]:
        """Return the drafters with everything `opened` at hand, but predictions, which belong to a prompt."""
        texts = () if self.context is None else read_texts(self.context, "context", tokenizer, vocab_size)
        return tuple(self._bind(drafter, texts) for drafter in drafters)

    def _bind(self, drafter: Any, context: tuple[Ids, ...]) -> Drafter:
        found: Drafter = drafter
        if isinstance(drafter, MemoryDrafter) and self.memory is not None:
            found = replace(drafter, memory=self.memory)  # type: ignore[arg-type]
        elif isinstance(drafter, CorpusDrafter) and self.corpus:
            found = replace(drafter, corpora=(*drafter.corpora, *self.corpus))  # type: ignore[misc]
        elif context and isinstance(drafter, ParrotDrafter):
            found = replace(drafter, context=(*drafter.context, *(i for text in context for i in text)))
        elif context and _reads_context(drafter):
            found = replace(drafter, context=(*drafter.context, *context))
        return found


def _reads_context(drafter: Any) -> bool:
    return is_dataclass(drafter) and isinstance(getattr(drafter, "context", None), tuple)


def predicting(
    drafters: tuple[Drafter, ...], prediction: Any, tokenizer: Any, vocab_size: int | None = None
) -> tuple[Drafter, ...]:
    """Return the drafters, those that follow a prediction bound to the texts of one prompt."""
    texts = () if prediction is None else read_prediction(prediction, tokenizer, vocab_size)
    return tuple(
        replace(d, texts=tuple(dict.fromkeys((*d.texts, *texts)))) if isinstance(d, PredictionDrafter) else d
        for d in drafters
    )


def check_tokenizer(drafters: Iterable[Drafter], tokenizer: Any) -> None:
    """Raise `VocabularyError` if what a drafter reads holds the ids of another tokenizer, however it came there.

    Nothing can be told of ids whose tokenizer is not known, and of a tokenizer that does not give its vocabulary.

    Raises
    ------
    UsageError
        If there is no tokenizer to compare with that of a file which tells its own.
    """
    for drafter in drafters:
        if tokenizer is None:
            if file := _file_of_a_tokenizer(drafter):
                raise UsageError(
                    f"{file} belongs to one tokenizer, and none is known here to compare: pass tokenizer="
                )
        elif hasattr(tokenizer, "get_vocab"):
            _compare(drafter, tokenizer)


def _file_of_a_tokenizer(drafter: Drafter) -> str | None:
    """A file of this drafter that tells whose ids it holds."""
    if isinstance(drafter, MemoryDrafter) and drafter.memory is not None:
        memory = drafter.memory
        return str(memory.path) if memory.path is not None and memory.fingerprint is not None else None
    if isinstance(drafter, CorpusDrafter):
        telling = [c for c in drafter.corpora if c.path is not None and c.fingerprint is not None]
        return str(telling[0].path) if telling else None
    if isinstance(drafter, NgramCacheDrafter) and drafter.fingerprint is not None:
        return "the file of ngram-cache"
    return None


def _compare(drafter: Drafter, tokenizer: Any) -> None:
    from draftwood.models.fingerprint import tokenizer_fingerprint

    if isinstance(drafter, MemoryDrafter) and drafter.memory is not None:
        drafter.memory.check_fingerprint(tokenizer_fingerprint(tokenizer))
    elif isinstance(drafter, CorpusDrafter):
        for corpus in drafter.corpora:
            what = f"the corpus {corpus.path or 'that was given'}"
            compare_tokenizers(what, corpus.fingerprint, tokenizer_fingerprint(tokenizer))
    elif isinstance(drafter, NgramCacheDrafter):
        drafter.check_fingerprint(tokenizer_fingerprint(tokenizer))


def detached(drafters: Iterable[Drafter]) -> tuple[Drafter, ...]:
    """Return the drafters with memories of their own, which know what those know now, and counts of their files.

    Nothing is saved, and nothing that they learn reaches anybody else; two that share a memory still do.
    """
    copies: dict[int, Memory] = {}

    def alone(drafter: Drafter) -> Drafter:
        if isinstance(drafter, MemoryDrafter) and (memory := drafter.memory) is not None:
            if id(memory) not in copies:
                copies[id(memory)] = memory.copy()
            return replace(drafter, file=None, memory=copies[id(memory)])
        if isinstance(drafter, NgramCacheDrafter) and drafter.learns:
            return replace(drafter, save=False)
        return drafter

    return tuple(alone(drafter) for drafter in drafters)


@contextmanager
def saving(memory: Memory | None) -> Iterator[None]:
    """Save a memory on the way out, however that is taken, if something came into it.

    Where that fails a warning is logged: who has the text must not lose it.
    """
    try:
        yield
    finally:
        if memory is not None and memory.changed:
            try:
                memory.save()
            except DraftwoodError as error:
                log.warning("the memory was not saved: %s", error)


def _digest(said: bytes) -> str:
    return hashlib.sha256(said).hexdigest()[:16]


def _path(given: Any, what: str) -> Path:
    if not isinstance(given, str | PathLike) or not str(given):
        raise UsageError(f"{what} is a file or a {what.capitalize()}, not {given!r:.40}")
    return named(given)
