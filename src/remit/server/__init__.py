"""Servers: HTTP, gRPC, A2A and MCP on one service; authentication; the client; agents that register."""
