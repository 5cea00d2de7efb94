"""Sources with a question each, the first twelve: name, question, words of the answer, source."""

from __future__ import annotations

CASES: tuple[tuple[str, str, str, str], ...] = (
    (
        "lake-orrin",
        "Why is the water of Lake Orrin green in summer?",
        "fine rock dust that the meltwater carries down from the glacier",
        """
        Lake Orrin is a mountain lake in the northern part of the Varde range. It lies at a height of 1,412
        metres, is 3.8 kilometres long and reaches a depth of 96 metres near its western shore. The lake is
        fed by the Skarn glacier and by two smaller streams; its only outlet is the river Ebb, which leaves
        it over a waterfall at the eastern end.

        In winter the lake is clear and almost black. In summer its water is green, which is caused by fine
        rock dust that the meltwater carries down from the glacier. The dust stays afloat for weeks and
        scatters the light. Swimmers are rare, because the temperature seldom rises above eleven degrees.

        The first hut on the shore was built by shepherds. A road was opened in 1931, and since 1974 the lake
        and the surrounding forest have been a nature reserve. Three kinds of fish live in the lake, of
        which the Orrin char is found nowhere else.
        """,
    ),
    (
        "tarn-release",
        "Which command replaces `tarn push --all` in Tarn 4.2?",
        "use `tarn sync` instead",
        """
        Tarn 4.2 release notes

        Tarn is a command line tool that copies folders between computers. Version 4.2 brings faster
        transfers and removes several old options. It runs on all systems on which version 4.1 ran.

        New
        - Transfers are resumed after a lost connection. Tarn keeps a small journal next to the target folder
        and deletes it when the transfer is complete.
        - The option `--limit` accepts a rate such as `2M` and applies to all connections together.
        - `tarn status` shows the remaining time.

        Changed
        - File hashes are now computed in parallel. On a computer with eight cores, checking a large folder
        takes about a quarter of the time.
        - The default port is 7411. The old port still works, but a warning is printed.

        Removed
        - `tarn push --all` has been removed; use `tarn sync` instead, which also deletes files that no
        longer exist at the source if `--mirror` is given.
        - The configuration file in the old format is no longer read. Run `tarn migrate` once to convert it.
        """,
    ),
    (
        "kettle",
        "How often should the kettle be descaled if the water is hard?",
        "once every four weeks",
        """
        Brindle K3 electric kettle

        The Brindle K3 boils one litre of water in less than three minutes. Its double wall keeps the water
        hot for about forty minutes and stays cool enough to touch. The lid opens wide, so that the inside is
        easy to clean, and the filter in the spout can be taken out without tools.

        Four temperatures can be chosen with the ring at the base: 60 degrees for baby food, 80 degrees for
        green tea, 95 degrees for coffee, and boiling. The kettle remembers the last choice. It switches
        itself off when it is lifted from the base or when there is not enough water in it.

        Care: rinse the kettle before the first use and throw the first filling away. In regions with soft
        water, descale it twice a year. If the water is hard, descale it once every four weeks. Use citric
        acid, not vinegar, because vinegar damages the seal of the lid.
        """,
    ),
    (
        "museum",
        "On which day is the museum free of charge?",
        "On the first Thursday of the month",
        """
        Visit the Museum of Clocks in Alderhaven

        The museum shows more than nine hundred clocks from five centuries, from sundials and sand glasses to
        the first clocks controlled by a crystal. The heart of the collection is the workshop of the Menn
        family, who built tower clocks in this house for four generations. At noon a guide starts the great
        clock of the old customs house, and all visitors are welcome to watch.

        Opening hours: Tuesday to Sunday from ten to five o'clock. The museum is closed on Mondays and in the
        last two weeks of January. The last entry is forty-five minutes before closing.

        Tickets: adults 9 crowns, students 5 crowns, children under twelve free. Groups of ten or more pay 7
        crowns each and are asked to book a week ahead. On the first Thursday of the month, the museum is
        free of charge for everyone and stays open until nine in the evening.
        """,
    ),
    (
        "marsh-heron",
        "What does the dusk heron eat in winter?",
        "In winter, when the ponds are frozen, it lives mainly on mice and voles",
        """
        The dusk heron is a wading bird of medium size that breeds in reed beds and flooded forests. Adults
        are 58 to 66 centimetres long and have a wingspan of about one metre. The back is slate grey, the
        belly is pale, and a thin white line runs from the bill over the eye. Males and females look alike,
        but young birds are brown and lack the line.

        The bird hunts in the last hour before dark. It stands without moving in shallow water and stretches
        one wing forward, so that small fish seek shelter in its shade. In summer it eats fish, frogs and
        large insects. In winter, when the ponds are frozen, it lives mainly on mice and voles that it
        catches in open fields.

        Pairs build a flat nest of reeds close to the water. The female lays three or four eggs in April, and
        both parents keep them warm for 25 days. The young leave the nest after six weeks. The number of dusk
        herons has grown since the draining of marshes was stopped, and about 2,300 pairs were counted in the
        last survey.
        """,
    ),
    (
        "library-rules",
        "What happens if a book is lost?",
        "the reader pays its price and a fee of 3 crowns",
        """
        Rules of the town library of Fennick

        Every resident of the town can have a library card. The card is free for children, pupils and
        students; all other readers pay 12 crowns a year. Please bring a document with your address when you
        apply. A card is personal and must not be lent to others.

        Loans
        - Books may be kept for four weeks, films and games for one week.
        - A loan can be extended twice, unless another reader has reserved the item.
        - Up to fifteen items can be borrowed at the same time.

        Fees
        - For each item that is late, 20 cents are charged per day, but never more than 6 crowns.
        - If a book is lost, the reader pays its price and a fee of 3 crowns for the work of replacing it.
        - Small damage is repaired free of charge. Please do not repair books yourself with adhesive tape.
        """,
    ),
    (
        "bridge",
        "Why was the Hallam Bridge closed for two years?",
        "because rust was found in the cables of the southern span",
        """
        The Hallam Bridge is a road and tram bridge over the river Wend in the city of Tolmere. It connects
        the old town with the harbour district and is 418 metres long. With about 31,000 vehicles a day it is
        the busiest of the five bridges of the city.

        A first bridge of wood stood at the same place until it was destroyed by drifting ice in 1862. The
        present bridge was designed by the city's own building office and was opened in 1908. Its two towers
        are made of granite; the deck hangs from steel cables.

        In 1987 the bridge was closed for two years because rust was found in the cables of the southern
        span. All 144 hangers were replaced, and the deck was made lighter so that trams could continue to
        use it. In 2015 one lane in each direction was turned into a cycle path.
        """,
    ),
    (
        "battery-faq",
        "At what charge should the battery be stored over the winter?",
        "charge it to about 60 percent",
        """
        Questions and answers about the battery of your Rowan cargo bike

        How far can I ride? With a light load on flat ground, one charge lasts for up to 85 kilometres.
        Hills, cold weather and heavy loads reduce the distance. With two children in the box, most owners
        report between 45 and 55 kilometres.

        How do I store the battery? If you do not ride in winter, take the battery out of the frame, charge
        it to about 60 percent and keep it in a dry room between 5 and 20 degrees. Check it every two months.
        Never store it empty, because a deep discharge can damage the cells for good.

        When should I replace it? After about 900 full charges the battery still holds around 70 percent of
        its first capacity. Bring old batteries to your dealer, who is obliged to take them back.
        """,
    ),
    (
        "cheese",
        "What gives Morvel cheese its blue rind?",
        "The blue rind comes from the ash of juniper wood",
        """
        Morvel is a semi-hard cheese made from the milk of sheep. It comes from the valley of the same name,
        where it has been made on summer pastures for at least three hundred years. A wheel weighs between 4
        and 5 kilograms and has a diameter of about 26 centimetres.

        The fresh milk is warmed to 33 degrees and thickened with rennet. The curd is cut to the size of
        hazelnuts, pressed into moulds for a night and then laid in brine for two days. After that the wheels
        are rubbed with a mixture of salt and ash. The blue rind comes from the ash of juniper wood, which
        also keeps insects away. The cheese ripens in caves for five to nine months and is turned weekly.

        Young Morvel is mild and a little sour; after eight months it becomes crumbly and tastes of nuts. It
        is eaten with dark bread and pears, or melted over potatoes. Around 40 farms make it today.
        """,
    ),
    (
        "config-docs",
        "What does the server do when the value of `cache_mb` is 0?",
        "With the value 0 the cache is switched off and every page is read from disk",
        """
        Pebble server: settings

        Pebble reads its settings from the file `pebble.conf` in the folder from which it is started. Each
        line holds one name and one value, separated by an equals sign. Lines that begin with a hash sign are
        comments. After a change the server has to be restarted, with the exception of `log_level`, which is
        read again every minute.

        - `port`: the number of the port on which the server listens. The default is 8090.
        - `root`: the folder that holds the pages. It must exist, otherwise the server stops with code 3.
        - `cache_mb`: the size of the page cache in megabytes. The default is 64. With the value 0 the cache
        is switched off and every page is read from disk.
        - `threads`: the number of worker threads. If it is left out, one thread per processor core is used.
        - `log_level`: one of `quiet`, `normal` and `debug`. The default is `normal`.
        - `timeout_s`: the number of seconds after which an idle connection is closed. The default is 30.
        """,
    ),
    (
        "comet",
        "When will Comet Halden-Ruys return?",
        "its next return is expected in the autumn of 2061",
        """
        Comet Halden-Ruys is a periodic comet with an orbital period of 43 years. It is named after the two
        observatories whose photographic plates first showed it in February 1932, a few hours apart. At its
        closest point it comes within 0.9 astronomical units of the sun; at its farthest point it is well
        beyond the orbit of Saturn.

        The nucleus is about 4 kilometres across and turns once in 17 hours. It is as dark as coal and loses
        a layer of roughly one metre at each passage. In most returns the comet can be seen only with
        binoculars. The passage of 1975 was an exception: a large piece broke off, and for nine days the
        comet was visible to the naked eye, with a tail as long as the handle of the Big Dipper.

        The comet last passed the sun in 2018, when it was observed mainly from the southern hemisphere, and
        its next return is expected in the autumn of 2061.
        """,
    ),
    (
        "allotment",
        "Who has to water the shared herb bed in August?",
        "in August the tenants of plots 21 to 30",
        """
        Notice to all tenants of the Millbrook allotments

        The water pipe has been repaired, and all taps are working again. Please report leaks to the office
        at once, because last year a third of the water was lost. Hoses may be used only before nine in the
        morning and after seven in the evening. Rain barrels may be filled from the taps on Sundays.

        The shared herb bed next to the gate needs regular watering. In June it is watered by the tenants of
        plots 1 to 10, in July by the tenants of plots 11 to 20, and in August the tenants of plots 21 to 30
        are asked to do it. Everybody may pick herbs for their own kitchen, but not for sale.

        The summer party takes place on the second Saturday of July. Please bring your own plates and a salad
        or a cake. The committee provides drinks and a tent. The party starts at three and ends at ten, so
        that the neighbours can sleep.
        """,
    ),
)
