"""Folders of their own for delegations: a git worktree or a copy of the project, what was changed in it, and the way back into the project.

Knows git and files; knows neither agents nor returns. Blocking throughout: `flow.workspace` calls it off the event loop.
"""
