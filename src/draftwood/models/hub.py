"""The hub of models: whether it can be reached, its GGUF files, and what our own engine reads of others."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from draftwood.errors import ModelNotFoundError
from draftwood.models.find import hub_file

_SECONDS = 10
_READ = ("*.safetensors", "*.json", "*.jinja")
"""What our own engine reads of a folder."""


def hub_answers(name: str) -> bool:
    """Return whether the hub can be reached, asked once: its own library would retry for most of a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(name, timeout=_SECONDS)
    except HfHubHTTPError:  # an answer; the error of the library that loads the model will say more
        return True
    except Exception:  # whatever the network library raises; a model in the local cache can still be loaded
        return False
    return True


def first_line(error: Exception) -> str:
    """Return how an error begins, to be put into a sentence."""
    return str(error).strip().partition("\n")[0].rstrip(".: ") or type(error).__name__


def downloaded(name: str) -> Path:
    """Return the local copy of what is named as ``owner/name/file.gguf``, or of the folder ``owner/name``.

    It is downloaded if it is not there; of a folder what our own engine reads. Raises `ModelNotFoundError` where
    huggingface_hub is missing, or the hub does not have or give it.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ModelNotFoundError(
            f"there is no {name} here, and getting it from the hub needs huggingface_hub: name what "
            "is here, or run pip install huggingface_hub"
        )
    import huggingface_hub

    owner, file = hub_file(name) or (name, "")
    local = not hub_answers(owner)
    try:
        if file:
            return Path(huggingface_hub.hf_hub_download(owner, file, local_files_only=local))
        return Path(huggingface_hub.snapshot_download(owner, allow_patterns=list(_READ), local_files_only=local))
    except Exception as error:  # whatever the network library raises
        raise ModelNotFoundError(
            f"there is no {name} here, and the hub gave none ({first_line(error)}): check name and network"
        ) from error
