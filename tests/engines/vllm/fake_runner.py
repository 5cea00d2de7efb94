"""What vLLM 0.32 does around a proposer, in a page: rows that move, chunks, preemption, greedy verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np


def config(k=8, rows=8, max_length=512, vocab=64, options=None, tokenizer=""):
    return SimpleNamespace(
        additional_config={} if options is None else {"draftwood": options},
        model_config=SimpleNamespace(max_model_len=max_length, tokenizer=tokenizer, get_vocab_size=lambda: vocab),
        speculative_config=SimpleNamespace(num_speculative_tokens=k),
        scheduler_config=SimpleNamespace(max_num_seqs=rows),
    )


@dataclass
class Request:
    name: str
    ids: list  # prompt and what was written
    prompt: int
    most: int
    draft: list = field(default_factory=list)
    read: int = 0  # tokens in the cache

    @property
    def done(self):
        return len(self.ids) - self.prompt >= self.most


class FakeRunner:
    """Rows of ``token_ids_cpu``; finished rows are filled from the end; behind a row's end lie stale drafts."""

    def __init__(self, proposer, model, rows=8, max_length=512, k=8, chunk=16):
        self.proposer, self.model, self.k, self.chunk, self.max_length = proposer, model, k, chunk, max_length
        self.batch: list[Request] = []
        self.waiting: list[Request] = []
        self.rows = rows
        self.ids = np.full((rows, max_length), 63, dtype=np.int32)
        self.lengths = np.zeros(rows, dtype=np.int32)
        self.accepted = self.passes = self.drafted = 0

    def add(self, name, prompt, most):
        request = Request(name, list(prompt), len(prompt), min(most, self.max_length - len(prompt)))
        self.waiting.append(request)
        return request

    def preempt(self, request):
        """Throw a request out; it is read again from the start."""
        self.batch.remove(request)
        request.read, request.draft = 0, []
        self.waiting.append(request)

    def step(self):
        """One pass: each row writes what of its draft the model agrees with, and one token more."""
        self.batch = [request for request in self._condensed() if not request.done]
        while self.waiting and len(self.batch) < self.rows:
            self.batch.append(self.waiting.pop(0))
        sampled = []
        for row, request in enumerate(self.batch):
            assert len(request.draft) <= self.k
            self.ids[row, : len(request.ids)] = request.ids
            stale = self.ids[row, len(request.ids) : len(request.ids) + len(request.draft)]
            stale[:] = request.draft[: len(stale)]
            if request.read < len(request.ids) - 1:  # a prompt, or a preempted text, in chunks
                request.read = min(request.read + self.chunk, len(request.ids) - 1)
                if request.read < len(request.ids) - 1:
                    self.lengths[row] = len(request.ids)
                    sampled.append([])
                    continue
            new = []
            for token in [*request.draft, None]:
                right = self.model(request.ids + new)
                new.append(right)
                if token != right:
                    break
            self.drafted += len(request.draft)
            self.accepted += len(new) - 1
            new = new[: request.most - (len(request.ids) - request.prompt)]
            request.ids += new
            request.read = len(request.ids) - 1
            self.ids[row, : len(request.ids)] = request.ids
            self.lengths[row] = len(request.ids)
            sampled.append(new)
        self.passes += 1
        fits = all(len(request.ids) + self.k <= self.max_length for request in self.batch)
        for request in self.batch:
            request.draft = []
        if not (self.batch and fits):
            return
        before = self.ids.copy()
        drafts = self.proposer.propose(sampled, self.lengths, self.ids, slot_mappings={})
        assert np.array_equal(before, self.ids), "the runner's buffer must not be written to"
        assert len(drafts) == len(self.batch)
        for request, new, draft in zip(self.batch, sampled, drafts, strict=True):
            assert len(draft) <= self.k
            assert all(type(token) is int for token in draft)
            assert len(request.ids) + len(draft) <= self.max_length
            if not new:
                assert not draft, "no draft for a row that is still being read"
            else:
                request.draft = draft

    def _condensed(self):
        """Fill the rows of finished requests from the end, as vLLM does."""
        batch = list(self.batch)
        for row, request in enumerate(batch):
            if request is not None and request.done:
                batch[row] = None
                while batch and batch[-1] is None:
                    batch.pop()
                if row < len(batch):
                    batch[row] = batch.pop()
                    while batch and batch[-1] is None:
                        batch.pop()
        return [request for request in batch if request is not None]

    def run(self, most=10_000):
        while (self.batch or self.waiting) and most:
            self.step()
            most -= 1
            if all(request.done for request in self.batch) and not self.waiting:
                return
        assert most, "it does not end"


def copying_model(seed=0, vocab=60, period=37):
    """A model that writes one long phrase again and again, with a change now and then."""
    phrase = np.random.default_rng(seed).integers(0, vocab, period).tolist()

    def model(ids):
        n = len(ids)
        token = phrase[n % period]
        return (token + 1) % vocab if hash((seed, n // 23)) % 5 == 0 and n % 23 == 7 else token

    return model


def plain(model, prompt, most):
    ids = list(prompt)
    for _ in range(most):
        ids.append(model(ids))
    return ids
