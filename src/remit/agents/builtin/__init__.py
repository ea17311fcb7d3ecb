"""The agents that come with remit: worker, researcher, coder (S5.2). Each target is a package whose `AGENTS` lists its operations.

Loaded when first asked for; adding a target is one line here, or one `Directory.offer`.
"""

import importlib
from collections.abc import Callable, Iterable

from remit.agents.function import FunctionAgent

TARGETS = ("worker", "researcher", "coder")


def loader(target: str) -> Callable[[], Iterable[FunctionAgent]]:
    def load() -> Iterable[FunctionAgent]:
        agents: list[FunctionAgent] = importlib.import_module(f"remit.agents.builtin.{target}").AGENTS
        return agents

    return load
