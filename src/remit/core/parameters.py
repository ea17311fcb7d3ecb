"""Parameters of a call: their faults by name, and their two spellings (`maxDepth` and `max_depth`)."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from remit.core.errors import Misused

# ---- errors


class WrongParameters(Misused):
    """`faults`: the name of each wrong parameter and its fault."""

    def __init__(self, agent: str, faults: Sequence[tuple[str, str]], names: Sequence[str]) -> None:
        words = "; ".join(f"{where}{fault}" for where, fault in faults)
        super().__init__(f"Parameters of {agent}: {words}.", advice=f"{agent} takes {', '.join(names) or 'no parameters'}.")
        self.faults = tuple((where, fault.removeprefix(":").strip()) for where, fault in faults)
        self._said = agent, tuple(faults), tuple(names)

    def spelt(self, names: Mapping[str, str]) -> "WrongParameters":
        """The same error with the names that an API uses: `maxDepth` for `max_depth`."""
        agent, faults, own = self._said
        return WrongParameters(agent, [_rename_fault(*fault, names) for fault in faults], [names.get(name, name) for name in own])

    def without(self, names: Collection[str]) -> "WrongParameters | None":
        """The faults of other parameters; None: there are none."""
        agent, faults, own = self._said
        left = [fault for fault in faults if fault[0].partition(".")[0] not in names]
        return WrongParameters(agent, left, own) if left else None


def _rename_fault(where: str, fault: str, names: Mapping[str, str]) -> tuple[str, str]:
    first, dot, rest = where.partition(".")
    meant = re.sub(r"(?<=\(did you mean )\w+", lambda name: names.get(name[0], name[0]), fault) if fault.startswith(":") else fault
    return names.get(first, first) + dot + rest, meant


def named_parameters(whose: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` under the declared names, with all that the schema requires and nothing that it excludes. Values are checked by the agent.
    Raises `Misused`."""
    names = tuple(schema.get("properties", ()))
    named = declared_names(given, names, whose)
    faults = [(name, ": it is required") for name in schema.get("required", ()) if name not in named]
    if schema.get("additionalProperties") is False:
        for name in named.keys() - set(names):
            close = get_close_matches(name, names, n=1)
            faults.append((name, ": there is no such parameter" + (f" (did you mean {close[0]}?)" if close else "")))
    if faults:
        raise WrongParameters(whose, faults, names)
    return named


# ---- spelling


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BAR = re.compile(r"(?<=[a-z0-9])_([a-z])")


def snake(name: str) -> str:
    """`maxDepth` as `max_depth`."""
    return _HUMP.sub("_", name).lower()


def camel(name: str) -> str:
    """`max_depth` as `maxDepth`."""
    return _BAR.sub(lambda bar: bar[1].upper(), name)


def camel_names(names: Iterable[str]) -> dict[str, str]:
    """Each name in camelCase, unless that is ambiguous."""
    known = list(names)
    return {name: camel(name) if declared_name(camel(name), known) == name else name for name in known}


def declared_name(name: str, names: Iterable[str]) -> str:
    """The one of `names` that `name` denotes, in either spelling; else `name` itself."""
    known = tuple(names)
    return name if name in known else _by_spelling(known).get(snake(name), name)


def declared_names(given: Mapping[str, Any], names: Iterable[str], whose: str) -> dict[str, Any]:
    """`given` under the declared names; unknown names are kept. Raises `Misused` for duplicates."""
    known = tuple(names)
    named: dict[str, Any] = {}
    for name, value in given.items():
        own = name if name in known or not isinstance(name, str) else declared_name(name, known)
        if own in named:
            raise Misused(f"Parameters of {whose}: {own} is given twice, also as {camel(own)}.", advice="Write it once.")
        named[own] = value
    return named


def _by_spelling(names: Iterable[str]) -> dict[str, str]:
    """Maps the snake_case of a name to the name; ambiguous spellings are omitted."""
    counts = Counter(map(snake, names := list(names)))
    return {snake(name): name for name in names if counts[snake(name)] == 1}
