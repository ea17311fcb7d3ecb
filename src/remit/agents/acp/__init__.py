"""Agents that speak the Agent Client Protocol: `agent.AcpAgent` is the door, used by `agents.carriers`.

`agent` carries out one delegation; `conversation` is one process and its session; `lines` are the messages on its pipes; `hearing`
is what it says; `permission` is what it may do; `faults` are its errors in our words. All but `agent` and `permission` import the
optional package `agent-client-protocol`, so they are imported only when such an agent runs.
"""
