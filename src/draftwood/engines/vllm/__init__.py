"""Drafts inside vLLM, which reads the texts and checks the drafts itself.

``--speculative-config '{"method": "custom_class", "model": "draftwood.engines.vllm.Proposer", ...}'``
"""

from draftwood.engines.vllm.proposer import Proposer as Proposer
