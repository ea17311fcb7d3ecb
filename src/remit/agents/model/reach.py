"""Whom a model agent may delegate to: what its definition names, and nothing else, by whatever name it asks.

Beside them it can read on in what delegations gave, of which it is shown a part, and have it summarised (`results`). Used by
`agents.model.agent`.
"""

from collections.abc import Callable, Sequence

from remit.core.agents import COME_WITH_REMIT, AgentSpec
from remit.tool.shortening import READ, SUMMARISE

_RESULTS = (READ, SUMMARISE)


def reachable(tools: Sequence[str] | None, itself: str) -> Callable[[AgentSpec], bool]:
    """`tools`: names of agents and targets, `target.operation`, `target.*`; None: those that come with remit."""
    entries = tuple(entry.removesuffix(".*") for entry in (COME_WITH_REMIT if tools is None else tools))

    def is_reachable(spec: AgentSpec) -> bool:
        return spec.name != itself and (
            spec.name in _RESULTS or any(spec.name == one or spec.name.startswith(f"{one}.") for one in entries)
        )

    return is_reachable


def names_for_prompt(specs: Sequence[AgentSpec]) -> list[str]:
    return sorted(spec.name for spec in specs if spec.name not in _RESULTS)
