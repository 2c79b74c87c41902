"""Opens the page of a report in headless Chromium and checks what people see: `make browser-test` runs it.

Chromium comes from the system; as root on Debian it is installed where it is missing. Nothing else is fetched.
"""

# ruff: noqa: PLR2004 - checks are made of numbers

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, sync_playwright

from rankbudget import Assembler, BlockTotal, BudgetReport, Decision, TokenBudget, fit_messages, save_html

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
MOST_MILLISECONDS, MOST_ELEMENTS = 1_000, 1_500
HOSTILE = "</script><img src=x onerror=alert(1)>"


def chromium() -> str:
    """Returns the path of Chromium, after installing it where that can be done."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        apt = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
        subprocess.run([*apt, "update"], check=False)
        install = [*apt, "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
        subprocess.run(install, check=False, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
        found = shutil.which("chromium")
    return found or sys.exit(
        f"browser-test needs Chromium: install the package chromium (looked for {', '.join(NAMES)})"
    )


# ---- the pages ---------------------------------------------------------------------------------------
def words(text: str) -> int:
    return len(text.split())


DOCUMENTS = 20


def sentences(seed: int, count: int) -> str:
    stock = "garden roses water beds soil spring prune bees tea need clean shade light ferns moss stone path".split()
    made = [
        [stock[(seed * 7 + i * 3 + j * (5 + i % 4)) % len(stock)] for j in range(9)] for i in range(count)
    ]
    return "\n".join(f"{' '.join(line).capitalize()} {seed}.{i}." for i, line in enumerate(made))


def write_pages(folder: Path) -> None:
    """Writes a page of 2,000 messages, one of four turns, and one of hostile names."""
    chat: list[dict[str, str]] = []
    for n in range(1_000):
        chat.append({"role": "user", "content": f"Question {n}: {sentences(n, 1)}"})
        chat.append({"role": "assistant", "content": sentences(n, 3)})
    (folder / "chat.json").write_text(json.dumps(chat[:200]), encoding="utf-8")
    fit_messages(chat, max_tokens=25_000, counter=words).save_html(folder / "many.html", before=chat)
    assembler = Assembler(
        TokenBudget(context_window=2_400, reserve=500, max_system_ratio=None), counter=words
    )
    given: dict[str, Any] = {}
    turns = []
    for size in (6, 12, 90, 92):
        thread = list(chat[:size])
        for n in (1, 2) if size > 50 else ():
            thread.append({"role": "user", "content": f"Why {n}?"})
            thread.append({"role": "assistant", "content": sentences(n, 70)})
        documents = [sentences(n, 4 + n % 5) for n in range(DOCUMENTS)]
        given = {"system": "You are a gardener.", "history": thread, "knowledge": documents}
        turns.append(assembler.assemble(given, query="Which beds need water?"))
    save_html(folder / "turns.html", turns, before=given)
    evil = [
        Decision(segment_id=f"{HOSTILE}{i}", block=HOSTILE, action=action, reason="constructor", before=9, after=after,
                 detail=HOSTILE)
        for i, (action, after) in enumerate([("trimmed", 0), ("truncated", 4), ("kept", 9)])
    ]  # fmt: skip
    block = BlockTotal(name=HOSTILE, rank=1, granted=20, used=13)
    report = BudgetReport(
        limit=20, total_tokens=13, blocks=[block], parts=evil, warnings=[HOSTILE], counter=HOSTILE
    )
    texts = {HOSTILE: [{"id": one.segment_id, "content": HOSTILE} for one in evil]}
    report.save_html(folder / "hostile.html", before=texts, after={HOSTILE: texts[HOSTILE][1:]})


class Browser:
    """Opens pages of a folder, and notes what a page must not do."""

    def __init__(self, context: BrowserContext, folder: Path) -> None:
        self.context, self.folder = context, folder

    @contextmanager
    def page(self, name: str, *, theme: str = "light", width: int = 1_360) -> Iterator[Page]:
        """Yields a page; a console message, an error, a dialog or a request fails the check."""
        page, noted, address = self.context.new_page(), [], (self.folder / f"{name}.html").as_uri()
        page.on("console", lambda message: noted.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: noted.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (noted.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: request.url == address or noted.append(f"request: {request.url}"))
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # one of two words
        page.goto(address)
        yield page
        page.close()
        assert noted == [], noted

    def screenshots(self, target: Path) -> None:
        """Writes pictures of the pages for people to look at."""
        for theme in ("light", "dark"):
            for width in (1_360, 420):
                with self.page("turns", theme=theme, width=width) as page:
                    page.screenshot(path=target / f"turns-{theme}-{width}.png")
                    page.locator(".badge", has_text="shortened").first.click()
                    page.screenshot(path=target / f"chosen-{theme}-{width}.png")


def until(page: Page, expression: str) -> Any:
    """Waits until an expression is true, and returns it; the page's own policy forbids Playwright's way."""
    for _ in range(200):
        if value := page.evaluate(expression):
            return value
        page.wait_for_timeout(25)
    msg = f"never true: {expression}"
    raise AssertionError(msg)


# ---- the checks --------------------------------------------------------------------------------------
def check_first_paint(browser: Browser) -> str:
    """A page of 2,000 pieces paints within a second, and draws few elements before somebody scrolls."""
    times = []
    for _ in range(3):
        with browser.page("many") as page:
            times.append(until(page, "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"))
            elements = page.evaluate("document.querySelectorAll('*').length")
            assert page.locator("#count").inner_text() == "2,000 pieces"
    assert min(times) < MOST_MILLISECONDS, times
    assert elements < MOST_ELEMENTS, elements
    return f"{min(times):.0f} ms, {elements} elements"


def check_scrolling(browser: Browser) -> str:
    """Scrolling draws the rest, and a run of dropped pieces opens in steps."""
    with browser.page("many") as page:
        page.locator(".run > button").click()
        inside = page.locator(".run > ol > .piece")
        assert inside.count() == 60
        page.locator(".run .next").click()
        assert inside.count() == 120
        page.locator(".run > button").click()
        for _ in range(200):
            if page.locator("#next").is_hidden():
                break
            page.mouse.wheel(0, 20_000)
            page.wait_for_timeout(20)
        shown = page.locator("#items > .piece:not(.run)").count()
        kept = page.locator("#actions button", has_text="kept").locator("em").inner_text()
        assert f"{shown:,}" == kept, (shown, kept)
    return f"{shown} kept pieces drawn"


def check_accessibility(browser: Browser) -> str:
    """No violation is found by axe in either theme, on wide and narrow screens, with a piece chosen."""
    found = {}
    for name in ("turns", "many", "hostile"):
        for theme, width in (("light", 1_360), ("dark", 1_360), ("light", 420), ("dark", 420)):
            with browser.page(name, theme=theme, width=width) as page:
                if page.locator(".run > button").count():
                    page.locator(".run > button").first.click()
                page.locator("#items .piece:not(.run) > button").first.click()
                for one in Axe().run(page).response["violations"]:
                    found[name, theme, width, one["id"]] = one["impact"], one["nodes"][0]["html"][:160]
    assert found == {}, found
    return "12 pages"


def check_keyboard(browser: Browser) -> str:
    """Without a mouse a piece is searched, chosen, followed by the next one, and left again."""
    with browser.page("turns") as page:
        page.keyboard.press("/")
        page.keyboard.type("question 4")
        until(page, "document.getElementById('count').textContent.includes(' of ')")
        assert page.locator("#items mark").count() > 0
        page.locator("#query").fill("")
        until(page, "!document.getElementById('count').textContent.includes(' of ')")
        page.locator("#items .piece:not(.run) > button").first.focus()
        page.keyboard.press("Enter")
        first = page.locator("#panel h3").inner_text()
        page.keyboard.press("ArrowDown")  # a run of dropped pieces may be next: it is not a piece to choose
        page.keyboard.press("ArrowDown")
        assert page.locator("#panel h3").inner_text() != first
        assert page.locator("#told").inner_text().startswith(page.locator("#panel h3").inner_text())
        page.keyboard.press("Escape")
        assert page.locator("#panel h3").count() == 0
        assert page.evaluate("document.activeElement.parentNode.classList.contains('piece')")
    return "search, choose, next, close"


def check_filters(browser: Browser) -> str:
    """Filters by outcome and block show the pieces that their figures promise."""
    with browser.page("turns") as page:
        for name in ("kept", "shortened", "dropped"):
            chip = page.locator("#actions button", has_text=name)
            promised = chip.locator("em").inner_text()
            chip.click()
            assert page.locator("#count").inner_text().startswith(f"{promised} of "), name
            chip.click()
        page.locator(".turn:not([hidden]) .only", has_text="knowledge").click()
        assert page.locator("#items .block").count() == 1
        assert page.locator("#count").inner_text().startswith(f"{DOCUMENTS} of ")
    return "3 outcomes, 1 block"


def check_differences(browser: Browser) -> str:
    """Of every shortened text the words left out and the words kept are the two texts it had."""
    with browser.page("turns") as page:
        page.locator("#actions button", has_text="shortened").click()
        buttons = page.locator("#items .piece > button")
        assert buttons.count() > 1
        for i in range(buttons.count()):
            buttons.nth(i).click()
            while page.locator("#panel .fold").count():
                page.locator("#panel .fold").first.click()
            same = page.evaluate(
                """() => {
                const data = JSON.parse(document.getElementById('data').textContent);
                const id = document.querySelector('#panel h3').textContent;
                const piece = data.turns.at(-1).pieces.find((one) => data.strings[one[0]] === id);
                const read = (out) => [...document.querySelector('#panel .text').childNodes]
                  .filter((one) => one.nodeName.toLowerCase() !== out).map((one) => one.textContent).join('');
                return [read('ins') === data.strings[piece[7]], read('del') === data.strings[piece[8]],
                  document.querySelectorAll('#panel del').length > 0];
                }"""
            )
            assert same == [True, True, True], (buttons.nth(i).inner_text(), same)
    return f"{i + 1} texts"


def check_dropped(browser: Browser) -> str:
    """A dropped piece shows its text, its reason and how many more tokens bring it back."""
    with browser.page("many") as page:
        page.locator("#actions button", has_text="dropped").click()
        page.locator("#query").fill("question 3:")
        until(page, "document.getElementById('count').textContent.startsWith('1 of')")
        page.locator("#items .piece > button").click()
        said = page.locator("#panel").inner_text()
        assert "Dropped: it is older than the first kept message" in said, said
        assert "Question 3:" in said
    with browser.page("turns") as page:
        page.locator("#actions button", has_text="dropped").click()
        page.locator("#blocks button", has_text="knowledge").click()
        page.locator("#items .piece > button").first.click()
        assert "more tokens for the prompt bring it back" in page.locator("#panel .back").inner_text()
    return "2 pieces"


def check_turns(browser: Browser) -> str:
    """The timeline shows each turn with its own head, by click and by arrow key, and marks the same start."""
    with browser.page("turns") as page:
        turns = page.locator("#timeline button")
        assert turns.count() == 4
        heads = page.locator(".turn:not([hidden]) h2")
        last = heads.inner_text()
        turns.first.click()
        assert heads.count() == 1
        assert heads.inner_text() != last
        assert page.locator(".cache").count() == 0
        page.keyboard.press("ArrowRight")
        assert turns.nth(1).get_attribute("aria-current") == "true"
        assert "Same start as turn 1" in page.locator(".cache").inner_text()
    return "4 turns"


def check_hostile_names(browser: Browser) -> str:
    """A name that is markup is shown as text, and a name that every object has is a name."""
    with browser.page("hostile") as page:
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 2
        for i in range(3):
            page.locator("#items .piece > button").nth(i).click()
            assert HOSTILE in page.locator("#panel h3").inner_text()
            assert "constructor" in page.locator("#panel").inner_text()
    return "3 pieces"


def check_narrow(browser: Browser) -> str:
    """On a screen of 360 pixels nothing but the table scrolls sideways."""
    with browser.page("turns", width=360) as page:
        page.locator("#items .piece:not(.run) > button").first.click()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, wide
    return f"{wide} pixels"


def check_without_script(browser: Browser) -> str:
    """Without JavaScript the figures are there, and a sentence says what is missing."""
    page = browser.context.new_page()
    browser.context.new_cdp_session(page).send("Emulation.setScriptExecutionDisabled", {"value": True})
    page.goto((browser.folder / "turns.html").as_uri())
    assert page.locator(".turn:not([hidden]) table").count() == 1
    assert "needs JavaScript" in page.locator("body").inner_text()
    assert page.locator("#main").is_hidden()
    page.close()
    return "the head"


def check_slider(browser: Browser) -> str:
    """`rankbudget inspect --serve` fits again when the slider moves, by keyboard too, and breaks no rule of axe-core."""
    command = [
        sys.executable,
        "-m",
        "rankbudget",
        "inspect",
        str(browser.folder / "chat.json"),
        "--serve",
        "--model",
        "claude-sonnet-4-5",
    ]
    with subprocess.Popen([*command, "--window", "1k"], stdout=subprocess.PIPE, text=True) as server:
        page = browser.context.new_page()
        try:
            page.goto(server.stdout.readline().partition(" ")[0] if server.stdout else "")
            told = "document.getElementById('state').textContent"
            first = until(page, f"{told}.startsWith('Budget report') && {told}")
            page.locator("#slider").focus()
            page.keyboard.press("End")
            last = until(page, f"{told}.startsWith('Budget report') && {told} !== {first!r} && {told}")
            found = {
                one["id"]: one["nodes"][0]["html"][:160] for one in Axe().run(page).response["violations"]
            }
            assert found == {}, found
            if len(sys.argv) > 1:
                page.screenshot(path=Path(sys.argv[1]) / "slider.png")
        finally:
            page.close()
            server.terminate()
    return f"{first} -> {last}"


CHECKS: tuple[Callable[[Browser], str], ...] = (
    check_first_paint, check_scrolling, check_accessibility, check_keyboard, check_filters, check_differences,
    check_dropped, check_turns, check_hostile_names, check_narrow, check_without_script,
    check_slider,
)  # fmt: skip


def passes(check: Callable[[Browser], str], browser: Browser) -> bool:
    """Runs a check and prints what came of it."""
    try:
        print(f"ok      {check.__doc__} [{check(browser)}]")
    except Exception as error:  # noqa: BLE001 - one failed check must not hide the others
        print(f"FAILED  {check.__doc__}\n        {type(error).__name__}: {error}")
        return False
    return True


def main() -> None:
    path = chromium()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        write_pages(folder)
        context = playwright.chromium.launch_persistent_context(
            folder / "profile", executable_path=path, args=FLAGS, headless=True
        )
        context.set_default_timeout(10_000)
        browser = Browser(context, folder)
        failed = sum([not passes(check, browser) for check in CHECKS])
        if len(sys.argv) > 1:
            browser.screenshots(Path(sys.argv[1]))
        context.close()
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
