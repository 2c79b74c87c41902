"""The names of `langchain_budget`, under the name that LangChain users look for."""

import langchain_budget

__all__ = list(langchain_budget.__all__)


def __getattr__(name: str) -> object:
    return getattr(langchain_budget, name)
