"""Optional packages that a command needs or advises: whether they are here, and the words for when they are not. Imports none of them."""

import importlib.util

INSTALL_MCP = "pip install 'remit[mcp]'"
NO_MCP = f"The package mcp is not installed here: delegating by a coding agent needs {INSTALL_MCP}"


def has_mcp() -> bool:
    return importlib.util.find_spec("mcp") is not None and importlib.util.find_spec("mcp_types") is not None
