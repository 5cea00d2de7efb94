"""Stories, poems and other inventions: nothing to copy from, and meant to be sampled."""

from __future__ import annotations

from collections.abc import Iterator

from draftwood.tasks.prompt import Content, asked

REQUESTS: tuple[tuple[str, str], ...] = (
    ("clockmaker", "Write a short story about a clockmaker who builds a clock that runs backwards."),
    ("harbour-poem", "Write a poem of three stanzas about a fishing harbour before sunrise."),
    ("dragon-complaint", "Write a letter of complaint from a dragon to the knight who keeps waking it up."),
    (
        "last-tree",
        "Tell the story of the last apple tree in a city of glass, and of the girl who waters it at night.",
    ),
    ("sea-shanty", "Write a sea shanty with a chorus about a cook who has lost his only spoon."),
    (
        "train-dialogue",
        "Write a dialogue between two strangers on a night train who slowly find out that they have met before.",
    ),
    ("robot-diary", "Write three diary entries of a robot that has been left alone in a greenhouse."),
    ("haiku-seasons", "Write four haiku, one for each season, all set in the same small kitchen."),
    ("island-legend", "Invent a legend that explains why an island in the north has no shadow at noon."),
    (
        "detective-baker",
        "Begin a detective story in which the detective is a baker and the clue is a loaf of rye.",
    ),
    ("moon-lullaby", "Write a lullaby that the moon sings to the tide."),
    ("time-post", "Describe an ordinary working day at a post office that delivers letters to the past."),
    ("ghost-tenant", "Write a funny short story about a ghost that has to find a new flat."),
    ("winter-sonnet", "Write a sonnet about walking home through fresh snow."),
    ("two-kings", "Write a fable about two kings who quarrel over a well, and give it an ending that surprises."),
    ("market-monologue", "Write the monologue of an old woman who sells mirrors at a market."),
    ("deep-station", "Begin a science fiction story in a research station at the bottom of the sea."),
    ("cat-rules", "Write the house rules of a cat that believes it owns the hotel."),
    ("lost-colour", "Tell a story in which one colour disappears from the world overnight."),
    ("violin-ballad", "Write a ballad about a violin that is passed from hand to hand through five cities."),
    ("first-rain", "Describe the first rain after a long drought, as seen by a beetle."),
    (
        "library-heist",
        "Write the opening scene of a heist in which the thieves want to put a stolen book back on its shelf.",
    ),
    ("toast-rhyme", "Write a rhyming toast for the wedding of a juggler and an accountant."),
    ("desert-letter", "Write a letter from a traveller in the desert to a friend who has never left the coast."),
    (
        "mapmaker",
        "Tell the story of a mapmaker who draws a village that does not exist, until somebody writes from it.",
    ),
    ("superhero-power", "Invent a superhero with a useless power, and tell how the power saves the day once."),
)


def items() -> Iterator[tuple[str, Content]]:
    """Yield the name and the messages of each prompt.

    Yields
    ------
    tuple of str and messages
        A short name, and the request.
    """
    for name, request in REQUESTS:
        yield name, asked(request)
