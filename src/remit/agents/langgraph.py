"""A graph of LangGraph, or anything of LangChain that runs, as an agent of remit's: `Remit.open(agents=[langgraph_agent("team", graph)])`.

Deadline, cancellation and budget reach into its run, its words are streamed, and what it delegates is its child. Tracing is switched on
and off by LangSmith's own variables; nothing here does. The delegate tool for LangChain is in `remit.runtime.tool.langchain`.
Needs `pip install 'remit[langgraph]'`.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Unpack
from uuid import UUID

from remit.agents.frameworks import AgentOptions, CompletedRequest, FrameworkRun, framework_agent, unreachable
from remit.agents.function import FunctionAgent
from remit.core.context import Context
from remit.core.errors import Misused
from remit.models.pricing import TokenUsage
from remit.runtime.tool.delegate_tool import needs

with needs("langgraph", "langgraph", "langchain_core"):
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
    from langchain_core.runnables import Runnable, RunnableConfig
    from langchain_core.runnables.config import merge_configs
    from langgraph.errors import GraphRecursionError
    from langgraph.pregel import Pregel

__all__ = ["langgraph_agent"]

InputOf = Callable[[Context, str], Any]
"""From the `ctx` and the prompt to what the graph takes."""
OutputOf = Callable[[Any], Any]


def langgraph_agent(
    name: str,
    graph: Runnable[Any, Any],
    *,
    input_of: InputOf | None = None,
    output_of: OutputOf | None = None,
    config: RunnableConfig | None = None,
    context: Any = None,
    **declared: Unpack[AgentOptions],
) -> FunctionAgent:
    """`graph` under `name`. It takes `task`, in words, and whatever else its caller names.

    Without `input_of` the prompt is a message of the user's, `{"messages": […]}`; without `output_of` the result is its structured
    response, else the words of its last message, else its whole state. After `recursion_limit` (in `config`) its return is partial.
    """
    if not isinstance(graph, Runnable):
        raise Misused(f"{name}: {graph!r:.80} is nothing that LangGraph runs.", advice="Pass a compiled graph: builder.compile().")
    wanted = _Guest(graph=graph, input_of=input_of, output_of=output_of, config=config, context=context)
    return framework_agent(name, "langgraph", wanted.run, declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guest:
    graph: Runnable[Any, Any]
    input_of: InputOf | None
    output_of: OutputOf | None
    config: RunnableConfig | None
    context: Any

    async def run(self, run: FrameworkRun) -> Any:
        try:
            state = await self._state(run)
        except GraphRecursionError as error:
            return run.partial(str(error).partition("\n")[0], "Raise its recursion_limit, or ask for less.")
        except Exception as error:
            if (unavailable := unreachable(error)) is not None:
                raise unavailable from error
            raise
        if isinstance(state, Mapping) and state.get("__interrupt__"):
            return run.partial(f"It waits for an answer: {state['__interrupt__']!r:.300}", "Answer it, and run the graph on.")
        if isinstance(state, Mapping) and "messages" in state:
            run.keep(list(state["messages"]))
        return state if self.output_of is None and not isinstance(state, Mapping) else (self.output_of or _output)(state)

    async def _state(self, run: FrameworkRun) -> Any:
        given, config = self._input(run), self._config(run)
        if not isinstance(self.graph, Pregel):
            return await self.graph.ainvoke(given, config)
        state: Any = None
        streamed: Any = self.graph.astream(given, config, context=self.context, stream_mode=["values", "messages"])
        async with aclosing(streamed) as pieces:
            async for mode, piece in pieces:
                if mode == "values":
                    state = piece
                elif isinstance(piece[0], AIMessage):
                    run.hear(str(piece[0].text))
        return state

    def _input(self, run: FrameworkRun) -> Any:
        if self.input_of is not None:
            return self.input_of(run.ctx, run.prompt())
        return {"messages": [*(run.before or ()), HumanMessage(run.prompt())]}

    def _config(self, run: FrameworkRun) -> RunnableConfig:
        """A graph that keeps its state keeps it by delegation, unless it is said otherwise."""
        ours: RunnableConfig = {"callbacks": [_Watch(run)], "configurable": {"thread_id": run.ctx.session_id}}
        own = self.config or {}
        return merge_configs(ours, own) if isinstance(self.graph, Pregel) else merge_configs({"callbacks": ours["callbacks"]}, own)


class _Watch(BaseCallbackHandler):
    """What each request cost is drawn as soon as it has been answered; tools are told of as they are called."""

    run_inline = True
    """Before the run goes on: a budget that is passed must stop it here."""
    raise_error = True

    def __init__(self, run: FrameworkRun) -> None:
        self._run = run
        self._asked: dict[UUID, int] = {}
        """Characters of each question."""

    def on_chat_model_start(self, serialized: Any, messages: list[list[BaseMessage]], *, run_id: UUID, **more: Any) -> None:
        self._run.begins()
        self._asked[run_id] = sum(len(str(message.content)) for batch in messages for message in batch)

    def on_llm_start(self, serialized: Any, prompts: list[str], *, run_id: UUID, **more: Any) -> None:
        self._run.begins()
        self._asked[run_id] = sum(map(len, prompts))

    def on_llm_new_token(self, token: Any, **more: Any) -> None:
        self._run.stream(len(str(token)))

    def on_llm_end(self, response: Any, *, run_id: UUID, **more: Any) -> None:
        asked = self._asked.pop(run_id, 0)
        for batch in response.generations:
            self._run.answered(_answered(batch, asked))

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **more: Any) -> None:
        self._run.step(f"It calls {(serialized or {}).get('name') or more.get('name') or 'a tool'}.")


def _answered(generations: list[Any], asked: int) -> CompletedRequest:
    """Where several answers were asked for, each is told what all of them cost."""
    messages = [getattr(one, "message", None) for one in generations]
    told: Mapping[str, Any] = next((usage for one in messages if (usage := getattr(one, "usage_metadata", None))), {})
    about: Mapping[str, Any] = next((facts for one in messages if (facts := getattr(one, "response_metadata", None))), {})
    cached = told.get("input_token_details") or {}
    provider, model = str(about.get("model_provider") or ""), str(about.get("model_name") or about.get("model") or "")
    return CompletedRequest(
        used=TokenUsage(
            input_tokens=told.get("input_tokens", 0),
            output_tokens=told.get("output_tokens", 0),
            cached_tokens=cached.get("cache_read") or 0,
            written_tokens=cached.get("cache_creation") or 0,
        ),
        model=f"{provider}:{model}" if provider and model else model,
        asked=asked,
        written=sum(len(str(one.text)) for one in generations) + sum(len(str(getattr(one, "tool_calls", ""))) for one in messages),
    )


def _output(state: Mapping[str, Any]) -> Any:
    if state.get("structured_response") is not None:
        return state["structured_response"]
    messages = state.get("messages")
    if messages and isinstance(messages[-1], BaseMessage):
        return str(messages[-1].text)
    return state
