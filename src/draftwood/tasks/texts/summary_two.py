"""Texts to summarise, the second half."""

from __future__ import annotations

TEXTS: tuple[tuple[str, str], ...] = (
    (
        "tide-power",
        """
        The narrow strait between the islands of Hove and Little Hove has one of the strongest tidal currents
        of the coast. Four times a day, the water rushes through it at up to twelve kilometres an hour. For
        ten years a company has tried to turn this current into electricity, and this spring the third
        version of its turbine was lowered to the sea bed.

        The first turbine broke within a month, because floating timber had been pulled into the blades. The
        second one was protected by a grid, but the grid collected so much seaweed that the blades stood
        still. The new turbine has no grid. Its blades are short and blunt, they turn slowly, and they can be
        folded back when a camera sees something large in the water.

        So far the machine supplies about three hundred homes. That is less than a single wind turbine on the
        hill would deliver, as critics are quick to point out. The company answers that the tide, unlike the
        wind, can be predicted for years ahead. The island's ferry is to be charged at night from the strait,
        whatever the weather. Whether a fourth version will be built depends on how much of the third one is
        left after the storms of the coming winter.
        """,
    ),
    (
        "shared-kitchen",
        """
        When the bakery in Lindholm closed, its owner could not find a buyer. The ovens were good, but nobody
        wanted to get up at two in the morning. After a year of empty windows, six people from the village
        made her an offer: they would not take over the bakery, but they would rent the kitchen by the hour.

        Today fourteen small businesses share the room. On Mondays a retired teacher makes jam, and on
        Tuesdays two brothers cook curry for three offices in the next town. A family bakes flat bread twice
        a week. On Saturday the kitchen belongs to the children's cooking club. A calendar on the wall shows
        who is in charge of cleaning, and there is a fine of one cake for everyone who forgets it.

        None of the fourteen could have paid for a kitchen of their own that meets the rules for food sold to
        the public. Together they pay the owner slightly more than a single baker did. The arrangement is not
        without conflict. The smell of fish once spoiled a batch of meringues, and since then fish has been
        allowed only on Thursdays. The owner, who is seventy-one, has begun to come back on Fridays. She
        bakes the rye bread that people missed, forty loaves, and she starts at nine.
        """,
    ),
    (
        "moth-count",
        """
        Counting moths is simple. A white sheet is hung between two trees, a lamp is placed behind it, and
        whatever settles on the cloth is photographed. Since 1983 a group of amateurs has done this on the
        same eight evenings of the year at the edge of the Tarrow forest, and their notebooks have become
        more valuable than anyone expected.

        The notebooks show that the number of moths has fallen by a little more than a third. The loss is not
        spread evenly. Moths whose caterpillars feed on many plants are as common as ever, while those that
        depend on a single plant have become rare. Eleven kinds have not been seen for ten years. On the
        other hand, seven kinds from the south have arrived, most of them since 2010.

        A biologist who studied the records warns against simple conclusions. The lamp was replaced twice,
        and the new street lights along the road may draw moths away. But the dark side of the forest, where
        there is no road, shows the same decline. She suspects the mowing of the meadows, which now takes
        place in June instead of August. The group has asked the county to leave two meadows uncut for five
        years. The sheet and the lamp will be there to measure whether it helps.
        """,
    ),
    (
        "wrong-suitcase",
        """
        At the station in Brell, Jonas took the wrong suitcase. He did not notice it until he stood in his
        hotel room and found, instead of his suits, eleven pairs of wooden puppets wrapped in newspaper. The
        suitcase had no name on it, only a sticker of a theatre that had closed many years ago.

        His own suitcase held the papers for a meeting on the next morning. He called the railway, the police
        and the lost property office, and nobody had heard of it. In the evening, because there was nothing
        else to do, he hung the puppets over the curtain rail and looked at them. There was a king without a
        hand, a crocodile, and a small woman in a blue dress who looked a little like his grandmother.

        At eight o'clock the telephone rang. An old man, rather out of breath, had read the name on the
        papers and called every hotel in town. He was on his way to a hospital, where he was to play for the
        children in the morning. They met halfway, under the clock of the town hall, and exchanged the
        suitcases. The meeting went well. But when Jonas is asked today about his journey to Brell, he speaks
        only about the performance, for which he had postponed his train by four hours.
        """,
    ),
    (
        "quiet-asphalt",
        """
        Most of the noise of a fast road does not come from engines but from tyres. Air is pressed out of the
        gaps between the rubber and the road and rushes back a moment later, thousands of times a second. A
        road surface with many small holes gives the air a way to escape, and the noise is reduced by about
        half. Such asphalt has been known since the eighties, but few towns have used it, because the holes
        fill with dirt and the surface breaks up in hard winters.

        The town of Estrup has now tested a new mixture on two kilometres of its ring road. It contains
        ground rubber from old tyres, which keeps the surface elastic in the cold. A cleaning machine presses
        water into the holes twice a year and sucks it out again.

        After three winters the surface is intact. Measurements beside the road show that it is still four
        decibels quieter than ordinary asphalt; when it was new, the difference was six. The mixture costs a
        third more, and with the cleaning it is about twice as expensive over its lifetime. Even so, it is
        much cheaper than a wall, which would also have taken the view from the houses along the road. Next
        year the remaining five kilometres are to be replaced, beginning at the school.
        """,
    ),
    (
        "evening-school",
        """
        Two evenings a week, the lights in the secondary school of Marden stay on until ten. Forty adults
        between nineteen and sixty-four come to learn what they missed or have forgotten. Some of them want a
        certificate in order to begin a training. Others simply could not bear any longer that their children
        asked questions about fractions that they were unable to answer.

        The school was founded by a mathematics teacher, who had noticed that many parents avoided the
        meetings about homework. She began with one room and nine people. The lessons are deliberately
        different from those in the morning. Nobody is called to the board, and everyone works on a problem
        from their own life: a loan, the area of a roof, the dose of a medicine. Only then is the rule behind
        it explained.

        About half of those who begin leave again before the end of the year, mostly because of shift work or
        sick children. The school has reacted by splitting the subjects into blocks of six weeks, which can
        be taken in any order and repeated without a fee. Since then the share of people who finish has risen
        from fifty to seventy percent. The oldest student passed her examination in June. She has already
        signed up again, this time to help in the beginners' class.
        """,
    ),
    (
        "seed-vault",
        """
        In the cellar of the agricultural college in Oakmere there is a room that is kept at eighteen degrees
        below zero. On its shelves stand about twelve thousand small bags, each of which holds the seeds of
        one variety of grain, bean or vegetable. Most of these varieties are no longer grown anywhere.

        The collection was begun in 1951 by a botanist who asked farmers for a handful of whatever their
        grandparents had planted. Many of the old varieties give a poor harvest, but some can survive a wet
        summer or a disease that kills modern plants. Breeders come to search for such properties and cross
        them into new varieties. A short-stemmed barley that is now common in the region has a grandmother in
        this cellar.

        Seeds do not live for ever, even in the cold. Every ten to twenty years a sample of each variety has
        to be sown, harvested and dried, so that fresh seeds can be put back on the shelf. With three
        employees, the college is able to renew four hundred varieties a year, and the list of those that are
        overdue has grown long. Since last year, hobby gardeners have been helping. They receive twenty
        seeds, grow them under written rules and send back at least a hundred. In the first season, nine out
        of ten parcels were good enough to be kept.
        """,
    ),
    (
        "night-shift",
        """
        The bakery at the harbour produces thirty thousand rolls every night. Until recently the shift began
        at ten in the evening and ended at six in the morning, and the company had great difficulty in
        finding people for it. Of those who started, every second one had left after a year.

        Last autumn the company tried something unusual and asked the workers to write the plan themselves.
        The group discovered that not all of the work has to be done at night. The dough for the dark rolls
        can be prepared in the afternoon and rest in the cold store, and cleaning the machines can wait until
        morning. Only the baking itself is bound to the night, because the shops want their rolls warm at
        five.

        The new plan has a short night shift of five hours, which is paid like seven, and two day shifts that
        do everything else. Everyone works nights in one week out of three. The managers had feared that the
        additional handovers would cause mistakes, and in the first weeks a batch of dough was indeed
        salted twice. Since then a checklist hangs on every trough. Half a year later the number of sick days
        has fallen by a quarter, and nobody has given notice. The number of rolls is the same as before.
        """,
    ),
    (
        "stone-walls",
        """
        The fields of the upper valley are divided by dry stone walls, built without mortar. Some of them are
        four hundred years old. A well-built wall needs no care for a century, but frost, sheep and hikers
        who climb over it loosen one stone after another, and where one stone is missing the next will
        follow. About a fifth of the walls have already fallen.

        For a long time wire fences took their place. They are cheap and can be put up in a day. Then a study
        found that the walls are home to more kinds of animals than the meadows between them: lizards warm
        themselves on the southern side, weasels hunt in the gaps, and ferns grow in the shade of the
        northern side. The walls also slow down the rain water on the steep slopes.

        The valley now pays farmers for each metre that is rebuilt. As hardly anyone still knew the craft,
        three old wallers were asked to teach it. Their first rule is that a stone that has been picked up
        must be used and may not be put back, because otherwise one searches for ever. A practised waller
        builds three metres a day, a beginner less than one. The courses are booked out for two years, mostly
        by people who spend the rest of the week in front of a screen.
        """,
    ),
    (
        "radio-play",
        """
        The smallest radio station in the country broadcasts from a former signal box beside the railway line
        in Penn. It has four employees, a range of thirty kilometres, and a radio play that has been running
        for twenty-six years. Every Wednesday at seven, the inhabitants of an invented village quarrel, fall
        in love and search for a cow by the name of Duchess.

        The play was meant to fill a gap of two weeks. The station had lost the rights to a series, and a
        technician wrote some scenes overnight. When the gap was over, so many listeners called that it was
        continued. All the parts are played by people of the region. The voice of the mayor belongs to a
        plumber, and the priest is played by a woman with a cold that never quite goes away. A passing train
        is always included in the story, because it can be heard anyway.

        More than thirteen hundred episodes have been broadcast. The technician, who is now retired, still
        writes each of them on the weekend before. He has no plan for the ending. Once he tried to let the
        cow die of old age, and the station received two hundred letters in a week. In the following episode
        it turned out that the vet had confused her with her sister.
        """,
    ),
    (
        "harbour-seals",
        """
        For three summers, volunteers have counted the seals on the sandbanks off Westerhaven. They do it
        twice a month at low tide, from the same two dunes, with telescopes that the local bird society has
        lent them. The results have surprised even the biologists of the national park.

        In the first summer there were on average 140 animals. In the second there were 180, and this year
        the number rose to 231, more than at any time since the counts by aeroplane began in 1975. The share
        of pups is particularly high. The biologists see two reasons. The fishing of sand eels has been
        stopped in the bay, so that the mothers find food close by. And since the cable ferry was moved to
        the northern pier, the sandbanks are disturbed less often.

        Not everyone is pleased. The fishermen complain that seals tear fish out of their nets, and they have
        asked for permission to drive the animals away with noise. The park has refused, but it is paying for
        a trial with a stronger kind of net on six boats. In the meantime, the seals have become an
        attraction. Up to four hundred visitors a day stand on the dunes, and the volunteers now spend half
        of their time explaining that the pups lying alone on the sand are not abandoned.
        """,
    ),
    (
        "clock-restorer",
        """
        When the church clock of Aldbury stopped in November, most people did not notice it for days. They
        look at their telephones. Only the baker, who had opened his shop by its bells for thirty years, came
        too late, and he was the one who climbed the tower with the restorer from the city.

        She needed an hour to find the cause. It was not the age of the works, which date from 1784, but a
        repair from the sixties. At that time a steel pin had been put in place of one made of brass. Steel
        is harder, and over sixty years it had worn down the tooth of a wheel that had lasted for two
        centuries before. The wheel could not be bought. She made a drawing, had a new tooth cast, and fitted
        it by hand with a file no longer than a finger.

        The parish had expected a bill for a new electric drive. Instead it paid for nine days of work and a
        brass pin that costs less than a cup of coffee. The restorer left a note in the clock case, beside
        five others by her predecessors, of which the oldest is in Latin. In it she asks whoever comes next
        to use brass. Since the middle of January the bells have been ringing again, and the baker has set
        his alarm clock aside.
        """,
    ),
    (
        "paper-maps",
        """
        The last shop in the capital that sells nothing but maps has had its best year since 2006. The owner
        had planned to close it. For a decade the sales of folded road maps had fallen by a tenth every year,
        because drivers rely on the voice from the dashboard. What saved the shop was something else.

        Hikers were the first to come back. A sheet of paper needs no battery, shows a whole range of
        mountains at once and survives a fall onto a rock. After two accidents last year, in which people had
        followed a path that existed only on their screens, the mountain rescue service recommended carrying
        one. Then designers and teachers discovered the old stock in the cellar: school maps on linen, charts
        of lakes, plans of cities that no longer exist in that form. Some of these now hang framed in offices
        and cost more than a good telephone.

        The owner has adapted. A printer in the back room produces maps on request, centred on any house and
        at any scale, on paper that does not tear. They have become a popular present for weddings. Even so,
        he keeps a shelf of road maps next to the till. About one in twenty customers buys one, he says,
        usually after having told him that nobody needs them any more.
        """,
    ),
)
