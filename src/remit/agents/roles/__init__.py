"""The catalogue of roles: an agent file for each, and the built-in agents that execute some of them.

`NAME.md` in this folder declares the role. A project replaces it with `.remit/agents/NAME.md` and binds it with `[roles]` in its settings
(`agents.profiles.binding_of` decides). Loading a role reads one file. Built-in agents are named like entry points, `module:attribute`, and
imported on first use: this package depends on no module above it."""

import copy
import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.errors import Misused

if TYPE_CHECKING:
    from remit.agents.definition import Declaration, Definition
    from remit.agents.function import FunctionAgent
    from remit.core.settings import Settings

FOLDER = Path(__file__).parent
BUILT_INS: Mapping[str, str] = {
    "researcher": "remit.board.role_agents:RESEARCHER",
    "lean-research-agent": "remit.board.role_agents:LEAN_RESEARCHER",
    "web-research-specialist": "remit.board.role_agents:WEB_RESEARCHER",
    "planner": "remit.board.role_agents:PLANNER",
    "task-executor": "remit.board.role_agents:task_executor",
    "reviewer": "remit.board.reviewer:REVIEWER",
    "atomic-task-numberer": "remit.board.role_agents:NUMBERER",
}
"""Module and name of the agent that executes a role, or of the function that creates it from the settings."""
FALLBACKS = frozenset({"planner"})
"""Built-in agents that only fill a template: a coding agent or model of the project takes precedence."""
REMOVED = frozenset({"error-diagnostics-agent", "meta-builder", "git-workflow-manager", "status-sync-manager"})
"""Built-in agents of earlier versions, which agent files may still name: they now need a coding agent or a model."""


def file_of(role: str) -> Path:
    return FOLDER / f"{role}.md"


def source_of(role: str) -> str:
    """The location of a role's file in the form used for agents."""
    return f"{__name__}:{role}.md"


def declared_role(role: str) -> "Declaration":
    """The role as its file declares it."""
    from remit.agents.agent_files import ours, read_page

    page = read_page(file_of(role), FOLDER)
    declared = None if page is None else ours(page)
    if declared is None:
        raise Misused(f"{file_of(role)} is not an agent file.", advice="Install remit again.")
    return replace(declared, source=source_of(role))


def built_in_agent(definition: "Definition", settings: "Settings") -> "FunctionAgent":
    """The function that executes a definition's `built_in`, with the name and settings of the definition. Raises `Misused`."""
    from remit.agents.definition import PROMPT_SCHEMA

    found = copy.copy(_loaded(definition.built_in or "", settings, definition.spec.source))
    said, own = definition.spec, found.spec
    takes = own.parameters_schema
    named = ("description", "timeout_seconds", "idle_seconds", "requires_artifacts", "retries", "slots", "resumable")
    # A role that takes text is called alike whatever executes it; docs/reference/roles.md describes further parameters.
    takes = PROMPT_SCHEMA if takes.get("required") == ["task"] else takes
    values = {name: getattr(said, name) or getattr(own, name) for name in named}
    found.spec = replace(own, name=said.name, source=said.source, parameters_schema=takes, **values)
    return found


def _loaded(name: str, settings: "Settings", source: str) -> "FunctionAgent":
    from remit.agents.function import FunctionAgent

    place = BUILT_INS.get(name)
    if place is None:
        raise Misused(f"{source}: built_in: remit has no role {name!r} built in.", advice=f"There are {', '.join(sorted(BUILT_INS))}.")
    module, _, attribute = place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    agent: FunctionAgent = found if isinstance(found, FunctionAgent) else found(settings)
    return agent
