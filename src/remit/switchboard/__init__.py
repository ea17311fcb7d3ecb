"""One tree across processes: whatever an agent's own processes delegate is its child, run by the process that runs the agent."""
