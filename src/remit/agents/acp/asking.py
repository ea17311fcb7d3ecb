"""Agents that would use every tool unasked are told to ask: an allow-list that nobody asks about holds nothing.

What is known of single agents, given by environment, so that it changes no file of the user's. That is OpenCode so far; the variables are
given to every program, as what a program is cannot be told from its command. Used by `acp.conversation`.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from remit.agents.coding.opencode import CONTENT, HYGIENE, NEVER_PASSED
from remit.agents.coding.permits import EVERYTHING
from remit.agents.definition import Definition

PERMISSION = "OPENCODE_PERMISSION"
_OPENCODE = "opencode"
_FREE = ("read", "glob", "grep", "list", "todowrite", "todoread", "skill")
"""What opencode does without asking: nothing of it changes anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    environment: Mapping[str, str]
    """The whole environment of the process."""
    mode: str
    """The mode in which it asks: its session must be in it, where it is one of those it must be told."""


def asking(definition: Definition, scratch: Path, environment: Mapping[str, str]) -> Asking:
    """`environment`: what the process would get. A permission that stands in it wins over ours."""
    # What is said of one of its agents goes before what is said of all, and a project's settings may say it of any that they can name:
    # so the one that runs is ours, and its name new each time.
    mode = f"remit-{secrets.token_hex(8)}"
    own = _table(environment[PERMISSION]) if PERMISSION in environment else None
    permission = _permission(definition, scratch) if own is None else own
    given = _table(environment.get(CONTENT, "{}")) or {}
    agents = given.get("agent")
    config = {
        **given,
        "autoupdate": False,
        "share": "disabled",
        "default_agent": mode,
        "agent": {**(agents if isinstance(agents, dict) else {}), mode: {"mode": "primary", "permission": permission}},
    }
    everybody = _of_all(definition, permission) if own is None else own
    told = {PERMISSION: json.dumps(everybody), CONTENT: json.dumps(config)}
    return Asking(environment={**HYGIENE, **_without_callers(definition, environment), **told}, mode=mode)


def must_be_told(answer: Mapping[str, Any]) -> bool:
    """Whether it is one of those, by what it answered to `initialize`."""
    info = answer.get("agentInfo")
    return isinstance(info, dict) and str(info.get("name", "")).lower() == _OPENCODE


def _permission(definition: Definition, scratch: Path) -> dict[str, object]:
    permission: dict[str, object] = {"*": "ask", **dict.fromkeys(_FREE, "allow")}
    # To be refused by us ends its turn; to be refused by its own settings is an error it can go on from.
    permission |= {"question": "deny", "doom_loop": "deny", "external_directory": {"*": "deny", f"{scratch}/**": "allow"}}
    # Its agents below the one that runs are another's to describe, and what they ask does not reach us.
    permission["task"] = "ask" if EVERYTHING in definition.allow else "deny"
    if definition.delegates:
        permission["remit_*"] = "allow"
    return permission


def _of_all(definition: Definition, permission: dict[str, object]) -> dict[str, object]:
    """Where everything is allowed, those below need not ask: they would wait for an answer until their time is up."""
    return {**permission, "*": "allow"} if EVERYTHING in definition.allow else permission


def _without_callers(definition: Definition, environment: Mapping[str, str]) -> dict[str, str]:
    """Without what would make it believe that it runs inside of another one's session, unless the definition itself says so."""
    own = definition.environment
    return {
        name: value for name, value in environment.items() if name in own or not any(fnmatchcase(name, hidden) for hidden in NEVER_PASSED)
    }


def _table(text: str) -> dict[str, Any] | None:
    try:
        table = json.loads(text)
    except ValueError:
        return None  # it passes over what it cannot read
    return table if isinstance(table, dict) else None
