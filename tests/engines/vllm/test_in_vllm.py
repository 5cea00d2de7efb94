"""Inside the real vLLM: texts are those of vLLM without speculation. Run by ``make test-vllm``."""

import json
import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from draftwood.engines.vllm.requests import PREDICTION
from draftwood.local.find import model_folder

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed here: make test-vllm"),
]

VOCAB, LONGEST = 256, 512
OURS = {"method": "custom_class", "model": "draftwood.engines.vllm.Proposer", "num_speculative_tokens": 16}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a small model of random weights."""
    code = (
        "import sys, torch; from transformers import LlamaConfig, LlamaForCausalLM; torch.manual_seed(0); "
        f"LlamaForCausalLM(LlamaConfig(vocab_size={VOCAB}, hidden_size=128, intermediate_size=256, "
        "num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=64, initializer_range=0.1, "
        f"max_position_embeddings={LONGEST})).save_pretrained(sys.argv[1])"
    )
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True)
    return folder


@pytest.fixture
def run(tmp_path):
    """``run(model, prompts, sampling, options, **engine)``: what one engine writes; with options, our drafts."""

    def run(model, prompts, sampling, options=None, **engine):
        engine = {"model": str(model), "max_model_len": LONGEST, **engine}
        if options is not None:
            engine |= {"speculative_config": OURS, "additional_config": {"draftwood": options}}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"engine": engine, "prompts": prompts, "sampling": sampling}))
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("vllm_job.py"), path],
            env={**os.environ, **environment}, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        if not path.with_suffix(".out").exists():
            raise RuntimeError(done.stdout + done.stderr)
        assert "draftwood made no drafts" not in done.stdout + done.stderr
        return json.loads(path.with_suffix(".out").read_text())

    return run


def tiny_prompts(count=20):
    rng = np.random.default_rng(5)
    prompts = [rng.integers(0, VOCAB, rng.integers(1, 300)).tolist() for _ in range(count - 2)]
    return [*prompts, prompts[0], prompts[0]]


def tiny_engine(**engine):
    """An engine whose cache is too small, and whose prompts are read in pieces."""
    return {"skip_tokenizer_init": True, "max_num_seqs": 8, "max_num_batched_tokens": 128, "block_size": 32,
            "num_gpu_blocks_override": 60, "enable_prefix_caching": False, **engine}  # fmt: skip


def test_texts_are_vllms_own_with_chunks_and_preemption_and_at_the_longest_text(run, tiny):
    prompts = tiny_prompts()
    sampling = [{"max_tokens": 150 if i % 3 else LONGEST - len(prompts[i])} for i in range(len(prompts))]
    plain = run(tiny, prompts, sampling, **tiny_engine())
    for options in ({"planner": "fixed:16"}, {}, {"drafters": "ngram+memory", "planner": "fixed:5"}):
        drafted = run(tiny, prompts, sampling, options, **tiny_engine())
        assert drafted["texts"] == plain["texts"]
        if options:
            assert drafted["spec_decode_num_accepted_tokens"] > 100
            assert drafted["num_preemptions"]


def test_a_prediction_reaches_the_worker(run, tiny):
    (prompt, *_) = tiny_prompts()
    (expected,) = run(tiny, [prompt], [{"max_tokens": 60}], **tiny_engine())["texts"]
    accepted = []
    for extra in ({}, {"extra_args": {PREDICTION: expected}}):
        options = {"planner": "fixed:16", "requests": True}
        engine = tiny_engine()
        found = run(tiny, [prompt], [{"max_tokens": 60, **extra}], options, **engine)
        assert found["texts"] == [expected]
        accepted.append(found["spec_decode_num_accepted_tokens"])
    assert accepted[1] > 50
    assert accepted[1] > accepted[0]


def chi_square(ours, theirs, least=10):
    """Statistic and degrees of freedom for two lists having one distribution; rare values are pooled."""
    counts = [Counter(ours), Counter(theirs)]
    both = counts[0] + counts[1]
    common = [value for value, n in both.items() if n >= least]
    table = np.array([[count[value] for value in common] for count in counts], float)
    rest = [len(some) - row.sum() for some, row in zip((ours, theirs), table, strict=True)]
    table = np.column_stack([table, rest]) if sum(rest) else table
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    return ((table - expected) ** 2 / expected).sum(), table.shape[1] - 1


def test_sampled_tokens_have_vllms_distribution(run, tiny):
    """On a CPU with its sampler mended; drafted by the likeliest text, so that drafts are taken and refused."""
    (prompt, *_), count, length = tiny_prompts(), 3000, 5
    engine = tiny_engine(max_num_seqs=64, num_gpu_blocks_override=1200, max_num_batched_tokens=LONGEST)
    (likely,) = run(tiny, [prompt], [{"max_tokens": length}], **engine)["texts"]
    sampling = {"max_tokens": length, "temperature": 0.25, "extra_args": {PREDICTION: prompt[-8:] + likely}}
    options = {"planner": "fixed:16", "requests": True}
    plain = run(tiny, [prompt] * count, [sampling] * count, seed=1, **engine)["texts"]
    found = run(tiny, [prompt] * count, [sampling] * count, options, seed=2, **engine)
    assert found["spec_decode_num_accepted_tokens"] > count / 4
    for part in (slice(0, 2), slice(1, 3), slice(2, 4), slice(3, 5), slice(0, 5)):
        ours, theirs = ([tuple(text[part]) for text in some] for some in (found["texts"], plain))
        statistic, degrees = chi_square(ours, theirs)
        assert degrees > 3
        assert statistic < degrees + 4 * (2 * degrees) ** 0.5  # four standard deviations above the mean


def test_wrong_options_are_one_sentence_at_the_start(run, tiny):
    with pytest.raises(
        RuntimeError, match="unknown option of draftwood in --additional-config 'planer': did you mean"
    ):
        run(tiny, [[1]], [{}], {"planer": "off"}, **tiny_engine())


@pytest.mark.smollm2
def test_smollm2_writes_what_it_writes_without(run):
    from draftwood.tasks import prompts

    folder = model_folder("smollm2")
    code = (
        "import json, sys; from transformers import AutoTokenizer as T; t = T.from_pretrained(sys.argv[1]); "
        + (
            "print(json.dumps([t.apply_chat_template(m, add_generation_prompt=True, return_dict=False) "
            "for m in json.loads(sys.argv[2])]))"
        )
    )
    some = [prompt for kind in ("grammar", "code-edit", "chat") for prompt in prompts(kind, 3)]
    messages = json.dumps([[dict(message) for message in prompt.messages] for prompt in some])
    said = subprocess.run(
        [sys.executable, "-c", code, folder, messages], check=True, capture_output=True, text=True
    )
    ids = json.loads(said.stdout.splitlines()[-1])
    sampling = [{"max_tokens": 48, "ignore_eos": False}] * len(ids)
    plain = run(folder, ids, sampling, max_model_len=4096)
    for options in ({"planner": "fixed:16"}, {}):
        drafted = run(folder, ids, sampling, options, max_model_len=4096)
        assert drafted["texts"] == plain["texts"]
        assert drafted["spec_decode_num_accepted_tokens"] or not options
