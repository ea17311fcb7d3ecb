"""The orchestrator: a board's tasks carried through research, plan and implementation by agents, the record kept true around them.

What an agent hands back is judged, filed, marked and committed here, by program code, never left to the agent. Delegates through
`app.Remit` alone; prints nothing (`cli` does).
"""
