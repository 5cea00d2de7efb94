"""Settings of the whole suite."""

import gc
import os
from importlib import import_module
from pathlib import Path

# Tiny models are slower on several threads, on a busy machine by far; before torch is imported, for children too.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["DRAFTWOOD_LEARNED"] = "off"  # no test may depend on what another one, or this machine, has learnt

import pytest
from hypothesis import settings

# Machines differ in speed, laws do not: no test may fail for being slow.
settings.register_profile("draftwood", deadline=None, print_blob=True, max_examples=60)
settings.load_profile("draftwood")


@pytest.fixture(autouse=True, scope="session")
def _kernels_are_compiled_once():
    """Two workers begin at two ends: each compiles half of the kernels, and loads the other half from disk."""
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        source = Path(__file__).parents[1] / "src"
        files = [p for p in sorted(source.rglob("*.py")) if "\n@compiled(" in p.read_text(encoding="utf-8")]
        for file in files[:: -1 if worker == "gw1" else 1]:
            import_module(".".join(file.relative_to(source).with_suffix("").parts))


@pytest.fixture(autouse=True, scope="session")
def _imports_are_no_garbage():
    """Else each ``gc.collect()`` of a test looks through torch, transformers and all tests, for a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _trials_of_this_run(tmp_path_factory):
    """Trials of models are not taken over from what this machine did before the tests."""
    from draftwood.local import findings

    place = tmp_path_factory.mktemp("found")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "folder", lambda: place)
        yield


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory):
    """``tiny_gguf(family, kind, ...)`` is the path of a small GGUF file, written once; see `write_gguf`."""
    from tests.engines.tiny_gguf import write_gguf

    folder, written = tmp_path_factory.mktemp("gguf"), {}

    def path(family="llama", kind="F32", **options):
        key = (family, kind, *sorted(options.items()))
        if key not in written:
            written[key] = write_gguf(folder / f"{len(written)}.gguf", family=family, kind=kind, **options)
        return written[key]

    return path


@pytest.fixture(scope="module")
def llama():
    """A tiny random model of transformers, a fresh one for each file of tests."""
    from tests.engines.tiny import build

    return build("llama")


@pytest.fixture(autouse=True)
def _a_quiet_machine(monkeypatch):
    """No test may depend on what else this machine does: comparisons are left out while it is busy."""
    monkeypatch.setattr("draftwood.local.crowding._spent", lambda: (0.0, 0.0))
