"""Rendering profiles: conversations made to obey, and nothing lost."""

from __future__ import annotations

import copy
import random
from itertools import pairwise
from typing import Any

import pytest

from rankbudget.counting.profiles import PROFILES, RenderingProfile, apply_profile, profile_for
from rankbudget.errors import BudgetConfigError

ALL = {
    **PROFILES,
    "first only": RenderingProfile(system="first"),
    "alternate only": RenderingProfile(alternate=True),
}


def drawn(seed: int) -> list[dict[str, Any]]:
    """Returns a conversation whose every text is its own word."""
    rng = random.Random(seed)
    words = (f"w{index}" for index in range(1_000))
    messages: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, 9)):
        kind = rng.choice(("system", "developer", "user", "user", "assistant", "call", "blocks"))
        if kind == "call":
            ids = [f"c{next(words)}" for _ in range(rng.randint(1, 2))]
            calls = [
                {
                    "id": i,
                    "type": "function",
                    "function": {"name": "f", "arguments": f'{{"x": "{next(words)}"}}'},
                }
                for i in ids
            ]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages += [{"role": "tool", "tool_call_id": i, "content": next(words)} for i in ids]
        elif kind == "blocks":
            messages.append(
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": next(words)},
                        {"type": "image_url", "image_url": {"url": next(words)}},
                    ],
                }
            )
        else:
            messages.append({"role": kind, "content": next(words)})
    return messages


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_the_result_obeys_and_loses_nothing(name: str) -> None:
    """Whatever a profile demands holds afterwards, every word is still there, a second time changes nothing, and the input is as it was."""
    profile = ALL[name]
    for seed in range(80):
        given = drawn(seed)
        before = copy.deepcopy(given)
        obedient = apply_profile(given, profile)
        assert given == before
        roles = ["system" if m["role"] == "developer" else m["role"] for m in obedient]
        text = str(obedient)
        assert all(
            f"w{i}" in text for i in range(1_000) if f"'w{i}'" in str(given) or f'"w{i}"' in str(given)
        )
        if profile.system == "first":
            assert roles == sorted(roles, key=lambda role: role != "system")
        if profile.system == "user":
            assert "system" not in roles
        if profile.one_system and profile.system == "first":
            assert roles.count("system") <= 1
        if profile.alternate:
            assert all(a != b or a in {"tool", "system"} for a, b in pairwise(roles))
        if profile.system != "user":
            calls = [i for i, m in enumerate(obedient) if m.get("tool_calls")]
            assert all(
                obedient[i + 1 + k]["tool_call_id"] == c["id"]
                for i in calls
                for k, c in enumerate(obedient[i]["tool_calls"])
            )
        assert apply_profile(obedient, profile) == obedient


def test_what_needs_no_change_is_the_same_object() -> None:
    """A conversation that obeys already comes back as the same objects, in a new list."""
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "v"},
    ]
    for name in ("openai", "anthropic", "google", "mistral"):
        obedient = apply_profile(messages, PROFILES[name])
        assert all(a is b for a, b in zip(messages, obedient, strict=True))
        assert obedient is not messages


def test_late_system_text_moves_where_it_is_accepted() -> None:
    """A late system message moves to the front, or into the user's next message; without one it becomes the user's."""
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "three"},
    ]
    assert apply_profile(messages, PROFILES["anthropic"]) == [
        messages[2],
        messages[0],
        messages[1],
        messages[3],
    ]
    assert apply_profile(messages, PROFILES["alternating"])[-1] == {
        "role": "user",
        "content": "Be brief.\n\nthree",
    }
    assert apply_profile(messages[:3], PROFILES["alternating"])[-1] == {
        "role": "user",
        "content": "Be brief.",
    }


def test_profiles_are_found_by_model() -> None:
    """Models and providers have a profile by name; an unknown name is refused."""
    assert profile_for("claude-opus-4-6") is profile_for("anthropic") is PROFILES["anthropic"]
    assert profile_for("models/gemini-2.5-pro") is PROFILES["google"]
    assert profile_for("gemma-2-9b-it") is PROFILES["alternating"]
    assert profile_for("gpt-4o") is profile_for("qwen3-32b") is PROFILES["openai"]
    with pytest.raises(BudgetConfigError, match="profile must be"):
        profile_for("acme-1")
