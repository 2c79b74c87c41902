"""Chat templates: what is counted is what the template renders, for every structural property a template can have."""

from __future__ import annotations

import json
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rankbudget import counter_for
from rankbudget.counting.chat_template import ChatTemplate
from rankbudget.counting.huggingface import cached_folder, from_folder, from_tokenizer
from rankbudget.counting.profiles import apply_profile
from rankbudget.counting.tokenizer_counter import PROBE_TOOLS, TemplateRefusedError, TokenizerCounter
from rankbudget.errors import CounterUnavailableError
from rankbudget.testing import CounterConformance

from .templates import ADDITIVE, SPECIALS, TEMPLATES, VARIABLES, byte_level_tokenizer, sentence_tokenizer

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
TOKENIZERS = {"byte_level": byte_level_tokenizer, "sentence": sentence_tokenizer}


@cache
def tokenizer(kind: str) -> Any:
    return TOKENIZERS[kind]()


@cache
def counter(label: str, kind: str = "byte_level") -> TokenizerCounter:
    return from_tokenizer(tokenizer(kind), name=label, template=ChatTemplate(TEMPLATES[label], VARIABLES))


def rendering(label: str, messages: list[Any], tools: Any = None) -> str:
    return ChatTemplate(TEMPLATES[label], VARIABLES)(messages, tools)


def truth(label: str, messages: list[Any], tools: Any = None, kind: str = "byte_level") -> int:
    """Returns the tokens of the rendering, encoded whole."""
    return len(tokenizer(kind).encode(rendering(label, messages, tools), add_special_tokens=False))


def conversation(
    rng: random.Random, *, system: str = "anywhere", alternate: bool = False
) -> list[dict[str, Any]]:
    """Returns a random conversation with everything a template may treat in its own way."""
    texts = [
        "",
        "Hi",
        " a lead",
        "a trail ",
        "line\n",
        "\n\nnew",
        "It's 12:30, isn't it?",
        "中文 字",
        "e\u0301👍🏽",
        "x = {'a': [1, 2]}",
        "</s> <|im_end|> [INST]",
    ]
    turns: list[dict[str, Any]] = []
    if rng.random() < 0.6 and system != "none":
        turns.append({"role": "system", "content": rng.choice(texts[1:])})
    for _ in range(rng.randint(1, 4)):
        turns.append({"role": "user", "content": rng.choice(texts)})
        if system == "anywhere" and rng.random() < 0.2:
            turns.append({"role": "system", "content": rng.choice(texts)})
        if not alternate and rng.random() < 0.3:
            function = {"name": "weather", "arguments": {"city": rng.choice(texts)}}
            turns.append(
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": "call00001", "type": "function", "function": function}],
                }
            )
            turns.append({"role": "tool", "tool_call_id": "call00001", "content": rng.choice(texts)})
        thought = f"<think>\n{rng.choice(texts)}\n</think>\n\n" if rng.random() < 0.4 else ""
        turns.append({"role": "assistant", "content": thought + rng.choice(texts)})
        if not alternate and rng.random() < 0.2:
            turns.append({"role": "assistant", "content": rng.choice(texts)})
    turns.append({"role": "user", "content": rng.choice(texts)})
    return turns


SHAPES = {
    "demands_alternation": {"system": "first", "alternate": True},
    "alternates_without_tools": {"system": "first", "alternate": True},
    "refuses_system": {"system": "none", "alternate": True},
    "first_block_of_system": {"system": "first", "alternate": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("label", TEMPLATES)
def test_requests_count_what_the_template_renders(label: str, kind: str) -> None:
    """With and without tools, thinking, late system messages and repeated roles, a request counts exactly its rendering."""
    rng = random.Random(label)
    for _ in range(15):
        drawn = conversation(rng, **SHAPES.get(label, {}))
        for tools in (None, PROBE_TOOLS):
            assert counter(label, kind).count_messages(drawn, tools) == truth(label, drawn, tools, kind)


@pytest.mark.slow
@pytest.mark.parametrize("label", TEMPLATES)
def test_only_what_is_proved_additive_is_added(label: str) -> None:
    """A template whose messages are all alike is added up; one that looks at its context is rendered, and so is one without special tokens."""
    assert counter(label).additive == counter(label, "sentence").additive == (label in ADDITIVE)
    assert counter(label).exact
    uncut = TokenizerCounter(
        counter(label)._encode, name="uncut", render=ChatTemplate(TEMPLATES[label], VARIABLES)
    )
    assert not uncut.additive
    assert uncut.count_messages([{"role": "user", "content": "Hi"}]) == truth(
        label, [{"role": "user", "content": "Hi"}]
    )


@pytest.mark.slow
@pytest.mark.parametrize("label", sorted(ADDITIVE))
def test_the_incremental_count_equals_the_recount_under_random_edits(label: str) -> None:
    """Adding, dropping and changing messages changes the sum by just what the rendering changes."""
    rng = random.Random(23)
    counting = counter(label)
    messages = conversation(rng)
    counts = [counting.count_message(message) for message in messages]
    for _ in range(60):
        place = rng.randrange(len(messages) + 1)
        edit = rng.choice(("add", "drop", "change"))
        new = rng.choice(conversation(rng))
        if edit == "add" or len(messages) < 2:
            messages.insert(place, new)
            counts.insert(place, counting.count_message(new))
        else:
            place = min(place, len(messages) - 1)
            if edit == "drop":
                del messages[place], counts[place]
            else:
                messages[place], counts[place] = new, counting.count_message(new)
        assert counting.overhead() + sum(counts) == truth(label, messages)


def test_profiles_are_found_by_probing() -> None:
    """What a template demands is read from what it refuses and from what it leaves out."""
    found = {
        label: (c.profile.system, c.profile.one_system, c.profile.alternate)
        for label in TEMPLATES
        for c in [counter(label)]
    }
    assert found["additive"] == found["hoists_system"] == found["merges_roles"] == ("anywhere", False, False)
    assert found["demands_alternation"] == ("first", True, True)
    assert found["refuses_system"] == ("user", False, True)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["demands_alternation", "refuses_system"])
def test_a_refused_conversation_is_counted_as_its_profile_has_it(label: str) -> None:
    """A conversation a template refuses counts what its obedient form renders."""
    rng = random.Random(29)
    counting = counter(label)
    refused = 0
    for _ in range(40):
        drawn = [m for m in conversation(rng) if m["role"] != "tool" and not m.get("tool_calls")]
        obedient = apply_profile(drawn, counting.profile)
        try:
            expected = truth(label, drawn)
        except TemplateRefusedError:
            refused += 1
            expected = truth(label, obedient)
        assert counting.count_messages(drawn) == expected
    assert refused > 15


def test_blocks_are_given_as_the_template_reads_them() -> None:
    """A template that reads blocks gets them; another gets their text; an image costs its tokens besides."""
    blocks = [{"type": "text", "text": "look"}, {"type": "text", "text": "here"}]
    message = [{"role": "user", "content": blocks}]
    assert counter("reads_blocks").count_messages(message) == truth("reads_blocks", message)
    assert counter("additive").count_messages(message) == truth(
        "additive", [{"role": "user", "content": "look\nhere"}]
    )
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    plain = counter("additive").count_messages(message)
    assert counter("additive").count_messages([{"role": "user", "content": [*blocks, image]}]) > plain + 80


def test_arguments_that_are_json_texts_are_given_as_objects_where_needed() -> None:
    """OpenAI's argument texts are parsed for a template that reads objects."""
    source = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + (m['content'] or '') }}{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}{{ k + '=' + v }}{% endfor %}{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    counting = from_tokenizer(
        tokenizer("byte_level"), name="objects", template=ChatTemplate(source, VARIABLES)
    )

    def ask(arguments: Any) -> list[Any]:
        return [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
                ],
            }
        ]

    assert counting.count_messages(ask('{"city": "Rome"}')) == counting.count_messages(ask({"city": "Rome"}))
    assert counting.count_messages(ask("no json")) > 0


@pytest.mark.slow
def test_transformers_renders_the_same() -> None:
    """What `apply_chat_template` of transformers gives is what is counted, from its tokenizer objects and from jinja alone."""
    transformers = pytest.importorskip("transformers")
    rng = random.Random(31)
    for label, template in TEMPLATES.items():
        host = transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer("byte_level"),
            chat_template=template,
            bos_token="<s>",
            eos_token="</s>",
            **{
                "extra_special_tokens"
                if transformers.__version__ >= "5"
                else "additional_special_tokens": SPECIALS[2:]
            },
        )
        from_host = counter_for(host)
        for _ in range(5):
            drawn = conversation(rng, **SHAPES.get(label, {}))
            expected = len(
                host.apply_chat_template(
                    drawn, tools=PROBE_TOOLS, add_generation_prompt=True, return_dict=False
                )
            )
            assert (
                from_host.count_messages(drawn, PROBE_TOOLS)
                == expected
                == counter(label).count_messages(drawn, PROBE_TOOLS)
            )


def test_folders_are_read(tmp_path: Path) -> None:
    """A folder with tokenizer.json and a template, in any of its places, is a counter; its path is its name."""
    tokenizer("byte_level").save(str(tmp_path / "tokenizer.json"))
    bare = counter_for(str(tmp_path / "tokenizer.json"))
    assert (bare.exact, bare.additive) == (False, True)
    assert "no chat template" in bare.why
    drawn = [{"role": "user", "content": "Hi"}]
    expected = truth("additive", drawn)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATES["additive"], "bos_token": {"content": "<s>"}})
    )
    assert counter_for(str(tmp_path)).count_messages(drawn) == expected
    assert counter_for(tmp_path) is counter_for(str(tmp_path))
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATES["additive"]}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert from_folder(tmp_path).count_messages(drawn) == expected
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES["generation_no_prefix"])
    assert from_folder(tmp_path).count_messages(drawn) == truth("generation_no_prefix", drawn)


def test_a_cached_model_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in Hugging Face's cache on this machine counts exactly by its name, without a network."""
    snapshot = tmp_path / "models--acme--chatty" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--acme--chatty" / "refs").mkdir()
    (tmp_path / "models--acme--chatty" / "refs" / "main").write_text("abc")
    tokenizer("byte_level").save(str(snapshot / "tokenizer.json"))
    (snapshot / "chat_template.jinja").write_text(TEMPLATES["additive"])
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert cached_folder("acme/chatty") == snapshot
    counting = counter_for("acme/chatty")
    assert (counting.name, counting.exact) == ("acme/chatty", True)
    assert cached_folder("acme/other") is None
    assert cached_folder("gpt-4o") is None


def test_folders_without_a_tokenizer_say_so(tmp_path: Path) -> None:
    """A folder or file that is no tokenizer is an error that names it and says what to do."""
    with pytest.raises(CounterUnavailableError, match="save_pretrained"):
        counter_for(str(tmp_path))
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    with pytest.raises(CounterUnavailableError, match="cannot be read"):
        counter_for(str(broken))
    with pytest.raises(CounterUnavailableError, match="chat template"):
        ChatTemplate("{% for %}")


def test_padding_and_truncation_do_not_falsify_counts() -> None:
    """A tokenizer set to pad or truncate counts as if it were not, and keeps its settings."""
    own = byte_level_tokenizer()
    expected = len(own.encode("one two three four", add_special_tokens=False))
    own.enable_truncation(2)
    own.enable_padding(length=50)
    assert from_tokenizer(own).count("one two three four") == expected
    assert own.truncation["max_length"] == 2


class TestAdditiveTemplate(CounterConformance):
    examples = 15

    def make(self) -> TokenizerCounter:
        return from_tokenizer(
            tokenizer("byte_level"), name="additive", template=ChatTemplate(TEMPLATES["additive"], VARIABLES)
        )


class TestStrictTemplate(CounterConformance):
    examples = 15

    def make(self) -> TokenizerCounter:
        return from_tokenizer(
            tokenizer("sentence"),
            name="strict",
            template=ChatTemplate(TEMPLATES["demands_alternation"], VARIABLES),
        )


class TestBareTokenizer(CounterConformance):
    examples = 15

    def make(self) -> TokenizerCounter:
        return from_tokenizer(tokenizer("sentence"))


def test_long_texts_are_remembered_by_digest_alone() -> None:
    """A counter of a tokenizer with a template keeps no long text of a message, and counts it the same again."""
    counter: Any = from_tokenizer(
        byte_level_tokenizer(), template=ChatTemplate(TEMPLATES["additive"], VARIABLES)
    )
    message = {"role": "user", "content": "".join(["word "] * 20_000)}
    before = sys.getrefcount(message["content"])
    counts = [counter.count_message(message) for _ in range(2)]
    after = sys.getrefcount(message["content"])
    assert after == before
    assert counts[0] == counts[1] > 20_000
