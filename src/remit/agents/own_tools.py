"""Remit's own tools for an agent that may delegate in turn: the MCP server that is started beside it, and whether it can be.

The one place that knows how that server is started. Used by `agents.coding` and `agents.acp`.
"""

import importlib.util
import sys

from remit.agents.definition import Definition
from remit.core.errors import Unavailable

SERVER_NAME = "remit"


def server_command() -> list[str]:
    """Our own MCP server, by this very Python: the one on PATH may be another."""
    return [sys.executable, "-m", "remit.cli.main", "mcp"]


def check_own_tools(definition: Definition) -> None:
    """Raises `Unavailable` for one that is to delegate and cannot: without its tools it would do something else, and nobody be told."""
    if definition.delegates and importlib.util.find_spec("mcp") is None:
        raise Unavailable(
            f"{definition.name} cannot be given the tools to delegate with: delegates = true needs pip install 'remit[mcp]'.",
            advice="pip install 'remit[mcp]' where remit is installed, or take delegates = true out of its definition.",
        )
