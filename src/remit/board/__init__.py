"""The board: the tasks of a project, kept in `specs/state.json`, drawn in `specs/TODO.md`, their reports and plans beside them (S6).

Files and rules only: it delegates nothing and knows no agent. `remit.orchestrator` carries tasks through research, plan and
implementation with it, the built-in roles use it, the command line shows it.
"""
