"""The delegate tool as a toolset of pydantic-ai: `Agent(…, toolsets=[delegate_toolset(remit)])`.

The agent has the same rights as any caller of the delegate tool. Needs `pip install 'remit[pydantic-ai]'`."""

from collections.abc import Callable
from typing import Any

from pydantic_core import SchemaValidator, core_schema

from remit.core.agents import AgentSpec
from remit.core.delegate_results import SHOWN_CHARACTERS
from remit.runtime.tool.delegate_tool import Answer, DelegateTool, Delegator, Toolbox, needs

with needs("pydantic-ai", "pydantic_ai"):
    from pydantic_ai import ModelRetry, RunContext, ToolDefinition, ToolFailed, ToolReturn
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

__all__ = ["DelegateToolset", "delegate_toolset"]

_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""The tool itself validates the request: its faults name the allowed values."""


def delegate_toolset(
    remit: Delegator,
    among: Callable[[AgentSpec], bool] | None = None,
    *,
    characters: int = SHOWN_CHARACTERS,
    retries: int | None = None,
) -> AbstractToolset[Any]:
    """`remit` is open. `among`: the offered agents; `characters`: maximum length of a result for the model; `retries`: how often a faulty
    call is returned for correction, None: the agent's default for tools."""
    return DelegateToolset(Toolbox(remit, among, characters=characters), retries)


class DelegateToolset(AbstractToolset[Any]):
    """One tool, `delegate`, rebuilt from the directory for each step of a run."""

    def __init__(self, toolbox: Toolbox, retries: int | None = None) -> None:
        self._toolbox = toolbox
        self._retries = retries

    @property
    def id(self) -> str:
        return "remit"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        offer = self._toolbox.definition()
        definition = ToolDefinition(
            name=offer["name"],
            description=offer["description"],
            parameters_json_schema=offer["inputSchema"],
            strict=False,
        )
        most = ctx.max_retries if self._retries is None else self._retries
        return {definition.name: ToolsetTool(toolset=self, tool_def=definition, max_retries=most, args_validator=_ANY_OBJECT)}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        answer = await self._toolbox.answer(tool_args)
        if answer.is_fault and ctx.retry < tool.max_retries:
            raise ModelRetry(answer.text)
        if not answer.is_success:  # also one fault too many: reported, so that the model can continue without it
            raise ToolFailed(answer.text)
        return ToolReturn(return_value=answer.text, metadata=_facts(answer))


def _facts(answer: Answer) -> dict[str, Any]:
    """Metadata for the program, not for the model."""
    assert answer.result is not None
    return {"tool": DelegateTool.name, "taskId": answer.result.task_id, "agent": answer.result.metadata.agent_id}
