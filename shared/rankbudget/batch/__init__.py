"""Fits many prompts, one a row: in a batch engine, or in a pool of processes on this machine.

In: a budget, and columns or files of rows. Out: the same rows with the fitted prompt, or with a typed error.
"""

from __future__ import annotations

from .daft_frame import fit_daft
from .files import BatchResult, fit_files
from .fit_prompt import FitPrompt
from .progress import Progress
from .samples import whole_turns

__all__ = ["BatchResult", "FitPrompt", "Progress", "fit_daft", "fit_files", "whole_turns"]
