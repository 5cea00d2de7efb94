"""How large the house is: syntax nodes and files of each room, of tests, benchmarks and documents, and of the core
path.

    python benchmarks/house.py

A node is a name, an attribute, a call, an operator of two sides, a subscript or a comparison. They are counted
instead of lines, so that breaking a dense line into readable ones costs nothing.

The core path is what one has to read to follow a token from the loop to the model's cache: the loop, the
contracts, the exact rule, the default planner, `ngram` and the transformers target with its cache, and every file
of draftwood that importing them loads. `tests/test_house.py` holds the figures of `CEILINGS`, which may only fall.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "draftwood"

CEILINGS = {
    "src nodes": 196_819,
    "src files": 445,
    "core nodes": 27_659,
    "core files": 62,
    "core classes": 111,
    "tests nodes": 173_529,
    "tests files": 358,
    "benchmarks nodes": 16_330,
    "benchmarks files": 20,
    "docs KB": 297,
    "docs pages": 24,
}
"""What each figure may be at most. Lower one when the figure has fallen; never raise one."""

NODES = (ast.Name, ast.Attribute, ast.Call, ast.BinOp, ast.Subscript, ast.Compare)

CORE = (
    "decoding.loop",
    "contracts",
    "verify.exact",
    "planning.goodput",
    "engines.transformers.target",
    "engines.transformers.cache",
)
NGRAM = SRC / "drafters" / "ngram"
"""A drafter loads its kernels at the first use, so all of its files are named."""


def files(folder: Path, pattern: str) -> list[Path]:
    """Files of the repository in a folder; what git does not know is none of them."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", str(folder)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout.splitlines()  # fmt: skip
    found = [ROOT / name for name in listed]
    return sorted(path for path in found if path.match(pattern) and path.is_file())


def nodes(paths: list[Path]) -> int:
    return sum(isinstance(node, NODES) for path in paths for node in ast.walk(_parsed(path)))


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def rooms() -> dict[str, list[Path]]:
    """Files of each package of src; those at the top are one room."""
    found: dict[str, list[Path]] = {}
    for path in files(SRC, "*.py"):
        parts = path.relative_to(SRC).parts
        found.setdefault(parts[0] if len(parts) > 1 else "(top)", []).append(path)
    return found


def module(name: str) -> Path | None:
    """The file of a module of draftwood, named without the package."""
    place = SRC.joinpath(*name.split(".")) if name else SRC
    return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)


def _imports(tree: ast.AST) -> Iterator[ast.ImportFrom | ast.Import]:
    """Imports that run when the file is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With) and "TYPE_CHECKING" not in ast.dump(node):
            yield from _imports(node)


def imported(path: Path) -> Iterator[str]:
    """Modules of draftwood that a file imports, without the package's name."""
    for node in _imports(_parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = node.module or ""
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            first, *rest = name.split(".")
            if first == "draftwood":
                yield from (".".join(rest[:n]) for n in range(1, len(rest) + 1) if module(".".join(rest[:n])))


def core() -> list[Path]:
    """Files that the core path reaches."""
    found: set[Path] = set()
    waiting = [*CORE, *(f"drafters.ngram.{path.stem}" for path in NGRAM.glob("*.py"))]
    while waiting:
        path = module(waiting.pop())
        if path and path not in found:
            found.add(path)
            waiting += imported(path)
    return sorted(found)


def classes(paths: list[Path]) -> int:
    """Classes of these files, those inside others too."""
    return sum(isinstance(node, ast.ClassDef) for path in paths for node in ast.walk(_parsed(path)))


def figures() -> dict[str, int]:
    """The figures that have ceilings."""
    src, path = files(SRC, "*.py"), core()
    tests, scripts, pages = (
        files(ROOT / "tests", "*.py"),
        files(ROOT / "benchmarks", "*.py"),
        files(ROOT / "docs", "*.md"),
    )
    return {
        "src nodes": nodes(src),
        "src files": len(src),
        "core nodes": nodes(path),
        "core files": len(path),
        "core classes": classes(path),
        "tests nodes": nodes(tests),
        "tests files": len(tests),
        "benchmarks nodes": nodes(scripts),
        "benchmarks files": len(scripts),
        "docs KB": sum(page.stat().st_size for page in pages) // 1000,
        "docs pages": len(pages),
    }


def main() -> None:
    for room, paths in sorted(rooms().items(), key=lambda item: -nodes(item[1])):
        print(f"{room:20}{nodes(paths):8,} nodes{len(paths):5} files")
    print()
    for name, number in figures().items():
        print(f"{name:20}{number:8,}    at most {CEILINGS[name]:,}")


if __name__ == "__main__":
    main()
