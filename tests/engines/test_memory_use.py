"""What a process holds after many requests is what it holds after a few."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import draftwood
from draftwood.engines.transformers.pack import WIDTHS, fill, filled, filling
from draftwood.engines.transformers.shared import shared_target
from tests.engines.tiny import build

WORK = """
import random, torch, draftwood
from tests.engines.tiny import build

torch.set_num_threads(1)
model = build("llama").to(torch.{dtype})
model.config.max_position_embeddings = 2048
random.seed(0)
for number in range(1, {last} + 1):
    words = [random.randrange(64) for _ in range(random.randint(3, 30))]
    prompt = (words * 500)[: random.randint(3, random.choice([60, 400, 1500]))]
    draftwood.generate(model, prompt, max_new_tokens=random.randint(2, 40), drafters=("none", "ngram")[number % 2])
    if number in ({first}, {last}):
        print(int(open("/proc/self/statm").read().split()[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory as Linux tells it")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_requests_of_mixed_lengths_leave_at_most_a_tenth_behind(dtype):
    """The first twenty have met most widths of a pass; the next hundred and eighty bring few new ones."""
    code = WORK.format(dtype=dtype, first=20, last=200)
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    early, late = map(int, ran.stdout.split())
    assert late <= 1.1 * early, f"{late / early:.3f} times as much"


def test_widths_are_few_and_close():
    assert len(WIDTHS) <= 34
    assert list(WIDTHS) == sorted(set(WIDTHS))
    for rows in range(1, 1025):
        width = filled(rows)
        assert width in WIDTHS
        assert rows <= width <= max(rows + 2, 1.25 * rows)
    assert filled(5000) == 5000


@pytest.mark.parametrize("shape", [(1,), (4,), (70,), (1, 6), (3, 23), (2, 2, 30)])
def test_what_is_filled_in_is_cut_off_again(shape):
    torch.manual_seed(0)
    linear, seen = torch.nn.Linear(8, 5), []

    def product(x):
        seen.append(x.shape[:-1].numel())
        return linear(x)

    x = torch.randn(*shape, 8)
    with torch.no_grad():
        assert torch.allclose(filling(product)(x), linear(x), atol=1e-6)
    assert seen == [filled(x.shape[:-1].numel())]
    assert fill(x, len(x)) is x


def test_released_weights_take_no_memory_and_keep_no_file():
    model = build("llama")
    if not shared_target(model).owns_weights:
        pytest.skip("this machine packs no weights")
    before = [parameter.data for parameter in model.parameters()]  # held, so that no place is used again
    places = {data.data_ptr() for data in before}
    draftwood.prepare(model, release=True)
    left = [parameter for parameter in model.parameters() if parameter.numel()]
    assert all(parameter.data_ptr() not in places for parameter in left)
