"""Remit's own tools for an agent that may delegate in turn: the MCP server that is started beside it, and whether it can be.

The one place that knows how that server is started. Used by `agents.coding` and `agents.acp`.
"""

import importlib.util

from remit.agents.definition import Definition
from remit.core.errors import Unavailable
from remit.system.interpreter import remit_command

SERVER_NAME = "remit"


def server_command() -> list[str]:
    """The MCP server of this installation: the `remit` on PATH may be another."""
    return [*remit_command(), "mcp"]


def check_own_tools(definition: Definition) -> None:
    """Raises `Unavailable` for one that is to delegate and cannot: without its tools it would do something else, and nobody be told."""
    if definition.delegates and importlib.util.find_spec("mcp") is None:
        raise Unavailable(
            f"{definition.name} cannot be given the tools to delegate with: delegates = true needs pip install 'remit[mcp]'.",
            advice="pip install 'remit[mcp]' where remit is installed, or take delegates = true out of its definition.",
        )
