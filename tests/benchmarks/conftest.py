"""The scripts of benchmarks/, which import each other as siblings, as they do when one is run."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def script():
    """Import a script by its name."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))
