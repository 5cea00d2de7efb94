"""Processors of scores that the OpenAI API asks for: penalties, biases, and what tells log-probabilities.

Each object belongs to one text. Rows are NumPy arrays or torch tensors, float32[vocab].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Sampling, Scores
from draftwood.verify.sampling import distribution

_NEVER = -9999.0  # the API's log-probability of what cannot come


class Penalties:
    """Lowers the scores of tokens that the answer holds already.

    Parameters
    ----------
    presence
        Subtracted once.
    frequency
        Subtracted for each time that the token came.
    start
        Tokens of the prompt, which do not count.
    """

    def __init__(self, presence: float, frequency: float, start: int) -> None:
        self._presence, self._frequency, self._start = presence, frequency, start

    def __call__(self, prefix: NDArray[np.int64], row: Any) -> Any:
        ids, counts = np.unique(prefix[self._start :], return_counts=True)
        for count in np.unique(counts).tolist():
            row[ids[counts == count]] -= self._presence + self._frequency * count
        return row


class Biases:
    """Adds to the scores of some tokens."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._ids, self._values = np.array(list(biases), np.int64), np.array(list(biases.values()), np.float32)

    def __call__(self, _prefix: NDArray[np.int64], row: Any) -> Any:
        row[self._ids] += row.new_tensor(self._values) if hasattr(row, "new_tensor") else self._values
        return row


class TokenLogprobs(NamedTuple):
    """Log-probabilities at one place of a text: the token that came, and the best ones, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class LogprobRecorder:
    """Keeps the log-probabilities of what comes; the last of a text's processors, so that it sees what they leave.

    They are those of the distribution that tokens are drawn from; of a greedy text, those at temperature 1.

    Parameters
    ----------
    sampling
        The request's.
    most
        Best tokens that are kept at each place.
    """

    def __init__(self, sampling: Sampling, most: int) -> None:
        self._sampling = Sampling(temperature=1.0) if sampling.greedy else sampling
        self._most = most
        self._next: _Row | None = None  # of the place whose token is not known yet
        self._told: list[TokenLogprobs] = []
        self._lock = Lock()  # one thread writes the text, another one tells the client

    def __call__(self, prefix: NDArray[np.int64], row: Any) -> Any:
        numbers = row.detach().float().cpu().numpy() if hasattr(row, "detach") else np.asarray(row, np.float32)
        with np.errstate(divide="ignore"):
            logs = np.log(distribution(numbers, self._sampling))
        with self._lock:
            if self._next is not None:
                self._told.append(_told(self._next, int(prefix[-1])))
            self._next = _Row(logs, _best(logs, self._most))
        return row

    def between(self, answer: Sequence[int], first: int, end: int) -> list[TokenLogprobs]:
        """Return the log-probabilities of the tokens from ``first`` to before ``end`` of an answer."""
        with self._lock:
            found = self._told[first:end]
            if first + len(found) < end and self._next is not None:  # the last token, behind which nothing came
                found.append(_told(self._next, answer[first + len(found)]))
        return found


class _Row(NamedTuple):
    """Log-probabilities of all tokens at one place, float64[vocab], and the best ones' ids, best first."""

    logs: NDArray[np.float64]
    best: NDArray[np.int64]


class PromptLogprobs:
    """Keeps the log-probabilities of a prompt's tokens: the model's own, at temperature 1 and without cuts.

    Parameters
    ----------
    prompt
        Its ids.
    most
        As in `LogprobRecorder`.

    Attributes
    ----------
    told
        Those of each token but the first, of which the model says nothing; complete once the prompt is read.
    """

    def __init__(self, prompt: Sequence[int], most: int) -> None:
        self._prompt, self._most = prompt, most
        self.told: list[TokenLogprobs] = []

    def show(self, positions: NDArray[np.intp], scores: Scores) -> None:
        """Take in the scores of some rows, as `Watch.show`."""
        for row, place in enumerate(positions.tolist()):
            if place + 1 < len(self._prompt):
                with np.errstate(divide="ignore"):
                    logs = np.log(distribution(scores.numpy(scores.raw(row)), Sampling(temperature=1.0)))
                self.told.append(_told(_Row(logs, _best(logs, self._most)), self._prompt[place + 1]))


def _best(logs: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Return the best tokens, best first."""
    best = np.argpartition(-logs, min(most, len(logs) - 1))[:most]
    return best[np.argsort(-logs[best], kind="stable")]


def _told(row: _Row, token: int) -> TokenLogprobs:
    top = tuple((int(i), _finite(row.logs[i])) for i in row.best)
    return TokenLogprobs(token, _finite(row.logs[token]), top)


def _finite(value: Any) -> float:
    return max(_NEVER, float(value))
