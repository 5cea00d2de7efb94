"""The law of layers: a room imports from its own layer or one below it, and heavy packages stay in their rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import draftwood

ROOT = Path(draftwood.__file__).parent

LAYERS = (
    ("errors", "spelling", "child_safe", "tree", "step", "rates", "contracts", "files"),
    ("index",),
    ("drafters", "planning", "verify"),
    ("decoding",),
    ("drafters.cascade",),  # which runs the loop on a draft model
    ("local",),
    ("engines", "tasks", "testing", "models", "grammar"),
    ("corpora",),
    ("api",),
    ("measure", "training", "engines.vllm"),  # through the API, as users go; the last, inside vLLM's workers
    ("serve",),
    ("cli", "__main__"),
)
"""From the foundation up. A longer name goes before the room that it lies in."""

NEVER = {
    "decoding": ("drafters", "planning", "verify", "index", "engines"),
    "planning": ("drafters", "index", "decoding", "engines"),
    "verify": ("drafters", "planning", "decoding", "engines"),
    "drafters": ("planning", "engines"),
    "engines.cpu": ("decoding", "drafters", "planning", "api", "models"),
    "engines.cpu.code": ("engines.tokens", "local.findings", "local.catalogue"),
    "engines.files": ("engines.cpu", "engines.tokens"),
    "engines.tokens": ("engines.cpu",),
    "engines.transformers": ("models",),
    "engines.llama_cpp": ("models",),
    "engines.transformers.target": ("decoding", "drafters", "planning", "api"),
    "contracts": ("drafters", "planning", "decoding", "engines", "index"),
}
"""What a room never imports, wherever in its files: the loop knows contracts only, the planner no compiler."""

CORE = tuple(room for layer in LAYERS[:5] for room in layer)

PACKAGES = {
    "numpy": ("",),
    "numba": ("index.numba_compiling",),
    "llvmlite": (
        "index.faults",
        "index.machine_code",
        "index.numba_compiling",
        "engines.cpu.code",
    ),
    "torch": (
        "engines.transformers",
        "local",
        "models",
        "training",
        "cli.info",
    ),  # the last asks it what this machine can do
    "transformers": ("engines.transformers", "models"),
    "accelerate": ("engines.transformers",),
    "filelock": ("models", "files"),
    "huggingface_hub": ("models",),
    "safetensors": ("training",),
    "tokenizers": ("models", "engines.tokens"),
    "jinja2": ("measure.report.page", "engines.tokens.file_tokenizer"),
    "markupsafe": ("measure.report.page",),  # comes with jinja2
    "scipy": ("measure",),
    "zstandard": ("files",),
    "pathspec": ("corpora",),
    "psutil": ("local", "corpora", "planning.policies.sensors"),
    "pynvml": ("planning.policies.sensors",),
    "pydivsufsort": ("corpora",),
    "platformdirs": ("local",),
    "xxhash": ("engines.transformers",),
    "xllamacpp": ("engines.llama_cpp",),
    "rich": ("cli",),
    "typer": ("cli",),
    "fastapi": ("serve",),
    "llguidance": ("grammar",),
    "starlette": ("serve",),  # comes with fastapi, as pydantic does
    "pydantic": ("serve",),
    "pydantic_core": ("serve",),
    "prometheus_client": ("serve",),
    "uvicorn": ("serve.guards",),
}
"""What is not of the standard library, and the rooms that may import it ("" is all of them)."""

AT_ONCE = {
    "numpy": ("",),
    "numba": ("index.numba_compiling",),
    "llvmlite": ("index.numba_compiling", "engines.cpu.code"),
    "torch": ("engines.transformers", "training"),
    "rich": ("cli",),
    "typer": ("cli",),
}
"""What may be imported as soon as the module is; the rest only inside functions (or for type checkers)."""
for package in ("fastapi", "starlette", "pydantic", "pydantic_core", "prometheus_client"):
    AT_ONCE[package] = ("serve",)
AT_ONCE["uvicorn"] = ("serve.guards",)
AT_ONCE["transformers"] = AT_ONCE["xxhash"] = ("engines.transformers",)
AT_ONCE["safetensors"] = ("training",)


class Import(NamedTuple):
    """One import statement."""

    importer: str  # both without the leading "draftwood."
    imported: str
    at_once: bool

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"


def modules() -> dict[str, Path]:
    """Dotted name, without draftwood, to file."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports_of(module: str, path: Path) -> Iterator[Import]:
    def walk(node: ast.AST, at_once: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(module, alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            assert node.module is not None
            for alias in node.names:
                within = f"{node.module}.{alias.name}"
                known = within.removeprefix("draftwood.") in MODULES
                yield Import(module, within if known else node.module, at_once)
        else:
            later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            later = later or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
            for child in ast.iter_child_nodes(node):
                yield from walk(child, at_once and not later)

    return walk(ast.parse(path.read_text(encoding="utf-8")), True)


IMPORTS = [found for module, path in MODULES.items() for found in imports_of(module, path)]
OURS = [
    found._replace(imported=found.imported.removeprefix("draftwood").removeprefix("."))
    for found in IMPORTS
    if found.imported.split(".")[0] == "draftwood"
]
FOREIGN = [
    found._replace(imported=top)
    for found in IMPORTS
    if (top := found.imported.split(".")[0]) not in sys.stdlib_module_names and top != "draftwood"
]


def lies_in(module: str, rooms: tuple[str, ...]) -> bool:
    return any(room in ("", module) or module.startswith(room + ".") for room in rooms)


def layer_of(module: str) -> int:
    homes = [
        (len(room), number) for number, layer in enumerate(LAYERS) for room in layer if lies_in(module, (room,))
    ]
    assert homes, f"{module} lies in no layer: give it one"
    return max(homes)[1]


def test_every_module_has_a_layer():
    assert {"decoding.loop", "tree", "engines.transformers.target"} <= set(MODULES)
    for module in MODULES:
        if module:
            layer_of(module)


def test_imports_go_down():
    wrong = [
        str(found)
        for found in OURS
        if found.importer and found.imported and layer_of(found.imported) > layer_of(found.importer)
    ]
    assert wrong == []


@pytest.mark.parametrize("room", NEVER)
def test_what_is_never_imported(room):
    """drafters/cascade is the one drafter that runs the loop on a model, and lies above it."""
    mine = [
        one for one in OURS if lies_in(one.importer, (room,)) and not lies_in(one.importer, ("drafters.cascade",))
    ]
    assert [str(one) for one in mine if lies_in(one.imported, NEVER[room])] == []


def test_no_imports_run_in_circles():
    """Those for type checkers and inside functions count, too."""
    left = {module: {found.imported for found in OURS if found.importer == module} for module in MODULES}
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    inside = [str(found) for found in OURS if found.importer in left and found.imported in left]
    assert inside == [], "each of these leads into a circle, or lies in one"


def test_only_the_outermost_layer_knows_the_package_itself():
    all_but_last = len(LAYERS) - 1
    assert [str(one) for one in OURS if not one.imported and layer_of(one.importer) < all_but_last] == []


@pytest.mark.parametrize("table", [PACKAGES, AT_ONCE], ids=["PACKAGES", "AT_ONCE"])
def test_no_room_is_listed_that_imports_nothing_of_the_package(table):
    mine = [f for f in FOREIGN if f.at_once or table is PACKAGES]
    listed = [(package, room) for package, rooms in table.items() for room in rooms]
    used = [(p, r) for p, r in listed if any(f.imported == p and lies_in(f.importer, (r,)) for f in mine)]
    assert used == listed


def test_packages_stay_in_their_rooms():
    assert [str(found) for found in FOREIGN if not lies_in(found.importer, PACKAGES.get(found.imported, ()))] == []


def test_heavy_packages_are_imported_where_they_are_used():
    wrong = [f for f in FOREIGN if f.at_once and not lies_in(f.importer, AT_ONCE.get(f.imported, ()))]
    assert [str(found) for found in wrong] == []


def test_the_core_needs_numpy_alone():
    others = ("index", "drafters", "files", "planning.policies.sensors")  # sensors fall silent without a library
    core = [f for f in FOREIGN if lies_in(f.importer, CORE) and not lies_in(f.importer, others)]
    assert {f.imported for f in core} == {"numpy"}


@pytest.mark.parametrize(
    "module", ["decoding.loop", "api.stream", "api.conversation", "testing", "drafters.load", "cli.main"]
)
def test_importing_it_brings_neither_torch_nor_transformers_nor_numba(module):
    heavy = "{'torch', 'transformers', 'numba', 'llvmlite', 'scipy'}"
    code = f"import sys, draftwood.{module}; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)
