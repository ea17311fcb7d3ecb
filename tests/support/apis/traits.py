"""The table of intended differences between the APIs. All other behaviour is the same through each of them.

States are those of the delegate tool, with two exceptions. A2A: a partial outcome, including a timeout, is COMPLETED with its status and
stop reason in the metadata, blocked asks for input, and refused is REJECTED (interop.md). MCP: tools report the registry's own states.
Status and stop reason are the same through all APIs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

OUTCOMES = ("queued", "running", "completed", "partial", "failed", "blocked", "timeout", "cancelled", "refused")

_TOOL = ("QUEUED", "RUNNING", "COMPLETED", "FAILED", "FAILED", "FAILED", "TIMEOUT", "CANCELLED", "FAILED")
_A2A = ("SUBMITTED", "WORKING", "COMPLETED", "COMPLETED", "FAILED", "INPUT_REQUIRED", "COMPLETED", "CANCELED", "REJECTED")
_REGISTRY = OUTCOMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    shows: Mapping[str, str]
    """State name for each outcome."""
    statuses: str | None = None
    """The column of `serve.statuses` for its faults; None if it has no statuses of its own, only remit's error codes."""
    numbers_chunks: bool = True
    """A stream can resume after a numbered chunk; otherwise it begins with the current state of the task."""
    tells_data: bool = True
    """Data chunks are streamed; otherwise only progress text."""
    follows_ended: bool = True
    """A task that has ended can still be streamed; otherwise it can only be fetched."""
    lists_ended: bool = True
    """Lists include ended tasks, with filters and pages; otherwise only queued or running tasks, without pages."""
    lists_by_agent: bool = True
    judges_shape_first: bool = False
    """Schema errors of a message are reported before all others; otherwise the usual order of checks applies."""
    chooses: bool = True
    """Without a target, any agent that has the operation."""
    relays: bool = True
    """A caller that is a remit sends its depth, path and deadline."""
    takes_session: bool = True
    exact_integers: bool = True
    """Integers beyond 2**53 are returned as integers; otherwise as decimal strings (google.protobuf.Value has only doubles)."""
    cancels_ended: bool = True
    """Cancelling an ended task returns its state; otherwise it is refused (NOT_CANCELABLE)."""


def _named(words: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(OUTCOMES, words, strict=True))


GRPC = Traits(shows=_named(_TOOL), statuses="grpc", exact_integers=False, relays=False)
HTTP = Traits(shows=_named(_TOOL), statuses="http", judges_shape_first=True, relays=False)
A2A = Traits(
    shows=_named(_A2A),
    statuses="a2a",
    numbers_chunks=False,
    follows_ended=False,
    lists_by_agent=False,
    chooses=False,
    exact_integers=False,
    cancels_ended=False,
)
MCP = Traits(
    shows=_named(_REGISTRY),
    numbers_chunks=False,
    tells_data=False,
    lists_ended=False,
    lists_by_agent=False,
    chooses=False,
    relays=False,
    takes_session=False,
)
