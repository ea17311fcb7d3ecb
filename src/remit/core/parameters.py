"""What is wrong with the parameters of a call, by parameter: raised by agents, told by the delegate tool in the spelling it emits."""

import re
from collections.abc import Mapping, Sequence

from remit.core.errors import Misused


class WrongParameters(Misused):
    """`faults`: of each parameter that is wrong its name, and what is wrong with it."""

    def __init__(self, agent: str, faults: Sequence[tuple[str, str]], names: Sequence[str]) -> None:
        words = "; ".join(f"{where}{fault}" for where, fault in faults)
        super().__init__(f"Parameters of {agent}: {words}.", advice=f"{agent} takes {', '.join(names) or 'no parameters'}.")
        self.faults = tuple((where, fault.removeprefix(":").strip()) for where, fault in faults)
        self._said = agent, tuple(faults), tuple(names)

    def spelt(self, names: Mapping[str, str]) -> "WrongParameters":
        """The same, with parameters under the names that a border emits: `maxDepth` for `max_depth`."""
        agent, faults, own = self._said
        return WrongParameters(agent, [_respelt(*fault, names) for fault in faults], [names.get(name, name) for name in own])


def _respelt(where: str, fault: str, names: Mapping[str, str]) -> tuple[str, str]:
    first, dot, rest = where.partition(".")
    meant = re.sub(r"(?<=\(did you mean )\w+", lambda name: names.get(name[0], name[0]), fault) if fault.startswith(":") else fault
    return names.get(first, first) + dot + rest, meant
