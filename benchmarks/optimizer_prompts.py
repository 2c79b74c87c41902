"""Prompts the optimizer is measured on, each with the words its answer needs; also read by tests/core/test_optimizer.py.

`spec_example` has the sizes of the token-optimization specification: system 500, documents 2,000 of which 90 % do not matter, question 100,
history 800 of which half matters. `benchmark_prompts` are ordinary retrieval prompts: a short system prompt, five passages, two turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# A passage, a question and its answer by topic.
TOPICS: dict[str, tuple[str, str, str]] = {
    "refund": (
        (
            "Refunds for unopened items are paid within ten business days after the parcel reaches our returns centre in Leeds. The money goes back to the "
            "card that was charged. Opened items are refunded only when they are faulty, and shipping fees are never refunded. Customers who paid by "
            "voucher receive a new voucher that stays valid for two years."
        ),
        "Within how many business days are refunds for unopened items paid?",
        "ten business days",
    ),
    "password": (
        (
            "A forgotten password is reset from the sign-in page: choose the link below the form and follow the message we send. The reset link works for "
            "thirty minutes and only once. After five wrong attempts the account is locked, and only an administrator of the workspace can unlock it. "
            "Single sign-on users reset their password with their own company."
        ),
        "For how long does the password reset link work?",
        "thirty minutes",
    ),
    "warranty": (
        (
            "The standard warranty of the espresso machine covers three years from the date of purchase. It includes the pump, the boiler and the electronics. "
            "Seals, filters and glass parts wear out and are not covered. A repair under warranty never starts a new warranty period, but the remaining "
            "time is extended by the days the machine was in the workshop."
        ),
        "How many years does the standard warranty of the espresso machine cover?",
        "three years",
    ),
    "export": (
        (
            "Reports are exported from the menu in the upper right corner. Supported formats are spreadsheet, plain text and PDF. Exports with more than "
            "50,000 rows run in the background, and a message with a download link arrives when the file is ready. The link expires after seven days. "
            "Exports contain only the columns that are visible in the report."
        ),
        "After how many days does the download link of a report export expire?",
        "seven days",
    ),
    "parking": (
        (
            "Visitors park on level two of the garage in Mill Lane, where twelve spaces are reserved and marked in green. The barrier opens with the code that "
            "the reception sends with the invitation. Parking is free for the first four hours and costs three euros for each hour after that. Bicycles "
            "are left in the covered racks beside the main entrance."
        ),
        "On which level of the garage do visitors park?",
        "level two",
    ),
    "backup": (
        (
            "Every database is backed up at two in the morning to a second region. Daily copies are kept for thirty-five days and monthly copies for a year. A "
            "restore test runs on the first Monday of each month, and its result is published on the operations board. Restoring a full database of one "
            "terabyte takes about ninety minutes."
        ),
        "How long are daily database backup copies kept?",
        "thirty-five days",
    ),
    "travel": (
        (
            "Train journeys under six hours are booked in second class, longer ones in first class. Flights need the approval of the head of department, "
            "whatever they cost. Hotel rooms are paid up to 140 euros a night, breakfast included. Receipts are handed in within four weeks after the end "
            "of the journey, otherwise the claim lapses."
        ),
        "Up to what price per night are hotel rooms paid?",
        "140 euros",
    ),
    "allergens": (
        (
            "The nut bar contains hazelnuts, almonds and traces of peanuts. It is made on the same line as the sesame crackers, which is why sesame is listed "
            "too. The oat bar is free of nuts but contains gluten. Both bars are vegan since the recipe changed last spring, and both are sold in boxes "
            "of twenty-four."
        ),
        "Which nuts does the nut bar contain?",
        "hazelnuts, almonds",
    ),
    "release": (
        (
            "Releases leave the main branch every second Tuesday. A release candidate is built on the Thursday before and tested in the staging environment for "
            "three working days. Urgent fixes are cherry-picked and shipped the same day after two approvals. The changelog is written by the engineer on "
            "rotation and checked by the product team."
        ),
        "How many approvals do urgent fixes need before they are shipped?",
        "two approvals",
    ),
    "pool": (
        (
            "The swimming pool opens at half past six on weekdays and at eight on weekends. Lane swimming is possible until ten, after that two lanes are "
            "reserved for the school. The water of the large pool is kept at 27 degrees, that of the children's pool at 31. Caps are not required, but "
            "street shoes are not allowed beyond the showers."
        ),
        "At how many degrees is the water of the children's pool kept?",
        "31",
    ),
}

SYSTEM = (
    "You are the support assistant of Northwind Traders. Answer from the passages only. If the passages do not hold the answer, say so. "
    "Quote figures exactly as they are written. Never give legal advice. Keep answers under 80 words."
)


@dataclass(frozen=True)
class Sample:
    """A prompt and what must be left of it."""

    name: str
    arguments: dict[str, Any]
    answers: tuple[str, ...]
    kept: tuple[str, ...] = field(default=())


def benchmark_prompts() -> list[Sample]:
    """Returns ten retrieval prompts: each topic's passage stands among four others."""
    names = list(TOPICS)
    samples = []
    for i, name in enumerate(names):
        _, question, answer = TOPICS[name]
        passages = [TOPICS[names[(i + step) % len(names)]][0] for step in (3, 5, 0, 2, 7)]
        history = [
            {"role": "user", "content": "Hello, I have a question about something on your site."},
            {
                "role": "assistant",
                "content": "Hello! Of course, go ahead. I look things up in our own documents and quote the figures from there.",
            },
            {"role": "user", "content": f"It is about the topic {name}, I could not find it myself."},
            {
                "role": "assistant",
                "content": f"Thank you. Tell me what exactly you would like to know about the topic {name}.",
            },
        ]
        prompt = "Context:\n" + "\n\n".join(passages) + f"\n\nQuestion: {question}"
        samples.append(
            Sample(name, {"prompt": prompt, "system_prompt": SYSTEM, "history": history}, (answer,))
        )
    return samples


RULES = (
    "You are the billing assistant of Contoso Energy.",
    "Always answer in the language of the customer.",
    "Never promise a refund above 200 euros.",
    "Quote invoice numbers exactly as they are written.",
    "If the documents do not hold the answer, say so.",
)
PADDING = (
    "We are very happy to have you on board and we really appreciate the work that you are doing for us.",
    "Thank you so much for being such a wonderful and helpful part of our team every single day.",
    "It is our pleasure to welcome you, and we hope that you enjoy every conversation as much as we do.",
    "We are extremely proud of the way in which the whole team looks after the people who call us.",
    "Your work is truly appreciated by all of us, and it means a lot to everybody in the company.",
    "We believe that great service is what makes a great company, and we trust that you feel the same.",
)
RELEVANT = (
    (
        "Invoice 4711 of the Miller household was corrected in March: the meter reading of 8,420 kilowatt hours had been typed as 9,420, so the amount "
        "fell from 2,866 to 2,566 euros. The difference of 300 euros is paid back in two parts, because a single refund above 200 euros needs the approval of the "
        "regional office. The first part of 200 euros was sent on 4 April to the bank account the invoice is charged to."
    ),
    (
        "The second part of the Miller refund, 100 euros, waits for the approval of the regional office in Ghent, which has been asked on 6 April. The regional "
        "office decides within ten working days. When it does not answer, the refund is paid without it, as the collective agreement on invoice corrections says. "
        "The household receives a corrected invoice with the number 4711-K by post."
    ),
)
QUESTION = (
    "I am calling for the Miller household about invoice 4711. We were told in March that the meter reading had been typed wrong and that the amount of the "
    "invoice would be corrected. The first part of the refund has arrived on our bank account, but we are still waiting for the rest of the money. Please tell "
    "me how much the second part of the refund is, which office has to approve it, and how long the regional office may take to decide before the refund is paid anyway."
)
OFF_TOPIC = (
    (
        "The canteen on the ground floor serves lunch between half past eleven and two. On Fridays there is fish, and a vegetarian dish is always on the menu. "
        "Guests sign in at the reception and eat for the same price as staff. The kitchen buys its vegetables from three farms in the neighbourhood and "
        "composts what is left. Allergy lists hang beside the counter and are renewed every Monday morning."
    ),
    (
        "The wind park off the coast has forty-two turbines, each with a rotor of 126 metres. Maintenance crews reach them by boat in calm weather and by "
        "helicopter otherwise. Every blade is inspected by drone once a year, and the pictures are compared with those of the year before. Bats and "
        "sea birds are counted by a group of biologists who live on the island during the summer."
    ),
    (
        "The summer party took place in the old brewery this time. A band from Antwerp played until midnight, and the apprentices had prepared a quiz about the "
        "history of street lighting. The photographs are in the intranet, sorted by hour. Lost jackets and umbrellas are kept at the reception until the end of "
        "the month and then given to charity."
    ),
    (
        "Solar modules lose about half a percent of their power each year. Dust, snow and shade matter more than age on most roofs, which is why cleaning twice a "
        "year is worth its price in dry regions. Inverters are the part that fails first, usually after twelve to fifteen years. Modules made before 2005 contain "
        "more silver and are recycled separately."
    ),
    (
        "The training centre offers courses in first aid, welding and bookkeeping. Courses have between eight and sixteen seats, and whoever does not show up twice "
        "goes to the end of the list. Certificates are printed on the last day. The library of the centre holds four thousand books and is open to the public "
        "on Wednesday afternoons, when a volunteer helps with the catalogue."
    ),
    (
        "District heating reaches nine of ten buildings in the northern quarter. The pipes are laid in sand and wrapped in foam, and their joints are measured for "
        "moisture by a wire inside the insulation. In winter the water leaves the plant at ninety degrees, in summer at seventy. A storage tank as high as a church "
        "evens out the mornings, when everybody showers."
    ),
)
TURNS: tuple[tuple[str, str], ...] = (
    (
        "Good morning! How are you today? I hope you had a nice weekend with all this sunshine.",
        "Good morning! Thank you, I am fine. The weekend was lovely indeed, and I hope yours was too. What can I do for you on this beautiful day?",
    ),
    (
        "First something else: do you know whether the canteen is open for guests? My cousin told me that the soup there is really good.",
        (
            "As far as I know guests are welcome between half past eleven and two, and they sign in at the reception. The soup changes every day. There is also a small "
            "terrace, which is quite popular when the weather is fine, so it is best to come early if you would like to sit outside."
        ),
    ),
    (
        "Lovely. And is it true that one can visit the wind park? My children would be thrilled, they build turbines from cardboard all the time.",
        (
            "There are tours by boat in July and August, as long as the sea is calm. Children under ten go along free of charge. The boat leaves from the old harbour, and the "
            "tour takes about three hours. Warm clothes are a good idea even in summer, because it is windy out there."
        ),
    ),
    (
        "And could you tell me when the library of your training centre is open? My daughter is writing an essay about old bookkeeping machines.",
        (
            "It is open to the public on Wednesday afternoons. A volunteer helps with the catalogue, and she knows the shelves by heart. Some of the oldest books may only be read "
            "there, but most of them can be taken home for four weeks. There is also a copying machine in the corner, and a cup of tea if one asks nicely."
        ),
    ),
    (
        "That sounds charming. We will certainly come by. My neighbour keeps telling me about your quiz, too, the one with the history of street lighting.",
        (
            "The apprentices prepared it for the summer party, and it was so popular that they are going to repeat it in autumn. There were questions about gas lamps, about the "
            "lamplighters and about the first electric street in the city. The first prize was a lantern from the thirties, nicely restored."
        ),
    ),
    (
        (
            "Now to my invoice 4711 of the Miller household. It was much higher than the invoice of the year before, although we used less heating, and I had sent you a picture of "
            "the meter reading in January."
        ),
        (
            "I have looked at invoice 4711. The meter reading was typed wrong: 9,420 instead of 8,420 kilowatt hours, and your picture of the meter confirms it. The invoice of the "
            "Miller household is being corrected, the amount falls from 2,866 to 2,566 euros, and the difference of 300 euros will be refunded in two parts to your bank account."
        ),
    ),
    (
        "The first part of the refund has arrived on our bank account on 5 April, 200 euros. What about the second part of the refund, and who has to approve it?",
        (
            "The second part of the refund is 100 euros. A refund above 200 euros in total needs the approval of the regional office, and we have asked the regional office in Ghent. "
            "I will write to the Miller household as soon as the office has decided."
        ),
    ),
    (
        "By the way, do you happen to have one of those nice calendars with the old street lamps again this year?",
        (
            "We do! The calendars lie at the reception, next to the umbrellas that were left behind at the summer party. Please take two if you like, there are plenty of them, and "
            "they look very nice in a kitchen."
        ),
    ),
    (
        "Thank you, that is very kind of you. I will pick one up when I come by for the soup next week.",
        "You are very welcome! Please ask for me at the reception, then I will show you the terrace as well. It would be great to meet you in person after all these calls.",
    ),
)


def spec_example() -> Sample:
    """Returns the specification's 3,400-token prompt."""
    system = " ".join([RULES[0], *PADDING, *RULES[1:3], *PADDING, *RULES[3:], *PADDING, *PADDING[:3]])
    documents = [OFF_TOPIC[i % 6] if i < 6 else f"Report {i}. {OFF_TOPIC[i % 6]}" for i in range(25)]
    documents[4], documents[17] = RELEVANT
    history = [
        {"role": role, "content": text}
        for turn in TURNS
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    prompt = "Context:\n" + "\n\n".join(documents) + f"\n\nQuestion: {QUESTION}"
    answers = ("100 euros", "regional office in Ghent", "within ten working days")
    return Sample(
        "specification",
        {"prompt": prompt, "system_prompt": system, "history": history},
        answers,
        (*RELEVANT, QUESTION, *RULES),
    )
