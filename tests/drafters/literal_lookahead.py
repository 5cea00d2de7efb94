"""Lookahead decoding word by word after source document 4 (sections 3.2 to 3.7): greedy, slow, a loop of its own.

Every token is scored by reading its whole prefix. Names are those of the document's code. Where it says nothing:
draws come from ``random.Random(seed)``, level by level; a step of the warm-up that emits several tokens drops and
draws as many columns more; n-grams of what was emitted enter the pool after those of the window.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from draftwood.testing import ToyTarget


class LiteralLookahead:
    """One text; `step` is one decoding step.

    ``past_tokens`` has LEVEL - 1 levels, None until they are filled; ``token_map`` has at most GUESS_SET_SIZE
    n-grams per first token, the least recently used first.
    """

    def __init__(
        self, target: ToyTarget, prompt: Sequence[int], first_token: int, window: int, ngram: int, guesses: int, *,
        prompt_pool: bool, forward_one: bool, variant: str, vocabulary: int = 0, seed: int = 0,
    ) -> None:  # fmt: skip
        self.target, self.seen = target, {}
        self.WINDOW, self.LEVEL, self.GUESS_SET_SIZE = window, ngram, guesses
        self.POOL_FROM_PROMPT, self.ALWAYS_FWD_ONE = prompt_pool, forward_one
        self.variant, self.vocabulary, self.random = variant, vocabulary, random.Random(seed)
        self.all_old_tokens = list(prompt)
        self.past_tokens: list[list[int] | None] = [None] * (ngram - 1)
        self.past_tokens[0] = [self.set_token() for _ in range(window + ngram - 3)]
        self.fill_level = 0
        self.token_map: dict[int, list[tuple[int, ...]]] = {}
        self.all_old_tokens = []
        for token in [*prompt, first_token]:
            self.append(token)

    def set_token(self) -> int:
        if self.vocabulary:
            return self.random.randrange(self.vocabulary)
        return self.all_old_tokens[self.random.randrange(len(self.all_old_tokens))]

    def append(self, token: int) -> None:
        self.all_old_tokens.append(token)
        last = self.all_old_tokens[-self.LEVEL :]
        if self.POOL_FROM_PROMPT and len(last) == self.LEVEL:
            self.update(last[0], tuple(last[1:]))

    def update(self, key: int, tup: tuple[int, ...]) -> None:
        known = self.token_map.setdefault(key, [])
        if tup in known:
            known.remove(tup)
        elif len(known) == self.GUESS_SET_SIZE:
            del known[0]
        known.append(tup)

    def argmax(self, drafted: Sequence[int]) -> int:
        """The model's token behind the text and ``drafted``."""
        prefix = (*self.all_old_tokens, *drafted)
        if prefix not in self.seen:
            self.seen[prefix] = int(self.target.scores_after(prefix).argmax())
        return self.seen[prefix]

    # --- one step ----------------------------------------------------------------------------------------------

    def step(self) -> list[int]:
        """Verify, collect, move; returns the tokens that the step emits."""
        lst_token = self.all_old_tokens[-1]
        new_results = self.lookahead_branch()
        hits = self.verification_branch(self.token_map.get(lst_token, []))
        full = self.fill_level == self.LEVEL - 2
        if full:
            self.collect(lst_token, new_results)
        max_hit = len(hits) - 1
        text = list(self.all_old_tokens)
        self.all_old_tokens += hits  # draws see them
        if not full:
            self.fill(new_results, max_hit)
        elif self.variant == "authors":
            self.move_authors(new_results, max_hit)
        else:
            self.move_llama_cpp(new_results, max_hit)
        self.all_old_tokens = text
        for token in hits:
            self.append(token)
        return hits

    def lookahead_branch(self) -> list[int]:
        """The model's tokens behind the last level: one sees the first level up to its column, and its column."""
        past, results = self.past_tokens, []
        if self.fill_level == 0:
            if self.LEVEL == 2:  # the input token is column 0 of the only level
                results.append(self.argmax([]))
            return results + [self.argmax(past[0][: i + 1]) for i in range(len(past[0]))]
        for column in range(len(past[self.fill_level])):
            below = [past[level][column] for level in range(1, self.fill_level + 1)]
            results.append(self.argmax([*past[0][:column], *below]))
        return results

    def verification_branch(self, guess_tokens: list[tuple[int, ...]]) -> list[int]:
        """The longest match of all candidates, and the model's own token behind it."""
        longest: list[int] = []
        for guess in guess_tokens:
            correct = 0
            while correct < len(guess) and guess[correct] == self.argmax(guess[:correct]):
                correct += 1
            if correct > len(longest):
                longest = list(guess[:correct])
        return [*longest, self.argmax(longest)]

    def collect(self, lst_token: int, new_results: list[int]) -> None:
        for i in range(self.WINDOW):
            key = lst_token if i == 0 else self.past_tokens[0][i - 1]
            below = tuple(self.past_tokens[level][i] for level in range(1, self.LEVEL - 1))
            self.update(key, (*below, new_results[i]))

    # --- three ways of moving the window -----------------------------------------------------------------------

    def fill(self, new_results: list[int], max_hit: int) -> None:
        past = self.past_tokens
        if past[1] is None:  # filling multi-level window, the very first step is different
            past[0] = past[0][1:]
            past[1] = new_results
        else:
            for level in range(self.fill_level + 1):
                past[level] = past[level][1:]
            past[self.fill_level + 1] = new_results[1:]
        self.fill_level += 1
        if not self.ALWAYS_FWD_ONE:
            for level in range(self.fill_level + 1):
                length = len(past[level])
                past[level] = past[level][max_hit:]
                self.refill(level, length)

    def move_authors(self, new_results: list[int], max_hit: int) -> None:
        past, level_count = self.past_tokens, self.LEVEL
        max_hit = 0 if self.ALWAYS_FWD_ONE else max_hit
        if level_count == 2:
            past[0] = new_results[1 + max_hit :]
        else:
            past[0] = past[1][1 + max_hit :]
            for level in range(1, level_count - 2):
                past[level] = past[level + 1][max_hit:]
            past[level_count - 2] = new_results[max_hit:]
        for level in range(level_count - 1):
            self.refill(level, self.WINDOW - (level == 0))

    def move_llama_cpp(self, new_results: list[int], max_hit: int) -> None:
        columns, last = self.WINDOW, self.LEVEL - 2
        tokens_j = [[-1, *self.past_tokens[0]], *(list(level) for level in self.past_tokens[1:])]
        for v in range(1 if self.ALWAYS_FWD_ONE else 1 + max_hit):
            for j in range(last):
                tokens_j[j] = list(tokens_j[j + 1])
            for i in range(columns):
                tokens_j[last][i] = new_results[i] if v == 0 else tokens_j[0][i]
        self.past_tokens = [tokens_j[0][1:], *tokens_j[1:]]

    def refill(self, level: int, length: int) -> None:
        while len(self.past_tokens[level]) < length:
            self.past_tokens[level] = [*self.past_tokens[level], self.set_token()]
