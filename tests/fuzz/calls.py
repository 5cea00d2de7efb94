"""One call of a public function with random settings: what it must give, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from transformers import LogitsProcessorList, NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

import draftwood
from draftwood.contracts import Sampling
from draftwood.decoding.sequence import common_prefix
from tests.api.generating import batch, speller
from tests.fuzz.truth import Rule, greedy, near_tie, plain

SPELLER = speller()
SPELLER.chat_template = (
    "{% for m in messages %}{{ m['role'][0] }}{{ m['content'] }}~{% endfor %}"
    "{% if add_generation_prompt %}a{% endif %}"
)


class WrongTextError(AssertionError):
    """A text that is not what the model alone writes."""


def forbid(ids: Any, scores: Any) -> Any:
    """A simple grammar: no multiple of three after an even token."""
    scores[ids[:, -1] % 2 == 0, ::3] = -torch.inf
    return scores


def favour(ids: Any, scores: Any) -> Any:
    """Favours the last token's id plus one, by a fifth of the largest absolute score."""
    at = (ids[:, -1:] + 1) % scores.shape[1]
    return scores.scatter_add(1, at, scores.abs().amax(1, keepdim=True) * 0.2)


PROCESSORS: dict[str, Callable[[], Any]] = {
    "no repeats of two": lambda: NoRepeatNGramLogitsProcessor(2),
    "no repeats of three": lambda: NoRepeatNGramLogitsProcessor(3),
    "forbid": lambda: forbid,
    "favour": lambda: favour,
    "penalty": lambda: RepetitionPenaltyLogitsProcessor(1.3),
}


@dataclass
class Call:
    """What is asked, with what objects; drawn before it is run, so that several can run at once."""

    model: Any = field(repr=False)
    function: str
    prompts: list[list[int]]
    limit: int
    processors: list[str] = field(default_factory=list)
    sampling: dict[str, Any] = field(default_factory=dict)
    stop: str | None = None
    objects: dict[str, Any] = field(default_factory=dict)
    """Drafters, planner, sources; or the object of `decode_with` itself."""

    def made(self) -> LogitsProcessorList:
        """Processors of this call, new ones."""
        return LogitsProcessorList(PROCESSORS[name]() for name in self.processors)

    def rule(self, number: int) -> Rule:
        """How the text of a prompt is chosen."""
        if self.function != "decode_with":
            return Rule(self.made(), Sampling(**self.sampling))
        warped = {name: v for name, v in self.sampling.items() if name != "seed"}
        sampling = Sampling(temperature=float(bool(warped)), seed=self.sampling.get("seed", 0))
        again = self.prompts[:number].count(self.prompts[number])  # equal prompts in a batch count up
        padding = max(map(len, self.prompts)) - len(self.prompts[number])
        return Rule(self._list(warped), sampling, again, padding)

    def _list(self, warped: dict[str, Any]) -> LogitsProcessorList:
        """Processors and warpers as ``model.generate`` orders them."""
        from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        kinds = {
            "temperature": TemperatureLogitsWarper,
            "top_k": TopKLogitsWarper,
            "top_p": TopPLogitsWarper,
            "min_p": MinPLogitsWarper,
        }
        return LogitsProcessorList(
            [*self.made(), *(kind(warped[name]) for name, kind in kinds.items() if warped.get(name))]
        )

    def expected(self) -> list[list[int]]:
        """The text of each prompt."""
        if self.sampling or (len(self.prompts) > 1 and self.processors):  # processors may see a batch's padding
            texts = [plain(self.model, p, self.limit, self.rule(n)) for n, p in enumerate(self.prompts)]
        else:
            texts = [greedy(self.model, prompt, self.limit, self.made()) for prompt in self.prompts]
        return [self.cut(text) for text in texts]

    def cut(self, text: list[int]) -> list[int]:
        """The text up to the token that completes the stop string."""
        if self.stop is None:
            return text
        ends = (n for n in range(1, len(text)) if self.stop in SPELLER.decode(text[:n]))
        return text[: next(ends, len(text))]

    def given(self) -> list[list[int]]:
        """Run it; the text of each prompt."""
        if self.function == "decode_with":
            return self._decoded()
        if self.function == "generate":
            return [one.ids for one in draftwood.generate(self.model, self.prompts, **self._settings())]
        stream = self.stream()
        list(stream)
        return [stream.generation.ids]

    def stream(self) -> Any:
        """The stream of the first prompt, not begun."""
        return draftwood.stream(self.model, self.prompts[0], **self._settings())

    def _settings(self) -> dict[str, Any]:
        stop = {"stop": self.stop, "tokenizer": SPELLER} if self.stop else {"tokenizer": SPELLER}
        return {
            "max_new_tokens": self.limit,
            "logits_processor": list(self.made()),
            **stop,
            **self.sampling,
            **{name: value for name, value in self.objects.items() if name != "decoding"},
        }

    def _decoded(self) -> list[list[int]]:
        inputs = batch(self.prompts)
        sampled = {name: v for name, v in self.sampling.items() if name != "seed"}
        out = self.model.generate(
            **inputs,
            max_new_tokens=self.limit,
            pad_token_id=0,
            logits_processor=self.made(),
            do_sample=bool(sampled),
            **({"top_k": 0} | sampled if sampled else {}),
            custom_generate=self.objects["decoding"],
        )
        written = self.objects["decoding"].generations
        width = inputs["input_ids"].shape[1]
        returned = [row[: len(g.ids)] for row, g in zip(out[:, width:].tolist(), written, strict=True)]
        if returned != [g.ids for g in written]:
            raise WrongTextError("decode_with() tells other texts than it returned")
        return [g.ids for g in written]

    def check(self, given: Sequence[list[int]], truths: Sequence[list[int]], *, cut: bool = False) -> int:
        """Compare; returns how many texts differ, first at a near-tie.

        ``cut``: the texts may end early.

        Raises
        ------
        WrongTextError
            For a difference that rounding cannot make.
        """
        ties = 0
        for number, (ours, truth) in enumerate(zip(given, truths, strict=True)):
            at = common_prefix(ours, truth)
            if at == len(ours) == len(truth) or (cut and at == len(ours)):
                continue
            if not near_tie(self.model, self.prompts[number], ours, at, self.rule(number)):
                raise WrongTextError(
                    f"text {number} of {self}: token {at} differs, ours {ours}, the model's own {truth}"
                )
            ties += 1
        return ties


def draw_prompt(rng: Random) -> list[int]:
    """A prompt that repeats itself, of one to sixty tokens; edges of windows and of chunks are among them."""
    length = rng.choice([1, 2, rng.randrange(3, 12), rng.randrange(3, 60)])
    piece = [rng.randrange(2, 62) for _ in range(rng.randrange(1, 20))]
    text = (piece * length)[:length]
    for _ in range(rng.randrange(3)):
        text[rng.randrange(length)] = rng.randrange(2, 62)
    return text


def draw_sampling(rng: Random) -> dict[str, Any]:
    """Nothing (greedy), or settings of a sampled text."""
    if rng.random() < 0.6:
        return {}
    settings: dict[str, Any] = {"temperature": rng.choice([0.3, 0.7, 1.0, 1.6]), "seed": rng.randrange(99)}
    extra = rng.choice([{}, {}, {"top_k": rng.choice([1, 5, 20])}, {"top_p": 0.8}, {"min_p": 0.05}])
    return settings | extra
