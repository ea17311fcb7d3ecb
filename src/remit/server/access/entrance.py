"""The entrance that all doors share: from what a request shows to a `Visitor`, or to nobody. Also its limits: rate, size, streams, budget.

A door hands over the words of its protocol (`enter`); which credential counts, and what becomes of a wrong one, is decided here once. To
whoever is refused an unknown, expired, revoked and forged token look alike; what it was stands in the audit log (`note`). Good
credentials are never shut out by somebody else's bad ones: those who send bad ones are slowed by where they come from, in bounded memory.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from remit.core.budget import Budget
from remit.core.deadline import SYSTEM_CLOCK, Clock
from remit.core.delegation import Delegation
from remit.core.errors import Refused
from remit.core.settings import ServeSettings
from remit.server.access.certificates import Certificate, granted
from remit.server.access.delegation_tokens import DelegationToken, DelegationTokens
from remit.server.access.limits import Buckets, Open, RateLimited, Streams
from remit.server.access.local import LocalToken
from remit.server.access.tokens import DELEGATION_PREFIX, Token, Tokens
from remit.server.access.visitor import OWNER, Grants, Visitor

log = logging.getLogger("remit.access")

HEADER = "authorization"
DELEGATION_HEADER = "remit-delegation"
"""Beside a credential of one's own: the token of the delegation on whose behalf it asks."""
SCHEME = "bearer"
LONGEST = 16 * 1024
FAILURES_PER_SECOND, FAILURES_BURST = 1.0, 20.0
"""So often may one address be wrong before it is told to wait."""
NOTES_PER_SECOND, NOTES_BURST = 5.0, 200.0
"""So many refusals go into the audit log; a flood is counted there, not copied."""
PEERS_KEPT = 4096


class Living(Protocol):
    """A delegation that runs, as the engine knows it."""

    @property
    def delegation(self) -> Delegation: ...
    @property
    def attempt(self) -> int: ...
    @property
    def is_settled(self) -> bool: ...
    @property
    def budget(self) -> Budget: ...


class Entrance:
    """Lives on the event loop of its server."""

    def __init__(
        self,
        folder: Path,
        settings: ServeSettings,
        *,
        living: Callable[[str], Living | None] = lambda _session_id: None,
        note: Callable[[Mapping[str, Any]], None] = lambda _entry: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Of the project whose `.remit` is `folder`. `living`: a delegation by its session, while it runs here."""
        self.settings = settings
        self.tokens = Tokens(folder, clock)
        self.local = LocalToken(folder)
        self._living = living
        self._note = note
        self._clock = clock
        self._requests = Buckets(clock.monotonic)
        self._failures = Buckets(clock.monotonic, PEERS_KEPT)
        self._notes = Buckets(clock.monotonic, 1)
        self._unnoted = 0
        self._delegations = DelegationTokens(self._is_living)
        self._streams = Streams(self.is_welcome, lambda _visitor: _sent_away())

    def open(self) -> Path:
        """Make the local token, when a server starts; return its path."""
        return self.local.make()

    def close(self) -> None:
        self._streams.close()
        self.tokens.write_used()

    # ---- who comes in

    def enter(
        self,
        *,
        authorization: str | None = None,
        delegation: str | None = None,
        certificate: Certificate | None = None,
        is_socket: bool = False,
        door: str = "",
        peer: str = "",
    ) -> Visitor:
        """What a request shows, whatever its protocol. A credential that is shown must be good, also where another would do.

        `is_socket`: it came by the project's own socket. Raises `Refused` (UNAUTHENTICATED), `RateLimited`."""
        bearer = None if authorization is None else bearer_of(authorization)
        visitor: Visitor | None = None
        if bearer is not None and bearer.startswith(DELEGATION_PREFIX) and delegation is None:
            bearer, delegation = None, bearer
        if bearer is not None:
            visitor = self.by_bearer(bearer, door=door, peer=peer)
        elif certificate is not None:
            visitor = self.by_certificate(certificate, door=door, peer=peer)
        elif is_socket:
            visitor = self.by_socket()
        if delegation is not None:
            return self.by_delegation(delegation, shown_by=visitor, door=door, peer=peer)
        if visitor is None:
            raise self._refused("nothing was shown", door=door, peer=peer)
        return visitor

    def by_bearer(self, text: str, *, door: str = "", peer: str = "") -> Visitor:
        """A token, the local token, or the token of a delegation; without the word `Bearer`."""
        if text.startswith(DELEGATION_PREFIX):
            return self.by_delegation(text, door=door, peer=peer)
        if len(text) > LONGEST:
            raise self._refused("too long for a token", door=door, peer=peer)
        is_local = self.local.is_it(text)
        token = self.tokens.find(text)
        if is_local:
            return OWNER
        if token is None:
            raise self._refused("unknown token", door=door, peer=peer)
        return self._welcomed(token, f"token:{token.name}", door, peer)

    def by_socket(self) -> Visitor:
        """Whoever could open a socket of 0600 owns the project."""
        return OWNER

    def by_certificate(self, certificate: Certificate, *, door: str = "", peer: str = "") -> Visitor:
        found = granted(certificate, [one for one in self.tokens.for_certificates() if one.fault(self._clock.wall()) is None])
        if found is None:
            shown = ", ".join(certificate.names)[:200] or certificate.fingerprint
            raise self._refused(f"nothing is granted to the certificate of {shown}", door=door, peer=peer)
        token, name = found
        return self._welcomed(token, f"cert:{name}", door, peer)

    def by_delegation(self, text: str, *, shown_by: Visitor | None = None, door: str = "", peer: str = "") -> Visitor:
        """On behalf of a delegation that runs here: what is asked for is its child."""
        token = self._delegations.find(text)
        fault = self._delegation_fault(token, shown_by)
        if token is None or fault is not None:
            raise self._refused(fault or "", principal=shown_by.principal if shown_by else "", door=door, peer=peer)
        own = shown_by.grants if shown_by is not None else Grants()
        grants = Grants(
            expires_at=token.deadline_at,
            deadline_at=token.deadline_at,
            requests_per_second=own.requests_per_second,
            burst=own.burst,
            request_bytes=own.request_bytes,
            streams=own.streams,
        )
        return Visitor(
            principal=f"delegation:{token.session_id}",
            grants=grants,
            parent=token.session_id,
            credentials=(f"{token.session_id}/{token.attempt}", *(shown_by.credentials if shown_by is not None else ())),
        )

    def token_for(self, running: Living, *, holder: str | None = None) -> str:
        """An opaque token for the remote agent that performs a running delegation. `holder`: the principal that alone may show it.

        It is valid until this attempt at the delegation ends."""
        delegation = running.delegation
        if running.is_settled:
            raise Refused(f"{delegation.session_id} has ended.", code="CALLER_REFUSED")
        token = DelegationToken(
            session_id=delegation.session_id, attempt=running.attempt, holder=holder, deadline_at=delegation.deadline_wall
        )
        return self._delegations.issue(token)

    def _delegation_fault(self, token: DelegationToken | None, shown_by: Visitor | None) -> str | None:
        """Why a token of a delegation is not valid, for the audit log; None: it is valid."""
        if token is None:
            return "unknown token of a delegation"
        if self._clock.wall() >= token.deadline_at:
            return f"expired token of {token.session_id}"
        if token.holder is not None and (shown_by is None or shown_by.principal != token.holder):
            return f"token of {token.session_id} that {token.holder} holds, shown by another principal"
        running = self._living(token.session_id)
        if running is None or running.is_settled:
            return f"token of {token.session_id}, which has ended"
        if running.attempt != token.attempt:
            return f"token of attempt {token.attempt} at {token.session_id}, which is at attempt {running.attempt}"
        return None

    def _is_living(self, session_id: str, attempt: int) -> bool:
        running = self._living(session_id)
        return running is not None and not running.is_settled and running.attempt == attempt

    def _welcomed(self, token: Token, principal: str, door: str, peer: str) -> Visitor:
        fault = token.fault(self._clock.wall())
        if fault is not None:
            raise self._refused(f"{fault} token", principal=principal, door=door, peer=peer)
        self.tokens.used(token)
        limits = token.grants.budget
        age = self._clock.wall() - token.created_at
        budget = None if limits is None else Budget(limits, opened_at=self._clock.monotonic() - max(0.0, age))
        return Visitor(principal=principal, grants=token.grants, credentials=(token.token_id,), budget=budget)

    def is_welcome(self, visitor: Visitor) -> bool:
        """Whether what it came in by still holds: for what goes on for long."""
        expires_at = visitor.grants.expires_at
        return (expires_at is None or self._clock.wall() < expires_at) and all(map(self._holds, visitor.credentials))

    def _holds(self, credential: str) -> bool:
        session_id, slash, attempt = credential.partition("/")
        if slash:
            return self._is_living(session_id, int(attempt))
        token = self.tokens.by_id(credential)
        return token is not None and token.fault(self._clock.wall()) is None

    # ---- how much it may

    def admit(self, visitor: Visitor, size: int = 0) -> None:
        """One request of `size` bytes. Raises `RateLimited`, `Refused` (TOO_LARGE)."""
        grants, house = visitor.grants, self.settings
        largest = self.largest(visitor)
        if size > largest:
            raise Refused(f"The request has {size} bytes; {largest} are allowed.", code="TOO_LARGE", advice="Send less at once.")
        if visitor.is_local:
            return  # whoever owns the project can keep it busy anyway, and its programs are to be as quick as they can
        rate = grants.requests_per_second if grants.requests_per_second is not None else house.requests_per_second
        burst = grants.burst if grants.burst is not None else max(rate, 1.0) if grants.requests_per_second is not None else house.burst
        wait = self._requests.take(visitor.principal, rate, burst)
        if wait:
            raise RateLimited(f"{visitor.principal} may make {rate:g} requests a second.", retry_after_seconds=wait)

    def largest(self, visitor: Visitor) -> int:
        """The size in bytes of a request of its."""
        most = visitor.grants.request_bytes
        return self.settings.request_bytes if most is None else min(most, self.settings.request_bytes)

    def stream(self, visitor: Visitor) -> Open:
        """`with entrance.stream(visitor): …` around whatever goes on for long, in the task that sends it. Raises `RateLimited`."""
        most = visitor.grants.streams
        return self._streams.open(visitor, self.settings.streams if most is None else most)

    def budget_of(self, visitor: Visitor) -> Budget | None:
        """With the token of a delegation: the scope that it draws from. Of a principal: its limits, and since when they count; what it
        has drawn, over the lives of servers, is the engine's to know (`engine.purses`)."""
        return visitor.budget

    # ---- who does not

    def _refused(self, why: str, *, principal: str = "", door: str = "", peer: str = "") -> Refused:
        """The same words whatever it was; the reason goes into the log."""
        wait = self._failures.take(peer, FAILURES_PER_SECOND, FAILURES_BURST)
        if self._notes.take("", NOTES_PER_SECOND, NOTES_BURST):
            self._unnoted += 1
        else:
            entry: dict[str, Any] = {"event": "turned_away", "principal": principal, "door": door, "peer": peer[:200], "because": why}
            if self._unnoted:
                entry["more"] = self._unnoted
                self._unnoted = 0
            self._note({name: value for name, value in entry.items() if value})
        if wait:
            return RateLimited("Too many wrong credentials came from there.", retry_after_seconds=wait)
        return unauthenticated()


def bearer_of(header: str) -> str:
    """The token in the value of the header; what has no such scheme is as good as a wrong one."""
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == SCHEME else ""


def unauthenticated() -> Refused:
    return Refused(
        "Who asks is not known here: there is no token or certificate with the request, or it does not hold (any more).",
        code="UNAUTHENTICATED",
        advice=f"Send `{HEADER}: Bearer TOKEN`, with a token that `remit token new NAME` made.",
    )


def _sent_away() -> Refused:
    return Refused("What you came in by does not hold any more.", code="UNAUTHENTICATED", advice="Ask for a new token, and go on by id.")
