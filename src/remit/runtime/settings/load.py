"""Settings from everywhere, made into one value; and told, key by key, with where each came from (`remit config`)."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from remit.runtime.route import Rule
from remit.runtime.settings.layers import PREFIX, Layer, argument_layer, environment_layer, file_layers, laid_over, nested
from remit.runtime.settings.values import NAMES, Settings


def load_settings(root: Path | str = ".", arguments: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """What holds for the project at `root`. Raises `Misused` that names every unknown key and bad value at once."""
    layer = laid_over([*file_layers(Path(root)), environment_layer(environ), argument_layer(arguments or {})])
    settings = _checked(layer) if layer else Settings()
    return replace(settings, sources={key: source for key, _, source in describe(settings)})


def _checked(layer: Layer) -> Settings:
    # Here: most projects have no settings, and the models of pydantic take long to build.
    from pydantic import ValidationError

    from remit.runtime.settings.faults import misused, shape_faults, timeout_faults
    from remit.runtime.settings.model import SettingsTable

    try:
        table = SettingsTable.model_validate(nested(layer))
    except ValidationError as error:
        raise misused(shape_faults(error, layer)) from None
    faults = timeout_faults(table.time_limits(), layer)
    if faults:
        raise misused(faults)
    return table.values({".".join(key): said.source for key, said in layer.items()})


def describe(settings: Settings) -> list[tuple[str, Any, str]]:
    """Every key, its value, and where the value came from."""
    return [(key, value, settings.source_of(key)) for key, value in _told(settings)]


def environment_of(settings: Settings) -> dict[str, str]:
    """What agents in processes of their own read by `load_settings`: with these variables they find what holds here, arguments too."""
    told = ((key, value) for key, value in _told(settings) if key.partition(".")[0] in ("web", "search"))
    return {
        f"{PREFIX}{key.replace('.', '__').upper()}": "none" if value is None else json.dumps(value, ensure_ascii=False)
        for key, value in told
    }


def _told(settings: Settings) -> list[tuple[str, Any]]:
    told: list[tuple[str, Any]] = []
    for name in NAMES:
        match name:
            case "budget":
                told += [(f"budget.{kind}", limit) for kind, limit in settings.budget.to_dict().items()]
            case "timeouts":
                for target, limits in settings.timeouts.items():
                    told += [
                        (f"timeouts.{target}.default", limits.default_seconds),
                        (f"timeouts.{target}.maximum", limits.maximum_seconds),
                    ]
            case "slots_per_agent" | "roles":
                told += [(f"{name}.{agent}", value) for agent, value in getattr(settings, name).items()]
            case "routing":
                told += [(f"routing.{command}", [_shown(r) for r in rules]) for command, rules in settings.routing.commands.items()]
            case "web" | "search" | "assistant" | "serve" | "signals":
                table = asdict(getattr(settings, name))
                told += [(f"{name}.{key}", list(value) if isinstance(value, tuple) else value) for key, value in table.items()]
            case "languages" | "builtin_agents" | "accept_env":
                told.append((name, list(getattr(settings, name))))
            case "model":
                told.append((name, list(settings.model) or None))
            case "models" | "prices":
                told += [
                    (f"{name}.{one}.{key}", value)
                    for one, table in getattr(settings, name).items()
                    for key, value in asdict(table).items()
                    if value is not None
                ]
            case "agents":
                told += [one for agent, said in settings.agents.items() for one in _told_agent(agent, said)]
            case _:
                told.append((name, getattr(settings, name)))
    return told


def _told_agent(name: str, said: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Of its environment only the names: a value may be a key of somebody's."""
    if not said:
        return [(f"agents.{name}", {})]
    return [
        (f"agents.{name}.{key}", list(value) if key == "environment" and isinstance(value, dict) else value) for key, value in said.items()
    ]


def _shown(rule: Rule) -> str:
    """`lean, with plan: lean-implementation-agent (phased)`"""
    conditions = [rule.language] if rule.language else []
    if rule.has_plan is not None:
        conditions.append("with plan" if rule.has_plan else "without plan")
    target = " → ".join((rule.agent, *rule.then)) if rule.agent else "no agent"
    return (f"{', '.join(conditions)}: " if conditions else "") + target + (f" ({rule.mode})" if rule.mode else "")
