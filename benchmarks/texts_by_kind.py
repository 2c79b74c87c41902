"""Texts of every kind the estimate is measured on, made from a seed; written for this project."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable

__all__ = ["KINDS", "texts"]

_ENGLISH = (
    "The committee met on Tuesday to review the proposal and agreed to postpone the decision until the figures had been checked.",
    "If you restart the service before the migration has finished, the queue is replayed from the last confirmed offset.",
    "She asked whether the invoice had already been paid, because the supplier had written twice without getting an answer.",
    "Most of the delay comes from a single step: every request opens a new connection instead of using the pool.",
    "We walked along the river until it got dark, talking about nothing in particular and everything at once.",
    "Please summarise the attached notes in three sentences and list the open questions at the end.",
    "Photosynthesis converts light into chemical energy, which plants store in carbohydrates such as glucose and starch.",
)
_GERMAN = (
    "Die Geschwindigkeitsbegrenzung auf der Bundesstraße wurde wegen der Bauarbeiten vorübergehend auf achtzig Kilometer pro Stunde gesenkt.",
    "Bitte überprüfen Sie die Rechnung sorgfältig, bevor Sie den Betrag auf das angegebene Konto überweisen.",
    "Im Herbst färben sich die Blätter der Bäume gelb und rot, und morgens liegt häufig Nebel über den Feldern.",
    "Der Aufsichtsrat beschäftigte sich mit den Wettbewerbsbedingungen und der Personalentwicklung des Unternehmens.",
    "Könntest du mir erklären, warum die Anwendung nach dem Neustart keine Verbindung zur Datenbank herstellt?",
)
_FRENCH = (
    "Le rapport souligne que les délais de livraison se sont allongés depuis l'été, malgré les efforts des équipes.",
    "Où avez-vous rangé les clés de l'entrepôt que nous avions prêtées à l'électricien la semaine dernière ?",
    "Après la réunion, chacun a reçu une copie du procès-verbal ainsi qu'un résumé des décisions adoptées.",
)
_RUSSIAN = (
    "Совещание перенесли на четверг, потому что отчёт за прошлый квартал ещё не был полностью готов.",
    "После обновления сервер перестал отвечать на запросы, и нам пришлось восстановить предыдущую версию.",
    "Весной по берегам реки расцветает черёмуха, и её запах чувствуется далеко за деревней.",
)
_CHINESE = (
    "会议决定把项目的截止日期推迟到下个月底，因为测试环境还没有准备好。",
    "请把附件里的数据整理成表格，并在明天下班之前发送给财务部门。",
    "春天来了，河边的柳树发出了嫩绿的新芽，孩子们在草地上放风筝。",
    "如果系统在启动时找不到配置文件，就会使用默认参数继续运行。",
)
_JAPANESE = (
    "会議の資料は明日の朝までに共有フォルダーへ保存しておいてください。",
    "新しいバージョンでは、検索の速度が大幅に改善されました。",
    "雨が降りそうなので、傘を持って出かけたほうがいいと思います。",
)
_KOREAN = (
    "회의 자료는 내일 아침까지 공유 폴더에 올려 주시기 바랍니다.",
    "새 버전에서는 검색 속도가 크게 개선되었고 오류도 줄었습니다.",
    "비가 올 것 같으니 우산을 챙겨서 나가는 것이 좋겠습니다.",
)
_ARABIC = (
    "قررت اللجنة تأجيل الاجتماع إلى الأسبوع المقبل بسبب عدم اكتمال التقرير المالي.",
    "يرجى التحقق من الفاتورة قبل تحويل المبلغ إلى الحساب المذكور أدناه.",
    "في فصل الربيع تتفتح الأزهار على ضفاف النهر ويخرج الناس للتنزه في الحدائق.",
)
_HINDI = (
    "बैठक अगले सप्ताह तक स्थगित कर दी गई है क्योंकि रिपोर्ट अभी तैयार नहीं है।",
    "कृपया संलग्न दस्तावेज़ को ध्यान से पढ़ें और अपने सुझाव हमें भेजें।",
    "वसंत ऋतु में नदी के किनारे फूल खिलते हैं और बच्चे पतंग उड़ाते हैं।",
)
_CODE = (
    (
        'def load(path: Path, *, strict: bool = False) -> dict[str, int]:\n    """Read counts from a file."""\n    totals: dict[str, int] = {}\n'
        '    for line in path.read_text().splitlines():\n        name, _, value = line.partition("=")\n        if not value and strict:\n'
        '            raise ValueError(f"no value in {line!r}")\n        totals[name.strip()] = int(value or 0)\n    return totals\n'
    ),
    (
        "export async function fetchUser(id: string): Promise<User | null> {\n  const response = await fetch(`${BASE_URL}/users/${id}`, { headers });\n"
        "  if (!response.ok) {\n    console.error('request failed', response.status);\n    return null;\n  }\n  return (await response.json()) as User;\n}\n"
    ),
    (
        "SELECT c.customer_id, SUM(o.amount_cents) / 100.0 AS total\nFROM customers AS c\nLEFT JOIN orders AS o ON o.customer_id = c.customer_id\n"
        "WHERE o.created_at >= '2026-01-01' AND c.is_active = TRUE\nGROUP BY 1 HAVING COUNT(*) > 3\nORDER BY total DESC LIMIT 50;\n"
    ),
    (
        "fn merge(left: &[u32], right: &[u32]) -> Vec<u32> {\n    let mut out = Vec::with_capacity(left.len() + right.len());\n    let (mut i, mut j) = (0, 0);\n"
        "    while i < left.len() && j < right.len() {\n        if left[i] <= right[j] { out.push(left[i]); i += 1; } else { out.push(right[j]); j += 1; }\n    }\n    out\n}\n"
    ),
)
_EMOJI = "😀 😂 🎉 🚀 ❤️ 👍🏽 👩‍👩‍👧 🇩🇪 🏳️‍🌈 🤷‍♀️ ✨ 🔥 🙏 😅 🐍 ☕️ 📈 🧑🏿‍💻".split()


def _sentences(pool: tuple[str, ...], joint: str = " ") -> Callable[[random.Random], str]:
    return lambda rng: joint.join(rng.choices(pool, k=rng.randint(2, 6)))


def _json(rng: random.Random) -> str:
    rows = [
        {
            "id": rng.randrange(10**6),
            "name": f"item-{rng.randrange(999)}",
            "active": rng.random() < 0.5,
            "price": round(rng.uniform(1, 999), 2),
            "tags": ["new", "sale"],
        }
        for _ in range(rng.randint(1, 5))
    ]
    return json.dumps({"results": rows, "next": None}, indent=rng.choice((None, 2)))


KINDS: dict[str, Callable[[random.Random], str]] = {
    "English": _sentences(_ENGLISH),
    "German": _sentences(_GERMAN),
    "French": _sentences(_FRENCH),
    "Russian": _sentences(_RUSSIAN),
    "Chinese": _sentences(_CHINESE, ""),
    "Japanese": _sentences(_JAPANESE, ""),
    "Korean": _sentences(_KOREAN),
    "Arabic": _sentences(_ARABIC),
    "Hindi": _sentences(_HINDI),
    "code": lambda rng: "\n\n".join(rng.choices(_CODE, k=rng.randint(1, 3))),
    "JSON": _json,
    "uuid": lambda rng: "\n".join(
        str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(rng.randint(2, 8))
    ),
    "numbers": lambda rng: " ".join(
        f"{rng.uniform(-1e6, 1e6):.{rng.randint(0, 6)}f}" for _ in range(rng.randint(5, 30))
    ),
    "emoji": lambda rng: "".join(rng.choices(_EMOJI, k=rng.randint(5, 30))),
    "base64": lambda rng: "".join(
        rng.choices(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=rng.randint(80, 400)
        )
    ),
    "URLs": lambda rng: " ".join(
        f"https://docs.example.org/{rng.choice(('guide', 'api', 'v2/users'))}/{rng.getrandbits(32):x}?page={rng.randrange(99)}#top"
        for _ in range(rng.randint(2, 6))
    ),
}


def texts(kind: str, many: int = 60, seed: int = 1) -> list[str]:
    """Returns texts of one kind, the same for the same seed."""
    rng = random.Random(f"{kind} {seed}")
    return [KINDS[kind](rng) for _ in range(many)]
