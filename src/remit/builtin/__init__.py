"""The built-in agents: worker, researcher, coder, compose, and the roles of the board.

Each target is a package whose `AGENTS` lists its operations, or whose `agents(settings, models)` does if one of them depends on settings or
uses a model. Loaded on first use; adding a target is one line here, or one `Directory.offer`."""

import importlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from remit.core.agents import COMPOSE_TARGET, ROLES_GROUP

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.agents.function import FunctionAgent
    from remit.builtin.compose import ComposeAgent
    from remit.core.settings import Settings
    from remit.models.client import Models

TARGETS = ("worker", "researcher", "coder")


def loader(target: str, settings: "Settings", models: "Callable[[], Models]") -> Callable[[], "Iterable[FunctionAgent]"]:
    def load() -> "Iterable[FunctionAgent]":
        module = importlib.import_module(f"remit.builtin.{target}")
        agents: list[FunctionAgent] = module.agents(settings, models()) if hasattr(module, "agents") else module.AGENTS
        return agents

    return load


def offer_built_in(directory: "Directory", settings: "Settings", models: "Callable[[], Models]") -> None:
    """Offer the agents in the setting `builtin_agents`; none is loaded by it."""
    for target in settings.builtin_agents:
        if target == ROLES_GROUP:
            directory.offer_roles()
        elif target == COMPOSE_TARGET:
            directory.offer(target, partial(_compose, directory, settings))
        elif target in TARGETS:
            directory.offer(target, loader(target, settings, models))


def _compose(directory: "Directory", settings: "Settings") -> "list[ComposeAgent]":
    from remit.builtin.compose import ComposeAgent

    return [ComposeAgent(directory, settings.limits_for)]
