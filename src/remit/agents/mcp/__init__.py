"""Tools of external MCP servers as agents."""
