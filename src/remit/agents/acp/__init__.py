"""Agents that speak the Agent Client Protocol.

`agent` executes one delegation, `connection` is one process and its session, `updates` handles its messages and requests. The last two need
the optional package `agent-client-protocol`: they are imported only when such an agent runs."""
