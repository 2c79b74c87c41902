"""Context windows: numbers, names, host objects, servers, and the way out for unknown models."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from rankbudget import TokenBudget
from rankbudget.budget.context_windows import context_window_of, max_output_of
from rankbudget.errors import BudgetConfigError, CounterUnavailableError


@contextmanager
def server(answers: dict[tuple[str, str], Any]) -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """Runs an HTTP server that gives these answers, and records what it was asked."""
    asked: list[tuple[str, str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, method: str) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            asked.append((method, self.path, body))
            answer = answers.get((method, self.path))
            if callable(answer):
                answer = answer(body)
            raw = (
                b"not here"
                if answer is None
                else answer
                if isinstance(answer, bytes)
                else json.dumps(answer).encode()
            )
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def log_message(self, *args: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}", asked
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("name", "window", "answer"),
    [
        ("gpt-4o", 128_000, 16_384),
        ("gpt-4o-mini-2024-07-18", 128_000, 16_384),
        ("openai/gpt-4o", 128_000, 16_384),
        ("ft:gpt-4o-2024-08-06:org::id", 128_000, 16_384),
        ("gpt-4", 8_192, 8_192),
        ("gpt-4-0613", 8_192, 8_192),
        ("gpt-4-turbo-2024-04-09", 128_000, 4_096),
        ("gpt-4.1-nano", 1_047_576, 32_768),
        ("gpt-3.5-turbo", 16_385, 4_096),
        ("gpt-5-mini", 272_000, 128_000),
        ("gpt-5.4", 1_050_000, 128_000),
        ("o3-mini", 200_000, 100_000),
        ("claude-sonnet-4-5-20250929", 200_000, 64_000),
        ("anthropic/claude-opus-4-6", 1_000_000, 128_000),
        ("claude-opus-4-8", 1_000_000, 128_000),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", 200_000, 8_192),
        ("claude-opus-4-20250514", 200_000, 32_000),
        ("meta-llama/Llama-3.1-8B-Instruct", 131_072, None),
        ("meta-llama/Meta-Llama-3-8B", 8_192, None),
        ("llama3.1:8b", 131_072, None),
        ("microsoft/Phi-3-mini-4k-instruct", 4_096, None),
        ("Qwen/Qwen2.5-14B-Instruct", 32_768, None),
        ("openai:gpt-4o", 128_000, 16_384),
        ("anthropic:claude-sonnet-4-5", 200_000, 64_000),
        ("google_genai:gemini-3-pro-preview", 1_048_576, 65_536),
        ("bedrock_converse:us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000, 64_000),
        ("openrouter/anthropic/claude-opus-4-6", 1_000_000, 128_000),
        ("azure/gpt-41-mini", 1_047_576, 32_768),
        ("gpt-41", 1_047_576, 32_768),
        ("us.meta.llama3-1-70b-instruct-v1:0", 131_072, None),
        ("accounts/fireworks/models/llama-v3p1-8b-instruct", 131_072, None),
        ("us.amazon.nova-pro-v1:0", 300_000, None),
        ("moonshotai/kimi-k2-thinking", 131_072, None),
        ("z-ai/glm-4.6", 200_000, None),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 131_072, None),
    ],
)
def test_known_names(name: str, window: int, answer: int | None) -> None:
    """Names are found with their provider, version and date."""
    assert (context_window_of(name), max_output_of(name)) == (window, answer)


def test_a_number_is_a_window() -> None:
    """A number is taken as it is; what cannot be a window is an error that shows it."""
    assert context_window_of(4_000) == 4_000
    for bad in (0, -5, 1.5):
        with pytest.raises(BudgetConfigError, match="whole number"):
            context_window_of(bad)


def test_unknown_is_an_error_with_the_way_out() -> None:
    """An unknown model is an error that names it and the three ways out; a default chooses instead."""
    with pytest.raises(CounterUnavailableError) as caught:
        context_window_of("acme-1")
    assert isinstance(caught.value, ImportError)
    for part in ("acme-1", "context_window=", "default=", "base_url="):
        assert part in str(caught.value)
    assert context_window_of("acme-1", default=8_192) == 8_192
    assert max_output_of("acme-1") is None
    with pytest.raises(BudgetConfigError, match="default"):
        context_window_of("acme-1", default=0)


def test_a_langchain_profile_is_read() -> None:
    """The profile of a LangChain model beats the table; a profile without a window leaves it to the name."""
    model = SimpleNamespace(
        profile={"max_input_tokens": 50_000, "max_output_tokens": 2_000}, model_name="gpt-4o"
    )
    assert (context_window_of(model), max_output_of(model)) == (50_000, 2_000)
    bare = SimpleNamespace(profile={}, model_name="gpt-4o")
    assert (context_window_of(bare), max_output_of(bare)) == (128_000, 16_384)


def test_a_real_langchain_model_is_read() -> None:
    """ChatOpenAI carries a profile, and its window is found without a request."""
    openai = pytest.importorskip("langchain_openai")
    assert context_window_of(openai.ChatOpenAI(model="gpt-4o", api_key="none")) == 128_000


def test_a_llamaindex_model_is_read() -> None:
    """A LlamaIndex LLM's metadata is read; its stand-in for "unknown" gives way to the table."""
    mocks = pytest.importorskip("llama_index.core.llms")
    assert context_window_of(mocks.MockLLM()) == 3_900
    known = SimpleNamespace(
        metadata=SimpleNamespace(context_window=32_000, num_output=256, model_name="acme-1")
    )
    assert (context_window_of(known), max_output_of(known)) == (32_000, None)
    stand_in = SimpleNamespace(
        metadata=SimpleNamespace(context_window=3_900, num_output=256, model_name="gpt-4o")
    )
    assert context_window_of(stand_in) == 128_000


def test_an_object_that_raises_is_unknown() -> None:
    """A host property that raises is treated as unknown, not as a crash."""

    class Broken:
        @property
        def profile(self) -> Any:
            msg = "no profile for you"
            raise RuntimeError(msg)

        model = "acme-1"

    with pytest.raises(CounterUnavailableError, match="acme-1"):
        context_window_of(Broken())


OLLAMA_SHOW = {
    "parameters": 'stop    "<|eot_id|>"\nnum_ctx                        16384',
    "model_info": {"general.architecture": "llama", "llama.context_length": 131_072},
}


def test_ollama_says_what_it_runs() -> None:
    """Ollama: a running model's own window, then num_ctx, then the server's default, never the model's mere ability."""
    running = {"models": [{"name": "llama3.1:latest", "model": "llama3.1:latest", "context_length": 8_192}]}
    with server({("GET", "/api/ps"): running, ("POST", "/api/show"): OLLAMA_SHOW}) as (url, _):
        assert context_window_of("llama3.1", base_url=url) == 8_192
    with server({("GET", "/api/ps"): {"models": []}, ("POST", "/api/show"): OLLAMA_SHOW}) as (url, asked):
        assert context_window_of("llama3.1", base_url=f"{url}/v1") == 16_384
        assert ("POST", "/api/show", {"model": "llama3.1"}) in asked
    plain = {"parameters": "", "model_info": {"llama.context_length": 131_072}}
    with server({("GET", "/api/ps"): {"models": []}, ("POST", "/api/show"): plain}) as (url, _):
        assert context_window_of("llama3.1", base_url=url) == 4_096
    small = {"model_info": {"bert.context_length": 512}}
    with server({("GET", "/api/ps"): {"models": []}, ("POST", "/api/show"): small}) as (url, _):
        assert context_window_of("tiny", base_url=url) == 512


def test_lm_studio_says_what_it_loaded() -> None:
    """LM Studio: the loaded length before the longest possible one."""
    old = {
        "data": [
            {
                "id": "qwen2-vl-7b-instruct",
                "state": "loaded",
                "max_context_length": 32_768,
                "loaded_context_length": 4_096,
            },
            {"id": "other", "state": "not-loaded", "max_context_length": 131_072},
        ],
    }
    with server({("GET", "/api/v0/models"): old}) as (url, _):
        assert context_window_of("qwen2-vl-7b-instruct", base_url=url) == 4_096
        assert context_window_of("other", base_url=url) == 131_072


def test_vllm_says_its_longest_model_length() -> None:
    """vLLM: max_model_len of the model that was asked for, or of the only one."""
    listed = {"object": "list", "data": [{"id": "acme/big", "object": "model", "max_model_len": 24_000}]}
    with server({("GET", "/v1/models"): listed}) as (url, _):
        assert context_window_of("acme/big", base_url=f"{url}/v1/") == 24_000
        assert context_window_of(SimpleNamespace(temperature=0), base_url=url) == 24_000
        assert TokenBudget.for_model("acme/big", base_url=url).context_window == 24_000
        with pytest.raises(CounterUnavailableError, match="no such model"):
            context_window_of("acme/small", base_url=url)


def test_a_server_that_answers_nonsense_is_unknown() -> None:
    """Wrong JSON, wrong shapes and closed ports fall back to the table, then to the error that tells what was answered."""
    nonsense = {
        ("GET", "/v1/models"): b"<html>",
        ("GET", "/api/ps"): [1],
        ("GET", "/api/v0/models"): {"data": {"x": 1}},
    }
    with server(nonsense) as (url, _):
        assert context_window_of("gpt-4o", base_url=url) == 128_000
        with pytest.raises(CounterUnavailableError, match="vLLM"):
            context_window_of("acme-1", base_url=url)
    assert context_window_of("acme-1", base_url=url, default=1_000) == 1_000  # the server is gone by now


def test_only_http_is_asked() -> None:
    """A base_url that is no web address is refused before anything is opened."""
    for bad in ("file:///etc/passwd", "localhost:11434", "ftp://host"):
        with pytest.raises(BudgetConfigError, match="base_url"):
            context_window_of("acme-1", base_url=bad)
