"""What a workload is made of: prompts, as chat messages or as plain text."""

from __future__ import annotations

from dataclasses import dataclass

Message = dict[str, str]

Content = tuple[Message, ...] | str
"""Chat messages, or plain text that is used without a template."""


@dataclass(frozen=True)
class Prompt:
    """One prompt of a workload, with the sampling that it is meant for.

    Attributes
    ----------
    task
        The name by which it was asked for: a kind, or a variant of one such as ``"chat@0.7"``.
    name
        A short name, unique within its kind.
    messages
        Chat messages with the keys ``role`` and ``content``, ready for a chat template; empty for plain text.
    text
        Plain text to be continued without a template; ``None`` if there are messages.
    temperature
        The temperature to sample at; 0 is greedy.
    top_p
        The mass of the most likely tokens to sample from; ``None`` for all.
    """

    task: str
    name: str
    messages: tuple[Message, ...] = ()
    text: str | None = None
    temperature: float = 0.0
    top_p: float | None = None

    @property
    def content(self) -> list[Message] | str:
        """The messages as a list, or the text: what :func:`draftwood.generate` takes as a prompt."""
        return list(self.messages) if self.text is None else self.text


def asked(text: str) -> tuple[Message, ...]:
    """Return a conversation that a user has just begun with this text."""
    return ({"role": "user", "content": text},)
