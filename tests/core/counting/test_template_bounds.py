"""The work of a chat template is bounded, whatever brings it."""

from __future__ import annotations

import time

import pytest

from rankbudget import counter_for
from rankbudget.counting.chat_template import ChatTemplate
from rankbudget.counting.huggingface import _backend, from_tokenizer
from rankbudget.counting.tokenizer_counter import TemplateRefusedError
from rankbudget.errors import CounterUnavailableError

from .templates import TEMPLATES, VARIABLES, byte_level_tokenizer

_DOUBLING = (
    "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = NEXT %}{% endfor %}{{ ns.x }}"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f(n, x) %}{% set y %}{{ x }}{{ x }}{% endset %}{{ f(n - 1, y) if n }}{% endmacro %}{{ f(60, 'abc') }}",
        "{% for i in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
        *(
            _DOUBLING.replace("START", start).replace("NEXT", step)
            for start, step in [
                ("'aaaaaaaa'", "ns.x ~ ns.x"),
                ("'aaaaaaaa'", "ns.x + ns.x"),
                ("[1]", "ns.x + ns.x"),
                ("[1]", "[ns.x, ns.x]"),
                ("[1]", "(ns.x, ns.x)"),
                ("[1]", "{'a': ns.x, 'b': ns.x}"),
                ("[1]", "dict(a=ns.x, b=ns.x)"),
                ("9", "ns.x * ns.x"),
            ]
        ),
        *(
            "{{ " + expression + " }}"
            for expression in [
                "'a' * 9999999999",
                "9 ** (9 ** 9)",
                "'%0999999999d' % 1",
                "'%*d' % (999999999, 1)",
                "'{:>999999999}'.format(1)",
                "'{:>{}}'.format(1, 999999999)",
                "'x'.ljust(9999999999)",
                "'x' | center(9999999999)",
                "('a' * 99999).replace('a', 'b' * 99999)",
                "(['b'] * 99999) | join('a' * 99999)",
            ]
        ),
    ],
)
def test_a_template_that_computes_too_much_is_refused(source: str) -> None:
    """Loops, recursion and values that double end in a typed error, when the counter is made, within seconds."""
    begin = time.process_time()
    with pytest.raises(CounterUnavailableError, match="chat template must only write out"):
        from_tokenizer(byte_level_tokenizer(), template=ChatTemplate(source))
    assert time.process_time() - begin < 30


@pytest.mark.slow
def test_a_transformers_tokenizer_is_rendered_within_the_bounds_too() -> None:
    """The template of a tokenizer object is not trusted more than that of a folder."""
    transformers = pytest.importorskip("transformers")
    host = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level_tokenizer())
    rounds = "{% for a in range(99999) %}{% for b in range(99999) %}"
    host.chat_template = rounds + "{{ messages[0].content }}{% endfor %}{% endfor %}"
    with pytest.raises(CounterUnavailableError, match="chat template must only write out"):
        counter_for(host).count_messages([{"role": "user", "content": "hi"}])


@pytest.mark.slow
def test_a_processor_is_rendered_within_the_bounds_too() -> None:
    """A transformers processor, which has no `get_chat_template`, renders where its work is bounded."""
    transformers = pytest.importorskip("transformers")

    class Processor(transformers.ProcessorMixin):  # type: ignore[misc, name-defined]
        def __init__(self, template: str) -> None:
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level_tokenizer())
            self.tokenizer, self.chat_template, self.encode = tokenizer, template, tokenizer.encode

    short = Processor("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    render = _backend(short)[1]
    assert render is not None
    assert render([{"role": "user", "content": "hi"}]) == "user: hi\n"
    rounds = "{% for a in range(99999) %}{% for b in range(99999) %}"
    endless = Processor(rounds + "{{ messages[0].content }}{% endfor %}{% endfor %}")
    with pytest.raises(CounterUnavailableError, match="chat template must only write out"):
        counter_for(endless).count_messages([{"role": "user", "content": "hi"}])


@pytest.mark.slow
def test_templates_without_a_default_are_refused_in_a_typed_error() -> None:
    """With tools the template "tool_use" is rendered; without any "default" the framing is estimated."""
    transformers = pytest.importorskip("transformers")
    host = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level_tokenizer())
    host.chat_template = {"tool_use": "{{ messages[0].content }}{{ tools }}", "other": "x"}
    render = _backend(host)[1]
    assert render is not None
    asked = [{"role": "user", "content": "hi"}]
    assert render(asked, [{"name": "f"}]).startswith("hi[{")
    with pytest.raises(TemplateRefusedError, match="named 'default'"):
        render(asked, None)
    assert counter_for(host).count_messages(asked) > len("userhi")


@pytest.mark.slow
def test_long_conversations_are_within_the_bounds() -> None:
    """Ten thousand messages of ten lines each are rendered by every template that accepts them."""
    content = "a line of some ten words, as people write them\n" * 10
    chat = [{"role": role, "content": content} for _ in range(5_000) for role in ("user", "assistant")][:-1]
    for name in ("additive", "strips_thinking", "demands_alternation", "merges_roles"):
        assert len(ChatTemplate(TEMPLATES[name], VARIABLES)(chat)) > len(content) * len(chat)
