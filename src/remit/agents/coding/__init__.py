"""Coding agents of the command line, spoken to by their own headless modes: claude, codex, opencode.

The door is `agent.CodingAgent`. A vendor is a `Dialect`: pure functions from a turn to a command line, and from a line of its
stream to what was heard. `detect` finds which of them are installed; it starts none but to ask for a version.
"""
