"""Text to train on, written by the model itself: its chat template is left open, so it invents requests.

Source: Xu and others, "Magpie: Alignment Data Synthesis from Scratch by Prompting Aligned LLMs with Nothing",
arXiv 2406.08464.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from draftwood.api.checks import end_ids
from draftwood.api.target import target_of
from draftwood.contracts import Sampling
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.load import load as load_drafters
from draftwood.errors import ModelError
from draftwood.files.foreign import text_of
from draftwood.files.lines import Appender, read_lines
from draftwood.files.paths import content
from draftwood.planning.load import load as load_planner
from draftwood.verify.exact import SampleAndMatch

TEMPERATURES = (0.0, 0.7, 1.0, 0.0)
"""Of answers, in turn; what is wanted at temperature 0 most often is written so most often."""

OPENINGS = (
    "What is", "What are the", "What happens when", "How do I", "How does", "How can I", "How many", "Why do",
    "Why is", "Who was", "When did", "Where can I", "Which is better,", "Is it true that", "Can you explain",
    "Can you help me", "Could you write", "Should I", "Explain", "Explain to a child", "Describe", "Tell me about",
    "Tell me a story about", "Write a short story about", "Write a poem about", "Write a letter to",
    "Write an email", "Write a paragraph about", "Write a scene in which", "Write a Python function that",
    "Write a product description", "Write down", "Give me a recipe for", "Give me advice on",
    "Give me three reasons", "Give me a plan for", "Make a list of", "List five", "Name some", "Plan a",
    "Compare", "Summarize", "Translate", "Suggest", "Invent a", "Imagine", "I want to", "I need", "My friend",
    "Let's talk about",
)  # fmt: skip
"""First words of requests as people write them. Left to itself, a small model often invents what no user asks."""

BATCH = 48  # texts that share a pass. The CPU engine takes half: 48 are 3 % faster, but Ctrl-C loses a batch

_REQUEST, _ANSWER = 120, 256  # most tokens
_BEGINNING = 24  # the same of what stands for a request where there is no chat template
_LEAST = 4  # tokens of a request; the model has ended shorter ones by chance
_OPENED, _WARM = 0.75, 0.8  # share of requests whose first words are given, and their temperature
_SAME = 3  # tokens by which the texts of a model begin, whatever day its template tells
_MARK = "\u241e"  # stands for the request while the template is rendered


@dataclass(frozen=True, slots=True)
class Text:
    """One text to train on: token ids, of which the first ``start`` are not the model's answer."""

    ids: list[int]
    start: int = 0


def frame_of(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the token ids that a chat template puts before a request and after it, up to the answer.

    Without a template: the token that begins a text, and none.
    """
    if not getattr(tokenizer, "chat_template", None):
        begin = getattr(tokenizer, "bos_token_id", None)
        begin = begin if begin is not None else getattr(tokenizer, "eos_token_id", None)
        if begin is None:
            raise ModelError("the tokenizer has no chat template and no token that begins a text: name text files")
        return [begin], []
    message = [{"role": "user", "content": _MARK}]
    whole = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    before, _, after = whole.partition(_MARK)
    first, last = (list(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in (before, after))
    return first, last


class SelfWriter:
    """Writes texts with a model, a batch at a time. ``over(tokens)`` is asked after each token, with those of the
    batch so far, and ends its answers where they stand."""

    def __init__(
        self, model: Any, tokenizer: Any, *, seed: int = 0, over: Callable[[int], bool] = lambda _: False
    ) -> None:
        self._target, self._tokenizer, self._seed, self._over = target_of(model), tokenizer, seed, over
        self._batch = BATCH // 2 if self._target.engine == "cpu" else BATCH
        (self._before, self._after) = frame_of(tokenizer)
        self._ends = end_ids(getattr(model, "generation_config", None))
        self._drafters, self._planner = load_drafters("ngram"), load_planner("goodput")

    def texts(self, first: int = 0) -> Iterator[list[Text]]:
        """Yield batch after batch, from number ``first`` on; where ``over`` does not end it, a batch depends on
        its number and the seed alone."""
        number = first
        while True:
            yield self._write(number)
            number += 1

    def _write(self, number: int) -> list[Text]:
        openings = self._openings(number)
        begun = [[*self._before, *opening] for opening in openings]
        warm = [_WARM if opening else 1.0 for opening in openings]
        found = self._generate(begun, warm, _REQUEST if self._after else _BEGINNING, 2 * number)
        pairs = zip(openings, found, strict=True)
        asked = [[*opening, *takewhile(lambda token: token not in self._ends, ids)] for opening, ids in pairs]
        prompts = [[*self._before, *ids, *self._after] for ids in asked if len(ids) >= _LEAST]
        if not prompts:
            return []
        temperature = TEMPERATURES[number % len(TEMPERATURES)]
        answers = self._generate(prompts, [temperature] * len(prompts), _ANSWER, 2 * number + 1)
        return [Text([*prompt, *ids], len(prompt)) for prompt, ids in zip(prompts, answers, strict=True)]

    def _openings(self, number: int) -> list[list[int]]:
        """Return the first tokens of a batch's requests; for a quarter of them there are none."""
        chance = random.Random(f"{self._seed} {number}")
        chosen = [chance.choice(OPENINGS) if chance.random() < _OPENED else "" for _ in range(self._batch)]
        return [list(self._tokenizer(words, add_special_tokens=False)["input_ids"]) for words in chosen]

    def _generate(
        self, prompts: Sequence[list[int]], temperatures: Sequence[float], tokens: int, part: int
    ) -> list[list[int]]:
        """Write after all prompts, each with noise of its own."""
        seed = self._seed * 1_000_003 + part
        requests = [
            Request(prompt, tokens, Sampling(temperature, seed=seed), sequence=number, end_ids=self._ends)
            for number, (prompt, temperature) in enumerate(zip(prompts, temperatures, strict=True))
        ]
        with open_sequences(self._target, self._drafters, requests, SampleAndMatch()) as sequences:
            for _ in decode_sequences(self._target, self._planner, sequences):
                over = self._over(sum(len(row.ids) for row in sequences))
                if over and part % 2:  # an answer
                    break
            return [list(row.ids[len(prompt) :]) for row, prompt in zip(sequences, prompts, strict=True)]


def of_files(paths: Sequence[Path], tokenizer: Any, longest: int = 512) -> list[Text]:
    """Return the texts of files in pieces of at most ``longest`` tokens.

    Raises `ModelError` for a file that cannot be read as text, or holds only a few tokens.
    """
    found: list[Text] = []
    for path in paths:
        try:
            text = text_of(content(path, streams=True), str(path), ModelError)
        except OSError as error:
            raise ModelError(f"{path} cannot be read as text ({error.strerror or error}): leave it out") from error
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) < 2 * _LEAST:
            raise ModelError(f"{path} has {len(ids)} tokens, too few to train on: name longer texts")
        found += [Text(ids[at : at + longest]) for at in range(0, len(ids) - _LEAST, longest)]
    return found


def append(path: Path, texts: Sequence[Text]) -> None:
    """Write texts after those that a file holds, a line each: all of them, or none and an error (`Appender`)."""
    with closing(Appender(path)) as file:
        file.write(map(asdict, texts))


def of_earlier_run(path: Path, vocab: int, tokenizer: Any) -> list[Text]:
    """Return the texts of a ``texts.jsonl``, which may be compressed (``.zst``), for a model of so many tokens.

    Raises `RecordError` or `UsageError` for a file that cannot be read, and `ModelError` for one without texts, or
    with those of another model.
    """
    rows = [row for _, row in read_lines(path)]
    found, before = _texts(rows), [] if tokenizer is None else frame_of(tokenizer)[0][:_SAME]
    known = all(0 <= token < vocab for text in found for token in text.ids)
    known &= all(text.ids[: len(before)] == before for text in found)
    if not found or len(found) < len(rows) or not known:
        raise ModelError(
            f"{path} holds no texts that this model has written: --written takes the texts.jsonl of a folder that "
            "--keep has kept"
        )
    return found


def read(path: Path) -> list[Text]:
    """Return the texts of a file; a line that was cut when the disk was full, or by Ctrl-C, is left out."""
    return _texts(path.read_text(encoding="utf-8").splitlines()) if path.exists() else []


def _texts(rows: Iterable[Any]) -> list[Text]:
    """Return the texts of those rows, or lines of JSON, that hold one."""
    found = []
    for row in rows:
        try:
            known = json.loads(row) if isinstance(row, str) else row
            found.append(Text([int(i) for i in known["ids"]], int(known["start"])))
        except (ValueError, KeyError, TypeError):
            continue
    return found
