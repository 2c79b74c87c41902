"""The commands that look at a prompt, its pieces and its budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from rankbudget.cli.main import main
from rankbudget.cli.options import tokens
from rankbudget.counting import counter_for
from tests.core.cli.conftest import failed, run, thread

COUNTER = counter_for("gpt-4o")


def said(capsys, *arguments):
    assert run(*arguments) == 0
    return capsys.readouterr().out


# ---- inspect and explain ------------------------------------------------------------------------------------------------------------
def test_inspect_writes_a_page_with_what_was_dropped(chat, tmp_path, capsys):
    """The page has the texts of the chat, also of dropped messages, and its path is printed."""
    page = tmp_path / "page.html"
    assert said(capsys, "inspect", chat, "--window", "1k", "-o", page) == f"{page}\n"
    text = page.read_text(encoding="utf-8")
    assert "Question 0: " in text
    assert "Answer 99." in text


@pytest.mark.parametrize(
    ("piece", "answer"),
    [
        ("1", "system (system) was kept whole: pinned"),
        ("2", "history-0 (history) was dropped: older_than_cut"),
        ("history-199", "history-199 (history) was kept whole: fits"),
        ("201", "history-199 (history) was kept whole: fits"),
        ("system", "system (system) was kept whole"),
    ],
)
def test_explain_takes_ids_and_numbers_of_messages(chat, capsys, piece, answer):
    """Message 1 is the first of the file, the system message."""
    assert said(capsys, "explain", piece, chat, "--window", "1k").startswith(answer)


def test_explain_says_what_brings_a_piece_back(chat, capsys):
    """With so many tokens more the same piece is kept, with one less it is not."""
    out = said(capsys, "explain", "2", chat, "--window", 1000, "--reserve", 300)
    more = int(out.split(" more token")[0].rpartition(" ")[2].replace(",", ""))
    for extra, word in ((more, "kept"), (more - 1, "dropped")):
        assert f"was {word}" in said(capsys, "explain", "2", chat, "--window", 1000 + extra, "--reserve", 300)


@pytest.mark.parametrize("piece", ["0", "202", "nothing", "-", "²"])
def test_an_unknown_piece_is_an_error_with_its_remedy(chat, capsys, piece):
    """The error says what an id may be and where the ids are."""
    error = failed(capsys, "explain", piece, chat, "--window", "1k")
    assert "from 1 to 201" in error
    assert "fit --json" in error


def test_a_message_with_an_id_of_its_own_is_found_by_number_and_id(tmp_path, capsys):
    """The report names messages by the id that they have."""
    path = tmp_path / "c.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hi", "id": "m-1"}]))
    assert said(capsys, "explain", "1", path) == said(capsys, "explain", "m-1", path)


# ---- check --------------------------------------------------------------------------------------------------------------------------
def test_a_golden_file_catches_one_piece_and_shows_it(chat, tmp_path, capsys):
    """A chat whose last answer changes its length by a word: status 1, and the lines of that piece alone."""
    golden = tmp_path / "plan.txt"
    options = ["--window", "100k", "--golden", golden]
    assert "201 pieces" in said(capsys, "check", chat, *options, "--update")
    assert "no difference" in said(capsys, "check", chat, *options)
    given = thread(100)
    given[-1]["content"] += " Really."
    chat.write_text(json.dumps(given))
    assert run("check", chat, *options) == 1
    lines = [
        line for line in capsys.readouterr().out.splitlines() if line[:1] in "+-" and line[1:2] not in "+-"
    ]
    assert [line.split()[1] for line in lines] == ["history/history-199"] * 2
    before = golden.read_text()
    assert run("check", chat, *options, "--update") == 0
    assert golden.read_text() != before


def test_a_dropped_piece_is_a_difference(chat, tmp_path, capsys):
    """A smaller window drops an exchange that the golden file keeps."""
    golden = tmp_path / "plan.txt"
    run("check", chat, "--window", 1000, "--golden", golden, "--update")
    capsys.readouterr()
    assert run("check", chat, "--window", 940, "--golden", golden) == 1
    out = capsys.readouterr().out
    assert "\n-kept       history/" in out
    assert "\n+trimmed    history/" in out


def test_a_missing_golden_file_names_its_remedy(chat, tmp_path, capsys):
    """--update writes it."""
    assert "--update" in failed(capsys, "check", chat, "--golden", tmp_path / "no.txt")


def test_an_id_with_a_line_break_stays_on_its_line(tmp_path, capsys):
    """A golden file has one line for each piece, whatever the ids hold."""
    chat, golden = tmp_path / "c.json", tmp_path / "g.txt"
    chat.write_text(json.dumps([{"role": "user", "content": "Hi", "id": "a\nkept b"}]))
    said(capsys, "check", chat, "--golden", golden, "--update")
    assert len(golden.read_text().splitlines()) == 2
    assert "no difference" in said(capsys, "check", chat, "--golden", golden)


# ---- compare ------------------------------------------------------------------------------------------------------------------------
def test_budgets_stand_side_by_side(chat, tmp_path, capsys):
    """Windows, a file, a profile of it and a window that is too small: a line each, then what differs."""
    file = tmp_path / "b.yaml"
    file.write_text("llm: {context_window: 4096, model: gpt-4o}\nprofiles: {small: {context_window: 900}}\n")
    lines = said(capsys, "compare", chat, "1k", "128k", file, f"{file}:small", "20").splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["1k", "128k", str(file), f"{file}:small"]
    assert lines[5].startswith("20: what must stay needs")
    assert lines[6].startswith("history/history-0: in the prompt with 128k")
    assert lines[2].split()[1:] == ["128,000", *lines[2].split()[2:4], "201", "0", "0"]


def test_budgets_that_keep_the_same_have_no_difference(chat, capsys):
    """Only the lines of the budgets are printed."""
    assert len(said(capsys, "compare", chat, "100k", "128k").splitlines()) == 3


# ---- count, compress, models --------------------------------------------------------------------------------------------------------
def test_chats_and_texts_are_counted_as_the_model_does(chat, docs, capsys):
    """A chat with its framing, a text alone, and their sum."""
    text = docs / "tea.md"
    out = said(capsys, "count", chat, text).splitlines()
    sizes = [COUNTER.count_messages(thread(100)), COUNTER.count(text.read_text())]
    assert [line.split()[1] for line in out[1:4]] == [f"{n:,}" for n in (*sizes, sum(sizes))]


def test_each_message_has_its_own_line(chat, capsys):
    """201 messages, the head, the file and the counter; with the priming of the answer they are the whole."""
    lines = said(capsys, "count", "--each", chat).splitlines()
    assert len(lines) == 204
    alone = sum(int(line.split()[0]) for line in lines[1:202])
    assert alone + COUNTER.count_messages([]) == COUNTER.count_messages(thread(100))


@pytest.mark.parametrize("tokens", [0, -5])
def test_a_text_of_no_tokens_is_refused(tokens, docs, capsys):
    """A typo does not print an empty text."""
    told = failed(capsys, "compress", docs / "tea.md", "--max-tokens", tokens)
    assert told == f"rankbudget: error: --max-tokens must be a whole number from 1 (got {tokens})\n"


def test_a_text_is_compressed_to_what_was_asked(docs, capsys):
    """Within the limit, with the sentence that answers."""
    out = said(capsys, "compress", docs / "tea.md", "--max-tokens", 12, "--question", "How dry is tea kept?")
    assert COUNTER.count(out.rstrip("\n")) <= 12
    assert "dry" in out


def test_models_are_listed_with_their_windows(capsys):
    """All that contain a part of a name; an unknown one is an error."""
    lines = said(capsys, "models", "GPT-4o").splitlines()
    assert any(line.split()[:3] == ["gpt-4o", "o200k_base", "128,000"] for line in lines)
    assert "must be in the name" in failed(capsys, "models", "no-such-model")


# ---- config and stats ---------------------------------------------------------------------------------------------------------------
def test_a_budget_is_shown_with_its_parts(tmp_path, capsys):
    """The parts of the window add up, and JSON has every field."""
    file = tmp_path / "b.yaml"
    file.write_text("llm: {context_window: 4096, reserve: 1000, model: gpt-4o}\n")
    out = said(capsys, "config", "--budget", file)
    assert out.startswith("window 4,096 = 3,096 for the prompt + 1,000 reserve + 0 safety\n")
    assert json.loads(said(capsys, "config", "--budget", file, "--json"))["context_window"] == 4096
    file.write_text("llm: {context_windw: 4096}\n")
    assert "context_windw" in failed(capsys, "config", "--budget", file)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("as_list", [False, True])
def test_reports_are_added_up(chat, tmp_path, capsys, indent, as_list):
    """Two fits, as lines, as `fit --json` prints them or in a list: the history was cut in one of them."""
    made = [json.loads(said(capsys, "fit", chat, "--window", window, "--json")) for window in ("1k", "100k")]
    file = tmp_path / "reports.jsonl"
    file.write_text("\n".join(json.dumps(one, indent=indent) for one in ([made] if as_list else made)))
    found = json.loads(said(capsys, "stats", file, "--json"))
    assert (found["reports"], found["blocks"]["history"]["cut_in"]) == (2, 1)
    used = [next(b["used"] for b in one["report"]["blocks"] if b["name"] == "history") for one in made]
    assert found["blocks"]["history"]["mean_used"] == round(sum(used) / 2)
    assert "history" in said(capsys, "stats", file)


@pytest.mark.parametrize("text", ["", "[]", "{", "[1]", '{"report": 3}', "\udcff"])
def test_what_is_no_report_is_one_line_and_status_2(tmp_path, capsys, text):
    """No traceback, whatever the file holds."""
    (tmp_path / "r.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    failed(capsys, "stats", tmp_path / "r.jsonl")


# ---- the command --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "number"), [("8192", 8192), ("128k", 128_000), ("1.5K", 1_500), ("1m", 1_000_000)]
)
def test_tokens_may_be_thousands(text, number):
    """As people write them."""
    assert tokens(text) == number


@pytest.mark.parametrize("text", ["", "k", "8x", "1e400k", "nank", "8 192"])
def test_what_is_no_number_of_tokens_is_refused(chat, capsys, text):
    """The error says what it may be."""
    with pytest.raises(SystemExit) as ended:
        run("fit", chat, "--window", text)
    assert ended.value.code == 2
    assert "must be a number of tokens, as 8192 or 128k" in capsys.readouterr().err


def test_the_module_is_the_command():
    """`python -m rankbudget --version`."""
    done = subprocess.run(
        [sys.executable, "-m", "rankbudget", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("rankbudget ")


@pytest.mark.parametrize(
    "command",
    [
        "fit",
        "inspect",
        "explain",
        "check",
        "compare",
        "count",
        "compress",
        "models",
        "config",
        "stats",
        "batch",
        "demo",
    ],
)
def test_every_command_says_what_it_takes(capsys, command):
    """--help ends with 0 and lists the options."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: rankbudget {command}" in capsys.readouterr().out


def test_the_shell_is_told_what_may_come_next():
    """As argcomplete asks: `rankbudget ex` goes on as `explain`."""
    pytest.importorskip("argcomplete")
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": "rankbudget ex", "COMP_POINT": "13", "_ARGCOMPLETE_IFS": "\n"}
    program = "import os, sys; os.dup2(1, 8); from rankbudget.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["explain"]
