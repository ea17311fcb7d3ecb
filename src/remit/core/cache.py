"""How long the result of a delegation may be reused: what the agent declares and what the caller requests."""

import re
from typing import Any, NamedTuple

from remit.core.agents import AgentSpec, not_cacheable, only_reads
from remit.core.errors import Misused
from remit.core.policy import Fact
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.states import State

CACHE_KEYS = "cache:"
"""Prefix of the idempotency keys of cached results; callers' keys never have it."""
RESULTS_LISTED = 10_000
OFF, REFRESH = "off", "refresh"
_SPAN = r"(\d+(?:\.\d+)?)\s*([smhd]?)"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class CacheTerms(NamedTuple):
    """Cache terms of one call."""

    seconds: float
    """Maximum age of a result, from its start."""
    reads: tuple[str, ...]
    """Parameters that name the files the result depends on."""
    is_refreshed: bool = False
    """Run it and replace the cached result."""


def cache_seconds(value: Any) -> float:
    """Parse `1h`, `90s`, `2d` or a number of seconds. Raises `Misused`."""
    span = re.fullmatch(_SPAN, value.strip()) if isinstance(value, str) else None
    seconds = float(span[1]) * _UNITS[span[2]] if span else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise Misused(
            f"cache must be the time for which a result may be reused, not {value!r:.60}.", advice="Write e.g. 30s, 10m, 1h or 2d."
        )
    return float(seconds)


def cache_terms(spec: AgentSpec, asked: Any) -> CacheTerms | None:
    """The cache terms of a call; None: the cache is not used. Raises `Misused`."""
    if asked == OFF:
        return None
    is_refreshed = asked == REFRESH
    try:
        seconds = spec.cache_seconds if asked is None or is_refreshed else cache_seconds(asked)
    except Misused as fault:
        raise Misused(f"{fault.message[:-1]}, {OFF} or {REFRESH}.", advice=fault.advice) from None
    if not only_reads(spec):
        raise not_cacheable(spec)
    if seconds is None:
        raise Misused(f"{spec.name} declares no cache, so there is nothing to refresh.", advice="Write e.g. cache=1h instead.")
    reads = spec.reads or tuple(name for name, fact in spec.acts_on.items() if fact is Fact.PATH)
    return CacheTerms(seconds, reads, is_refreshed)


def cache_prefix(agent: str | None) -> str:
    """Key prefix of cached results, of one agent or of all."""
    return CACHE_KEYS if agent is None else f"{CACHE_KEYS}{agent}:"


def cached_results(store: Store, agent: str | None) -> list[Record]:
    """Delegations whose results may be reused, newest first. Blocking."""
    found = [store.get(session_id) for session_id in store.keys(cache_prefix(agent), RESULTS_LISTED).values()]
    completed = [record for record in found if record is not None and record.state is State.COMPLETED]
    return sorted(completed, key=lambda record: -record.created_at)
