"""What an agent's protocol errors and stop reasons mean for its caller: one table, in our words."""

from collections.abc import Mapping, Sequence
from typing import Any

from acp.exceptions import RequestError

from remit.core.errors import Failed, RemitError, Unavailable

AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601
_WORDS_CHARACTERS = 700

_STOPPED = {
    "max_tokens": ("it ran out of tokens for its answer", "Ask for less at once, or give it a model with more room."),
    "max_turn_requests": ("it made as many model requests as one turn allows", "Ask for less at once, or raise its limit of turns."),
    "refusal": ("it refused", "Word the task differently, or give it to another agent."),
    "cancelled": ("its turn was cancelled, and not by us", "Delegate it again."),
}


def stopped_early(name: str, reason: str, words: str) -> Failed:
    """A turn that ended without an answer."""
    what, advice = _STOPPED.get(reason, (f"its turn ended with {reason[:60]!r}", "Delegate it again."))
    said = words.strip()
    tail = f" Its last words: {said[-_WORDS_CHARACTERS:]}" if said else ""
    return Failed(f"{name} stopped early ({reason[:60]}): {what}.{tail}", advice=advice)


def of_request(name: str, method: str, error: RequestError, login: str) -> RemitError:
    """What the agent answered in place of a result."""
    words = _words(error)
    if error.code == AUTH_REQUIRED:
        return Unavailable(f"{name} is not logged in: {words}.", advice=login)
    if error.code == METHOD_NOT_FOUND:
        return Unavailable(f"{name} does not know {method}.", advice="It may be too old, or speak another version of the protocol.")
    return Failed(f"{name} answered {method} with an error: {words} ({error.code}).", advice=f"Look into {name}; its own log says more.")


def login_advice(name: str, command: Sequence[str], methods: Sequence[Mapping[str, Any]]) -> str:
    """How to log in: only a person can, once."""
    ways = "; ".join(way for method in methods if (way := _way(method)))
    program = command[0] if command else name
    return f'Log in once with {program} itself{f" ({ways})" if ways else ""}, or pass its key: pass_environment = ["…_API_KEY"].'


def _way(method: Mapping[str, Any]) -> str:
    label, more = method.get("name") or method.get("id"), method.get("description")
    return ": ".join(str(part)[:120] for part in (label, more) if part)


def _words(error: RequestError) -> str:
    data = error.data
    details = data.get("details") or data.get("message") if isinstance(data, dict) else data
    said = str(error).strip().rstrip(".") or "an error"
    return f"{said}: {str(details)[:_WORDS_CHARACTERS]}" if details else said[:_WORDS_CHARACTERS]
