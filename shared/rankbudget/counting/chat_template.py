"""Renders a model's chat template as transformers does, with jinja2, in a sandbox that bounds its work."""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from ..errors import CounterUnavailableError
from .protocol import Message, Tool
from .tokenizer_counter import TemplateRefusedError

_ROUNDS = 50_000
_ROUNDS_PER_MESSAGE = 1_000
_SECONDS = 4.0
_SECONDS_PER_MESSAGE = 0.01
_SIZE = 20_000_000  # characters of all that one rendering makes
_ITEM = 20  # one item of a list counts as so many characters
_SIZE_PER_CHARACTER = 100
_LARGEST_POWER = 1_000
_LARGEST_BITS = 2_000
_SIZED = (str, list, tuple, range)
_WIDTH = re.compile(r"\d{5}|\*")  # in a format: "%099999d" makes 99,999 characters


class ChatTemplate:
    """Renders messages with a chat template; `variables` are what else it may use, as bos_token."""

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        self._environment = _Environment()
        try:
            tree = _CountWork().visit(self._environment.parse(source))
            tree.set_environment(self._environment)
            self._template = self._environment.from_string(tree)
        except (TemplateError, RecursionError) as error:
            msg = f"the chat template cannot be read: {error}"
            raise CounterUnavailableError(msg) from error
        self._variables = {"documents": None, "add_generation_prompt": True, **(variables or {})}

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        """Returns the prompt, the generation prompt included.

        Raises:
            TemplateRefusedError: when the template does not accept the conversation.
            CounterUnavailableError: when it computes more than any chat template needs.
        """
        given = {"messages": list(messages), "tools": list(tools) if tools else None}
        try:
            self._environment.allow(messages)
            parts = self._template.generate({**given, **self._variables})
            return "".join(map(self._environment.sized, parts))
        except CounterUnavailableError:
            raise
        except Exception as error:
            msg = f"{type(error).__name__}: {error}"
            raise TemplateRefusedError(msg) from error


class _Environment(ImmutableSandboxedEnvironment):
    """Compiles and renders chat templates; every round, macro call and the size of every value is work."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self) -> None:
        extensions = [_Generation, "jinja2.ext.loopcontrols"]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self._left = threading.local()
        self.filters = {name: self._bounded(made) for name, made in self.filters.items()}
        self.filters["tojson"] = self._bounded(functools.partial(json.dumps, ensure_ascii=False))
        self.globals.pop("lipsum")
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)

    def allow(self, messages: Sequence[Message]) -> None:
        """Sets how much work the rendering of these messages may be."""
        self._left.end = time.monotonic() + _SECONDS + _SECONDS_PER_MESSAGE * len(messages)
        self._left.rounds = _ROUNDS + _ROUNDS_PER_MESSAGE * len(messages)
        self._left.size = _SIZE + _SIZE_PER_CHARACTER * len(str(messages))

    def count_round(self) -> None:
        """Counts one round of a loop or one call of a macro."""
        self._left.rounds -= 1
        if self._left.rounds < 0 or time.monotonic() > self._left.end:
            _overrun("runs through too many rounds")

    def sized(self, made: Any) -> Any:
        """Returns a value a template made, its size counted, with all that is nested in it."""
        if isinstance(made, int):
            self._spend(made.bit_length() >> 3)
        pending = [made]
        while pending:
            one = pending.pop()
            if isinstance(one, str):
                self._spend(len(one))
            elif isinstance(one, (list, tuple, dict)):
                self._spend(len(one) * _ITEM)
                pending += one.values() if isinstance(one, dict) else one
        return made

    def join_texts(self, *parts: Any) -> Any:
        """Returns what `~` makes of its operands."""
        return self.sized("".join(map(str, parts)))

    def call(self, context: Any, called: Any, /, *args: Any, **options: Any) -> Any:
        owner = getattr(getattr(called, "__wrapped__", called), "__self__", None)
        if isinstance(owner, str):
            self._check_growth(owner, args, formats=called.__name__.startswith("format"))
        return self.sized(super().call(context, called, *args, **options))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            if max(abs(left), abs(right)) > _LARGEST_POWER:
                _overrun("computes too large a power")
        elif isinstance(left, int) and isinstance(right, int):
            if left.bit_length() + right.bit_length() > _LARGEST_BITS:
                _overrun("computes too large a number")
        elif operator != "+":
            self._check_growth(left, (right,), formats=operator == "%")
            self._check_growth(right, (left,))
        return self.sized(super().call_binop(context, operator, left, right))

    def _bounded(self, made: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a filter whose work is counted."""
        formats = getattr(made, "__name__", "") == "do_format"

        @functools.wraps(made)  # keeps what the filter asks jinja to pass
        def bounded(*args: Any, **options: Any) -> Any:
            values = [one for one in (*args, *options.values()) if isinstance(one, (*_SIZED, int))]
            if values and isinstance(values[0], _SIZED):
                self._spend(len(values[0]))
                self._check_growth(values[0], values[1:], formats=formats)
            return self.sized(made(*args, **options))

        return bounded

    def _check_growth(self, first: Any, others: Any, *, formats: bool = False) -> None:
        """Refuses what could make a value far larger than its operands: copies, widths, replaced letters."""
        if not isinstance(first, _SIZED):
            return
        factor = 1
        for one in others:
            if isinstance(one, _SIZED):
                factor += len(one)
            elif isinstance(one, int):
                factor += abs(one)
        if (len(first) + 1) * factor > self._left.size:
            _overrun("makes too large a value")
        if formats and isinstance(first, str) and _WIDTH.search(first):
            _overrun("makes too large a value")

    def _spend(self, size: int) -> None:
        self._left.size -= size
        if self._left.size < 0:
            _overrun("makes too large a value")


class _CountWork(NodeTransformer):
    """Inserts the counting into a parsed template; templates cannot reach or replace it."""

    def generic_visit(self, node: Any, *args: Any, **options: Any) -> Any:
        super().generic_visit(node, *args, **options)
        if isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock)):
            node.body.insert(0, nodes.ExprStmt(_call("count_round", []), lineno=node.lineno))
        elif isinstance(node, nodes.Concat):
            return _call("join_texts", node.nodes)
        elif isinstance(node, (nodes.List, nodes.Dict)) or (
            isinstance(node, nodes.Tuple) and node.ctx == "load"
        ):
            return _call("sized", [node])
        elif isinstance(node, nodes.AssignBlock):
            node.filter = nodes.Filter(node.filter, "string", [], [], None, None)
        return node


class _Generation(Extension):
    """Renders `{% generation %}` blocks, which mark the assistant's words for training."""

    tags = {"generation"}  # noqa: RUF012 - as jinja declares it

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _call(method: str, given: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method), given, [], None, None)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _overrun(what: str) -> NoReturn:
    msg = f"a chat template must only write out its conversation (this one {what}). Count with another."
    raise CounterUnavailableError(msg)
