"""The JSON schema of budget files says what reading them says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetConfigError, TokenBudget
from tests.drawing import draws

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "budget.schema.json"
if not FILE.exists():
    pytest.skip("the pages are not here", allow_module_level=True)
VALUES = st.one_of(
    st.integers(-2, 9000),
    st.floats(-1, 2),
    st.booleans(),
    st.sampled_from(["borrow", "rag", "gpt-4o"]),
    st.none(),
)


def generated() -> dict[str, Any]:
    place = ROOT / ".ci" / "budget_schema.py"
    spec = importlib.util.spec_from_file_location("budget_schema", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: dict[str, Any] = module.schema()
    return made


def test_the_published_schema_is_the_generated_one() -> None:
    """`.venv/bin/python .ci/budget_schema.py > docs/budget.schema.json` writes it anew."""
    assert json.loads(FILE.read_text(encoding="utf-8")) == generated()


@draws()
@given(
    fields=st.dictionaries(
        st.sampled_from(sorted(generated()["$defs"]["budget"]["properties"])), VALUES, min_size=1, max_size=2
    )
)
def test_what_is_read_is_valid_for_the_editor(fields: dict[str, Any], tmp_path_factory: Any) -> None:
    """A file that makes a budget is valid; no editor marks what works."""
    path = tmp_path_factory.mktemp("b") / "b.yaml"
    document = {"llm": {"context_window": 100_000, **fields}}
    path.write_text(yaml.safe_dump(document))
    try:
        TokenBudget.from_file(path)
    except BudgetConfigError:
        return
    jsonschema.validate(document, json.loads(FILE.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("document", "works"),
    [
        ({"context_window": 8192}, False),
        ({"llm": {"context_window": 8192}}, True),
        ({"preferred_llm": {"context_window": 8192}}, True),
        ({"small": {"preferred_llm": {"context_window": 8192}}}, True),
        ({"profiles": {"small": {"context_window": 8192}}}, True),
        ({"characters": {"small": {"preferred_llm": {"context_window": 8192}}}}, True),
    ],
)
def test_a_file_without_a_budget_is_marked(document: dict[str, Any], works: bool, tmp_path: Path) -> None:
    """Fields at the top of the file are no budget, for the editor as for who reads it."""
    path = tmp_path / "b.yaml"
    path.write_text(yaml.safe_dump(document))
    profile = None if {"llm", "preferred_llm"} & set(document) else "small"
    valid = jsonschema.Draft202012Validator(json.loads(FILE.read_text(encoding="utf-8"))).is_valid(document)
    assert valid == works
    if works:
        assert TokenBudget.from_file(path, profile=profile).context_window == 8192
    else:
        with pytest.raises(BudgetConfigError):
            TokenBudget.from_file(path)


@pytest.mark.parametrize(
    "section",
    [
        {"context_window": 0},
        {"context_window": "8k"},
        {"reserve": -1},
        {"ratios": {"history": 2}},
        {"surplus": "none"},
        {"message_cap": 10},
        {"keep_band": "yes"},
        {"preset": "agent"},
    ],
)
def test_what_cannot_work_is_marked(section: dict[str, Any], tmp_path: Path) -> None:
    """A value that reading refuses is invalid for the editor, too."""
    path = tmp_path / "b.yaml"
    path.write_text(yaml.safe_dump({"llm": section}))
    with pytest.raises(BudgetConfigError):
        TokenBudget.from_file(path)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"llm": section}, json.loads(FILE.read_text(encoding="utf-8")))
