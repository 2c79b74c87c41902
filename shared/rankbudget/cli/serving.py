"""A page with a slider, for this machine alone: each window that is asked for gets its own prompt."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from typing_extensions import override

from ..budget.token_budget import TokenBudget
from ..errors import BudgetConfigError, BudgetError
from ..report.page import page, turn_of
from .fitting import Task

_LEAST = 100
"""The smallest window of the slider."""
_ENDLESS = 1 << 40


def serve_page(task: Task, budget: TokenBudget, port: int) -> None:
    """Serves the page of a prompt until it is stopped, and prints its address.

    Raises:
        BudgetConfigError: the port is taken.
    """
    try:
        server = _Server(task, budget, port)
    except (OSError, OverflowError) as error:
        msg = f"--port must be a free port (got {port}: {error}). Without --port, one is found."
        raise BudgetConfigError(msg) from error
    with server:
        print(f"http://127.0.0.1:{server.server_port}/ (stop with Ctrl+C)", flush=True)
        server.serve_forever()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, task: Task, budget: TokenBudget, port: int) -> None:
        self.task, self.budget = task, budget
        super().__init__(("127.0.0.1", port), _Handler)

    def slider(self) -> str:
        """Returns the page around the prompt's, with the largest window that changes anything."""
        start, fixed = self.budget.context_window, int(self.budget.reserve) if self.budget.reserve > 1 else 0
        whole = self.task.fit(self.budget.replace(context_window=_ENDLESS)).report
        needed = whole.total_tokens * _ENDLESS // max(1, whole.limit) + fixed
        most = max(start, needed + needed // 100 + 1, 2 * _LEAST)
        text = files(__package__).joinpath("slider.html").read_text(encoding="utf-8")
        for name, value in (("%LEAST%", min(_LEAST, start)), ("%MOST%", most), ("%START%", start)):
            text = text.replace(name, str(value))
        return text

    def prompt(self, window: int) -> str:
        """Returns the page of the prompt at one window, or one that says why there is none."""
        try:
            made = self.task.fit(self.budget.replace(context_window=window))
        except BudgetError as error:
            return f"<!doctype html><title>No prompt fits</title><p>{escape(str(error))}"
        return page([turn_of(made, self.task.offered())])


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answers with the slider, or with the prompt at one window."""
        if (self.headers["host"] or "").rpartition(":")[0] not in {"127.0.0.1", "localhost"}:
            self.send_error(403)  # a name that leads here is another site's
            return
        asked = urlsplit(self.path)
        window = parse_qs(asked.query).get("window", [""])[0]
        if asked.path == "/":
            text = self.server.slider()
            self._answer(text, f"default-src 'none'; frame-src 'self'; {_allowed(text)}")
        elif asked.path == "/page" and re.fullmatch("[1-9][0-9]{0,11}", window):
            self._answer(self.server.prompt(int(window)), "frame-ancestors 'self'")
        else:
            self.send_error(404)

    def _answer(self, text: str, policy: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing of requests."""


def _allowed(text: str) -> str:
    """Returns the part of a policy that allows the style and the script of a page by their hashes."""
    hashes = {}
    for tag in ("style", "script"):
        inner = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        hashes[tag] = b64encode(sha256(inner.encode()).digest()).decode()
    return f"style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'"
