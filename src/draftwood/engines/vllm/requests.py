"""What may be known of a request besides its tokens: vLLM does not tell it, option ``requests`` looks for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from draftwood.api.user_texts import read_prediction
from draftwood.engines.vllm import runner_0_32
from draftwood.errors import CapabilityError, DraftwoodError

log = logging.getLogger("vllm.draftwood")

PREDICTION, NAMESPACE = "draftwood_prediction", "draftwood_namespace"
"""Names of the extra arguments (``vllm_xargs``) that a client may send."""

_RUNNERS = (runner_0_32,)


class Request(NamedTuple):
    """One request.

    Attributes
    ----------
    name
        vLLM's id of it; empty: not known.
    namespace
        Whose memory it reads and writes.
    prediction
        Token ids of texts that are expected.
    """

    name: str = ""
    namespace: str = ""
    prediction: tuple[tuple[int, ...], ...] = ()


def watch_runner(version: str, kind: type) -> None:
    """Ask the runner of this version; raises `CapabilityError` for a version whose runner is not known."""
    for runner in _RUNNERS:
        if version == runner.VERSION or version.startswith(runner.VERSION + "."):
            try:
                runner.watch(kind)
            except (AttributeError, KeyError) as error:
                raise CapabilityError(
                    f"this vLLM has no such runner ({error}): leave option 'requests' out"
                ) from error
            return
    known = " and ".join(runner.VERSION for runner in _RUNNERS)
    raise CapabilityError(
        f"option 'requests' looks into vLLM {known}, and this is {version or 'unknown'}: leave it out, and "
        "requests are told apart by their tokens"
    )


class Requests:
    """The requests of a batch, each read once. Without a tokenizer, predictions are token ids."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._known: dict[str, Request] = {}

    def of(self, names: Sequence[str], arguments: Sequence[Any]) -> list[Request]:
        """Return the request of each row; those that are not among the rows are forgotten."""
        known, self._known = self._known, {}
        for name, given in zip(names, arguments, strict=True):
            self._known[name] = known.get(name) or self._read(name, given)
        return [self._known[name] for name in names]

    def _read(self, name: str, given: Any) -> Request:
        if not isinstance(given, Mapping):
            return Request(name)
        namespace, prediction = given.get(NAMESPACE, ""), given.get(PREDICTION)
        found: tuple[tuple[int, ...], ...] = ()
        if prediction:
            try:
                found = read_prediction(prediction, self._tokenizer, self._vocab_size)
            except DraftwoodError as error:
                log.warning("the prediction of request %s is left out: %s", name, error)
        return Request(name, str(namespace), found)
