"""The delegate tool (S5): requests, schema, results and chunks, transport-neutral. Doors (MCP, the command line, …) translate to it."""
