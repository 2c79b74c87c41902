import time
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import *
from langchain_budget import *
from langchain_budget.middleware import _with_update
from langchain.agents.middleware import ModelRequest, ModelResponse
for n in (1000,2000,4000):
    ms=[k("word "*5,id=f"{i}-{k.__name__}") for i in range(n) for k in (HumanMessage,AIMessage)]
    r=ModelRequest(model=FakeListChatModel(responses=["x"]),messages=ms)
    t=time.perf_counter(); _with_update(r, ms[n:], ModelResponse(result=[AIMessage("x")])); print(n, time.perf_counter()-t)
for lim in (1000,30):
  for sysp in (None,"You are kind. "):
    th=[k("word "*5) for i in range(4) for k in (HumanMessage,AIMessage)]+[HumanMessage("now")]
    rep=[]
    ag=create_agent(FakeListChatModel(responses=["x"]), middleware=[BudgetMiddleware(max_tokens=lim,counter=lambda m: len(m.content.split()), on_report=rep.append)], system_prompt=sysp)
    for ch in ag.stream({"messages":th}, stream_mode="custom"): print(lim, sysp, ch)
    print([(b.name,b.given if hasattr(b,'given') else None,b.kept,b.shortened,b.dropped if hasattr(b,'dropped') else None) for b in rep[0].blocks])
