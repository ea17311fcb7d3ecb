"""Authentication for every API: from the credentials of a request to a `Principal` and its limits.

An API passes the request's `Credentials`; the decision is made here once. Unknown, expired, revoked and forged tokens get the same answer;
the reason goes to the audit log. Secrets have 256 random bits, so guesses are neither counted nor slowed."""

import asyncio
import contextlib
import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.budget import Budget
from remit.core.deadline import SYSTEM_CLOCK, Clock
from remit.core.errors import ErrorInfo, Refused, RemitError
from remit.core.settings import ServeSettings
from remit.server.tokens import DELEGATION_PREFIX, OWNER, Grants, LocalToken, Principal, Tokens

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.runtime.local_context import LocalRun

HEADER = "authorization"
MAX_TOKEN = 16 * 1024
NOTES_PER_SECOND, NOTES_BURST = 5.0, 200.0
"""Refusals written to the audit log; more are left out."""
MAX_BUCKETS = 10_000
CHECK_SECONDS = 1.0
"""Between two checks of the credentials of open streams."""
PRUNE_ABOVE = 1000
"""Delegation tokens in memory before those of finished delegations are dropped."""


# ---- limits


class RateLimited(Refused):
    """With the time after which to retry: `retry-after` in HTTP, `RetryInfo` in gRPC."""

    default_code = "RATE_LIMITED"

    def __init__(self, message: str, *, retry_after_seconds: float, advice: str = "") -> None:
        super().__init__(message, advice=advice or f"Try again in {max(retry_after_seconds, 0.1):.1f} s.")
        self.retry_after_seconds = retry_after_seconds


class Buckets:
    """Token buckets by name. The least recently used is dropped when there are too many."""

    def __init__(self, clock: Callable[[], float], most: int = MAX_BUCKETS) -> None:
        self._clock = clock
        self._most = most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """The remaining tokens and their time."""

    def __len__(self) -> int:
        return len(self._left)

    def take(self, name: str, rate: float, burst: float) -> float:
        """0 if one was taken; otherwise the seconds until one is available."""
        now, burst = self._clock(), max(burst, 1.0)
        before, at = self._left.get(name, (burst, now))
        left = min(burst, before + max(0.0, now - at) * rate)
        is_there = left >= 1.0
        self._left[name] = (left - 1.0 if is_there else left, now)
        self._left.move_to_end(name)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return 0.0 if is_there else (1.0 - left) / rate if rate > 0 else 3600.0


class Streams:
    """Open streams, counted by principal. A stream whose credentials become invalid ends with `Refused`."""

    def __init__(self, is_valid: Callable[[Principal], bool]) -> None:
        self._is_valid = is_valid
        self._counts: Counter[str] = Counter()

    @contextlib.contextmanager
    def open(self, principal: Principal, most: int, task: "asyncio.Task[Any] | None") -> Iterator[None]:
        """Raises `RateLimited` at once, `Refused` when the credentials of its principal become invalid."""
        task = task or asyncio.current_task()
        assert task is not None
        name, before = principal.name, task.cancelling()
        if self._counts[name] >= most:
            advice = "Close one first; the state of a task can be read without a stream."
            raise RateLimited(f"{name} has {most} streams open, as many as it may.", retry_after_seconds=1.0, advice=advice)
        self._counts[name] += 1
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
            self._counts -= Counter({name: 1})

    async def _end_when_invalid(self, principal: Principal, task: "asyncio.Task[Any]") -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not self._is_valid(principal):
                task.cancel()
                return


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
        settings: ServeSettings,
        *,
        running: "Callable[[str], LocalRun | None]" = lambda _session_id: None,
        audit: Callable[[Mapping[str, Any]], None] = lambda _entry: None,
        report: Callable[[str, str | None, RemitError | None], None] = lambda _api, _principal, _error: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Of the project whose `.remit` is `folder`. `running`: a running delegation by its session; `audit` gets refusals, `report` every
        decision: the API, the principal and the error."""
        self.settings = settings
        self.tokens = Tokens(folder, clock)
        self.local = LocalToken(folder)
        self._running = running
        self._audit = audit
        self._report = report
        self._clock = clock
        self._requests = Buckets(clock.monotonic)
        self._notes = Buckets(clock.monotonic, 1)
        self._delegations: dict[bytes, DelegationToken] = {}
        self._streams = Streams(self.is_valid)

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
        if not self._notes.take("", NOTES_PER_SECOND, NOTES_BURST):
            entry = {"event": "turned_away", "principal": principal, "door": shown.api, "peer": shown.peer[:200], "because": why}
            self._audit({name: value for name, value in entry.items() if value})
        return Refused(
            "The request is not authenticated: it has no token, or an invalid one.",
            code="UNAUTHENTICATED",
            advice=f"Send `{HEADER}: Bearer TOKEN`, with a token that `remit token new NAME` made.",
        )

    # ---- limits of a principal

    def admit(self, principal: Principal) -> None:
        """One request. Raises `RateLimited`. The owner has no rate limit."""
        if principal.is_local:
            return
        granted = principal.grants.requests_per_second
        rate, burst = (self.settings.requests_per_second, self.settings.burst) if granted is None else (granted, granted)
        if wait := self._requests.take(principal.name, rate, burst):
            error = RateLimited(f"{principal.name} may make {rate:g} requests a second.", retry_after_seconds=wait)
            self._report("any", principal.name, error)
            raise error

    def stream(self, principal: Principal, task: "asyncio.Task[Any] | None" = None) -> contextlib.AbstractContextManager[None]:
        """A context manager around a long answer, in the task that sends it, or for `task`. Raises `RateLimited`, `Refused`."""
        most = principal.grants.streams
        return self._streams.open(principal, self.settings.streams if most is None else most, task)


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

    made = Authenticator(
        remit.folder, remit.settings.serve, running=remit.engine.find, audit=remit.note_access, report=report, clock=remit.clock
    )
    if remit.trust.approved is None:  # in this mode everything is valid
        with contextlib.suppress(RemitError):  # reported when a token is used
            made.tokens.adopt()
    return made
