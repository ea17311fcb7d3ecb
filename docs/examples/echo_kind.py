"""The executor of a kind of agent that returns its parameters."""

from typing import Any

from remit import Context, Misused


class EchoAgent:
    def __init__(self, definition: Any, deps: Any) -> None:
        self.spec = definition.spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if not parameters:
            raise Misused("There is nothing to echo.", code="INVALID_PARAMETERS", advice="Pass text=….")
        return parameters

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        ctx.progress("echoing")
        return arguments

    async def close(self) -> None:
        """Called when the project is closed. May be left out."""
