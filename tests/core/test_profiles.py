"""Budgets from YAML: the two shapes, overrides, and errors with file and key."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget.budget.token_budget import TokenBudget
from rankbudget.errors import BudgetConfigError
from tests.drawing import draws

SYSTEM = """
llm:
  context_window: 32768
  max_response_tokens: 4096  # Reserve calculation
  budget_ratios:
    memory: 0.30
    history: 0.40
    reserve: 0.30
"""
CHARACTER = """
name: Nova
preferred_llm:
  model: "qwen2.5:14b-instruct"
  context_window: 32768
  temperature: 0.7
  budget_ratios:
    memory: 0.35
    history: 0.35
    reserve: 0.30
"""
BOTH = (
    SYSTEM
    + """
profiles:
  nova:
    preferred_llm:
      model: gpt-4o
      budget_ratios: {memory: 0.35, history: 0.35}
  short:
    max_response_tokens: 500
    surplus: borrow
"""
)


@pytest.fixture
def written(tmp_path):
    def write(text, name="b.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refused(path, profile=None):
    with pytest.raises(BudgetConfigError) as caught:
        TokenBudget.from_file(path, profile)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_system_defaults_are_read_as_specified(written):
    """`max_response_tokens` caps the reserve, the ratios are those of the file."""
    budget = TokenBudget.from_file(written(SYSTEM))
    assert budget == TokenBudget(
        context_window=32_768, ratios={"memory": 0.3, "history": 0.4}, reserve=0.3, max_output=4_096
    )
    assert budget.reserve_tokens(300) == 4_096


def test_a_characters_own_file_is_read_as_specified(written):
    """The model and its ratios are taken; the temperature is the host's."""
    budget = TokenBudget.from_file(written(CHARACTER))
    assert (budget.model, budget.context_window, budget.reserve) == ("qwen2.5:14b-instruct", 32_768, 0.3)
    assert dict(budget.ratios) == {"memory": 0.35, "history": 0.35}


def test_a_profile_replaces_the_defaults_key_by_key(written):
    """Nova names two ratios and a model; window, reserve and longest answer stay the system's."""
    path = written(BOTH)
    nova = TokenBudget.from_file(path, profile="nova")
    assert (nova.model, nova.context_window, nova.max_output, nova.reserve) == ("gpt-4o", 32_768, 4_096, 0.3)
    assert nova.share_of("memory") == 0.5
    short = TokenBudget.from_file(str(path), profile="short")
    assert (short.reserve_tokens(0), short.surplus) == (500, "borrow")
    assert TokenBudget.from_file(path).share_of("memory") == pytest.approx(3 / 7)


def test_profiles_may_stand_at_the_top_or_under_characters(written):
    """A file of characters and a file of named sections both work."""
    section = "preferred_llm: {context_window: 4096, budget_ratios: {history: 0.7}}"
    for text in (f"nova:\n  {section}\n", f"characters:\n  nova:\n    {section}\n"):
        assert TokenBudget.from_file(written(text), profile="nova").context_window == 4096


def test_defaults_may_come_from_another_file(written):
    """System and character files stay apart."""
    budget = TokenBudget.from_file(
        written("preferred_llm: {budget_ratios: {memory: 0.2, history: 0.5}}", "nova.yaml"),
        defaults=written(SYSTEM, "system.yaml"),
    )
    assert (budget.context_window, dict(budget.ratios)) == (32_768, {"memory": 0.2, "history": 0.5})


def test_a_file_of_defaults_is_an_argument_of_from_file(written):
    """System and character have a file each, as specified; a named profile stands over both."""
    system = written(SYSTEM, "system.yaml")
    assert TokenBudget.from_file(written(CHARACTER, "nova.yaml"), defaults=system).max_output == 4_096
    several = written("profiles: {short: {reserve: 500}}", "several.yaml")
    short = TokenBudget.from_file(several, "short", defaults=str(system))
    assert (short.context_window, short.reserve, dict(short.ratios)) == (
        32_768,
        500,
        {"memory": 0.3, "history": 0.4},
    )


RATIOS = "budget_ratios: {memory: .3, history: .4, reserve: .3}"
LEVELS = {
    "tokens replace a share": ("reserve: 2000", {"reserve": 2000, "ratios": {"memory": 0.3, "history": 0.4}}),
    "the same share, the other spelling": (
        "reserve: 0.3",
        {"reserve": 0.3, "ratios": {"memory": 0.3, "history": 0.4}},
    ),
    "a size replaces a ratio, which the others share": (
        "sizes: {memory: 1000}",
        {"sizes": {"memory": 1000}, "ratios": {"history": 0.7}},
    ),
    "sizes replace all ratios": (
        "sizes: {memory: 1000, history: 2000}",
        {"sizes": {"memory": 1000, "history": 2000}, "ratios": {}},
    ),
}


@pytest.mark.parametrize(("profile", "expected"), LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("system", [RATIOS, "temperature: 1"], ids=["said", "left at the defaults"])
def test_a_profile_replaces_the_other_spelling_of_what_it_says(written, system, profile, expected):
    """A reserve in tokens and a block's size stand instead of the inherited shares, those of the defaults included."""
    path = written(
        f"llm: {{context_window: 32768, {system}}}\nprofiles: {{nova: {{preferred_llm: {{{profile}}}}}}}"
    )
    assert TokenBudget.from_file(path, "nova") == TokenBudget(context_window=32_768, **expected)


def test_a_profile_replaces_sizes_and_a_reserve_by_ratios(written):
    """The other way round: an inherited size goes where the profile gives a ratio, an inherited reserve where it is among the ratios."""
    system = (
        "llm: {context_window: 32768, reserve: 2000, sizes: {memory: 1000}, budget_ratios: {history: .7}}"
    )
    path = written(f"{system}\nprofiles: {{nova: {{preferred_llm: {{{RATIOS}}}}}}}")
    assert TokenBudget.from_file(path, "nova") == TokenBudget(context_window=32_768)
    assert TokenBudget.from_file(path).sizes == {"memory": 1000}


def test_ratios_that_share_what_a_size_left_keep_their_proportions(written):
    """Memory's 0.2 goes to history and examples as 4 to 1; the reserve's share is not theirs."""
    system = (
        "llm: {context_window: 32768, budget_ratios: {memory: .2, history: .4, examples: .1, reserve: .3}}"
    )
    budget = TokenBudget.from_file(
        written(f"{system}\nprofiles: {{nova: {{sizes: {{memory: 1000}}}}}}"), "nova"
    )
    assert (dict(budget.ratios), budget.reserve) == ({"history": 0.56, "examples": 0.14}, 0.3)
    assert budget.share_of("history") == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        (
            "reserve: 2000, budget_ratios: {memory: .3, history: .4, reserve: .3}",
            "reserve must be given once (got 2000 beside a ratio of 0.3)",
        ),
        (
            "reserve: .3, budget_ratios: {memory: .3, history: .45, reserve: .25}",
            "reserve must be given once (got 0.3 beside a ratio of 0.25)",
        ),
        (
            "sizes: {memory: 1000}, budget_ratios: {memory: .3, history: .4}",
            "a block must have a ratio or a size (got both for 'memory')",
        ),
    ],
)
def test_two_answers_in_one_level_are_an_error(written, level, seen):
    """In the defaults and in a profile alike, with the place."""
    assert seen in refused(
        written(f"llm: {{context_window: 32768, {level}}}\nprofiles: {{nova: {{reserve: 500}}}}"), "nova"
    )
    message = refused(written(f"llm: {{context_window: 32768}}\nprofiles: {{nova: {{{level}}}}}"), "nova")
    assert seen in message
    assert "profiles.nova" in message


def test_a_profile_may_be_called_by_a_number(written):
    """YAML reads the name 1 as a number; it is found under '1'."""
    llm = "llm: {context_window: 8192}\n"
    assert TokenBudget.from_file(written(llm + "profiles: {1: {reserve: 100}}"), "1").reserve == 100
    assert TokenBudget.from_file(written(llm + "7: {preferred_llm: {reserve: 300}}"), "7").reserve == 300
    assert "those in the file: '1' (got '2')" in refused(written(llm + "profiles: {1: {reserve: 100}}"), "2")


def test_every_field_of_a_budget_may_be_in_a_file(written):
    """Sizes, ranks, safety and the rest have the names they have in code."""
    text = "llm: {context_window: 8192, sizes: {project: 300}, ranks: {examples: 2}, safety: 100, min_exchanges: 2, preset: rag, message_cap: null}"
    budget = TokenBudget.from_file(written(text))
    assert budget == TokenBudget(
        sizes={"project": 300},
        ranks={"examples": 2},
        safety=100,
        min_exchanges=2,
        preset="rag",
        message_cap=None,
    )


def test_a_missing_window_is_looked_up_by_model(written):
    """A known model needs no window; an unknown one is told with its way out."""
    assert TokenBudget.from_file(written("llm: {model: gpt-4o}")).context_window == 128_000
    message = refused(written("llm: {model: unheard-of-model-name}"))
    assert "context window must be known" in message
    assert "unheard-of-model-name" in message
    assert "context window must be known" in refused(written("llm: {temperature: 1}"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", "must hold a mapping with 'llm' or 'preferred_llm' (got None)"),
        ("- 1\n- 2\n", "(got [1, 2])"),
        ("llm: 5", "llm: must be a mapping with max_response_tokens, budget_ratios, context_window"),
        ("other: {a: 1}", "must have a section 'llm' or 'preferred_llm' (got ['other'])"),
        ("llm: {contxt_window: 8192}", "llm.'contxt_window' is unknown; did you mean 'context_window'?"),
        ("llm: {context_window: many}", "context_window must be a whole number from 1 (got 'many')"),
        ("llm: {context_window: yes}", "(got True)"),
        (
            "llm: {context_window: 8192, budget_ratios: [0.3]}",
            "llm.budget_ratios must be a mapping from block names to numbers (got [0.3])",
        ),
        (
            "llm: {context_window: 8192, budget_ratios: {memory: 0.9, history: 0.4, reserve: 0.3}}",
            "(got 1.6: ",
        ),
        (
            "llm: {context_window: 8192, max_output: 5, max_response_tokens: 6}",
            "max_output must be given once (got 'max_response_tokens' and another spelling)",
        ),
        (
            "llm: {context_window: 8192, max_response_tokens: 0}",
            "max_output must be a whole number from 1 (got 0)",
        ),
        ("llm: {reserve: 1, reserve: 2, model: x, 'reserve': 3}", "a key that is given twice: 'reserve'"),
        ("llm: {}\nllm: {}", "a key that is given twice: 'llm'"),
        ("llm: [unclosed", "must be plain YAML"),
        (b"llm: \xff\xfe", "must be plain YAML"),
        ("llm: !!python/object/apply:os.system ['true']", "must be plain YAML"),
        ("[" * 20_000, "must be plain YAML"),
        ("# " + "x" * 1_000_001, "must have at most 1,000,000 bytes"),
        (
            "a: {preferred_llm: {context_window: 5}}\nb: {preferred_llm: {}}",
            "Profiles to choose from: 'a', 'b'",
        ),
    ],
)
def test_wrong_files_are_told_with_file_and_key(written, text, seen):
    """Each mistake names the file, the key, what was seen and what is allowed."""
    assert seen in refused(written(text))


def test_a_file_cannot_run_anything(written, tmp_path):
    """A tag that builds objects is refused and leaves no trace."""
    trace = tmp_path / "trace"
    refused(
        written(
            f"llm: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{trace}']]"
        )
    )
    assert not trace.exists()


def test_nested_aliases_stay_small(written):
    """A file whose aliases would spell out to billions of items is refused with a short message."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)
    ]
    assert len(refused(written("\n".join([*lines, "llm: *a11"])))) < 1_000


def test_unknown_profiles_are_told_with_those_there_are(written):
    """The message lists the names."""
    assert "those in the file: 'nova', 'short' (got 'nvoa')" in refused(written(BOTH), "nvoa")
    assert "those in the file: none" in refused(written(SYSTEM), "nova")
    assert "profiles.nova: must be a mapping" in refused(written("profiles: {nova: 3}"), "nova")


def test_a_missing_file_is_a_budget_error(tmp_path):
    """A path that cannot be read is told as such."""
    assert "cannot be read (No such file or directory)" in refused(tmp_path / "none.yaml")
    assert "cannot be read" in refused(tmp_path)


def test_all_slips_of_a_section_come_at_once(written):
    """Two slips are one error."""
    message = refused(written("llm: {contxt_window: 1, mesage_cap: 2}"))
    assert "'context_window'?" in message
    assert "'message_cap'?" in message


@draws()
@given(data=st.data())
def test_a_misspelt_option_never_passes(data):
    """With a letter too few or too many, singular or plural, in any section, asked for or not; keys of the host pass."""
    field = data.draw(st.sampled_from([f.name for f in fields(TokenBudget)]))
    place = data.draw(st.integers(1, len(field) - 1))
    numbers = [field.removesuffix("s"), f"{field}s"] if field != "model" else []
    slips = [field[:place] + field[place] + field[place:], field[:place] + field[place + 1 :], *numbers]
    slip = data.draw(st.sampled_from(slips))
    with TemporaryDirectory() as folder:
        path = Path(folder, "b.yaml")
        section = {"context_window": 8192, "models": ["x"], "temperature": 1, "base_url": "y"}
        slipped = {**section, slip: section.get(slip, "wrong")}
        places = [
            {"llm": slipped},
            {"llm": section, "preferred_llm": slipped},
            {"llm": section, "profiles": {"a": section, "b": slipped}},
            {"llm": section, "characters": {"b": {"preferred_llm": slipped}}},
            {"llm": section, "b": {"preferred_llm": slipped}},
        ]
        path.write_text(json.dumps(data.draw(st.sampled_from(places))))
        if slip in {field, "models"}:
            return
        with pytest.raises(BudgetConfigError, match=f"{slip!r} is unknown; did you mean"):
            TokenBudget.from_file(path)


@pytest.mark.parametrize("name", ["profils", "proflies", "charcters", "prefered_llm"])
def test_a_misspelt_section_never_passes(written, name):
    """Its budgets would be silently missing; a profile may have that name."""
    path = written(f"llm: {{context_window: 8192}}\n{name}: {{small: {{context_window: 99}}}}")
    assert f"{name!r} is unknown; did you mean" in refused(path)
    own = written(f"llm: {{context_window: 8192}}\n{name}: {{preferred_llm: {{context_window: 9000}}}}")
    assert TokenBudget.from_file(own, profile=name).context_window == 9000


@pytest.mark.parametrize("depth", [7, 9, 12])
def test_merged_mappings_are_bounded(written, depth):
    """A few lines of merges of merges, which would be millions of keys, are refused at once."""
    merges = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, depth)]
    text = "\n".join(["a0: &a0 {k: 1}", *merges, "llm: {context_window: 9000}"])
    assert "merged mappings" in refused(written(text))


def test_ordinary_merges_are_read(written):
    """Anchors and merges as people write them work."""
    text = "base: &base {context_window: 9000, reserve: 500}\nllm: {<<: *base, <<: *base, reserve: 600}"
    assert TokenBudget.from_file(written(text)).available == 8400
    again = "base: &b {<<: {x: 1}, x: 2}\nllm: {<<: *b, context_window: 9000, reserve: 600, 1: x, '1': y}"
    assert TokenBudget.from_file(written(again)).available == 8400
