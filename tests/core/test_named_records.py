"""Documents of small records alike: the one that is asked for stays, and no value under another one's name."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_documents, fit_messages
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
FIELDS = ("port", "quota", "ticket", "depth")
ONE = "falcon heron osprey condor marten wolverine foxglove beacon lynx otter badger weasel ferret".split()
PARTS = ("billing", "ledger", "search", "auth", "mail"), ("api", "worker", "sync"), ("north", "south")
NAMES = {
    "one part": ONE,
    "two parts": [f"{a}-{b}" for a in PARTS[0] for b in PARTS[1]],
    "two words": [f"{a.title()} {b.title()}" for a in PARTS[0] for b in PARTS[1]],
    "three words": [
        f"{a.title()} {b.title()} {c.title()}" for a in PARTS[0][:3] for b in PARTS[1] for c in PARTS[2]
    ],
    "three parts": [f"{a}-{b}-{c}" for a in PARTS[0][:3] for b in PARTS[1] for c in PARTS[2]],
}
Values = Sequence[tuple[str, int]]


def form(head: str, field: str, tail: str = "", before: str = "") -> tuple[str, Callable[[str, Values], str]]:
    """Returns what is before all records, and what makes one of its name and fields."""
    return (
        before,
        lambda name, values: (
            head.format(name[0].upper() + name[1:] if "May." in head else name)
            + "".join(field.format(key=key, value=value) for key, value in values)
            + tail
        ),
    )


FORMS = {
    "yaml": form("  {}:\n", "    {key}: {value}\n", before="services:\n"),
    "yaml list": form("  - name: {}\n", "    {key}: {value}\n", before="services:\n"),
    "yaml map": form("{}:\n", "  {key}: {value}\n"),
    "nested": form("- place:\n    name: {}\n    facts:\n", "      {key}: {value}\n"),
    "ini": form("[{}]\n", "{key} = {value}\n", "\n"),
    "tight ini": form("[{}]\n", "{key} = {value}\n"),
    "sections": form("## {}\n\n", "- {key}: {value}\n", "\n", "# Services\n\n"),
    "sections of text": form("## {}\n", "The {key} is {value}. ", "\n\n", "# Services\n\n"),
    "bullets": form("- {}\n", "  - {key}: {value}\n", before="Services:\n"),
    "named text": form("{}:\n", "The {key} is {value}.\n"),
    "blocks": form("Service: {}\n", "{key}: {value}\n", "\n"),
    "tight blocks": form("Service: {}\n", "{key}: {value}\n"),
    "paragraphs": form("{} began in May.", " The {key} is {value}.", "\n\n"),
    "lines of text": form("{} began in May.", " The {key} is {value}.", "\n"),
    "text": form("{} began in May.", " The {key} is {value}.", " "),
    "text of hours": form("The {} began in May.", " The {key} is {value}.", " It closes at 5 p.m. "),
    "text of firms": form("The {} began in May.", " The {key} is {value}.", " It was built by Mill Ltd. "),
    "items of text": form("- {} began in May.", " The {key} is {value}.", "\n", "Our services:\n"),
    "rules": form("---\nname: {}\n", "{key}: {value}\n"),
    "json": form(' {{\n  "name": "{}",\n', '  "{key}": "{value}",\n', '  "on": true\n },\n', "[\n"),
    "xml": form("<place>\n  <name>{}</name>\n", "  <{key}>{value}</{key}>\n", "</place>\n"),
    "html": form("<h3>{}</h3>\n<ul>\n", "<li>{key}: {value}</li>\n", "</ul>\n"),
    "page": form("<h3>{}</h3><ul>", "<li>{key}: {value}</li>", "</ul>"),
    "wrapped text": form("{} began in May. It is\nin use.", " The {key}\nis {value}.", "\n\n"),
    "parts": form("{}:\n", "  {key}: {value}\n  facts:\n    {key}: high\n"),
    "manifests": form("---\nkind: App\nmetadata:\n  name: {}\nspec:\n  on: true\n", "  {key}: {value}\n"),
    "manifests between": form(
        "kind: App\nmetadata:\n  name: {}\nspec:\n", "  - facts:\n      {key}: {value}\n", "---\n"
    ),
    "tables": form('[[place]]\nname = "{}"\n\n[place.facts]\n', "{key} = {value}\n", "\n"),
    "wiki": form("== {} ==\nIt began in May.\n\n=== Facts ===\n", "The {key} is {value}.\n\n"),
    "latex": form("\\section{{{}}}\nIt is in use.\n\n", "The {key} is {value}.\n\n"),
    "tickets": form("Ticket {}\n\nStatus: open\n\n", "The {key} is {value}.\n\n"),
    "tickets between rules": form("Ticket {}\n\nStatus: open\n\n", "{key}: {value}\n\n", "---\n\n"),
    "sheets": form("Pump {}\n\nData sheet\n\n", "The {key} is {value}.\n\n"),
    "sheets between rules": form("Pumpe {}\n\nDatenblatt\n\n", "Der {key} ist {value}.\n\n", "* * *\n\n"),
    "tight rules": form("Ticket {}\nStatus: open\n", "The {key} is {value}.\n", "=" * 30 + "\n"),
    "tight signs": form("Ticket {}\nStatus: open\n\n", "{key}: {value}\n\n", "+++\n"),
    "pages": form("Pump {}\n\nData sheet\n\n", "The {key} is {value}.\n\n", "\f"),
}
FLAT = {
    **{kind: ["three words"] for kind in ("tight ini", "named text", "text")},
    **{kind: ["two words", "three words"] for kind in ("text of hours", "text of firms")},
}
"""Forms without a mark of where a record begins: there names of as many words are seen as fields of two words.

An article before the name is one of the words.
"""


@pytest.mark.parametrize(
    ("kind", "names"),
    [(kind, names) for kind in FORMS for names in NAMES if names not in FLAT.get(kind, ())],
)
@draws(cases=len(FORMS) * len(NAMES))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(3, 13),
    asked=st.sampled_from(FIELDS),
    question=st.sampled_from(
        ["Which {key} does {name} have?", "What is the {key} of the {name} service?", "{name} {key}"]
    ),
    share=st.floats(0, 1),
    missing=st.sampled_from([0, 0, 0.2]),
)
def test_the_record_asked_for_stays_and_no_value_stands_under_another_name(
    kind: str, names: str, seed: int, count: int, asked: str, question: str, share: float, missing: float
) -> None:
    """From the room of the record itself to that of all, whatever fields others lack."""
    drawn = random.Random(seed)
    before, made = FORMS[kind]
    chosen = drawn.sample(NAMES[names], count)
    name = drawn.choice(chosen)
    numbers = iter(drawn.sample(range(10_000, 99_999), count * len(FIELDS)))
    values = {one: [next(numbers) for _ in FIELDS] for one in chosen}
    records = {
        one: made(
            one,
            [
                (key, value)
                for key, value in zip(FIELDS, values[one], strict=True)
                if one == name or drawn.random() >= missing
            ],
        )
        for one in chosen
    }
    text = before + "".join(records.values())
    least, most = COUNTER.count(before + records[name]) + 3, COUNTER.count(text)
    limit = max(least, round(least + share * (most - least)))
    query = question.format(key=asked, name=name)
    shown = fit_documents([text], max_tokens=limit, query=query, counter=COUNTER).text
    assert str(values[name][FIELDS.index(asked)]) in shown
    owners = {value: one for one, all_values in values.items() for value in all_values}
    for number in re.finditer(r"\d{5}", shown):
        above = shown[: number.start()].casefold()
        assert max(chosen, key=lambda one: above.rfind(one.casefold())) == owners[int(number.group())]


@pytest.mark.parametrize("kinds", [("App", "App", "Job", "App", "Map"), ("App",) * 5])
def test_a_rare_kind_is_not_taken_for_the_name_of_a_manifest(kinds: Sequence[str]) -> None:
    """A value comes after the name of its record, however many records of its kind there are."""
    records = [
        f"kind: {kind}\nmetadata:\n  name: {name}\nspec:\n  port: {i}1\n  size: {i}2\n"
        for i, (kind, name) in enumerate(zip(kinds, ONE, strict=False), start=10)
    ]
    text = "---\n".join(records)
    for limit in range(30, COUNTER.count(text)):
        shown = fit_documents([text], max_tokens=limit, query=f"The port of {ONE[2]}?", counter=COUNTER).text
        assert "port: 121" in shown
        for port in re.finditer(r"(?:port|size): (\d\d)\d", shown):
            above = shown[: port.start()]
            assert max(ONE, key=above.rfind) == ONE[int(port[1]) - 10]


class Language(NamedTuple):
    """Names, what is said of all alike, fields with their sentence, and how values and texts are written."""

    names: str
    opening: str
    fields: tuple[tuple[str, str], ...]
    question: str
    signs: Sequence[str]
    after: str = " "
    colon: str = ": "


LANGUAGES = {
    "English": Language(
        "Anna Boris Clara David Emma Felix Greta Hugo Irma Jonas Klara Leo",
        "{} lives in the south and is glad.",
        (("phone", "The phone is {}."), ("room", "The room is {}."), ("desk", "The desk is {}.")),
        "What is the {key} of {name}?",
        ("aeiouáéíóú",),
    ),
    "German": Language(
        "Anna Boris Clara David Emma Felix Greta Hugo Irma Jonas Klara Leo",
        "{} wohnt im Süden und ist froh.",
        (
            ("Telefonnummer", "Die Telefonnummer lautet {}."),
            ("Zimmernummer", "Die Zimmernummer ist {}."),
            ("Schlüsselnummer", "Die Schlüsselnummer ist {}."),
        ),
        "Wie lautet die {key} von {name}?",
        ("aeiouáéíóú",),
    ),
    "Chinese": Language(
        "红茶 绿茶 咖啡 牛奶 果汁 啤酒 面包 蛋糕 饼干 豆腐 苹果 香蕉",
        "{}产自南方，口感很好。",
        (("零售价格", "零售价格是{}元。"), ("零售数量", "零售数量为{}。"), ("编号", "编号是{}。")),
        "{name}的{key}是多少？",
        ("甲乙丙丁戊己庚辛壬癸", "〇一二三四五六七八九"),
        "",
        "：",
    ),
    "Japanese": Language(
        "田中 佐藤 鈴木 高橋 伊藤 渡辺 山本 中村 小林 加藤 吉田 山田",
        "{}は東京に住んでいます。",
        (
            ("電話番号", "電話番号は{}です。"),
            ("会社の番号", "会社の番号は{}です。"),
            ("会社の部屋", "会社の部屋は{}です。"),
        ),
        "{name}の{key}は何ですか？",
        ("あいうえおかきくけこ", "０１２３４５６７８９"),
        "",
        "：",
    ),
    "Korean": Language(
        "민수 영희 철수 지훈 서연 하은 도윤 예준 수아 지우 현우 은지",
        "{} 씨는 서울에 살고 있습니다.",
        (
            ("전화번호", "전화번호는 {}입니다."),
            ("회사의 번호", "회사의 번호는 {}입니다."),
            ("방", "방은 {}입니다."),
        ),
        "{name} 씨의 {key}는 무엇입니까?",
        ("가나다라마바사아자차",),
    ),
    "Thai": Language(
        "สมชาย สมศรี มานะ มานี ปิติ ชูใจ วีระ ดวงใจ เพชร จันทร์ ธนา กานดา",
        "{}อาศัยอยู่ในกรุงเทพ!",
        (
            ("หมายเลขโทรศัพท์", "หมายเลขโทรศัพท์คือ {}!"),
            ("หมายเลขบัญชี", "หมายเลขบัญชีคือ {}!"),
            ("ห้อง", "ห้องคือ {}!"),
        ),
        "{key}ของ{name}คืออะไร?",
        ("กขคงจฉชซญด", "๐๑๒๓๔๕๖๗๘๙"),
    ),
    "Arabic": Language(
        "أحمد خالد سعيد يوسف مريم فاطمة ليلى حسن عمر زينب طارق سلمى",
        "{} يعيش في القاهرة.",
        (("هاتف", "رقم الهاتف هو {}."), ("غرفة", "الغرفة هي {}."), ("مكتب", "المكتب هو {}.")),
        "ما هو {key} {name}؟",
        ("ابتثجحخدذر", "٠١٢٣٤٥٦٧٨٩"),
    ),
    "Hindi": Language(
        "अमित रीता मोहन सीता राहुल पूजा विजय कविता सुनील गीता अजय मीना",
        "{} दिल्ली में रहता है।",
        (("फ़ोन", "फ़ोन नंबर {} है।"), ("कमरा", "कमरा {} है।"), ("मेज़", "मेज़ {} है।")),
        "{name} का {key} क्या है?",
        ("०१२३४५६७८९",),
    ),
}
WRITTEN: dict[str, Callable[[Language, str, Sequence[str]], str]] = {
    "paragraphs": lambda used, name, values: f"{sentences(used, name, values)}\n\n",
    "lines of text": lambda used, name, values: f"{sentences(used, name, values)}\n",
    "text": lambda used, name, values: sentences(used, name, values) + used.after,
    "items of text": lambda used, name, values: f"- {sentences(used, name, values)}\n",
    "blocks": lambda used, name, values: f"{name}\n{lines_of(used, values, '')}\n",
    "named blocks": lambda used, name, values: f"ID{used.colon}{name}\n{lines_of(used, values, '')}\n",
    "indented": lambda used, name, values: f"{name}{used.colon.strip()}\n{lines_of(used, values, '  ')}",
    "items": lambda used, name, values: f"- {name}\n{lines_of(used, values, '  - ')}",
    "sections": lambda used, name, values: f"## {name}\n\n{lines_of(used, values, '- ')}\n",
}


def sentences(used: Language, name: str, values: Sequence[str]) -> str:
    """Returns a record as sentences of one line."""
    said = [text.format(value) for (_, text), value in zip(used.fields, values, strict=True)]
    return used.after.join([used.opening.format(name), *said])


def lines_of(used: Language, values: Sequence[str], before: str) -> str:
    """Returns the fields of a record as lines."""
    return "".join(
        f"{before}{key}{used.colon}{value}\n" for (key, _), value in zip(used.fields, values, strict=True)
    )


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", WRITTEN)
@draws(cases=len(LANGUAGES) * len(WRITTEN))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(3, 12),
    asked=st.integers(0, 2),
    sign=st.integers(0, 2),
    share=st.floats(0, 1),
)
def test_a_value_stays_with_its_name_in_every_script(
    kind: str, language: str, seed: int, count: int, asked: int, sign: int, share: float
) -> None:
    """Where words have no spaces between them, and names have two characters."""
    drawn, used = random.Random(seed), LANGUAGES[language]
    chosen = drawn.sample(used.names.split(), count)
    name = drawn.choice(chosen)
    signs = str.maketrans("0123456789", ("0123456789", *used.signs)[sign % (len(used.signs) + 1)])
    numbers = iter(drawn.sample(range(10_000, 99_999), 3 * count))
    values = {one: [str(next(numbers)).translate(signs) for _ in range(3)] for one in chosen}
    records = {one: WRITTEN[kind](used, one, values[one]) for one in chosen}
    text = "".join(records.values())
    least, most = COUNTER.count(records[name]) + 3, COUNTER.count(text)
    limit = max(least, round(least + share * (most - least)))
    question = used.question.format(key=used.fields[asked][0], name=name)
    shown = fit_documents([text], max_tokens=limit, query=question, counter=COUNTER).text
    assert values[name][asked] in shown
    owners = {value: one for one, own in values.items() for value in own if value in shown}
    for value, owner in owners.items():
        above = shown[: shown.index(value)]
        assert max(chosen, key=above.rfind) == owner


SHORT = {
    "Japanese": (
        "松竹梅桜杉楓菊萩桐椿",
        (
            "{}の間の定員は{}名です。料金は{}円です。\n\n",
            "{}は庭の部屋です。定員は{}名、料金は{}円です。\n\n",
        ),
        ("{}\n定員 {}\n料金 {}\n\n", "{}：定員{}名、料金{}円\n", "## {}\n\n- 定員: {}\n- 料金: {}\n\n"),
        ("{}の間の定員は何名ですか。", "{}の定員を教えてください。", "定員は何名ですか、{}の場合は？"),
    ),
    "Chinese": (
        "甲乙丙丁戊庚辛壬癸寅",
        ("{}组的经费是{}元。办公室在{}号。\n\n", "今年拨给{}的经费为{}元。办公室在{}号。\n\n"),
        ("{}\n经费 {}\n办公室 {}\n\n", "{}：经费{}元，办公室{}号\n", "## {}\n\n- 经费：{}\n- 办公室：{}\n\n"),
        ("{}组的经费是多少？", "{}的经费是多少？", "经费方面，{}有多少？"),
    ),
    "Korean": (
        "밤솔귤삼강꽃달별콩팥",
        (
            "{}방의 정원은 {}명입니다. 요금은 {}원입니다.\n\n",
            "{} 방은 정원이 {}명이고 요금은 {}원입니다.\n\n",
        ),
        ("{}\n정원 {}\n요금 {}\n\n", "{}: 정원 {}명, 요금 {}원\n", "## {}\n\n- 정원: {}\n- 요금: {}\n\n"),
        ("{}방의 정원은 몇 명입니까?", "{}의 정원을 알려 주세요."),
    ),
}


@pytest.mark.parametrize("door", ["document", "documents", "result", "history"])
@pytest.mark.parametrize("language", SHORT)
@draws(cases=len(SHORT) * 4)
@given(seed=st.integers(0, 10_000), share=st.floats(0.35, 0.6))
def test_a_name_of_one_character_is_found(language: str, door: str, seed: int, share: float) -> None:
    """Alone on its line or inside of a sentence, and whatever the question puts around it."""
    drawn = random.Random(seed)
    names, prose, forms, questions = SHORT[language]
    written, numbers = drawn.choice((*prose, *forms)), drawn.sample(range(1_000, 9_999), 2 * len(names))
    records = [written.format(*one) for one in zip(names, numbers[::2], numbers[1::2], strict=True)]
    asked = drawn.randrange(len(names))
    question = drawn.choice(questions).format(names[asked])
    if door.startswith("document"):
        texts = ["".join(records)] if door == "document" else records
        limit = int(share * sum(map(COUNTER.count, texts)))
        shown = fit_documents(texts, max_tokens=limit, query=question, counter=COUNTER).text
    else:
        chat: list[dict[str, Any]] = []
        for n, text in enumerate(["".join(records)] if door == "result" else records):
            call = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            chat += [
                {"role": "user", "content": "OK"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
            ]
            chat += [{"role": "tool", "tool_call_id": f"c{n}", "content": text}]
            chat += [{"role": "assistant", "content": "OK."}]
        chat += [{"role": "user", "content": question}]
        limit = int(share * COUNTER.count_messages(chat)) + 60
        kept = fit_messages(chat, max_tokens=limit, query=question, counter=COUNTER).messages
        shown = "\n".join(str(message["content"]) for message in kept[:-1])
    number = str(numbers[2 * asked])
    assert number in shown
    above = shown[: shown.index(number)]
    assert max(names, key=above.rfind) == names[asked]
