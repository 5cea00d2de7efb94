"""Real models: catalogue, fetching, finding, loading. Importing this imports neither torch nor transformers."""

from draftwood.models.catalogue import CATALOGUE, DEFAULT_MODEL, CatalogueModel, Wheel
from draftwood.models.engine import CPU, ENGINES, LLAMA_CPP, TRANSFORMERS, choose, implied_engine
from draftwood.models.fetch import Progress, fetch
from draftwood.models.find import Installed, cache_folder, find, gguf_file, installed
from draftwood.models.load import load, load_tokenizer

__all__ = [
    "CATALOGUE",
    "CPU",
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
    "implied_engine",
    "installed",
    "load",
    "load_tokenizer",
]
