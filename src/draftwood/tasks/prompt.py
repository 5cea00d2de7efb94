"""What a workload is made of: prompts, as chat messages or as plain text."""

from __future__ import annotations

from dataclasses import dataclass

Message = dict[str, str]

Content = tuple[Message, ...] | str
"""Chat messages, or plain text that is used without a template."""


@dataclass(frozen=True)
class Prompt:
    """One prompt of a workload, with the sampling that it is meant for."""

    task: str  # the name by which it was asked for: a kind, or a variant such as "chat@0.7"
    name: str  # unique within its kind
    messages: tuple[Message, ...] = ()  # with the keys role and content; empty for plain text
    text: str | None = None  # plain text to be continued without a template; None if there are messages
    temperature: float = 0.0
    top_p: float | None = None

    @property
    def content(self) -> list[Message] | str:
        """The messages as a list, or the text, as :func:`draftwood.generate` takes them."""
        return list(self.messages) if self.text is None else self.text


def asked(text: str) -> tuple[Message, ...]:
    """Return a conversation that a user has just begun with this text."""
    return ({"role": "user", "content": text},)
