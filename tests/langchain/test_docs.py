"""The documentation's examples run as they are written, against the strict server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankbudget.testing.server import Reply, StrictModelServer

PAGE = Path(__file__).parents[2] / "docs" / "langchain.md"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_example_of_the_page_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All examples, one after the other, send only requests that fit and are valid: a chain, a retrieval chain, an agent with tools, a memory."""
    examples = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    assert len(examples) >= 9
    calls = tuple(("read_file", {"name": name}) for name in ("a.txt", "b.txt"))
    with StrictModelServer(context_window=8192) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        namespace: dict[str, object] = {"__name__": "example"}
        for number, example in enumerate(examples):
            if 'system_prompt="You read files."' in example:
                server.script(Reply(text="", tool_calls=calls), Reply(text="They are alike."))
            exec(compile(example, f"{PAGE.name}, example {number + 1}", "exec"), namespace)
        assert [r.problems for r in server.refused] == []
        assert len(server.requests) >= 9
    assert "They are alike." in capsys.readouterr().out
