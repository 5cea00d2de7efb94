"""Real models: catalogue, fetching, finding, loading. Importing this imports neither torch nor transformers."""

from draftwood.models.catalogue import CATALOGUE, DEFAULT_MODEL, CatalogueModel, Wheel
from draftwood.models.engine import ENGINES, LLAMA_CPP, TRANSFORMERS, choose
from draftwood.models.fetch import Progress, fetch
from draftwood.models.find import Installed, cache_folder, find, gguf_file, installed
from draftwood.models.load import load, load_tokenizer

__all__ = [
    "CATALOGUE",
    "DEFAULT_MODEL",
    "ENGINES",
    "LLAMA_CPP",
    "TRANSFORMERS",
    "CatalogueModel",
    "Installed",
    "Progress",
    "Wheel",
    "cache_folder",
    "choose",
    "fetch",
    "find",
    "gguf_file",
    "installed",
    "load",
    "load_tokenizer",
]
