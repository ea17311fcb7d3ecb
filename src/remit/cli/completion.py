"""Completions for the shell: task numbers with their titles, statuses, languages. Never fails and never writes."""

import json
import re
from pathlib import Path
from typing import Any

from remit.cli.project import find_root
from remit.core.errors import RemitError

OFFERED = 200
_TITLE = 60
_LIST = re.compile(r"^(.*[,;\s-])?([^,;\s-]*)$", re.DOTALL)
Offer = list[tuple[str, str]]
"""Words, each with its meaning, which some shells show."""


def some_tasks(incomplete: str) -> Offer:
    """Task numbers; behind a comma or a dash the next one of a list or range."""
    begun = _LIST.match(incomplete)
    before, part = (begun[1] or "", begun[2]) if begun else ("", incomplete)
    taken = set(re.findall(r"\d+", before))
    found = [(str(entry["project_number"]), _words(entry)) for entry in _entries()]
    return [(before + number, words) for number, words in found if number.startswith(part) and number not in taken][:OFFERED]


def some_statuses(incomplete: str) -> Offer:
    from remit.board.task import Status

    return [(str(status), f"[{status.marker}]") for status in Status if status.startswith(incomplete.lower())]


def some_priorities(incomplete: str) -> Offer:
    return [(one, "") for one in ("high", "medium", "low") if one.startswith(incomplete.lower())]


def some_languages(incomplete: str) -> Offer:
    """Those that tasks of the board have, and those that the routing knows."""
    from remit.core.routing import DEFAULT_TABLE

    routed = {rule.language for rules in DEFAULT_TABLE.commands.values() for rule in rules if rule.language}
    used = {str(entry["language"]) for entry in _entries() if entry.get("language")}
    return [(one, "") for one in sorted(routed | used | {"general"}) if one.startswith(incomplete)]


def _root() -> Path | None:
    try:
        return find_root(None)
    except (RemitError, OSError):
        return None


def _entries() -> list[dict[str, Any]]:
    """The tasks as state.json has them, read as data: nothing is checked, and nothing taken over from TODO.md."""
    root = _root()
    if root is None:
        return []
    try:
        entries = json.loads((root / "specs" / "state.json").read_bytes())["active_projects"]
        return [entry for entry in entries if isinstance(entry["project_number"], int)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _words(entry: dict[str, Any]) -> str:
    title = " ".join(str(entry.get("title") or entry.get("project_name") or "").split())
    status = str(entry.get("status") or "").upper().replace("_", " ")
    return "".join(sign for sign in f"{title[:_TITLE]} [{status}]" if sign.isprintable())
