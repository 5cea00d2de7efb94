"""Sources with a question each, the second half: name, question, words of the answer, source."""

from __future__ import annotations

CASES: tuple[tuple[str, str, str, str], ...] = (
    (
        "funicular",
        "Why does the Greyhorn funicular stop running in high wind?",
        "because the upper viaduct begins to sway",
        """
        The Greyhorn funicular climbs from the town of Sell to the ridge of the Greyhorn in eleven minutes.
        It was built in 1896 and is 1,640 metres long; the steepest section has a gradient of 54 percent. Two
        cars are joined by a cable, so that the car going down helps to pull the other one up. They pass each
        other in the middle, where the single track divides.

        Until 1953 the drive was powered by water. A tank under the upper car was filled at the top and
        emptied at the bottom, and the guard controlled the speed with a hand brake. Since then an electric
        motor of 320 kilowatts has done the work. The present cars, which hold 60 passengers each, date from
        1998.

        The funicular runs every twenty minutes from seven in the morning. When the wind is stronger than 80
        kilometres an hour, it is stopped because the upper viaduct begins to sway. This happens on about
        nine days a year, most of them in February. In that case the tickets are valid on the bus to the
        lower station of the chair lift.
        """,
    ),
    (
        "pdf-tool",
        "How can a user of Leaflet remove the password from a document?",
        "`leaflet unlock` asks for the password once and writes a copy without it",
        """
        Leaflet: questions that are asked often

        What is Leaflet? Leaflet is a free program for the command line that splits, joins and repairs
        documents. It does not show them; use any viewer for that.

        Can I join documents of different page sizes? Yes. Each page keeps its size. If all pages should have
        the size of the first one, add `--fit`.

        How do I remove a password that I know? The command `leaflet unlock` asks for the password once and
        writes a copy without it. The original is not changed. Passwords that you do not know cannot be
        removed, and questions about this will not be answered.

        Why has my file become larger? By default, Leaflet keeps every earlier version of a page that is
        stored in the document. With `--flatten` only the visible version is written. Form fields are then
        turned into plain text and can no longer be filled in.

        Where are the settings? On Linux they are in `~/.config/leaflet.toml`. If the file does not exist,
        the built-in values are used. A commented example is installed next to the manual page.
        """,
    ),
    (
        "sleeping-bag",
        "How should the sleeping bag be stored between trips?",
        "loosely in the large cotton sack",
        """
        Fell 300 sleeping bag: care instructions

        The Fell 300 is filled with goose down and is made for nights down to minus four degrees. A cold
        sleeper should choose the Fell 500, which has the same cut but two hundred grams more filling.

        On the road, stuff the bag into the small waterproof sack, feet first. Do not fold it, because folds
        damage the lining in the same place every time. In the evening, shake the bag and let it lie open for
        at least twenty minutes before you use it, so that the down can rise.

        At home, keep the bag loosely in the large cotton sack that is supplied with it, in a dry room. Down
        that is compressed for months loses its warmth and does not recover. After a damp night, air the bag
        over a line in the shade.

        Wash the bag no more than once every two years. Use a front-loading machine, a special soap for down
        and a temperature of 30 degrees. Rinse twice. Dry it in a large tumble dryer together with three
        clean tennis balls, which break up the lumps. This takes up to four hours. Never iron the bag, and
        never have it dry-cleaned.
        """,
    ),
    (
        "old-town-hall",
        "What was found under the floor of the council chamber in 1994?",
        "a chest with the tax books of the years 1602 to 1631",
        """
        The old town hall of Vessel stands on the north side of the fish market. Its oldest part, a cellar
        with a round vault, belonged to a salt store of the thirteenth century. The house above it was built
        in 1548 by the merchant Anselm Kray, who gave it to the town in exchange for the right to be buried
        in the choir of the church.

        The front has three gables and is decorated with figures of the four seasons. Winter, an old man with
        a brazier, lost his head in the storm of 1703; the present head was carved by a school class in 1951
        and wears glasses. The clock has only one hand.

        The council met here until 1882. Later the building was used as a school, a barracks and a store for
        potatoes. During the repairs of 1994, workers found a chest with the tax books of the years 1602 to
        1631 under the floor of the council chamber. The books, which had been thought to be burnt, are shown
        in the cellar. The chamber can be hired for weddings; the stairs to it have 42 steps and there is no
        lift.
        """,
    ),
    (
        "vaccination-dog",
        "How long before the journey must the dog be vaccinated against rabies?",
        "at least 21 days before the journey",
        """
        Travelling to the Merrow Islands with a dog

        Dogs are welcome on the Merrow Islands, but the islands have been free of rabies since 1922 and want
        to remain so. Please read these rules before you book. A dog that does not meet them is sent back on
        the next ferry at the expense of its owner.

        - The dog must carry a microchip. A tattoo is accepted only if it was made before July 2011.
        - The dog must be vaccinated against rabies at least 21 days before the journey. The vaccination has
        to be entered in the animal's passport by a vet. Puppies under twelve weeks cannot be vaccinated and
        are therefore not admitted.
        - Treatment against tapeworm is required between one and five days before arrival.
        - On the ferry, dogs stay in the car or in one of the kennels on deck 3. Kennels cost 15 crowns and
        can be reserved. Guide dogs may accompany their owners everywhere.

        Between April and July, dogs have to be kept on a lead on all beaches, because terns and plovers
        breed there. From August on they may run free, with the exception of the lagoon.
        """,
    ),
    (
        "chess-engine",
        "Which file must be deleted if Rookery does not start after an update?",
        "delete the file `hash.bin` in the data folder",
        """
        Rookery 9: notes for people who update from version 8

        Rookery is a chess program for analysis. Version 9 evaluates positions with a new network and is
        about 70 points stronger than version 8 on the same computer. The network is included in the download
        and takes up 46 megabytes.

        Before you update, export your opening books with File > Export, because the format has changed.
        Books of version 7 and older can no longer be read. Games and comments are kept.

        The size of the hash table is now given in megabytes instead of entries. The old setting is converted
        automatically, but please check it: many users will find that the new value is smaller than they
        expected. As a rule, half of the memory of the computer is enough.

        Known problems
        - If Rookery does not start after the update, delete the file `hash.bin` in the data folder. It is
        created again at the next start. No games are lost.
        - On screens with a very high resolution the coordinates of the board may be cut off. Choose View >
        Small board until this is repaired.
        - The analysis of a game with more than 300 moves stops at move 300.
        """,
    ),
    (
        "backup-manual",
        "What does the red light on the Harbour backup box mean when it blinks slowly?",
        "one of the two disks is almost full",
        """
        Harbour backup box: short manual

        The box makes a copy of all computers in your home network once a night. It contains two disks, and
        every file is stored on both of them, so that no data is lost if one of them fails.

        Setting up: connect the box to the router with the cable supplied and switch it on. After two minutes
        the light turns green. Install the program from the card on each computer and enter the number that
        is printed on the bottom of the box.

        The light
        - Green: everything is in order. Green and blinking: a backup is running.
        - Yellow: the box has had no connection to at least one computer for three days.
        - Red, blinking slowly: one of the two disks is almost full. Delete old versions in the program, or
        replace the disks by larger ones.
        - Red, blinking fast: a disk has failed. The box continues to work with the other one. Order a new
        disk of the same size and change it within a week.

        Changing a disk: the box can remain switched on. Pull out the drawer with the red mark, put in the
        new disk and wait until the light is green. Depending on the amount of data this takes from three to
        twenty hours.
        """,
    ),
    (
        "sea-grass",
        "What threatens the seagrass meadows in the Bay of Carne the most?",
        "The greatest threat is the anchors of leisure boats",
        """
        Seagrass is not an alga but a flowering plant that has returned to the sea. In the Bay of Carne it
        covers about 900 hectares between depths of two and eighteen metres. The meadows grow very slowly, by
        two to three centimetres a year, and some of them are thought to be more than a thousand years old.

        A hectare of seagrass gives shelter to young fish, crabs and seahorses. The leaves calm the waves and
        hold the sand of the beaches in place. Dead leaves pile up on the shore in autumn; they look untidy,
        but they protect the dunes from winter storms and should not be removed. In the mud beneath the
        meadows lies a large store of carbon.

        Since 1980 the bay has lost a quarter of its seagrass. Waste water from the town used to be the main
        cause, but a treatment plant has been in service since 2004. The greatest threat is the anchors of
        leisure boats, which tear out whole plants together with their roots. In 2019 the harbour office put
        out 120 fixed buoys to which boats can be moored free of charge, and anchoring on seagrass has been
        forbidden since the following summer.
        """,
    ),
    (
        "insurance-letter",
        "Within what time must a theft be reported to the insurance company?",
        "within seven days of noticing it",
        """
        Your Wren bicycle insurance at a glance

        Thank you for insuring your bicycle with us. This page explains the most important points in plain
        words; the full conditions are in the enclosed booklet.

        What is insured? The bicycle named in your certificate, including everything that is firmly attached
        to it. Bags, helmets and batteries are insured only if they are listed separately.

        Against what? Theft, attempted theft, fire, and damage by accidents and falls. Wear is not insured,
        and neither are scratches that do not affect the use of the bicycle.

        What do I have to do? Lock the frame to a fixed object with a lock from our list. Between ten in the
        evening and six in the morning, the bicycle must be in a locked room, unless it is still in use.

        What if it is stolen? Report the theft to the police at once and to us within seven days of noticing
        it. We need the number of the police report, the receipt and both keys of the lock. We pay the price
        of a new bicycle of the same kind during the first three years, and after that ten percent less for
        every further year.
        """,
    ),
    (
        "desert-fox",
        "How does the dune fox stay cool at noon?",
        "it lies in the burrow and gives off heat through its ears",
        """
        The dune fox is the smallest wild dog of the Sahl desert. It weighs a little more than one kilogram,
        and a third of its height is made up by its ears. The coat is the colour of sand, with a dark tip at
        the tail. The soles of its feet are covered with hair, which protects them from the hot ground and
        lets the animal run on loose sand without sinking in.

        Dune foxes are active at night. They eat beetles, lizards, roots and sometimes the eggs of ground
        birds. With its large ears the fox hears a beetle moving under ten centimetres of sand. It hardly
        ever drinks, as its prey holds enough water. At noon, when the air is hotter than forty-five degrees,
        it lies in the burrow and gives off heat through its ears, in which many fine blood vessels run just
        under the skin.

        The animals live in pairs and stay together for life. Two to five cubs are born in March. They leave
        the burrow after four weeks, and the young of the last year help to feed them. Dune foxes are not
        rare, but they are seldom seen, because they flee from every vibration of the ground.
        """,
    ),
    (
        "concert-hall",
        "Why does the ceiling of the concert hall consist of wooden boxes of different depth?",
        "Each depth swallows a different tone",
        """
        The concert hall on the Weir, which was opened in 2012, is known for its sound. It seats 1,150 people
        in a single room in the shape of a shoe box, 47 metres long and 21 metres wide. No seat is further
        than 34 metres from the stage.

        The architects worked with an acoustician from the first sketch on. The walls are covered with pear
        wood, into which waves of different length have been cut. They scatter the sound, so that no echo can
        arise between the long sides. The ceiling consists of 2,300 wooden boxes, which are between 8 and 60
        centimetres deep. Each depth swallows a different tone, and together they take away the dull roar
        that many halls have when the audience is small. The seats are padded in such a way that an empty
        one absorbs about as much sound as one with a person on it.

        For speech and amplified music, heavy curtains can be lowered behind the wooden grid of the side
        walls. They shorten the echo from 2.1 to 1.3 seconds. The hall stands on 88 rubber blocks, because
        the underground passes below it every four minutes.
        """,
    ),
    (
        "api-limits",
        "What does the Lantern weather service answer when a client has used up its requests?",
        "the status 429 and a header `Retry-After` with the number of seconds to wait",
        """
        Lantern weather service: limits and fair use

        Every key may send 60 requests a minute and 5,000 requests a day. Both limits are counted per key,
        not per address. A request for several places at once counts as one request for every ten places,
        rounded up.

        A client that has used up its requests receives the status 429 and a header `Retry-After` with the
        number of seconds to wait. Requests that are refused are not counted. Clients that go on sending at
        full speed for more than ten minutes are blocked until midnight.

        Forecasts are computed every three hours, at 00:20, 03:20 and so on. Asking more often gives the same
        answer, so please store it. Each answer carries the header `Expires`, and a client that respects it
        will never come near the limits. Observations of the stations are updated every ten minutes.

        Keys are free for private use and for schools. Companies need a contract if they send more than 1,000
        requests a day. The name of the service must be visible wherever its data is shown; a line of text is
        enough, and a logo is not required. Historical data can be downloaded as one file per year.
        """,
    ),
)
