"""Prompts for measuring and testing draftwood on a small instruct model; always the same ones.

There are nine kinds, from answers that copy most of their input (``code-edit``, ``completion``) over answers that
reuse some of it (``summary``, ``web-qa``, ``agent``) to answers with nothing to copy (``chat``, ``creative``), and
``code-suite``, five pieces of unfinished code for a quick look.
"""

from draftwood.tasks.looped import looped_tail
from draftwood.tasks.prompt import KINDS, Prompt, prompts

__all__ = ["KINDS", "Prompt", "looped_tail", "prompts"]
