"""What vLLM's configuration and the user's options come to: bounds, drafters, planner."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from draftwood.api.user_texts import UserTexts, check_tokenizer
from draftwood.contracts import Capabilities, Drafter
from draftwood.contracts.declaring import declared, refuse_mismatch
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.vllm.drafting import Drafting
from draftwood.engines.vllm.options import Options
from draftwood.engines.vllm.planner import planner_of
from draftwood.errors import CapabilityError, DraftwoodError, UsageError
from draftwood.planning.beliefs import Beliefs

log = logging.getLogger("vllm.draftwood")

MOST = 128  # draft tokens that vLLM's sampler takes


@dataclass(frozen=True)
class Configuration:
    """What a worker is to do.

    Attributes
    ----------
    longest, max_length, rows, vocab_size
        Most tokens of a draft and of a text, most requests of a batch, number of token ids.
    options
        The user's.
    drafters
        The set, with the files that it drafts from.
    tokenizer_name
        Where vLLM has the model's tokenizer from.
    """

    longest: int
    max_length: int
    rows: int
    vocab_size: int
    options: Options
    drafters: tuple[Drafter, ...]
    tokenizer_name: str

    @classmethod
    def of(cls, vllm_config: Any) -> Configuration:
        """Read vLLM's configuration; raises `DraftwoodError` with one sentence for what cannot work."""
        options = Options.read(vllm_config.additional_config)
        model = vllm_config.model_config
        longest = vllm_config.speculative_config.num_speculative_tokens
        if not isinstance(longest, int) or not 1 <= longest <= MOST:
            raise UsageError(f"num_speculative_tokens must be 1 to {MOST}, not {longest!r}")
        vocab_size, max_length = int(model.get_vocab_size()), int(model.max_model_len)
        drafters = _drafters(options)
        refuse_mismatch(
            Capabilities(vocab_size, max_length, trees=False, top_k=False, max_pass=1 + longest), drafters
        )
        _refuse_models(drafters)
        if options.memory or options.corpus or any(getattr(drafter, "file", None) for drafter in drafters):
            check_tokenizer(drafters, _tokenizer(model.tokenizer))
        planner_of(options.planner)  # a wrong name raises at once
        rows = int(vllm_config.scheduler_config.max_num_seqs)
        return cls(longest, max_length, rows, vocab_size, options, drafters, model.tokenizer)

    @property
    def said(self) -> str:
        """Drafters and planner, for the log."""
        names = "+".join(drafter.name for drafter in self.drafters) or "none"
        return f"drafters {names}, planner {self.options.planner}"

    def tokenizer_or_none(self) -> Any:
        """Return the model's tokenizer, for texts that clients send; None, which is logged, if there is none."""
        try:
            return _tokenizer(self.tokenizer_name)
        except DraftwoodError as error:
            log.warning("draftwood reads predictions as token ids only: %s", error)
            return None

    def drafting(self) -> Drafting:
        """Return what drafts, knowing nothing yet."""
        return Drafting(
            self.drafters, planner_of(self.options.planner if self.drafters else "off"), Beliefs(),
            longest=self.longest, rows=self.rows, max_length=self.max_length, vocab_size=self.vocab_size,
            most_tokens=self.options.texts,
        )  # fmt: skip


def _drafters(options: Options) -> tuple[Drafter, ...]:
    corpora = [path for path in options.corpus.split(os.pathsep) if path]
    texts = UserTexts(None, None, corpora or None)
    chosen = list(load_drafters(options.drafters))
    if options.memory:
        chosen = [drafter for drafter in chosen if drafter.name != "memory"]
        chosen += load_drafters(f'memory:file="{options.memory}"')
    opened = texts.opened()
    return opened.bind(texts.complete(tuple(chosen)), None, None)


def _refuse_models(drafters: tuple[Drafter, ...]) -> None:
    """Refuse drafters with models of their own, and those that go on behind others' drafts."""
    for drafter in drafters:
        needs = declared(drafter).needs
        if needs.prices or needs.base_tree or needs.target_session or needs.hidden:
            raise CapabilityError(
                f"drafter {drafter.name!r} is not offered inside vLLM: name drafters that copy text, as in ngram, "
                "ngram+memory or suffix"
            )


def _tokenizer(name: str) -> Any:
    from draftwood.models.load import load_tokenizer

    return load_tokenizer(name, engine="transformers")
