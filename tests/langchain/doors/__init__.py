"""Every agent, chain, retriever, parser and memory of the installed packages that calls a chat model, each run once.

`DOORS` says for a class's or function's full name how to run it with a model and a text that it adds to a prompt late.
`NOT_DOORS` says why the others that mention a model send nothing that can be tested.
"""

from __future__ import annotations

from . import agents, chains, others
from .not_doors import NOT_DOORS
from .table import DOORS

__all__ = ["DOORS", "NOT_DOORS", "agents", "chains", "others"]
