"""Why some classes and functions that mention a model are no doors, or cannot be run here."""

from __future__ import annotations

from .table import CLASSIC

_COMMUNITY = "needs langchain-community, which is not installed"
_LARK = "needs lark, which is not installed"
_BROKEN = "passes callbacks twice, so that the stock model raises TypeError before it sends anything"
_COUNTS = "only counts with the model and sends nothing"
_BASE = "an abstract base; its subclasses are tested"
_NAME = "takes a model's name and makes the model; give the model that it makes to budget_model"
_OTHER = "takes no chat model under this name"
_LOOKS = "looks at the model's class and sends nothing"

NOT_DOORS = {
    "langchain.agents.middleware.types.ModelRequest": "data; create_agent sends it",
    "langchain.chat_models.base.init_chat_model": _NAME,
    "langchain.embeddings.base.init_embeddings": _OTHER,
    "langgraph._internal._pydantic.get_fields": _OTHER,
    **{
        f"{CLASSIC}.{name}": reason
        for name, reason in {
            "agents.agent.Agent": _BASE,
            "agents.agent.BaseSingleActionAgent": _BASE,
            "agents.agent_toolkits.conversational_retrieval.openai_functions.create_conversational_retrieval_agent": _BROKEN,
            "agents.agent_toolkits.vectorstore.base.create_vectorstore_agent": _COMMUNITY,
            "agents.agent_toolkits.vectorstore.base.create_vectorstore_router_agent": _COMMUNITY,
            "agents.agent_toolkits.vectorstore.toolkit.VectorStoreRouterToolkit": _COMMUNITY,
            "agents.agent_toolkits.vectorstore.toolkit.VectorStoreToolkit": _COMMUNITY,
            "agents.openai_assistant.base.OpenAIAssistantRunnable": "the provider keeps the conversation and cuts it",
            "agents.openai_functions_agent.agent_token_buffer_memory.AgentTokenBufferMemory": _COUNTS,
            "agents.openai_functions_agent.base.OpenAIFunctionsAgent": _BROKEN,
            "agents.openai_functions_multi_agent.base.OpenAIMultiFunctionsAgent": _BROKEN,
            "agents.react.base.ReActChain": _COMMUNITY,
            "agents.react.base.ReActTextWorldAgent": "asks for exactly two tools and for exactly one, so it cannot be made",
            "chains.llm_math.base.LLMMathChain": "needs numexpr, which is not installed",
            "chains.openai_functions.openapi.get_openapi_chain": _COMMUNITY,
            "chains.prompt_selector.ConditionalPromptSelector": _LOOKS,
            "chains.prompt_selector.is_chat_model": _LOOKS,
            "chains.prompt_selector.is_llm": _LOOKS,
            "chains.query_constructor.base.load_query_constructor_chain": _LARK,
            "chains.query_constructor.base.load_query_constructor_runnable": _LARK,
            "chat_models.base.init_chat_model": _NAME,
            "embeddings.base.init_embeddings": _OTHER,
            "evaluation.schema.LLMEvalChain": _BASE,
            "hub.pull": _OTHER,
            "memory.summary.SummarizerMixin": _BASE,
            "memory.token_buffer.ConversationTokenBufferMemory": _COUNTS,
            "memory.vectorstore_token_buffer_memory.ConversationVectorStoreTokenBufferMemory": _COUNTS,
            "retrievers.document_compressors.cohere_rerank.CohereRerank": _OTHER,
            "retrievers.document_compressors.cross_encoder_rerank.CrossEncoderReranker": _OTHER,
            "retrievers.self_query.base.SelfQueryRetriever": _LARK,
            "smith.evaluation.config.RunEvalConfig": "settings of evaluators, which are tested",
        }.items()
    },
}
