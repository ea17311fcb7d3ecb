"""Agents that speak the Agent Client Protocol: `acp_agent` executes one delegation, `session` is one process with its session."""
