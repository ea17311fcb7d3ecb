"""Agents that speak the Agent Client Protocol.

`agent` carries out one delegation, `connection` is one process and its session, `updates` is what it says and asks. The last two import the
optional package `agent-client-protocol`: they are imported only when such an agent runs.
"""
