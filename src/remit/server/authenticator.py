"""Authentication for every API: from the credentials of a request to a `Principal`.

An API passes the request's `Credentials`; the decision is made here once. Unknown, expired, revoked and forged tokens get the same answer;
the reason goes to the audit log. Secrets have 256 random bits, so guesses are neither counted nor slowed."""

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.budget import Budget
from remit.core.deadline import SYSTEM_CLOCK, Clock
from remit.core.errors import ErrorInfo, Refused, RemitError
from remit.server.tokens import DELEGATION_PREFIX, OWNER, Grants, LocalToken, Principal, Tokens

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.runtime.local_context import LocalRun

HEADER = "authorization"
MAX_TOKEN = 16 * 1024
NOTES_PER_SECOND, NOTES_BURST = 5.0, 200.0
"""Refusals written to the audit log; more are left out."""
CHECK_SECONDS = 1.0
"""Between two checks of the credentials of open streams."""
PRUNE_ABOVE = 1000
"""Delegation tokens in memory before those of finished delegations are dropped."""


# ---- the authenticator


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The credentials of a request."""

    authorization: str | None = None
    """The header."""
    is_socket: bool = False
    """Whether it came over the project's own Unix socket (0600), which only the owner can open."""
    api: str = ""
    peer: str = ""
    """The address of the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """For the remote agent that executes a delegation and may delegate on its behalf.

    Bound to one attempt and kept in memory: a restarted server starts a new attempt, which gets a new token."""

    session_id: str
    attempt: int
    deadline_at: float


class Authenticator:
    """Lives on the event loop of its server."""

    def __init__(
        self,
        folder: Path,
        *,
        running: "Callable[[str], LocalRun | None]" = lambda _session_id: None,
        audit: Callable[[Mapping[str, Any]], None] = lambda _entry: None,
        report: Callable[[str, str | None, RemitError | None], None] = lambda _api, _principal, _error: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Of the project whose `.remit` is `folder`. `running`: a running delegation by its session; `audit` gets refusals, `report` every
        decision: the API, the principal and the error."""
        self.tokens = Tokens(folder, clock)
        self.local = LocalToken(folder)
        self._running = running
        self._audit = audit
        self._report = report
        self._clock = clock
        self._notes_left, self._noted_at = NOTES_BURST, clock.monotonic()
        self._delegations: dict[bytes, DelegationToken] = {}

    def open(self) -> Path:
        """Makes the owner's token, when a server starts; its path."""
        return self.local.make()

    # ---- authentication

    def authenticate(self, shown: Credentials) -> Principal:
        """Every presented credential must be valid, even if another one would suffice. Raises `Refused`."""
        try:
            principal = self._authenticate(shown)
        except RemitError as error:
            self._report(shown.api, None, error)
            raise
        self._report(shown.api, principal.name, None)
        return principal

    def _authenticate(self, shown: Credentials) -> Principal:
        if shown.authorization is not None:
            bearer = bearer_of(shown.authorization)
            return self._by_delegation(bearer, shown) if bearer.startswith(DELEGATION_PREFIX) else self._by_bearer(bearer, shown)
        if shown.is_socket:
            return OWNER
        raise self._refused("no credentials", shown)

    def _by_bearer(self, text: str, shown: Credentials) -> Principal:
        if len(text) > MAX_TOKEN:
            raise self._refused("too long for a token", shown)
        is_local, token = self.local.is_it(text), self.tokens.find(text)
        if is_local:
            return OWNER
        if token is None:
            raise self._refused("unknown token", shown)
        name, now = f"token:{token.name}", self._clock.wall()
        if (fault := token.fault(now)) is not None:
            raise self._refused(f"{fault} token", shown, name)
        limits, age = token.grants.budget, max(0.0, now - token.created_at)
        budget = None if limits is None else Budget(limits, opened_at=self._clock.monotonic() - age)
        return Principal(name=name, grants=token.grants, credential=token.token_id, budget=budget)

    def _by_delegation(self, text: str, shown: Credentials) -> Principal:
        """Requests with the token of a delegation start its children."""
        token = self._delegations.get(_digest(text))
        fault = self._delegation_fault(token)
        if token is None or fault is not None:
            raise self._refused(fault or "", shown)
        return Principal(
            name=f"delegation:{token.session_id}",
            grants=Grants(expires_at=token.deadline_at, deadline_at=token.deadline_at),
            parent=token.session_id,
            credential=f"{token.session_id}/{token.attempt}",
        )

    def token_for(self, running: "LocalRun") -> str:
        """A token for the remote agent that executes a delegation, valid until this attempt ends."""
        delegation = running.delegation
        if running.is_settled:
            raise Refused(f"{delegation.session_id} has ended.", code="CALLER_REFUSED")
        if len(self._delegations) >= PRUNE_ABOVE:
            self._delegations = {key: one for key, one in self._delegations.items() if self._is_running(one.session_id, one.attempt)}
        text = f"{DELEGATION_PREFIX}{secrets.token_urlsafe(32)}"
        self._delegations[_digest(text)] = DelegationToken(
            session_id=delegation.session_id, attempt=running.attempt, deadline_at=delegation.deadline_wall
        )
        return text

    def _delegation_fault(self, token: DelegationToken | None) -> str | None:
        """For the audit log; None: it is valid."""
        if token is None:
            return "unknown token of a delegation"
        if self._clock.wall() >= token.deadline_at:
            return f"expired token of {token.session_id}"
        if not self._is_running(token.session_id, token.attempt):
            return f"token of attempt {token.attempt} at {token.session_id}, which has ended"
        return None

    def _is_running(self, session_id: str, attempt: int) -> bool:
        running = self._running(session_id)
        return running is not None and not running.is_settled and running.attempt == attempt

    def is_valid(self, principal: Principal) -> bool:
        """Whether its credentials are still valid: for long requests."""
        expires_at = principal.grants.expires_at
        if expires_at is not None and self._clock.wall() >= expires_at:
            return False
        if not principal.credential:
            return True
        session_id, slash, attempt = principal.credential.partition("/")
        if slash:
            return self._is_running(session_id, int(attempt))
        token = self.tokens.by_id(principal.credential)
        return token is not None and token.fault(self._clock.wall()) is None

    def _refused(self, why: str, shown: Credentials, principal: str = "") -> Refused:
        """The same message for every reason."""
        now = self._clock.monotonic()
        self._notes_left = min(NOTES_BURST, self._notes_left + (now - self._noted_at) * NOTES_PER_SECOND)
        self._noted_at = now
        if self._notes_left >= 1:
            self._notes_left -= 1
            entry = {"event": "turned_away", "principal": principal, "door": shown.api, "peer": shown.peer[:200], "because": why}
            self._audit({name: value for name, value in entry.items() if value})
        return Refused(
            "The request is not authenticated: it has no token, or an invalid one.",
            code="UNAUTHENTICATED",
            advice=f"Send `{HEADER}: Bearer TOKEN`, with a token that `remit token new NAME` made.",
        )

    # ---- long answers

    @contextlib.contextmanager
    def stream(self, principal: Principal, task: "asyncio.Task[Any] | None" = None) -> Iterator[None]:
        """Around a long answer, in the task that sends it, or for `task`. Raises `Refused` when the credentials become invalid."""
        task = task or asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        ending = asyncio.ensure_future(self._end_when_invalid(principal, task)) if principal.credential else None
        try:
            yield
        except asyncio.CancelledError as error:
            if ending is None or not ending.done() or task.uncancel() > before:
                raise
            advice = "Get a new token, and continue by the id of the task."
            raise Refused("The credentials of this stream are no longer valid.", code="UNAUTHENTICATED", advice=advice) from error
        else:
            if ending is not None and ending.done():
                task.uncancel()
        finally:
            if ending is not None:
                ending.cancel()

    async def _end_when_invalid(self, principal: Principal, task: "asyncio.Task[Any]") -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not self.is_valid(principal):
                task.cancel()
                return


def bearer_of(header: str) -> str:
    """The token in the header; empty for another scheme."""
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def authenticator_for(remit: "Remit") -> Authenticator:
    """Refusals go to the audit log of the policy, every decision to the project's listeners: events, counts, log lines."""

    def report(api: str, principal: str | None, error: RemitError | None) -> None:
        if error is None:
            remit.report_access(api, principal)
            return
        kind = "permission" if isinstance(error, Refused) else "execution"
        info = ErrorInfo(type=kind, message=error.message, code=error.code, recoverable=False, recommendation=error.advice)
        remit.report_access(api, principal, info)

    made = Authenticator(remit.folder, running=remit.engine.find, audit=remit.note_access, report=report, clock=remit.clock)
    if remit.trust.approved is None:  # in this mode everything is valid
        with contextlib.suppress(RemitError):  # reported when a token is used
            made.tokens.adopt()
    return made
