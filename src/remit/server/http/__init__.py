"""The HTTP API: REST with OpenAPI and server-sent events, and the server and authentication that A2A, MCP and metrics share with it."""
