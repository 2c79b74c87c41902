"""The HTTP side of the strict model server.

It uses the standard library only, with one thread for each connection. Nothing leaves this machine.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from .native import Dialect, dialect_of
from .providers import OPENAI, PROVIDERS, Provider, problems_of
from .replies import Reply, body_of, chunks_of
from .request_tokens import request_tokens, text_tokens

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Received", "StrictModelServer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request the server got, and what it made of it.

    Args:
        body: the request's JSON.
        status: the HTTP status it was answered with.
        prompt_tokens: what the server counted.
        window: tokens the model of the request has.
        problems: everything a provider would refuse about it, the length included.
    """

    body: Mapping[str, Any]
    status: int
    prompt_tokens: int
    window: int
    problems: tuple[str, ...] = ()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the request."""
        return list(self.body.get("messages") or ())


@dataclass
class _Judged:
    model: str
    window: int
    tokens: int
    problems: list[str] = field(default_factory=list)
    code: str | None = None


class StrictModelServer:
    """Serves `/v1/chat/completions` and `/v1/models` on 127.0.0.1 while it is entered.

    It also answers Anthropic's `/v1/messages`, Gemini's `:generateContent` and Ollama's `/api/chat`, without
    streaming, by the rules of these providers.

    Args:
        replies: scripted answers, used in order; then every answer is `default`.
        default: the answer without a script.
        provider: rules for models whose name names none.
        context_window: tokens of models whose name has no "@window".
        encoding: tiktoken encoding it counts with.

    Attributes:
        requests: everything received, in order.

    Example:
        >>> import json, urllib.request
        >>> with StrictModelServer(context_window=50) as server:
        ...     body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "hi"}]}).encode()
        ...     url = server.base_url + "/chat/completions"
        ...     ask = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        ...     answer = json.load(urllib.request.urlopen(ask))
        >>> answer["choices"][0]["message"]["content"]
        'ok'
        >>> answer["usage"]["prompt_tokens"]  # 3 framing, role, content, 3 priming
        8
    """

    def __init__(
        self,
        replies: Iterable[Reply | str] = (),
        *,
        default: Reply | str = "ok",
        provider: Provider = OPENAI,
        context_window: int = 8192,
        encoding: str = "o200k_base",
    ) -> None:
        self.default = _reply(default)
        self.provider = provider
        self.context_window = context_window
        self.encoding = encoding
        self.requests: list[Received] = []
        self._replies: deque[Reply] = deque(map(_reply, replies))
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        self._stopping.clear()
        self._server = _Server(("127.0.0.1", 0), self)
        threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="strict-model-server",
            daemon=True,
        ).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def base_url(self) -> str:
        """Where clients connect, as "http://127.0.0.1:40123/v1"."""
        if self._server is None:
            msg = "the server is not running; use it in a with statement"
            raise RuntimeError(msg)
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def root_url(self) -> str:
        """Where clients of other protocols connect, as "http://127.0.0.1:40123"."""
        return self.base_url.removesuffix("/v1")

    def script(self, *replies: Reply | str) -> None:
        """Appends answers to the script."""
        with self._lock:
            self._replies.extend(map(_reply, replies))

    def forget(self) -> None:
        """Empties the record and the script."""
        with self._lock:
            self.requests.clear()
            self._replies.clear()

    @property
    def refused(self) -> list[Received]:
        """The requests a provider would have refused."""
        return [r for r in self.requests if r.problems]

    def judge(self, body: Mapping[str, Any]) -> _Judged:
        """Counts a request and checks it against its provider's rules."""
        model = str(body.get("model", ""))
        name, _, size = model.partition("@")
        provider = PROVIDERS.get(name, self.provider)
        judged = _Judged(model, int(size) if size.isdigit() else self.context_window, 0)
        messages = body.get("messages")
        if not isinstance(messages, list) or any(not isinstance(m, dict) for m in messages):
            judged.problems = ["messages: expected an array of objects"]
            return judged
        judged.problems = problems_of(messages, provider)
        judged.tokens = request_tokens(messages, body.get("tools"), encoding=self.encoding)
        answer = body.get("max_completion_tokens") or body.get("max_tokens") or 0
        if judged.tokens + answer > judged.window:
            judged.code = "context_length_exceeded"
            judged.problems.insert(
                0,
                f"This model's maximum context length is {judged.window} tokens. However, your messages"
                f" resulted in {judged.tokens} tokens and {answer} are asked for in the completion."
                " Please reduce the length of the messages.",
            )
        return judged

    def next_reply(self) -> Reply:
        """Takes the next scripted answer."""
        with self._lock:
            return self._replies.popleft() if self._replies else self.default

    def record(self, received: Received) -> int:
        """Notes a request and returns its number."""
        with self._lock:
            self.requests.append(received)
            return len(self.requests)

    def wait(self, seconds: float) -> None:
        """Waits, but not longer than the server runs."""
        self._stopping.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], owner: StrictModelServer) -> None:
        self.owner = owner
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a client that hung up is its own business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 30
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Says nothing: the record is `requests`."""

    def do_GET(self) -> None:
        models = [
            {
                "id": f"{name}@{self.server.owner.context_window}",
                "object": "model",
                "created": 0,
                "owned_by": name,
            }
            for name in PROVIDERS
        ]
        if self.path.rstrip("/").endswith("/models"):
            self._send(200, {"object": "list", "data": models})
        elif "/models/" in self.path:
            self._send(200, {**models[0], "id": self.path.rpartition("/")[2]})
        else:
            self._refuse(404, f"no such path: {self.path}", None)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        dialect = dialect_of(self.path)
        if dialect is None and not self.path.rstrip("/").endswith("/chat/completions"):
            self._refuse(404, f"no such path: {self.path}", None)
            return
        try:
            body = json.loads(raw)
        except ValueError:
            self._refuse(400, "the body is not JSON", None)
            return
        if dialect is None:
            self._chat(body)
        else:
            self._native(dialect, body)

    def _chat(self, body: Any) -> None:
        """Judges and answers a request in OpenAI's protocol."""
        owner = self.server.owner
        judged = owner.judge(body)
        if judged.problems:
            owner.record(
                Received(
                    body=body,
                    status=400,
                    prompt_tokens=judged.tokens,
                    window=judged.window,
                    problems=tuple(judged.problems),
                )
            )
            self._refuse(400, judged.problems[0], judged.code)
            return
        reply = owner.next_reply()
        status = {"rate_limit": 429, "server_error": 500}.get(reply.fault or "", 200)
        number = owner.record(
            Received(body=body, status=status, prompt_tokens=judged.tokens, window=judged.window)
        )
        if reply.delay_seconds:
            owner.wait(reply.delay_seconds)
        if reply.fault == "timeout":
            self.close_connection = True
        elif status != 200:  # noqa: PLR2004 - HTTP OK
            self._refuse(status, f"simulated {reply.fault}", reply.fault)
        elif reply.fault == "not_json":
            self._raw(200, b"<html>bad gateway</html>", "text/html")
        else:
            self._answer(reply, body, judged, number)

    def _native(self, dialect: Dialect, body: Mapping[str, Any]) -> None:
        """Judges and answers a request in a provider's own protocol."""
        owner = self.server.owner
        tokens, problems = text_tokens(dialect.texts(body), owner.encoding), dialect.problems(body)
        if tokens + dialect.room(body) > owner.context_window:
            problems.insert(0, f"prompt is too long: {tokens} tokens > {owner.context_window} maximum")
        status = 400 if problems else 200
        window = owner.context_window
        number = owner.record(
            Received(body=body, status=status, prompt_tokens=tokens, window=window, problems=tuple(problems))
        )
        if problems:
            self._send(status, dialect.refusal(problems[0]))
        else:
            self._send(status, dialect.answer(owner.next_reply(), body, number, tokens))

    def _answer(self, reply: Reply, body: Mapping[str, Any], judged: _Judged, number: int) -> None:
        completion = text_tokens(reply.text, self.server.owner.encoding)
        numbers = {"prompt_tokens": judged.tokens, "completion_tokens": completion}
        if not body.get("stream"):
            answer = body_of(reply, model=judged.model, number=number, **numbers)
            answer["created"] = int(time.time())
            self._send(200, answer)
            return
        include_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        chunks = list(
            chunks_of(reply, model=judged.model, number=number, include_usage=include_usage, **numbers)
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if reply.fault == "cut_stream":
            for chunk in chunks[: max(1, len(chunks) // 2)]:
                self._chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.close_connection = True
            return
        for chunk in chunks:
            self._chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _refuse(self, status: int, message: str, code: str | None) -> None:
        kind = {429: "rate_limit_error", 500: "server_error"}.get(status, "invalid_request_error")
        self._send(status, {"error": {"message": message, "type": kind, "param": "messages", "code": code}})

    def _send(self, status: int, answer: Mapping[str, Any]) -> None:
        self._raw(status, json.dumps(answer).encode(), "application/json")

    def _raw(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if status == 429:  # noqa: PLR2004 - HTTP Too Many Requests
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(data)


def _reply(given: Reply | str) -> Reply:
    return Reply(text=given) if isinstance(given, str) else given
