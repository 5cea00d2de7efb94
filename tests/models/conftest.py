"""A small catalogue of fake wheels, and a pip that copies them; nothing here needs a network."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import pytest

from draftwood.local.catalogue import CatalogueModel, Wheel

# The package exports functions of the same names, so the modules are asked for by import_module.
fetch_module = importlib.import_module("draftwood.models.fetch")
find_module = importlib.import_module("draftwood.local.find")

NAME = "toy"
GGUF = b"GGUF" + bytes(range(256)) * 40
TERMS = (
    "<html><script>no()</script><p>menu</p><article><nav>skip</nav><h1>Toy Terms</h1>"
    "<style>x{}</style><p>Be\nkind &amp; share.</p><button>press</button></article><p>footer</p></html>"
)
COPY = "import shutil, sys; [shutil.copy(p, sys.argv[1]) for p in sys.argv[2:]]"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_wheel(folder: Path, package: str, members: dict[str, bytes], part: str) -> Wheel:
    """Write a wheel that real pip accepts, and describe it."""
    stem = package.replace("-", "_")
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nRequires-Dist: not-a-package-of-anyone\n"
    info = {
        f"{stem}-1.0.dist-info/METADATA": metadata.encode(),
        f"{stem}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}-1.0.dist-info/RECORD": b"",
    }
    path = folder / f"{stem}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**members, **info}.items():
            archive.writestr(name, data)
    raw = path.read_bytes()
    return Wheel(package, "1.0", sha256(raw), len(raw), part)


@dataclass
class Shop:
    """The fake catalogue with its one model, and what the tests may bend."""

    monkeypatch: pytest.MonkeyPatch
    wheels: Path
    models: Path
    model: CatalogueModel
    converted: list[Path] = field(default_factory=list)
    fetch_module: ModuleType = fetch_module

    @property
    def folder(self) -> Path:
        return self.models / NAME

    def offer(self, **changes: object) -> None:
        """Put the model, changed, into every catalogue that is looked at."""
        self.model = replace(self.model, **changes)
        for module in (fetch_module, find_module):
            self.monkeypatch.setattr(module, "CATALOGUE", {NAME: self.model})

    def convert(self, model: CatalogueModel, folder: Path, tick) -> None:
        """Stand in for the conversion."""
        assert (folder / model.gguf).read_bytes() == GGUF
        self.converted.append(folder)
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (folder / name).write_text(f'"{name}"')
        for step in range(1, fetch_module.STEPS + 1):
            tick(step)

    def pip(self, arguments: list[str], scratch: Path, output: int) -> subprocess.Popen[bytes]:
        """Stand in for pip: deliver every wheel there is."""
        destination = arguments[arguments.index("--dest") + 1]
        return self.python(COPY, destination, *map(str, self.wheels.glob("*.whl")), output=output)

    @staticmethod
    def python(code: str, *arguments: str, output: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", "-c", code, *arguments]
        return subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def leftovers(self) -> list[str]:
        """What lies in the cache besides the model and the empty lock file."""
        return [p.name for p in self.models.iterdir() if p.name not in (NAME, f".{NAME}.lock")]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Two wheels with half of the GGUF file each, the terms in a third; conversion and pip are quick fakes."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    halves = (GGUF[:5000], GGUF[5000:])
    described = [write_wheel(wheels, "toy-main", {"toy_main/TERMS.html": TERMS.encode()}, "")]
    for number, half in enumerate(halves):
        member = f"toy_part{number}/part"
        described.append(write_wheel(wheels, f"toy-part{number}", {member: half}, member))
    model = CatalogueModel(
        name=NAME,
        description="a toy",
        wheels=tuple(described),
        gguf="toy.gguf",
        gguf_sha256=sha256(GGUF),
        gguf_size=len(GGUF),
        folder_size=20_000,
        licence="Toy Terms",
        licence_member="toy_main/TERMS.html",
    )
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "cache"))
    made = Shop(monkeypatch, wheels, tmp_path / "cache" / "models", model)
    made.offer()
    monkeypatch.setattr(fetch_module, "convert", made.convert)
    monkeypatch.setattr(fetch_module, "_start_pip", made.pip)
    return made


@pytest.fixture
def real_pip(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The same shop behind the pip of this Python, which sees nothing but the folder of wheels."""
    monkeypatch.setattr(fetch_module, "_start_pip", REAL_START)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop.wheels))
    return shop


REAL_START = fetch_module._start_pip
