"""A drafter of your own in a few lines, checked against the contract and used like any other.

python examples/own_drafter.py
"""

from dataclasses import dataclass

import draftwood
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.testing import check_drafter


@dataclass(frozen=True)
class Echo(BaseDrafter):
    """Proposes that the last ``period`` tokens come once more."""

    name = "echo"
    period: int = 4

    def open(self, prompt, noise):
        return EchoSession(self, prompt)


class EchoSession(TextSession):
    def __init__(self, drafter, prompt):
        self.period = drafter.period
        super().__init__(prompt)

    def draft(self, nodes, lookahead_nodes, accept_rates):
        return draftwood.TokenTree.build(self.text[-self.period :][:nodes].copy(), belief=accept_rates[0])


check_drafter(Echo())
model, tokenizer = draftwood.load("smollm2")
answer = draftwood.generate(
    model,
    "one two three four one two three four",
    tokenizer=tokenizer,
    drafters=["ngram", Echo()],
    max_new_tokens=40,
)
print(answer.text)
print({source: answer.sources.count(source) for source in set(answer.sources)})
