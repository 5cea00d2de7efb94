"""draftwood's proposer beside a vLLM for CPUs whose sampler of drafts is mended; a test names it to vLLM.

vLLM 0.32 for CPUs without Triton leaves temperature, top-k and top-p of drafted tokens unwritten
(https://github.com/vllm-project/vllm/issues/55005), so what is sampled with any drafts is noise. To test that our
drafts keep the distribution, the worker that imports this module spreads them itself.
"""

from __future__ import annotations

import torch
from vllm.v1.sample import rejection_sampler

from draftwood.engines.vllm import Proposer as _Proposer


def _expand(x, cu_num_tokens, num_tokens, replace_from=0, replace_to=0):
    """What ``expand_batch_to_tokens`` promises: each request's value for each of its drafted tokens."""
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1)).to(torch.int64)
    return torch.where(x == replace_from, replace_to, x).repeat_interleave(counts, output_size=num_tokens)


rejection_sampler.expand_batch_to_tokens = _expand


class Proposer(_Proposer):
    """Found by its name."""
