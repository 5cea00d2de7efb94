"""The user's texts that drafters copy from: predictions, a memory, corpora, context; and how they are read."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

from draftwood.api.prompts import needed
from draftwood.contracts import Drafter, DraftTexts
from draftwood.contracts.declaring import files_of, takes_of
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.load import load as load_drafters
from draftwood.drafters.memory.memory import Memory
from draftwood.errors import DraftwoodError, UsageError
from draftwood.files.foreign import whole
from draftwood.files.format import compare_tokenizers
from draftwood.files.paths import named

Text = str | Sequence[int]
Prediction = Text | Sequence[Text | Sequence[Text] | None]
Ids = tuple[int, ...]
MemoryGiven = Memory | str | PathLike[str]
CorpusGiven = Corpus | str | PathLike[str]

log = logging.getLogger("draftwood")

# The drafter that is added for a kind of text that no drafter of the set takes.
_OWN = {"prediction": "prediction", "memory": "memory", "corpus": "corpus", "context": "ngram"}


@dataclass(frozen=True, slots=True)
class UserTexts:
    """What the user gave; None is nothing."""

    prediction: Prediction | None = None  # texts that the user expects; see `per_prompt`
    memory: MemoryGiven | None = None  # a file is loaded if it exists and saved when the call ends
    corpus: CorpusGiven | Sequence[CorpusGiven] | None = None
    context: Text | Sequence[Text] | None = None  # further texts to copy from

    @property
    def given(self) -> list[str]:
        """Names of what was given."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def complete(self, drafters: tuple[Drafter, ...]) -> tuple[Drafter, ...]:
        """Return the drafters, followed by one for each kind of text given here that none of them takes."""
        given = self.given
        if given and not drafters:
            raise UsageError(
                f"'none' is plain decoding, which drafts from nothing: leave {' and '.join(given)} out, or name "
                "drafters other than 'none'"
            )
        added: list[Drafter] = []
        for name in given:
            if not any(getattr(takes_of(drafter), name) for drafter in (*drafters, *added)):
                added += load_drafters(_OWN[name])
        return (*drafters, *added)

    def label(self, spec: str) -> str:
        """Return the names of the drafters including those that `complete` adds, as in ``ngram+prediction``."""
        if not self.given:
            return spec
        drafters = load_drafters(spec)
        return "+".join([spec, *(d.name for d in self.complete(drafters)[len(drafters) :])])

    def opened(self, drafters: Iterable[Drafter] = ()) -> UserTexts:
        """Return the same texts with files opened; ``drafters`` may declare how many tokens a memory holds."""
        return replace(self, memory=self._memory(drafters), corpus=self._corpora())

    def said(self) -> dict[str, str]:
        """Return what identifies these texts, by digests, for the header of a measurement."""
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
        """Return the memory of ``opened`` if it was given as a file here, else None."""
        return opened.memory if isinstance(opened.memory, Memory) and opened.memory is not self.memory else None

    def _memory(self, drafters: Iterable[Drafter]) -> Memory | None:
        if self.memory is None or isinstance(self.memory, Memory):
            return self.memory
        path = _path(self.memory, "memory")
        sizes = {size for drafter in drafters if (size := takes_of(drafter).memory_tokens) is not None}
        if len(sizes) > 1:
            said = " and ".join(f"tokens={size}" for size in sorted(sizes))
            raise UsageError(f"one memory is given, and its drafters ask for {said}: give all of them the same")
        return Memory.open(path, *sizes)

    def _corpora(self) -> tuple[Corpus, ...] | None:
        given: Any = self.corpus
        if given is None:
            return None
        files = given if isinstance(given, list | tuple) else [given]
        return tuple(c if isinstance(c, Corpus) else Corpus.open(_path(c, "corpus")) for c in files)

    def bind(self, drafters: tuple[Drafter, ...], tokenizer: Any, vocab_size: int | None) -> tuple[Drafter, ...]:
        """Return the drafters with the opened texts that each takes, except predictions, which are per prompt."""
        context = () if self.context is None else read_texts(self.context, "context", tokenizer, vocab_size)
        brought = DraftTexts(memory=self.memory, corpus=self.corpus or (), context=context)  # type: ignore[arg-type]
        return tuple(_with(drafter, brought) for drafter in drafters)


def _with(drafter: Any, brought: DraftTexts) -> Drafter:
    """Return the drafter with those texts that it takes; the same object if it takes none of them."""
    takes = takes_of(drafter)
    taken = {field.name: getattr(brought, field.name) for field in fields(brought) if getattr(takes, field.name)}
    fitting = {name: value for name, value in taken.items() if value is not None and value != ()}
    return drafter.with_user_texts(DraftTexts(**fitting)) if fitting else drafter


def predicting(
    drafters: tuple[Drafter, ...], prediction: Any, tokenizer: Any, vocab_size: int | None = None
) -> tuple[Drafter, ...]:
    """Return the drafters; those that take a prediction get this one, of one prompt."""
    texts = () if prediction is None else read_prediction(prediction, tokenizer, vocab_size)
    every: tuple[Any, ...] = drafters
    return tuple(d.with_user_texts(DraftTexts(prediction=texts)) if takes_of(d).prediction else d for d in every)


def check_tokenizer(drafters: Iterable[Drafter], tokenizer: Any) -> None:
    """Raise `VocabularyError` if a file that a drafter has opened holds the token ids of another tokenizer.

    Files that do not name theirs are not checked, nor is a tokenizer without ``get_vocab``.
    """
    files = [file for drafter in drafters for file in files_of(drafter)]
    if tokenizer is None:
        for file in files:
            if file.path is not None and file.tokenizer is not None:
                raise UsageError(
                    f"{file.path} belongs to one tokenizer, and none is known here to compare: pass tokenizer="
                )
    elif files and hasattr(tokenizer, "get_vocab"):
        from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint

        fingerprint = tokenizer_fingerprint(tokenizer)
        for file in files:
            compare_tokenizers(file.name, file.tokenizer, fingerprint)
            if file.accept is not None:
                file.accept(fingerprint)


def detached(drafters: Iterable[Drafter]) -> tuple[Drafter, ...]:
    """Return copies of the drafters that learn for themselves and write no file; a shared memory stays shared."""
    copies: dict[int, Any] = {}

    def share(thing: Any) -> Any:
        if id(thing) not in copies:
            copies[id(thing)] = thing.copy()
        return copies[id(thing)]

    return tuple(drafter.detached(share) for drafter in drafters)


@contextmanager
def saving(memory: Memory | None) -> Iterator[None]:
    """Save a memory that has changed when the context ends; failing is logged, an error would cost the text."""
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


def per_prompt(prediction: Any, prompts: int | None) -> list[Any]:
    """Return the prediction of each prompt: one text is for all of them.

    A list holds the alternatives of a single prompt (``prompts`` is None), or an entry per prompt, which may be
    None or a list of alternatives.
    """
    if prompts is None:
        return [prediction]
    if prediction is None or _is_text(prediction):
        return [prediction] * prompts
    entries = list(_listed(prediction, "prediction"))
    if len(entries) != prompts:
        raise UsageError(
            f"{prompts} prompts and {len(entries)} predictions: give one text for all, or a list with an entry (a "
            "text, a list of texts or None) per prompt"
        )
    return entries


def read_prediction(given: Any, tokenizer: Any, vocab_size: int | None = None) -> tuple[Ids, ...]:
    """Return the token ids of the prediction of one prompt, text in all its `variants`, without empty ones."""
    texts: list[Ids] = []
    for one in several(given, "prediction"):
        if isinstance(one, str):
            texts += variants(one, needed(tokenizer, "prediction as text"))
        else:
            texts += [ids] if (ids := _ids(one, "prediction", tokenizer, vocab_size)) else []
    return tuple(dict.fromkeys(texts))


def variants(text: str, tokenizer: Any) -> tuple[Ids, ...]:
    """Return the token ids of a text as it is, after a space, and inside a JSON string, where these differ.

    A first token that differs (after a newline, in a code fence) costs the drafter one step, but newlines and
    quotes that are escaped, as in the arguments of a tool call, change tokens on every line.
    """
    forms = [text]
    if text[:1].strip():  # the chat template may leave a space to the answer
        forms.append(" " + text)
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    if escaped != text:
        forms.append(escaped)
    ids = (tuple(tokenizer(form, add_special_tokens=False)["input_ids"]) for form in forms)
    return tuple(dict.fromkeys(form for form in ids if form))


def read_texts(given: Any, what: str, tokenizer: Any, vocab_size: int | None) -> tuple[Ids, ...]:
    """Return the token ids of one text or several, called ``what`` in errors; empty ones are left out."""
    texts = (_ids(one, what, tokenizer, vocab_size) for one in several(given, what))
    return tuple(text for text in texts if text)


def several(given: Any, what: str) -> list[Any]:
    """Return one text, or each of several, as a list."""
    texts = [given] if _is_text(given) else list(_listed(given, what))
    for text in texts:
        if isinstance(text, str):
            whole(text, f"a text of {what}", UsageError)
    return texts


def _is_text(given: Any) -> bool:
    if isinstance(given, str) or getattr(given, "ndim", 0) == 1:
        return True
    return isinstance(given, Sequence) and len(given) > 0 and isinstance(given[0], Integral)


def _listed(given: Any, what: str) -> Iterable[Any]:
    if not isinstance(given, Iterable) or isinstance(given, bytes | dict) or getattr(given, "ndim", 1) == 0:
        raise UsageError(f"{what} is text, token ids or a list of these, not {type(given).__name__}")
    return given


def _ids(text: Any, what: str, tokenizer: Any, vocab_size: int | None) -> Ids:
    if isinstance(text, str):
        known = needed(tokenizer, f"{what} as text")
        return tuple(known(text, add_special_tokens=False)["input_ids"]) if text else ()
    ids = text.tolist() if hasattr(text, "tolist") else list(_listed(text, what))
    if odd := [i for i in ids if not isinstance(i, Integral)]:
        raise UsageError(f"{what} is text, token ids or a list of these; {type(odd[0]).__name__} is none of them")
    if ids and (min(ids) < 0 or max(ids) >= (vocab_size or 1 << 31)):
        raise UsageError(f"{what} has token ids outside the vocabulary [0, {vocab_size or 1 << 31})")
    return tuple(int(i) for i in ids)
