"""Tokens of running delegations: with one, a remote agent asks in the name of the work it was given.

A token is a random word that means something only to the server that issued it. It is bound to one attempt at one delegation and ends with
it; `entrance` asks whether that attempt still runs. Kept in memory as a digest: a server that restarts starts its delegations anew, and a
new attempt gets a new token.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from remit.server.access.tokens import DELEGATION_PREFIX

PRUNE_ABOVE = 1000
"""So many tokens are held before those of finished delegations are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    session_id: str
    attempt: int
    holder: str | None
    """The principal that alone may show it; None: anyone."""
    deadline_at: float


class DelegationTokens:
    def __init__(self, is_running: Callable[[str, int], bool]) -> None:
        self._is_running = is_running
        self._tokens: dict[bytes, DelegationToken] = {}

    def issue(self, token: DelegationToken) -> str:
        if len(self._tokens) >= PRUNE_ABOVE:
            self._tokens = {key: one for key, one in self._tokens.items() if self._is_running(one.session_id, one.attempt)}
        text = f"{DELEGATION_PREFIX}{secrets.token_urlsafe(32)}"
        self._tokens[_digest(text)] = token
        return text

    def find(self, text: str) -> DelegationToken | None:
        """By digest, so that the time it takes says nothing about the tokens there are."""
        return self._tokens.get(_digest(text))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
