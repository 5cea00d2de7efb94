"""A call of ``model.generate`` that came to our callable: read, checked, turned into requests, and answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.generation.utils import GenerateDecoderOnlyOutput

from draftwood.contracts import Processor, Sampling, Target
from draftwood.decoding.request import Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.engines.transformers.families import CACHES, cache_name
from draftwood.engines.transformers.plugin import cache as caches
from draftwood.engines.transformers.plugin.refusals import KeptBack, refuse_positions, refuse_settings
from draftwood.engines.transformers.plugin.text import Ends, left_padding, stop_strings
from draftwood.engines.transformers.processors import adapt, for_row
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import PromptError, UsageError


class Recorder:
    """Keeps what each token of one text was chosen from, as the first and the last of its processors: a float32[1,
    vocab] per token in ``logits`` (before) and ``scores`` (after them); None where not asked for."""

    def __init__(self, device: torch.device, *, logits: bool, scores: bool) -> None:
        self._device = device
        self.logits: list[Tensor] | None = [] if logits else None
        self.scores: list[Tensor] | None = [] if scores else None

    def around(self, processors: Sequence[Processor]) -> list[Processor]:
        """Return the processors between those that record."""
        before = [] if self.logits is None else [self._into(self.logits)]
        behind = [] if self.scores is None else [self._into(self.scores)]
        return [*before, *processors, *behind]

    def so_far(self) -> tuple[Tensor, ...] | None:
        """Return the scores of the tokens so far, as stopping criteria get them."""
        return None if self.scores is None else tuple(self.scores)

    def _into(self, kept: list[Tensor]) -> Processor:
        def record(_: NDArray[np.int64], row: Any) -> Any:
            kept.append(row.detach().to(self._device, torch.float32, copy=True)[None])
            return row

        return record


def batched(rows: Sequence[Sequence[Tensor] | None], pad: int) -> tuple[Tensor, ...] | None:
    """Put the rows of a batch together: per token one [rows, vocab]. A row that has ended is certain of its
    padding: 0 at the token ``pad``, minus infinity elsewhere."""
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    longest = max(known, key=len)
    ended = torch.full_like(longest[0], -torch.inf)
    ended[:, pad] = 0
    return tuple(
        torch.cat([row[index] if index < len(row) else ended for row in known]) for index in range(len(longest))
    )


class GenerateCall:
    """What ``model.generate`` handed to a callable: prompts int64 or int32[rows, length], padded on the left, rows
    of one prompt in a row; processors and criteria; the merged generation config; the model's own arguments; and
    ``kept``, what generate does not hand on. A sampled text without a seed gets one from torch's generator. Raises
    `UsageError`, `PromptError` or `UnsupportedModelError` for what cannot be honoured, by name."""

    def __init__(
        self, model: Any, input_ids: Tensor, processors: Sequence[Any], criteria: Sequence[Any], config: Any,
        arguments: dict[str, Any], kept: KeptBack,
    ) -> None:  # fmt: skip
        refuse_settings(model, config, kept, arguments)
        if input_ids.dtype not in (torch.int64, torch.int32):
            raise PromptError(f"input_ids are {input_ids.dtype}: give token ids in torch.int64")
        self._ids, self._config = input_ids.long(), config  # text in int32 goes on in int64, in transformers too
        self._length = input_ids.shape[1]
        self._padding = left_padding(input_ids, arguments.get("attention_mask"))
        limit = getattr(config, "max_length", None)
        if limit is not None and limit <= self._length:
            raise UsageError(f"max_length={limit} leaves no room behind the prompt: set max_new_tokens")
        covered = getattr(config, "_mask_length", None)
        if covered is not None and covered != self._length:
            raise UsageError(
                f"attention_mask covers {covered} tokens, input_ids {self._length}: give the whole text"
            )
        refuse_positions(arguments.get("position_ids"), self._padding, self._length)
        given = [arguments[name] for name in CACHES if arguments.get(name) is not None]
        self._cache = given[0] if given else None
        self._own_cache = bool(getattr(self._cache, "_is_user_defined", False))
        self._held = caches.held(self._cache, self._length) if self._own_cache else 0
        self._processors = list(processors or ())
        criteria = [*(criteria or ()), *stop_strings(kept.stop_strings, kept.tokenizer)]
        most = int(limit or getattr(model.config, "max_position_embeddings", None) or 0) - self._length
        self._ends = Ends.of(criteria, self._length, max(1, most))  # our cache makes room for as many at once
        padded = any(hasattr(criterion, "eos_token_id") for criterion in criteria)  # as transformers tests it
        if len(input_ids) > 1 and self._ends.others and not padded:  # transformers writes on till all have ended
            raise UsageError("criteria for a batch need an end token, or one prompt at a time: set eos_token_id")
        told = bool(config.return_dict_in_generate)
        logits, scores = told and bool(config.output_logits), told and bool(config.output_scores)
        self._recorders = [Recorder(input_ids.device, logits=logits, scores=scores) for _ in self._padding]
        sampled = bool(getattr(config, "do_sample", False))
        seed = int(torch.randint(2**62, (1,), device="cpu")) if sampled and kept.seed is None else kept.seed
        self.sequences = max(1, int(getattr(config, "num_return_sequences", None) or 1))
        self._sampling = Sampling(temperature=float(sampled), seed=seed or 0)
        self.requests = [self._request(row) for row in range(len(input_ids))]

    def _request(self, row: int) -> Request:
        padding, recorder, several = self._padding[row], self._recorders[row], len(self._ids) > 1
        pad = self._ids[row, :padding]

        def padded(prefix: NDArray[np.int64]) -> Tensor:
            return torch.cat((pad, torch.from_numpy(prefix).to(pad)))[None]

        # The only row calls the caller's own objects, as generate does.
        own = [for_row(p, row, len(self._ids)) if several else p for p in self._processors]
        prompts = [ids[self._padding[i] :].tolist() for i, ids in enumerate(self._ids[: row + 1])]
        prompt = prompts.pop()
        return Request(
            prompt,
            self._ends.limit,
            self._sampling,
            recorder.around(adapt(own, self._ids.device, ids=padded, copied=False)),
            sequence=prompts.count(prompt),  # a prompt that comes again is sampled again
            end_ids=self._ends.end_ids,
            criteria=self._ends.criteria(self._ids[row], recorder.so_far, copied=several),
        )

    def target(self, target: Target) -> Target:
        """Return the target to open the requests on; where a cache was given, one that takes over its rows."""
        if not self._own_cache:
            return target
        if not isinstance(target, TransformersTarget):
            raise UsageError("this model runs on its own cache: give none")
        if not self._held:
            return target
        return caches.ContinuedTarget(target, self._cache, self._padding)

    def hand_back(self, target: Target, rows: Sequence[ActiveSequence]) -> None:
        """Write the rows of all tokens but the last into the cache that the caller gave or asked for."""
        wanted = self._own_cache or bool(self._config.return_dict_in_generate)
        if wanted and isinstance(target, TransformersTarget) and caches.is_exchangeable(self._cache):
            caches.export(target, [row.session for row in rows], self._padding, self._cache)
        else:
            self._cache = None

    def answer(self, written: Sequence[Sequence[int]]) -> Any:
        """Return what generate returns for these new tokens: ids, or the dictionary that was asked for."""
        known = [getattr(self._config, name, None) for name in ("_pad_token_tensor", "pad_token_id")]
        pad = next((int(pad) for pad in known if pad is not None), 0)
        new = self._ids.new_full((len(written), max(map(len, written))), pad)
        for row, ids in enumerate(written):
            new[row, : len(ids)] = torch.tensor(ids, device=new.device)
        sequences = torch.cat([self._ids, new], dim=1)
        if not self._config.return_dict_in_generate:
            return sequences
        return GenerateDecoderOnlyOutput(
            sequences=sequences,
            scores=batched([r.scores for r in self._recorders], pad),
            logits=batched([r.logits for r in self._recorders], pad),
            **{cache_name(()): self._cache},
        )
