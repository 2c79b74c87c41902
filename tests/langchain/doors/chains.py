"""Chains of langchain-classic."""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate

from .agents import CALLING
from .table import Found, Person, door, embedding, llm_chain, of, store

SCHEMA = {
    "title": "person",
    "description": "A person.",
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}


def from_llm(name: str, slot: str, **more: Any) -> None:
    door(f"chains.{name}")(
        lambda model, text: of(f"chains.{name}").from_llm(model, **more).invoke({slot: text})
    )


from_llm("llm_checker.base.LLMCheckerChain", "query")
from_llm("llm_summarization_checker.base.LLMSummarizationCheckerChain", "query")


def of_documents(name: str, how: str, **more: Any) -> None:
    documents = [{"source": "a"}, {"source": "b"}]
    door(f"chains.{name}")(
        lambda model, text: of(f"chains.{how}")(model, **more).invoke(
            {"input_documents": [Document(text, metadata=m) for m in documents], "question": "Why?"}
        )
    )


of_documents(
    "combine_documents.map_reduce.MapReduceDocumentsChain", "load_summarize_chain", chain_type="map_reduce"
)
of_documents(
    "combine_documents.map_rerank.MapRerankDocumentsChain",
    "question_answering.load_qa_chain",
    chain_type="map_rerank",
)
of_documents("combine_documents.refine.RefineDocumentsChain", "load_summarize_chain", chain_type="refine")
of_documents("combine_documents.stuff.StuffDocumentsChain", "load_summarize_chain", chain_type="stuff")
of_documents(
    "qa_with_sources.loading.load_qa_with_sources_chain", "qa_with_sources.load_qa_with_sources_chain"
)
of_documents("question_answering.chain.load_qa_chain", "question_answering.load_qa_chain")
of_documents("summarize.chain.load_summarize_chain", "load_summarize_chain")


@door("chains.combine_documents.stuff.create_stuff_documents_chain")
def stuffed(model: Any, text: str) -> Any:
    prompt = ChatPromptTemplate([("system", "{context}"), ("human", "Why?")])
    made = of("chains.combine_documents.create_stuff_documents_chain")(model, prompt)
    return made.invoke({"context": [Document(text)]})


@door("chains.mapreduce.MapReduceChain")
def map_reduced(model: Any, text: str) -> Any:
    splitter = of("text_splitter.CharacterTextSplitter")(separator="\n")
    prompt = PromptTemplate.from_template("{text}")
    return of("chains.MapReduceChain").from_params(model, prompt, splitter).invoke({"input_text": text})


# ---------------------------------------------------------------- chains over a retriever
def retrieving(name: str, how: str) -> None:
    door(f"chains.{name}")(
        lambda model, text: (
            of(f"chains.{how}")
            .from_llm(model, retriever=Found(text=text))
            .invoke({"question": "Why?", "query": "Why?", "chat_history": [("Is it?", "It is.")]})
        )
    )


retrieving("conversational_retrieval.base.ConversationalRetrievalChain", "ConversationalRetrievalChain")
retrieving("qa_with_sources.base.BaseQAWithSourcesChain", "RetrievalQAWithSourcesChain")
retrieving("retrieval_qa.base.BaseRetrievalQA", "RetrievalQA")


@door("chains.conversational_retrieval.base.ChatVectorDBChain")
def vector_db(model: Any, text: str) -> Any:
    made = of("chains.ChatVectorDBChain").from_llm(model, store(text))
    return made.invoke({"question": "Why?", "chat_history": []})


@door("chains.history_aware_retriever.create_history_aware_retriever")
def history_aware(model: Any, text: str) -> Any:
    made = of("chains.create_history_aware_retriever")(model, Found(text="a"), CALLING)
    return made.invoke({"input": text, "chat_history": [HumanMessage("a")]})


@door("chains.flare.base.FlareChain")
def flare(model: Any, text: str) -> Any:
    base = of("chains.flare.base.FlareChain")
    made = base(
        question_generator_chain=of("chains.flare.base.QuestionGeneratorChain")(llm=model),
        response_chain=of("chains.flare.base.PROMPT") | model,
        retriever=Found(text=text),
    )
    return made.invoke({"user_input": text})


@door("chains.flare.base.QuestionGeneratorChain")
def question_generator(model: Any, text: str) -> Any:
    given = {
        "user_input": "Why?",
        "context": "",
        "response": text,
        "current_response": text,
        "uncertain_span": "a",
    }
    return of("chains.flare.base.QuestionGeneratorChain")(llm=model).invoke(given)


@door("chains.hyde.base.HypotheticalDocumentEmbedder")
def hyde(model: Any, text: str) -> Any:
    return (
        of("chains.HypotheticalDocumentEmbedder").from_llm(model, embedding(), "web_search").embed_query(text)
    )


# ---------------------------------------------------------------- structured output
def structured(name: str, *given: Any, model_first: bool = False, prompt: bool = True) -> None:
    def run(model: Any, text: str) -> Any:
        parts = [model, *given] if model_first else [*given, model]
        if prompt:
            parts.append(ChatPromptTemplate.from_template("{input}"))
        return of(f"chains.{name}")(*parts).invoke({"input": text, "question": text, "context": text})

    door(f"chains.{name}")(run)


structured("openai_functions.base.create_openai_fn_chain", [Person])
structured("openai_functions.base.create_structured_output_chain", Person)
structured("openai_functions.citation_fuzzy_match.create_citation_fuzzy_match_chain", prompt=False)
structured("openai_functions.citation_fuzzy_match.create_citation_fuzzy_match_runnable", prompt=False)
structured("openai_functions.extraction.create_extraction_chain", SCHEMA)
structured("openai_functions.extraction.create_extraction_chain_pydantic", Person)
structured("openai_functions.qa_with_structure.create_qa_with_sources_chain", prompt=False)
structured(
    "openai_functions.qa_with_structure.create_qa_with_structure_chain",
    SCHEMA,
    model_first=True,
    prompt=False,
)
structured("openai_functions.tagging.create_tagging_chain", SCHEMA)
structured("openai_functions.tagging.create_tagging_chain_pydantic", Person)
structured("openai_tools.extraction.create_extraction_chain_pydantic", Person, prompt=False)
structured("structured_output.base.create_openai_fn_runnable", [Person])
structured("structured_output.base.create_structured_output_runnable", Person)


# ---------------------------------------------------------------- others
@door("chains.llm.LLMChain")
def one_prompt(model: Any, text: str) -> Any:
    return llm_chain(model, "{a}").invoke({"a": text})


@door("chains.conversation.base.ConversationChain")
def conversation(model: Any, text: str) -> Any:
    return of("chains.ConversationChain")(llm=model).invoke({"input": text})


@door("chains.constitutional_ai.base.ConstitutionalChain")
def constitution(model: Any, text: str) -> Any:
    principle = of("chains.constitutional_ai.base.ConstitutionalPrinciple")
    made = of("chains.ConstitutionalChain").from_llm(
        model,
        chain=llm_chain(model, "{question}"),
        constitutional_principles=[principle(critique_request=text, revision_request="Revise.")],
    )
    return made.invoke({"question": "Why?"})


@door("chains.elasticsearch_database.base.ElasticsearchDatabaseChain")
def elastic(model: Any, text: str) -> Any:
    class Catalogue:
        def indices(self, **_: Any) -> list[dict[str, str]]:
            return [{"index": "all"}]

        def get_mapping(self, **_: Any) -> dict[str, Any]:
            return {"all": {"mappings": text}}

    class Client:
        cat = indices = Catalogue()

        def search(self, **_: Any) -> dict[str, Any]:
            return {"hits": {"hits": []}}

    made = of("chains.elasticsearch_database.ElasticsearchDatabaseChain").from_llm(model, Client())
    return made.invoke({"question": "Why?"})


@door("chains.example_generator.generate_example")
def example(model: Any, text: str) -> Any:
    given = [{"a": text}], model, PromptTemplate.from_template("{a}")
    return of("chains.example_generator.generate_example")(*given)


@door("chains.natbot.base.NatBotChain")
def natbot(model: Any, text: str) -> Any:
    made = of("chains.NatBotChain").from_llm(model, "Buy.")
    return made.invoke({"url": "http://a", "browser_content": text})


@door("chains.qa_generation.base.QAGenerationChain")
def qa_generation(model: Any, text: str) -> Any:
    splitter = of("text_splitter.CharacterTextSplitter")(separator="\n")
    return of("chains.QAGenerationChain").from_llm(model, text_splitter=splitter).invoke({"text": text})


@door("chains.router.llm_router.LLMRouterChain")
def router(model: Any, text: str) -> Any:
    parser = of("chains.router.llm_router.RouterOutputParser")()
    prompt = PromptTemplate(template="{input}", input_variables=["input"], output_parser=parser)
    return of("chains.LLMRouterChain").from_llm(model, prompt).invoke({"input": text})


@door("chains.router.multi_prompt.MultiPromptChain")
def routed(model: Any, text: str) -> Any:
    infos = [{"name": "a", "description": "All.", "prompt_template": "{input}"}]
    return of("chains.MultiPromptChain").from_prompts(model, infos).invoke({"input": text})


@door("chains.router.multi_retrieval_qa.MultiRetrievalQAChain")
def routed_retrieval(model: Any, text: str) -> Any:
    infos = [{"name": "a", "description": "All.", "retriever": Found(text=text)}]
    made = of("chains.MultiRetrievalQAChain").from_retrievers(model, infos, default_chain_llm=model)
    return made.invoke({"input": text})


@door("chains.sql_database.query.create_sql_query_chain")
def sql(model: Any, text: str) -> Any:
    class Tables:
        dialect = "sqlite"

        def get_table_info(self, **_: Any) -> str:
            return text

    return of("chains.create_sql_query_chain")(model, Tables()).invoke({"question": "Why?"})
