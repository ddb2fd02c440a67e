"""Write the tasks of the `desk` suite, the same bytes on every machine.

    python benchmarks/suites/desk/generate.py            rewrite tasks.jsonl
    python benchmarks/suites/desk/generate.py --check    say whether tasks.jsonl is up to date

Every family is a handful of wordings of one kind of document (an e-mail, a form, a call log ...)
that a back office receives. A task fills one wording with drawn names, places and figures, so its
reference answer is known by construction. Which families belong to which split is said in
`suite.toml`, never here.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SEED = 20250
TASKS_PER_FAMILY = 90
TASKS_FILE = Path(__file__).resolve().parent / "tasks.jsonl"

Fields = dict[str, str]


@dataclass(frozen=True)
class Family:
    """One kind of document: its wordings, and tags that describe its layout."""

    name: str
    wordings: tuple[str, ...]
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topic:
    """The tasks of one skill: how fields are drawn, and the families that show them."""

    skill: str
    draw: Callable[[random.Random, str], Fields]
    families: tuple[Family, ...]
    verifier: dict[str, str | bool] | None = None


# ------------------------------------------------------------------------------ word lists

FIRST_NAMES = (
    "Aisha", "Alejandro", "Amara", "Anders", "Anneke", "Arjun", "Beatriz", "Bogdan", "Callum",
    "Camille", "Chiara", "Chidi", "Daniela", "Dmitri", "Efua", "Elif", "Emeka", "Esther", "Fatima",
    "Femi", "Freya", "Gabriel", "Giulia", "Hana", "Haruto", "Helena", "Hugo", "Ingrid", "Isabel",
    "Ivan", "Jakub", "Joana", "Joseph", "Kaito", "Katarina", "Kofi", "Laila", "Lars", "Leila",
    "Lucas", "Mads", "Magdalena", "Malik", "Marek", "Margaret", "Mei", "Miguel", "Nadia", "Nikos",
    "Noor", "Olga", "Oscar", "Paolo", "Petra", "Priya", "Quentin", "Rafael", "Rosa", "Ruth",
    "Samira", "Sanjay", "Sven", "Tariq", "Teresa", "Thomas", "Umar", "Vera", "Viktor", "Wanjiru",
    "Xavier", "Yara", "Yusuf", "Zanele", "Zoe",
)  # fmt: skip

LAST_NAMES = (
    "Abara", "Acheampong", "Aguilar", "Andersen", "Bakker", "Banerjee", "Barros", "Becker",
    "Bianchi", "Brennan", "Cardoso", "Chen", "Costa", "Dalgaard", "Delgado", "Demir", "Dubois",
    "Duarte", "Eriksen", "Farouk", "Ferrari", "Fischer", "Fontaine", "Garcia", "Ghosh", "Haddad",
    "Hansen", "Hoffmann", "Horvat", "Hughes", "Ibrahim", "Ito", "Ivanova", "Jansen", "Kaya",
    "Keller", "Khan", "Kimura", "Kowalski", "Kruger", "Larsen", "Lefebvre", "Lindqvist", "Lopez",
    "Mahlangu", "Marchetti", "Mendes", "Moreau", "Mwangi", "Nakamura", "Novak", "Nowak", "O'Brien",
    "Obi", "Okafor", "Olsen", "Osei", "Papadakis", "Patel", "Pereira", "Petrov", "Popescu", "Rao",
    "Reyes", "Richter", "Romano", "Rossi", "Salazar", "Santos", "Sato", "Schneider", "Shah",
    "Silva", "Sokolov", "Tanaka", "Thompson", "Vasquez", "Vermeer", "Visser", "Weber", "Whitaker",
    "Yildiz", "Zhang", "Zielinski",
)  # fmt: skip

CITIES = (
    "Aarhus", "Accra", "Adelaide", "Antwerp", "Athens", "Auckland", "Basel", "Bergen", "Bilbao",
    "Bologna", "Boston", "Bristol", "Brno", "Bucharest", "Cairo", "Cape Town", "Casablanca",
    "Cork", "Dakar", "Denver", "Dublin", "Durban", "Edmonton", "Eindhoven", "Gdansk", "Geneva",
    "Ghent", "Glasgow", "Graz", "Halifax", "Hamburg", "Hanoi", "Helsinki", "Izmir", "Jakarta",
    "Kigali", "Kyoto", "Lagos", "Leeds", "Leipzig", "Lima", "Linz", "Lisbon", "Ljubljana", "Lyon",
    "Malaga", "Manila", "Mombasa", "Montreal", "Mumbai", "Nairobi", "Nantes", "Naples", "Odense",
    "Osaka", "Oslo", "Ottawa", "Perth", "Porto", "Prague", "Pune", "Quito", "Recife", "Riga",
    "Rotterdam", "Santiago", "Seattle", "Seville", "Sofia", "Stuttgart", "Tallinn", "Tampere",
    "Toronto", "Toulouse", "Tunis", "Turin", "Utrecht", "Valencia", "Vienna", "Vilnius", "Warsaw",
    "Wellington", "Zagreb",
)  # fmt: skip

ITEMS = (
    "air purifier", "alarm clock", "barcode scanner", "bookshelf", "bread maker", "card reader",
    "ceiling fan", "coffee grinder", "conference phone", "cordless drill", "desk lamp",
    "desk organiser", "dishwasher", "document shredder", "electric kettle", "ergonomic chair",
    "espresso machine", "extension lead", "filing cabinet", "floor lamp", "food processor",
    "garden hose", "graphics tablet", "hand mixer", "heat gun", "inkjet printer", "ironing board",
    "keyboard", "label printer", "laminator", "laptop stand", "laser printer", "microwave oven",
    "monitor arm", "network switch", "noise meter", "office chair", "paper cutter",
    "pedestal fan", "phone charger", "pressure cooker", "projector", "projector screen",
    "rice cooker", "safety helmet", "security camera", "sewing machine", "soldering iron",
    "space heater", "standing desk", "stapler", "steam iron", "step ladder", "tape measure",
    "thermostat", "toaster", "tool box", "tower fan", "travel adapter", "trolley",
    "USB hub", "vacuum cleaner", "wall clock", "washing machine", "water filter", "webcam",
    "whiteboard", "wireless headset", "wireless mouse", "wireless router",
)  # fmt: skip

COMPANIES = (
    "Alder & Finch", "Arcadia Foods", "Baltic Freight", "Belmont Dental", "Bluewater Marine",
    "Brightside Energy", "Caldera Mining", "Cedar Lane Books", "Copperfield Legal",
    "Delta Printworks", "Estrela Textiles", "Evergreen Nurseries", "Fairview Clinic",
    "Fjord Systems", "Golden Gate Imports", "Granite Insurance", "Harbour Ceramics",
    "Helvetia Tools", "Ibis Travel", "Juniper Software", "Kestrel Aviation", "Kilimanjaro Coffee",
    "Lakeside Catering", "Lotus Pharma", "Maple Street Bakery", "Meridian Bank", "Mistral Optics",
    "Nordlys Design", "Oakridge Estates", "Orchid Hotels", "Pacific Cables", "Pinewood Furniture",
    "Quarry Road Motors", "Redwood Analytics", "Rhein Metallbau", "Sable Cosmetics",
    "Sahel Solar", "Savanna Outfitters", "Tagus Shipping", "Tern Telecom", "Umbria Vineyards",
    "Vantage Media", "Westerly Wool", "Yarrow Homeware",
)  # fmt: skip

ROLES = (
    "accounts payable clerk", "area manager", "auditor", "buyer", "contract manager", "data clerk",
    "facilities lead", "finance director", "fleet planner", "front desk agent", "HR assistant",
    "IT technician", "legal adviser", "logistics planner", "office manager", "payroll officer",
    "project engineer", "purchasing lead", "sales executive", "site supervisor", "store manager",
    "tax consultant", "training officer", "warehouse clerk",
)  # fmt: skip

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# Half of the families draw from the first list, the others from the second, so that no complaint
# of the one half is ever seen in the other.
BILLING_PROBLEMS = (
    (
        "I was charged twice for the same month",
        "the refund you promised has not reached my account",
        "my invoice shows a price we never agreed",
        "the discount code was not taken off the total",
        "you debited a cancelled subscription",
        "my card was charged before the goods were sent",
        "the VAT on the last invoice is wrong",
        "I need a copy of the receipt for my tax return",
        "the late fee on my statement is not justified",
        "I paid by transfer and still got a reminder",
    ),
    (
        "the amount on the direct debit is too high",
        "I want to pay this invoice in two instalments",
        "the credit note for my return is missing",
        "my invoice carries the old company address",
        "the shipping cost was added although delivery should be free",
        "the yearly fee went up and nobody told us",
        "the deposit was not subtracted from the final bill",
        "my bank says the payment went to a wrong account",
        "we were billed for ten pieces and ordered one",
        "the invoice is in dollars and our contract is in euros",
    ),
)

TECHNICAL_PROBLEMS = (
    (
        "the screen stays black after I press the button",
        "the app crashes whenever I open it",
        "I cannot log in since the last update",
        "the device does not connect to the wireless network",
        "the motor makes a loud noise and then stops",
        "the printer leaves stripes on every page",
        "the battery is empty after twenty minutes",
        "it shows error code 41 and restarts",
        "the password reset link leads to an empty page",
        "the fan no longer turns",
    ),
    (
        "the sound cuts out during calls",
        "the firmware update stops halfway",
        "the touch panel does not react",
        "the website freezes when I upload a file",
        "it overheats and switches itself off",
        "the sensor reports the wrong temperature",
        "the cable gets hot and smells burnt",
        "the search page finds nothing since yesterday",
        "the door of the machine no longer locks",
        "the red light blinks and nothing happens",
    ),
)


# ------------------------------------------------------------------------------ drawing


def pick(rng: random.Random, words: Sequence[str]) -> str:
    """Draw one word, by `random()` alone, whose stream Python keeps stable across versions."""
    return words[int(rng.random() * len(words))]


def between(rng: random.Random, low: int, high: int) -> int:
    """Draw a whole number from `low` to `high`, both included."""
    return low + int(rng.random() * (high - low + 1))


def with_article(noun: str) -> str:
    """Put `a` or `an` before a noun of the item list."""
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"


def common_fields(rng: random.Random) -> Fields:
    """Draw the fields that any document may mention."""
    first, last = pick(rng, FIRST_NAMES), pick(rng, LAST_NAMES)
    company, item = pick(rng, COMPANIES), pick(rng, ITEMS)
    domain = "".join(letter for letter in company.lower() if letter.isalpha())
    address = f"{first}.{last}".lower().replace("'", "") + f"@{domain}.example"
    return {
        "first": first,
        "last": last,
        "name": f"{first} {last}",
        "mail": address,
        "city": pick(rng, CITIES),
        "item": item,
        "an_item": with_article(item),
        "company": company,
        "role": pick(rng, ROLES),
        "ref": str(between(rng, 1000, 9999)),
        "hour": f"{between(rng, 8, 18):02d}:{between(rng, 0, 59):02d}",
    }


def draw_ticket(rng: random.Random, family: str) -> Fields:
    """Fields of a service ticket; the answer is the line `name | city | item`."""
    fields = common_fields(rng)
    return fields | {"expected": f"{fields['name']} | {fields['city']} | {fields['item']}"}


def draw_visitor(rng: random.Random, family: str) -> Fields:
    """Fields of a visit; the answer is the row `name; company; time`."""
    fields = common_fields(rng)
    return fields | {"expected": f"{fields['name']}; {fields['company']}; {fields['hour']}"}


def draw_triage(rng: random.Random, family: str) -> Fields:
    """Fields of a complaint; the answer is the desk that takes it."""
    label = pick(rng, ("billing", "technical"))
    half = 0 if family in ("email", "call-log", "chat", "form") else 1
    problem = pick(rng, (BILLING_PROBLEMS if label == "billing" else TECHNICAL_PROBLEMS)[half])
    capital = problem[0].upper() + problem[1:]
    return common_fields(rng) | {"problem": problem, "Problem": capital, "expected": label}


def draw_date(rng: random.Random, family: str) -> Fields:
    """Spellings of one day; the answer is the ISO 8601 date."""
    years = (1948, 2006) if family == "birth-record" else (2001, 2032)
    first_day = datetime.date(years[0], 1, 1).toordinal()
    last_day = datetime.date(years[1], 12, 31).toordinal()
    day = datetime.date.fromordinal(between(rng, first_day, last_day))
    month = MONTHS[day.month - 1]
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    ordinal = f"{day.day}{'th' if 11 <= day.day <= 13 else suffix}"
    return common_fields(rng) | {
        "dmy": f"{day.day} {month} {day.year}",
        "mdy": f"{month} {day.day}, {day.year}",
        "ordinal": f"{ordinal} of {month} {day.year}",
        "short": f"{day.day} {month[:3]} {day.year}",
        "stamp": f"{day.day:02d} {month[:3].upper()} {day.year}",
        "dotted": f"{day.day:02d}.{day.month:02d}.{day.year}",
        "slashed": f"{day.day:02d}/{day.month:02d}/{day.year}",
        "weekday": WEEKDAYS[day.weekday()],
        "day": str(day.day),
        "month": month,
        "year": str(day.year),
        "expected": day.isoformat(),
    }


def draw_record(rng: random.Random, family: str) -> Fields:
    """Fields of an order line; the answer is a JSON object with item and quantity."""
    fields = common_fields(rng)
    quantity = between(rng, 2, 60)
    record = json.dumps({"item": fields["item"], "qty": quantity})
    return fields | {"qty": str(quantity), "expected": record}


def draw_person(rng: random.Random, family: str) -> Fields:
    """Fields about one person; the answer is `Last, First`."""
    fields = common_fields(rng)
    title = pick(rng, ("Mr", "Ms", "Dr", "Prof."))
    return fields | {"title": title, "expected": f"{fields['last']}, {fields['first']}"}


def draw_order(rng: random.Random, family: str) -> Fields:
    """Fields of a message about an order; the answer is the order number as written."""
    letters = "ABCDEFGHKLMNPRSTUVWX"
    prefix = pick(rng, letters) + pick(rng, letters)
    digits = str(between(rng, 10000, 99999))
    number = pick(
        rng,
        (f"PO-{digits}", f"{prefix}-{digits}", f"{digits}-{prefix}", f"{prefix}{digits}"),
    )
    phone = f"{between(rng, 200, 899)} {between(rng, 1000, 9999)}"
    return common_fields(rng) | {"order": number, "phone": phone, "expected": number}


def draw_delivery(rng: random.Random, family: str) -> Fields:
    """Fields of a planned delivery; the answer is the line `city; weekday; parcels`."""
    fields = common_fields(rng)
    day, parcels = pick(rng, WEEKDAYS[:6]), str(between(rng, 2, 48))
    expected = f"{fields['city']}; {day}; {parcels}"
    return fields | {"weekday": day, "parcels": parcels, "expected": expected}


def draw_units(rng: random.Random, family: str) -> Fields:
    """A quantity in customary units; the answer is the rounded metric figure."""
    big, small = between(rng, 2, 40), between(rng, 1, 11)
    tens = big * 10 + small
    quarts = (big * 4 + small) * 10
    metric = {
        "height": (big * 12 + small) * 2.54,
        "parcel-weight": (big * 16 + small) * 28.349523125,
        "trip": tens * 1.609344,
        "fuel": big * 3.785411784,
        "cold-store": ((big + 20) - 32) / 1.8,
        "carpet": tens * 0.9144,
        "plot": tens / 10 * 4046.8564224,
        "drum": quarts * 0.946352946,
    }[family]
    return common_fields(rng) | {
        "big": str(big),
        "small": str(small),
        "tens": str(tens),
        "acres": f"{tens / 10:.1f}",
        "quarts": str(quarts),
        "fahrenheit": str(big + 20),
        "expected": str(round(metric)),
    }


# ------------------------------------------------------------------------------ families

TICKET = Topic(
    "ticket-line",
    draw_ticket,
    (
        Family(
            "call-log",
            (
                "Caller: {name}. Town: {city}. About: {item}.",
                "Caller {name}, place {city}, subject {item}.",
                "Name: {name}. Calling from: {city}. Product: {item}.",
            ),
            ("labelled",),
        ),
        Family(
            "email",
            (
                "{name} from {city} wrote to us about the {item}.",
                "I am {name} from {city} and my {item} is broken.",
                "My name is {name}, I live in {city}, I want to return the {item}.",
            ),
            ("prose",),
        ),
        Family(
            "chat",
            (
                "{name} ({city}): the {item} is dead again",
                "hey this is {name} in {city}, can someone look at my {item}?",
                "{name}, {city}, {item} won't start, please help",
            ),
            ("informal",),
        ),
        Family(
            "form",
            (
                "Full name: {name}\nTown: {city}\nArticle: {item}",
                "Customer: {name}\nCity: {city}\nProduct: {item}",
                "1. {name}\n2. {city}\n3. {item}",
            ),
            (
                "multiline",
                "labelled",
            ),
        ),
        Family(
            "counter",
            (
                "Walk-in customer {name} from {city} brought back the {item}.",
                "At the counter: {name}, who lives in {city}, with {an_item} under warranty.",
                "{name} of {city} handed in one {item}, no receipt.",
            ),
            ("prose",),
        ),
        Family(
            "field-report",
            (
                "Visited {name} in {city}: {item} replaced.",
                "Customer {name}, site {city}, {item} checked and repaired.",
                "{name} in {city} showed our technician the {item}.",
            ),
            ("prose",),
        ),
        Family(
            "web-export",
            (
                "name={name}; city={city}; product={item}",
                "customer: {name}, location: {city}, article: {item}, ref: {ref}",
                "{ref};{name};{city};{item}",
            ),
            (
                "labelled",
                "distractor",
            ),
        ),
        Family(
            "forwarded",
            (
                "Fwd from the {city} branch: customer {name} reports a faulty {item}.",
                "Passed on by {city}: {an_item} problem, customer is {name}.",
                "Our {city} shop asks us to take over. The {item} belongs to {name}.",
            ),
            (
                "prose",
                "reordered",
            ),
        ),
        Family(
            "letter",
            (
                "{name}\n{city}\nI am writing about the {item} you sold me.",
                "Sender: {name}, {city}\nRe: warranty, {item}",
                "{city}\nRe: {item}\nPlease repair or replace it.\nYours sincerely, {name}",
            ),
            ("multiline",),
        ),
    ),
)

VISITOR = Topic(
    "visitor-row",
    draw_visitor,
    (
        Family(
            "reception",
            (
                "{name} of {company} arrived at {hour}.",
                "{name} from {company} signed in at {hour}.",
                "Reception: {name}, {company}, here since {hour}.",
            ),
            ("prose",),
        ),
        Family(
            "badge",
            (
                "Visitor: {name}. Company: {company}. Time: {hour}.",
                "Badge for {name}, firm {company}, valid from {hour}.",
                "Name {name}, company {company}, entry {hour}.",
            ),
            ("labelled",),
        ),
        Family(
            "gate",
            (
                "Gate: {name} ({company}), {hour}",
                "Barrier opened for {name}, {company}, {hour}, bay 2",
            ),
            (
                "labelled",
                "distractor",
            ),
        ),
        Family(
            "form",
            (
                "Name: {name}\nCompany: {company}\nArrival: {hour}",
                "{name}\n{company}\n{hour}\nSafety rules read: yes",
            ),
            (
                "multiline",
                "labelled",
            ),
        ),
        Family(
            "calendar",
            (
                "{name} from {company} comes at {hour} to see the {role}.",
                "Meeting with {name}, {company}, {hour}, room 5",
                "Guest {name} of {company}, {hour}, coffee for three",
            ),
            (
                "prose",
                "distractor",
            ),
        ),
        Family(
            "table",
            (
                "{name} | {company} | {hour} | lobby",
                "{name}, {company}, {hour}, badge {ref}",
                "no. {ref} | {name} | {company} | {hour}",
            ),
            (
                "table",
                "distractor",
            ),
        ),
        Family(
            "announcement",
            (
                "Please expect {name} of {company} at {hour}.",
                "Tomorrow {name} visits us for {company}, at {hour}.",
                "Dear all, {name} of {company} will be here from {hour}.",
            ),
            ("prose",),
        ),
        Family(
            "parking",
            (
                "Parking space for {name}, {company}, from {hour}.",
                "At {hour} {name} of {company} needs a parking space.",
            ),
            ("prose",),
        ),
    ),
)

TRIAGE = Topic(
    "triage-label",
    draw_triage,
    (
        Family(
            "email",
            (
                "Hello, {problem}. Regards, {name}",
                "Dear support, {problem}. Please help. {name}, {company}",
                "Good day, this is {name}. {Problem}.",
            ),
            ("prose",),
        ),
        Family(
            "call-log",
            (
                "Call {hour}. {name}: {problem}.",
                "Caller {name} ({city}) says: {problem}.",
                "Phone note, ref {ref}. Customer's words: {problem}.",
            ),
            ("labelled",),
        ),
        Family(
            "chat",
            (
                "hi, {problem}, what now? ({first})",
                "{first}: {problem}!!",
                "anyone there? {problem}. - {name}",
            ),
            ("informal",),
        ),
        Family(
            "form",
            (
                "Customer: {company}\nProduct: {item}\nMessage: {problem}",
                "Message: {problem}\nProduct: {item}\nCustomer: {name}",
            ),
            ("multiline", "labelled"),
        ),
        Family(
            "review",
            (
                "Two stars for the {item}. {Problem}.",
                "Bought {an_item} in {city}. {Problem}. Not happy.",
                "One star. {Problem}, and I only wanted {an_item}.",
            ),
            ("prose", "distractor"),
        ),
        Family(
            "escalation",
            (
                "Escalated by {company}: {problem}. Third request, ref {ref}.",
                "Second reminder from {name}, {role} at {company}: {problem}.",
                "{company} is waiting since {hour}. {Problem}.",
            ),
            ("prose",),
        ),
        Family(
            "subject-body",
            (
                "Subject: {item}, ref {ref}\n{Problem}.",
                "Subject: urgent, {company}\n{Problem}. Thanks, {first}",
                "Subject: question from {city}\nHello, {problem}.",
            ),
            ("multiline",),
        ),
        Family(
            "letter",
            (
                "{city}\nDear Sir or Madam,\n{problem}.\nYours faithfully, {name}",
                "Re: {item}\nI regret to say that {problem}.\n{name}",
            ),
            ("multiline",),
        ),
    ),
    {"kind": "exact", "strip": True, "first_line": True, "ignore_case": True},
)

DATES = Topic(
    "iso-dates",
    draw_date,
    (
        Family(
            "contract",
            (
                "The contract with {company} starts on {dmy}.",
                "{company} signed the lease on {dmy} in {city}.",
                "Notice was given by {name} on {dmy}.",
            ),
            ("day-first",),
        ),
        Family(
            "due-date",
            (
                "Payment by {company} is due {mdy}.",
                "Please settle the {item} invoice by {mdy}.",
                "Deadline for {company}: {mdy}.",
            ),
            ("month-first",),
        ),
        Family(
            "minutes",
            (
                "The board met on the {ordinal} in {city}.",
                "Next review with {company}: the {ordinal}.",
                "{name} reports back on the {ordinal}.",
            ),
            ("ordinal",),
        ),
        Family(
            "dotted",
            (
                "Eingang {dotted}, {city}",
                "Received {dotted}, ref {ref}",
                "{company}, {dotted}, copy to file",
            ),
            ("numeric", "distractor"),
        ),
        Family(
            "appointment",
            (
                "Your appointment is on {weekday}, {dmy} at {hour}.",
                "{name} visits {company} on {weekday}, {dmy}.",
                "Site visit in {city}: {weekday}, {dmy}, from {hour}.",
            ),
            ("day-first", "distractor"),
        ),
        Family(
            "receipt",
            (
                "Received {dmy}, {company}",
                "Receipt of {dmy}, ref {ref}",
                "Paid on {dmy} by {name}.",
            ),
            ("day-first", "distractor"),
        ),
        Family(
            "short-note",
            (
                "{item}: ordered {short}",
                "{company} called {short}, will call again",
                "{name}, joined {short}, {city} office",
            ),
            ("abbreviated",),
        ),
        Family(
            "stamp",
            (
                "RECEIVED\n{stamp}\n{company}",
                "MAIL ROOM {city}\n{stamp}\nREF {ref}",
                "PAID\n{stamp}\n{hour}",
            ),
            ("multiline", "abbreviated"),
        ),
        Family(
            "birth-record",
            (
                "Date of birth of {name}: {mdy}, {city}.",
                "{name}, born {mdy}.",
                "Born in {city} on {mdy}: {name}.",
            ),
            ("month-first",),
        ),
        Family(
            "columns",
            (
                "Day {day}, month {month}, year {year} ({company})",
                "Year: {year}\nMonth: {month}\nDay: {day}",
                "{month} / day {day} / {year}, {city}",
            ),
            ("labelled",),
        ),
    ),
)

RECORD = Topic(
    "json-record",
    draw_record,
    (
        Family(
            "order-mail",
            (
                "Please send us {qty} units of the {item}. Thanks, {first}",
                "We would like to order the {item}, {qty} pieces. {name}, {company}",
                "Hello, {company} needs {qty} pieces of your {item}.",
            ),
            ("prose",),
        ),
        Family(
            "order-line",
            (
                "{qty} x {item}",
                "{item} x {qty}",
                "{qty} pcs {item}, {city}",
            ),
            ("short",),
        ),
        Family(
            "phone-note",
            (
                "{name} rang: wants the {item}, quantity {qty}.",
                "Call at {hour}. Quantity {qty}, article {item}, for {company}.",
                "{company} by phone, {qty} of article {item}.",
            ),
            ("labelled",),
        ),
        Family(
            "table-row",
            (
                "item\tqty\tsite\n{item}\t{qty}\t{city}",
                "qty\titem\tref\n{qty}\t{item}\t{ref}",
            ),
            ("multiline", "table"),
        ),
        Family(
            "stock-count",
            (
                "Shelf count in {city}: {item}, {qty} on hand.",
                "Counted by {name}: {qty} on the shelf, article {item}.",
                "Stock of {item} at the {city} store is {qty}.",
            ),
            ("prose",),
        ),
        Family(
            "return-slip",
            (
                "RETURN SLIP\nArticle: {item}\nPieces: {qty}\nFrom: {company}",
                "RETURN SLIP {ref}\nPieces: {qty}\nArticle: {item}",
            ),
            ("multiline", "labelled", "distractor"),
        ),
        Family(
            "quote-request",
            (
                "What is your best price for {qty} pieces of the model {item}?",
                "Could you quote the {item} for {company}? We think of {qty} pieces.",
                "Quote wanted: {item}, batch of {qty}, delivered to {city}.",
            ),
            ("prose",),
        ),
        Family(
            "delivery-note",
            (
                "Delivered to {company}: {item} ({qty})",
                "Delivery note {ref}: {item}, pieces: {qty}",
                "Goods in, {city}. {qty} cartons, each one {item}.",
            ),
            ("labelled", "distractor"),
        ),
    ),
    {"kind": "json", "exact_keys": True},
)

PERSON = Topic(
    "person-name",
    draw_person,
    (
        Family(
            "attendee",
            (
                "Attendee: {name}",
                "Attendee: {name} ({company})",
                "Seat 4: {name}",
            ),
            ("labelled",),
        ),
        Family(
            "introduction",
            (
                "My name is {name}.",
                "I am {name}, {role} at {company}.",
                "Hello, {name} here, the new {role}.",
            ),
            ("prose",),
        ),
        Family(
            "signature",
            (
                "Kind regards,\n{name}\n{role}, {company}",
                "Best wishes\n{name}\n{company}, {city}",
                "Thank you,\n{name}",
            ),
            ("multiline",),
        ),
        Family(
            "request",
            (
                "Please add {name} from {company} to the mailing list.",
                "Can you give {name} access to the {city} folder?",
                "Remove {name}, our former {role}, from the rota.",
            ),
            ("prose",),
        ),
        Family(
            "staff-list",
            (
                "Staff: {name}, {company}",
                "{name}, {role}, {city}",
                "Employee {ref}: {name}",
            ),
            (
                "labelled",
                "distractor",
            ),
        ),
        Family(
            "visitor",
            (
                "Visitor: {name}",
                "Visitor badge for {name}, {hour}",
                "Expect {name} of {company} at {hour}.",
            ),
            (
                "prose",
                "distractor",
            ),
        ),
        Family(
            "author",
            (
                "Author: {name}",
                "Written by {name}, {company}",
                "Report by {name}, {city}",
            ),
            ("labelled",),
        ),
        Family(
            "titled",
            (
                "{title} {name}, {role}, {company}",
                "Letter to {title} {name}, {city}",
                "{title} {name} chaired the meeting in {city}.",
            ),
            (
                "prose",
                "distractor",
            ),
        ),
        Family(
            "policy",
            (
                "Insured: {name}\nPlace: {city}\nPolicy {ref}",
                "Policy {ref}\nInsured person: {name}",
            ),
            (
                "multiline",
                "distractor",
            ),
        ),
    ),
)

ORDER = Topic(
    "order-number",
    draw_order,
    (
        Family(
            "email",
            (
                "Hello, where is my order {order}? Regards, {name}",
                "I would like to cancel order {order}. {name}, {city}",
                "Dear team, order {order} has not arrived yet. {first}",
            ),
            ("prose",),
        ),
        Family(
            "call-log",
            (
                "Caller {name}, order {order}, asks for a delivery date.",
                "Call {hour}. {company} wants to change order {order}.",
                "{name} rang about the {item}, order number {order}.",
            ),
            ("prose",),
        ),
        Family(
            "form",
            (
                "Name: {name}\nOrder no.: {order}\nReason: return",
                "Order no.: {order}\nPhone: {phone}\nItem: {item}",
            ),
            ("multiline", "labelled"),
        ),
        Family(
            "invoice-mix",
            (
                "Invoice {ref} belongs to order {order}, customer {company}.",
                "Order {order} was billed on invoice {ref}.",
            ),
            ("distractor",),
        ),
        Family(
            "chat",
            (
                "hi!! {order} still not here, any news? {first}",
                "any update on {order}? thx",
                "it's {first}, number is {order}, wrong {item} in the box",
            ),
            ("informal",),
        ),
        Family(
            "phone-mix",
            (
                "Please ring me on {phone} about {order}. {name}",
                "My number is {phone}, the order is {order}.",
                "{name}, tel. {phone}, concerning purchase {order}",
            ),
            ("distractor",),
        ),
        Family(
            "warehouse",
            (
                "Bay 4: pallet for {company}, {order}, {city}, picked {hour}",
                "Picked {hour}, {order}, {item}, for {city}",
                "On hold: {order} ({company}), {item} out of stock",
            ),
            ("labelled",),
        ),
        Family(
            "subject",
            (
                "Re: Fwd: {order} ({item})",
                "Subject: complaint {order}\nThe {item} is scratched.",
                "FW: {company} / {order} / {city}",
            ),
            ("short",),
        ),
        Family(
            "letter",
            (
                "{city}\nYour reference: {order}\nDear Sir or Madam, I wait for the {item}.",
                "Our customer no. {ref}\nPurchase order: {order}\nPlease confirm.",
            ),
            ("multiline", "distractor"),
        ),
    ),
)

DELIVERY = Topic(
    "delivery-line",
    draw_delivery,
    (
        Family(
            "driver-note",
            (
                "Driver note: {city} on {weekday}, {parcels} parcels.",
                "Driver note: to {city}, {weekday}, with {parcels} parcels.",
                "Driver note: drop in {city}, {weekday}: {parcels} parcels",
            ),
            ("labelled",),
        ),
        Family(
            "email",
            (
                "Please bring to {city} on {weekday} our {parcels} parcels.",
                "We need a van to {city} on {weekday} for {parcels} parcels.",
                "In {city} they expect on {weekday} our {parcels} parcels.",
            ),
            ("prose",),
        ),
        Family(
            "depot-board",
            (
                "{city} | {weekday} | {parcels} parcels | bay 3",
                "bay 7 | {city} | {weekday} | {parcels} parcels",
            ),
            (
                "table",
                "distractor",
            ),
        ),
        Family(
            "phone",
            (
                "{name} rang: {parcels} parcels must be in {city} by {weekday}.",
                "Call {hour}: {city} takes on {weekday} {parcels} parcels.",
            ),
            (
                "prose",
                "distractor",
            ),
        ),
        Family(
            "booking-form",
            (
                "Destination: {city}\nDay: {weekday}\nParcels: {parcels}",
                "Town: {city}\nWeekday: {weekday}\nNumber of parcels: {parcels}\nSender: {company}",
            ),
            (
                "multiline",
                "labelled",
            ),
        ),
        Family(
            "route-plan",
            (
                "The van to {city} leaves on {weekday} with {parcels} parcels on board.",
                "Route to {city}, {weekday}, load {parcels} parcels.",
                "The {city} run on {weekday} carries {parcels} parcels for {company}.",
            ),
            ("prose",),
        ),
        Family(
            "confirmation",
            (
                "We confirm: {city}, {weekday}, {parcels} parcels.",
                "Confirmed for {city} on {weekday}: {parcels} parcels, {company}",
                "{company} confirms {city}, next {weekday}, {parcels} parcels.",
            ),
            ("prose",),
        ),
        Family(
            "chat",
            (
                "{parcels} parcels {city} {weekday} ok?",
                "hi depot, {city} wants {parcels} parcels, {weekday} is fine. {first}",
                "can we do {weekday}? its {parcels} parcels, {city}",
            ),
            (
                "informal",
                "reordered",
            ),
        ),
        Family(
            "customs",
            (
                "Cleared for {city}, release on {weekday}, {parcels} parcels, ref {ref}.",
                "Customs ref {ref}: {parcels} parcels for {city}, release {weekday}.",
            ),
            (
                "prose",
                "distractor",
            ),
        ),
    ),
)

UNITS = Topic(
    "units",
    draw_units,
    (
        Family(
            "height",
            (
                "The {item} rack is {big} ft {small} in high. Height in cm?",
                "Shelf for {company}: {big} feet {small} inches. Give centimetres.",
            ),
            ("length",),
        ),
        Family(
            "parcel-weight",
            (
                "Parcel to {city}: {big} lb {small} oz. Weight in grams?",
                "The {item} weighs {big} lb {small} oz. How many grams?",
            ),
            ("mass",),
        ),
        Family(
            "trip",
            (
                "{name} drove {tens} miles to {city}. Kilometres?",
                "Mileage claim, {company}: {tens} miles. State it in km.",
            ),
            ("length",),
        ),
        Family(
            "fuel",
            (
                "Fuel card {ref}: {big} US gallons in {city}. Litres?",
                "{company} van took {big} US gallons. How many litres?",
            ),
            ("volume",),
        ),
        Family(
            "cold-store",
            (
                "Cold store {ref} in {city} reads {fahrenheit} F. What is that in Celsius?",
                "Log {hour}, {company}: {fahrenheit} degrees Fahrenheit. Celsius?",
            ),
            ("temperature",),
        ),
        Family(
            "carpet",
            (
                "Carpet for {company}: {tens} yards. Metres?",
                "{name} ordered {tens} yards of cloth for {city}. In metres?",
            ),
            ("length",),
        ),
        Family(
            "plot",
            (
                "Building plot in {city}: {acres} acres. Square metres?",
                "{company} rents {acres} acres. Area in square metres?",
            ),
            ("area",),
        ),
        Family(
            "drum",
            (
                "Cleaning fluid, {company}: {quarts} US quarts. Litres?",
                "Drums for {city} hold {quarts} US quarts together. Litres?",
            ),
            ("volume",),
        ),
    ),
    {"kind": "number"},
)

TOPICS = (TICKET, VISITOR, TRIAGE, DATES, RECORD, PERSON, ORDER, DELIVERY, UNITS)


# ------------------------------------------------------------------------------ writing


def normalised(text: str) -> str:
    """Fold case and white space, the form in which two inputs count as the same."""
    return " ".join(text.lower().split())


def generate(seed: int = SEED, per_family: int = TASKS_PER_FAMILY) -> Iterator[dict[str, object]]:
    """Yield the tasks in the order of the file; no two inputs are the same."""
    seen: set[str] = set()
    for topic in TOPICS:
        for family in topic.families:
            path = f"{topic.skill}/{family.name}"
            rng = random.Random(f"{seed}:{path}")
            number = 0
            while number < per_family:
                fields = topic.draw(rng, family.name)
                wording = family.wordings[number % len(family.wordings)]
                text = wording.format_map(fields)
                key = normalised(text)
                if key in seen:
                    continue
                seen.add(key)
                number += 1
                task: dict[str, object] = {
                    "id": f"{path}/{number:04d}",
                    "family": path,
                    "skill": topic.skill,
                    "input": text,
                    "expected": fields["expected"],
                }
                if topic.verifier is not None:
                    task["verifier"] = topic.verifier
                task["tags"] = list(family.tags)
                yield task


def render() -> str:
    """Return the whole text of tasks.jsonl."""
    return "".join(json.dumps(task, ensure_ascii=False) + "\n" for task in generate())


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the task file, or with `--check` compare it; 0 when it is as it should be."""
    parser = argparse.ArgumentParser(description="Write the tasks of the desk suite.")
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    options = parser.parse_args(arguments)
    wanted = render().encode("utf-8")
    if not options.check:
        TASKS_FILE.write_bytes(wanted)
        return 0
    found = TASKS_FILE.read_bytes() if TASKS_FILE.is_file() else b""
    if found == wanted:
        return 0
    print(
        f"{TASKS_FILE}: {len(found)} bytes differ from the {len(wanted)} generated; "
        "run generate.py without --check to rewrite it",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
