"""Which agent is meant where a request leaves it open: any that can, the one that has least to do; of equals, one's own first.

Knows names, grants and load; nothing of protocols. Used by `service` for all doors.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from remit.core.agents import AgentSpec, rank
from remit.core.spelling import snake
from remit.tool.catalogue import Catalogue, parts_of
from remit.tool.faults import DelegateError


def chosen(
    catalogue: Catalogue, may_use: Callable[[str], bool], loads: Mapping[str, int], target: str | None, operation: str | None
) -> AgentSpec:
    """The agent of `target` for `operation`; without a target any that can. Raises `DelegateError` (S5.3)."""
    wanted = operation or None
    if target:
        first, rest = parts_of(target)
        if wanted is not None and wanted in (target, first, f"{first}.{rest}"):
            wanted = None  # the same, said twice
        if wanted is not None and parts_of(wanted)[0] == first and first in catalogue.targets():
            wanted = parts_of(wanted)[1]
        return catalogue.find(target, wanted)
    if wanted is None:
        raise DelegateError(
            "Neither an agent nor an operation is named.",
            code="INVALID_OPERATION",
            advice="Name an agent, or the operation that any agent may do.",
            details={"operations": catalogue.operations()},
        )
    able = [spec for spec in _able(catalogue.specs, wanted) if may_use(spec.name)]
    if not able:
        names = sorted({parts_of(spec.name)[1] or spec.name for spec in catalogue.specs if may_use(spec.name)})
        raise DelegateError(f"No agent does {wanted!r:.80}.", code="INVALID_OPERATION", advice=_words(names), details={"operations": names})
    return min(able, key=lambda spec: (loads.get(parts_of(spec.name)[0], 0), rank(spec)))


def _able(specs: Sequence[AgentSpec], wanted: str) -> list[AgentSpec]:
    """By its whole name it is that one; else whoever has an operation of that name."""
    whole = [spec for spec in specs if spec.name in (wanted, snake(wanted))]
    return whole or [spec for spec in specs if parts_of(spec.name)[1] in (wanted, snake(wanted))]


def loads_of(agents: Iterable[str]) -> Counter[str]:
    """How much each target has to do, from the agents of what runs and waits."""
    return Counter(parts_of(agent)[0] for agent in agents)


def _words(names: Sequence[str]) -> str:
    return f"There are {', '.join(names[:30])}{' and more' if len(names) > 30 else ''}." if names else "There are none that you may use."
