"""The names of `llamaindex_budget`, under the name that LlamaIndex users look for."""

import llamaindex_budget

__all__ = list(llamaindex_budget.__all__)


def __getattr__(name: str) -> object:
    return getattr(llamaindex_budget, name)
