"""The agents that come with remit: worker, researcher, coder (S5.2). Each target is a package whose `AGENTS` lists its operations,
or whose `agents(settings)` does where one of them depends on what was set when the project was opened.

Loaded when first asked for; adding a target is one line here, or one `Directory.offer`.
"""

import importlib
from collections.abc import Callable, Iterable

from remit.agents.function import FunctionAgent
from remit.settings import Settings

TARGETS = ("worker", "researcher", "coder")


def loader(target: str, settings: Settings) -> Callable[[], Iterable[FunctionAgent]]:
    def load() -> Iterable[FunctionAgent]:
        module = importlib.import_module(f"remit.agents.builtin.{target}")
        agents: list[FunctionAgent] = module.agents(settings) if hasattr(module, "agents") else module.AGENTS
        return agents

    return load
