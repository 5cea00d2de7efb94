"""Paragraphs to plant mistakes in, the second half."""

from __future__ import annotations

PARAGRAPHS: tuple[tuple[str, str], ...] = (
    (
        "allotment",
        """
        My aunt has rented a small plot at the edge of the city. The soil was poor at first, so she carried
        buckets of compost up the hill every weekend for a whole year. Now there are beans, onions and a row
        of raspberries, and the neighbours have begun to ask her for advice. She is never in a hurry. A
        garden, she says, is a slow conversation, and the person who is shouting will learn nothing. Last
        autumn, the first pumpkin was so heavy that two people were needed to lift it.
        """,
    ),
    (
        "lift-repair",
        """
        The lift in the east wing has been out of order since Monday morning. An engineer has inspected the
        motor and found that a bearing is worn, which explains the noise that several residents have
        reported. The part was ordered on the same day, but the supplier is not able to deliver it before
        Friday. Until then, please use the stairs or the lift in the west wing. If you have a delivery that
        is too heavy to carry, the caretaker is happy to help. We are sorry for the trouble.
        """,
    ),
    (
        "volcano",
        """
        A volcano is an opening through which melted rock, ash and gas escape from the inside of the earth.
        Some volcanoes are gentle, and their lava flows slowly enough for people to walk away from it. Others
        are silent for centuries, until the pressure has become too great and the top is blown off. The ash
        of such an eruption has been found thousands of kilometres away. For farmers, the danger has another
        side: old ash is rich in minerals, and the fields on the slopes are among the best in the region.
        """,
    ),
    (
        "job-application",
        """
        I am writing to apply for the position of technician, which was advertised on your website last week.
        For the past four years, I have worked in the laboratory of a dairy, where I was responsible for the
        testing equipment. The machines were old, and keeping them in service was often a matter of patience.
        I have also trained two apprentices, both of whom are now employed by the company. A copy of my
        certificate is attached. I would welcome the chance to meet you in person.
        """,
    ),
    (
        "river-otters",
        """
        Otters were once common along the river, but the water was so dirty in the middle of the last century
        that none were left. Since the paper mill was closed, the fish have returned, and the otters have
        followed them. An adult is almost a metre long, although half of that is the tail. Its fur is so
        thick that the skin never gets wet. The animals are shy, and most visitors have to be content with a
        line of footprints in the mud. Early in the morning, a patient observer has the best chance.
        """,
    ),
    (
        "recipe-notes",
        """
        This soup is better on the second day, when the flavours have had time to mix. The lentils are soaked
        for an hour, although the red ones are soft enough without it. First the onion is fried in a little
        butter, then the carrots and the garlic are added, and finally the stock. There is no need to stir
        all the time. When the vegetables are tender, a spoonful of vinegar is the secret that has kept my
        family quiet for three generations. If there are guests, the amounts are easily doubled.
        """,
    ),
    (
        "password-policy",
        """
        From the first of May, the rules for passwords are going to change. A password has to be at least
        fourteen characters long, but it is no longer necessary to include a symbol or to replace it every
        three months. Studies have shown that frequent changes were doing more harm than good, because people
        were writing the new passwords on paper. A short sentence is easy to remember, and it is very hard to
        guess. Whoever has access to the accounts also needs a second factor, which is sent to the telephone.
        """,
    ),
    (
        "marathon",
        """
        Nobody in our office had expected that Paula was training for a marathon. She never talked about
        it, and the only hint was a pair of muddy shoes under her desk. On the day of the race, the weather
        was terrible, and the wind along the canal was so strong that the distance signs were blown over. She
        was tired after thirty kilometres, but a stranger gave her an orange, and that has become her
        favourite part of the story. In the end, she finished eleven minutes faster than planned.
        """,
    ),
    (
        "old-photographs",
        """
        A photograph is a fragile object, even if it has survived for a hundred years. The paper is sensitive
        to light, and the layer that carries the picture is easily scratched. Archives keep their collections
        in cool, dark rooms, where the air is neither too dry nor too damp. Anyone who has a box of family
        pictures in the attic should bring it downstairs, because the heat in summer is the greatest danger.
        It is also wise to write the names on the back with a soft pencil, while there is still somebody who
        knows them.
        """,
    ),
    (
        "bus-line",
        """
        The new bus line has been running for six months, and the first figures are encouraging. On weekdays,
        there are about nine hundred passengers, which is twice the number that was expected. Most of them
        are pupils, but the morning bus is also popular with people who work at the hospital. There have been
        complaints about the stop at the market, where the pavement is too narrow for a shelter. The council
        has asked the owner of the next house for a strip of land, and an answer is expected in the spring.
        """,
    ),
    (
        "piano-tuner",
        """
        The piano tuner is a tall man who has to bend down when he enters our living room. Before he begins,
        he plays a single chord and listens until the last sound is gone. Each string is tightened or
        loosened by an amount that is hardly visible, and yet the difference is clear even to my brother,
        who has no ear for music. The work takes two hours. When everything is in order, he always plays the
        same slow waltz, and the whole family has learned to be quiet for those three minutes.
        """,
    ),
    (
        "weather-station",
        """
        The school has a small weather station on the roof of the gym. Every day at noon, two pupils read the
        instruments and write the numbers into a book, which is now older than most of the teachers. The
        first pages are from a winter in which the snow was deeper than a metre. There are a few gaps, since
        nobody was at school during the holidays, but the record is long enough to be useful. Last year, a
        scientist from the university copied it, and the class was very proud of the letter of thanks.
        """,
    ),
    (
        "translation",
        """
        A good translation is invisible. The reader of a novel has no reason to think about the person who
        searched for three days until the right word was found. Jokes are the hardest part, because a play on
        words has no twin in another language. Some translators explain the joke, others replace it, and a
        few are brave enough to leave it out. There is no rule that is always right. The only test, in the
        end, is whether the reader laughs, sighs or turns the page at the same place.
        """,
    ),
)
