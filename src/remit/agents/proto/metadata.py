"""Metadata of requests between client and server: header names, and the lineage of a caller that is itself a remit.

gRPC and HTTP send the lineage as headers, A2A as an extension in the metadata of a message. It is untrusted and parsed strictly; the server
honours depth and path only from principals with the grant `relay`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

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
DETAILS = "remit-details-bin"
"""In the trailers: JSON, what would be allowed."""
EXTENSION = "https://remit.dev/extensions/delegation/v1"
"""The A2A extension with the lineage."""
HEADER = "A2A-Extensions"
"""Names the extensions that a caller uses; in lower case in the metadata of gRPC."""


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


class _SentPosition(BaseModel):
    model_config = ConfigDict(strict=True)

    depth: Annotated[int, Field(ge=0, le=1000)] = 0
    path: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=64)] = []
    timeLeftMs: Annotated[float, Field(gt=0, le=10**12, allow_inf_nan=False)] | None = None
    deadline_ns: Annotated[int, Field(ge=0, lt=2**63)] = 0


def read_position(value: object) -> CallerPosition:
    """Parse the metadata under `EXTENSION`, if any. Raises `Misused`."""
    sent = _validate({} if value is None else value, f"metadata {EXTENSION}")
    if sent.depth and not sent.path:
        raise Misused(f"Invalid metadata {EXTENSION}: depth is given without a path.", advice="Send both.")
    left = sent.timeLeftMs
    return CallerPosition(depth=sent.depth, path=tuple(sent.path), seconds_left=None if left is None else left / 1000)


def read_position_headers(headers: Mapping[str, Any]) -> CallerPosition:
    """Raises `Misused`."""
    if PATH not in headers and DEPTH not in headers and DEADLINE not in headers:
        return CallerPosition()
    given = {}
    for name, field in ((DEPTH, "depth"), (PATH, "path"), (DEADLINE, "deadline_ns")):
        if name in headers:
            try:
                given[field] = from_json(headers[name])
            except ValueError as error:
                raise Misused(f"Invalid header {name}: {error}.", advice='E.g. 1, or ["orchestrator", "a"].') from None
    sent = _validate(given, f"headers {DEPTH}, {PATH}, {DEADLINE}")
    whole, rest = divmod(sent.deadline_ns, 10**9)
    return CallerPosition(depth=sent.depth, path=tuple(sent.path), deadline_at=whole + rest / 1e9 if sent.deadline_ns else None)


def _validate(value: object, where: str) -> _SentPosition:
    try:
        return _SentPosition.model_validate(value)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise Misused(f"Invalid {where}: {place} {fault['msg']}.", advice='Send e.g. depth 1 and path ["orchestrator", "a"].') from None
