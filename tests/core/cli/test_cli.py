"""The command line: the job on a user's own files, one-line errors, progress."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

import rankbudget
from rankbudget.cli.reading import read_passages
from rankbudget.counting import counter_for
from tests.core.cli.conftest import failed, run, thread

COUNTER = counter_for("gpt-4o")


# ---- fit ----------------------------------------------------------------------------------------------------------------------------
def test_fit_prints_the_report_and_what_is_kept(chat, capsys):
    """A chat of 201 messages in a window of 1,000: the table, and where the conversation now starts."""
    assert run("fit", chat, "--window", 1_000) == 0
    out = capsys.readouterr().out
    assert out.startswith("block ")
    assert "messages kept whole, the conversation from message" in out


def test_fit_as_json_holds_messages_that_fit_and_the_report(chat, capsys):
    """The messages are those of the file, and their count is the report's."""
    assert run("fit", chat, "--window", 1_000, "--model", "gpt-4o", "--reserve", 300, "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert (
        made["report"]["total_tokens"]
        == COUNTER.count_messages(made["messages"])
        <= made["report"]["limit"]
        == 700
    )
    given = thread(100)
    assert made["messages"] == given[:1] + given[len(given) - len(made["messages"]) + 1 :]


def test_a_chat_alone_may_fill_the_whole_room(chat, capsys):
    """Without documents nothing is left empty for them: one more exchange would not fit."""
    assert run("fit", chat, "--window", 1_000, "--reserve", 300, "--json") == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert 700 - report["total_tokens"] < 50


def test_a_question_without_documents_leaves_nothing_empty_for_them(chat, capsys):
    """The question stands last and the chat has all the rest of the room."""
    assert run("fit", chat, "--window", 1_000, "--reserve", 300, "--question", "tea?", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["messages"][-1] == {"role": "user", "content": "tea?"}
    assert 650 < made["report"]["total_tokens"] <= 700


def test_json_has_escapes_where_a_pipe_cannot_take_a_letter(tmp_path, capsys):
    """Half a surrogate pair has no UTF-8; as an escape it comes back as it was."""
    given = [{"role": "user", "content": "x\ud800"}]
    (tmp_path / "chat.json").write_text(json.dumps(given))
    assert run("fit", tmp_path / "chat.json", "--json") == 0
    assert json.loads(capsys.readouterr().out)["messages"] == given


def test_an_unknown_model_is_told_how_to_say_its_window(chat, capsys):
    """The error names the option of the command, not an argument of a function."""
    assert "the context window of 'my-own' is unknown; pass --window TOKENS" in failed(
        capsys, "fit", chat, "--model", "my-own"
    )


def test_what_fits_comes_back_whole(chat, capsys):
    """In the model's own window of 128,000 nothing is cut."""
    assert run("fit", chat, "--json") == 0
    assert json.loads(capsys.readouterr().out)["messages"] == thread(100)


def test_documents_and_a_question_share_the_window_with_the_chat(chat, docs, capsys):
    """The passage about storing tea is in the prompt, and the question stands last."""
    assert (
        run("fit", chat, "--window", 1_500, "--docs", docs, "--question", "How do I store tea?", "--json")
        == 0
    )
    made = json.loads(capsys.readouterr().out)
    assert made["messages"][-1] == {"role": "user", "content": "How do I store tea?"}
    assert any("Keep tea dry and dark." in (m["content"] or "") for m in made["messages"])
    assert (
        COUNTER.count_messages(made["messages"]) == made["report"]["total_tokens"] <= made["report"]["limit"]
    )


def test_without_a_question_the_last_user_message_is_it(chat, docs, capsys):
    """Documents are ranked for what the user said last."""
    path = chat.with_name("asked.json")
    path.write_text(json.dumps([*thread(3), {"role": "user", "content": "When does ice melt?"}]))
    assert run("fit", path, "--window", 1_500, "--docs", docs, "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["messages"][-1]["content"] == "When does ice melt?"
    assert any("Ice melts at zero" in m["content"] for m in made["messages"])


def test_passages_are_listed(chat, docs, capsys):
    """The plain form names the passages that are in the prompt."""
    assert run("fit", chat, "--window", 1_500, "--docs", docs, "--question", "How do I store tea?") == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("passages in the prompt: ")]
    assert "tea.md#2" in line


def test_tools_of_the_file_are_counted(tmp_path, capsys):
    """The same chat has less room beside a tool."""
    tool = {
        "type": "function",
        "function": {
            "name": "find",
            "description": "word " * 100,
            "parameters": {"type": "object", "properties": {}},
        },
    }
    totals = []
    for tools in ([], [tool]):
        path = tmp_path / "chat.json"
        path.write_text(json.dumps({"messages": thread(2), "tools": tools}))
        assert run("fit", path, "--window", 1_000, "--json") == 0
        totals.append(json.loads(capsys.readouterr().out)["report"]["total_tokens"])
    assert totals[1] - totals[0] > 100


def test_a_budget_file_and_its_profile_are_taken(chat, tmp_path, capsys):
    """The window of the profile is the window of the report."""
    path = tmp_path / "b.yaml"
    path.write_text("llm: {context_window: 4096}\nprofiles: {small: {context_window: 900, model: gpt-4o}}\n")
    assert run("fit", chat, "--budget", path, "--profile", "small", "--json") == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert report["limit"] == 900 - (900 - COUNTER.count_message(thread(1)[0])) * 3 // 10


def test_a_page_is_written(chat, tmp_path):
    """`--html` writes the report as one page."""
    assert run("fit", chat, "--window", 1_000, "--html", tmp_path / "r.html") == 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_one_message_a_line_and_standard_input_are_read(chat, capsys, monkeypatch):
    """JSON lines are as good as a list, and - reads the standard input."""
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(json.dumps(message) for message in thread(2))))
    assert run("fit", "-", "--window", 1_000, "--json") == 0
    assert json.loads(capsys.readouterr().out)["messages"] == thread(2)


# ---- errors -------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("not json", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "must hold a list of messages, or an object with 'messages' (got [])"),
        ('{"a": 1}', "(got {'a': 1})"),
        ("5", "(got 5)"),
        ('[{"role": "user", "content": "x"}, 5]', "message 1 of"),
        ('[{"content": "x"}]', "(got None in ['content'])"),
        ('[{"role": "wizard", "content": "x"}]', "(got 'wizard' in"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": 5}', "'tools' of"),
    ],
)
def test_bad_files_are_one_line_and_status_2(tmp_path, capsys, text, seen):
    """No traceback, whatever the file holds."""
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert seen in failed(capsys, "fit", path, "--window", 1_000)


@pytest.mark.parametrize("data", ["Tea is hot. ö".encode("latin-1"), "Tea.".encode("utf-16")])
def test_a_text_that_is_not_utf_8_is_named(chat, tmp_path, capsys, data):
    """Its letters would reach the prompt as question marks; a byte order mark of UTF-8 is fine."""
    (tmp_path / "tea.txt").write_bytes(data)
    said = failed(capsys, "fit", chat, "--window", 1_000, "--docs", tmp_path)
    assert "tea.txt must be UTF-8 text (got 0x" in said
    (tmp_path / "tea.txt").write_bytes(b"\xef\xbb\xbfTea.\r\n\r\nIce.")
    assert run("fit", chat, "--window", 1_000, "--docs", tmp_path) == 0


def test_missing_files_and_folders_are_named(chat, tmp_path, capsys):
    """Chat, documents, budget and the page's folder."""
    assert "nothere.json must be readable (got No such file or directory)" in failed(
        capsys, "fit", tmp_path / "nothere.json", "--window", 999
    )
    assert "must be a folder" in failed(capsys, "fit", chat, "--window", 999, "--docs", tmp_path / "nodocs")
    (tmp_path / "empty").mkdir()
    assert "must hold a text" in failed(capsys, "fit", chat, "--window", 999, "--docs", tmp_path / "empty")
    assert "no.yaml: cannot be read" in failed(capsys, "fit", chat, "--budget", tmp_path / "no.yaml")
    assert "No such file" in failed(
        capsys, "fit", chat, "--window", 999, "--html", tmp_path / "nofolder" / "r.html"
    )
    assert "must come with --budget FILE.yaml" in failed(capsys, "fit", chat, "--profile", "x")


def test_impossible_limits_are_told(chat, capsys):
    """A negative window, a reserve beyond the window, a window too small for what must stay, an unknown model."""
    assert "--window must be a whole number from 1 (got -5)" in failed(capsys, "fit", chat, "--window", -5)
    assert "reserve must leave room" in failed(capsys, "fit", chat, "--window", 100, "--reserve", 200)
    assert "the system prompt must have at most 2 tokens" in failed(capsys, "fit", chat, "--window", 11)
    assert "what must stay needs" in failed(capsys, "fit", chat, "--window", 30)
    assert "unheard-of-model-name" in failed(capsys, "fit", chat, "--model", "unheard-of-model-name")


def test_an_unknown_model_beside_a_window_is_noted(chat, capsys):
    """Counts are estimates then, and the error stream says so in one line."""
    assert run("fit", chat, "--window", 1_000, "--model", "unheard-of-model-name-2") == 0
    out, err = capsys.readouterr()
    assert "(estimated)" in out
    assert "rankbudget: note: " in err
    assert "Traceback" not in err


def test_the_installed_command_works_and_help_lists_the_commands():
    """The entry point of the distribution starts, and argparse's own mistakes are status 2."""
    done = subprocess.run(
        [sys.executable, "-m", "rankbudget", "--help"], capture_output=True, text=True, check=True
    )
    assert "fit" in done.stdout
    assert "demo" in done.stdout
    assert (
        subprocess.run(
            [sys.executable, "-m", "rankbudget", "fit"], capture_output=True, check=False
        ).returncode
        == 2
    )


RUSSIAN = [{"role": "system", "content": "Кратко"}, {"role": "user", "content": "Где ключ 😀?"}]
LETTERS = {
    "compress": ["compress", "{text}", "--max-tokens", "20", "--question", "Где ключ?"],
    "fit": ["fit", "{chat}", "--window", "1k", "--docs", "{docs}"],
    "fit --json": ["fit", "{chat}", "--window", "1k", "--docs", "{docs}", "--json"],
    "count": ["count", "--each", "{chat}"],
    "explain": ["explain", "ключ.md#1", "{chat}", "--window", "1k", "--docs", "{docs}"],
    "check": ["check", "{chat}", "--window", "1k", "--docs", "{docs}", "--golden", "{golden}"],
}


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "koi8-r", "utf-8"])
@pytest.mark.parametrize("command", LETTERS)
def test_letters_that_the_output_cannot_hold_are_escaped(command, encoding, tmp_path, monkeypatch):
    """Whatever the encoding of a terminal or pipe, a command prints all and keeps its exit code."""
    places = {name: tmp_path / f"{name}.json" for name in ("text", "chat", "docs", "golden")}
    places["text"].write_text("Ключ под ковриком 😀. " * 20, encoding="utf-8")
    places["chat"].write_text(json.dumps(RUSSIAN), encoding="utf-8")
    places["docs"].mkdir()
    (places["docs"] / "ключ.md").write_text("Ключ под ковриком.", encoding="utf-8")
    places["golden"].write_text("other\n")
    held = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(held, encoding=encoding))
    assert run(*[part.format(**places) for part in LETTERS[command]]) == (command == "check")
    said = held.getvalue().decode(encoding)
    can = encoding in ("koi8-r", "utf-8") and (command, encoding) != ("fit --json", "koi8-r")
    assert ("ключ" if can else "\\u043") in said.casefold()


@pytest.mark.parametrize("command", [["inspect", "-o"], ["fit", "--html"], ["check", "--update", "--golden"]])
def test_the_error_of_a_full_disk_names_the_file(command, chat, capsys):
    """Whatever was to be written: a page, or a golden file."""
    name, *option = command
    told = failed(capsys, name, chat, "--window", "1k", *option, "/dev/full")
    assert told.startswith("rankbudget: error: /dev/full must be a file that can be read or written (got ")


@pytest.mark.slow
def test_the_error_of_a_full_disk_names_the_file_of_a_batch(tmp_path):
    """A part of the output that has no room ends the run with its name; so does standard output."""
    given = tmp_path / "in.jsonl"
    given.write_text('{"question": "Is tea hot?"}\n' * 99)
    program = f'"{sys.executable}" -m rankbudget'
    command = f'ulimit -f 1; {program} batch "{given}" "{tmp_path}/out.jsonl" --window 1k'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"rankbudget: error: {tmp_path}/out.jsonl.parts/" in done.stderr
    done = subprocess.run(
        ["bash", "-c", f"{program} models > /dev/full"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("rankbudget: error: standard output must be a file")


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(chat):
    """`rankbudget fit ... | head` ends quietly."""
    command = f'"{sys.executable}" -m rankbudget fit "{chat}" --json | head -c 100 > /dev/null; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 3000])
def test_a_closed_pipe_changes_no_exit_code(tmp_path, size):
    """`rankbudget check ... | head -0` fails in CI where pieces differ, whether they fit into a pipe or not."""
    chat, golden = tmp_path / "chat.json", tmp_path / "plan.txt"
    chat.write_text(json.dumps(thread(size)))
    golden.write_text("other\n")
    program = [sys.executable, "-m", "rankbudget", "check", chat, "--window", "1m", "--golden", golden]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*map(str, program)], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["inspect", "-o"], ["fit", "--html"], ["check", "--update", "--golden"]])
def test_a_page_in_no_folder_is_named(command, chat, tmp_path, capsys):
    """Where nothing can be written, the error names the file and why."""
    page = tmp_path / "none" / "page.html"
    error = failed(capsys, command[0], chat, *command[1:], page)
    assert f"{page} must be a file that can be read or written (got No such file or directory)." in error


# ---- reading ------------------------------------------------------------------------------------------------------------------------
def test_passages_are_cut_at_headings(docs):
    """Each heading starts a passage, names come from the path, hidden folders and pictures are left out."""
    passages = read_passages(docs)
    assert [(p.id, p.title, p.text) for p in passages] == [
        ("deep/ice.txt#1", "deep/ice.txt", "Ice melts at zero degrees."),
        ("tea.md#1", "Tea", "# Tea\n\nTea is best at 80 degrees."),
        ("tea.md#2", "Storing tea", "## Storing tea\n\nKeep tea dry and dark."),
    ]


def test_passages_lose_no_word_and_stay_small(tmp_path):
    """Long paragraphs are cut, a comment in code is no heading, and all words are still there."""
    text = "# One\n\n" + "This sentence is here. " * 300 + "\n\n```sh\n# no heading\nls\n```\n\nEnd.\n"
    path = tmp_path / "long.md"
    path.write_text(text)
    passages = read_passages(path)
    assert " ".join(" ".join(p.text for p in passages).split()) == " ".join(text.split())
    assert max(len(p.text) for p in passages) <= 2_400
    assert {p.title for p in passages} == {"One"}


# ---- demo ---------------------------------------------------------------------------------------------------------------------------
def test_an_interrupt_ends_quietly(chat, capsys, monkeypatch):
    """Control-C is status 130 and one line."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("rankbudget.cli.fitting.read_chat", interrupted)
    assert run("fit", chat, "--window", 1_000) == 130
    assert capsys.readouterr().err == "rankbudget: stopped\n"


def test_an_impossible_reserve_is_named_and_not_the_shares_worked_out_from_it(chat, capsys):
    """`--reserve -1` is told as such; the ratios, which no option gave, are not."""
    for reserve in ("-1", "nan"):
        message = failed(capsys, "fit", chat, "--window", 1_000, "--reserve", reserve)
        assert "reserve must be" in message
        assert "ratio" not in message


def test_a_share_as_reserve_scales_the_other_shares(chat, capsys):
    """`--reserve 0.5` leaves half of the window less the system prompt."""
    assert run("fit", chat, "--window", 1_000, "--reserve", 0.5, "--json") == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert report["limit"] == 1_000 - (1_000 - COUNTER.count_message(thread(1)[0])) // 2


def test_the_version_is_told(capsys):
    """Of the package that is installed."""
    with pytest.raises(SystemExit) as ended:
        run("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"rankbudget {rankbudget.__version__}\n"
