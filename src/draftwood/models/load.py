"""Load a model and its tokenizer: through transformers, by our own engine or by llama.cpp."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from draftwood.engines.transformers.quiet import quiet_transformers
from draftwood.errors import (
    ModelError,
    UnknownNameError,
    UnsupportedModelError,
    UsageError,
    number,
)  # fmt: skip
from draftwood.local.catalogue import DEFAULT_MODEL
from draftwood.local.machine import cores, free_memory, processor_limit
from draftwood.models.engine import (
    CPU,
    FASTEST,
    PACKAGES,
    TRANSFORMERS,
    choose,
    first_line,
    implied_engine,
    is_installed,
    missing,
    say_chosen,
)
from draftwood.models.here import folder as folder_of
from draftwood.models.here import here
from draftwood.models.importing import importing_torch, uncollected
from draftwood.models.load_gguf import check_vocabulary, load_gguf, load_gguf_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_LOG = logging.getLogger("draftwood")
_REFUSED = re.compile(
    "Unrecognized (?:configuration class|model in)|does not recognize this architecture|trust_remote_code"
)

MOST_THREADS = 8  # most threads per core; 64 in all are always allowed. Torch crashes with some hundred thousand

DTYPES = ("auto", "bfloat16", "float16", "float32")
"""The number formats that :func:`load` takes; ``auto`` is the one the weights were saved in."""

WEIGHTS = ("int4", "int8")
"""What ``weights`` may be."""

_DEFAULT_DTYPE = "float32"
_LOCAL: Mapping[str, bool] = MappingProxyType({"local_files_only": True, "trust_remote_code": False})
# Without the second, transformers asks on the terminal whether to run a model's own code.


def load(
    name: str | os.PathLike[str] = DEFAULT_MODEL, *, engine: str | None = None,
    dtype: str | torch.dtype = _DEFAULT_DTYPE, device: str | torch.device | None = None,
    threads: int | None = None, gpu_layers: int = -1, exact: bool | None = None,
    report: Callable[[int, int], None] | None = None, weights: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Load a model ready for generation, and its tokenizer.

    Parameters
    ----------
    name
        A catalogue name, a folder, a GGUF file, a model that Ollama keeps here (``"ollama:qwen3:4b"``), or a hub
        name: ``"owner/name"``, ``"owner/name:Q4_K_M"``, ``"owner/name/file.gguf"``. Of several GGUF files the best
        that fits into memory is taken. What is here, LM Studio's files too, is taken as it is; only a hub name may
        touch the network.
    engine
        ``"cpu"`` (our own, for GGUF files and folders of safetensors), ``"llama.cpp"`` (GGUF files) or
        ``"transformers"`` (folders). None: our own for GGUF files, for models of the catalogue and with
        ``weights``, llama.cpp for GGUF files that our own does not run; transformers, where it is installed, for
        other folders, and wherever ``dtype`` or ``device`` ask for it. ``"fastest"``: as None, but our own engine
        also for folders and hub names whose model it knows, where there is no graphics card.
    dtype
        One of `DTYPES`, or torch's own. A GGUF file has its own. On our own engine ``"bfloat16"`` and
        ``"float16"`` round a folder's weights, the others leave them as stored.
    device
        For example ``"cpu"`` or ``"cuda:1"``; by default the first of cuda, mps and cpu that is here. llama.cpp
        goes by ``gpu_layers``; it takes ``"cpu"`` for no layers.
    threads
        CPU threads, at most `MOST_THREADS` per core; torch's are set for the whole process.
    gpu_layers
        Of a GGUF model, how many layers a graphics card computes; -1: as many as fit.
    exact
        Of a GGUF model, whether its passes are computed so that drafts change no bit of the text (see
        docs/exactness.md). False: as llama.cpp does. None: True where the weights allow it.
    report
        Called by our own engine while it loads, with the bytes of weights that are ready and those of all.
    weights
        ``"int4"`` or ``"int8"``: our own engine quantises the matrices of floats when it loads them. **That is
        another model**, with other texts: faster, smaller, and a little worse. None: the weights as they are.

    Returns
    -------
    (model, tokenizer)
        A causal language model of transformers in eval mode, or a `Target`; and its tokenizer.

    Raises
    ------
    UsageError
        A setting that is unknown, out of its bounds, or does not fit model or engine.
    ModelNotFoundError, ModelError, UnknownNameError
        As `find`; or the files cannot be read. `UnsupportedModelError` for anything but a causal language model.
    VocabularyError
        The tokenizer knows more tokens than the model.
    CapabilityError
        llama.cpp is not installed, or a version that cannot be used.
    """
    dtype, device = str(dtype).removeprefix("torch."), None if device is None else str(device)
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, DTYPES)
    _check_threads(threads)
    if weights not in (None, *WEIGHTS):
        raise UnknownNameError("kind of weights", str(weights), WEIGHTS)
    asked = None if dtype == _DEFAULT_DTYPE else dtype
    if weights is not None and asked not in (None, "auto"):
        raise UsageError(f"weights={weights!r} and dtype={dtype!r} both say what floats become: leave dtype out")
    where = here(name, report)
    implied = implied_engine(where, asked, device, gpu_layers=gpu_layers, exact=exact, weights=weights)
    is_free = engine in (None, FASTEST)
    wanted = (implied or engine) if is_free else engine
    chosen, place = choose(
        where, wanted, floats=weights is not None or asked is not None, device=device, report=report
    )  # fmt: skip
    if weights is not None and chosen != CPU:
        raise UsageError(f"weights={weights!r} is for the engine cpu, and {chosen} was named: leave that out")
    loaded = None
    if chosen != TRANSFORMERS:
        try:
            with uncollected():
                loaded = load_gguf(
                    Path(place), asked, device, engine=chosen, is_free=is_free, threads=threads,
                    gpu_layers=gpu_layers, exact=exact, weights=weights, report=report,
                )  # fmt: skip
        except UnsupportedModelError as error:  # its weights or its tokenizer
            if wanted != FASTEST or not Path(place).is_dir() or not is_installed(TRANSFORMERS):
                raise
            _LOG.warning("%s", error)
    if loaded is None:
        if gpu_layers != -1 or exact is not None:
            what = "exact" if exact is not None else "gpu_layers"
            raise UsageError(f"{what} is for GGUF files, and {name} is loaded by transformers: leave it out")
        folder = folder_of(place, report) if isinstance(place, str) else place
        loaded = _through_transformers(folder, dtype, device, threads)
    if wanted in (None, FASTEST) and getattr(loaded[0], "engine", TRANSFORMERS) == chosen:
        say_chosen(where, chosen)
    return loaded


def _through_transformers(
    place: Path, dtype: str, device: str | None, threads: int | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return model and tokenizer of a folder, the model on its device in eval mode."""
    _require_packages()
    with uncollected():
        with importing_torch(threads):
            import torch
        if threads is None and processor_limit() is not None:  # which torch knows nothing of
            threads = min(cores(), torch.get_num_threads())
        if threads is not None:
            torch.set_num_threads(threads)
        target = _device(device)
        with quiet_transformers():
            model, tokenizer = _read(place, dtype)
    check_vocabulary(place, tokenizer, model.get_input_embeddings().num_embeddings)
    try:
        model.to(target)
    except RuntimeError as error:  # out of memory, or no device of that number
        raise ModelError(
            f"the model cannot be put on {target} ({first_line(error)}): choose another device or dtype"
        ) from error
    return model.eval(), tokenizer


def load_tokenizer(name: str | os.PathLike[str] = DEFAULT_MODEL, *, engine: str | None = None) -> Any:
    """Load a model's tokenizer alone, from a folder without weights too; raises what `load` raises."""
    chosen, place = choose(name, engine)
    if chosen != TRANSFORMERS:
        return load_gguf_tokenizer(Path(place), engine=chosen, is_free=engine in (None, FASTEST))
    _require_packages()
    from transformers import AutoTokenizer

    place = folder_of(place, weights=False) if isinstance(place, str) else place
    with quiet_transformers():
        try:
            return AutoTokenizer.from_pretrained(place, **_LOCAL)
        except Exception as error:
            raise _explain(error, place, "tokenizer") from error


def _require_packages() -> None:
    if lacks := missing(*PACKAGES):
        wanted = " and ".join(lacks)
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
        raise UsageError(f"device {name!r} is not available here: there are {count}, from {found.type}:0")
    return found


def _read(place: Path, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    number_format = "auto" if dtype == "auto" else getattr(torch, dtype)
    what = "configuration"
    try:
        config = AutoConfig.from_pretrained(place, **_LOCAL)
        what = "tokenizer"
        tokenizer = AutoTokenizer.from_pretrained(place, config=config, **_LOCAL)
        what = "weights"
        packed = getattr(config, "quantization_config", None) is not None  # its integers stay what they are
        _check_room(place, grows=dtype == "float32" and str(config.dtype).endswith("16") and not packed)
        model, report = AutoModelForCausalLM.from_pretrained(
            place, config=config, dtype=number_format, output_loading_info=True, **_LOCAL
        )
    except ModelError:
        raise
    except Exception as error:
        raise _explain(error, place, what) from error
    if missing := sorted(report["missing_keys"]):  # transformers would go on with random numbers
        raise ModelError(
            f"the weights in {place} are incomplete (missing: {len(missing)}, the first is {missing[0]}): "
            "fetch or save the model again"
        )
    return model, tokenizer


def _check_room(folder: Path, *, grows: bool) -> None:
    """Raise `ModelError` where a folder's weights do not fit; where it ``grows`` they become twice as large."""
    from draftwood.engines.files.hub_model import parts_of

    names = {file.name for file in folder.glob("pytorch_model*.bin")}
    with suppress(ModelError):  # without safetensors
        names = {*parts_of(folder).values()}
        if not grows:
            return  # they stay mapped, and the system may drop pages that it can read again
    need = (1 + grows) * sum((folder / name).stat().st_size for name in names if (folder / name).is_file())
    free = free_memory(swap=True)
    if free is not None and need > free:
        said = f"{folder} needs {need / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free"
        raise ModelError(f"{said}: choose a smaller model or number format, or end other programs")


def _explain(error: Exception, place: Path, what: str) -> ModelError:
    """Turn what transformers raised into one sentence."""
    said = first_line(error)
    if isinstance(error, ValueError) and _REFUSED.search(str(error)):
        return UnsupportedModelError(
            f"{place} is no causal language model that transformers itself knows ({said}): name another"
        )
    return ModelError(f"the {what} in {place} cannot be read ({said}): fetch or save the model again")


def _check_threads(threads: int | None) -> None:
    if threads is None:
        return
    here = cores()
    most = max(64, MOST_THREADS * here)
    said = f"threads is {{}}: give 1 to {most} (there are {here} cores for this process)"
    number(threads, 1, most, said, whole=True)
    if threads > here:
        _LOG.warning("threads is %d and there are %d cores for this process: passes will be slower", threads, here)
