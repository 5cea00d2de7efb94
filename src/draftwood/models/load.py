"""Load a model and its tokenizer through transformers."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from draftwood.errors import (
    ModelError,
    ModelNotFoundError,
    UnknownNameError,
    UnsupportedModelError,
    UsageError,
    VocabularyError,
)
from draftwood.models.busy import importing_torch
from draftwood.models.catalogue import DEFAULT_MODEL
from draftwood.models.find import find
from draftwood.models.quiet import quiet_transformers

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_LOG = logging.getLogger("draftwood")
_HUB_SECONDS = 10
_REFUSED = re.compile(
    "Unrecognized (?:configuration class|model in)|does not recognize this architecture|trust_remote_code"
)

MOST_THREADS = 8  # most threads per core; 64 in all are always allowed. Torch crashes with some hundred thousand

DTYPES = ("auto", "bfloat16", "float16", "float32")
"""The number formats that :func:`load` takes; ``auto`` is the one the weights were saved in."""


def load(
    name: str | os.PathLike[str] = DEFAULT_MODEL,
    *,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    threads: int | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model ready for generation, and its tokenizer.

    Parameters
    ----------
    name
        A catalogue name, a local folder or a hub name, as `find` takes it. Only a hub name may touch the network.
    dtype
        ``"float32"``, ``"bfloat16"``, ``"float16"`` or ``"auto"``; or torch's own.
    device
        For example ``"cpu"`` or ``"cuda:1"``; by default the first of cuda, mps and cpu that is here.
    threads
        Sets torch's CPU threads for the whole process. More than cores are slower (the log warns), and more than
        `MOST_THREADS` per core are refused.

    Returns
    -------
    (model, tokenizer)
        A causal language model of transformers in eval mode, and its tokenizer.

    Raises
    ------
    UsageError
        An unknown dtype or device, or a thread count out of its bounds.
    ModelNotFoundError, ModelError, UnknownNameError
        As `find`; or the files cannot be read. `UnsupportedModelError` for anything but a causal language model.
    VocabularyError
        The tokenizer knows more tokens than the model.
    """
    dtype = str(dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, DTYPES)
    _check_threads(threads)
    place = find(name)
    _require_packages()
    with importing_torch(threads):
        import torch
    if threads is not None:
        torch.set_num_threads(threads)
    target = _device(None if device is None else str(device))
    with quiet_transformers():
        model, tokenizer = _read(place, dtype)
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise VocabularyError(
            f"the tokenizer of {place} knows {len(tokenizer)} tokens and the model {rows}: "
            "they do not belong together; take both from one place"
        )
    try:
        model.to(target)
    except RuntimeError as error:  # out of memory, or no device of that number
        raise ModelError(
            f"the model cannot be put on {target} ({_first_line(error)}): choose another device or dtype"
        ) from error
    return model.eval(), tokenizer


def load_tokenizer(name: str | os.PathLike[str] = DEFAULT_MODEL) -> PreTrainedTokenizerBase:
    """Load a model's tokenizer alone, from a folder without weights too; raises what `load` raises."""
    place = find(name)
    _require_packages()
    from transformers import AutoTokenizer

    with quiet_transformers():
        try:
            return AutoTokenizer.from_pretrained(place, **_settings(place))
        except Exception as error:
            raise _explain(error, place, "tokenizer") from error


def _settings(place: Path | str) -> dict[str, bool]:
    # Without the second setting transformers asks on the terminal whether to run a model's own code.
    local = isinstance(place, Path) or not _hub_answers(place)
    return {"local_files_only": local, "trust_remote_code": False}


def _require_packages() -> None:
    missing = [package for package in ("torch", "transformers") if importlib.util.find_spec(package) is None]
    if missing:
        wanted = " and ".join(missing)
        raise ModelError(f'loading a model needs {wanted}: run pip install "draftwood[transformers]"')


def _device(name: str | None) -> torch.device:
    import torch

    here = ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available() + ["cpu"]
    if name is None:
        return torch.device(here[0])
    if name.partition(":")[0] not in here:
        raise UsageError(f"device {name!r} is not available here: choose one of {', '.join(here)}")
    try:
        found = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device {name!r} cannot be read: write it like cpu or cuda:0") from error
    count = torch.cuda.device_count() if found.type == "cuda" else 1
    if found.index is not None and found.index >= count:
        raise UsageError(
            f"device {name!r} is not available here: there are {count} of this kind, from {found.type}:0"
        )
    return found


def _read(place: Path | str, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    number_format = "auto" if dtype == "auto" else getattr(torch, dtype)
    settings, what = _settings(place), "configuration"
    try:
        config = AutoConfig.from_pretrained(place, **settings)
        what = "tokenizer"
        tokenizer = AutoTokenizer.from_pretrained(place, config=config, **settings)
        what = "weights"
        model, report = AutoModelForCausalLM.from_pretrained(
            place, config=config, dtype=number_format, output_loading_info=True, **settings
        )
    except Exception as error:
        raise _explain(error, place, what) from error
    if missing := sorted(report["missing_keys"]):  # transformers would go on with random numbers
        raise ModelError(
            f"the weights in {place} are incomplete (missing: {len(missing)}, the first is {missing[0]}): "
            "fetch or save the model again"
        )
    return model, tokenizer


def _hub_answers(name: str) -> bool:
    """Return whether the hub can be reached, asked once: transformers would retry for most of a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(name, timeout=_HUB_SECONDS)
    except HfHubHTTPError:  # an answer; transformers' error will say more
        return True
    except Exception:  # whatever the network library raises; a model in the local cache can still be loaded
        return False
    return True


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".: ") or type(error).__name__


def _explain(error: Exception, place: Path | str, what: str) -> ModelError:
    """Turn what transformers raised into one sentence."""
    said = _first_line(error)
    if isinstance(error, ValueError) and _REFUSED.search(str(error)):
        return UnsupportedModelError(
            f"{place} is no causal language model that transformers itself knows ({said}): name another"
        )
    if isinstance(place, Path):
        return ModelError(f"the {what} in {place} cannot be read ({said}): fetch or save the model again")
    if isinstance(error, OSError):
        return ModelNotFoundError(
            f"the hub gave no model {place!r} ({said}): check name and network, or name a local folder"
        )
    return ModelError(f"the {what} of {place!r} cannot be read ({said}): name another model")


def _check_threads(threads: int | None) -> None:
    if threads is None:
        return
    if not isinstance(threads, Integral):
        raise UsageError(f"threads is {threads!r:.80}: give a whole number")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = max(64, MOST_THREADS * cores)
    if not 1 <= threads <= most:
        raise UsageError(f"threads is {threads}: give 1 to {most} (there are {cores} cores for this process)")
    if threads > cores:
        _LOG.warning(
            "threads is %d and there are %d cores for this process: passes will be slower", threads, cores
        )
