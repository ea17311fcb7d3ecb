"""A project with a command declared as the agent `cmd`, and a list of its live processes."""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from remit import Remit
from remit.agents.definition import definition_of
from support.processes import marked, marker

RETURN = (
    '{"status": "completed", "summary": "It is done. All is well.", "artifacts": [], "errors": [], "metadata": {"session_id": "%s", '
    '"agent_type": "cmd", "delegation_depth": 1, "delegation_path": ["orchestrator", "cmd"]}}'
)
HAND_IN = f"printf '{RETURN}\\n' \"$REMIT_SESSION\""
"""Shell code that prints a valid return."""


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


@contextlib.asynccontextmanager
async def project(root: Path, command: list[str], **declared: Any) -> AsyncIterator[Remit]:
    async with Remit.open(root) as remit:
        remit.directory.define(definition_of("cmd", {"command": command, **declared}, source="a test"))
        yield remit


def left(remit: Remit) -> list[int]:
    """Live processes of delegations of this Remit."""
    return marked(marker(remit._project, remit.owner.owner_id, "sess_"))
