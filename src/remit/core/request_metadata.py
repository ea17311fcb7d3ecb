"""Metadata of requests between client and server: header names, and the lineage of a caller that is itself a remit.

A2A sends the lineage as an extension in the metadata of a message. It is untrusted and parsed strictly; the server honours depth and path
only from principals with the grant `relay`."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from remit.core.errors import Misused

TRACEPARENT = "traceparent"
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

    def to_dict(self) -> dict[str, Any]:
        """For the extension."""
        fields: dict[str, Any] = {"depth": self.depth, "path": list(self.path)}
        return fields if self.seconds_left is None else {**fields, "timeLeftMs": round(1000 * self.seconds_left)}


class _SentPosition(BaseModel):
    model_config = ConfigDict(strict=True)

    depth: Annotated[int, Field(ge=0, le=1000)] = 0
    path: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=64)] = []
    timeLeftMs: Annotated[float, Field(gt=0, le=10**12, allow_inf_nan=False)] | None = None


def read_position(value: object) -> CallerPosition:
    """Parse the metadata under `EXTENSION`, if any. Raises `Misused`."""
    try:
        sent = _SentPosition.model_validate({} if value is None else value)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"]))
        advice = 'Send e.g. depth 1 and path ["orchestrator", "a"].'
        raise Misused(f"Invalid metadata {EXTENSION}: {place} {fault['msg']}.", advice=advice) from None
    if sent.depth and not sent.path:
        raise Misused(f"Invalid metadata {EXTENSION}: depth is given without a path.", advice="Send both.")
    left = sent.timeLeftMs
    return CallerPosition(depth=sent.depth, path=tuple(sent.path), seconds_left=None if left is None else left / 1000)
