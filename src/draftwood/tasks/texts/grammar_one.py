"""Paragraphs to plant mistakes in, the first twelve."""

from __future__ import annotations

PARAGRAPHS: tuple[tuple[str, str], ...] = (
    (
        "bread",
        """
        Good bread needs only flour, water, salt and time. The baker mixes the dough in the evening, covers
        the bowl with a cloth and leaves it in a cool place overnight. By the morning, the surface is full of
        small bubbles, and the dough has doubled in size. It is then folded, shaped into a loaf and left to
        rest again while the oven heats up. A hot stone and a little steam are enough to give the crust its
        colour. The hardest part is waiting until the loaf has cooled before cutting it.
        """,
    ),
    (
        "tides",
        """
        Twice a day, the sea rises along the shore and falls back again. The tides are caused by the moon,
        which pulls on the water of the oceans, and by the turning of the earth. When the sun and the moon
        are in line, the pull is stronger, and the difference between high and low water is larger than
        usual. In a narrow bay, the water has nowhere to spread, so the level can change by more than ten
        metres. Sailors have studied these patterns for centuries, and every harbour keeps a table of the
        times.
        """,
    ),
    (
        "library",
        """
        The library in our town was built beside the old mill. On the ground floor, there are novels,
        newspapers and a corner for children, where a volunteer reads stories on Saturday mornings. The upper
        floor is quieter, because students prepare for their exams there. Last year, the council bought
        twenty new computers, and since then the rooms have been full until the evening. Anyone can borrow up
        to six books for a month. If a book is returned late, the reader pays a small fee, which is used to
        repair damaged covers.
        """,
    ),
    (
        "bicycle",
        """
        A bicycle that is cleaned regularly lasts much longer than one that is neglected. After a ride in the
        rain, the chain should be wiped with a dry cloth and oiled lightly. The brakes are easy to check: if
        the lever touches the handlebar, the cable has become too loose. Tyres lose a little air every week,
        so it is worth keeping a pump near the door. When the gears begin to jump, the cause is usually a
        bent hanger or a worn chain. Most of these repairs take less than an hour.
        """,
    ),
    (
        "owls",
        """
        Owls are silent hunters of the night. Their feathers have a soft fringe, which breaks up the air and
        makes each wing beat almost impossible to hear. The eyes of an owl are fixed in its skull, so the
        bird has to turn its whole head to look around. Its ears are placed at different heights, and this
        helps it to find a mouse under the snow. During the day, the owl is hard to see, because its plumage
        was made for hiding among the branches.
        """,
    ),
    (
        "meeting",
        """
        The meeting on Tuesday was shorter than expected. Our manager explained that the delivery has been
        moved to the end of the month, because two parts are still missing. The team in the workshop was
        relieved, since the old date had left no time for testing. We agreed that the manual is going to be
        rewritten, and that a new drawing will be sent to the customer before the weekend. There were three
        open questions, which are listed at the bottom of the minutes. The next meeting is planned for the
        first Monday in March.
        """,
    ),
    (
        "glass",
        """
        Glass is made from sand, soda and lime, which are melted together in a furnace. The mixture becomes a
        thick, glowing liquid that can be blown, pressed or poured. A glassblower gathers a small amount on
        the end of a long pipe, turns it slowly and blows a bubble into it. While the material is hot, it has
        the softness of honey, but within a minute it is hard again. Finished pieces are cooled over many
        hours, because a sudden change of temperature would crack them.
        """,
    ),
    (
        "village-festival",
        """
        Every summer, the village holds a festival on the meadow behind the church. In the afternoon, there
        are races for the children, and the fire brigade shows its oldest engine. Long tables are placed
        under the chestnut trees, and each family brings a dish to share. When the sun has gone down, a small
        band plays music, and even the people who are too shy to dance tap their feet. My grandfather has
        never missed a single festival. He says that the soup was better in the past, but he always takes a
        second bowl.
        """,
    ),
    (
        "maps",
        """
        A map is always a choice about what to leave out. The plan of a subway ignores the true distances,
        because a passenger only wants to know where to change trains. A map for hikers has lines of equal
        height, which are close together where the slope is steep. Sailors need the depth of the water, while
        pilots are interested in towers and mountains. No single sheet can show everything, and a good map is
        one that answers a clear question. For that reason, the legend is the first thing to read.
        """,
    ),
    (
        "coffee",
        """
        Coffee is grown in warm countries, usually on hills where the nights are cool. The fruit of the plant
        looks like a cherry, and each cherry has two seeds inside. After the harvest, the seeds are washed,
        dried in the sun and packed into heavy sacks. Their flavour is hidden until they are roasted. A light
        roast keeps the taste of the fruit, while a dark roast is bitter and a little smoky. Freshly ground
        coffee loses its scent quickly, so it is better to grind a small amount every morning.
        """,
    ),
    (
        "chess",
        """
        Chess is a game in which nothing is hidden, and yet it is full of surprises. Both players have the
        same pieces, and both can see the whole board. A beginner often moves the queen too early, because it
        is the strongest piece. An experienced player develops the knights and the bishops first, brings the
        king into safety and waits for a weakness. Many games are decided by a single careless move. It is
        useful to ask one question before every turn: what does my opponent want to do next?
        """,
    ),
    (
        "snow",
        """
        Fresh snow is an excellent blanket for the garden. Between the crystals there is a great deal of air,
        which has the same effect as the filling of a warm coat. Under a thick layer, the ground is rarely
        frozen, and the bulbs of the spring flowers are protected from the wind. Small animals have known
        this for a long time: they dig tunnels along the surface of the soil and look for seeds. When the
        snow has melted, the paths of these tunnels are visible in the grass for several weeks.
        """,
    ),
)
