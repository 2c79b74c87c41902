"""What an import costs, and what it must not load."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rankbudget import adapters

HEAVY = [
    "faiss", "fastokens", "jinja2", "langchain", "langchain_classic", "langchain_core", "llama_index", "nltk", "numpy", "openai",
    "pydantic.main", "sqlalchemy", "tokenizers", "onnxruntime", "torch", "transformers", "wordllama", "yaml",
]  # fmt: skip
LANGCHAIN = """
from langchain_core.language_models import BaseChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableSerializable
"""


def loaded_after(statement: str, names: list[str]) -> list[str]:
    """Which of `names` a fresh interpreter has loaded after `statement`."""
    program = f"import json, sys\n{statement}\nprint(json.dumps([n for n in {names!r} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def modules_after(statement: str) -> set[str]:
    """All modules a fresh interpreter has loaded after `statement`."""
    program = f"import json, sys\n{statement}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


AT_ONCE = """
import sys, threading, time
from importlib.machinery import PathFinder
from rankbudget.counting.models import encoding_for

class Slow:
    def find_spec(self, name, path, target=None):
        if name != "tiktoken":
            return None
        spec = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (other.start(), time.sleep(0.3), run(module))
        return spec

sys.meta_path.insert(0, Slow())
found = []
other = threading.Thread(target=lambda: found.append(encoding_for("gpt-2")))
import tiktoken
other.join()
print(*found)
"""


def test_the_core_loads_nothing_heavy() -> None:
    """`import rankbudget` loads no framework, no vectors, no models and no configuration parser."""
    assert loaded_after("import rankbudget", HEAVY) == []


def test_the_core_loads_nothing_heavy_for_the_smallest_job() -> None:
    """Fitting plain messages loads no framework, no vectors and no pydantic models."""
    job = 'import rankbudget; rankbudget.fit_messages([{"role": "user", "content": "hi"}], max_tokens=100)'
    assert loaded_after(job, [m for m in HEAVY if m != "nltk"]) == []


def test_the_core_loads_itself_alone() -> None:
    """`import rankbudget` loads one module of ours, and else only the standard library."""
    ours = modules_after("import rankbudget") - modules_after("")
    assert {name for name in ours if name.split(".")[0] not in sys.stdlib_module_names} == {"rankbudget"}


@pytest.mark.parametrize(
    ("adapter", "own", "other", "host"),
    [
        ("langchain_budget", "langchain_core", "llama_index", LANGCHAIN),
        ("llamaindex_budget", "llama_index", "langchain_core", "import llama_index.core"),
    ],
)
def test_an_adapter_is_lazy(adapter: str, own: str, other: str, host: str) -> None:
    """Importing an adapter loads neither framework; naming its classes loads its own only, and nothing heavy that the framework does not load."""
    heavy = ["faiss", "torch", "transformers", "wordllama", "langchain.agents", "langchain_classic"]
    assert loaded_after(f"import {adapter}", [own, other, *heavy]) == []
    classes = f"import {adapter}; [getattr({adapter}, n) for n in {adapter}.__all__]"
    hosts_own = loaded_after(
        host, ["torch", "transformers"]
    )  # an older LangChain loads transformers where it is installed
    assert set(loaded_after(classes, [other, "torch", "transformers"])) <= set(hosts_own)


@pytest.mark.parametrize(
    ("adapter", "first", "host"),
    [
        ("langchain_budget", "BudgetTrimmer", LANGCHAIN),
        ("llamaindex_budget", "BudgetNodePostprocessor", "import llama_index.core"),
    ],
)
def test_an_adapter_loads_hardly_more_than_its_framework(adapter: str, first: str, host: str) -> None:
    """The first class of an adapter loads at most a tenth more modules than the framework it serves."""
    ours, theirs = modules_after(f"from {adapter} import {first}"), modules_after(host)
    assert len(ours) <= 1.1 * len(theirs), sorted(ours - theirs)


TRIM = "from langchain_core.messages import HumanMessage; trim_messages([HumanMessage('hi')], max_tokens=9, token_counter=len)"
PLANNING = [
    *("rankbudget.budget", "rankbudget.compression", "rankbudget.conversation", "rankbudget.counting", "rankbudget.fitting"),
    *("rankbudget.messages", "rankbudget.prompt.stages", "rankbudget.relevance", "rankbudget.report", "rankbudget.segment"),
]  # fmt: skip


def test_importing_trim_messages_loads_what_checks_its_options() -> None:
    """Importing `trim_messages` loads at most a tenth more modules than importing LangChain's: nothing that makes a plan."""
    theirs = modules_after("from langchain_core.messages import trim_messages")
    ours = modules_after("from langchain_budget import trim_messages")
    hosts = {"langchain_core.documents.base", "langchain_core.prompt_values", "langchain_core.runnables.base"}
    assert not ours & {*PLANNING, "regex", *(hosts - theirs)}
    assert len(ours) <= 1.1 * len(theirs), sorted(ours - theirs)


def test_the_first_trim_loads_messages_alone() -> None:
    """A trim loads none of LangChain's models, prompts and runnables, no client for traces, and fewer modules than LangChain's own."""
    theirs = modules_after(f"from langchain_core.messages import trim_messages; {TRIM}")
    ours = modules_after(f"from langchain_budget import trim_messages; {TRIM}")
    packages = {name.split(".")[0] for name in ours - modules_after("import langchain_core.messages.utils")}
    hosts = {"langchain_core.language_models.base", "langchain_core.prompts", "langchain_core.runnables.base"}
    assert not packages & {"langsmith", "opentelemetry", "yaml", "wordllama", "numpy", "tiktoken"}
    assert not hosts & ours
    assert len(ours) <= len(theirs), sorted(ours - theirs)


def test_each_name_of_the_seam_loads() -> None:
    """Every name that adapters may import from the core is found where its table says."""
    assert sorted(adapters.__all__) == sorted(name for names in adapters._HOMES.values() for name in names)
    assert all(getattr(adapters, name) is not None for name in adapters.__all__)


def test_a_count_may_begin_while_another_thread_imports_the_tokenizer() -> None:
    """Neither thread sees half of tiktoken: its parts are imported after it, in whatever order threads come."""
    done = subprocess.run([sys.executable, "-c", AT_ONCE], check=False, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("gpt2", "")
