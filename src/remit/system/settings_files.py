"""Reads settings: `remit.toml` (or `[tool.remit]` in pyproject.toml) < environment `REMIT_*` < arguments, with the source of each value.

The only place that reads settings: everything else gets values (`remit.core.settings`)."""

import json
import os
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from remit.core.agents import ROLES
from remit.core.budget import Limits
from remit.core.deadline import TimeLimits
from remit.core.errors import Misused
from remit.core.redaction import is_secret_name, redact_text
from remit.core.routing import DEFAULT_TABLE, Rule
from remit.core.settings import DEFAULT_TIMEOUTS, NAMES, WRITTEN, Settings, settings_from, time_limits
from remit.system.trust import SETTINGS_FILES, ProjectTrust, leaves, load_trust

# ---- layers: one flat mapping from key to value and source per place


PREFIX = "REMIT_"
OURS = frozenset(
    f"{PREFIX}{name}"
    for name in ("MARK", "SESSION", "CALLER", "ROOT", "SCRATCH", "RETURN_FILE", "DEADLINE", "SOFT_DEADLINE", "PROMPT_FILE", "TRUST")
)
"""Set by remit itself in agents' processes, and REMIT_TRUST: not settings."""

Key = tuple[str, ...]


class SourcedValue(NamedTuple):
    value: Any
    source: str


Layer = dict[Key, SourcedValue]
ALIASES: Mapping[Key, Key] = {("serve", "doors"): ("serve", "apis")}
"""Other names of settings."""
REMOVED: Mapping[Key, str] = {
    ("signals", "content"): "spans carry no parameters and results; `remit show SESSION` has them",
    ("signals", "metric_seconds"): "set OTEL_METRIC_EXPORT_INTERVAL (milliseconds)",
    ("serve", "client_ca"): "let a reverse proxy verify client certificates, and give each caller a token (`remit token new`)",
    **dict.fromkeys((("serve", "tls_certificate"), ("serve", "tls_key")), "let a reverse proxy terminate TLS, and set serve.behind_proxy"),
    **dict.fromkeys(
        (("serve", "requests_per_second"), ("serve", "burst"), ("serve", "streams")), "let a reverse proxy limit requests and connections"
    ),
    ("models", "*", "tools"): "a local model calls tools if its chat template has them, and any other model does",
    ("generate_on",): "delegate to the coding agent itself: remit delegate NAME task=…",
    ("search", "seconds_between"): "requests to search providers are not spaced out any more",
    ("serve", "push_inside"): "A2A push notifications were removed, too; follow a task by its stream",
}
"""Settings of earlier versions, with what to do instead."""


def file_layers(trust: ProjectTrust) -> list[Layer]:
    """Harmless or approved settings. pyproject.toml first: remit.toml takes precedence."""
    return [
        {
            key: SourcedValue(value, _place(file, (*SETTINGS_FILES[file], *key)))
            for key, value in leaves(table)
            if trust.allows_setting(file, key)
        }
        for file, table in trust.settings.items()
    ]


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """`REMIT_TIMEOUTS__WORKER__DEFAULT=30`. A variable that resembles no setting belongs to another program and is ignored."""
    layer: Layer = {}
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in OURS:
            parts = variable.removeprefix(PREFIX).lower().split("__")
            if parts[0] in NAMES:
                source = f"env {variable}"
                key = _key_of_variable(parts)
                layer |= {(*key, *rest): SourcedValue(value, source) for rest, value in leaves(_value(environ[variable]))}
            else:
                for close in get_close_matches(parts[0], NAMES, n=1, cutoff=0.75):
                    meant = PREFIX + "__".join([close, *parts[1:]]).upper()
                    raise Misused(f"env {variable}: there is no such setting.", advice=f"Did you mean {meant}?")
    return layer


def argument_layer(arguments: Mapping[str, Any]) -> Layer:
    """None: not given."""
    plain = {
        name: {key: "none" if one is None else one for key, one in value.to_dict().items()} if isinstance(value, Limits) else value
        for name, value in arguments.items()
    }
    return {key: SourcedValue(value, "argument") for key, value in leaves(plain) if value is not None}


def merge_layers(layers: Iterable[Layer]) -> Layer:
    """All layers as one. A later table replaces an earlier one; a later key of a table replaces only that key."""
    together: Layer = {}
    for layer in layers:
        for written, said in layer.items():
            key = ALIASES.get(written, written)
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


def _place(file: str, key: Key) -> str:
    table = ".".join(key[:-1])
    return f"{file}:[{table}].{key[-1]}" if table else f"{file}:{key[-1]}"


def _value(text: str) -> Any:
    """As TOML: a number, true, a list, an inline table; anything else is a word."""
    import tomllib  # only if a variable is set

    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return document["value"] if len(document) == 1 else text


_NAMES: dict[str, Iterable[str]] = {"timeouts": DEFAULT_TIMEOUTS, "routing": DEFAULT_TABLE.commands, "roles": ROLES}


def _key_of_variable(parts: list[str]) -> Key:
    """A variable name cannot contain a hyphen: known names are recognised without it."""
    if len(parts) < 2:
        return tuple(parts)
    known = {name.replace("-", "_"): name for name in _NAMES.get(parts[0], ())}
    return (parts[0], known.get(parts[1], parts[1]), *parts[2:])


# ---- errors: the place, the key, what is allowed, and a suggestion


_VARIABLE = "the name of a variable of the environment (keys are never kept in files)"
_ADDRESS = "an address, http://HOST:PORT/… without a name or password in it"
_PATTERNS = {
    **dict.fromkeys(("key_variable", "brave_key_variable"), _VARIABLE),
    **dict.fromkeys(("url", "searxng_url", "public_url", "otlp_url"), _ADDRESS),
    "grpc": "unix or HOST:PORT",
    "http": "HOST:PORT, such as 127.0.0.1:7411 (a Unix socket: gRPC, or behind a reverse proxy)",
}


def settings_error(faults: list[str]) -> Misused:
    message = "; ".join(faults)
    return Misused(message if message.endswith("?") else f"{message}.", advice="Correct it; `remit config --all` lists every setting.")


def timeout_faults(limits: Mapping[str, TimeLimits], layer: Layer) -> list[str]:
    """A default above its maximum: each may be valid, but not both together."""
    return [
        f"{_source(('timeouts', name), layer)}: the default of {limit.default_seconds:g} s for {name} is above its maximum of "
        f"{limit.maximum_seconds:g} s"
        for name, limit in limits.items()
        if limit.default_seconds > limit.maximum_seconds
    ]


def _fault(found: dict[str, Any], layer: Layer) -> str:
    location = tuple(str(part) for part in found["loc"])
    source = _source(location, layer)
    if found["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        allowed = _keys_at(location[:-1])
        close = get_close_matches(location[-1], allowed, n=1)
        if "key_variable" in allowed and is_secret_name(location[-1]):
            close = ["key_variable"]
        return f"{source}: there is no key {location[-1]!r}: " + (
            f"did you mean {close[0]}?" if close else f"allowed are {', '.join(allowed)}"
        )
    key = ".".join(location)
    if found["type"] in ("missing", "missing_argument"):
        return f"{source}: {key} is missing"
    demand = found["msg"].removeprefix("Input should be ")
    if found["type"] in ("mapping_type", "dict_type", "named_tuple_type", "arguments_type"):
        demand = "a table of keys"
    elif found["type"] == "string_too_short":
        demand = "text that is not empty"
    elif found["type"] == "string_pattern_mismatch":
        demand = _PATTERNS.get(location[-1], f"text of the form {found['ctx']['pattern']}")
    # A key in place of its variable's name, or a password in a URL, is not repeated on the screen.
    text = str(found["input"])
    is_secret = location[-1].endswith("key_variable") or redact_text(text) != text
    shown = "not the value given" if is_secret else f"not {found['input']!r}"
    return f"{source}: {key} must be {demand}, {shown}"


def _keys_at(location: Key) -> list[str]:
    """The keys of the table at `location`, a path of names and numbers."""
    kind: Any = None
    for name in location:
        if kind is None:
            kind = _types()[name]
        elif get_origin(kind) in (tuple, abc.Mapping):
            kind = get_args(kind)[0 if get_origin(kind) is tuple else 1]
    return list(NAMES) if kind is None else list(get_type_hints(kind))


def _types() -> dict[str, Any]:
    """The type of each setting as written."""
    return {**{name: kind for name, kind in get_type_hints(Settings, include_extras=True).items() if name in NAMES}, **WRITTEN}


def _source(location: Key, layer: Layer) -> str:
    """The source of the value at `location`, or of its nearest part."""
    for key, said in layer.items():
        shorter = min(len(key), len(location))
        if key[:shorter] == location[:shorter]:
            return said.source
    return "settings"


# ---- load and describe


def load_settings(
    root: Path | str = ".",
    arguments: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    trust: ProjectTrust | None = None,
) -> Settings:
    """The settings of the project at `root`; from its files those that are harmless or approved. Raises `Misused` with every unknown key
    and invalid value; a removed one only causes a warning. `trust`: the approvals, if already read."""
    trust = trust or load_trust(root)
    layer = _without_removed(merge_layers([*file_layers(trust), environment_layer(environ), argument_layer(arguments or {})]))
    settings = _validate(layer) if layer else Settings()
    left_out = tuple(item.name for item in trust.left_out if item.name.startswith(tuple(SETTINGS_FILES)))
    return replace(settings, sources={key: source for key, _, source in describe(settings)}, not_approved=left_out)


def _without_removed(layer: Layer) -> Layer:
    kept: Layer = {}
    for key, said in layer.items():
        named = ("models", "*", *key[2:]) if key[0] == "models" else key
        instead = next((REMOVED[named[:length]] for length in range(1, len(named) + 1) if named[:length] in REMOVED), None)
        if instead is None:
            kept[key] = said
        else:
            _warn_once(f"{said.source}: this setting was removed and has no effect. Delete it: {instead}.")
    return kept


@cache
def _warn_once(message: str) -> None:
    """A command may load the settings several times."""
    import logging  # only if there is something to say

    logging.getLogger("remit").warning(message)


def _validate(layer: Layer) -> Settings:
    # Imported here: most projects have no settings, and pydantic's validators are slow to build.
    from pydantic import ConfigDict, ValidationError, create_model

    options: Any = {name: (kind, None) for name, kind in _types().items()}
    table = create_model("SettingsTable", __config__=ConfigDict(extra="forbid", protected_namespaces=()), **options)
    document = nested(layer)
    try:
        checked = table.model_validate(document)
    except ValidationError as error:
        raise settings_error(list(dict.fromkeys(_fault(dict(found), layer) for found in error.errors()))) from None
    written = {name: getattr(checked, name) for name in checked.model_fields_set}
    faults = timeout_faults(time_limits(written.get("timeouts", {})), layer)
    if faults:
        raise settings_error(faults)
    return settings_from(written, {".".join(key): said.source for key, said in layer.items()})


def describe(settings: Settings) -> list[tuple[str, Any, str]]:
    """Every key, its value, and where the value came from."""
    return [(key, value, settings.source_of(key)) for key, value in _flat_values(settings)]


def environment_of(settings: Settings) -> dict[str, str]:
    """Variables from which agents in their own processes load the settings of this process, including arguments."""
    told = ((key, value) for key, value in _flat_values(settings) if key.partition(".")[0] in ("web", "search"))
    return {
        f"{PREFIX}{key.replace('.', '__').upper()}": "none" if value is None else json.dumps(value, ensure_ascii=False)
        for key, value in told
    }


def _flatten(key: str, value: Any) -> list[tuple[str, Any]]:
    """The keys of a value that is a table, and of the tables in it."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return [one for name, inner in value.items() for one in _flatten(f"{key}.{name}", inner)]
    return [(key, list(value) if isinstance(value, tuple) else value)]


def _flat_values(settings: Settings) -> list[tuple[str, Any]]:
    told: list[tuple[str, Any]] = []
    for name in NAMES:
        value = getattr(settings, name)
        match name:
            case "timeouts":
                for target, limits in value.items():
                    told += [(f"{name}.{target}.default", limits.default_seconds), (f"{name}.{target}.maximum", limits.maximum_seconds)]
            case "routing":
                told += [(f"{name}.{command}", [_shown(rule) for rule in rules]) for command, rules in value.commands.items()]
            case "model":
                told.append((name, list(value) or None))
            case "models" | "prices":
                told += [one for one in _flatten(name, value) if one[1] is not None]
            case "agents":
                told += [(f"agents.{agent}", {}) for agent, said in value.items() if not said]
                # Only the names of environment variables: a value may be a secret key.
                told += [
                    (f"agents.{agent}.{key}", list(one) if key == "environment" and isinstance(one, dict) else one)
                    for agent, said in value.items()
                    for key, one in said.items()
                ]
            case _:
                told += _flatten(name, value)
    return told


def _shown(rule: Rule) -> str:
    """`lean, with plan: lean-implementation-agent (phased)`"""
    conditions = [rule.language] if rule.language else []
    if rule.has_plan is not None:
        conditions.append("with plan" if rule.has_plan else "without plan")
    target = " → ".join((rule.agent, *rule.then)) if rule.agent else "no agent"
    return (f"{', '.join(conditions)}: " if conditions else "") + target + (f" ({rule.mode})" if rule.mode else "")
