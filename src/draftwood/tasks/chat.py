"""Everyday questions without a source: there is nothing in the prompt to copy from."""

from __future__ import annotations

from collections.abc import Iterator

from draftwood.tasks.prompt import Content, asked

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
    (
        "houseplants",
        "The leaves of my houseplants turn yellow every winter. What are the usual causes and what can I do?",
    ),
    ("vaccines", "How does a vaccine teach the body to fight a disease it has never met?"),
    (
        "first-interview",
        "I have my first job interview on Thursday. Which three questions should I prepare for, and how?",
    ),
    (
        "budget",
        "Help me to set up a simple monthly budget for a student who earns 900 a month and pays 380 in rent.",
    ),
    (
        "picnic-game",
        "Suggest a game that eight people from six to seventy years can play at a picnic without any equipment.",
    ),
    ("git-rebase", "When should I use git merge and when git rebase? Answer for someone who works alone."),
    (
        "cat-carrier",
        "My cat hides as soon as she sees the carrier. How can I get her to the vet without a fight?",
    ),
    ("seasons", "Why is it warmer in summer although the earth is not closer to the sun?"),
    (
        "thank-you-note",
        "Write a short thank-you note to a teacher who stayed after class for weeks to help me with chemistry.",
    ),
    (
        "old-laptop",
        "My laptop is eight years old and slow. Would more memory, a new disk or a new computer help most?",
    ),
    ("regex-date", "Explain step by step a regular expression that matches dates such as 2024-03-09."),
    (
        "moving-abroad",
        "My friend wants to move abroad for a year but is afraid of being lonely. What would you tell her?",
    ),
    ("power-nap", "Is a short nap after lunch a good idea, and how long should it be?"),
)


def items() -> Iterator[tuple[str, Content]]:
    """Yield the name and the messages of each prompt.

    Yields
    ------
    tuple of str and messages
        A short name, and the question.
    """
    for name, question in QUESTIONS:
        yield name, asked(question)
