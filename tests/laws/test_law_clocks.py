"""Whatever the clock does, the text stays the same, and what was learnt by it does no harm to a later start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import draftwood

CLOCKS = {
    "stands still": "lambda: 5.0",
    "jumps": "lambda r=__import__('random').Random(3): r.uniform(-1e6, 1e6)",
    "goes back": "lambda t=iter(range(10**9, 0, -1)): float(next(t))",
    "hardly moves": "lambda t=iter(range(10**9)): next(t) * 5e-324",
    "years at a time": "lambda t=iter(range(10**9)): next(t) * 1e300",
}
PROGRAM = """
import time, logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
clock = {clock}
if clock is not None:
    time.perf_counter = time.monotonic = time.time = clock
import draftwood
from tests.engines.tiny import build
model = build("llama")
model.config._name_or_path = "owner/tiny"
for drafters in ("default", "copy-and-recycle"):
    print(draftwood.generate(model, [5, 6, 7, 5, 6, 7, 5], max_new_tokens=40, drafters=drafters).ids)
"""


def written(cache, clock=None):
    """Return what a process of its own writes under a clock, and what it logs."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(Path(draftwood.__file__).parents[1])])
    settings = os.environ | {"DRAFTWOOD_CACHE": str(cache), "DRAFTWOOD_LEARNED": "on", "PYTHONPATH": path}
    code = PROGRAM.format(clock=clock)
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What is written under a clock that is right."""
    return written(tmp_path_factory.mktemp("plain"))[0]


@pytest.mark.slow
@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
def test_a_broken_clock_changes_no_text(tmp_path, plain, clock):
    for which in (clock, None):
        text, said = written(tmp_path / "cache", which)
        assert text == plain
        assert len(said.splitlines()) <= 1, said
    assert list((tmp_path / "cache" / "found").iterdir())
