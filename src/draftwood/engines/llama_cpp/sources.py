"""The wheels that bring llama.cpp's library, and where the library lies in them."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from draftwood.errors import CapabilityError


@dataclass(frozen=True)
class Source:
    """A wheel with llama.cpp's library.

    Attributes
    ----------
    package, module
        The names under which it is installed and imported.
    good
        Releases whose structs are known here.
    files
        Where the library may lie in the folder of the module, as patterns.
    """

    package: str
    module: str
    good: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def release(self) -> str:
        """The installed release; a build of it (``0.3.36+cu124``) is the same."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(self.package).partition("+")[0]
        except PackageNotFoundError:  # installed under another name
            return "of an unknown release"

    @property
    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.module) is not None

    def place(self) -> Path:
        """Return the library's file; `CapabilityError` for another release, and where there is none.

        The module is not imported: that would start a server's worth.
        """
        if self.release not in self.good:
            raise unknown(f"{self.package} {self.release} is not known here")
        spec = importlib.util.find_spec(self.module)
        folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
        files = [found for pattern in self.files for found in folder.glob(pattern)] if folder is not None else []
        if not files:
            raise CapabilityError(
                f"{self.package} has no library for this system whose functions can be called: run pip install "
                f'"{SOURCES[-1].package}=={SOURCES[-1].good[-1]}", which compiles one, or run the model through '
                "transformers"
            )
        return files[0]


SOURCES = (
    Source("xllamacpp", "xllamacpp", ("2026.10.11549",), ("xllamacpp.*.so", "xllamacpp.*.dylib")),
    Source(
        "llama_cpp_python", "llama_cpp", ("0.3.36",),
        ("lib/libllama.so", "lib/libllama.dylib", "lib/llama.dll", "lib/libllama.dll"),
    ),
)  # fmt: skip
"""The first that is installed and can be used serves; on Windows xllamacpp exports no functions."""


def is_installed() -> bool:
    """Whether a wheel with the library is here; it may still be of another release."""
    return any(source.is_installed for source in SOURCES)


def unknown(why: str) -> CapabilityError:
    """Return the error that this library cannot be used."""
    first = SOURCES[0]
    return CapabilityError(
        f'this llama.cpp cannot be used safely ({why}): run pip install "{first.package}=={first.good[-1]}"'
    )
