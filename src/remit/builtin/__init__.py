"""The agents that come with remit: worker, researcher, coder, and the roles of the board.

Each target is a package whose `AGENTS` lists its operations, or whose `agents(settings, models)` does where one of them depends on
what was set when the project was opened, or asks a model. Loaded when first asked for; adding a target is one line here, or one
`Directory.offer`.
"""

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from remit.core.agents import ROLES_GROUP

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.agents.function import FunctionAgent
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
    """Those that the setting `builtin_agents` names; none is loaded by it."""
    for target in settings.builtin_agents:
        if target == ROLES_GROUP:
            directory.offer_roles()
        elif target in TARGETS:
            directory.offer(target, loader(target, settings, models))
