"""Grants as they are kept in a file, and read again: whatever is not understood is not granted. Used by `tokens` and `cli.token`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from remit.access.visitor import Doing, Grants
from remit.core.budget import Limits

_LIMITS = ("budget", "tree")
_NUMBERS = {
    "timeout_seconds": float,
    "expires_at": float,
    "deadline_at": float,
    "requests_per_second": float,
    "max_depth": int,
    "burst": int,
    "request_bytes": int,
    "streams": int,
}
_KNOWN = {"doing", "agents", *_LIMITS, *_NUMBERS}


def to_dict(grants: Grants) -> dict[str, Any]:
    """Without what is not limited."""
    held: dict[str, Any] = {"doing": sorted(grants.doing)}
    if grants.agents is not None:
        held["agents"] = list(grants.agents)
    for name in _LIMITS:
        limits: Limits | None = getattr(grants, name)
        if limits is not None:
            held[name] = {kind: value for kind, value in limits.to_dict().items() if value is not None}
    return held | {name: value for name in _NUMBERS if (value := getattr(grants, name)) is not None}


def from_dict(held: Mapping[str, Any]) -> Grants:
    """Raises `ValueError`: also for a word it does not know, which may be a limit that a later remit wrote."""
    if unknown := set(held) - _KNOWN:
        raise ValueError(f"unknown grants: {', '.join(sorted(unknown))}")
    read: dict[str, Any] = {"doing": frozenset(Doing(one) for one in held.get("doing", ()))}
    agents = held.get("agents")
    if agents is not None:
        if not isinstance(agents, list) or not all(isinstance(one, str) for one in agents):
            raise ValueError("agents are patterns in a list")
        read["agents"] = tuple(agents)
    known = {field.name for field in fields(Limits)}
    for name in _LIMITS:
        if name in held:
            if not isinstance(held[name], dict) or set(held[name]) - known:
                raise ValueError(f"{name} is no budget")
            read[name] = Limits(**held[name])
    for name, kind in _NUMBERS.items():
        if name in held:
            value = held[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise ValueError(f"{name} is no number")
            read[name] = kind(value)
    return Grants(**read)
