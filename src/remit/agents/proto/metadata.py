"""What stands in the metadata of gRPC calls beside their messages: who asks, where it stands, and in trailers what went wrong.

Written and read by the door (`serve.grpc`), by its clients and by remotes. Knows no connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remit.core.errors import Misused

# ---- What stands in the metadata of gRPC calls beside their messages: who asks, where it stands, and in trailers what went wr


AUTHORIZATION = "authorization"
"""`Bearer TOKEN`."""
TRACEPARENT = "traceparent"
DEPTH = "remit-depth"
"""Of the caller, when it is a remit; honoured from those that were granted `relay`, like the two below."""
PATH = "remit-path"
"""JSON: the names from the root to the caller."""
DEADLINE = "remit-deadline-ns"
"""When the caller itself ends, in nanoseconds since 1970."""
CODE = "remit-code"
"""In the trailers of a call that was refused, as the two below: our own code."""
ADVICE = "remit-advice"
"""What to do next, with per cent signs where it is not ASCII."""
DETAILS = "grpc-status-details-bin"
"""A google.rpc.Status, with a Struct of the details."""
PUSHBACK = "grpc-retry-pushback-ms"
"""When to come again."""


# ---- The A2A extension by which one remit tells another where a delegation stands: depth, path, what is left of its time, its


EXTENSION = "https://remit.dev/extensions/delegation/v1"
HEADER = "A2A-Extensions"
"""Of HTTP, and in small letters of gRPC's metadata: which extensions a caller speaks."""
MOST_NAMES = 64
LONGEST_NAME = 200
DEEPEST = 1000
_MOST_SECONDS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerPosition:
    depth: int = 0
    """Of the caller."""
    path: tuple[str, ...] = ()
    """From the root, wherever that is, to the caller."""
    seconds_left: float | None = None
    """Until the caller itself ends. No moment of a clock: two machines' clocks differ."""

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"depth": self.depth, "path": list(self.path)}
        if self.seconds_left is not None:
            fields["timeLeftMs"] = round(1000 * self.seconds_left)
        return fields


NOTHING = CallerPosition()


def read_position(value: object) -> CallerPosition:
    """What a message carries under `EXTENSION`; nothing, where it carries none. Raises `Misused`."""
    if value is None:
        return NOTHING
    if not isinstance(value, Mapping):
        raise _wrong("it is no object")
    depth, path, left = value.get("depth", 0), value.get("path", []), value.get("timeLeftMs")
    if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= DEEPEST:
        raise _wrong("depth is no whole number from 0 to 1000")
    if (
        not isinstance(path, list)
        or len(path) > MOST_NAMES
        or not all(isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in path)
    ):
        raise _wrong(f"path is no list of at most {MOST_NAMES} names")
    if depth and not path:
        raise _wrong("depth is given without a path")
    if left is not None and (isinstance(left, bool) or not isinstance(left, int | float) or not 0 < left <= 1000 * _MOST_SECONDS):
        raise _wrong("timeLeftMs is no number of milliseconds above 0")
    return CallerPosition(depth=depth, path=tuple(path), seconds_left=None if left is None else left / 1000)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME


def _wrong(fault: str) -> Misused:
    return Misused(f"The metadata {EXTENSION} cannot be read: {fault}.", advice='Send e.g. {"depth": 1, "path": ["orchestrator", "a"]}.')
