"""What each reason of a decision means, in the words of docs/glossary.md."""

from __future__ import annotations

MEANINGS = {
    "fits": "there was room",
    "pinned": "it may not be cut",
    "key_moment": '"selective": it holds a decision, a name, a number or the like',
    "older_than_cut": "it is older than the first kept message",
    "older_than_last_turns": "it is older than the turns that last_turns keeps, whatever fits",
    "not_read": "older messages of a stored conversation, which were not read",
    "summary_of_dropped": "a summary of the dropped messages",
    "message_cap": (
        "a long text of the last exchanges, or of an older step or exchange, shortened so that it fits"
    ),
    "no_room": "the block's grant was used by higher-ranked segments",
    "too_large": "it alone needs more than the block's grant",
    "best_sentences": "its sentences that answer the question best are kept",
    "duplicate": "a kept segment says the same",
    "filler": 'a blank text where not all fit; "selective": it says nothing that must be kept',
    "discarded": 'your own plan for "selective" says so',
    "orphan_result": "a tool result without its call; what else is in its message stays",
    "unanswered_call": (
        "a tool call without all its results; at the end it waits, and is dropped only where the model is "
        "asked next"
    ),
    "empty_message": "a question or an answer with nothing but blanks or thinking, which providers refuse",
    "blank_text": "a blank text beside other content was removed, which providers refuse",
    "call_without_id": "a tool call had no id and got that of its result",
    "leading_assistant": "a conversation may not begin with an answer",
    "out_of_scope": "it belongs to another user or project; it has no id in the report",
}
"""Meaning by reason; a strategy of your own may give others."""
