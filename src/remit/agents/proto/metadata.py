"""Metadata of requests between client and server: header names, and the lineage of a caller that is itself a remit.

gRPC and HTTP send the lineage as headers, A2A as an extension in the metadata of a message. It is untrusted and parsed strictly; the server
honours depth and path only from principals with the grant `relay`."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remit.core.errors import Misused

AUTHORIZATION = "authorization"
"""`Bearer TOKEN`."""
TRACEPARENT = "traceparent"
DEPTH = "remit-depth"
PATH = "remit-path"
"""JSON: the names from the root to the caller."""
DEADLINE = "remit-deadline-ns"
"""The caller's own deadline, in nanoseconds since 1970."""
CODE = "remit-code"
"""In the trailers of a refused call: the error code."""
ADVICE = "remit-advice"
"""In the trailers: the advice, percent-encoded if not ASCII."""
DETAILS = "grpc-status-details-bin"
"""In the trailers: a google.rpc.Status, with a Struct of the details."""
PUSHBACK = "grpc-retry-pushback-ms"
"""In the trailers: when to retry."""
EXTENSION = "https://remit.dev/extensions/delegation/v1"
"""The A2A extension with the lineage."""
HEADER = "A2A-Extensions"
"""Names the extensions that a caller uses; in lower case in the metadata of gRPC."""
MOST_NAMES, LONGEST_NAME, DEEPEST = 64, 200, 1000
_MOST_MILLISECONDS = 10**12
_LATEST_NS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerPosition:
    depth: int = 0
    """Of the caller."""
    path: tuple[str, ...] = ()
    """From the root, on any machine, to the caller."""
    seconds_left: float | None = None
    """Until the caller's own deadline. Not a time of day: the clocks of two machines differ."""
    deadline_at: float | None = None
    """The same as a wall-clock time, in headers."""

    def to_dict(self) -> dict[str, Any]:
        """For the extension."""
        fields: dict[str, Any] = {"depth": self.depth, "path": list(self.path)}
        return fields if self.seconds_left is None else {**fields, "timeLeftMs": round(1000 * self.seconds_left)}


def read_position(value: object) -> CallerPosition:
    """Parse the metadata under `EXTENSION`, if any. Raises `Misused`."""
    given = {} if value is None else value
    if not isinstance(given, Mapping):
        raise _invalid("it must be an object")
    depth, path, left = given.get("depth", 0), _path(given.get("path", [])), given.get("timeLeftMs")
    if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= DEEPEST:
        raise _invalid(f"depth must be a whole number from 0 to {DEEPEST}")
    if path is None:
        raise _invalid(f"path must be a list of at most {MOST_NAMES} names")
    if depth and not path:
        raise _invalid("depth is given without a path")
    if left is not None and (isinstance(left, bool) or not isinstance(left, int | float) or not 0 < left <= _MOST_MILLISECONDS):
        raise _invalid("timeLeftMs must be a number of milliseconds above 0")
    return CallerPosition(depth=depth, path=path, seconds_left=None if left is None else left / 1000)


def read_position_headers(headers: Mapping[str, Any]) -> CallerPosition:
    """Raises `Misused`."""
    if PATH not in headers and DEPTH not in headers and DEADLINE not in headers:
        return CallerPosition()
    names: object = None
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        names = json.loads(headers.get(PATH, "[]"))
    if (path := _path(names)) is None:
        raise Misused(f"{PATH} must be a JSON list of at most {MOST_NAMES} names.", advice='E.g. ["orchestrator", "a"].')
    deadline_ns = _number(headers, DEADLINE, _LATEST_NS)
    return CallerPosition(
        depth=_number(headers, DEPTH, DEEPEST),
        path=path,
        deadline_at=deadline_ns // 10**9 + (deadline_ns % 10**9) / 1e9 if deadline_ns else None,
    )


def _number(headers: Mapping[str, Any], name: str, most: int) -> int:
    value = headers.get(name, "0")
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal() or len(value) > 20 or int(value) > most:
        raise Misused(f"{name} must be a whole number of at most {most}.", advice="Leave it out, or send its digits.")
    return int(value)


def _path(names: object) -> tuple[str, ...] | None:
    if not isinstance(names, list) or len(names) > MOST_NAMES:
        return None
    if not all(isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in names):
        return None
    try:
        "".join(names).encode()  # not with a lone surrogate
    except UnicodeError:
        return None
    return tuple(names)


def _invalid(fault: str) -> Misused:
    return Misused(f"Invalid metadata {EXTENSION}: {fault}.", advice='Send e.g. {"depth": 1, "path": ["orchestrator", "a"]}.')
