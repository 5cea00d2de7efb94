"""Write the file of ggml's grids from the package gguf, which has them as text: see the README beside the file."""

from pathlib import Path

from gguf import quants

import draftwood

FILE = Path(draftwood.__file__).parent / "engines" / "files" / "grids" / "ggml.bin"
_NAMES = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")


def grids() -> bytes:
    return b"".join(bytes.fromhex(getattr(quants, name).grid_hex.decode()) for name in _NAMES)


if __name__ == "__main__":
    FILE.write_bytes(grids())
