"""The delegate tool as a tool of LangChain and LangGraph: `create_agent(model, tools=[delegate_tool(remit)])`.

Needs `pip install 'remit[langgraph]'`.
"""

from collections.abc import Callable
from typing import Any

from pydantic import PrivateAttr

from remit.core.agents import AgentSpec
from remit.core.delegate_results import SHOWN_CHARACTERS
from remit.runtime.tool.delegate_tool import Answer, DelegateTool, Delegator, Toolbox, needs

with needs("langgraph", "langchain_core"):
    from langchain_core.tools import ArgsSchema, BaseTool, ToolException

__all__ = ["delegate_tool"]


def delegate_tool(
    remit: Delegator,
    among: Callable[[AgentSpec], bool] | None = None,
    *,
    characters: int = SHOWN_CHARACTERS,
) -> BaseTool:
    """`remit` is open. `among`: the offered agents; `characters`: maximum length of a result for the model.

    `ainvoke` works on any loop; `invoke` on any thread except that of the loop that the `Remit` was opened on."""
    toolbox = Toolbox(remit, among, characters=characters)
    offer = toolbox.definition()
    tool = _Delegate(name=DelegateTool.name, description=offer["description"], args_schema=offer["inputSchema"], handle_tool_error=True)
    tool._toolbox = toolbox
    return tool


class _Delegate(BaseTool):
    _toolbox: Toolbox = PrivateAttr()

    @property
    def tool_call_schema(self) -> ArgsSchema:
        """The schema for the model, rebuilt from the directory on each request."""
        now = self._toolbox.definition()
        if self.args_schema is not now["inputSchema"]:
            self.description, self.args_schema = now["description"], now["inputSchema"]
        return super().tool_call_schema

    def _run(self, /, **arguments: Any) -> str:
        return _text_or_error(self._toolbox.answer_blocking(arguments))

    async def _arun(self, /, **arguments: Any) -> str:
        return _text_or_error(await self._toolbox.answer(arguments))


def _text_or_error(answer: Answer) -> str:
    """Raise errors, which LangChain reports to the model."""
    if not answer.is_success:
        raise ToolException(answer.text)
    return answer.text
