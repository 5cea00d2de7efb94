"""Texts to summarise, the first twelve."""

from __future__ import annotations

TEXTS: tuple[tuple[str, str], ...] = (
    (
        "night-train",
        """
        For many years the night train seemed to be a thing of the past. Cheap flights had taken most of its
        passengers, and the old sleeping cars were expensive to heat, to clean and to repair. One railway
        after another sold its beds for scrap. Then the mood changed. People who wanted to travel without
        flying began to ask for night connections, and the few trains that were left were suddenly full.

        The railways were not prepared. A new sleeping car takes several years to design and to build, and it
        earns money only once a day, while an ordinary coach can make five or six trips between morning and
        evening. Night trains also cross borders, where the voltage, the signals and the rules for the staff
        may change. Track repairs are mostly done at night, so a sleeping train often has to wait or to take
        a longer route.

        Even so, several new lines have opened. The operators hope that small private cabins will attract
        guests who would never share a compartment with strangers. Whether the plan works will depend less on
        the mattress than on the price of the ticket and on whether the train arrives on time.
        """,
    ),
    (
        "city-trees",
        """
        A tree in a city street works hard. On a hot day its leaves release water, and the air under the
        crown can be several degrees cooler than the air above the bare asphalt. The leaves also catch dust,
        and the roots take up rain that would otherwise rush into the drains.

        Life in the street is difficult for the tree, however. The soil is pressed together by traffic, so
        there is little air for the roots. In winter, salt from the road runs into the pit. Cables and pipes
        are laid through the ground, and each time they are repaired some roots are cut. Many street trees
        live for less than a third of the years that the same kind would reach in a park.

        Some cities now plan the ground before they plant the tree. They dig a long trench instead of a small
        pit, fill it with coarse stones and good soil, and lead the rain from the roofs into it. The stones
        carry the weight of the pavement, while the gaps between them leave room for roots, water and air.
        The method costs more at the start, but the trees grow faster, need less watering and rarely lift the
        paving stones.
        """,
    ),
    (
        "lost-keys",
        """
        On Monday morning Ines could not find her keys. She looked in the bowl by the door, in the pockets of
        her three coats and under the cushions of the sofa. She was already late, so she left the door
        unlocked, asked her neighbour to keep an eye on it and ran to the bus.

        At work she could think of nothing else. In her mind she walked through the evening before: she had
        come home with two heavy bags, she had put the milk and the vegetables away, and then the telephone
        had rung. It was her brother, who talked for almost an hour about his new kitchen. After that she had
        gone to bed.

        In the afternoon her neighbour called. A man from the heating company had come, he said, and had
        found the door open, but nothing was missing. Ines thanked him and took the early bus home. She was
        hungry, and so she opened the refrigerator to make herself some soup. There, between the carrots and
        the milk, lay the keys, perfectly cold. She laughed so loudly that the neighbour knocked on the wall.
        The next day she bought a hook, screwed it to the wall beside the door, and from then on the
        refrigerator held only food.
        """,
    ),
    (
        "school-lunch",
        """
        Two years ago the school on the hill closed its vending machine and opened a kitchen. Until then most
        pupils had brought sandwiches or bought crisps, and the teachers complained that the last lessons of
        the day were lost to tiredness. The parents voted for a warm lunch, but nobody knew who would cook
        it.

        In the end the school hired one trained cook and asked the older pupils for help. Each class works in
        the kitchen for one week a year. The pupils wash vegetables, set the tables and write the menu on a
        board. Half of the vegetables come from a farm five kilometres away, and the farmer accepts that the
        menu follows the harvest.

        The first months were not easy. Too much was cooked, a third of it was thrown away, and the younger
        children refused everything green. The cook reacted by offering small portions with free second
        helpings, and by letting each class choose one meal a month. Now less than a tenth is left over. A
        lunch costs a little more than the old sandwich, and families with little money pay half. According
        to a survey in spring, four out of five pupils want to keep the kitchen, and most of them named the
        same reason: they like to eat at the same table as their friends.
        """,
    ),
    (
        "lake-ice",
        """
        When a lake cools in autumn, the cold water at the surface becomes heavier and sinks, and warmer
        water rises to take its place. This mixing goes on until the whole lake has reached about four
        degrees. At that point water is at its heaviest. If the air becomes still colder, the surface layer
        grows lighter again and stays on top. It can now freeze, while the water below keeps its four degrees
        for the whole winter.

        This small oddity of water decides about life in the lake. Ice floats, and a layer of ice with snow
        on it keeps the cold out. Fish move down to the deep places and wait, using very little energy. If
        ice were heavier than water, it would sink, and a shallow lake would freeze from the bottom to the
        top.

        The danger for the fish lies elsewhere. Under thick snow it is dark, so water plants stop producing
        oxygen, while the decay of dead leaves on the bottom continues to use it up. In small ponds the
        oxygen may run out before spring. For this reason keepers of ponds leave some reeds standing, whose
        hollow stems let a little air pass through the ice, and they sweep part of the snow away.
        """,
    ),
    (
        "repair-cafe",
        """
        On the first Saturday of each month, the old post office smells of coffee and hot solder. Around
        twenty volunteers sit at long tables and repair whatever people bring: toasters, lamps, trousers,
        radios, toys. The work is free, but the owner has to stay and watch, and if possible to hold the
        screwdriver. The founders insist on this rule. They do not want to be a cheap workshop, they say;
        they want to show that most things can be opened.

        Not everything can be saved. The volunteers keep a list, and it shows that about six objects out of
        ten leave the building in working order. The most common faults are broken cables, empty batteries
        and dirt. The most common reason for giving up is a case that has been glued instead of screwed, so
        that it cannot be opened without damage. Spare parts are a problem too, because they are often more
        expensive than a new device.

        The repair café has changed the habits of its visitors. Many ask in the shop how a machine is closed
        before they buy it. Two pupils who came to have a game console repaired have stayed as helpers, and
        the oldest volunteer, a retired clockmaker, teaches them how to work with very small screws.
        """,
    ),
    (
        "paper",
        """
        Before paper became common, people wrote on whatever their region offered: clay, bark, palm leaves,
        bamboo or the skin of animals. Each of these had a drawback. Clay was heavy, leaves were brittle, and
        a single thick book on parchment needed the skins of a whole flock.

        Paper was different because its raw material was waste. Old ropes, rags and nets were soaked and
        beaten to a pulp. A worker dipped a fine sieve into the pulp and lifted it out again; the water ran
        off, and a thin felt of fibres stayed behind. Pressed and dried, it became a sheet. The knowledge
        moved slowly along the trade routes, and at each stop it was changed. Some mills used the power of
        rivers for the beating, others added glue so that the ink would not spread.

        For centuries the lack of rags was the limit. Collectors went from house to house, and some towns
        forbade the export of old linen. Only when mills learned to make pulp from wood did paper become
        cheap enough for daily newspapers. The new sheets had a weakness of their own: acid left over from
        the process made them yellow and fragile, so that many books printed in that period are in a worse
        state today than older ones made from rags.
        """,
    ),
    (
        "open-plan-office",
        """
        The design company Larkfield moved into a new office last spring. The old building had long corridors
        with small rooms; the new one is a single hall with forty desks. The directors expected that people
        would talk to each other more often and solve problems faster.

        After six months an outside team looked at the results. It counted conversations, read calendars and
        asked the employees to keep a diary. The number of short talks at the desks had indeed gone up in the
        first weeks, but then it fell below the old level. Many employees wore headphones all day. They wrote
        messages to colleagues who sat only a few metres away, because they did not want to disturb the
        others. The number of days worked at home had doubled.

        The team did not advise the company to build the walls again. It suggested three changes instead: a
        quiet zone in which nobody speaks, six small rooms for calls and talks, and one fixed hour in the
        morning when everyone is present and may be interrupted. The company has tried the plan since
        October. Complaints about noise have become rare, and the headphones have mostly disappeared. The
        directors admit that they should have asked the employees before they signed the lease.
        """,
    ),
    (
        "honeybees",
        """
        A honeybee that has found a good field of flowers does not keep the news to herself. Back in the dark
        hive she runs across the comb in a figure of eight and shakes her body while she crosses the middle.
        The bees around her follow closely and touch her with their feelers. The direction of the middle line
        tells them where to fly in relation to the sun, and the length of the shaking tells them how far away
        the flowers are.

        The message is not exact. Bees that follow the dance arrive in the right area but have to search for
        the last part by scent, and for this reason the dancer also hands out small samples of nectar. If the
        field is poor, she dances for a short time or not at all. In this way the hive sends most of its
        workers to the best places without anyone giving orders.

        The same language is used when a swarm looks for a new home. Scouts inspect hollow trees and dance
        for the ones they like. A scout that has seen a better place stops dancing for her own. After some
        hours, or sometimes days, nearly all dances point to one place, and the whole swarm takes off.
        """,
    ),
    (
        "ferry-strike",
        """
        For three days last week no ferry left the harbour of the island of Tamsey. The crews had stopped
        work because the company wanted to cut the number of deck hands on each ship from six to four. The
        company said that new winches had made the work easier. The crews answered that winches do not help
        when a passenger falls ill or when a fire breaks out in bad weather.

        The island felt the strike at once. Fresh milk was sold out on the first evening. The two hotels had
        to find beds for guests who could not leave, and the fishing boats carried medicine and mail. Most
        islanders supported the crews all the same, since many families have someone on the ships.

        On the third night both sides met in the town hall, and the mayor did not let them leave until they
        had reached an agreement. In summer, when the ships are full, there will again be six deck hands. In
        winter there will be five, and the company will pay for an extra course in first aid. The agreement
        is valid for two years. After that an independent inspector will judge whether the winches have
        really made the work safer. The first ferry left at six in the morning, with its horn blowing.
        """,
    ),
    (
        "second-language",
        """
        Adults often believe that they are too old to learn a new language. It is true that small children
        learn to pronounce foreign sounds with less effort, and that hardly any adult loses the accent
        completely. In other respects, however, adults have the advantage. They can read, they understand how
        a grammar works, and they know how they learn best. In the first year of a course they usually make
        faster progress than children.

        What holds adults back is mostly time and shame. A child who moves to another country hears the new
        language for hours every day and does not mind making mistakes. An adult with a job practises for an
        hour a week and remains silent for fear of looking foolish. Teachers therefore advise short daily
        exercises instead of one long lesson, and conversations from the very first week.

        Vocabulary grows best when words return at the right moment, shortly before they would be forgotten.
        A box of cards is enough for this: a card that was answered correctly moves to a compartment that is
        opened less often, and a card that was answered wrongly goes back to the front. With fifteen minutes
        a day most learners can hold a simple conversation after about a year.
        """,
    ),
    (
        "old-lighthouse",
        """
        The lighthouse on Carrow Point has been dark for eleven years. When ships began to navigate by
        satellite, the coast guard switched off the lamp and sold the tower to the county for a symbolic
        price. Since then the wind has broken two windows, and salt water has entered the walls.

        Last year the county had to decide whether to pull the tower down. An engineer estimated that a full
        repair would cost as much as a new primary school. A group of residents asked for time and collected
        ideas. Some wanted a hotel, others a museum, and one farmer proposed to use the cellar for ripening
        cheese. None of the plans could pay for the repair alone.

        The solution was to combine them. The lower rooms are rented to the cheese maker, because the cool
        and damp air suits his product. The rooms of the keeper become two holiday flats. The lantern room is
        open to visitors in summer, and the local school runs a weather station there. The work is to be done
        in four steps, each of which begins only when the money for it has been collected. The roof and the
        windows come first. If everything goes well, the lamp will be lit again in five years, not for ships,
        but on holidays.
        """,
    ),
)
