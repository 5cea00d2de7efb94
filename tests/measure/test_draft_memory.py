"""What draft models take in memory: counted once, nothing for what is the target's, in records, table and page."""

import pytest
import torch
from tests.engines.tiny import SHAPE, build
from tests.helpers import PROMPT

from draftwood.api.draft_models import DraftModels
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.cascade.drafter import CascadeDrafter
from draftwood.drafters.draft_model.drafter import DraftModelDrafter, DraftTarget
from draftwood.drafters.load import load
from draftwood.engines.transformers.shared import shared_target
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.measure.bench.arms import memory_of
from draftwood.measure.bench.table import draft_memory, table
from draftwood.measure.records.records import Answer, Records
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget
from draftwood.verify.exact import SampleAndMatch

PER_TOY_TOKEN = 16  # bytes of a toy's cache
PER_TOKEN = SHAPE["num_hidden_layers"] * 2 * SHAPE["num_key_value_heads"] * 8 * 4  # of a tiny Llama's


def written(target, *drafters, limit=20):
    """Write a text; returns its tokens and the bytes of weights and caches at its end."""
    with open_sequences(target, drafters, [Request(PROMPT, limit)], SampleAndMatch()) as sequences:
        for _ in decode_sequences(target, FixedPlanner(4), sequences):
            pass
        return len(sequences[0].ids), memory_of(drafters, sequences)


def toy(weights, **options):
    return DraftModelDrafter(**options).bound(DraftTarget(ToyTarget(), weight_bytes=weights))


def test_a_model_that_two_drafters_share_is_counted_once_and_its_caches_twice():
    drafter = toy(1000)
    one, both = (
        written(ToyTarget(), *some)[1]
        for some in ((drafter,), (drafter, DraftModelDrafter(target=drafter.found, length=2)))
    )
    assert both[0] == 1000
    assert both[1] > 1.5 * one[1]


def test_of_a_cascade_every_model_counts():
    inner = toy(30)
    known = DraftTarget(ToyTarget(), weight_bytes=1000)
    cascade = CascadeDrafter(target=known, drafters=(*load("ngram"), inner))
    tokens, (weights, cache) = written(ToyTarget(), cascade)
    assert weights == 1030
    assert cache > 1.5 * (tokens - 6) * PER_TOY_TOKEN
    assert written(ToyTarget(), CascadeDrafter(target=ToyTarget(), drafters=load("ngram")))[1][0] is None


@pytest.mark.parametrize("kind", ["llama", "mistral-window"])
def test_a_session_of_transformers_tells_the_bytes_of_its_tokens(kind):
    target = TransformersTarget(build(kind), chunk=64)
    ((session, _),) = target.open([list(range(40))], reserve=300)
    assert session.cache_bytes == 40 * PER_TOKEN
    target.extend([(session, [5] * 200)])
    assert session.cache_bytes == 240 * PER_TOKEN
    session.truncate(session.length - 1)
    assert session.cache_bytes == 239 * PER_TOKEN


def test_quantised_weights_are_those_of_the_copies():
    model = build("llama")
    found = DraftModels(shared_target(model)).quantized_self()
    assert found.weight_bytes == found.target.weight_bytes > 0
    linears = [module for module in model.modules() if type(module) is torch.nn.Linear]
    assert found.weight_bytes < sum(linear.weight.nbytes for linear in linears)


def test_tied_weights_count_once():
    model = build("llama")
    apart, model.lm_head.weight = TransformersTarget(model).weight_bytes, model.model.embed_tokens.weight
    assert TransformersTarget(model).weight_bytes == apart - model.lm_head.weight.nbytes


# --- records, table, page --------------------------------------------------------------------------------------


def rows():
    """Plain decoding, a draft model on two prompts, and early exit."""
    plain = [Answer(n, "chat", name, "none", output_ids=[1, 2], decode_s=1.0) for n, name in enumerate("ab")]
    drafted = [
        Answer(2 + n, "chat", name, "draft-model:model=S", output_ids=[1, 2], decode_s=0.5,
               draft_weight_bytes=270_000_000, draft_cache_bytes=size)
        for n, (name, size) in enumerate((("a", 4_500_000), ("b", 12_340_000)))
    ]  # fmt: skip
    early = Answer(4, "chat", "a", "early-exit", output_ids=[1, 2], decode_s=0.5, draft_weight_bytes=0,
                   draft_cache_bytes=0)  # fmt: skip
    return [*plain, *drafted, early]


def test_the_table_has_the_most_of_all_answers():
    found = {row["drafter"]: row for row in table(Records({}, rows()))}
    names = ("draft_weight_bytes", "draft_cache_bytes")
    assert [found["draft-model:model=S"][name] for name in names] == [270_000_000, 12_340_000]
    assert [found["early-exit"][name] for name in names] == [0, 0]
    assert [found["none"][name] for name in names] == [None, None]


def test_draft_memory_is_said_only_of_arms_that_take_some():
    found = table(Records({}, rows()))
    said = draft_memory(found, "draft-model:model=S")
    assert said == "270.00 MB of draft weights, at most 12.34 MB of draft cache at the end of an answer"
    assert draft_memory(found, "none") is draft_memory(found, "early-exit") is None
