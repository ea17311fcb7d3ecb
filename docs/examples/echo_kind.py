"""The executor of a kind of agent that returns its parameters."""

from typing import Any, ClassVar

from remit import AgentDefinition, Context, ExecutorDeps, Misused


class EchoAgent:
    parameters_schema: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    def __init__(self, definition: AgentDefinition, deps: ExecutorDeps) -> None:
        self.spec = definition.spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if "text" not in parameters:
            raise Misused("There is nothing to echo.", code="INVALID_PARAMETERS", advice="Pass text=….")
        return parameters

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        ctx.progress("echoing")
        return arguments

    async def close(self) -> None:
        """Called when the project is closed. May be left out."""
