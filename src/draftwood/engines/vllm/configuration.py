"""What vLLM's configuration and the user's options come to: bounds, drafters, planner.

Users give options as ``--additional-config '{"draftwood": {...}}'``, or in the environment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from draftwood.api.user_texts import check_tokenizer
from draftwood.contracts import Drafter
from draftwood.contracts.declaring import files_of
from draftwood.drafters.load import load as load_drafters
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.engines.vllm.drafting import Drafting
from draftwood.engines.vllm.planner import planner_of
from draftwood.errors import CapabilityError, DraftwoodError, UnknownNameError, UsageError
from draftwood.planning.beliefs import Beliefs
from draftwood.spelling import value_of

PREFIX = "DRAFTWOOD_VLLM_"
_OTHERS = frozenset({"ANY_VERSION"})  # read elsewhere


@dataclass(frozen=True)
class Options:
    """What may be set.

    ``drafters`` are ``ngram``, ``memory``, ``ngram+memory`` or ``none``; ``planner`` is ``goodput`` (drafts as
    much as pays, possibly nothing), ``fixed:16``, ``threshold`` or ``off``. ``memory`` is a file of earlier
    answers, shared by all requests of a worker: all users draft from each other's answers, unless namespaces are
    on. ``texts`` are the most tokens of all texts that are followed, at about 80 bytes each; further requests are
    not drafted for. ``requests`` looks into vLLM for what it does not tell, private to each of its versions: the
    names of requests, and what clients send with them (predictions, and whose memory they use). ``log_every`` are
    the seconds between two lines of counts in the log; 0: none.
    """

    drafters: str = "ngram"
    planner: str = "goodput"
    memory: str = ""
    texts: int = 8_000_000
    requests: bool = False
    log_every: float = 60.0

    @classmethod
    def read(cls, additional_config: Any, environment: Mapping[str, str] = os.environ) -> Options:
        """Return the options of a configuration, then of the environment; raises `UsageError` for a wrong one."""
        found: dict[str, Any] = {}
        for name, value in environment.items():
            if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in _OTHERS:
                key = name.removeprefix(PREFIX).lower()
                if key not in _KINDS:
                    known = [PREFIX + option.upper() for option in (*_KINDS, *_OTHERS)]
                    raise UnknownNameError("environment variable", name, known)
                if value:  # an empty one is none
                    found[key] = value_of(name, value, _KINDS[key])
        given = additional_config.get("draftwood", {}) if isinstance(additional_config, Mapping) else {}
        if not isinstance(given, Mapping):
            raise UsageError(f"draftwood's options are an object like {{'planner': 'goodput'}}, not {given!r}")
        for key, value in given.items():
            if key not in _KINDS:
                raise UnknownNameError("option of draftwood in --additional-config", key, _KINDS)
            found[key] = _of_json(key, value, _KINDS[key])
        options = replace(cls(), **found)
        if options.texts < 0 or not 0 <= options.log_every < float("inf"):
            raise UsageError("draftwood: texts and log_every must not be negative")
        return options


_KINDS: dict[str, type] = {field.name: type(field.default) for field in fields(Options)}


def _of_json(key: str, value: Any, kind: type) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        wanted = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise UsageError(f"option {key!r} of draftwood in --additional-config must be {wanted}, not {value!r}")
    return value


log = logging.getLogger("vllm.draftwood")

MOST = 128  # draft tokens that vLLM's sampler takes


@dataclass(frozen=True)
class Configuration:
    """What a worker is to do."""

    longest: int  # most tokens of a draft
    max_length: int  # most tokens of a text
    rows: int  # most requests of a batch
    vocab_size: int
    options: Options
    drafters: tuple[Drafter, ...]  # with the files that they draft from
    tokenizer_name: str  # where vLLM has the model's tokenizer from

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
        if any(file.path is not None for drafter in drafters for file in files_of(drafter)):
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
            longest=self.longest, rows=self.rows, max_length=self.max_length, most_tokens=self.options.texts,
        )  # fmt: skip


def _drafters(options: Options) -> tuple[Drafter, ...]:
    """Return the set, ``ngram`` first; raises `CapabilityError` for other drafters."""
    chosen = load_drafters(options.drafters)
    if options.memory:
        chosen = tuple(drafter for drafter in chosen if not isinstance(drafter, MemoryDrafter))
        chosen += load_drafters(f'memory:file="{options.memory}"')
    for drafter in chosen:
        if not isinstance(drafter, (NgramDrafter, MemoryDrafter)):
            raise CapabilityError(
                f"drafter {drafter.name!r} is not offered inside vLLM: name ngram, memory or ngram+memory"
            )
    return tuple(sorted(chosen, key=lambda drafter: isinstance(drafter, MemoryDrafter)))


def _tokenizer(name: str) -> Any:
    from draftwood.models.load import load_tokenizer

    return load_tokenizer(name, engine="transformers")
