"""The delegate tool as a tool of the OpenAI Agents SDK: `Agent(…, tools=[delegate_tool(remit)])`.

`remit.agents.openai_agents` does the opposite: it runs an agent of that SDK in remit. Needs `pip install 'remit[openai-agents]'`."""

from collections.abc import Callable
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.delegate_results import SHOWN_CHARACTERS
from remit.runtime.tool.delegate_tool import Delegator, Toolbox, needs

with needs("openai-agents", "agents", "openai"):
    from agents import FunctionTool

__all__ = ["delegate_tool"]


def delegate_tool(
    remit: Delegator,
    among: Callable[[AgentSpec], bool] | None = None,
    *,
    characters: int = SHOWN_CHARACTERS,
) -> FunctionTool:
    """`remit` is open. `among`: the offered agents; `characters`: maximum length of a result for the model."""
    toolbox = Toolbox(remit, among, characters=characters)
    offer = toolbox.definition()

    async def call(ctx: Any, arguments: str) -> str:
        return (await toolbox.answer(arguments)).text

    def rebuild(ctx: Any, agent: Any) -> bool:
        """The SDK calls this before each request to ask whether the tool is enabled: rebuild it from the directory."""
        now = toolbox.definition()
        tool.description, tool.params_json_schema = now["description"], now["inputSchema"]
        return True

    tool = FunctionTool(
        name=offer["name"],
        description=offer["description"],
        params_json_schema=offer["inputSchema"],
        on_invoke_tool=call,
        strict_json_schema=False,
        is_enabled=rebuild,
    )
    return tool
