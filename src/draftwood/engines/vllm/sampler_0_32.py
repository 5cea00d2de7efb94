"""A defect of vLLM 0.32's sampler on CPUs, and its remedy. Private to vLLM.

With any speculation, temperature, top-k and top-p of drafted tokens come from memory that nothing was written to
(`vLLM issue 55005 <https://github.com/vllm-project/vllm/issues/55005>`_): sampled texts are noise, and so are
greedy ones that share a batch with them.
"""

from __future__ import annotations

import sys
from typing import Any

_MODULE, _FUNCTION, _PLATFORMS = "vllm.v1.sample.rejection_sampler", "expand_batch_to_tokens", "vllm.platforms"


def mend() -> bool:
    """Replace the function that has the defect, if it has; returns whether it had.

    vLLM's own function is tried first, so a version without the defect is left as it is; so are GPUs.
    """
    module: Any = sys.modules.get(_MODULE)
    platforms: Any = sys.modules.get(_PLATFORMS)
    if not hasattr(module, _FUNCTION) or platforms is None or not platforms.current_platform.is_cpu():
        return False
    torch = module.torch
    given, ends = torch.tensor([0.5, 0.25, 0.0]), torch.tensor([2, 2, 3], dtype=torch.int32)
    if getattr(module, _FUNCTION)(given, ends, 3, 0, 1).tolist() == [0.5, 0.5, 1.0]:
        return False

    def expand_batch_to_tokens(
        x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: int = 0, replace_to: int = 0
    ) -> Any:
        counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1)).to(torch.int64)
        replaced = torch.where(x == replace_from, replace_to, x)
        return replaced.repeat_interleave(counts, output_size=num_tokens)

    setattr(module, _FUNCTION, expand_batch_to_tokens)
    return True
