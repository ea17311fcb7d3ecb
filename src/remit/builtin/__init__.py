"""The built-in agents: worker, researcher, coder, compose, and the roles of the board.

Each target is a package whose `AGENTS` lists its operations, or whose `agents(settings, models)` does if one of them depends on settings or
uses a model. Loaded on first use; adding a target is one line here, or one `Directory.offer`."""

import importlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.agents import BUILTIN_TARGETS, COMPOSE_TARGET, ROLES_GROUP

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.agents.function import FunctionAgent
    from remit.agents.python_files import FolderDescription
    from remit.builtin.assistant.agent import AssistantHost
    from remit.builtin.compose import ComposeAgent
    from remit.core.settings import Settings
    from remit.models.client import Models
    from remit.system.trust import ProjectTrust


def loader(target: str, settings: "Settings", models: "Callable[[], Models]") -> Callable[[], "Iterable[FunctionAgent]"]:
    def load() -> "Iterable[FunctionAgent]":
        module = importlib.import_module(f"remit.builtin.{target}")
        agents: list[FunctionAgent] = module.agents(settings, models()) if hasattr(module, "agents") else module.AGENTS
        return agents

    return load


def describe(root: Path, settings: "Settings", trust: "ProjectTrust") -> "FolderDescription":
    """The agents in files of a project and the tools of its MCP servers, read by other processes. Call it on a thread."""
    from remit.agents.python_files import describe_project

    described = describe_project(root / ".remit", trust.allows_content, settings.describe_seconds)
    if settings.has_mcp_servers:
        from remit.agents.mcp.tool_agents import describe_unknown

        describe_unknown(root, settings, trust)
    return described


def load_project(directory: "Directory", root: Path, settings: "Settings", trust: "ProjectTrust", described: "FolderDescription") -> None:
    """Add the agents that a project declares; none is started."""
    directory.load_files(described)
    directory.load_definitions(root, settings, trust)
    directory.load_entry_points()
    directory.list_unapproved(described, trust)
    if (root / ".remit" / "flows").is_dir():
        from remit.builtin.flows import load_flows

        load_flows(directory, root, settings.limits_for, trust)


def offer_built_in(directory: "Directory", settings: "Settings", models: "Callable[[], Models]", host: "AssistantHost | None") -> None:
    """Offer the agents in the setting `builtin_agents`; none is loaded by it. Without a `host` the assistant can be listed, not called."""
    from remit.builtin.assistant import offer_assistant

    offer_assistant(directory, settings, models, host)
    for target in settings.builtin_agents:
        if target == ROLES_GROUP:
            directory.offer_roles()
        elif target == COMPOSE_TARGET:
            directory.offer(target, partial(_compose, directory, settings))
        elif target in BUILTIN_TARGETS:
            directory.offer(target, loader(target, settings, models))


def _compose(directory: "Directory", settings: "Settings") -> "list[ComposeAgent]":
    from remit.builtin.compose import ComposeAgent

    return [ComposeAgent(directory, settings.limits_for)]
