"""Agents: the directory, declarations, and one executor per kind of agent."""
