"""Agents that would use every tool unasked are told to ask: an allow-list that nobody asks about holds nothing.

A table of what is known of single agents, given by environment, so that it changes no file of the user's. Used by `acp.conversation`.
"""

import json
from pathlib import Path

from remit.agents.definition import Definition

_FREE = ("read", "glob", "grep", "list", "todowrite", "todoread", "skill")
"""What opencode does without asking: nothing of it changes anything."""


def asking_environment(definition: Definition, scratch: Path) -> dict[str, str]:
    """Variables for its process; those that the definition sets itself win."""
    opencode: dict[str, object] = {"*": "ask", **dict.fromkeys(_FREE, "allow")}
    # To be refused by us ends its turn; to be refused by its own settings is an error it can go on from.
    opencode |= {"question": "deny", "doom_loop": "deny", "external_directory": {"*": "deny", f"{scratch}/**": "allow"}}
    if definition.delegates:
        opencode["remit_*"] = "allow"
    return {"OPENCODE_PERMISSION": json.dumps(opencode)}
