"""How much one may ask for: requests by time, bytes, open streams; and how often one may be wrong. Memory is bounded whoever comes.

A bucket for each that was seen lately: it holds `burst` requests and is filled again at its rate. One that is full again says nothing and
is forgotten; so those kept are those that were busy within the time a bucket takes to fill, and no more than `MOST` of them.
"""

import asyncio
import hashlib
import ipaddress
import logging
import re
import secrets
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from remit.core.budget import Budget
from remit.core.deadline import SYSTEM_CLOCK, Clock
from remit.core.delegation import Delegation
from remit.core.errors import Misused, Refused
from remit.core.settings import ServeSettings
from remit.server.tokens import DELEGATION_PREFIX, OWNER, Grants, LocalToken, Principal, Token, Tokens

# ---- How much one may ask for: requests by time, bytes, open streams; and how often one may be wrong. Memory is bounded whoev


MOST = 10_000


class RateLimited(Refused):
    """With when to come again: `retry-after` of HTTP, `RetryInfo` of gRPC."""

    default_code = "RATE_LIMITED"

    def __init__(self, message: str, *, retry_after_seconds: float, advice: str = "") -> None:
        super().__init__(message, advice=advice or f"Try again in {max(retry_after_seconds, 0.1):.1f} s.")
        self.retry_after_seconds = retry_after_seconds


class Buckets:
    def __init__(self, clock: Callable[[], float], most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What is left in each, and when that was so; the one that was asked for longest ago first."""

    def __len__(self) -> int:
        return len(self._held)

    def take(self, name: str, rate: float, burst: float) -> float:
        """0: one was taken; else in how many seconds there is one."""
        now = self._clock()
        burst = max(burst, 1.0)
        held = self._held.get(name)
        left = burst if held is None else min(burst, held[0] + max(0.0, now - held[1]) * rate)
        is_there = left >= 1.0
        self._held[name] = (left - 1.0 if is_there else left, now)
        self._held.move_to_end(name)
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return 0.0 if is_there else (1.0 - left) / rate if rate > 0 else 3600.0


class Counts:
    """Of what is open at once."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def enter(self, name: str, most: int) -> None:
        count = self._open.get(name, 0)
        if count >= most:
            raise RateLimited(
                f"{name} has {count} streams open, which is as many as it may.",
                retry_after_seconds=1.0,
                advice="Close one first; several tasks can be looked at without a stream each.",
            )
        self._open[name] = count + 1

    def leave(self, name: str) -> None:
        left = self._open.get(name, 0) - 1
        if left > 0:
            self._open[name] = left
        else:
            self._open.pop(name, None)

    def of(self, name: str) -> int:
        return self._open.get(name, 0)


# ---- open streams: one check a second for all; a stream whose token was revoked ends with `Refused`


LOOK_SECONDS = 1.0


class Streams:
    def __init__(self, is_valid: Callable[[Principal], bool], ended: Callable[[Principal], Refused]) -> None:
        self._is_welcome = is_valid
        self._ended = ended
        self._counts = Counts()
        self._watched: set[Open] = set()
        self._timer: asyncio.TimerHandle | None = None

    def open(self, principal: Principal, most: int) -> "Open":
        return Open(self, principal, most)

    def count(self, principal: str) -> int:
        return self._counts.of(principal)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        welcome: dict[object, bool] = {}
        for one in list(self._watched):
            shown = (one.principal.credentials, one.principal.grants.expires_at)
            if shown not in welcome:
                welcome[shown] = self._is_welcome(one.principal)
            if not welcome[shown]:
                self._watched.discard(one)
                one.end(self._ended(one.principal))
        self._look_again()

    def _look_again(self) -> None:
        if self._watched and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _enter(self, one: "Open", most: int) -> None:
        self._counts.enter(one.principal.name, most)
        if one.task is not None and one.principal.credentials:
            self._watched.add(one)
            self._look_again()

    def _leave(self, one: "Open") -> None:
        self._counts.leave(one.principal.name)
        self._watched.discard(one)
        if not self._watched:
            self.close()


class Open:
    """In the task that sends. Raises `RateLimited` at once, `Refused` when its caller is sent away."""

    def __init__(self, streams: Streams, principal: Principal, most: int) -> None:
        self._streams = streams
        self.principal = principal
        self._most = most
        self.task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._refusal: Refused | None = None

    def __enter__(self) -> "Open":
        try:
            self.task = asyncio.current_task()
        except RuntimeError:  # no loop runs here: only counted
            self.task = None
        if self.task is not None:
            self._cancelling = self.task.cancelling()
        self._streams._enter(self, self._most)
        return self

    def end(self, refusal: Refused) -> None:
        self._refusal = refusal
        if self.task is not None:
            self.task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._streams._leave(self)
        if self._refusal is None or self.task is None:
            return
        if self.task.uncancel() <= self._cancelling and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise self._refusal from error


# ---- Certificates as identities: what a verified client certificate calls its holder, and what was granted to that name (mutu


# ---- Certificates as identities: what a verified client certificate calls its holder, and what was granted to that name (mutu


PIN = "sha256:"
_LONGEST = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    names: tuple[str, ...] = ()
    """Its alternative names first, then its common name: as RFC 6125 has it."""
    fingerprint: str = ""
    """SHA-256 of the whole, in hexadecimal."""


def of_peer(peer: Mapping[str, Any] | None, der: bytes | None = None) -> Certificate | None:
    """As `ssl.SSLObject.getpeercert()` gives it, with and without `binary_form`; None: none was shown."""
    if not peer:
        return None
    names = [str(value) for kind, value in peer.get("subjectAltName", ()) if kind in ("DNS", "URI", "email")]
    names += [str(value) for group in peer.get("subject", ()) for kind, value in group if kind == "commonName"]
    return Certificate(names=_plain(names), fingerprint=hashlib.sha256(der).hexdigest() if der else "")


def of_grpc(context: Mapping[str, Sequence[bytes]]) -> Certificate | None:
    """As `grpc.ServicerContext.auth_context()` gives it."""
    if not context.get("x509_pem_cert") and not context.get("x509_common_name"):
        return None
    alternative = [one.decode("utf-8", "replace") for one in context.get("x509_subject_alternative_name", ())]
    common = [one.decode("utf-8", "replace") for one in context.get("x509_common_name", ())]
    pem = next(iter(context.get("x509_pem_cert", ())), b"")
    named = [*(one for one in alternative if not _is_address(one)), *common]  # the same names as by TLS's own words: one principal
    return Certificate(names=_plain(named), fingerprint=_fingerprint(pem))


def granted(certificate: Certificate, tokens: Iterable[Token]) -> tuple[Token, str] | None:
    """What was granted to it, and the name that counts: a fingerprint first, then a whole name, then a pattern of names."""
    listed = list(tokens)
    for token in listed:
        if token.certificate is not None and certificate.fingerprint and token.certificate == PIN + certificate.fingerprint:
            return token, token.name
    pinned = {token.name for token in listed if token.certificate is not None and token.certificate.startswith(PIN)}
    names = [name for name in certificate.names if name not in pinned]  # that is somebody else, who has a certificate of its own
    by_name = [token for token in listed if token.certificate is not None and not token.certificate.startswith(PIN)]
    for fits in (str.__eq__, fnmatchcase):
        for name in names:
            for token in by_name:
                if fits(name, str(token.certificate)):
                    return token, name
    return None


def checked_name(text: str) -> str:
    """What something can be granted to: a name as certificates hold it, a pattern of such, or a fingerprint. Raises `Misused`."""
    name = text.strip()
    if name.lower().startswith(PIN):
        digits = name[len(PIN) :].replace(":", "").lower()
        if not re.fullmatch(r"[0-9a-f]{64}", digits):
            raise Misused(f"{PIN} takes 64 hexadecimal digits.", advice="openssl x509 -in FILE -noout -fingerprint -sha256 prints them.")
        return PIN + digits
    if not _plain([name]):
        raise Misused(f"{text!r:.80} is no name of a certificate.", advice="Name its common name or one of its alternative names.")
    return name


def _plain(names: Iterable[str]) -> tuple[str, ...]:
    """Those that can stand in a record and a rule as they are; a name with a line break or a zero in it is there to deceive."""
    return tuple(dict.fromkeys(name for name in names if name.isprintable() and name.isascii() and 0 < len(name) <= _LONGEST))


def _is_address(name: str) -> bool:
    """Where it was is not who it is."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _fingerprint(pem: bytes) -> str:
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))).hexdigest()
    except (ValueError, UnicodeError):
        return ""


# ---- Tokens of running delegations: with one, a remote agent asks in the name of the work it was given.


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


# ---- The authenticator that all doors share: from what a request shows to a `Principal`, or to nobody. Also its limits: rate, size,


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


class Authenticator:
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
        self._streams = Streams(self.is_valid, lambda _principal: _sent_away())

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
        api: str = "",
        peer: str = "",
    ) -> Principal:
        """What a request shows, whatever its protocol. A credential that is shown must be good, also where another would do.

        `is_socket`: it came by the project's own socket. Raises `Refused` (UNAUTHENTICATED), `RateLimited`."""
        bearer = None if authorization is None else bearer_of(authorization)
        principal: Principal | None = None
        if bearer is not None and bearer.startswith(DELEGATION_PREFIX) and delegation is None:
            bearer, delegation = None, bearer
        if bearer is not None:
            principal = self.by_bearer(bearer, api=api, peer=peer)
        elif certificate is not None:
            principal = self.by_certificate(certificate, api=api, peer=peer)
        elif is_socket:
            principal = self.by_socket()
        if delegation is not None:
            return self.by_delegation(delegation, shown_by=principal, api=api, peer=peer)
        if principal is None:
            raise self._refused("nothing was shown", api=api, peer=peer)
        return principal

    def by_bearer(self, text: str, *, api: str = "", peer: str = "") -> Principal:
        """A token, the local token, or the token of a delegation; without the word `Bearer`."""
        if text.startswith(DELEGATION_PREFIX):
            return self.by_delegation(text, api=api, peer=peer)
        if len(text) > LONGEST:
            raise self._refused("too long for a token", api=api, peer=peer)
        is_local = self.local.is_it(text)
        token = self.tokens.find(text)
        if is_local:
            return OWNER
        if token is None:
            raise self._refused("unknown token", api=api, peer=peer)
        return self._welcomed(token, f"token:{token.name}", api, peer)

    def by_socket(self) -> Principal:
        """Whoever could open a socket of 0600 owns the project."""
        return OWNER

    def by_certificate(self, certificate: Certificate, *, api: str = "", peer: str = "") -> Principal:
        found = granted(certificate, [one for one in self.tokens.for_certificates() if one.fault(self._clock.wall()) is None])
        if found is None:
            shown = ", ".join(certificate.names)[:200] or certificate.fingerprint
            raise self._refused(f"nothing is granted to the certificate of {shown}", api=api, peer=peer)
        token, name = found
        return self._welcomed(token, f"cert:{name}", api, peer)

    def by_delegation(self, text: str, *, shown_by: Principal | None = None, api: str = "", peer: str = "") -> Principal:
        """On behalf of a delegation that runs here: what is asked for is its child."""
        token = self._delegations.find(text)
        fault = self._delegation_fault(token, shown_by)
        if token is None or fault is not None:
            raise self._refused(fault or "", principal=shown_by.name if shown_by else "", api=api, peer=peer)
        own = shown_by.grants if shown_by is not None else Grants()
        grants = Grants(
            expires_at=token.deadline_at,
            deadline_at=token.deadline_at,
            requests_per_second=own.requests_per_second,
            burst=own.burst,
            request_bytes=own.request_bytes,
            streams=own.streams,
        )
        return Principal(
            name=f"delegation:{token.session_id}",
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

    def _delegation_fault(self, token: DelegationToken | None, shown_by: Principal | None) -> str | None:
        """Why a token of a delegation is not valid, for the audit log; None: it is valid."""
        if token is None:
            return "unknown token of a delegation"
        if self._clock.wall() >= token.deadline_at:
            return f"expired token of {token.session_id}"
        if token.holder is not None and (shown_by is None or shown_by.name != token.holder):
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

    def _welcomed(self, token: Token, principal: str, api: str, peer: str) -> Principal:
        fault = token.fault(self._clock.wall())
        if fault is not None:
            raise self._refused(f"{fault} token", principal=principal, api=api, peer=peer)
        self.tokens.used(token)
        limits = token.grants.budget
        age = self._clock.wall() - token.created_at
        budget = None if limits is None else Budget(limits, opened_at=self._clock.monotonic() - max(0.0, age))
        return Principal(name=principal, grants=token.grants, credentials=(token.token_id,), budget=budget)

    def is_valid(self, principal: Principal) -> bool:
        """Whether what it came in by still holds: for what goes on for long."""
        expires_at = principal.grants.expires_at
        return (expires_at is None or self._clock.wall() < expires_at) and all(map(self._holds, principal.credentials))

    def _holds(self, credential: str) -> bool:
        session_id, slash, attempt = credential.partition("/")
        if slash:
            return self._is_living(session_id, int(attempt))
        token = self.tokens.by_id(credential)
        return token is not None and token.fault(self._clock.wall()) is None

    # ---- how much it may

    def admit(self, principal: Principal, size: int = 0) -> None:
        """One request of `size` bytes. Raises `RateLimited`, `Refused` (TOO_LARGE)."""
        grants, house = principal.grants, self.settings
        largest = self.largest(principal)
        if size > largest:
            raise Refused(f"The request has {size} bytes; {largest} are allowed.", code="TOO_LARGE", advice="Send less at once.")
        if principal.is_local:
            return  # whoever owns the project can keep it busy anyway, and its programs are to be as quick as they can
        rate = grants.requests_per_second if grants.requests_per_second is not None else house.requests_per_second
        burst = grants.burst if grants.burst is not None else max(rate, 1.0) if grants.requests_per_second is not None else house.burst
        wait = self._requests.take(principal.name, rate, burst)
        if wait:
            raise RateLimited(f"{principal.name} may make {rate:g} requests a second.", retry_after_seconds=wait)

    def largest(self, principal: Principal) -> int:
        """The size in bytes of a request of its."""
        most = principal.grants.request_bytes
        return self.settings.request_bytes if most is None else min(most, self.settings.request_bytes)

    def stream(self, principal: Principal) -> Open:
        """`with authenticator.stream(principal): …` around whatever goes on for long, in the task that sends it. Raises `RateLimited`."""
        most = principal.grants.streams
        return self._streams.open(principal, self.settings.streams if most is None else most)

    def budget_of(self, principal: Principal) -> Budget | None:
        """With the token of a delegation: the scope that it draws from. Of a principal: its limits, and since when they count; what it
        has drawn, over the lives of servers, is the engine's to know (`engine.purses`)."""
        return principal.budget

    # ---- who does not

    def _refused(self, why: str, *, principal: str = "", api: str = "", peer: str = "") -> Refused:
        """The same words whatever it was; the reason goes into the log."""
        wait = self._failures.take(peer, FAILURES_PER_SECOND, FAILURES_BURST)
        if self._notes.take("", NOTES_PER_SECOND, NOTES_BURST):
            self._unnoted += 1
        else:
            entry: dict[str, Any] = {"event": "turned_away", "principal": principal, "door": api, "peer": peer[:200], "because": why}
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
