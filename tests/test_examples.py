"""Every example runs."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
NEEDS = {"ray_serve.py": "ray"}  # packages that are in no extra


@pytest.mark.smollm2
@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(example):
    if example.name in NEEDS:
        pytest.importorskip(NEEDS[example.name])
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
