"""Processors of scores that the OpenAI API asks for: penalties, biases, and what tells log-probabilities.

Each object belongs to one text. Rows are NumPy arrays or torch tensors, float32[vocab].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Sampling
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
        values = np.array(list(biases.values()))
        ids = np.array(list(biases), dtype=np.int64)
        self._groups = [(ids[values == value], float(value)) for value in np.unique(values)]

    def __call__(self, _prefix: NDArray[np.int64], row: Any) -> Any:
        for ids, value in self._groups:
            row[ids] += value
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
    start
        Tokens of the prompt.
    """

    def __init__(self, sampling: Sampling, most: int, start: int) -> None:
        self._sampling = Sampling(temperature=1.0) if sampling.greedy else sampling
        self._most, self._start = most, start
        self._rows: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []  # of places whose token is not known
        self._told: list[TokenLogprobs] = []

    def __call__(self, prefix: NDArray[np.int64], row: Any) -> Any:
        self._settle(prefix)
        numbers = row.detach().float().cpu().numpy() if hasattr(row, "detach") else np.asarray(row, np.float32)
        with np.errstate(divide="ignore"):
            logs = np.log(distribution(numbers, self._sampling))
        best = np.argpartition(-logs, min(self._most, len(logs) - 1))[: self._most]
        self._rows.append((logs, best[np.argsort(-logs[best], kind="stable")]))
        return row

    def _settle(self, prefix: NDArray[np.int64]) -> None:
        place = self._start + len(self._told)
        if self._rows and len(prefix) > place:
            ((logs, best),) = self._rows
            self._told.append(_told(logs, best, int(prefix[place])))
        self._rows = []

    def upto(self, ids: NDArray[np.int64]) -> list[TokenLogprobs]:
        """Return what is known of a text int64[length], prompt included, which must be the latest one."""
        self._settle(ids)
        return self._told


def _told(logs: NDArray[np.float64], best: NDArray[np.int64], token: int) -> TokenLogprobs:
    return TokenLogprobs(token, _finite(logs[token]), tuple((int(i), _finite(logs[i])) for i in best))


def _finite(value: Any) -> float:
    return max(_NEVER, float(value))
