"""The public names, spelled out: a name that appears or goes is a decision, not an accident."""

from __future__ import annotations

import importlib

import pytest

from rankbudget import BudgetError

EXPECTED = {
    "rankbudget": [
        "AnalyzerConfig", "Assembler", "Assembly", "Block", "BlockAssembler", "BlockTotal", "BlockUsage", "BudgetConfigError", "BudgetError",
        "BudgetExceededError", "BudgetReport", "BudgetSession", "Codec", "CompressionResult", "CompressorConfig", "ContextAnalyzer",
        "CounterUnavailableError", "Decision", "DictCodec", "EmbeddingIndex", "EmbeddingIndexError", "FewShotSelector", "FitResult",
        "FitStrategy", "MessageError", "OptimizationResult", "OptimizerConfig", "PromptCompressor", "Provenance", "RatioChange", "Rendition", "RowError", "Scope",
        "Scorer", "Segment", "SegmentScore", "StoreConflictError", "StoreError", "StoreUnsupportedError", "SummaryError", "TokenBudget", "TokenCounter", "TokenOptimizer", "adapt_ratios", "afit_messages",
        "build_constrained_prompt", "counter_for", "debug_context", "fit_documents", "fit_messages", "fit_text", "log_reports", "ratio_changes", "save_html",
        "trace_reports", "truncate_text", "usage_of",
    ],
    "langchain_budget": [
        "BudgetChatPromptTemplate", "BudgetContextEdit", "BudgetDocumentCompressor", "BudgetExampleSelector", "BudgetMemory",
        "BudgetMessageHistory", "BudgetMiddleware", "BudgetRetriever", "BudgetTrimmer", "GraphBackend", "MemoryRetriever", "MemoryVectors", "StoredMessageHistory", "StoredThreadMiddleware", "add_run_metadata",
        "budget_model", "memory_tools", "pre_model_hook", "trim_messages",
    ],
    "llamaindex_budget": [
        "BudgetChatMemoryBuffer", "BudgetEvent", "BudgetFunctionAgent", "BudgetMemory", "BudgetMemoryBlock", "BudgetNodePostprocessor",
        "BudgetPromptHelper", "HistorySummaryMemoryBlock", "KnowledgeMemoryBlock", "MemoryVectors", "OfflineEmbedding", "ProjectMemoryBlock", "RequestExceededError", "RequestMessageError", "StoredAsyncChatStore", "StoredChatStore", "StoredMemoryBlock", "SystemMemoryBlock",
        "TaskMemoryBlock", "budget_for", "budget_model", "embedder", "few_shot_function", "summarizer", "use_session",
    ],
}  # fmt: skip
PROMISED = {
    "rankbudget": "TokenBudget BudgetSession Block Segment Provenance Scope Assembler BlockAssembler counter_for TokenCounter EmbeddingIndex "
    "ContextAnalyzer PromptCompressor FewShotSelector TokenOptimizer fit_messages afit_messages fit_documents fit_text build_constrained_prompt",
    "langchain_budget": "BudgetTrimmer BudgetMemory BudgetChatPromptTemplate BudgetDocumentCompressor BudgetRetriever BudgetExampleSelector "
    "BudgetMiddleware BudgetContextEdit BudgetMessageHistory trim_messages",
    "llamaindex_budget": "BudgetNodePostprocessor BudgetChatMemoryBuffer BudgetMemory BudgetMemoryBlock BudgetPromptHelper "
    "BudgetFunctionAgent few_shot_function",
}


@pytest.mark.parametrize("package", EXPECTED)
def test_the_public_names_are_these(package: str) -> None:
    """`__all__` holds exactly the expected names, in alphabetical order."""
    assert list(importlib.import_module(package).__all__) == EXPECTED[package]
    assert sorted(EXPECTED[package]) == EXPECTED[package]
    assert set(PROMISED[package].split()) <= set(EXPECTED[package])


@pytest.mark.slow
@pytest.mark.parametrize("package", EXPECTED)
def test_every_public_name_is_there(package: str) -> None:
    """Each public name loads, says what it is, and is listed by `dir`."""
    module = importlib.import_module(package)
    nameless = [name for name in module.__all__ if not getattr(module, name).__doc__]
    assert nameless == []
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.slow
def test_each_error_is_a_value_error_but_two_that_are_public() -> None:
    """`except ValueError` catches all errors of the packages but the two that the page of errors points to."""
    loaded = {
        getattr(importlib.import_module(package), name) for package in EXPECTED for name in EXPECTED[package]
    }

    def below(kind: type) -> set[type]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    own = {kind for kind in below(BudgetError) if kind.__module__.split(".")[0] in EXPECTED}
    others = {kind for kind in own if not issubclass(kind, ValueError)}
    assert {kind.__name__ for kind in others} == {"RequestExceededError", "RequestMessageError"}
    assert others <= loaded


@pytest.mark.parametrize("package", EXPECTED)
def test_an_unknown_name_is_an_attribute_error(package: str) -> None:
    """Asking for a name that is not there raises AttributeError, as of any module."""
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match="Nonsense"):
        module.Nonsense  # noqa: B018 - the lookup is the test
