"""Arguments of the tools beside `delegate`, checked: ids of delegations and numbers. Requests to delegate are read by `remit.tool`."""

from collections.abc import Mapping
from typing import Any

from remit.core.errors import Misused
from remit.core.ids import is_session_id
from remit.tool.request import arguments_of, milliseconds

__all__ = ["DELEGATION_EXTRAS", "arguments_of", "milliseconds", "session_of", "whole_number"]

DELEGATION_EXTRAS = ("key", "accept", "budget")
"""What `delegate` takes here beside the arguments of the delegate tool (S5.1)."""
LONGEST_ID = 40


def whole_number(name: str, value: object, *, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Misused(f"{name} must be a whole number from {least} to {most}, not {value!r:.60}.")
    return value


def session_of(arguments: Mapping[str, Any]) -> str:
    session_id = arguments.get("session_id")
    if not isinstance(session_id, str) or len(session_id) > LONGEST_ID or not is_session_id(session_id):
        raise Misused(
            f"session_id must be the id of a delegation, not {session_id!r:.80}.",
            advice="It looks like sess_1763200000_abc123 and is in every answer of delegate.",
        )
    return session_id
