"""Where the apis differ by design: the one table. Everything that is not in it is the same through each of them.

States are those of the delegate tool, but for A2A (interop.md: a partial one, also one that ran out of time, is COMPLETED, with its status
and stop reason in the metadata; blocked asks for input; refused is REJECTED) and MCP, whose tools tell the registry's own. The status and
the stop reason are the same through all of them."""

from collections.abc import Mapping
from dataclasses import dataclass

OUTCOMES = ("queued", "running", "completed", "partial", "failed", "blocked", "timeout", "cancelled", "refused")

_TOOL = ("QUEUED", "RUNNING", "COMPLETED", "FAILED", "FAILED", "FAILED", "TIMEOUT", "CANCELLED", "FAILED")
_A2A = ("SUBMITTED", "WORKING", "COMPLETED", "COMPLETED", "FAILED", "INPUT_REQUIRED", "COMPLETED", "CANCELED", "REJECTED")
_REGISTRY = OUTCOMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    shows: Mapping[str, str]
    """How each outcome is called."""
    statuses: str | None = None
    """The column of `serve.statuses` by which it tells faults; None: it has no statuses of its own, only our codes."""
    numbers_chunks: bool = True
    """A stream is taken up after the chunk of a number; else it begins with how the task stands now."""
    tells_data: bool = True
    """Chunks of data are streamed; else only progress in words is."""
    follows_ended: bool = True
    """A task that has ended can still be streamed; else it is only looked at."""
    lists_ended: bool = True
    """Lists hold what has ended too, by state and conversation and page by page; else what is queued or running, all at once."""
    lists_by_agent: bool = True
    judges_shape_first: bool = False
    """What breaks the schema of the message is told before what the message means; else in the usual order throughout."""
    chooses: bool = True
    """Without a target, any agent that has the operation."""
    relays: bool = True
    """A caller that is a remit says its depth, path and deadline."""
    has_principals: bool = True
    """Callers are told apart; else all are the owner."""
    takes_session: bool = True
    exact_integers: bool = True
    """Integers beyond 2**53 come back as such; else as their digits in text (google.protobuf.Value has doubles only)."""
    cancels_ended: bool = True
    """Cancelling what has ended says how it stands; else it is refused (NOT_CANCELABLE)."""


def _named(words: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(OUTCOMES, words, strict=True))


GRPC = Traits(shows=_named(_TOOL), statuses="grpc", exact_integers=False)
HTTP = Traits(shows=_named(_TOOL), statuses="http", judges_shape_first=True)
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
