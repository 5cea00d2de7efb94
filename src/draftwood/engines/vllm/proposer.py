"""The class that vLLM makes in each worker and asks for drafts: ``"model": "draftwood.engines.vllm.Proposer"``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.vllm.configuration import Configuration
from draftwood.engines.vllm.drafting import Drafting
from draftwood.engines.vllm.requests import Requests, check_version, installed, mend_sampler, watch_runner

log = logging.getLogger("vllm.draftwood")  # below vLLM's own logger, whose level and handlers it shares

_MOST_ERRORS = 8  # steps in a row that may fail before no drafts are made any more


class Proposer:
    """Drafts for vLLM, by its ``custom_class``.

    vLLM calls `propose` in every step, and checks what it returns with its own sampler. Whatever goes wrong here
    costs drafts, never a text. It is made of vLLM's ``VllmConfig``, and raises `DraftwoodError` with one sentence
    for wrong options and files, and versions of vLLM that were not tried.
    """

    def __init__(self, vllm_config: Any) -> None:
        version = installed()
        check_version(version)
        if mend_sampler():
            log.warning("draftwood has mended vLLM's sampler, which draws noise on CPUs (issue 55005)")
        known = Configuration.of(vllm_config)
        self._longest = known.longest
        self._log_every = known.options.log_every
        self._make = known.drafting
        self._drafting: Drafting = self._make()
        self._clock = _Clock()
        self._errors = 0  # in a row
        self._requests: Requests | None = None
        self._told: tuple[Sequence[str], Sequence[Any]] | None = (
            None  # of the rows, in a step in which it is known
        )
        if known.options.requests:
            watch_runner(version, type(self))
            self._requests = Requests(known.tokenizer_or_none(), known.vocab_size)
        log.info(
            "draftwood drafts at most %d tokens per request and step (%s), in vLLM %s",
            self._longest, known.said, version or "of unknown version",
        )  # fmt: skip

    def load_model(self, target_model: Any) -> None:
        """Load nothing; vLLM calls this on a CPU."""

    def tell(self, names: Sequence[str], arguments: Sequence[Any]) -> None:
        """Take the names and the extra arguments of the rows' requests, before `propose`; see `watch_runner`."""
        self._told = names, arguments

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: NDArray[np.int32],
        token_ids_cpu: NDArray[np.int32],
        *,
        slot_mappings: Any = None,  # noqa: ARG002 - a part of vLLM's call
    ) -> list[list[int]]:
        """Return a draft per row, at most as long as vLLM was told, possibly empty.

        ``sampled_token_ids`` has per row the tokens of this step, none where the prompt is still being read;
        ``num_tokens_no_spec`` int32[..] the length of each text, these tokens included; ``token_ids_cpu``
        int32[.., ..] the texts by row, after whose ends lies what is left of earlier drafts.
        """
        nothing: list[list[int]] = [[] for _ in sampled_token_ids]
        told, self._told = self._told, None
        if self._errors >= _MOST_ERRORS or not nothing:
            return nothing
        started = perf_counter()
        try:
            drafts = self._proposed(sampled_token_ids, num_tokens_no_spec, token_ids_cpu, told, started)
        except Exception as error:
            self._failed(error)
            return nothing
        self._errors = 0
        if self._drafting.counts.due(self._log_every):
            log.info("draftwood: %s; %s", self._drafting.counts.line(), self._drafting.planner.why())
        return nothing if drafts is None else drafts

    def _proposed(
        self, sampled: Sequence[Sequence[int]], lengths: NDArray[np.int32], ids: NDArray[np.int32],
        told: tuple[Sequence[str], Sequence[Any]] | None, started: float,
    ) -> list[list[int]] | None:  # fmt: skip
        """Return the drafts; None where no drafter is asked for any."""
        rows = len(sampled)
        new = np.array([len(some) for some in sampled], dtype=np.int64)
        ends = np.array(lengths[:rows], dtype=np.int64)
        drafting, clock = self._drafting, self._clock
        passed = clock.passed(ends, new, started)
        if passed is not None:
            drafting.planner.learn(rows, clock.drafted, int(new.sum()), int(ends.max()), passed)
        asked = drafting.planner.wants_drafts(clock.own_s, asked=clock.asked)
        drafts, count = None, 0
        if asked and new.any():
            known = self._requests
            requests = known.of(*told) if known is not None and told is not None else None
            texts = np.ascontiguousarray(ids, dtype=np.int32)  # vLLM's own buffer stays as it is
            drafts, count = drafting.step(texts, ends, new, requests)
        drafting.counts.steps += 1
        drafting.counts.drafting += count > 0
        clock.wait(ends, count, asked=asked, started=started)
        drafting.counts.own_s += clock.own_s
        return drafts

    def _failed(self, error: Exception) -> None:
        """Count an error, and begin anew: what was kept may be half changed."""
        self._errors += 1
        counts = self._drafting.counts
        counts.errors += 1
        log.warning(
            "draftwood made no drafts in this step: %s: %s", type(error).__name__, error,
            exc_info=log.isEnabledFor(logging.DEBUG) or counts.errors == 1,
        )  # fmt: skip
        if self._errors >= _MOST_ERRORS:
            log.warning("draftwood has failed in %d steps in a row and drafts no more", self._errors)
        self._drafting = self._make()
        self._drafting.counts = counts
        self._clock = _Clock()


class _Clock:
    """The time between two calls, which is that of one pass where the same rows have gone on. The last call has
    taken ``own_s`` seconds and returned ``drafted`` tokens; ``asked``: drafters were asked in it."""

    def __init__(self) -> None:
        self.drafted, self.asked, self.own_s = 0, False, 0.0
        self._ends: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._left = 0.0

    def passed(self, ends: NDArray[np.int64], new: NDArray[np.int64], now: float) -> float | None:
        """Return the seconds since the last call; None if more or something else was done than one pass."""
        if len(ends) != len(self._ends) or not new.all() or (ends - new != self._ends).any():
            return None
        return now - self._left

    def wait(self, ends: NDArray[np.int64], drafted: int, *, asked: bool, started: float) -> None:
        """Record that a call ends."""
        self._ends, self.drafted, self.asked = ends, drafted, asked
        self._left = perf_counter()
        self.own_s = self._left - started
