"""Evaluators, memories, parsers and retrievers of langchain-classic."""

from __future__ import annotations

from typing import Any

from langchain_core.agents import AgentAction
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import PydanticOutputParser
from langchain_core.prompts import PromptTemplate

from .table import Found, Person, door, look, of


# ---------------------------------------------------------------- evaluators
def judged(name: str, slot: str, **more: str) -> None:
    door(f"evaluation.{name}")(
        lambda model, text: of(f"evaluation.{name}").from_llm(model).invoke({slot: text, **more})
    )


judged(
    "comparison.eval_chain.LabeledPairwiseStringEvalChain",
    "prediction",
    prediction_b="b",
    input="c",
    reference="d",
)
judged("comparison.eval_chain.PairwiseStringEvalChain", "prediction", prediction_b="b", input="c")
judged("criteria.eval_chain.CriteriaEvalChain", "output", input="c")
judged("criteria.eval_chain.LabeledCriteriaEvalChain", "output", input="c", reference="d")
judged("qa.eval_chain.ContextQAEvalChain", "context", query="a", result="b")
judged("qa.eval_chain.CotQAEvalChain", "context", query="a", result="b")
judged("qa.eval_chain.QAEvalChain", "answer", query="a", result="b")
judged("qa.generate_chain.QAGenerateChain", "doc")
judged("scoring.eval_chain.LabeledScoreStringEvalChain", "prediction", input="c", reference="d")
judged("scoring.eval_chain.ScoreStringEvalChain", "prediction", input="c")


@door("evaluation.agents.trajectory_eval_chain.TrajectoryEvalChain")
def trajectory(model: Any, text: str) -> Any:
    made = of("evaluation.TrajectoryEvalChain").from_llm(model, [look])
    steps = [(AgentAction("look", "a", ""), text)]
    return made.evaluate_agent_trajectory(prediction="a", input="Why?", agent_trajectory=steps)


@door("evaluation.loading.load_evaluator")
def loaded(model: Any, text: str) -> Any:
    made = of("evaluation.load_evaluator")("qa", llm=model)
    return made.evaluate_strings(prediction=text, input="a", reference="b")


@door("evaluation.loading.load_evaluators")
def all_loaded(model: Any, text: str) -> Any:
    made = of("evaluation.load_evaluators")(["qa"], llm=model)[0]
    return made.evaluate_strings(prediction=text, input="a", reference="b")


# ---------------------------------------------------------------- memories
def remembered(name: str) -> None:
    def run(model: Any, text: str) -> Any:
        memory = of(f"memory.{name}")(llm=model)
        memory.save_context({"input": text}, {"output": "Fine."})
        return memory.load_memory_variables({"input": text})

    door(f"memory.{name}")(run)


remembered("entity.ConversationEntityMemory")
remembered("summary.ConversationSummaryMemory")


@door("memory.summary_buffer.ConversationSummaryBufferMemory")
def summary_buffer(model: Any, text: str) -> Any:
    """Its own pruning counts with a tokenizer from the network; this is the call that it ends in."""
    memory = of("memory.ConversationSummaryBufferMemory")(llm=model)
    return memory.predict_new_summary([HumanMessage(text)], "")


# ---------------------------------------------------------------- parsers
def parser(model: Any, name: str) -> Any:
    return of(f"output_parsers.{name}").from_llm(
        parser=PydanticOutputParser(pydantic_object=Person), llm=model
    )


@door("output_parsers.fix.OutputFixingParser")
def fixed(model: Any, text: str) -> Any:
    return parser(model, "OutputFixingParser").parse(text)


def retried(name: str) -> None:
    def run(model: Any, text: str) -> Any:
        prompt = PromptTemplate.from_template("{a}").format_prompt(a=text)
        return parser(model, name).parse_with_prompt("a", prompt)

    door(f"output_parsers.retry.{name}")(run)


retried("RetryOutputParser")
retried("RetryWithErrorOutputParser")


# ---------------------------------------------------------------- retrievers
def filtered(name: str) -> None:
    path = f"retrievers.document_compressors.{name}"
    door(path)(lambda model, text: of(path).from_llm(model).compress_documents([Document(text)], "Why?"))


filtered("chain_extract.LLMChainExtractor")
filtered("chain_filter.LLMChainFilter")
filtered("listwise_rerank.LLMListwiseRerank")


@door("retrievers.multi_query.MultiQueryRetriever")
def multi_query(model: Any, text: str) -> Any:
    return of("retrievers.MultiQueryRetriever").from_llm(Found(text="a"), model).invoke(text)


@door("retrievers.re_phraser.RePhraseQueryRetriever")
def rephrased(model: Any, text: str) -> Any:
    return of("retrievers.RePhraseQueryRetriever").from_llm(Found(text="a"), model).invoke(text)
