"""Reading settings: each place gives a layer, a flat mapping from key to value and source; a later layer lies over an earlier one.

Judges nothing but the syntax of a file: names and values are `model`'s and `faults`' concern.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from remit.core.agents import ROLES
from remit.core.budget import Limits
from remit.core.errors import Misused, Unavailable
from remit.runtime.route import DEFAULT_TABLE
from remit.runtime.settings.values import DEFAULT_TIMEOUTS, NAMES

PREFIX = "REMIT_"
OURS = frozenset(
    f"{PREFIX}{name}"
    for name in ("MARK", "SESSION", "CALLER", "ROOT", "SCRATCH", "RETURN_FILE", "DEADLINE", "SOFT_DEADLINE", "PROMPT_FILE")
)
"""Set by remit itself in the processes of agents: no settings."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Said:
    value: Any
    source: str


Layer = dict[Key, Said]


def file_layers(root: Path) -> list[Layer]:
    """pyproject.toml first: where both speak, remit.toml decides."""
    tools = _parsed(root / "pyproject.toml").get("tool")
    pyproject = tools.get("remit", {}) if isinstance(tools, dict) else {}
    if not isinstance(pyproject, dict):
        raise Misused(f"pyproject.toml:[tool].remit must be a table of keys, not {pyproject!r}.", advice="Write [tool.remit].")
    own = _parsed(root / "remit.toml")
    return [
        {key: Said(value, _place("pyproject.toml", ("tool", "remit", *key))) for key, value in _leaves(pyproject)},
        {key: Said(value, _place("remit.toml", key)) for key, value in _leaves(own)},
    ]


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """`REMIT_TIMEOUTS__WORKER__DEFAULT=30`. A variable that resembles no setting is somebody else's and left alone."""
    layer: Layer = {}
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in OURS:
            parts = variable.removeprefix(PREFIX).lower().split("__")
            if parts[0] in NAMES:
                source = f"env {variable}"
                key = _spelled(parts)
                layer |= {(*key, *rest): Said(value, source) for rest, value in _leaves(_value(environ[variable]))}
            else:
                _reject_misspelling(variable, parts)
    return layer


def argument_layer(arguments: Mapping[str, Any]) -> Layer:
    """None means: not given."""
    plain = {name: _unlimited(value) if isinstance(value, Limits) else value for name, value in arguments.items()}
    return {key: Said(value, "argument") for key, value in _leaves(plain) if value is not None}


def laid_over(layers: Iterable[Layer]) -> Layer:
    """One layer of them all. What a later one says of a table replaces it, what it says of a key in a table only that key."""
    together: Layer = {}
    for layer in layers:
        for key, said in layer.items():
            for hidden in [k for k in together if k[: len(key)] == key or key[: len(k)] == k]:
                del together[hidden]
            together[key] = said
    return together


def nested(layer: Layer) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, said in layer.items():
        table = document
        for part in key[:-1]:
            table = table.setdefault(part, {})
        table[key[-1]] = said.value
    return document


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misused(f"{path} is not valid TOML: {error}.", advice="Correct it; nothing was read from it.") from None
    except OSError as error:
        raise Unavailable(f"Cannot read {path}: {error.strerror or error}.", advice="Check its permissions.") from error


def _leaves(value: Any, key: Key = ()) -> list[tuple[Key, Any]]:
    if isinstance(value, Mapping) and (value or key[:1] != ("agents",)):  # an agent may be declared by its name alone
        return [leaf for name, inner in value.items() for leaf in _leaves(inner, (*key, str(name)))]
    return [(key, value)]


def _place(file: str, key: Key) -> str:
    table = ".".join(key[:-1])
    return f"{file}:[{table}].{key[-1]}" if table else f"{file}:{key[-1]}"


def _value(text: str) -> Any:
    """As TOML reads it: a number, true, a list, an inline table; whatever else is a word."""
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return document["value"] if len(document) == 1 else text


_NAMES: dict[str, Iterable[str]] = {"timeouts": DEFAULT_TIMEOUTS, "routing": DEFAULT_TABLE.commands, "roles": ROLES}


def _spelled(parts: list[str]) -> Key:
    """A variable cannot hold a hyphen: known names are recognised without it."""
    if len(parts) < 2:
        return tuple(parts)
    known = {name.replace("-", "_"): name for name in _NAMES.get(parts[0], ())}
    return (parts[0], known.get(parts[1], parts[1]), *parts[2:])


def _reject_misspelling(variable: str, parts: list[str]) -> None:
    close = get_close_matches(parts[0], NAMES, n=1, cutoff=0.75)
    if close:
        meant = PREFIX + "__".join([close[0], *parts[1:]]).upper()
        raise Misused(f"env {variable}: there is no such setting.", advice=f"Did you mean {meant}?")


def _unlimited(limits: Limits) -> dict[str, Any]:
    return {name: "none" if value is None else value for name, value in limits.to_dict().items()}
