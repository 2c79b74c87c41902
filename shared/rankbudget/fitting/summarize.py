"""Summarize: new words, fewer of them, for what would be dropped.

The pieces live in `compression`; this is where the pipeline takes them from.
"""

from __future__ import annotations

from ..compression.abstractive import Summarizer, summarize_steps
from ..compression.summary import extractive_summary

__all__ = ["Summarizer", "extractive_summary", "summarize_steps"]
