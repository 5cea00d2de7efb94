"""Everyday questions without a source: there is nothing in the prompt to copy from."""

from __future__ import annotations

from collections.abc import Iterator

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("rainbow", "Why do we see a rainbow after the rain? Explain it to a ten-year-old child."),
    (
        "weekend-trip",
        "Plan a weekend trip by train for two people who like museums, old bridges and good bread. "
        "Give me a short plan for each day.",
    ),
    (
        "day-off-email",
        "Write a polite email to my manager in which I ask for a day off next Friday because I am moving "
        "to a new flat. Keep it under 120 words.",
    ),
    ("lighthouse-story", "Tell me a short story about a lighthouse keeper who finds a message in a bottle."),
    (
        "better-sleep",
        "I often lie awake at night. Give me five simple habits that may help me to sleep better.",
    ),
    (
        "sourdough",
        "How do I bake a simple sourdough loaf at home? List the ingredients first and then the steps.",
    ),
    (
        "learn-guitar",
        "I want to learn the guitar, but I only have twenty minutes a day. Make me a plan for the first month.",
    ),
    (
        "list-or-tuple",
        "What is the difference between a list and a tuple in Python? Show one short example of each.",
    ),
    (
        "noisy-neighbour",
        "My neighbour plays loud music late in the evening. How can I talk to him about it and stay friendly?",
    ),
    ("compound-interest", "Explain compound interest with an example that uses small round numbers."),
    (
        "birthday-speech",
        "Write a short and warm speech for the seventieth birthday of my grandmother, who loves her garden.",
    ),
    (
        "bike-or-bus",
        "I live six kilometres from work. Compare going by bicycle with going by bus, and tell me which one "
        "you would choose and why.",
    ),
)


def items() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each prompt.

    Yields
    ------
    tuple of str
        A short name, and the question.
    """
    yield from QUESTIONS
