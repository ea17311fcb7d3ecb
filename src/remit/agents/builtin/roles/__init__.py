"""The roles of the board (S4.3): agent files that say what each is, and built-ins that carry some of them out where nobody else is bound.

`NAME.md` beside this file is the role; a project replaces it by `.remit/agents/NAME.md`, and binds it by `[roles]` in its settings.
"""
